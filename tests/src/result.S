// Functions whose returns are probed, and a caller that sees which registers a return preserves. All follow the
// AAPCS64, except for what `result_kept` keeps and `result_passed` leaves for its caller.

    .text

// Calls the function at x0 with x0 to x8 and x18 to x28 loaded from the array at x1, in this order. Stores the same
// registers, as the function has returned them, and then x29 and sp, to the array at x2. Returns sp.
    .balign 16
    .global result_call
    .type   result_call, %function
result_call:
    stp     x29, x30, [sp, #-112]!
    mov     x29, sp
    kprobes_preserved_store sp, 16
    str     x2, [sp, #96]
    mov     x9, x0
    mov     x10, x1
    ldp     x0, x1, [x10], #16
    ldp     x2, x3, [x10], #16
    ldp     x4, x5, [x10], #16
    ldp     x6, x7, [x10], #16
    ldp     x8, x18, [x10], #16
    kprobes_preserved_load x10, 0
    blr     x9
    ldr     x9, [sp, #96]
    stp     x0, x1, [x9], #16
    stp     x2, x3, [x9], #16
    stp     x4, x5, [x9], #16
    stp     x6, x7, [x9], #16
    stp     x8, x18, [x9], #16
    kprobes_preserved_store x9, 0
    mov     x0, sp
    stp     x29, x0, [x9, #80]
    kprobes_preserved_load sp, 16
    ldp     x29, x30, [sp], #112
    ret
    .size   result_call, . - result_call

// Returns x0 + 1, and leaves all other registers as they are.
    .balign 16
    .global result_add
    .type   result_add, %function
result_add:
    add     x0, x0, #1
    ret
    .size   result_add, . - result_add

// Returns x0 + 2. It keeps a value in x10 across the call of a function of its own.
    .balign 16
    .global result_keep
    .type   result_keep, %function
result_keep:
    stp     x29, x30, [sp, #-16]!
    mov     x29, sp
    add     x10, x0, #1
    bl      result_kept
    add     x0, x0, x10
    ldp     x29, x30, [sp], #16
    ret
    .size   result_keep, . - result_keep

// Returns 1, and changes no other register.
    .balign 16
    .global result_kept
    .type   result_kept, %function
result_kept:
    mov     x0, #1
    ret
    .size   result_kept, . - result_kept

// Returns x0 + 1, which a function of its own has left in x9.
    .balign 16
    .global result_pass
    .type   result_pass, %function
result_pass:
    stp     x29, x30, [sp, #-16]!
    mov     x29, sp
    bl      result_passed
    mov     x0, x9
    ldp     x29, x30, [sp], #16
    ret
    .size   result_pass, . - result_pass

// Leaves x0 + 1 in x9.
    .balign 16
    .global result_passed
    .type   result_passed, %function
result_passed:
    add     x9, x0, #1
    ret
    .size   result_passed, . - result_passed
