// The measured functions, whose every instruction is known, and the loop that calls them. Everything that begins with
// `bench_` costs the same with and without a probe, so a count of instructions by function leaves it out. The functions
// follow the AAPCS64, with the argument and the result in x0.

    .text

.macro target name
    .balign 64
    .global bench_target_\name
    .type   bench_target_\name, %function
bench_target_\name:
.endm

.macro end name
    .size   bench_target_\name, . - bench_target_\name
.endm

// Calls the function at x0 x2 times, each time with the argument x1 and the flags of a comparison of x1 with 0.
    .balign 64
    .global bench_round
    .type   bench_round, %function
bench_round:
    stp     x29, x30, [sp, #-48]!
    mov     x29, sp
    stp     x19, x20, [sp, #16]
    str     x21, [sp, #32]
    mov     x19, x0
    mov     x20, x1
    mov     x21, x2
1:  mov     x0, x20
    cmp     x20, #0
    blr     x19
    subs    x21, x21, #1
    b.ne    1b
    ldr     x21, [sp, #32]
    ldp     x19, x20, [sp, #16]
    ldp     x29, x30, [sp], #48
    ret
    .size   bench_round, . - bench_round

// Executes two instructions x0 times.
    .balign 64
    .global bench_calibrate
    .type   bench_calibrate, %function
bench_calibrate:
1:  subs    x0, x0, #1
    b.ne    1b
    ret
    .size   bench_calibrate, . - bench_calibrate

    target  middle
    nop
    add     x0, x0, #1
    ret
    end     middle

// A function of two instructions, 64 bytes from the one before.
.macro copy instruction:vararg
    .balign 64
    .type   bench_copy_\@, %function
bench_copy_\@:
    \instruction
    ret
    .size   bench_copy_\@, 8
.endm

// Empty functions that mark the beginning and the end of a change to probes in a log of instructions.
    .global bench_begin
    .type   bench_begin, %function
bench_begin:
    ret
    .size   bench_begin, . - bench_begin

    .global bench_end
    .type   bench_end, %function
bench_end:
    ret
    .size   bench_end, . - bench_end

// Four functions with an ordinary instruction, which is executed out of line.
    .balign 64
    .global bench_target_add
bench_target_add:
    .rept   4
    copy    add x0, x0, #1
    .endr

// Four functions with a position-dependent instruction.
    .balign 64
    .global bench_target_adrp
bench_target_adrp:
    .rept   4
    copy    adrp x0, .
    .endr

// The other position-dependent instructions, one of each kind. The conditional branches are not taken.
target adr
    adr     x0, .
    ret
end adr

target b
    b       1f
1:  ret
end b

target b_cond
    b.eq    1f
1:  ret
end b_cond

target cbz
    cbz     x0, 1f
1:  ret
end cbz

target tbz
    tbz     x0, #0, 1f
1:  ret
end tbz

target ldr_literal
    ldr     x0, 1f
    ret
    .balign 8
1:  .quad   1
end ldr_literal

// The second instruction is the probed one.
target bl
    mov     x9, x30
    bl      1f
1:  mov     x30, x9
    ret
end bl

// The third instruction is the probed one.
target blr
    mov     x9, x30
    adr     x8, 1f
    blr     x8
1:  mov     x30, x9
    ret
end blr

target ret
    ret
end ret

// A thousand functions of two instructions, 8 bytes each.
.macro bench_small
    .type   bench_small_\@, %function
bench_small_\@:
    add     x0, x0, #1
    ret
    .size   bench_small_\@, 8
.endm
    .balign 64
    .global bench_small
bench_small:
    .rept   1000
    bench_small
    .endr

// A thousand functions of 404 bytes each: 100 instructions that can be probed, and a return.
.macro bench_large
    .type   bench_large_\@, %function
bench_large_\@:
    .rept   100
    add     x0, x0, #1
    .endr
    ret
    .size   bench_large_\@, 404
.endm
    .balign 64
    .global bench_large
bench_large:
    .rept   1000
    bench_large
    .endr
