//! The builtins that are a word, of the hit or of the machine, a row for each.

use kprobes_vm::code::{Builtin, Type};

use crate::check::AGGREGATES;
use crate::distance::nearest;
use crate::error::Problem;

const NUMBER: Type = Type::Integer { signed: false };

/// A builtin.
pub(crate) struct Row {
    pub name: &'static str,
    pub value: BuiltinValue,
}

/// What the value of a builtin is.
#[derive(Clone, Copy)]
pub(crate) enum BuiltinValue {
    /// What an op loads.
    Loaded {
        of: Type,
        what: Builtin,
        /// Whether it has no meaning in a clause without a hit, such as `BEGIN`.
        needs_hit: bool,
    },
    /// The name of the task.
    Comm,
    /// The kind of the probes.
    ProbeKind,
    /// The result of the probed function.
    Result,
    /// The room for a string of unknown length.
    TextLength,
}

const fn row(name: &'static str, of: Type, what: Builtin, needs_hit: bool) -> Row {
    Row { name, value: BuiltinValue::Loaded { of, what, needs_hit } }
}

pub(crate) const ROWS: [Row; 14] = [
    row("func", Type::Symbol, Builtin::Function, true),
    row("caller", Type::Symbol, Builtin::Caller, true),
    row("probe", Type::Site, Builtin::Site, false),
    row("cpu", NUMBER, Builtin::Cpu, false),
    row("ncpus", NUMBER, Builtin::Cpus, false),
    row("rand", NUMBER, Builtin::Random, false),
    row("tid", NUMBER, Builtin::Task, false),
    row("pid", NUMBER, Builtin::Task, false),
    row("nsecs", NUMBER, Builtin::Nanoseconds, false),
    row("elapsed", NUMBER, Builtin::Elapsed, false),
    Row { name: "comm", value: BuiltinValue::Comm },
    Row { name: "probetype", value: BuiltinValue::ProbeKind },
    Row { name: "retval", value: BuiltinValue::Result },
    Row { name: "default_str_length", value: BuiltinValue::TextLength },
];

/// Returns whether this name may be written as a call without arguments, as bpftrace has it.
pub(crate) fn is_callable(name: &str) -> bool {
    ROWS.iter().any(|row| row.name == name)
}

/// The functions that have a value and take arguments, for suggestions. `check::call` says which there are.
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

/// The actions, which are calls without a value, for suggestions. `check::action` says which there are.
pub(crate) const ACTIONS: [&str; 14] = [
    "printf",
    "errorf",
    "warnf",
    "time",
    "print",
    "clear",
    "zero",
    "delete",
    "exit",
    "unwatch",
    "assert",
    "assert_str",
    "static_assert",
    "fail",
];

/// The other builtins that are a word.
const WORDS: [&str; 2] = ["kstack", "args"];

/// The words that begin a statement.
const KEYWORDS: [&str; 9] = ["if", "else", "unroll", "while", "for", "break", "continue", "let", "return"];

/// Returns all words of a clause: builtins, functions and keywords, each with what follows it, a `(` or nothing.
pub fn words() -> impl Iterator<Item = (&'static str, &'static str)> {
    values().chain(KEYWORDS).map(|name| (name, "")).chain(functions().map(|name| (name, "(")))
}

fn values() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name).chain(WORDS)
}

fn functions() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.into_iter().chain(ACTIONS).chain(AGGREGATES)
}

/// Returns the problem with `name`, which is no value: the nearest one, otherwise that it is unknown.
pub(crate) fn unknown_value(name: &str) -> Problem {
    nearest(name, values(), 3).map_or(Problem::Word, |meant| Problem::Meant { meant })
}

/// Returns the problem with `name`, which is no function: the nearest one, otherwise that it is unknown.
pub(crate) fn unknown_function(name: &str) -> Problem {
    nearest(name, functions(), 3).map_or(Problem::Function, |meant| Problem::Meant { meant })
}

/// Returns the names of the builtins that an op loads; with `numbers`, only of those that are a number in every clause.
/// For programs that are made at random.
#[doc(hidden)]
pub fn names(numbers: bool) -> impl Iterator<Item = &'static str> {
    ROWS.iter().filter_map(move |row| match row.value {
        BuiltinValue::Loaded { of, needs_hit, .. } => (!numbers || of == NUMBER && !needs_hit).then_some(row.name),
        _ => None,
    })
}
