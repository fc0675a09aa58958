// The entry for a kernel with exception vectors of its own: its vector for synchronous exceptions from EL1 with SP_EL1
// (Arm ARM, D1.4.1) is `b kprobes_vector`. An exception that belongs to no probe goes on at `kprobes_host_vector`,
// which the kernel defines, as if the CPU had taken it there.
//
// Included after frame.S.

    .section .kprobes.text.vector, "ax"

// In: an exception as the CPU takes it, with room for a frame below sp. Out: the interrupted code goes on; or, at
// `kprobes_host_vector`, every register, sp, ELR_EL1, SPSR_EL1, ESR_EL1 and FAR_EL1 are as if the exception had been
// taken without probes: an instruction that has faulted in a slot appears to have faulted at its own address.
    .global kprobes_vector
    .type   kprobes_vector, %function
kprobes_vector:
    sub     sp, sp, #{FRAME_SIZE}
    kprobes_frame_store_registers
    add     x0, sp, #{FRAME_SIZE}
    mrs     x1, elr_el1
    mrs     x2, spsr_el1
    kprobes_frame_store_state
    bl      kprobes_exception
    mov     x0, sp
    bl      kprobes_vector_unusual
    and     w0, w0, #1                      // a bool: only its byte is defined (AAPCS64, section 10.1.1)
    cbnz    w0, kprobes_return
    kprobes_frame_load
    b       kprobes_host_vector
    .size   kprobes_vector, . - kprobes_vector
