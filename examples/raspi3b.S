// The entry of the examples on QEMU's raspi3b. CPU 0 goes on at `start` as QEMU's virt machine enters it: at EL1,
// with the MMU off and all of PSTATE.DAIF masked. The other CPUs wait here until the kernel sets `last_started` to
// their number or more; in a kernel of one CPU they stay here.
//
// The firmware of a board enters a kernel at EL2. QEMU enters an ELF file at EL3, on all CPUs.
    .section .text.start, "ax"
    .global start_on_raspi3b
start_on_raspi3b:
    mrs     x0, mpidr_el1
    ands    x0, x0, #0xff
    b.eq    1f
    adrp    x1, last_started
    add     x1, x1, :lo12:last_started
0:  wfe
    ldr     x2, [x1]
    cmp     x2, x0
    b.lo    0b
1:  mrs     x0, currentel
    cmp     x0, #0b11 << 2
    b.ne    2f
    mov     x0, #0x5b1                  // SCR_EL3: RW, HCE, SMD, NS, and the RES1 bits
    msr     scr_el3, x0
    mov     x0, #0x3c9                  // EL2 with SP_EL2, everything masked
    msr     spsr_el3, x0
    adr     x0, 2f
    msr     elr_el3, x0
    eret
2:  mov     x0, #1 << 31                // HCR_EL2.RW
    msr     hcr_el2, x0
    mov     x0, #0b11                   // CNTHCTL_EL2: EL1 reads the counter and has the timer
    msr     cnthctl_el2, x0
    msr     cntvoff_el2, xzr
    mrs     x0, mdcr_el2                // no traps (TDE: breakpoints go to EL1); the counters of HPMN stay EL1's
    and     x0, x0, #0x1f
    msr     mdcr_el2, x0
    mov     x0, #0x0800                 // SCTLR_EL1: the RES1 bits
    movk    x0, #0x30d0, lsl #16
    msr     sctlr_el1, x0
    mov     x0, #0x3c5                  // EL1 with SP_EL1, everything masked
    msr     spsr_el2, x0
    adrp    x0, start
    add     x0, x0, :lo12:start
    msr     elr_el2, x0
    eret

    .section .data.last_started, "aw"
    .balign 8
    .global last_started
last_started:
    .quad   0
