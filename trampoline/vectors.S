// The EL1 exception vector table (Arm ARM, D1.4.1), and the entry to and exit from an exception.
//
// Included after frame.S. Constants: FRAME_* of frame.S, STACK_SHIFT (log2 of a stack's size in bytes).
//
// The kernel runs at EL1 on SP_EL1, so the expected exceptions use the second group of vectors: synchronous exceptions
// (including breakpoints), interrupts and fast interrupts. Every other exception is reported, and the machine stops.
//
// Every stack is the upper half of a window that is twice its size and aligned to that, and the lower half is not
// mapped: bit STACK_SHIFT of a good stack pointer is set. The bit is tested before the first store, because a store
// through a stack pointer in the guard would fault, and come here again, forever.
//
// System registers that the vectors use, because nothing else uses them at EL1:
//   TPIDR_EL0    scratch, within these vectors
//   SP_EL0       scratch, the overflowed stack pointer
//   TPIDRRO_EL0  the top of this CPU's emergency stack, a stack like every other (set when the CPU starts); bit 0 is
//                set while the stack is in use
//
// Called, all as `extern "C"`, with PSTATE.DAIF masked, on the stack of the interrupted code unless it says otherwise:
//   kprobes_exception                                              the engine's, in hit.S: the usual hits of probes
//   runtime_el1_sync(frame: *mut TrapFrame, esr: u64, far: u64)    returns to resume at the frame
//   runtime_el1_irq(frame: *mut TrapFrame)                         returns to resume at the frame; tasks may switch
//   runtime_el1_fiq(frame: *mut TrapFrame)                         returns to resume at the frame
//   runtime_unexpected(frame, vector: u64, esr: u64, far: u64) -> ! vector = 0 to 15, as in the table
//   runtime_stack_overflow(frame, esr: u64, far: u64) -> !         on the emergency stack

    .section .kprobes.text.vectors, "ax"

// One entry: makes room, tests the stack pointer, saves x0–x29, and goes on at `\handler` with the number of the vector
// in x0. At most 32 instructions.
.macro vectors_entry number handler
    .balign 128
    sub     sp, sp, #{FRAME_SIZE}
    msr     tpidr_el0, x0
    mov     x0, sp
    tbz     x0, #{STACK_SHIFT}, vectors_overflow
    mrs     x0, tpidr_el0
    kprobes_frame_store_registers
.if \number == 4
    vectors_store_state                     // the path of most probe hits, which go no further
    bl      kprobes_exception
.else
    mov     x0, #\number
.endif
    b       \handler
.endm

// Completes the frame. In: sp = the frame, x0–x29 stored. Out: x1 = pc, x2 = pstate. Clobbers: x0, x29.
.macro vectors_store_state
    add     x0, sp, #{FRAME_SIZE}
    mrs     x1, elr_el1
    mrs     x2, spsr_el1
    kprobes_frame_store_state
.endm

    .balign 2048
    .global exception_vectors
    .type   exception_vectors, %function
exception_vectors:
    vectors_entry 0, vectors_unexpected     // current EL with SP_EL0: synchronous
    vectors_entry 1, vectors_unexpected     //   IRQ
    vectors_entry 2, vectors_unexpected     //   FIQ
    vectors_entry 3, vectors_unexpected     //   SError
    vectors_entry 4, vectors_synchronous    // current EL with SP_EL1: synchronous
    vectors_entry 5, vectors_interrupt      //   IRQ
    vectors_entry 6, vectors_fast_interrupt //   FIQ
    vectors_entry 7, vectors_unexpected     //   SError
    vectors_entry 8, vectors_unexpected     // lower EL, AArch64: synchronous
    vectors_entry 9, vectors_unexpected     //   IRQ
    vectors_entry 10, vectors_unexpected    //   FIQ
    vectors_entry 11, vectors_unexpected    //   SError
    vectors_entry 12, vectors_unexpected    // lower EL, AArch32: synchronous
    vectors_entry 13, vectors_unexpected    //   IRQ
    vectors_entry 14, vectors_unexpected    //   FIQ
    vectors_entry 15, vectors_unexpected    //   SError
    .balign 128
    .size   exception_vectors, . - exception_vectors

// In: sp = the complete frame.
    .type   vectors_synchronous, %function
vectors_synchronous:
    mov     x0, sp
    mrs     x1, esr_el1
    mrs     x2, far_el1
    bl      runtime_el1_sync
    b       kprobes_return
    .size   vectors_synchronous, . - vectors_synchronous

    .type   vectors_interrupt, %function
vectors_interrupt:
    vectors_store_state
    mov     x0, sp
    bl      runtime_el1_irq
    b       kprobes_return
    .size   vectors_interrupt, . - vectors_interrupt

    .type   vectors_fast_interrupt, %function
vectors_fast_interrupt:
    vectors_store_state
    mov     x0, sp
    bl      runtime_el1_fiq
    b       kprobes_return
    .size   vectors_fast_interrupt, . - vectors_fast_interrupt

    .type   vectors_unexpected, %function
vectors_unexpected:
    mov     x3, x0
    vectors_store_state
    mov     x0, sp
    mov     x1, x3
    mrs     x2, esr_el1
    mrs     x3, far_el1
    bl      runtime_unexpected
    .size   vectors_unexpected, . - vectors_unexpected

// Reports that the stack pointer has left its stack, on this CPU's emergency stack. It does not return. If the
// emergency stack is already in use, that one has overflowed too, and the CPU stops without a report.
// In: x0 = the bad stack pointer minus FRAME_SIZE, TPIDR_EL0 = the interrupted x0, PSTATE.DAIF masked.
    .type   vectors_overflow, %function
vectors_overflow:
    msr     sp_el0, x0
    mrs     x0, tpidrro_el0
    tbnz    x0, #0, vectors_park
    mov     sp, x0
    orr     x0, x0, #1
    msr     tpidrro_el0, x0
    mrs     x0, tpidr_el0
    sub     sp, sp, #{FRAME_SIZE}
    kprobes_frame_store_registers
    mrs     x0, sp_el0
    add     x0, x0, #{FRAME_SIZE}
    mrs     x1, elr_el1
    mrs     x2, spsr_el1
    kprobes_frame_store_state
    mov     x0, sp
    mrs     x1, esr_el1
    mrs     x2, far_el1
    bl      runtime_stack_overflow
vectors_park:
    wfi
    b       vectors_park
    .size   vectors_overflow, . - vectors_overflow

// The end of all code that calls with a trap frame's record in x29. A backtrace recognizes the frame by this range.
    .global exception_vectors_end
exception_vectors_end:
