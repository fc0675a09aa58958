// The switch from one task to another, and the first code of a new task.
//
// Operands of `global_asm!`: TASK_CONTEXT, the offset of the context in `Task`; CONTEXT_SP, the offset of the stack
// pointer in the context (`Context` in runtime/src/task/context.rs), below which x19–x30 lie.
//
// Interrupts (PSTATE.I) are masked from before the switch until after it, by the scheduler: an interrupt between the
// stores here would find registers of two tasks. PSTATE is not part of the context. A task that gave up its CPU in a
// call restores its masks there; a task that was preempted restores them by its exception return; a new task unmasks
// them itself (`task_main`).
//
// The lock of the CPU's queues is also held, from before the switch until the next task unlocks it (`finish_switch` in
// runtime/src/task/scheduler.rs). So another CPU that finds a task through that lock finds its registers saved. The
// context of the next task was saved under such a lock, too.

    .section .text.context, "ax"

// In: x0 = the current task, x1 = the next task (both `*const Task`), PSTATE.I masked.
// Out: returns in the next task, from the call with which that task switched, and TPIDR_EL1 = that task.
// Clobbers: what a call may. Stack: none.
    .balign 16
    .global context_switch
    .type   context_switch, %function
context_switch:
    add     x0, x0, #{TASK_CONTEXT}
    kprobes_preserved_store x0, 0
    stp     x29, x30, [x0, #80]
    mov     x9, sp
    str     x9, [x0, #{CONTEXT_SP}]
    add     x0, x1, #{TASK_CONTEXT}
    ldr     x9, [x0, #{CONTEXT_SP}]
    // Another CPU may have mapped the stack. Its stores to the tables are complete, but this CPU may have translated
    // the address before it knew of the task, and would fault on that (Arm ARM, D8.17).
    isb
    // Stack and identity change together: a probe between these two would be charged to the wrong task.
    mov     sp, x9
    msr     tpidr_el1, x1
    kprobes_preserved_load x0, 0
    ldp     x29, x30, [x0, #80]
    ret
    .size   context_switch, . - context_switch

// The entry of a new task: `context_switch` returns to it, with an empty stack.
// In: sp = the top of the task's stack, x29 = 0, PSTATE.I masked. Out: never.
// The frame record of zeros ends the chain (AAPCS64, section 6.4.6).
    .balign 16
    .global context_first_entry
    .type   context_first_entry, %function
context_first_entry:
    stp     xzr, xzr, [sp, #-16]!
    mov     x29, sp
    bl      task_main
    .size   context_first_entry, . - context_first_entry
