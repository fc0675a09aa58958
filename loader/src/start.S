// The way from the firmware to the loader, and from the loader to the kernel.
//
// Both hand over as Linux requires (Documentation/arch/arm64/booting.rst): EL2 or EL1, MMU and data cache off, all
// interrupts masked, x0 = physical address of the device tree, x1 to x3 = 0. The loader restores whatever it changes of
// the CPU's state, so that the kernel cannot tell it from the firmware.
//
// The loader keeps the MMU and the data cache off, so its stores are in memory at once. Its only cache duty is that no
// line from before hides the memory or is written over it later. The instruction cache alone is on, because otherwise
// every instruction would be fetched from memory.

    .section .head, "ax"

    .global loader_header
    .type   loader_header, %function
loader_header:
    b       loader_start
    .word   0
    .quad   0                               // text offset
    .quad   __loader_size
    .quad   0b1010                          // little-endian, 4 KiB pages, placed anywhere
    .quad   0
    .quad   0
    .quad   0
    .ascii  "ARM\x64"
    .word   0
    .size   loader_header, . - loader_header

// In: the state described at the top, at any physical address that is a multiple of 8. A copy from there to the link
// address must not overlap. Does not return.
    .type   loader_start, %function
loader_start:
    msr     daifset, #0b1111
    msr     spsel, #1
    mov     x19, x0

    ldr     x0, =__image_start
    ldr     x1, =__image_end
    bl      loader_invalidate
    adr     x2, loader_header               // where the firmware has put the loader
    ldr     x0, =__image_start
    cmp     x0, x2
    b.eq    2f
1:  ldp     x3, x4, [x2], #16
    stp     x3, x4, [x0], #16
    cmp     x0, x1
    b.lo    1b
2:  dsb     sy
    ic      iallu
    dsb     nsh
    isb
    ldr     x0, =3f
    br      x0

3:  ldr     x0, =__loader_stack_end         // from here on at the link address
    mov     sp, x0
    adr     x2, loader_vectors
    mrs     x0, currentel
    cmp     x0, #(2 << 2)
    b.ne    4f
    mrs     x20, sctlr_el2
    mrs     x21, vbar_el2
    orr     x1, x20, #(1 << 12)             // I: instruction cache on
    msr     sctlr_el2, x1
    msr     vbar_el2, x2
    b       5f
4:  mrs     x20, sctlr_el1
    mrs     x21, vbar_el1
    orr     x1, x20, #(1 << 12)
    msr     sctlr_el1, x1
    msr     vbar_el1, x2
5:  isb
    mov     x29, #0
    mov     x30, #0
    mov     x0, x19
    mov     x1, x20
    mov     x2, x21
    b       loader_main
    .size   loader_start, . - loader_start

// Drops the lines of a memory range from the data and unified caches, without writing them back.
// In: x0, x1 = start and end, physical. Clobbers: x0, x2, x3. Stack: none.
    .global loader_invalidate
    .type   loader_invalidate, %function
loader_invalidate:
    mrs     x2, ctr_el0
    ubfx    x2, x2, #16, #4                 // DminLine: log2 of the line in words
    mov     x3, #4
    lsl     x2, x3, x2
    sub     x3, x2, #1
    bic     x0, x0, x3
1:  cmp     x0, x1
    b.hs    2f
    dc      ivac, x0
    add     x0, x0, x2
    b       1b
2:  dsb     sy
    ret
    .size   loader_invalidate, . - loader_invalidate

// Hands the board over to the kernel.
// In: x0 = device tree, x1 = kernel, both physical; x2 = SCTLR and x3 = VBAR as the firmware left them.
// Does not return.
    .global loader_leave
    .type   loader_leave, %function
loader_leave:
    mov     x4, x1
    mrs     x5, currentel
    cmp     x5, #(2 << 2)
    b.ne    1f
    msr     sctlr_el2, x2
    msr     vbar_el2, x3
    b       2f
1:  msr     sctlr_el1, x2
    msr     vbar_el1, x3
2:  isb
    ic      iallu                           // drops what was fetched speculatively while the kernel was stored
    dsb     sy
    isb
    mov     x1, #0
    mov     x2, #0
    mov     x3, #0
    br      x4
    .size   loader_leave, . - loader_leave

// No exception is expected. Any that comes is reported, and the board is reset.
    .balign 2048
    .type   loader_vectors, %object
loader_vectors:
    .rept   16
    .balign 128
    b       loader_exception
    .endr
    .size   loader_vectors, . - loader_vectors

    .type   loader_exception, %function
loader_exception:
    ldr     x0, =__loader_stack_end
    mov     sp, x0
    mrs     x3, currentel
    cmp     x3, #(2 << 2)
    b.ne    1f
    mrs     x0, esr_el2
    mrs     x1, elr_el2
    mrs     x2, far_el2
    b       loader_fault
1:  mrs     x0, esr_el1
    mrs     x1, elr_el1
    mrs     x2, far_el1
    b       loader_fault
    .size   loader_exception, . - loader_exception

    .ltorg
