// Functions that are probed at their entry, and a caller that sees which registers they preserve. All follow the
// AAPCS64, except for the registers that entry_call passes to entry_save.

    .text

// Branches to the function at x0, with x0 to x8 and x18 to x28 loaded from the array at x1, in this order. All other
// registers and the flags hold values that no handler leaves there. Returns the result of the function.
    .balign 16
    .global entry_call
    .type   entry_call, %function
entry_call:
    stp     x29, x30, [sp, #-96]!
    mov     x29, sp
    kprobes_preserved_store sp, 16
    mov     x9, x0
    mov     x10, x1
    ldp     x0, x1, [x10], #16
    ldp     x2, x3, [x10], #16
    ldp     x4, x5, [x10], #16
    ldp     x6, x7, [x10], #16
    ldp     x8, x18, [x10], #16
    kprobes_preserved_load x10, 0
    blr     x9
    kprobes_preserved_load sp, 16
    ldp     x29, x30, [sp], #96
    ret
    .size   entry_call, . - entry_call

// Stores x0 to x8, x18 to x30 and sp to the array at x8, in this order, and returns x0 + 1.
    .balign 16
    .global entry_save
    .type   entry_save, %function
entry_save:
    stp     x0, x1, [x8]
    stp     x2, x3, [x8, #16]
    stp     x4, x5, [x8, #32]
    stp     x6, x7, [x8, #48]
    stp     x8, x18, [x8, #64]
    kprobes_preserved_store x8, 80
    mov     x9, sp
    stp     x29, x30, [x8, #160]
    str     x9, [x8, #176]
    add     x0, x0, #1
    ret
    .size   entry_save, . - entry_save

// Returns 10 for 1, by a register that it sets itself: it branches back to its first instruction with the register set.
    .balign 16
    .global entry_loop
    .type   entry_loop, %function
entry_loop:
    cbz     x0, 1f
    mov     x9, #10
    sub     x0, x0, #1
    b       entry_loop
1:  mov     x0, x9
    ret
    .size   entry_loop, . - entry_loop

// Does the same as entry_loop, but branches back through a table.
    .balign 16
    .global entry_table
    .type   entry_table, %function
entry_table:
    cbz     x0, 1f
    mov     x9, #10
    sub     x0, x0, #1
    adr     x10, 2f
    ldrsw   x11, [x10]
    add     x10, x10, x11
    br      x10
1:  mov     x0, x9
    ret
    .size   entry_table, . - entry_table
2:  .word   entry_table - 2b

// Returns x0 + 1. Tests execute single instructions of it.
    .balign 16
    .global entry_add
    .type   entry_add, %function
entry_add:
    adrp    x9, entry_add
    add     x0, x0, #1
    ret
    .size   entry_add, . - entry_add

// Returns x0 + 2, by functions like those of LLVM's machine outliner: x9 and the flags are passed to the first, and x10
// keeps its value across the call of the second.
    .balign 16
    .global entry_call_outlined
    .type   entry_call_outlined, %function
entry_call_outlined:
    stp     x29, x30, [sp, #-16]!
    mov     x29, sp
    mov     x9, x0
    cmp     x9, x9
    bl      entry_outlined
    mov     x10, x0
    bl      entry_preserving
    add     x0, x0, x10
    ldp     x29, x30, [sp], #16
    ret
    .size   entry_call_outlined, . - entry_call_outlined

// Returns x9 + 1 if the Z flag is set.
    .balign 16
    .global entry_outlined
    .type   entry_outlined, %function
entry_outlined:
    cinc    x0, x9, eq
    ret
    .size   entry_outlined, . - entry_outlined

// Returns 1.
    .balign 16
    .global entry_preserving
    .type   entry_preserving, %function
entry_preserving:
    mov     x0, #1
    ret
    .size   entry_preserving, . - entry_preserving
