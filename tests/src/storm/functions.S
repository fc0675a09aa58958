// The functions of the storm, in two groups: storm_NAME_steady and storm_NAME_loose. All follow the AAPCS64, with the
// argument and the result in x0.
//
// x1 points to 64-bit counters that nothing else changes meanwhile, and is passed on in every call. Every straight
// stretch of instructions increments one of the counters, which therefore tells how often each instruction was
// executed.
//
// `storm_at` marks an instruction as a place for probes: its address and the number of its stretch's counter are added
// to the table storm_places_steady or storm_places_loose.

    .equ    CALLS_PLAIN, 0
    .equ    CALLS_TURN, 1
    .equ    PASSES_TURN, 2
    .equ    CALLS_NEST, 3
    .equ    RETURNS_NEST, 4
    .equ    CALLS_TAIL, 5
    .equ    CALLS_RECURSE, 6
    .equ    DESCENTS_RECURSE, 7
    .equ    RETURNS_RECURSE, 8
    .equ    CALLS_PAUSE, 9
    .equ    RETURNS_PAUSE, 10
    .equ    CALLS_CROSS, 11
    .equ    RETURNS_CROSS, 12

.macro storm_function name
    .balign 16
    .global \name
    .type   \name, %function
\name:
.endm

.macro storm_end name
    .size   \name, . - \name
.endm

.macro storm_at group, counter, instruction:vararg
.Lstorm_place_\@:
    \instruction
    .pushsection .rodata.storm_places_\group, "a"
    .quad   .Lstorm_place_\@, \counter
    .popsection
.endm

.macro storm_count group, counter
    storm_at \group, \counter, ldr x9, [x1, #8 * \counter]
    storm_at \group, \counter, add x9, x9, #1
    storm_at \group, \counter, str x9, [x1, #8 * \counter]
.endm

.macro storm_enter group, counter
    storm_at \group, \counter, stp x29, x30, [sp, #-32]!
    storm_at \group, \counter, mov x29, sp
    storm_at \group, \counter, str x1, [sp, #16]
.endm

.macro storm_leave group, counter
    storm_at \group, \counter, ldp x29, x30, [sp], #32
    storm_at \group, \counter, ret
.endm

.macro storm_functions group
    .pushsection .rodata.storm_places_\group, "a"
    .balign 8
    .global storm_places_\group
storm_places_\group:
    .popsection

// Computes (x0 ^ 0xff) + 7, with simulated instructions and instructions that are executed in a slot.
storm_function storm_plain_\group
    storm_count \group, CALLS_PLAIN
    storm_at \group, CALLS_PLAIN, adr x10, .
    storm_at \group, CALLS_PLAIN, adr x11, .
    storm_at \group, CALLS_PLAIN, sub x11, x11, x10
    storm_at \group, CALLS_PLAIN, eor x0, x0, #0xff
    storm_at \group, CALLS_PLAIN, add x0, x0, x11
    storm_at \group, CALLS_PLAIN, str x0, [sp, #-16]!
    storm_at \group, CALLS_PLAIN, ldr x12, storm_three_\group
    storm_at \group, CALLS_PLAIN, ldr x0, [sp], #16
    storm_at \group, CALLS_PLAIN, cbz xzr, 1f
    mov     x0, #0
1:  storm_at \group, CALLS_PLAIN, add x0, x0, x12
    storm_at \group, CALLS_PLAIN, ret
storm_end storm_plain_\group
    .balign 8
storm_three_\group:
    .quad   3

// Computes x0 + n + … + 2 + 1, where n is the low three bits of x0, plus one.
storm_function storm_turn_\group
    storm_count \group, CALLS_TURN
    storm_at \group, CALLS_TURN, and x2, x0, #7
    storm_at \group, CALLS_TURN, add x2, x2, #1
1:  storm_count \group, PASSES_TURN
    storm_at \group, PASSES_TURN, add x0, x0, x2
    storm_at \group, PASSES_TURN, subs x2, x2, #1
    storm_at \group, PASSES_TURN, b.ne 1b
    storm_at \group, CALLS_TURN, ret
storm_end storm_turn_\group

// Computes plain(x0) + 1.
storm_function storm_nest_\group
    storm_count \group, CALLS_NEST
    storm_enter \group, CALLS_NEST
    storm_at \group, CALLS_NEST, bl storm_plain_\group
    storm_at \group, RETURNS_NEST, ldr x1, [sp, #16]
    storm_count \group, RETURNS_NEST
    storm_at \group, RETURNS_NEST, add x0, x0, #1
    storm_leave \group, RETURNS_NEST
storm_end storm_nest_\group

// Computes plain(x0 + 2).
storm_function storm_tail_\group
    storm_count \group, CALLS_TAIL
    storm_at \group, CALLS_TAIL, add x0, x0, #2
    storm_at \group, CALLS_TAIL, b storm_plain_\group
storm_end storm_tail_\group

// Computes x0 * 3, by recursion.
storm_function storm_recurse_\group
    storm_count \group, CALLS_RECURSE
    storm_at \group, CALLS_RECURSE, cbz x0, 1f
    storm_count \group, DESCENTS_RECURSE
    storm_enter \group, DESCENTS_RECURSE
    storm_at \group, DESCENTS_RECURSE, sub x0, x0, #1
    storm_at \group, DESCENTS_RECURSE, bl storm_recurse_\group
    storm_at \group, RETURNS_RECURSE, ldr x1, [sp, #16]
    storm_count \group, RETURNS_RECURSE
    storm_at \group, RETURNS_RECURSE, add x0, x0, #3
    storm_leave \group, RETURNS_RECURSE
1:  ret
storm_end storm_recurse_\group

// Computes x0 + 5 after a call of storm_pause, which gets x0 and returns it, or does not return at all.
storm_function storm_pause_\group
    storm_count \group, CALLS_PAUSE
    storm_enter \group, CALLS_PAUSE
    storm_at \group, CALLS_PAUSE, bl storm_pause
    storm_at \group, RETURNS_PAUSE, ldr x1, [sp, #16]
    storm_count \group, RETURNS_PAUSE
    storm_at \group, RETURNS_PAUSE, add x0, x0, #5
    storm_leave \group, RETURNS_PAUSE
storm_end storm_pause_\group

// Computes pause(x0) + 6.
storm_function storm_cross_\group
    storm_count \group, CALLS_CROSS
    storm_enter \group, CALLS_CROSS
    storm_at \group, CALLS_CROSS, bl storm_pause_\group
    storm_at \group, RETURNS_CROSS, ldr x1, [sp, #16]
    storm_count \group, RETURNS_CROSS
    storm_at \group, RETURNS_CROSS, add x0, x0, #6
    storm_leave \group, RETURNS_CROSS
storm_end storm_cross_\group

    .pushsection .rodata.storm_places_\group, "a"
    .global storm_places_\group\()_end
storm_places_\group\()_end:
    .popsection
.endm

    .text
    storm_functions steady
    storm_functions loose
