// Functions to be probed, whose every instruction is known. The compiler chooses the instructions of Rust functions;
// these have the instructions that a test needs. All follow the AAPCS64, with the argument and the result in x0, unless
// they say otherwise.

    .text

.macro function name
    .balign 16
    .global \name
    .type   \name, %function
\name:
.endm

.macro end name
    .size   \name, . - \name
.endm

// Addresses, by the page and to the byte. The result depends on the address at which the code is executed.
function fixture_addresses
    adr     x1, fixture_addresses
    adrp    x2, fixture_addresses
    adr     x3, .
    adrp    x4, fixture_far
    eor     x0, x0, x1
    eor     x0, x0, x2, ror #7
    eor     x0, x0, x3, ror #13
    eor     x0, x0, x4, ror #29
    ret
end fixture_addresses

    .balign 4096
function fixture_far
    adrp    x1, fixture_addresses
    add     x0, x0, x1
    ret
end fixture_far

// A sequence affected by erratum 843419 of the Cortex-A53: an ADRP in the last two words of a page, a store, and a load
// from the page of the ADRP. The linker moves the load behind a branch, and puts the branch in its place.
    .balign 4096
    .fill   1020, 4, 0xd503201f
function fixture_end_of_page
    nop
    nop
    adrp    x1, fixture_literals_data
    str     x0, [sp, #-16]!
    ldr     x1, [x1, #:lo12:fixture_literals_data]
    ldr     x0, [sp], #16
    eor     x0, x0, x1
    ret
end fixture_end_of_page

// A word of data between its instructions that no instruction reads, and that looks like `add x0, x0, #1`.
function fixture_data_within
    b       1f
    .word   0x91000400
1:  ret
end fixture_data_within

// Loads of literals, which lie after the function and are no instructions.
function fixture_literals
    ldr     x1, fixture_literals_data
    ldr     w2, fixture_literals_data + 8
    ldrsw   x3, fixture_literals_data + 8
    prfm    pldl1keep, fixture_literals_data
    eor     x0, x0, x1
    eor     x0, x0, x2, ror #7
    eor     x0, x0, x3, ror #13
    ret
end fixture_literals
    .balign 8
fixture_literals_data:
    .quad   0x1122334455667788
    .word   0x89abcdef

// Sets a bit of the result for each branch that is taken.
function fixture_branches
    mov     x1, x0
    mov     x0, #0
    cbz     w1, 1f
    orr     x0, x0, #1
1:  cbz     x1, 1f
    orr     x0, x0, #2
1:  cbnz    w1, 1f
    orr     x0, x0, #4
1:  cbnz    x1, 1f
    orr     x0, x0, #8
1:  tbz     x1, #0, 1f
    orr     x0, x0, #16
1:  tbnz    x1, #31, 1f
    orr     x0, x0, #32
1:  tbz     x1, #32, 1f
    orr     x0, x0, #64
1:  tbnz    x1, #63, 1f
    orr     x0, x0, #128
1:  cbz     xzr, 1f
    orr     x0, x0, #256
1:  cmp     x1, #7
    b.eq    1f
    orr     x0, x0, #512
1:  b.ls    1f
    orr     x0, x0, #1024
1:  b.lt    1f
    orr     x0, x0, #2048
1:  b.mi    1f
    orr     x0, x0, #4096
1:  b.vs    1f
    orr     x0, x0, #8192
1:  b.al    1f
    orr     x0, x0, #16384
1:  b       1f
    orr     x0, x0, #32768
1:  ret
end fixture_branches

// Calls of each kind, also through x30. The callee adds up the addresses that it was called from.
function fixture_calls
    stp     x29, x30, [sp, #-16]!
    mov     x29, sp
    bl      fixture_callee
    adr     x9, fixture_callee
    blr     x9
    adr     x30, fixture_callee
    blr     x30
    adr     x16, 1f
    br      x16
    mov     x0, xzr
1:  ldp     x29, x30, [sp], #16
    ret
end fixture_calls

function fixture_callee
    add     x0, x0, x30
    mov     x10, x30
    ret     x10
end fixture_callee

// The instructions that begin hardened functions, and hints without an effect here.
function fixture_hints
    bti     c
    paciasp
    nop
    yield
    add     x0, x0, #1
    autiasp
    ret
end fixture_hints

// Ordinary work: arithmetic with and without flags, loads and stores, the stack pointer, callee-saved registers.
function fixture_ordinary
    stp     x29, x30, [sp, #-48]!
    mov     x29, sp
    stp     x19, x28, [sp, #16]
    str     x18, [sp, #32]
    mov     x19, x0
    mov     x28, #0x1234
    movk    x28, #0x5678, lsl #48
    adds    x18, x19, x28
    adc     x1, x18, x19
    mul     x2, x1, x28
    umulh   x3, x1, x28
    csel    x4, x2, x3, cs
    sub     sp, sp, #32
    stp     x1, x2, [sp, #16]
    str     w3, [sp]
    ldrb    w5, [sp], #16
    ldr     x6, [sp], #16
    eor     x0, x4, x5
    eor     x0, x0, x6, ror #17
    mrs     x7, nzcv
    add     x0, x0, x7
    ldr     x18, [sp, #32]
    ldp     x19, x28, [sp, #16]
    ldp     x29, x30, [sp], #48
    ret
end fixture_ordinary

// Returns the interrupt masks that the code sees before, between and after setting and clearing one.
function fixture_interrupt_masks
    mrs     x1, daif
    msr     daifset, #2
    mrs     x0, daif
    msr     daifclr, #2
    mrs     x2, daif
    msr     daif, x1
    add     x0, x0, x1, lsl #16
    add     x0, x0, x2, lsl #32
    ret
end fixture_interrupt_masks

// Returns PSTATE.DAIF.
function fixture_read_masks
    mrs     x0, daif
    ret
end fixture_read_masks

// Adds x1 to the doubleword at x0, by a load-exclusive and a store-exclusive. Returns the sum.
function fixture_exclusive
    mov     x2, x0
1:  ldxr    x0, [x2]
    add     x0, x0, x1
    stxr    w3, x0, [x2]
    cbnz    w3, 1b
    ret
end fixture_exclusive

// Does what `fixture_exclusive` does, with a call of a function between the load-exclusive and the store-exclusive, as
// LLVM's machine outliner makes it.
function fixture_exclusive_call
    stp     x29, x30, [sp, #-16]!
    mov     x29, sp
    mov     x2, x0
1:  ldxr    x0, [x2]
    bl      fixture_in_sequence
    stxr    w3, x0, [x2]
    cbnz    w3, 1b
    ldp     x29, x30, [sp], #16
    ret
end fixture_exclusive_call

// Returns x0 + x1. The sequence of another function calls it.
function fixture_in_sequence
    add     x0, x0, x1
    ret
end fixture_in_sequence

// Moves the stack pointer by instructions that tests replace by a handler.
function fixture_stack_pointer
    mov     x1, sp
    sub     sp, sp, #512
    mov     x2, sp
    str     x0, [sp]
    ldr     x0, [sp]
    add     sp, sp, #512
    mov     x3, sp
    sub     x2, x1, x2
    sub     x3, x1, x3
    add     x0, x0, x2
    add     x0, x0, x3, lsl #32
    ret
end fixture_stack_pointer

// Returns its argument, by an instruction that is stepped and one that is simulated.
function fixture_identity
    orr     x0, x0, x0
    ret
end fixture_identity

// Leaves by a tail call.
function fixture_tail_call
    add     x0, x0, #1
    b       fixture_identity
end fixture_tail_call

// Leaves by a branch to fixture_identity if its argument is 0; otherwise returns the argument plus 7.
function fixture_conditional_tail_call
    cbz     x0, fixture_identity
    add     x0, x0, #7
    ret
end fixture_conditional_tail_call

// Counts its argument down to 0, together with the next function: each calls the other as its last action.
function fixture_count_down
    cbz     x0, 1f
    sub     x0, x0, #1
    b       fixture_count_further_down
1:  ret
end fixture_count_down

function fixture_count_further_down
    cbz     x0, 1f
    sub     x0, x0, #1
    b       fixture_count_down
1:  ret
end fixture_count_further_down

// Ends with a call that does not return here: the callee returns in place of this function. The next function begins
// right after the call.
function fixture_last_call
    nop
    nop
    mov     x1, x30
    bl      fixture_leave
end fixture_last_call

// Returns to x1.
function fixture_leave
    mov     x30, x1
    ret
end fixture_leave

// Returns x0 plus one, and leaves x1 to x18 and the flags unchanged, so that the caller can compare them.
function fixture_registers
    add     x0, x0, #1
    ret
end fixture_registers

// Sets every register to a pattern, calls fixture_registers, and returns the number of registers that changed, plus one
// if the flags changed. The result 0 means success. x0 is ignored.
function fixture_check_registers
    stp     x29, x30, [sp, #-96]!
    mov     x29, sp
    kprobes_preserved_store sp, 16
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28
    mov     x\n, #(\n * 257 + 1)
    .endr
    mov     x30, #0x60000000
    msr     nzcv, x30
    bl      fixture_registers
    mrs     x30, nzcv
    eor     x30, x30, #0x60000000
    cmp     x30, #0
    cset    x30, ne
    sub     x0, x0, #1
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28
    sub     x\n, x\n, #((\n * 257 + 1) & 0xfff)
    sub     x\n, x\n, #((\n * 257 + 1) & 0xf000)
    cmp     x\n, #0
    cinc    x30, x30, ne
    .endr
    mov     x0, x30
    kprobes_preserved_load sp, 16
    ldp     x29, x30, [sp], #96
    ret
end fixture_check_registers

// Calls the function at x1 with x0 unchanged, x30 as a call sets it, x16 the function's address, and a pattern in all
// other registers and the flags.
function fixture_call_from_pattern
    stp     x29, x30, [sp, #-96]!
    kprobes_preserved_store sp, 16
    mov     x16, x1
    mov     x29, #0x60000000
    msr     nzcv, x29
    .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28
    mov     x\n, #(\n * 257 + 1)
    .endr
    mov     x29, sp
    blr     x16
    kprobes_preserved_load sp, 16
    ldp     x29, x30, [sp], #96
    ret
end fixture_call_from_pattern

    .arch_extension pauth

// Returns its argument plus one, by a return address that it has signed.
function fixture_signed_return
    paciasp
    add     x0, x0, #1
    retaa
end fixture_signed_return

function fixture_signed_return_by_key_b
    pacibsp
    add     x0, x0, #1
    retab
end fixture_signed_return_by_key_b

// Calls addresses that it has signed, with each key, and with zero, a register and the stack pointer as the modifier.
// The callee adds up the addresses that it was called from. There are no jumps: QEMU 10.0 fails an assertion on BRAA.
function fixture_signed_calls
    stp     x29, x30, [sp, #-16]!
    mov     x29, sp
    mov     x11, #0x1234
    mov     x12, sp
    adr     x9, fixture_callee
    paciza  x9
    blraaz  x9
    adr     x9, fixture_callee
    pacizb  x9
    blrabz  x9
    adr     x9, fixture_callee
    pacia   x9, x11
    blraa   x9, x11
    adr     x30, fixture_callee
    pacib   x30, x12
    blrab   x30, sp
    ldp     x29, x30, [sp], #16
    ret
end fixture_signed_calls

// Functions that fault at their second instruction. A handler that repairs the fault continues at x9.
function fixture_bad_load
    mov     x9, x30
    ldr     x0, [x0]
    ret
end fixture_bad_load

function fixture_bad_store
    mov     x9, x30
    stp     x1, x2, [x0], #16
    ret
end fixture_bad_store

// Nothing is mapped below the image, and this section begins less than 0xf0000 bytes above its start.
    .section .text.at_start, "ax", %progbits
function fixture_bad_literal
    mov     x9, x30
    ldr     x0, . - 0xf0000
    ret
end fixture_bad_literal
    .text

function fixture_forged_return
    mov     x9, x30
    retaa
end fixture_forged_return

function fixture_forged_call
    mov     x9, x30
    blraa   x9, x10
    ret
end fixture_forged_call

// A page that is guarded while it is tested.
    .balign 4096
function fixture_call_pad
    bti     c
    add     x0, x0, #1
    ret
end fixture_call_pad

function fixture_jump_pad
    bti     j
    add     x0, x0, #1
    ret
end fixture_jump_pad

function fixture_signing_pad
    paciasp
    autiasp
    ret
end fixture_signing_pad

function fixture_no_pad
    add     x0, x0, #1
    ret
end fixture_no_pad

function fixture_no_pad_simulated
    adr     x1, .
    ret
end fixture_no_pad_simulated

// Calls `fixture_call_pad` by its address. `fixture_call_of_pad` is the call.
function fixture_pad_caller
    bti     c
    stp     x29, x30, [sp, #-16]!
    adr     x9, fixture_call_pad
    .global fixture_call_of_pad
fixture_call_of_pad:
    blr     x9
    ldp     x29, x30, [sp], #16
    ret
end fixture_pad_caller
    .balign 4096
