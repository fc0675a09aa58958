// Loads that may fail: a wild address gives an answer, not a crash.
//
// A data abort between kprobes_nofault_start and kprobes_nofault_end is resumed at kprobes_nofault_failed, by
// src/exception/nofault.rs. Every routine is one load, so there is nothing to undo.

    .section .kprobes.text.nofault, "ax"

// In: x0 = a virtual address. Out: x0 = what is there, zero extended, and x1 = 0; or x0 = 0 and x1 = 1 where it
// cannot be read. Clobbers nothing else. Stack: none.
.macro nofault_load size instruction
    .global kprobes_nofault_load\size
    .type   kprobes_nofault_load\size, %function
kprobes_nofault_load\size:
    \instruction, [x0]
    mov     x1, #0
    ret
    .size   kprobes_nofault_load\size, . - kprobes_nofault_load\size
.endm

    .balign 16
    .global kprobes_nofault_start
kprobes_nofault_start:
    nofault_load 1, "ldrb w0"
    nofault_load 2, "ldrh w0"
    nofault_load 4, "ldr w0"
    nofault_load 8, "ldr x0"
    .global kprobes_nofault_end
kprobes_nofault_end:

    .type   kprobes_nofault_failed, %function
    .global kprobes_nofault_failed
kprobes_nofault_failed:
    mov     x0, #0
    mov     x1, #1
    ret
    .size   kprobes_nofault_failed, . - kprobes_nofault_failed
