// Adds one to the doubleword at x1, while it holds the lock in the word at x0. Waits for the lock without giving up the
// CPU.
    .text
    .balign 16
    .global exclusive_add_locked
    .type   exclusive_add_locked, %function
exclusive_add_locked:
    mov     w3, #1
1:  ldaxr   w2, [x0]
    cbnz    w2, 2f
    stxr    w2, w3, [x0]
    cbnz    w2, 1b
    ldr     x2, [x1]
    add     x2, x2, #1
    str     x2, [x1]
    stlr    wzr, [x0]
    ret
2:  yield
    b       1b
    .size   exclusive_add_locked, . - exclusive_add_locked

// Waits until the word at x0 is 0, as a ticket lock waits for its turn: by the event of the exclusive monitor.
    .balign 16
    .global exclusive_wait
    .type   exclusive_wait, %function
exclusive_wait:
    sevl
1:  wfe
    ldaxr   w1, [x0]
    eor     w2, w1, wzr
    cbnz    w2, 1b
    mov     x0, x1
    ret
    .size   exclusive_wait, . - exclusive_wait
