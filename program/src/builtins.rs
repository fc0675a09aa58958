//! The builtins: words, of the hit or of the machine, and calls. A row for each.

use kprobes_vm::code::{Builtin, Type};

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

/// A call: a name, and the numbers of arguments that it may have.
pub(crate) struct Call {
    pub name: &'static str,
    pub least: usize,
    pub most: usize,
}

impl Call {
    /// Refuses a wrong number of arguments.
    pub fn check(&self, arguments: usize) -> Result<(), Problem> {
        if (self.least..=self.most).contains(&arguments) { Ok(()) } else { Err(self.miscounted()) }
    }

    /// The problem with another number of arguments.
    pub fn miscounted(&self) -> Problem {
        Problem::ArgumentCount { least: self.least, most: self.most }
    }
}

const fn call(name: &'static str, least: usize, most: usize) -> Call {
    Call { name, least, most }
}

/// The functions that have a value and take arguments, except those of [`ROWS`] and [`WORDS`]. `check::call` compiles
/// them; the parser replaces `getopt`.
pub(crate) static FUNCTIONS: [Call; 30] = [
    call("str", 1, 2),
    call("kaddr", 1, 1),
    call("ksym", 1, 1),
    call("line", 1, 1),
    call("reg", 1, 1),
    call("len", 1, 1),
    call("strlen", 1, 1),
    call("strstr", 2, 2),
    call("strcontains", 2, 2),
    call("has_key", 2, 2),
    call("find", 3, 3),
    call("macaddr", 1, 1),
    call("ntop", 1, 2),
    call("pton", 1, 1),
    call("offsetof", 2, 2),
    call("memcmp", 3, 3),
    call("bswap", 1, 1),
    call("buf", 2, 2),
    call("strftime", 2, 2),
    call("strncmp", 3, 3),
    call("getopt", 1, 3),
    call("sizeof", 1, 1),
    call("strcap", 1, 1),
    call("is_integer", 1, 1),
    call("is_unsigned_integer", 1, 1),
    call("is_ptr", 1, 1),
    call("is_str", 1, 1),
    call("is_array", 1, 1),
    call("is_literal", 1, 1),
    call("delete", 2, 2),
];

/// The actions, which are calls without a value. `check::action` compiles them.
pub(crate) static ACTIONS: [Call; 14] = [
    call("printf", 1, 32),
    call("errorf", 1, 32),
    call("warnf", 1, 32),
    call("time", 0, 1),
    call("print", 1, 3),
    call("clear", 1, 1),
    call("zero", 1, 1),
    call("delete", 1, 2),
    call("exit", 0, 1),
    call("unwatch", 1, 1),
    call("assert", 2, 2),
    call("assert_str", 1, 1),
    call("static_assert", 2, 2),
    call("fail", 1, 32),
];

/// The aggregations, which are assigned to a map. `check::action` compiles them.
pub(crate) static AGGREGATES: [Call; 9] = [
    call("count", 0, 0),
    call("sum", 1, 1),
    call("avg", 1, 1),
    call("min", 1, 1),
    call("max", 1, 1),
    call("stats", 1, 1),
    call("hist", 1, 2),
    call("lhist", 4, 4),
    call("tseries", 3, 4),
];

/// Returns the call with this name.
pub(crate) fn find(calls: &'static [Call], name: &str) -> Option<&'static Call> {
    calls.iter().find(|call| call.name == name)
}

/// Returns the problem with a call that has no value with its arguments. `None` if no call has this name.
pub(crate) fn not_a_value(name: &str) -> Option<Problem> {
    match (find(&AGGREGATES, name), find(&ACTIONS, name), find(&FUNCTIONS, name)) {
        (Some(_), ..) => Some(Problem::AggregateAlone),
        (_, Some(_), _) => Some(Problem::NotAValue),
        (.., Some(function)) => Some(function.miscounted()),
        (None, None, None) => is_callable(name).then_some(Problem::ArgumentCount { least: 0, most: 0 }),
    }
}

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
    FUNCTIONS.iter().chain(&ACTIONS).chain(&AGGREGATES).map(|call| call.name)
}

/// Returns the problem with `name`, which is no value: it is a function, or the nearest value, otherwise that it is
/// unknown.
pub(crate) fn unknown_value(name: &str) -> Problem {
    if functions().any(|function| function == name) {
        return Problem::Parentheses;
    }
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
