// Instructions that may fault in the hit path: a wild address gives an error, not a crash.
//
// After an exception between kprobes_nofault_start and kprobes_nofault_end that is no hardware breakpoint, watchpoint or
// software step, src/exception/nofault.rs resumes at kprobes_nofault_failed, with the syndrome in x1. Every routine is
// one instruction, so there is nothing to undo.

    .pushsection .kprobes.text.nofault, "ax"

// Contract of all routines. Out: x0 = the result, x1 = 0; or x0 = 0, and x1 = ESR_EL1 of the exception, which is never
// 0. Clobbers nothing else. Stack: none.
.macro kprobes_nofault name instruction:vararg
    .global kprobes_nofault_\name
    .type   kprobes_nofault_\name, %function
kprobes_nofault_\name:
    \instruction
    mov     x1, #0
    ret
    .size   kprobes_nofault_\name, . - kprobes_nofault_\name
.endm

    .balign 16
    .global kprobes_nofault_start
kprobes_nofault_start:
// In: x0 = a virtual address. Result: the value at that address, zero extended.
    kprobes_nofault load1, ldrb w0, [x0]
    kprobes_nofault load2, ldrh w0, [x0]
    kprobes_nofault load4, ldr w0, [x0]
    kprobes_nofault load8, ldr x0, [x0]
// In: x0 = a pointer to instructions, x1 = the modifier. Result: the pointer, authenticated with key A or B. Written as
// words, since the target is Armv8.0.
    kprobes_nofault authenticate_a, .inst 0xdac11020    // autia x0, x1
    kprobes_nofault authenticate_b, .inst 0xdac11420    // autib x0, x1
// Result: the old value of x0, unless the engine handles the breakpoint.
    kprobes_nofault breakpoint, brk #0x5
    .global kprobes_nofault_end
kprobes_nofault_end:

    .type   kprobes_nofault_failed, %function
    .global kprobes_nofault_failed
kprobes_nofault_failed:
    mov     x0, #0
    ret
    .size   kprobes_nofault_failed, . - kprobes_nofault_failed

    .popsection
