//! Names of bpftrace's reference guide that this language lacks. A user who knows bpftrace learns that the name is
//! right, why it has no meaning here, and what the nearest replacement is.

use crate::error::Problem;

/// Names that are refused for the same reason.
struct Refused {
    /// The names, separated by spaces.
    names: &'static str,
    /// The reason, as a clause of a sentence.
    why: &'static str,
}

const fn refused(names: &'static str, why: &'static str) -> Refused {
    Refused { names, why }
}

const TYPES_OF_IMAGE: &str = "the types of the image are available: use args.NAME.FIELD, or *(u32 *)(arg0 + 8)";

/// Statements, and directives that may precede the clauses.
static KEYWORDS: [Refused; 6] = [
    refused("macro", "not within a clause: write macros before the probes"),
    refused("config", "not within a clause: write config = { … } before the probes"),
    refused("import", "only programs in files can import, by cargo xtask trace FILE on the host"),
    refused("#include #define", "a program consists of clauses, settings, declared maps and macros"),
    refused("struct union enum", TYPES_OF_IMAGE),
    refused("let", "a @map needs no declaration; `let` declares only a $variable"),
];

/// Builtin values and functions; several names are both.
static VALUES: [Refused; 24] = [
    refused("args", "print(args) prints them all; one is args.NAME, or arg0 to arg7 by register"),
    refused("locals", "print(locals) prints all that are there; one is locals.NAME"),
    refused("ctx", "use reg(\"x0\") to reg(\"x30\")"),
    refused("uaddr usym ustack dw_ustack uptr usermode write_user", "there is no user space; use kaddr, ksym, kstack"),
    refused("curtask pcomm leader_comm leader_tid ppid", "use tid and comm"),
    refused("cpid has_cpid", "the command of -c runs in the task `main`, as in /comm == \"main\"/"),
    refused("uid gid username", "there are no users"),
    refused("cgroup cgroupid cgroup_path", "there are no control groups"),
    refused("numaid", "there is one memory node; use cpu"),
    refused("jiffies", "use nsecs and elapsed, in nanoseconds"),
    refused("cat path", "a program reads no files"),
    refused("join", "use str(address) for one string"),
    refused("system", "use trace PROGRAM -c COMMAND to run a console command"),
    refused("signal signal_name signal_thread", "there are no signals"),
    refused("override", "a program cannot change the code that it probes"),
    refused("kfunc_allowed kfunc_exist", "use list-probes kprobe:GLOB to list functions"),
    refused("skboutput socket_cookie", "there are no packets and sockets of Linux; use args.NAME of a function"),
    refused("syscall_name strerror", "there are no system calls, and errors are values of Rust"),
    refused("config", "it is no value as a whole: name a setting, as in config.max_strlen"),
    refused("percpu_kaddr", "use kaddr(\"path\"), the address of a static variable"),
    refused("container_of kptr", "read memory as integers, as in *(u32 *)(arg0 + 8)"),
    refused("typeof typeinfo", "typeof(value) is a type, for casts, `let` and sizeof"),
    refused("is_err", "use `retval is Err`, or a comparison of the number"),
    refused("str_concat", "use printf, or a key of several parts"),
];

/// Types.
static TYPES: [Refused; 4] = [
    refused("struct union enum", TYPES_OF_IMAGE),
    refused("bool", "use an integer: `true` is 1, `false` is 0, and so is the result of a comparison"),
    refused("string", "a string gets its type from its value: leave the type out"),
    refused("void char short int long unsigned signed size_t", "use u8 to u64 and s8 to s64"),
];

/// Kinds of maps.
static MAPS: [Refused; 1] =
    [refused("lruhash percpulruhash", "a full map keeps the keys that it has: use hash or percpuhash")];

/// Kinds of probes.
static PROBES: [Refused; 4] = [
    refused("uprobe u uretprobe ur usdt U", "there is no user space"),
    refused("asyncwatchpoint aw", "there is no user space; watchpoint: watches memory of the kernel"),
    refused("iter it", "use the console command `tasks`"),
    refused("self test bench", "use BEGIN, END and interval:"),
];

/// The event of `hardware:` that cannot be counted.
static HARDWARE: [Refused; 1] = [refused(
    "hardware:ref-cycles",
    "no cycles of constant length are counted; use hardware:cpu-cycles, or profile:hz:N",
)];

/// The events of `software:` that cannot be counted, with those of Linux that replace them.
static SOFTWARE: [Refused; 5] = [
    refused("software:task-clock", "use software:cpu-clock:N, which samples all tasks, and comm"),
    refused("software:context-switches software:cs", "use tracepoint:sched:sched_switch"),
    refused("software:cpu-migrations", "use tracepoint:sched:sched_migrate_task"),
    refused(
        "software:page-faults software:faults software:minor-faults software:major-faults \
         software:alignment-faults software:emulation-faults",
        "the kernel has no user space and pages no memory in",
    ),
    refused("software:dummy software:bpf-output", "use BEGIN, which runs once"),
];

fn find(table: &'static [Refused], name: &str) -> Option<Problem> {
    table.iter().find_map(|&Refused { names, why }| {
        let name = names.split(' ').find(|other| *other == name)?;
        Some(Problem::Foreign { name, why })
    })
}

/// Returns the problem with `name` as the first word of a statement.
pub(crate) fn keyword(name: &str) -> Option<Problem> {
    find(&KEYWORDS, name)
}

/// Returns the problem with `name` as the first word of a type.
pub(crate) fn type_name(name: &str) -> Option<Problem> {
    find(&TYPES, name)
}

/// Returns the problem with `name` as the kind of a declared map.
pub(crate) fn map(name: &str) -> Option<Problem> {
    find(&MAPS, name)
}

/// Returns the problem with `name` as a value or a function.
pub(crate) fn value(name: &str) -> Option<Problem> {
    find(&VALUES, name).or_else(|| keyword(name))
}

/// Returns the problem with `name` where a probe is expected and no `:` follows. Names of one or two letters are
/// skipped: they are more likely functions than bpftrace's abbreviations.
pub(crate) fn probe_alone(name: &str) -> Option<Problem> {
    probe(name).filter(|_| name.len() > 2)
}

/// Returns the problem with `name` as the kind of a probe.
pub(crate) fn probe(name: &str) -> Option<Problem> {
    find(&PROBES, name).or_else(|| keyword(name))
}

/// Returns the problem with `event` after `hardware:`, if bpftrace has such an event.
pub(crate) fn hardware(event: &str) -> Option<Problem> {
    event_in(&HARDWARE, event)
}

/// Returns the problem with `event` after `software:`, if bpftrace has such an event.
pub(crate) fn software(event: &str) -> Option<Problem> {
    event_in(&SOFTWARE, event)
}

/// Returns the problem with the event whose name in `table` ends with `:` and `event`.
fn event_in(table: &'static [Refused], event: &str) -> Option<Problem> {
    table.iter().find_map(|&Refused { names, why }| {
        let name = names.split(' ').find(|name| name.split_once(':').is_some_and(|(_, other)| other == event))?;
        Some(Problem::Foreign { name, why })
    })
}

/// The problem with the mode `x` of a watchpoint.
pub(crate) const EXECUTION: Problem =
    Problem::Foreign { name: "x", why: "use insn:FUNC:OFF or kprobe:FUNC to report that an instruction is executed" };

/// The problem with `&` before a variable.
pub(crate) const ADDRESS: Problem = Problem::Foreign {
    name: "&",
    why: "variables have no address; use kaddr(\"path\") for a static variable of the kernel",
};

/// Returns the problem with a field after `sign`, `.` or `->`.
pub(crate) fn field(sign: &'static str) -> Problem {
    Problem::Foreign {
        name: sign,
        why: "args.NAME and retval have fields; read other memory as integers, as in *(u32 *)(arg0 + 8)",
    }
}
