// Where a return-probed function returns to.
//
// Included after frame.S and hit.S. Constants: FRAME_* of frame.S, INSTANCE_* of `Instance`, RETURNS_* of `ReturnProbe`, and what
// hit.S says.
//
// The entry probe has put the address of `kretprobe_trampoline` in the place of the true return address, so a RET
// arrives here with the caller's stack pointer. The whole register file is saved, the true return address is found (it
// goes to frame.pc, and to frame.x30, where a RET leaves it), the handlers run, and the registers go back. What is done here
// is the usual: the newest call of the task has returned, and it alone. The rest is left to `kprobes_function_returned`
// in src/probe/hit/returns.rs, which is the reference.
//
// No exception return is used: that would have to compose all of PSTATE, with fields that only some CPUs can read.
// Flags and interrupt masks are put back by hand instead, and the rest of PSTATE is never touched.

    .pushsection .kprobes.text.kretprobe, "ax"

// In: sp and all registers as the function returned them. Out: the same at the true return address, but for what
// handlers have changed. Where a handler has changed frame.pc to other than frame.x30, x16 is lost, as it may be
// across any procedure call (AAPCS64, section 6.1.1). What a handler has not asked to write is not restored where the calls
// have preserved it.
//
// Handlers are `fn(&mut Call)`, which are called as those in hit.S.
    .balign 64
    .global kretprobe_trampoline
    .type   kretprobe_trampoline, %function
kretprobe_trampoline:
    stp     x0, x1, [sp, #-{FRAME_SIZE}]!
    kprobes_frame_store_registers_from_x2
    mrs     x20, daif
    msr     daifset, #0b1111                // the engine's state is this CPU's: no interrupt, no migration
    .global kretprobe_entered
kretprobe_entered:
    mrs     x21, nzcv
    mrs     x22, tpidr_el1
    add     x0, sp, #{FRAME_SIZE}
    orr     x2, x20, x21
    ldr     x19, [x22, #:lo12:kprobes_calls_offset]
    add     x2, x2, #0b0101                 // M = EL1h (Arm ARM, C5.2.19); ORR has no such immediate
    adr     x3, kretprobe_trampoline
    cbz     x19, kretprobe_unusual
    ldp     x4, x1, [x19, #{INSTANCE_STACK_POINTER}]
    cmp     x4, x0
    b.ne    kretprobe_unusual
    cmp     x1, x3
    b.eq    kretprobe_unusual
    ldr     x4, [x19, #{INSTANCE_NEXT}]
    mov     x30, x1
    kprobes_frame_store_state
    str     x4, [x22, #:lo12:kprobes_calls_offset] // the frame tells the true return address from here on
    ldr     x24, [x22, #:lo12:kprobes_cpu_offset]
    ldr     x23, [x19, #{INSTANCE_OWNER}]
    ldr     x9, [x23, #{RETURNS_HANDLER}]
    cbz     x9, kretprobe_retired
    ldr     x10, [x23, #{RETURNS_COUNTERS}]
    str     x19, [x24]                      // busy: not 0, and bit 0 clear
    ldr     x11, [x24, x10]
    add     x11, x11, #1
    str     x11, [x24, x10]
    stp     xzr, x19, [sp, #{FRAME_WRITTEN}]
    mov     x0, sp
    blr     x9
    str     xzr, [x24]
kretprobe_give_back:
    ldr     x9, [x24, #{CPU_NUMBER}]
    add     x23, x23, x9, lsl #{SLOT_SHIFT}
    stlr    xzr, [x19]                      // its stack pointer, last: a reader of 0 sees what the handler has stored
    ldr     x9, [x23]
    cbnz    x9, kretprobe_recycle
    stlr    x19, [x23]                      // the slot stays empty meanwhile: other CPUs do not fill it
kretprobe_reported:
    ldr     x9, [sp, #{FRAME_WRITTEN}]
    cbnz    x9, kretprobe_written
// From here to `kretprobe_left` the frame is complete, and sp at it, up to the returns. x29 and x30 are those of the caller before an
// interrupt can be taken, which pushes its frame below this one.
    .global kretprobe_leaving
kretprobe_leaving:
    ldp     x29, x30, [sp, #232]
    msr     nzcv, x21
    msr     daif, x20
    ldr     x24, [sp, #192]
    ldp     x22, x23, [sp, #176]
    kprobes_frame_load_from_x2_to_x21
    ldp     x0, x1, [sp], #{FRAME_SIZE}
    ret
kretprobe_load:
    ldp     x29, x30, [sp, #232]
    ldp     x0, x1, [sp, #{FRAME_PC}]
    and     x2, x1, #0x3c0
    msr     daif, x2
    and     x1, x1, #0xf0000000
    sub     x2, x0, x30
    cbnz    x2, kretprobe_divert
    msr     nzcv, x1
    kprobes_frame_load_registers_from_x2
    ldp     x0, x1, [sp], #{FRAME_SIZE}
    ret
kretprobe_divert:
    msr     nzcv, x1
    kprobes_frame_load_registers_from_x2
    mov     x16, x0
    ldp     x0, x1, [sp], #{FRAME_SIZE}
    ret     x16                             // not BR: that would set PSTATE.BTYPE
    .global kretprobe_left
kretprobe_left:
kretprobe_retired:
    str     xzr, [sp, #{FRAME_WRITTEN}]
    b       kretprobe_give_back
kretprobe_recycle:
    mov     x0, x19
    bl      kprobes_recycle
    b       kretprobe_reported
// In: sp = the frame, but for its state, x0 = the stack pointer, x2 = the state, x3 = this routine.
kretprobe_unusual:
    mov     x1, x3                          // pc: the engine replaces it and the frame record's copy
    kprobes_frame_store_state
    str     xzr, [sp, #{FRAME_WRITTEN}]
    mov     x0, sp
    bl      kprobes_function_returned
    b       kretprobe_reported
kretprobe_written:
    kprobes_frame_check_stack_pointer kretprobe_move
    b       kretprobe_load
kretprobe_move:
    kprobes_frame_move
    b       kretprobe_load
    .size   kretprobe_trampoline, . - kretprobe_trampoline
    .global kretprobe_end
kretprobe_end:

    .popsection
