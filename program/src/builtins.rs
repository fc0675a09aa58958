//! The builtins that are a word, of the hit or of the machine, a row for each. Those with rules of their own are in
//! `check::expression`.

use kprobes_vm::code::{Builtin, Type};

const NUMBER: Type = Type::Integer { signed: false };

/// A builtin.
pub(crate) struct Row {
    pub name: &'static str,
    pub of: Type,
    pub what: Builtin,
    /// Whether it has no meaning in a clause without a hit, such as `BEGIN`.
    pub needs_hit: bool,
}

pub(crate) const ROWS: [Row; 10] = [
    Row { name: "func", of: Type::Symbol, what: Builtin::Function, needs_hit: true },
    Row { name: "caller", of: Type::Symbol, what: Builtin::Caller, needs_hit: true },
    Row { name: "probe", of: Type::Site, what: Builtin::Site, needs_hit: false },
    Row { name: "cpu", of: NUMBER, what: Builtin::Cpu, needs_hit: false },
    Row { name: "ncpus", of: NUMBER, what: Builtin::Cpus, needs_hit: false },
    Row { name: "rand", of: NUMBER, what: Builtin::Random, needs_hit: false },
    Row { name: "tid", of: NUMBER, what: Builtin::Task, needs_hit: false },
    Row { name: "pid", of: NUMBER, what: Builtin::Task, needs_hit: false },
    Row { name: "nsecs", of: NUMBER, what: Builtin::Nanoseconds, needs_hit: false },
    Row { name: "elapsed", of: NUMBER, what: Builtin::Elapsed, needs_hit: false },
];

/// Returns whether this name may be written as a call without arguments, as bpftrace has it.
pub(crate) fn is_callable(name: &str) -> bool {
    ROWS.iter().any(|row| row.name == name) || ["comm", "probetype", "retval", "default_str_length"].contains(&name)
}

/// The functions that have a value and take arguments.
pub(crate) const FUNCTIONS: [&str; 30] = [
    "str",
    "kaddr",
    "ksym",
    "line",
    "reg",
    "len",
    "strlen",
    "strstr",
    "strcontains",
    "has_key",
    "find",
    "macaddr",
    "ntop",
    "pton",
    "offsetof",
    "memcmp",
    "bswap",
    "buf",
    "strftime",
    "strncmp",
    "getopt",
    "sizeof",
    "strcap",
    "is_integer",
    "is_unsigned_integer",
    "is_ptr",
    "is_str",
    "is_array",
    "is_literal",
    "delete",
];

/// Returns the names of these builtins; with `numbers`, only of those that are a number in every clause. For programs
/// that are made at random.
#[doc(hidden)]
pub fn names(numbers: bool) -> impl Iterator<Item = &'static str> {
    ROWS.iter().filter(move |row| !numbers || row.of == NUMBER && !row.needs_hit).map(|row| row.name)
}
