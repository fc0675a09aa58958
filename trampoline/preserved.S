// Stores and loads the registers that a call preserves (AAPCS64, section 6.1.1), except the frame pointer, for code
// that switches tasks or uses all of these registers. Like frame.S, it may be included several times.

    .ifndef kprobes_preserved_is_included
    .set    kprobes_preserved_is_included, 1

// Stores x19–x28, in 80 bytes.
// In: \base + \offset = the address to store at; \base is a register.
.macro kprobes_preserved_store base, offset
    stp     x19, x20, [\base, #(\offset)]
    stp     x21, x22, [\base, #(\offset + 16)]
    stp     x23, x24, [\base, #(\offset + 32)]
    stp     x25, x26, [\base, #(\offset + 48)]
    stp     x27, x28, [\base, #(\offset + 64)]
.endm

// Loads x19–x28 from the 80 bytes at \base + \offset.
.macro kprobes_preserved_load base, offset
    ldp     x19, x20, [\base, #(\offset)]
    ldp     x21, x22, [\base, #(\offset + 16)]
    ldp     x23, x24, [\base, #(\offset + 32)]
    ldp     x25, x26, [\base, #(\offset + 48)]
    ldp     x27, x28, [\base, #(\offset + 64)]
.endm

    .endif
