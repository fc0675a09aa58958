// The vectors of a kernel that sends its synchronous exceptions to the engine by `kprobes_vector`. Exceptions that the
// engine hands back go to the runtime's vectors, as all other exceptions do.

    .text
    .balign 2048
    .global vector_table
    .type   vector_table, %function
vector_table:
    .set    vector_number, 0
    .rept   16
    .balign 128
.if vector_number == 4
    b       kprobes_vector
.else
    b       exception_vectors + 128 * vector_number
.endif
    .set    vector_number, vector_number + 1
    .endr
    .size   vector_table, . - vector_table

    .global kprobes_host_vector
    .type   kprobes_host_vector, %function
kprobes_host_vector:
    b       exception_vectors + 128 * 4
    .size   kprobes_host_vector, . - kprobes_host_vector
