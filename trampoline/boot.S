// From the boot loader to Rust: the arm64 image header, and the code that turns the MMU on, for the CPU that the boot
// loader starts and for those that the kernel starts after it.
//
// The contract at both entries is that of Linux (Documentation/arch/arm64/booting.rst): the CPU is at EL2 or EL1, its
// MMU and data cache are off, all interrupts are masked, and the loaded image is cleaned to the point of coherency. At
// the first entry, x0 = the physical address of the device tree. The image may lie at any physical address that is a
// multiple of 4096: before boot_switch, every address comes from ADR or ADRP, and is physical.
//
// All of this code lies in the region without probes: it runs without vectors, and with the MMU off the CPU fetches it
// from memory, which a breakpoint that is still in a cache may not have reached.
//
// Constants: IMAGE_BASE, VIRTUAL_BITS; TEXT, RODATA, DATA (page descriptors without an address), TABLE (a table
// descriptor without an address); IMAGE_TABLES (the number of level 3 tables for the image); MAIR, TCR, TCR_EPD0,
// SCTLR_OFF, SCTLR_ON, HCR, STACK_SIZE, AFFINITY (the affinity fields of MPIDR_EL1), MAX_CPUS; and from
// runtime/src/smp/start.rs: CPU_ENTRY_SIZE, and the offsets CPU_ENTRY_AFFINITY, CPU_ENTRY_STACK and
// CPU_ENTRY_EMERGENCY_STACK. Symbol: SMP_ENTRIES, the array of these entries.
//
// From boot_start to boot_upper: x19 = physical address of the device tree, x20 = physical address of the image.

// linker.ld checks the image against these.
    .global boot_image_base
    .set    boot_image_base, {IMAGE_BASE}
    .global boot_image_limit
    .set    boot_image_limit, {IMAGE_TABLES} << 21
    .global boot_stack_size
    .set    boot_stack_size, {STACK_SIZE}

    .section .head, "ax"

    .global boot_header
    .type   boot_header, %object
boot_header:
    b       boot_start
    .word   0
    .quad   0                               // text offset
    .quad   __image_size                    // replaced when something is appended to the image
    .quad   0b1010                          // little-endian, 4 KiB pages, placed anywhere
    .quad   0
    .quad   0
    .quad   0
    .ascii  "ARM\x64"
    .word   0
    .size   boot_header, . - boot_header

    .section .kprobes.text.boot, "ax"

// In: the contract of both entries. Does not return. Stack: none before boot_upper.
    .balign 4
    .type   boot_start, %function
boot_start:
    msr     daifset, #0b1111
    msr     spsel, #1
    mov     x19, x0
    adrp    x20, __image_start
    bl      boot_enter_el1
    bl      boot_control_registers

    // What is written below with the cache off must not be hidden, nor later overwritten, by older lines in the cache.
    // The lines that the CPU has fetched speculatively in the meantime are stale (Arm ARM, B2.8, D7.5).
    adrp    x0, __bss_start
    adrp    x1, __image_end
    bl      boot_invalidate
    adrp    x0, __bss_start
    adrp    x1, __bss_end
1:  stp     xzr, xzr, [x0], #16
    cmp     x0, x1
    b.lo    1b
    bl      boot_tables
    dmb     sy
    adrp    x0, __bss_start
    adrp    x1, __image_end
    bl      boot_invalidate

    ldr     x30, =boot_upper                // its link address
    b       boot_switch
    .size   boot_start, . - boot_start

// The entry of a CPU that the kernel starts, by PSCI or from a spin table. It takes no argument, because a spin table
// passes none. What it needs while its MMU is off is in the image as it was loaded. The table walks use the attributes
// of TCR_EL1, so they read the tables through the caches in which they were written.
// In: the contract of both entries. Does not return. Stack: none before boot_secondary_upper.
    .balign 4
    .global boot_secondary
    .type   boot_secondary, %function
boot_secondary:
    msr     daifset, #0b1111
    msr     spsel, #1
    bl      boot_enter_el1
    bl      boot_control_registers
    ldr     x30, =boot_secondary_upper      // its link address
    b       boot_switch
    .size   boot_secondary, . - boot_secondary

// Drops to EL1 if the CPU is at EL2, with nothing trapped to EL2.
// In: x30 = the address to go on at. Out: EL1h, PSTATE.DAIF masked. Clobbers: x0, x1. Stack: none.
    .type   boot_enter_el1, %function
boot_enter_el1:
    mrs     x0, currentel
    ubfx    x0, x0, #2, #2
    cmp     x0, #1
    b.ne    1f
    ret
1:  cmp     x0, #2
    b.ne    boot_park                       // EL3 is not supported, and no UART is known yet to say so

    ldr     x0, ={HCR}                        // EL1 is AArch64; E2H off, so that EL2 registers are laid out as below
    msr     hcr_el2, x0
    isb
    mov     x0, #0x33ff                     // CPTR_EL2: the RES1 bits of a CPU without SVE; nothing else trapped
    msr     cptr_el2, x0
    msr     hstr_el2, xzr
    msr     vttbr_el2, xzr
    mov     x0, #0b11                       // EL1 may use the physical counter and timer
    msr     cnthctl_el2, x0
    msr     cntvoff_el2, xzr                // virtual count = physical count
    mrs     x0, midr_el1
    msr     vpidr_el2, x0
    mrs     x0, mpidr_el1
    msr     vmpidr_el2, x0

    mrs     x0, id_aa64dfr0_el1             // MDCR_EL2: no debug traps, all performance counters for EL1
    ubfx    x0, x0, #8, #4                  // PMUVer: 0 = none, 15 = not the architected one
    mov     x1, #0
    cbz     x0, 2f
    cmp     x0, #15
    b.eq    2f
    mrs     x1, pmcr_el0
    ubfx    x1, x1, #11, #5                 // N, to be HPMN
2:  msr     mdcr_el2, x1

    mrs     x0, id_aa64pfr0_el1             // GICv3 system registers: for EL1 too
    ubfx    x0, x0, #24, #4
    cbz     x0, 3f
    mrs     x0, S3_4_C12_C9_5               // ICC_SRE_EL2
    orr     x0, x0, #0b0001                 // SRE
    orr     x0, x0, #0b1000                 // Enable
    msr     S3_4_C12_C9_5, x0
    isb
    mrs     x0, S3_4_C12_C9_5
    tbz     x0, #0, 3f                      // EL3 does not allow it: the GIC is used through memory
    msr     S3_4_C12_C11_0, xzr             // ICH_HCR_EL2: no virtual interrupts

3:  mrs     x0, id_aa64mmfr0_el1            // fine-grained traps
    ubfx    x0, x0, #56, #4
    cbz     x0, 4f
    msr     S3_4_C1_C1_4, xzr               // HFGRTR_EL2
    msr     S3_4_C1_C1_5, xzr               // HFGWTR_EL2
    msr     S3_4_C1_C1_6, xzr               // HFGITR_EL2
    msr     S3_4_C3_C1_4, xzr               // HDFGRTR_EL2
    msr     S3_4_C3_C1_5, xzr               // HDFGWTR_EL2
4:  mrs     x0, id_aa64mmfr1_el1
    ubfx    x0, x0, #40, #4
    cbz     x0, 5f
    msr     S3_4_C1_C2_2, xzr               // HCRX_EL2

5:  ldr     x0, ={SCTLR_OFF}
    msr     sctlr_el1, x0
    mov     x0, #0x3c5                      // EL1h, DAIF masked (Arm ARM, C5.2.20)
    msr     spsr_el2, x0
    msr     elr_el2, x30
    eret
    .size   boot_enter_el1, . - boot_enter_el1

// Waits forever.
    .type   boot_park, %function
boot_park:
    wfe
    b       boot_park
    .size   boot_park, . - boot_park

// Sets the EL1 system registers that are unknown at reset, and the parameters of the translation.
// In: EL1, MMU off. Clobbers: x0, x1. Stack: none.
    .type   boot_control_registers, %function
boot_control_registers:
    ldr     x0, ={SCTLR_OFF}
    msr     sctlr_el1, x0
    isb
    msr     cpacr_el1, xzr                  // floating point traps: the image is soft-float
    msr     mdscr_el1, xzr
    msr     oslar_el1, xzr                  // OS lock off: debug exceptions work as the engine expects
    msr     cntkctl_el1, xzr
    msr     contextidr_el1, xzr
    msr     tpidr_el1, xzr
    ldr     x0, ={MAIR}
    msr     mair_el1, x0
    ldr     x0, ={TCR}
    mrs     x1, id_aa64mmfr0_el1            // IPS = PARange, at most the 48 bits that a descriptor holds
    and     x1, x1, #0b111
    cmp     x1, #5
    b.ls    1f
    mov     x1, #5
1:  bfi     x0, x1, #32, #3
    msr     tcr_el1, x0
    isb
    ret
    .size   boot_control_registers, . - boot_control_registers

// Invalidates data cache lines without writing them back.
// In: x0, x1 = start and end, physical, MMU off, multiples of the line size. Clobbers: x0, x2, x3. Stack: none.
    .type   boot_invalidate, %function
boot_invalidate:
    mrs     x2, ctr_el0
    ubfx    x2, x2, #16, #4                 // DminLine: log2 of the line in words
    mov     x3, #4
    lsl     x2, x3, x2
1:  dc      ivac, x0
    add     x0, x0, x2
    cmp     x0, x1
    b.lo    1b
    dsb     sy
    ret
    .size   boot_invalidate, . - boot_invalidate

// Fills the page tables: the image at its link address, and the page of boot_switch at its physical one.
// In: x20. Clobbers: x0–x9. Stack: none.
    .type   boot_tables, %function
boot_tables:
    mov     x9, x30
    adrp    x0, boot_kernel_table           // level 1 → level 2 → IMAGE_TABLES tables of level 3, side by side
    adrp    x1, boot_image_directory
    adrp    x2, boot_image_tables
    mov     x8, #{TABLE}
    orr     x4, x1, x8
    str     x4, [x0, #((({IMAGE_BASE} >> 30) & 511) * 8)]
    mov     x5, #{IMAGE_TABLES}
1:  orr     x4, x2, x8
    str     x4, [x1], #8
    add     x2, x2, #4096
    subs    x5, x5, #1
    b.ne    1b

    adrp    x0, __text_start
    adrp    x1, __text_end
    ldr     x2, ={TEXT}
    bl      boot_map
    adrp    x0, __rodata_start
    adrp    x1, __rodata_end
    ldr     x2, ={RODATA}
    bl      boot_map
    adrp    x0, __data_start
    adrp    x1, __bss_end
    ldr     x2, ={DATA}
    bl      boot_map
    adrp    x0, __boot_stack_start
    adrp    x1, __boot_stack_end
    bl      boot_map

    adrp    x0, boot_switch                 // mapped at its physical address, by TTBR0
    adrp    x1, boot_identity_table
    adrp    x2, boot_identity_table + 4096
    adrp    x4, boot_identity_table + 8192
    ubfx    x5, x0, #30, #({VIRTUAL_BITS} - 30)
    orr     x6, x2, x8
    str     x6, [x1, x5, lsl #3]
    ubfx    x5, x0, #21, #9
    orr     x6, x4, x8
    str     x6, [x2, x5, lsl #3]
    ubfx    x5, x0, #12, #9
    ldr     x7, ={TEXT}
    orr     x6, x0, x7
    str     x6, [x4, x5, lsl #3]
    ret     x9
    .size   boot_tables, . - boot_tables

// Maps pages of the image at their link addresses.
// In: x0, x1 = start and end, physical; x2 = descriptor; x20. Clobbers: x0, x3–x5. Stack: none.
    .type   boot_map, %function
boot_map:
    adrp    x3, boot_image_tables
    sub     x4, x0, x20
    add     x3, x3, x4, lsr #9              // 8 bytes for each 4096
1:  orr     x5, x0, x2
    str     x5, [x3], #8
    add     x0, x0, #4096
    cmp     x0, x1
    b.lo    1b
    ret
    .size   boot_map, . - boot_map

// Turns the MMU and the caches on. It lies within one page, which is mapped at its physical address.
// In: x30 = the link address to go on at; tables written and visible. Clobbers: x0. Stack: none.
    .balign 64
    .type   boot_switch, %function
boot_switch:
    adrp    x0, boot_identity_table
    msr     ttbr0_el1, x0
    adrp    x0, boot_kernel_table
    msr     ttbr1_el1, x0
    isb
    tlbi    vmalle1
    ic      iallu
    dsb     nsh
    isb
    ldr     x0, boot_sctlr_on
    msr     sctlr_el1, x0
    isb
    ret
    .balign 8
boot_sctlr_on:
    .quad   {SCTLR_ON}
    .size   boot_switch, . - boot_switch

// The first code at link addresses, on the CPU that the boot loader has started.
    .type   boot_upper, %function
boot_upper:
    bl      boot_leave_lower_half
    adrp    x0, __boot_stack_end
    mov     sp, x0
    msr     tpidrro_el0, x0                 // the boot stack serves as emergency stack until there is one
    mov     x29, #0                         // backtraces end here
    mov     x0, x19
    mov     x1, x20
    mov     x30, #0
    b       runtime_boot
    .size   boot_upper, . - boot_upper

// The first code at link addresses, on a CPU that the kernel has started. The CPU finds its number and its stacks by
// its affinity. A CPU that is not expected parks.
    .type   boot_secondary_upper, %function
boot_secondary_upper:
    bl      boot_leave_lower_half
    mrs     x1, mpidr_el1
    ldr     x0, ={AFFINITY}
    and     x1, x1, x0
    adrp    x2, {SMP_ENTRIES}
    add     x2, x2, :lo12:{SMP_ENTRIES}
    mov     x0, #0
1:  ldr     x3, [x2, #{CPU_ENTRY_STACK}]    // 0: no CPU uses this entry
    cbz     x3, 2f
    ldr     x4, [x2, #{CPU_ENTRY_AFFINITY}]
    cmp     x4, x1
    b.eq    3f
2:  add     x2, x2, #{CPU_ENTRY_SIZE}
    add     x0, x0, #1
    cmp     x0, #{MAX_CPUS}
    b.lo    1b
    b       boot_park
3:  mov     sp, x3
    ldr     x3, [x2, #{CPU_ENTRY_EMERGENCY_STACK}]
    msr     tpidrro_el0, x3
    mov     x29, #0
    mov     x30, #0
    b       runtime_boot_secondary
    .size   boot_secondary_upper, . - boot_secondary_upper

// Ends the use of the lower half of the address space, and sets the exception vectors.
// In: the MMU on, at link addresses. Clobbers: x0. Stack: none.
    .type   boot_leave_lower_half, %function
boot_leave_lower_half:
    mrs     x0, tcr_el1
    orr     x0, x0, #{TCR_EPD0}
    msr     tcr_el1, x0
    isb
    tlbi    vmalle1
    dsb     nsh
    adrp    x0, exception_vectors
    add     x0, x0, :lo12:exception_vectors
    msr     vbar_el1, x0
    isb
    ret
    .size   boot_leave_lower_half, . - boot_leave_lower_half

    .ltorg

    .section .bss.boot_tables, "aw", %nobits
    .balign 4096
    .global boot_kernel_table
boot_kernel_table:
    .skip   4096
boot_image_directory:
    .skip   4096
boot_image_tables:
    .skip   4096 * {IMAGE_TABLES}
boot_identity_table:                        // level 1, 2 and 3
    .skip   4096 * 3
