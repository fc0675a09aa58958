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

/// Statements, and directives that may precede the clauses.
static KEYWORDS: [Refused; 4] = [
    refused("config", "sizes are options of the command, as in trace -k KEYS PROGRAM"),
    refused("macro import #include #define", "a program is clauses alone, of at most 4096 bytes"),
    refused(
        "struct union enum",
        "the types of the image are known: args.NAME.FIELD, and *(u32 *)(arg0 + 8) for the rest",
    ),
    refused("let", "a @map is known wherever it is named, and only a $variable is declared"),
];

/// Builtin values and functions; several names are both.
static VALUES: [Refused; 28] = [
    refused("args", "one is args.NAME, or arg0 to arg7 by its register; list-probes -v lists names"),
    refused("ctx", "registers are reg(\"x0\") to reg(\"x30\")"),
    refused("uaddr usym ustack dw_ustack uptr usermode write_user", "there is no user space; see kaddr, ksym, kstack"),
    refused("curtask pcomm leader_comm leader_tid ppid", "a task is known by tid and comm"),
    refused("cpid has_cpid", "the command of -c runs in the task `main`, as in /comm == \"main\"/"),
    refused("uid gid username", "there are no users"),
    refused("cgroup cgroupid cgroup_path", "there are no control groups"),
    refused("numaid", "there is one memory node; see cpu"),
    refused("jiffies", "nsecs and elapsed are nanoseconds"),
    refused("cat path", "a program reads no files"),
    refused("join", "str(address) is one string"),
    refused("system", "a command of the console runs by trace PROGRAM -c COMMAND"),
    refused("signal signal_name signal_thread", "there are no signals"),
    refused("override", "a program changes nothing of the code that it probes"),
    refused("kfunc_allowed kfunc_exist", "list-probes kprobe:GLOB lists functions"),
    refused("macaddr ntop pton", "addresses are read as integers, as in *(u32 *)arg0, and shown by %x"),
    refused("skboutput socket_cookie", "there are no sockets"),
    refused("syscall_name strerror", "there are no system calls, and errors are values of Rust"),
    refused("tseries", "a sum for each second is @[elapsed / 1000000000] = sum(value)"),
    refused("find", "has_key(@x, key) says whether a key is there, and @x[key] is 0 if it is not"),
    refused("bswap memcmp", "values have 64 bits and are shifted, and memory is compared as buf(a, n) == buf(b, n)"),
    refused("container_of kptr percpu_kaddr", "memory is read as integers, as in *(u32 *)(arg0 + 8)"),
    refused("sizeof offsetof typeof typeinfo", "no types are known but integers; a value has 64 bits"),
    refused("assert assert_str static_assert fail", "if (!value) { printf(\"…\\n\"); exit(); } says the same"),
    refused(
        "is_array is_err is_integer is_literal is_ptr is_str is_unsigned_integer",
        "without macros the type of a value is known where it is written",
    ),
    refused("getopt", "a value is written into the program"),
    refused("str_concat strcap default_str_length", "printf and keys of several parts put strings side by side"),
    refused("unwatch", "there are no watchpoints"),
];

/// Kinds of probes.
static PROBES: [Refused; 8] = [
    refused("fentry f kfunc", "the entry of a function is kprobe:GLOB"),
    refused("fexit fr kretfunc", "the return of a function is kretprobe:GLOB or return:GLOB"),
    refused(
        "tracepoint t rawtracepoint rt",
        "kprobe:GLOB probes any function, also the one that does what you ask about",
    ),
    refused("uprobe u uretprobe ur usdt U", "there is no user space"),
    refused(
        "profile p hardware h software s",
        "interval: runs periodically, in a task of its own; insn:FUNC:* sees each instruction",
    ),
    refused("watchpoint w asyncwatchpoint aw", "insn:FUNC:OFF probes the instruction that accesses the memory"),
    refused("iter it", "the console lists tasks, by the command `tasks`"),
    refused("self test bench", "there are BEGIN, END and interval:"),
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

/// The problem with positional parameters, `$1` and `$#`.
pub(crate) const POSITIONAL: Problem = Problem::Foreign { name: "$1", why: "a value is written into the program" };

/// Returns the problem with a field after `sign`, `.` or `->`.
pub(crate) fn field(sign: &'static str) -> Problem {
    Problem::Foreign {
        name: sign,
        why: "args.NAME and retval have fields; other memory is read as integers, as in *(u32 *)(arg0 + 8)",
    }
}
