// Where a return-probed function returns to.
//
// Included after frame.S. Constants: FRAME_* of frame.S.
//
// The entry probe has put the address of `kretprobe_trampoline` in the place of the true return address, so a RET
// arrives here with the caller's stack pointer. The whole register file is saved, the engine finds the true return
// address (in frame.pc, and in frame.x30, where a RET leaves it) and runs the handlers, and the registers go back.
//
// No exception return is used: that would have to compose all of PSTATE, with fields that only some CPUs can read.
// Flags and interrupt masks are put back by hand instead, and the rest of PSTATE is never touched.

    .section .kprobes.text.kretprobe, "ax"

// In: sp and all registers as the function returned them. Out: the same at the true return address, but for what
// handlers have changed. Where a handler has changed frame.pc to other than frame.x30, x16 is lost, as it may be
// across any procedure call (AAPCS64, section 6.1.1). What a handler has not asked to write is not restored where the calls
// have preserved it.
    .balign 64
    .global kretprobe_trampoline
    .type   kretprobe_trampoline, %function
kretprobe_trampoline:
    stp     x0, x1, [sp, #-FRAME_SIZE]!
    frame_store_registers_from_x2
    mrs     x2, daif
    msr     daifset, #0b1111                // the engine's state is this CPU's: no interrupt, no migration
    mrs     x3, nzcv
    add     x0, sp, #FRAME_SIZE
    orr     x2, x2, x3
    adr     x1, kretprobe_trampoline        // pc: the engine replaces it and the frame record's copy
    add     x2, x2, #0b0101                 // M = EL1h (Arm ARM, C5.2.19)
    frame_store_state
    str     xzr, [sp, #FRAME_WRITTEN]
    mov     x0, sp
    bl      kprobes_function_returned
    ldp     x1, x0, [sp, #FRAME_PSTATE]
    cbnz    x0, kretprobe_written
    ldr     x30, [sp, #240]
    ldr     x29, [sp, #232]
    ldr     x18, [sp, #144]
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    and     x2, x1, #0x3c0
    and     x1, x1, #0xf0000000
    msr     nzcv, x1
    msr     daif, x2                        // an interrupt from here on pushes its frame below this one
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp], #FRAME_SIZE
    ret
kretprobe_written:
    frame_check_stack_pointer kretprobe_move
kretprobe_load:
    ldp     x0, x1, [sp, #FRAME_PC]
    ldr     x30, [sp, #240]
    and     x2, x1, #0x3c0
    msr     daif, x2
    and     x1, x1, #0xf0000000
    sub     x2, x0, x30
    cbnz    x2, kretprobe_divert
    msr     nzcv, x1
    frame_load_registers_from_x2
    ldp     x0, x1, [sp], #FRAME_SIZE
    ret
kretprobe_divert:
    msr     nzcv, x1
    frame_load_registers_from_x2
    mov     x16, x0
    ldp     x0, x1, [sp], #FRAME_SIZE
    ret     x16                             // not BR: that would set PSTATE.BTYPE
kretprobe_move:
    frame_move
    b       kretprobe_load
    .size   kretprobe_trampoline, . - kretprobe_trampoline
