// The trampolines that return-probed functions return to.
//
// Included after frame.S and hit.S. Constants: FRAME_* of frame.S, INSTANCE_* in `Instance`, RETURNS_* in
// `ReturnProbe`, RESULT_* in `CallResult`, LEAN_DISTANCE between the two trampolines, in which only one bit is set,
// TRAMPOLINES_SIZE, twice that, and those of hit.S.
//
// The hit at the entry has replaced the true return address by the address of one of the trampolines, so a RET arrives
// here with the caller's stack pointer. `kretprobe_trampoline` saves the whole register file, finds the true return
// address (which goes to frame.pc, and to frame.x30, where a RET leaves it), runs the handlers, and restores the
// registers. The assembly handles the usual case: the newest call of the task has returned, and no other. It leaves
// the rest to `kprobes_function_returned` in src/probe/hit/returns.rs, which is the reference.
//
// A function whose return probe has a snippet, or a handler that sees only results, may return to `kretprobe_lean`
// instead, which saves nothing.
//
// No exception return is used: it would have to compose all of PSTATE, including fields that only some CPUs can read.
// Flags and interrupt masks are restored individually instead, and the rest of PSTATE is never touched.
//
// x18 is the platform register (AAPCS64, section 6.1.1), in which a kernel may keep what belongs to the CPU. So it is
// stored and loaded only while interrupts are masked: once they are not, the task may go on at another CPU.

// Takes the call, the newest of the task, out of the list, and gives back its instance.
// In: as at `kretprobe_lean_leave_kept`. Out: x30 = the true return address. Goes to `kretprobe_lean_recycle` if the
// CPU already has a spare. Clobbers: x12, x14.
.macro kretprobe_lean_end_call
    ldp     x30, x12, [x15, #{INSTANCE_STACK_POINTER} + 8]
    str     x12, [x16, #:lo12:kprobes_calls_offset]
    ldr     x12, [x9, x14]
    cbnz    x12, kretprobe_lean_recycle
    add     x14, x9, x14
    stlr    x15, [x14]                      // as in `kretprobe_give_back`
.endm

    .pushsection .kprobes.text.kretprobe, "ax"

// The trampoline of a return probe with a snippet (`probe::snippet`), or with a handler that sees only results
// (`kretprobe_result`), if the function's callers need nothing that the function leaves in x9 to x17 and the flags. The
// call stays in the list of the task until the snippet or the handler is done: unusual cases continue at
// `kretprobe_trampoline`, which finds everything as if this had not run.
//
// In: sp and all registers as the function returned them. Out: at the snippet, with x9 = this CPU's state, x11 = the
// return address, x14 = the distance from that state to the spare, x15 = the instance, x16 = the address in TPIDR_EL1,
// x17 = DAIF, interrupts masked. The snippet goes on at `kretprobe_lean_leave` or at `kretprobe_lean_unusual`, with x9
// and x17 unchanged, having changed only x10 to x16, x30 and the flags. If it has not changed x15 and x16 either, it
// goes on at `kretprobe_lean_leave_call`; and if it has not changed x14 to x16, at `kretprobe_lean_leave_kept`.
// Clobbers: x9 to x17, flags.
    .balign {TRAMPOLINES_SIZE}
    .global kretprobe_lean
    .type   kretprobe_lean, %function
kretprobe_lean:
    mrs     x17, daif
    msr     daifset, #0b1111
    mrs     x16, tpidr_el1
    ldr     x15, [x16, #:lo12:kprobes_calls_offset]
    ldp     x12, x11, [x15, #{INSTANCE_STACK_POINTER}]
    cmp     sp, x12
    b.ne    kretprobe_lean_unusual
    ldp     x12, x14, [x15, #{INSTANCE_CODE}]
    ldr     x9, [x16, #:lo12:kprobes_cpu_offset]
    ret     x12                             // RET, because BR would set PSTATE.BTYPE
    .global kretprobe_lean_unusual
kretprobe_lean_unusual:
    msr     daif, x17
    b       kretprobe_trampoline
    .global kretprobe_lean_leave
kretprobe_lean_leave:
    mrs     x16, tpidr_el1
    ldr     x15, [x16, #:lo12:kprobes_calls_offset]
    .global kretprobe_lean_leave_call
kretprobe_lean_leave_call:
    ldr     x14, [x15, #{INSTANCE_SPARE}]
    .global kretprobe_lean_leave_kept
kretprobe_lean_leave_kept:
    kretprobe_lean_end_call
kretprobe_lean_return:
    msr     daif, x17
    ret
kretprobe_lean_recycle:
    stp     x29, x30, [sp, #-112]!
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    stp     x2, x3, [sp, #32]
    stp     x4, x5, [sp, #48]
    stp     x6, x7, [sp, #64]
    stp     x8, x17, [sp, #80]
    str     x18, [sp, #96]
    mov     x0, x15
    bl      kprobes_recycle
    ldr     x18, [sp, #96]
    ldp     x8, x17, [sp, #80]
    ldp     x6, x7, [sp, #64]
    ldp     x4, x5, [sp, #48]
    ldp     x2, x3, [sp, #32]
    ldp     x0, x1, [sp, #16]
    ldp     x29, x30, [sp], #112
    b       kretprobe_lean_return
    .size   kretprobe_lean, . - kretprobe_lean
    .org    kretprobe_lean + {LEAN_DISTANCE}

// The trampoline of all other return probes, and of the unusual cases of `kretprobe_lean`.
// In: sp and all registers as the function returned them. Out: at the true return address, with the same registers
// except those that handlers have changed. If a handler has set frame.pc to another value than frame.x30, x16 is lost,
// as it may be across any procedure call (AAPCS64, section 6.1.1). Unless a handler has asked to write the frame, only
// the registers that calls may change, and those used here, are restored.
//
// Handlers are `fn(&mut Call)`, and are called like those in hit.S.
    .global kretprobe_trampoline
    .type   kretprobe_trampoline, %function
kretprobe_trampoline:
    stp     x0, x1, [sp, #-{FRAME_SIZE}]!
    stp     x20, x21, [sp, #160]
    mrs     x20, daif
    msr     daifset, #0b1111                // the engine's state is per CPU: no interrupt, no migration
    kprobes_frame_store_registers_except_x20_and_x21
    .global kretprobe_entered
kretprobe_entered:
    mrs     x21, nzcv
    mrs     x22, tpidr_el1
    add     x0, sp, #{FRAME_SIZE}
    orr     x2, x20, x21
    ldr     x19, [x22, #:lo12:kprobes_calls_offset]
    add     x2, x2, #0b0101                 // M = EL1h (Arm ARM, C5.2.19); ORR has no such immediate
    adr     x3, kretprobe_trampoline
    ldp     x4, x1, [x19, #{INSTANCE_STACK_POINTER}]
    cmp     x4, x0
    b.ne    kretprobe_unusual
    sub     x4, x3, x1
    tst     x4, #~{LEAN_DISTANCE}           // one trampoline or the other
    b.eq    kretprobe_unusual
    ldr     x4, [x19, #{INSTANCE_NEXT}]
    mov     x30, x1
    kprobes_frame_store_state
    str     x4, [x22, #:lo12:kprobes_calls_offset] // from here on the frame has the true return address
    ldr     x24, [x22, #:lo12:kprobes_cpu_offset]
    ldp     x23, x10, [x19, #{INSTANCE_SPARE}]
    ldr     x9, [x10, #{RETURNS_HANDLER}]
    cbz     x9, kretprobe_retired
    ldr     x10, [x10, #{RETURNS_COUNTERS}]
    str     x19, [x24]                      // busy: not 0, and bit 0 clear
    ldr     x11, [x24, x10]
    add     x11, x11, #1
    str     x11, [x24, x10]
    stp     xzr, x19, [sp, #{FRAME_WRITTEN}]
    mov     x0, sp
    blr     x9
    str     xzr, [x24]
kretprobe_give_back:
    ldr     x9, [x24, x23]
    cbnz    x9, kretprobe_recycle
    add     x23, x24, x23
    // There is still no spare: other CPUs do not set it. Release: a CPU that finds the instance there also sees what
    // the handler has stored.
    stlr    x19, [x23]
kretprobe_reported:
    ldr     x9, [sp, #{FRAME_WRITTEN}]
    cbnz    x9, kretprobe_written
// From here to `kretprobe_left` the frame is complete and sp points to it, until a RET. x29 and x30 are those of the
// caller before the CPU can take an interrupt, whose frame goes below this one.
    .global kretprobe_leaving
kretprobe_leaving:
    ldp     x29, x30, [sp, #232]
    msr     nzcv, x21
    ldp     x18, x19, [sp, #144]
    msr     daif, x20
    ldr     x24, [sp, #192]
    ldp     x22, x23, [sp, #176]
    ldp     x20, x21, [sp, #160]
    kprobes_frame_load_from_x2_to_x17
    ldp     x0, x1, [sp], #{FRAME_SIZE}
    ret
kretprobe_load:
    ldp     x29, x30, [sp, #232]
    ldp     x0, x1, [sp, #{FRAME_PC}]
    ldp     x18, x19, [sp, #144]
    and     x2, x1, #0x3c0
    msr     daif, x2
    and     x1, x1, #0xf0000000
    sub     x2, x0, x30
    cbnz    x2, kretprobe_divert
    msr     nzcv, x1
    kprobes_frame_load_registers_except_x18_and_x19
    ldp     x0, x1, [sp], #{FRAME_SIZE}
    ret
kretprobe_divert:
    msr     nzcv, x1
    kprobes_frame_load_registers_except_x18_and_x19
    mov     x16, x0
    ldp     x0, x1, [sp], #{FRAME_SIZE}
    ret     x16                             // RET, because BR would set PSTATE.BTYPE
    .global kretprobe_left
kretprobe_left:
kretprobe_retired:
    str     xzr, [sp, #{FRAME_WRITTEN}]
    b       kretprobe_give_back
kretprobe_recycle:
    mov     x0, x19
    bl      kprobes_recycle
    b       kretprobe_reported
// In: sp = the frame, complete except for its state; x0 = the stack pointer, x2 = the pstate, x3 =
// `kretprobe_trampoline`.
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

// Where `kretprobe_lean` leads for a return probe whose handler sees only a `CallResult`.
// In: as at a snippet. Out: at the true return address, with all registers that a snippet may not change as they were.
    .balign 64
    .global kretprobe_result
    .type   kretprobe_result, %function
kretprobe_result:
    ldr     x10, [x15, #{INSTANCE_OWNER}]
    ldp     x13, x12, [x10, #{RETURNS_COUNTERS}] // the count, the handler
    stp     x29, x11, [sp, #-{RESULT_SIZE}]!
    mov     x29, sp
    stp     x0, x1, [sp, #{RESULT_X0}]
    stp     x2, x3, [sp, #{RESULT_X0} + 16]
    stp     x4, x5, [sp, #{RESULT_X0} + 32]
    stp     x6, x7, [sp, #{RESULT_X0} + 48]
    stp     x8, x18, [sp, #{RESULT_X0} + 64]
    stp     x9, x15, [sp, #{RESULT_CPU}]
    stp     x16, x17, [sp, #{RESULT_CPU} + 16]
    str     x15, [x9]                       // busy: not 0, and bit 0 clear
    ldr     x11, [x9, x13]
    add     x11, x11, #1
    str     x11, [x9, x13]
    mov     x0, sp
    blr     x12
    ldp     x9, x15, [sp, #{RESULT_CPU}]
    ldp     x16, x17, [sp, #{RESULT_CPU} + 16]
    str     xzr, [x9]
    ldr     x14, [x15, #{INSTANCE_SPARE}]
    ldp     x8, x18, [sp, #{RESULT_X0} + 64]
    ldp     x6, x7, [sp, #{RESULT_X0} + 48]
    ldp     x4, x5, [sp, #{RESULT_X0} + 32]
    ldp     x2, x3, [sp, #{RESULT_X0} + 16]
    ldp     x0, x1, [sp, #{RESULT_X0}]
    ldr     x29, [sp], #{RESULT_SIZE}
    kretprobe_lean_end_call
    msr     daif, x17
    ret
    .size   kretprobe_result, . - kretprobe_result
    .global kretprobe_end
kretprobe_end:

    .popsection
