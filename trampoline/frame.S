// Saves and restores the trap frame. Shared by the exception vectors, the stubs of optimized probes and the
// return-probe trampoline.
//
// The layout is that of `TrapFrame` in src/exception/frame.rs, which also gives the constants:
//   FRAME_SIZE FRAME_SP FRAME_PC FRAME_RECORD
// They are operands of `global_asm!`, hence the braces. x0–x30 lie at 0, 8, … 240, so that x30 and sp, and pc and
// pstate, are stored as pairs.
//
// It may be included several times: if an image is optimized as a whole (`lto = "fat"`), its assembly and the engine's
// are one file to the assembler. For the same reason every name here and in hit.S has the prefix of the engine.

    .ifndef kprobes_frame_is_included
    .set    kprobes_frame_is_included, 1

// Stores x0–x29.
// In: sp = the frame.
.macro kprobes_frame_store_registers
    stp     x0, x1, [sp, #0]
    kprobes_frame_store_registers_from_x2
.endm

// Stores x2–x29.
// In: sp = the frame.
.macro kprobes_frame_store_registers_from_x2
    stp     x20, x21, [sp, #160]
    kprobes_frame_store_registers_except_x20_and_x21
.endm

// Stores x2–x19 and x22–x29.
// In: sp = the frame.
.macro kprobes_frame_store_registers_except_x20_and_x21
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
.endm

// Loads x2–x29.
// In: sp = the frame.
.macro kprobes_frame_load_registers_from_x2
    ldp     x18, x19, [sp, #144]
    kprobes_frame_load_registers_except_x18_and_x19
.endm

// Loads x2–x17 and x20–x29.
// In: sp = the frame.
.macro kprobes_frame_load_registers_except_x18_and_x19
    kprobes_frame_load_from_x2_to_x17
    ldp     x20, x21, [sp, #160]
    ldp     x22, x23, [sp, #176]
    ldp     x24, x25, [sp, #192]
    ldp     x26, x27, [sp, #208]
    ldp     x28, x29, [sp, #224]
.endm

// Leaves the frame: loads ELR_EL1, SPSR_EL1, x0 to x30 and sp.
// In: sp = the frame, directly below the stack pointer that it has; PSTATE.DAIF masked.
.macro kprobes_frame_load
    ldp     x0, x1, [sp, #{FRAME_PC}]
    msr     elr_el1, x0
    msr     spsr_el1, x1
    kprobes_frame_load_registers_from_x2
    ldr     x30, [sp, #240]
    ldp     x0, x1, [sp], #{FRAME_SIZE}
.endm

// Loads x2–x21: all registers that a call may change, except x0, x1 and x30; and x19–x21, which the hit routines use.
// In: sp = the frame.
.macro kprobes_frame_load_from_x2_to_x21
    ldp     x20, x21, [sp, #160]
    ldp     x18, x19, [sp, #144]
    kprobes_frame_load_from_x2_to_x17
.endm

// Loads x2–x17.
// In: sp = the frame.
.macro kprobes_frame_load_from_x2_to_x17
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
.endm

// Stores x30, sp, pc, pstate and the frame record, and points x29 at the record.
// In: sp = the frame, x0 = the interrupted sp, x1 = pc, x2 = pstate; x29 and x30 still the interrupted ones.
// Clobbers: x29.
.macro kprobes_frame_store_state
    stp     x30, x0, [sp, #240]
    stp     x1, x2, [sp, #{FRAME_PC}]
    stp     x29, x1, [sp, #{FRAME_RECORD}]
    add     x29, sp, #{FRAME_RECORD}
.endm

// Goes to `\moved` with the wanted sp in x0 if a handler has changed it. The frame must then be moved before it can be
// left, because it has to lie directly below the stack pointer that it restores.
// In: sp = the frame. Clobbers: x0, x1, flags.
.macro kprobes_frame_check_stack_pointer moved
    ldr     x0, [sp, #{FRAME_SP}]
    add     x1, sp, #{FRAME_SIZE}
    cmp     x0, x1
    b.ne    \moved
.endm

// Moves the frame to lie below the stack pointer in x0, and sets sp to it. The old and the new place may overlap. The
// memory below the frame is dead by now, so the copy may overwrite it. But nothing may be stored below sp at any time,
// because an interrupt would push its own frame there.
// In: sp = the frame, x0 = the wanted sp. Out: sp = the frame. Clobbers: x0–x5, flags.
.macro kprobes_frame_move
    sub     x0, x0, #{FRAME_SIZE}
    mov     x1, sp
    mov     x2, #{FRAME_SIZE}
    cmp     x0, x1
    b.hi    2f
    mov     sp, x0                  // downwards: claim the room first, then copy from the lowest address up
1:  ldp     x3, x4, [x1], #16
    stp     x3, x4, [x0], #16
    subs    x2, x2, #16
    b.ne    1b
    b       3f
2:  sub     x2, x2, #16             // upwards: copy from the highest address down, then free the old room
    add     x5, x1, x2
    ldp     x3, x4, [x5]
    add     x5, x0, x2
    stp     x3, x4, [x5]
    cbnz    x2, 2b
    mov     sp, x0
3:
.endm

    .endif
