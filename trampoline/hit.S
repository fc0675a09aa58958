// The usual hits of probes, in as few instructions as they take, and where the stubs of optimized probes lead.
//
// Included after frame.S. Constants:
//   FRAME_*        of frame.S, and FRAME_PSTATE, which `written` and `watcher` follow
//   POINT_*        of `Point`, at whose beginning are the handler and the counts of its first watcher, and of that
//   TABLE_*        of `Table`; the number of its pages follows its base
//   ENTRY_*        of `Entry`: the arguments, and what follows them; cpu and watcher; link and masks
//   CPU_STEP       in `Cpu`, at whose beginning is `busy`: stepping, slot, told, interrupt_masks; CPU_STEPPING what `busy` is while they are good, and
//                  a post-handler is told
//   FULL_CELL      from where a full stub is returned to, to the address of the cell that has the point
//   FULL_COPY      likewise, to the copy of the instruction
//   LEAN_CELL      as FULL_CELL, of a lean stub
//   kprobes_cpu_offset, an absolute symbol: where, from the address in TPIDR_EL1, the address of the CPU's state is
//
// What differs from the usual is left to Rust: src/probe/hit/mod.rs is the reference for what happens here.
//
// Handlers are `fn(&mut Hit)`: one pointer, which this toolchain passes in x0 as C does; the tests of every mode show it.

    .set    FRAME_PSTATE, {FRAME_PSTATE}
    .set    FRAME_WRITTEN, {FRAME_PSTATE} + 8
    .set    FRAME_WATCHER, {FRAME_PSTATE} + 16
    .set    POINT_ADDRESS, {POINT_ADDRESS}
    .set    POINT_LEAN, {POINT_LEAN}
    .set    POINT_SHORTCUT, {POINT_SHORTCUT}
    .set    POINT_SLOT, {POINT_SLOT}
    .set    POINT_OPERANDS, {POINT_OPERANDS}
    .set    POINT_POST, {POINT_POST}
    .set    TABLE_BASE, {TABLE_BASE}
    .set    TABLE_PAGES, {TABLE_PAGES}
    .set    CPU_STEP, {CPU_STEP}
    .set    CPU_STEPPING, {CPU_STEPPING}
    .set    ENTRY_ARGUMENTS, {ENTRY_ARGUMENTS}
    .set    ENTRY_CPU, {ENTRY_CPU}
    .set    ENTRY_LINK, {ENTRY_LINK}
    .set    FULL_CELL, {FULL_CELL}
    .set    FULL_COPY, {FULL_COPY}
    .set    LEAN_CELL, {LEAN_CELL}

// Counts a hit, and calls the handler of the point's first watcher.
// In: x21 = the point, sp = the frame, PSTATE.DAIF masked. Out: x20 = this CPU's state, and `written` in the frame; or at
// `\busy`, where a hit is being handled already, with nothing done. Clobbers: what a call may.
.macro hit_call busy
    mrs     x20, tpidr_el1
    ldr     x20, [x20, #:lo12:kprobes_cpu_offset]
    ldr     x9, [x20]
    cbnz    x9, \busy
    str     x21, [x20]                      // busy: not 0, and bit 0 clear
    ldp     x9, x11, [x21]                  // the handler, the counts
    ldr     x10, [x20, x11]
    add     x10, x10, #1
    str     x10, [x20, x11]
    stp     xzr, x21, [sp, #FRAME_WRITTEN]
    mov     x0, sp
    blr     x9
    str     xzr, [x20]
.endm

    .section .kprobes.text.hit, "ax"

// A `brk #0x4`, for the vectors of a kernel to call before anything else is done about it.
// In: sp = the complete frame, PSTATE.DAIF masked. Out: w0 = 2: it has been dealt with, and the frame's stack pointer is what
// it was; 1: it has been dealt with; 0: nothing has been done, `handle_sync` is to be called. Clobbers: everything.
    .balign 64
    .global kprobes_breakpoint
    .type   kprobes_breakpoint, %function
kprobes_breakpoint:
    mov     x19, x30
    ldr     x9, [sp, #FRAME_PC]
    adrp    x10, {TABLE}
    add     x10, x10, #:lo12:{TABLE}
    ldp     x11, x12, [x10, #TABLE_BASE]
    sub     x9, x9, x11
    lsr     x11, x9, #12
    cmp     x11, x12
    b.hs    breakpoint_unusual
    ldr     x10, [x10, #TABLE_PAGES]
    cbz     x10, breakpoint_unusual         // the first registration is under way: nothing orders it after the length
    ldr     x10, [x10, x11, lsl #3]         // what is loaded from an address that was loaded comes after it (B2.3.2)
    cbz     x10, breakpoint_unusual
    ubfx    x9, x9, #2, #10
    ldr     x21, [x10, x9, lsl #3]
    cbz     x21, breakpoint_unusual
    ldr     x23, [x21, #POINT_SHORTCUT]
    cbz     x23, breakpoint_unusual
    hit_call breakpoint_unusual
    ldr     x9, [sp, #FRAME_WRITTEN]
    mov     w0, #2
    cbnz    x9, breakpoint_written
breakpoint_go_on:
    ldr     x9, [x21, #POINT_SLOT]
    tbz     x23, #0, breakpoint_not_boosted
    str     x9, [sp, #FRAME_PC]
    ret     x19
breakpoint_not_boosted:
    ldp     x10, x11, [x21, #POINT_OPERANDS]
    tbnz    x23, #3, breakpoint_set
    tbnz    x23, #4, breakpoint_condition
    tbnz    x23, #5, breakpoint_test
    tbnz    x23, #1, breakpoint_register
    ldr     x10, [sp, #FRAME_PSTATE]
    mov     x12, #CPU_STEPPING
    and     x11, x10, #0x3c0
    orr     x10, x10, #0x3c0
    stp     x9, x10, [sp, #FRAME_PC]
    stp     x21, x9, [x20, #CPU_STEP]       // stepping, slot
    stp     x21, x11, [x20, #CPU_STEP + 16] // told, interrupt_masks
    str     x12, [x20]
    ret     x19
// x9 = where to go on, x10 = the value, x11 = where in the frame it goes.
breakpoint_set:
    str     x10, [sp, x11]
    ldr     x12, [sp, #FRAME_PSTATE]
    and     x12, x12, #~(0b11 << 10)        // PSTATE.BTYPE: what every other instruction than a branch clears
    stp     x9, x12, [sp, #FRAME_PC]
    ret     x19
// x9 = where to go on if the bit of x10 is set whose number the flags are, x11 = where else.
breakpoint_condition:
    ldr     x12, [sp, #FRAME_PSTATE]
    ubfx    x13, x12, #28, #4
    lsr     x10, x10, x13
    tst     x10, #1
    csel    x9, x9, x11, ne
    and     x12, x12, #~(0b11 << 10)
    stp     x9, x12, [sp, #FRAME_PC]
    ret     x19
// x9 = the link, x10 = where in the frame is where to go on, x11 = PSTATE.BTYPE then.
breakpoint_register:
    ldr     x13, [x21, #POINT_OPERANDS + 16]
    ldr     x10, [sp, x10]
    ldr     x12, [sp, #FRAME_PSTATE]
    str     x9, [sp, x13]
    and     x12, x12, #~(0b11 << 10)
    orr     x12, x12, x11
    stp     x10, x12, [sp, #FRAME_PC]
    ret     x19
// x9 = where to go on if a bit of x10 is set in a register, x11 = where else.
breakpoint_test:
    ldr     x13, [x21, #POINT_OPERANDS + 16]
    ldr     x12, [sp, #FRAME_PSTATE]
    ldr     x13, [sp, x13]
    tst     x13, x10
    csel    x9, x9, x11, ne
    and     x12, x12, #~(0b11 << 10)
    stp     x9, x12, [sp, #FRAME_PC]
    ret     x19
breakpoint_written:
    mov     w0, #1
    ldr     x9, [sp, #FRAME_PC]
    ldr     x10, [x21, #POINT_ADDRESS]
    cmp     x9, x10
    b.eq    breakpoint_go_on
    // Where a handler goes on is no target of the branch that led here.
    ldr     x9, [sp, #FRAME_PSTATE]
    and     x9, x9, #~(0b11 << 10)
    str     x9, [sp, #FRAME_PSTATE]
    ret     x19
breakpoint_unusual:
    mov     w0, #0
    ret     x19
    .size   kprobes_breakpoint, . - kprobes_breakpoint

// A `brk #0x6`, likewise: the end of an instruction that was stepped, for one probe.
// In, out, clobbers: as `kprobes_breakpoint`.
    .balign 64
    .global kprobes_stepped
    .type   kprobes_stepped, %function
kprobes_stepped:
    mov     x19, x30
    mrs     x20, tpidr_el1
    ldr     x20, [x20, #:lo12:kprobes_cpu_offset]
    ldr     x9, [x20]
    cmp     x9, #CPU_STEPPING
    b.ne    stepped_unusual
    ldp     x21, x10, [x20, #CPU_STEP]
    ldp     x11, x12, [sp, #FRAME_PC]
    ldr     x9, [x21, #POINT_SHORTCUT]
    tbz     x9, #2, stepped_unusual
    add     x10, x10, #4
    cmp     x10, x11
    b.ne    stepped_unusual
    ldp     x9, x10, [x20, #CPU_STEP + 16]
    cmp     x9, x21                         // not in a handler's hit, of which nobody is told
    b.ne    stepped_unusual
    ldr     x22, [x21, #POINT_ADDRESS]
    and     x12, x12, #~0x3c0
    add     x22, x22, #4
    orr     x12, x12, x10
    str     x21, [x20]                      // busy, no longer stepping
    stp     x22, x12, [sp, #FRAME_PC]
    ldr     x9, [x21, #POINT_POST]
    stp     xzr, x21, [sp, #FRAME_WRITTEN]
    mov     x0, sp
    blr     x9
    str     xzr, [x20]
    ldr     x9, [sp, #FRAME_WRITTEN]
    mov     w0, #2
    cbnz    x9, stepped_written
    ret     x19
stepped_written:
    ldr     x9, [sp, #FRAME_PC]
    mov     w0, #1
    cmp     x9, x22
    b.eq    stepped_same
    ldr     x9, [sp, #FRAME_PSTATE]
    and     x9, x9, #~(0b11 << 10)
    str     x9, [sp, #FRAME_PSTATE]
stepped_same:
    ret     x19
stepped_unusual:
    mov     w0, #0
    ret     x19
    .size   kprobes_stepped, . - kprobes_stepped

// The common part of all full stubs (src/probe/hit/stub.rs has the other).
// In: sp = a frame with x0, x1 and x30 stored; x0 = DAIF, x30 = the end of the stub, PSTATE.DAIF masked.
// Out: returns to x30 with x0 = the DAIF to be restored, and all registers but x0, x1 and x30 those of the frame; or not at
// all, where a handler has moved the stack pointer or the pc.
//
// The frame's pstate has the mode, the flags and the masks. What a handler has not asked to write is not restored where the
// calls have preserved it.
    .balign 64
    .global kprobes_optimized
    .type   kprobes_optimized, %function
kprobes_optimized:
    frame_store_registers_from_x2
    ldr     x21, [x30, #FULL_CELL]
    mrs     x1, nzcv
    ldr     x21, [x21]
    orr     x0, x0, x1
    add     x1, sp, #FRAME_SIZE
    mov     x19, x30
    str     x1, [sp, #FRAME_SP]
    cbz     x21, optimized_restore          // disarmed since this CPU came to the stub: there is nobody to tell
    add     x0, x0, #0b0101                 // M = EL1h (Arm ARM, C5.2.19); ORR has no such immediate
    ldr     x1, [x21, #POINT_ADDRESS]
    stp     x1, x0, [sp, #FRAME_PC]
    stp     x29, x1, [sp, #FRAME_RECORD]
    add     x29, sp, #FRAME_RECORD
    ldr     x9, [x21, #POINT_SHORTCUT]
    tbz     x9, #0, optimized_busy          // there is more to do at the point since this CPU came to the stub
    hit_call optimized_busy
    ldp     x0, x1, [sp, #FRAME_PSTATE]
    cbnz    x1, optimized_written
    and     x1, x0, #0xf0000000
    and     x0, x0, #0x3c0
    msr     nzcv, x1
    mov     x30, x19
    ldr     x29, [sp, #232]
    ldp     x20, x21, [sp, #160]
    ldp     x18, x19, [sp, #144]
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
    ret
// A handler is running on this CPU, or post-handlers are to be called, for which it is too late: every probe of the point
// misses the hit.
optimized_busy:
    mov     x0, x21
    bl      kprobes_missed
    ldr     x0, [sp, #FRAME_PSTATE]
    b       optimized_restore
optimized_written:
    ldp     x1, x2, [sp, #FRAME_SP]         // sp and pc
    ldr     x3, [x21, #POINT_ADDRESS]
    add     x4, sp, #FRAME_SIZE
    cmp     x2, x3
    b.ne    kprobes_leave
    cmp     x1, x4
    b.eq    optimized_restore
    add     x2, x19, #FULL_COPY             // another stack pointer only: the instruction is still to be executed
    str     x2, [sp, #FRAME_PC]
    b       kprobes_leave
// In: x0 = the flags and the masks, x19 = the end of the stub.
optimized_restore:
    and     x1, x0, #0xf0000000
    and     x0, x0, #0x3c0
    msr     nzcv, x1
    mov     x30, x19
    frame_load_registers_from_x2
    ret
    .size   kprobes_optimized, . - kprobes_optimized
    .global kprobes_optimized_end
kprobes_optimized_end:

// To go on elsewhere, or on another stack, takes an exception: only its return loads all there is at once.
// In: sp = the frame, which the engine takes over.
    .global kprobes_leave
    .type   kprobes_leave, %function
kprobes_leave:
    brk     #{BRK_LEAVE}
    .size   kprobes_leave, . - kprobes_leave

// The common part of all lean stubs.
// In: sp = an `Entry` with x29 and x30 stored; x9 = DAIF, x30 = the end of the way in, PSTATE.DAIF masked.
// Out: returns to x30 with x9 = the DAIF to be restored, and x0 to x8, x18 and x19 to x28 those of the probed code; x29 and x30
// are left to be loaded from the `Entry`, where a handler of the engine may have replaced x30. Clobbers: x10 to x17, flags.
    .balign 64
    .global kprobes_lean
    .type   kprobes_lean, %function
kprobes_lean:
    ldr     x10, [x30, #LEAN_CELL]
    ldr     x10, [x10]
    cbz     x10, lean_nobody                // disarmed since this CPU came to the stub
    mrs     x11, tpidr_el1
    ldr     x11, [x11, #:lo12:kprobes_cpu_offset]
    stp     x0, x1, [sp, #ENTRY_ARGUMENTS]
    stp     x2, x3, [sp, #ENTRY_ARGUMENTS + 16]
    stp     x4, x5, [sp, #ENTRY_ARGUMENTS + 32]
    stp     x6, x7, [sp, #ENTRY_ARGUMENTS + 48]
    stp     x8, x18, [sp, #ENTRY_ARGUMENTS + 64]
    stp     x11, x10, [sp, #ENTRY_CPU]      // the point is that of its first watcher
    stp     x30, x9, [sp, #ENTRY_LINK]
    mov     x29, sp
    ldr     x12, [x11]
    cbnz    x12, lean_busy
    str     x10, [x11]                      // busy: not 0, and bit 0 clear
    ldp     x12, x13, [x10, #POINT_LEAN]    // the handler, the counts
    ldr     x14, [x11, x13]
    add     x14, x14, #1
    str     x14, [x11, x13]
    mov     x0, sp
    blr     x12
    ldr     x11, [sp, #ENTRY_CPU]
    str     xzr, [x11]
lean_restore:
    ldp     x30, x9, [sp, #ENTRY_LINK]
    ldp     x0, x1, [sp, #ENTRY_ARGUMENTS]
    ldp     x2, x3, [sp, #ENTRY_ARGUMENTS + 16]
    ldp     x4, x5, [sp, #ENTRY_ARGUMENTS + 32]
    ldp     x6, x7, [sp, #ENTRY_ARGUMENTS + 48]
    ldp     x8, x18, [sp, #ENTRY_ARGUMENTS + 64]
lean_nobody:
    ret
// A handler is running on this CPU.
lean_busy:
    mov     x0, x10
    bl      kprobes_missed
    b       lean_restore
    .size   kprobes_lean, . - kprobes_lean
    .global kprobes_lean_end
kprobes_lean_end:
