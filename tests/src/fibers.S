// Switches between stacks within a task.

    .text

// Stores x19 to x30 on the stack, stores the stack pointer at x0, and continues where the stack pointer x1 was stored.
// Follows the AAPCS64 for its caller. A new stack holds, from x1 on, x19 to x28, x29, and the address to begin at in
// place of x30.
    .balign 16
    .global fibers_switch
    .type   fibers_switch, %function
fibers_switch:
    sub     sp, sp, #96
    kprobes_preserved_store sp, 0
    stp     x29, x30, [sp, #80]
    mov     x9, sp
    str     x9, [x0]
    mov     sp, x1
    kprobes_preserved_load sp, 0
    ldp     x29, x30, [sp, #80]
    add     sp, sp, #96
    ret
    .size   fibers_switch, . - fibers_switch

// The beginning of a new stack: calls x20 with the argument x19.
    .balign 16
    .global fibers_begin
    .type   fibers_begin, %function
fibers_begin:
    mov     x0, x19
    blr     x20
    brk     #1
    .size   fibers_begin, . - fibers_begin

// Returns x0 + 1 to the x30 of its call, with the stack pointer 32 bytes lower. The instruction that changes the stack
// pointer does not contain the number 32.
    .balign 16
    .global fibers_push
    .type   fibers_push, %function
fibers_push:
    add     x0, x0, #1
    mov     x9, #32
    sub     sp, sp, x9
    ret
    .size   fibers_push, . - fibers_push

// Does the same as fibers_push, but with the number in the instruction that changes the stack pointer.
    .balign 16
    .global fibers_plain_push
    .type   fibers_plain_push, %function
fibers_plain_push:
    add     x0, x0, #1
    sub     sp, sp, #32
    ret
    .size   fibers_plain_push, . - fibers_plain_push

// Writes TPIDR_EL1, as a function does that makes another task the current one.
    .balign 16
    .global fibers_adopt
    .type   fibers_adopt, %function
fibers_adopt:
    mrs     x9, tpidr_el1
    msr     tpidr_el1, x9
    ret
    .size   fibers_adopt, . - fibers_adopt

// Returns x0 + 1, by a call of fibers_push.
    .balign 16
    .global fibers_call_push
    .type   fibers_call_push, %function
fibers_call_push:
    stp     x29, x30, [sp, #-16]!
    mov     x29, sp
    bl      fibers_push
    add     sp, sp, #32
    ldp     x29, x30, [sp], #16
    ret
    .size   fibers_call_push, . - fibers_call_push
