//! The static events of this kernel. They have the names, the fields and the texts of Linux's events
//! (include/trace/events), so programs that read Linux's events read these.
//!
//! The PID of a task is its number. Every task has the default priority of Linux, because tasks have no priorities
//! here. A sector has 512 bytes. The minor number of a disk is its index among the disks, in the order of the device
//! tree.

use aarch64_kprobes::event;
use aarch64_kprobes::event::Text;

/// The priority of every task: Linux's default.
pub(crate) const PRIORITY: i32 = 120;

/// Linux's error number for a device that has failed.
pub(crate) const EIO: i32 = -5;

/// Returns the `dev` of the disk with the number `number`. The major number is the one that a virtio disk has on many
/// Linux systems.
pub(crate) const fn disk(number: u32) -> u32 {
    const MAJOR: u32 = 254;
    MAJOR << 20 | number
}

/// The values of `prev_state` in [`SchedSwitch`], as in Linux.
pub(crate) mod state {
    /// The task can run, and has given up its CPU in a call.
    pub(crate) const READY: i64 = 0;
    /// The task waits or sleeps.
    pub(crate) const WAITING: i64 = 0x01;
    /// The task has exited.
    pub(crate) const EXITED: i64 = 0x10;
    /// An interrupt has preempted the task.
    pub(crate) const PREEMPTED: i64 = 0x100;
}

event! {
    /// A CPU switches from one task to another.
    pub struct SchedSwitch = sched:sched_switch {
        prev_comm: [u8; 16],
        prev_pid: i32 = "pid_t",
        prev_prio: i32,
        prev_state: i64,
        next_comm: [u8; 16],
        next_pid: i32 = "pid_t",
        next_prio: i32,
    }
    print concat!(
        r#""prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d next_prio=%d", "#,
        "REC->prev_comm, REC->prev_pid, REC->prev_prio, ",
        "(REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | ",
        "0x00000040) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | ",
        "0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1), \"|\", { 0x00000001, \"S\" }, ",
        "{ 0x00000002, \"D\" }, { 0x00000004, \"T\" }, { 0x00000008, \"t\" }, { 0x00000010, \"X\" }, { 0x00000020, \"Z\" }, ",
        "{ 0x00000040, \"P\" }, { 0x00000080, \"I\" }) : \"R\", REC->prev_state & (((0x00000000 | 0x00000001 | 0x00000002 | ",
        "0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) ? \"+\" : \"\", ",
        "REC->next_comm, REC->next_pid, REC->next_prio"
    )
}

/// Defines the events of tasks that are woken, which have the same fields.
macro_rules! wakeups {
    ($($(#[$comment:meta])* $name:ident = $event:ident;)*) => {
        $(
            event! {
                $(#[$comment])*
                pub struct $name = sched:$event {
                    comm: [u8; 16],
                    pid: i32 = "pid_t",
                    prio: i32,
                    target_cpu: i32,
                }
                print r#""comm=%s pid=%d prio=%d target_cpu=%03d", REC->comm, REC->pid, REC->prio, REC->target_cpu"#
            }
        )*
    };
}

wakeups! {
    /// A task that waits is about to be woken.
    SchedWaking = sched_waking;
    /// A task that waited can run.
    SchedWakeup = sched_wakeup;
    /// A new task can run.
    SchedWakeupNew = sched_wakeup_new;
}

event! {
    /// A CPU takes a task from another.
    pub struct SchedMigrateTask = sched:sched_migrate_task {
        comm: [u8; 16],
        pid: i32 = "pid_t",
        prio: i32,
        orig_cpu: i32,
        dest_cpu: i32,
    }
    print r#""comm=%s pid=%d prio=%d orig_cpu=%d dest_cpu=%d", REC->comm, REC->pid, REC->prio, REC->orig_cpu, REC->dest_cpu"#
}

event! {
    /// A task spawns another one.
    pub struct SchedProcessFork = sched:sched_process_fork {
        parent_comm: [u8; 16],
        parent_pid: i32 = "pid_t",
        child_comm: [u8; 16],
        child_pid: i32 = "pid_t",
    }
    print concat!(
        r#""comm=%s pid=%d child_comm=%s child_pid=%d", REC->parent_comm, REC->parent_pid, "#,
        "REC->child_comm, REC->child_pid"
    )
}

event! {
    /// A task ends.
    pub struct SchedProcessExit = sched:sched_process_exit {
        comm: [u8; 16],
        pid: i32 = "pid_t",
        prio: i32,
    }
    print r#""comm=%s pid=%d prio=%d", REC->comm, REC->pid, REC->prio"#
}

event! {
    /// The handler of a device's interrupt begins.
    pub struct IrqHandlerEntry<'a> = irq:irq_handler_entry {
        irq: i32,
        name: Text<'a>,
    }
    print r#""irq=%d name=%s", REC->irq, __get_str(name)"#
}

event! {
    /// The handler of a device's interrupt ends.
    pub struct IrqHandlerExit = irq:irq_handler_exit {
        irq: i32,
        ret: i32,
    }
    print r#""irq=%d ret=%s", REC->irq, REC->ret ? "handled" : "unhandled""#
}

event! {
    /// A disk gets a request, or the next part of one.
    pub struct BlockRqIssue<'a> = block:block_rq_issue {
        dev: u32 = "dev_t",
        sector: u64 = "sector_t",
        nr_sector: u32,
        bytes: u32,
        rwbs: [u8; 8],
        comm: [u8; 16],
        cmd: Text<'a>,
    }
    print concat!(
        r#""%d,%d %s %u (%s) %llu + %u [%s]", ((unsigned int) ((REC->dev) >> 20)), "#,
        "((unsigned int) ((REC->dev) & ((1U << 20) - 1))), REC->rwbs, REC->bytes, __get_str(cmd), ",
        "(unsigned long long)REC->sector, REC->nr_sector, REC->comm"
    )
}

event! {
    /// A disk has finished a request, or a part of one.
    pub struct BlockRqComplete<'a> = block:block_rq_complete {
        dev: u32 = "dev_t",
        sector: u64 = "sector_t",
        nr_sector: u32,
        error: i32,
        rwbs: [u8; 8],
        cmd: Text<'a>,
    }
    print concat!(
        r#""%d,%d %s (%s) %llu + %u [%d]", ((unsigned int) ((REC->dev) >> 20)), "#,
        "((unsigned int) ((REC->dev) & ((1U << 20) - 1))), REC->rwbs, __get_str(cmd), ",
        "(unsigned long long)REC->sector, REC->nr_sector, REC->error"
    )
}

event! {
    /// A network card was given a packet to send.
    pub struct NetDevXmit<'a> = net:net_dev_xmit {
        skbaddr: *const u8 = "void *",
        len: u32,
        rc: i32,
        name: Text<'a>,
    }
    print r#""dev=%s skbaddr=%p len=%u rc=%d", __get_str(name), REC->skbaddr, REC->len, REC->rc"#
}

event! {
    /// A packet has come from a network card.
    pub struct NetifReceiveSkb<'a> = net:netif_receive_skb {
        skbaddr: *const u8 = "void *",
        len: u32,
        name: Text<'a>,
    }
    print r#""dev=%s skbaddr=%p len=%u", __get_str(name), REC->skbaddr, REC->len"#
}

event! {
    /// The heap has allocated memory.
    pub struct Kmalloc = kmem:kmalloc {
        call_site: u64 = "unsigned long",
        ptr: *const u8,
        bytes_req: usize,
        bytes_alloc: usize,
    }
    print r#""call_site=%pS ptr=%p bytes_req=%zu bytes_alloc=%zu", (void *)REC->call_site, REC->ptr, REC->bytes_req, REC->bytes_alloc"#
}

event! {
    /// The heap is about to free memory.
    pub struct Kfree = kmem:kfree {
        call_site: u64 = "unsigned long",
        ptr: *const u8,
    }
    print r#""call_site=%pS ptr=%p", (void *)REC->call_site, REC->ptr"#
}

event! {
    /// A deadline has come, and its function is about to be called.
    pub struct HrtimerExpireEntry = timer:hrtimer_expire_entry {
        hrtimer: *const u8 = "void *",
        now: i64 = "s64",
        function: *const u8 = "void *",
    }
    print r#""hrtimer=%p function=%ps now=%llu", REC->hrtimer, REC->function, (unsigned long long) REC->now"#
}

event! {
    /// The function of a deadline has returned.
    pub struct HrtimerExpireExit = timer:hrtimer_expire_exit {
        hrtimer: *const u8 = "void *",
    }
    print r#""hrtimer=%p", REC->hrtimer"#
}
