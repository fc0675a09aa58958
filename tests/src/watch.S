// Accesses to memory that tests watch. Each is one instruction with a label of its own.

    .text

.macro watch_function name
    .balign 16
    .global \name
    .type   \name, %function
\name:
.endm

.macro watch_end name
    ret
    .size   \name, . - \name
.endm

// Stores x1 at x0.
watch_function watch_store
    str     x1, [x0]
watch_end watch_store

// Returns the doubleword at x0.
watch_function watch_load
    ldr     x0, [x0]
watch_end watch_load

// Stores two doublewords at x0.
watch_function watch_store_pair
    stp     x1, x1, [x0]
watch_end watch_store_pair

// Stores the byte at x0.
watch_function watch_store_byte
    strb    w1, [x0]
watch_end watch_store_byte

// Zeroes the block that contains x0.
watch_function watch_zero
    dc      zva, x0
watch_end watch_zero

// Adds 1 to the doubleword at x0. Returns the sum.
watch_function watch_add
1:  ldxr    x8, [x0]
    add     x8, x8, #1
    .global watch_add_store
watch_add_store:
    stxr    w9, x8, [x0]
    cbnz    w9, 1b
    mov     x0, x8
watch_end watch_add

// Adds 1 to the doubleword at x0 with an exclusive pair of words.
watch_function watch_add_pair
1:  ldaxp   w8, w10, [x0]
    adds    w8, w8, #1
    adc     w10, w10, wzr
    stlxp   w9, w8, w10, [x0]
    cbnz    w9, 1b
watch_end watch_add_pair

// Stores x2 at x0 if x1 is there. Returns what was there.
watch_function watch_compare
1:  ldaxr   x8, [x0]
    cmp     x8, x1
    b.ne    2f
    stlxr   w9, x2, [x0]
    cbnz    w9, 1b
    mov     x0, x8
    ret
2:  clrex
    mov     x0, x8
watch_end watch_compare

// Adds 1 to the doubleword at x0. The instruction after the store is reached without it, too.
watch_function watch_strange
1:  ldxr    x8, [x0]
    mov     w9, #1
    tbnz    x8, #63, 2f
    add     x8, x8, #1
    stxr    w9, x8, [x0]
2:  cbnz    w9, 1b
watch_end watch_strange

// Adds 1 to the doubleword at x0. A call is between the load and the store.
watch_function watch_call
    mov     x10, x30
    .global watch_call_load
watch_call_load:
1:  ldxr    x8, [x0]
    bl      watch_increment
    stxr    w9, x8, [x0]
    cbnz    w9, 1b
    mov     x30, x10
watch_end watch_call

// Adds 1 to the doubleword at x0. The load is in another function.
watch_function watch_outlined
    mov     x10, x30
1:  bl      watch_begin
    stxr    w9, x8, [x0]
    cbnz    w9, 1b
    mov     x30, x10
watch_end watch_outlined

// Loads x8 from x0, and adds 1 to it.
watch_function watch_begin
    ldxr    x8, [x0]
    add     x8, x8, #1
watch_end watch_begin

// Adds 1 to x8.
watch_function watch_increment
    add     x8, x8, #1
watch_end watch_increment

// Waits until the doubleword at x0 is 0. The loop holds no store.
watch_function watch_poll
1:  ldaxr   x8, [x0]
    cbz     x8, 2f
    yield
    b       1b
2:  clrex
watch_end watch_poll

    .arch_extension lse

// Adds x1 to the doubleword at x0 in one instruction. Returns what was there.
watch_function watch_fetch_add
    ldadd   x1, x0, [x0]
watch_end watch_fetch_add

// Stores x1 at x0. Returns what was there.
watch_function watch_swap
    swp     x1, x0, [x0]
watch_end watch_swap

// Stores x2 at x0 if x1 is there, in one instruction. Returns what was there.
watch_function watch_compare_swap
    cas     x1, x2, [x0]
    mov     x0, x1
watch_end watch_compare_swap

    .arch_extension nolse
