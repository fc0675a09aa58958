// The usual hits of probes, in as few instructions as possible, and the common routines of the stubs of optimized
// probes.
//
// Included after frame.S. Constants:
//   FRAME_*        offsets in the frame, from frame.S; also FRAME_PSTATE, which FRAME_WRITTEN and FRAME_CALLED_FOR
//                  follow
//   POINT_*        offsets in `Point`. At its beginning are the handler and the counts of its first armed probe.
//                  POINT_ADDRESS is that armed probe's address, which the post-handler follows. FULL and LEAN are each
//                  a handler and its counts. The slot follows SHORTCUT. OPERANDS are three doublewords.
//   INSTANCE_*     offsets in `Instance`: the return address follows STACK_POINTER, `hit` follows NEXT, and SPARE
//                  follows CODE, and OWNER follows SPARE
//   TABLE          the symbol of the table of points
//   TABLE_*        offsets in `Table`: the number of pages follows BASE
//   PAGE_SHIFT     the binary logarithm of the bytes of text in a page of the table
//   BRK_LEAVE      the immediate of the breakpoint by which a CPU leaves a hit
//   ARGUMENTS_*    offsets in `CallArguments`: X0 and the registers after it; CPU, then the armed probe; LINK, then the
//                  masks
//   CPU_STEP       offset in `Cpu` of: stepping, slot_end, post_point, interrupt_masks. `busy` is at its beginning
//   CPU_STEPPING   the value of `busy` while a step is in progress after which a post-handler is called
//   FULL_CELL      distance from the return address of a full stub's call to the word with the address of the point's
//                  cell
//   FULL_COPY      distance from the return address of a full stub's call to the copy of the instruction
//   LEAN_CELL      like FULL_CELL, for a lean stub and for a stub that follows
//   FOLLOW_SIZE    bytes of stack that a stub that follows makes room for
//   kprobes_cpu_offset, kprobes_calls_offset   absolute symbols: offsets from the address in TPIDR_EL1 of the word with
//                                              the address of the CPU's state, and of the word with the newest call of
//                                              the task
//
// The unusual cases are left to Rust. src/probe/hit/mod.rs is the reference for what happens here.
//
// Handlers are `extern "C"` functions that take one pointer, in x0 (AAPCS64, section 6.8.2).

// ESR_EL1 of `brk #0x4` and `brk #0x6` (Arm ARM, D24.2.40: EC = 0x3c in bits 31 to 26, IL in bit 25, the immediate in
// the low bits), rotated so that the immediate is above the rest: the result fits the immediate of a CMP.
    .set    kprobes_syndrome_hit, 0x4 << 7 | 0x3c << 1 | 1
    .set    kprobes_syndrome_stepped, 0x6 << 7 | 0x3c << 1 | 1

// Counts a hit, and calls a handler.
// In: \point = the point, in a register other than x9, x11, x12 and x20, not changed before the call; at
// \point + \pair, the handler and the counts; sp = the frame; PSTATE.DAIF masked.
// Out: x20 = this CPU's state, and `written` in the frame. Goes to `\busy`, with nothing done, if a hit is already
// being handled.
// Clobbers: what a call may.
.macro kprobes_hit_call point, pair, busy
    mrs     x20, tpidr_el1
    ldr     x20, [x20, #:lo12:kprobes_cpu_offset]
    ldr     x9, [x20]
    cbnz    x9, \busy
    str     \point, [x20]                  // busy: not 0, and bit 0 clear
    ldp     x9, x11, [\point, #\pair]
    ldr     x12, [x20, x11]
    add     x12, x12, #1
    str     x12, [x20, x11]
    stp     xzr, \point, [sp, #{FRAME_WRITTEN}]
    mov     x0, sp
    blr     x9
    str     xzr, [x20]
.endm

// Returns from the exception to the pc in x9, with the pstate in x1, and with all other registers as in the frame.
// In: sp = the frame; x22 to x28 as in the frame, because handlers preserve them.
.macro kprobes_hit_leave
    msr     elr_el1, x9
    msr     spsr_el1, x1
    ldp     x29, x30, [sp, #232]
    kprobes_frame_load_from_x2_to_x21
    ldp     x0, x1, [sp], #{FRAME_SIZE}
    eret
.endm

// Takes this CPU's spare instance of a return probe.
// In: x10 = the distance from the state of a CPU to its spare, PSTATE.DAIF masked. Out: x11 = the instance, x12 = the
// address in TPIDR_EL1. Goes to `\none`, with nothing taken, if there is none or a hit is being handled. Clobbers:
// x10, x13.
.macro kprobes_returns_take none
    mrs     x12, tpidr_el1
    ldr     x11, [x12, #:lo12:kprobes_cpu_offset]
    ldr     x13, [x11]                      // busy
    cbnz    x13, \none
    add     x10, x11, x10
9:  ldaxr   x11, [x10]
    cbz     x11, \none
    stxr    w13, xzr, [x10]
    cbnz    w13, 9b
.endm

// Makes the taken instance the newest call of the task. It is the hit's only instance, as the zero in `hit` says.
// In: x11, x12 from kprobes_returns_take, x13 = the value of x30, x10 = the stack pointer. Out: x13 = the new value of
// x30.
.macro kprobes_returns_follow
    stp     x10, x13, [x11, #{INSTANCE_STACK_POINTER}]
    ldr     x13, [x12, #:lo12:kprobes_calls_offset]
    stp     x13, xzr, [x11, #{INSTANCE_NEXT}]
    str     x11, [x12, #:lo12:kprobes_calls_offset]
    adr     x13, kretprobe_trampoline
.endm

    .pushsection .kprobes.text.hit, "ax"

// Handles a synchronous exception from EL1, if it is the usual hit of a probe, or the usual end of a stepped
// instruction with a single probe. The vectors of a kernel call it before they do anything else about the exception.
// In: sp = the complete frame, x1 = its pc, x2 = its pstate, PSTATE.DAIF masked. Out: returns from the exception if it
// has handled it. Otherwise returns to the caller with nothing done, and the caller calls `handle_sync`.
// Clobbers: x9 to x13, x20, x21.
//
// After the handler: x19 = `written`, x9 = the pc to resume at, x1 = the pstate to resume with.
    .balign 64
    .global kprobes_exception
    .type   kprobes_exception, %function
kprobes_exception:
    mrs     x9, esr_el1
    ror     w9, w9, #25
    cmp     w9, #kprobes_syndrome_hit
    b.ne    kprobes_exception_not_a_hit
    adrp    x10, {TABLE}
    add     x10, x10, #:lo12:{TABLE}
    ldp     x11, x12, [x10, #{TABLE_BASE}]
    sub     x9, x1, x11
    lsr     x11, x9, #{PAGE_SHIFT}
    cmp     x11, x12
    b.hs    kprobes_exception_unusual
    ldr     x10, [x10, #{TABLE_PAGES}]
    cbz     x10, kprobes_exception_unusual  // null while the first registration is under way: no order with the length
    ldr     x10, [x10, x11, lsl #3]         // a load from a loaded address is ordered after that load (B2.3.2)
    cbz     x10, kprobes_exception_unusual
    ubfx    x9, x9, #2, #{PAGE_SHIFT} - 2
    ldr     x21, [x10, x9, lsl #3]
    tbnz    x21, #0, kprobes_exception_unusual  // odd if there is no point
    ldr     x9, [x21, #{POINT_SHORTCUT}]
    cbz     x9, kprobes_exception_entry
    kprobes_hit_call x21, 0, kprobes_exception_unusual
    ldp     x1, x19, [sp, #{FRAME_PSTATE}]
    ldp     x12, x9, [x21, #{POINT_SHORTCUT}]
    cbnz    x19, kprobes_hit_written
    tbz     x12, #0, kprobes_hit_go_on
    kprobes_hit_leave
// The entry of a function, where no handler is called but the call is followed to its return, as `function_entered` in
// src/probe/hit/returns.rs does.
kprobes_exception_entry:
    ldr     x9, [x21, #{POINT_ENTRY}]
    cbz     x9, kprobes_exception_unusual
    ldr     x10, [x21, #{POINT_RETURNS}]
    kprobes_returns_take kprobes_exception_unusual
    ldp     x13, x10, [sp, #240]            // x30 and sp
    kprobes_returns_follow
    str     x13, [sp, #240]
    mov     x1, x2
    mov     x19, #0
    mov     x12, x9
    ldr     x9, [x21, #{POINT_SHORTCUT} + 8]
    tbz     x12, #0, kprobes_hit_go_on
    kprobes_hit_leave
kprobes_exception_unusual:
    ret

// In: x12 = the shortcut, which is not BOOSTED.
kprobes_hit_go_on:
    ldp     x10, x11, [x21, #{POINT_OPERANDS}]
    tbnz    x12, #2, kprobes_hit_step
    tbnz    x12, #3, kprobes_hit_set
    tbnz    x12, #4, kprobes_hit_condition
    tbnz    x12, #5, kprobes_hit_test
    tbnz    x12, #1, kprobes_hit_register
// In: x10 = the address to load from, a word unless bit 6 of the shortcut is set; x11 = the offset of the destination
// in the frame.
    tbnz    x12, #6, kprobes_hit_load_doubleword
    ldr     w10, [x10]
    b       kprobes_hit_set
kprobes_hit_load_doubleword:
    ldr     x10, [x10]
// In: x10 = the value, x11 = the offset of the destination in the frame, which may be any register.
kprobes_hit_set:
    str     x10, [sp, x11]
    and     x1, x1, #~(0b11 << 10)          // PSTATE.BTYPE: all but some indirect branches clear it
    cbnz    x19, kprobes_hit_go_on_written
    ldp     x22, x23, [sp, #176]
    ldp     x24, x25, [sp, #192]
    ldp     x26, x27, [sp, #208]
    ldr     x28, [sp, #224]
    kprobes_hit_leave
// In: x9 = the slot, x10 = its end.
kprobes_hit_step:
    mov     x12, #{CPU_STEPPING}
    and     x11, x1, #0x3c0
    orr     x1, x1, #0x3c0
    stp     x21, x10, [x20, #{CPU_STEP}]    // stepping, slot_end
    stp     x21, x11, [x20, #{CPU_STEP} + 16] // post_point, interrupt_masks
    str     x12, [x20]
kprobes_hit_finish:
    cbnz    x19, kprobes_hit_go_on_written
    kprobes_hit_leave
// In: x10 = a bit for each value of the flags, x9 = the pc if the bit of the current flags is set, x11 = the pc
// otherwise.
kprobes_hit_condition:
    ubfx    x12, x1, #28, #4
    lsr     x10, x10, x12
    tst     x10, #1
    csel    x9, x9, x11, ne
    and     x1, x1, #~(0b11 << 10)
    b       kprobes_hit_finish
// In: x10 = a mask, x9 = the pc if any of its bits is set in the register at the third operand, x11 = the pc otherwise.
kprobes_hit_test:
    ldr     x12, [x21, #{POINT_OPERANDS} + 16]
    ldr     x12, [sp, x12]
    tst     x12, x10
    csel    x9, x9, x11, ne
    and     x1, x1, #~(0b11 << 10)
    b       kprobes_hit_finish
// In: x9 = the link, x10 = the offset in the frame of the register with the target, x11 = PSTATE.BTYPE at the target.
kprobes_hit_register:
    ldr     x12, [x21, #{POINT_OPERANDS} + 16]
    ldr     x10, [sp, x10]
    str     x9, [sp, x12]
    mov     x9, x10
    and     x1, x1, #~(0b11 << 10)
    orr     x1, x1, x11
    b       kprobes_hit_finish

// A handler may have changed any register. If the pc is unchanged, the instruction is still to be executed.
kprobes_hit_written:
    ldr     x10, [sp, #{FRAME_PC}]
    ldr     x11, [x21, #{POINT_ADDRESS}]
    cmp     x10, x11
    b.ne    kprobes_hit_elsewhere
    tbz     x12, #0, kprobes_hit_go_on
kprobes_hit_go_on_written:
    stp     x9, x1, [sp, #{FRAME_PC}]
    b       kprobes_return
kprobes_hit_elsewhere:
    // The address that a handler sends execution to is not the target of the branch that led here.
    and     x1, x1, #~(0b11 << 10)
    str     x1, [sp, #{FRAME_PSTATE}]
    b       kprobes_return

kprobes_exception_not_a_hit:
    cmp     w9, #kprobes_syndrome_stepped
    b.ne    kprobes_exception_unusual
    mrs     x20, tpidr_el1
    ldr     x20, [x20, #:lo12:kprobes_cpu_offset]
    ldr     x9, [x20]
    cmp     x9, #{CPU_STEPPING}
    b.ne    kprobes_exception_unusual
    ldp     x21, x10, [x20, #{CPU_STEP}]
    ldr     x9, [x21, #{POINT_SHORTCUT}]
    tbz     x9, #2, kprobes_exception_unusual
    cmp     x10, x1
    b.ne    kprobes_exception_unusual
    ldp     x9, x11, [x20, #{CPU_STEP} + 16]
    cmp     x9, x21                         // not after a hit within a handler: it has no post-handlers
    b.ne    kprobes_exception_unusual
    ldp     x9, x10, [x21, #{POINT_ADDRESS}] // and the post-handler
    and     x2, x2, #~0x3c0
    add     x9, x9, #4
    orr     x2, x2, x11
    str     x21, [x20]                      // busy: not 0, and bit 0 clear
    stp     x9, x2, [sp, #{FRAME_PC}]
    str     x9, [sp, #{FRAME_RECORD} + 8]   // the vectors have stored an address in the slot there
    stp     xzr, x21, [sp, #{FRAME_WRITTEN}]
    mov     x0, sp
    blr     x10
    ldp     x1, x19, [sp, #{FRAME_PSTATE}]
    str     xzr, [x20]
    ldr     x9, [sp, #{FRAME_PC}]
    cbnz    x19, kprobes_stepped_written
    kprobes_hit_leave
kprobes_stepped_written:
    ldr     x10, [x21, #{POINT_ADDRESS}]
    add     x10, x10, #4
    cmp     x9, x10
    b.ne    kprobes_hit_elsewhere
    b       kprobes_return
    .size   kprobes_exception, . - kprobes_exception

// The common part of all full stubs (src/probe/hit/stub.rs has the other part).
// In: sp = a frame in which x0, x1, x30 and sp are stored; x0 = DAIF, x30 = the return address in the stub, PSTATE.DAIF
// masked.
// Out: returns to the stub with x0 = the DAIF to restore, and all registers but x0 and x1 as in the frame. Does not
// return if a handler has changed the stack pointer or the pc: it goes on at `kprobes_leave`.
//
// The frame's pstate holds only the mode, the flags and the masks. Unless a handler has asked to write the frame, only
// the registers that calls may change are restored.
    .balign 64
    .global kprobes_optimized
    .type   kprobes_optimized, %function
kprobes_optimized:
    kprobes_frame_store_registers_from_x2
    ldr     x10, [x30, #{FULL_CELL}]
    mov     x19, x30
    ldr     x10, [x10]
    mrs     x21, nzcv
    orr     x0, x0, x21
    tbnz    x10, #0, kprobes_optimized_restore  // odd: disarmed since this CPU got to the stub: there is no handler
    add     x0, x0, #0b0101                 // M = EL1h (Arm ARM, C5.2.19); ORR has no such immediate
    ldr     x1, [x10, #{POINT_ADDRESS}]
    stp     x1, x0, [sp, #{FRAME_PC}]
    stp     x29, x1, [sp, #{FRAME_RECORD}]
    add     x29, sp, #{FRAME_RECORD}
    kprobes_hit_call x10, {POINT_FULL}, kprobes_optimized_busy
    ldp     x0, x1, [sp, #{FRAME_PSTATE}]
    cbnz    x1, kprobes_optimized_written
    msr     nzcv, x21
    and     x0, x0, #0x3c0
    mov     x1, x19
    ldp     x29, x30, [sp, #232]
    kprobes_frame_load_from_x2_to_x21
    ret     x1
// A handler is already running on this CPU: every probe of the point misses the hit.
kprobes_optimized_busy:
    mov     x0, x10
    bl      kprobes_missed
    ldr     x0, [sp, #{FRAME_PSTATE}]
    b       kprobes_optimized_restore
kprobes_optimized_written:
    ldp     x1, x2, [sp, #{FRAME_SP}]       // sp and pc
    ldr     x3, [sp, #{FRAME_CALLED_FOR}]
    ldr     x3, [x3, #{POINT_ADDRESS}]      // of any armed probe of the point; the first is at the point's beginning
    add     x4, sp, #{FRAME_SIZE}
    cmp     x2, x3
    b.ne    kprobes_leave
    cmp     x1, x4
    b.eq    kprobes_optimized_restore
    add     x2, x19, #{FULL_COPY}           // only the stack pointer differs: the instruction is still to be executed
    str     x2, [sp, #{FRAME_PC}]
    b       kprobes_leave
// In: x0 = the flags and the masks, x19 = the return address in the stub.
kprobes_optimized_restore:
    and     x1, x0, #0xf0000000
    and     x0, x0, #0x3c0
    msr     nzcv, x1
    mov     x1, x19
    ldr     x30, [sp, #240]
    kprobes_frame_load_registers_from_x2
    ret     x1
    .size   kprobes_optimized, . - kprobes_optimized
    .global kprobes_optimized_end
kprobes_optimized_end:

// Goes on at another address, or on another stack. This takes an exception, because only an exception return loads all
// of the state at once.
// In: sp = the frame, which the engine takes over.
    .global kprobes_leave
    .type   kprobes_leave, %function
kprobes_leave:
    brk     #{BRK_LEAVE}
    .size   kprobes_leave, . - kprobes_leave

// Leaves an exception: loads all registers from the frame, and returns to the interrupted code.
// In: sp = the frame, PSTATE.DAIF masked. Out: the interrupted code goes on.
    .balign 64
    .global kprobes_return
    .type   kprobes_return, %function
kprobes_return:
    kprobes_frame_check_stack_pointer kprobes_return_move
kprobes_return_load:
    kprobes_frame_load
    eret
kprobes_return_move:
    kprobes_frame_move
    b       kprobes_return_load
    .size   kprobes_return, . - kprobes_return

// The common part of all lean stubs.
// In: sp = `CallArguments` in which x29 and x30 are stored; x9 = DAIF, x30 = the return address in the stub,
// PSTATE.DAIF masked.
// Out: returns to x30 with x9 = the DAIF to restore, and x0 to x8 and x18 to x28 as in the probed code. The stub loads
// x29 and x30 from the `CallArguments`. Clobbers: x10 to x17, flags.
    .balign 64
    .global kprobes_lean
    .type   kprobes_lean, %function
kprobes_lean:
    ldr     x10, [x30, #{LEAN_CELL}]
    ldr     x10, [x10]
    tbnz    x10, #0, kprobes_lean_disarmed   // odd: disarmed since this CPU got to the stub
    mrs     x11, tpidr_el1
    ldr     x11, [x11, #:lo12:kprobes_cpu_offset]
    stp     x0, x1, [sp, #{ARGUMENTS_X0}]
    stp     x2, x3, [sp, #{ARGUMENTS_X0} + 16]
    stp     x4, x5, [sp, #{ARGUMENTS_X0} + 32]
    stp     x6, x7, [sp, #{ARGUMENTS_X0} + 48]
    stp     x8, x18, [sp, #{ARGUMENTS_X0} + 64]
    stp     x11, x10, [sp, #{ARGUMENTS_CPU}]    // the point's address is also that of its first armed probe
    stp     x30, x9, [sp, #{ARGUMENTS_LINK}]
    mov     x29, sp
    ldr     x12, [x11]
    cbnz    x12, kprobes_lean_busy
    str     x10, [x11]                      // busy: not 0, and bit 0 clear
    ldp     x12, x13, [x10, #{POINT_LEAN}]  // the handler, the counts
    ldr     x14, [x11, x13]
    add     x14, x14, #1
    str     x14, [x11, x13]
    mov     x0, sp
    blr     x12
    ldr     x11, [sp, #{ARGUMENTS_CPU}]
    str     xzr, [x11]
kprobes_lean_restore:
    ldp     x30, x9, [sp, #{ARGUMENTS_LINK}]
    ldp     x0, x1, [sp, #{ARGUMENTS_X0}]
    ldp     x2, x3, [sp, #{ARGUMENTS_X0} + 16]
    ldp     x4, x5, [sp, #{ARGUMENTS_X0} + 32]
    ldp     x6, x7, [sp, #{ARGUMENTS_X0} + 48]
    ldp     x8, x18, [sp, #{ARGUMENTS_X0} + 64]
kprobes_lean_disarmed:
    ret
// A handler is already running on this CPU: every probe of the point misses the hit.
kprobes_lean_busy:
    mov     x0, x10
    bl      kprobes_missed
    b       kprobes_lean_restore
    .size   kprobes_lean, . - kprobes_lean
    .global kprobes_lean_end
kprobes_lean_end:

// The common part of all stubs that follow calls to their returns, and call no handler.
// In: sp = room for x9 to x13 and x30, of which x9 and x30 are stored first; x9 = DAIF, x30 = the return address in the
// stub, PSTATE.DAIF masked.
// Out: returns to x30 with all registers but x9 and x30, and the flags, as they were. The stub loads those two. If the
// call is followed, the stored x30 is the address of a trampoline. Unusual cases are left to `kprobes_entered` in
// src/probe/hit/returns.rs.
    .balign 64
    .global kprobes_follow
    .type   kprobes_follow, %function
kprobes_follow:
    stp     x10, x11, [sp, #16]
    stp     x12, x13, [sp, #32]
    ldr     x11, [x30, #{LEAN_CELL}]
    ldr     x11, [x11]
    tbnz    x11, #0, kprobes_follow_disarmed // odd: disarmed since this CPU got to the stub
    ldr     x10, [x11, #{POINT_RETURNS}]
    cbz     x10, kprobes_follow_unusual     // the point has more to do than when this CPU got to the stub
    kprobes_returns_take kprobes_follow_unusual
    ldr     x13, [sp, #8]
    add     x10, sp, #{FOLLOW_SIZE}
    kprobes_returns_follow
    str     x13, [sp, #8]
kprobes_follow_disarmed:
    ldp     x12, x13, [sp, #32]
    ldp     x10, x11, [sp, #16]
    ret
// Saves what a call may clobber and the stub has not saved: x0 to x8, x14 to x18, the flags, x29 and x30.
kprobes_follow_unusual:
    mrs     x10, nzcv
    stp     x29, x30, [sp, #-160]!
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    stp     x2, x3, [sp, #32]
    stp     x4, x5, [sp, #48]
    stp     x6, x7, [sp, #64]
    stp     x8, x14, [sp, #80]
    stp     x15, x16, [sp, #96]
    stp     x17, x18, [sp, #112]
    stp     x9, x10, [sp, #128]
    ldr     x0, [x30, #{LEAN_CELL}]
    ldr     x0, [x0]
    ldr     x1, [sp, #160 + 8]
    add     x2, sp, #160 + {FOLLOW_SIZE}
    bl      kprobes_entered
    str     x0, [sp, #160 + 8]
    ldp     x9, x10, [sp, #128]
    ldp     x17, x18, [sp, #112]
    ldp     x15, x16, [sp, #96]
    ldp     x8, x14, [sp, #80]
    ldp     x6, x7, [sp, #64]
    ldp     x4, x5, [sp, #48]
    ldp     x2, x3, [sp, #32]
    ldp     x0, x1, [sp, #16]
    msr     nzcv, x10
    ldp     x29, x30, [sp], #160
    b       kprobes_follow_disarmed
    .size   kprobes_follow, . - kprobes_follow

    .popsection

// An empty section. Its flags make the memory that `kprobes.x` reserves under this name executable.
    .pushsection .kprobes.pool, "ax", %nobits
    .popsection
