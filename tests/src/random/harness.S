// The place where random words are executed, with the entry and exit code that switches the whole register file.
//
// A word is in a cell. It continues to the pad after it or, if it branches, to another pad. A pad passes its identity
// to the exit code in x30. The previous value of x30 is saved in FAR_EL1, and the address of the pad in CONTEXTIDR_EL1.
// Nothing else uses these two registers here: an interrupt, which a word may have unmasked, changes neither of them,
// unlike the registers that the vectors use.
//
// Constants: IN and OUT are the offsets of the registers before and after in `Run` in arena.rs, in the layout of a trap
// frame. CALLER is the offset of two doublewords for the caller's registers. SP and PC are offsets in a trap frame.
// CELLS and PADS are numbers.

    .text

.macro random_pad
    msr     far_el1, x30
    bl      random_exit
.endm

// Every cell is a separate function, because a probe depends on the whole function around it.
.macro random_cell
    .type   random_cell_\@, %function
random_cell_\@:
    nop
    random_pad
    .size   random_cell_\@, . - random_cell_\@
.endm

// Pads on both sides of the cells, further away than `tbz` reaches, and a page of literals on either side.
    .balign 4096
    .global random_pads_below
    .type   random_pads_below, %function
random_pads_below:
    .rept   {PADS}
    random_pad
    .endr
    .size   random_pads_below, . - random_pads_below

    .balign 4096
    .global random_literals_below
random_literals_below:
    .skip   4096

    .global random_cells
random_cells:
    .rept   {CELLS}
    random_cell
    .endr

    .balign 4096
    .global random_literals_above
random_literals_above:
    .skip   4096

    .global random_pads_above
    .type   random_pads_above, %function
random_pads_above:
    .rept   {PADS}
    random_pad
    .endr
    .size   random_pads_above, . - random_pads_above

// Loads the registers and the state in `before` of random_run_state, and continues there. Returns when a pad is
// reached, with the registers of that moment in `after`: pc is the low half of the pad's address, and pstate has NZCV
// and DAIF. Clobbers: the caller-saved registers. Stack: 96 bytes, and the stack that random_run_state names.
    .balign 16
    .global random_run
    .type   random_run, %function
random_run:
    stp     x29, x30, [sp, #-96]!
    kprobes_preserved_store sp, 16
    adrp    x30, random_run_state
    add     x30, x30, :lo12:random_run_state
    mov     x0, sp
    mrs     x1, daif
    stp     x0, x1, [x30, #{CALLER}]
    msr     daifset, #0b1111                // ELR_EL1, SPSR_EL1 and the other stack belong to this code until the eret
    ldp     x0, x1, [x30, #({IN} + {PC})]
    msr     elr_el1, x0
    msr     spsr_el1, x1
    ldr     x0, [x30, #({IN} + {SP})]
    mov     sp, x0
    ldp     x0, x1, [x30, #({IN} + 0)]
    ldp     x2, x3, [x30, #({IN} + 16)]
    ldp     x4, x5, [x30, #({IN} + 32)]
    ldp     x6, x7, [x30, #({IN} + 48)]
    ldp     x8, x9, [x30, #({IN} + 64)]
    ldp     x10, x11, [x30, #({IN} + 80)]
    ldp     x12, x13, [x30, #({IN} + 96)]
    ldp     x14, x15, [x30, #({IN} + 112)]
    ldp     x16, x17, [x30, #({IN} + 128)]
    ldp     x18, x19, [x30, #({IN} + 144)]
    ldp     x20, x21, [x30, #({IN} + 160)]
    ldp     x22, x23, [x30, #({IN} + 176)]
    ldp     x24, x25, [x30, #({IN} + 192)]
    ldp     x26, x27, [x30, #({IN} + 208)]
    ldp     x28, x29, [x30, #({IN} + 224)]
    ldr     x30, [x30, #({IN} + 240)]
    eret
    .size   random_run, . - random_run

// In: x30 = the address after the pad that was reached, FAR_EL1 = the previous x30.
    .balign 16
    .global random_exit
    .type   random_exit, %function
random_exit:
    msr     contextidr_el1, x30
    adrp    x30, random_run_state
    add     x30, x30, :lo12:random_run_state
    add     x30, x30, #{OUT}
    stp     x0, x1, [x30, #0]
    stp     x2, x3, [x30, #16]
    stp     x4, x5, [x30, #32]
    stp     x6, x7, [x30, #48]
    stp     x8, x9, [x30, #64]
    stp     x10, x11, [x30, #80]
    stp     x12, x13, [x30, #96]
    stp     x14, x15, [x30, #112]
    stp     x16, x17, [x30, #128]
    stp     x18, x19, [x30, #144]
    stp     x20, x21, [x30, #160]
    stp     x22, x23, [x30, #176]
    stp     x24, x25, [x30, #192]
    stp     x26, x27, [x30, #208]
    stp     x28, x29, [x30, #224]
    mrs     x0, far_el1
    mov     x1, sp
    stp     x0, x1, [x30, #240]
    mrs     x0, contextidr_el1
    sub     w0, w0, #8
    mrs     x1, nzcv
    mrs     x2, daif
    orr     x1, x1, x2
    stp     x0, x1, [x30, #{PC}]
    ldp     x0, x1, [x30, #({CALLER} - {OUT})]
    mov     sp, x0
    msr     daif, x1
    kprobes_preserved_load sp, 16
    ldp     x29, x30, [sp], #96
    ret
    .size   random_exit, . - random_exit
