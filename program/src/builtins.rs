//! The tables of the builtins: words for values of the hit or of the machine, and calls.

use kprobes_symbols::distance::nearest;
use kprobes_vm::ir::{Builtin, Type};

use crate::error::Problem;

const NUMBER: Type = Type::Integer { signed: false };

/// A builtin that is a word.
pub(crate) struct BuiltinWord {
    pub name: &'static str,
    pub value: BuiltinValue,
}

/// The value of a builtin word.
#[derive(Clone, Copy)]
pub(crate) enum BuiltinValue {
    /// A value that an op loads.
    Loaded {
        of: Type,
        what: Builtin,
        /// Whether only clauses at hits have the value: `BEGIN` does not.
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

const fn word(name: &'static str, of: Type, what: Builtin, needs_hit: bool) -> BuiltinWord {
    BuiltinWord { name, value: BuiltinValue::Loaded { of, what, needs_hit } }
}

pub(crate) const BUILTIN_WORDS: [BuiltinWord; 14] = [
    word("func", Type::Symbol, Builtin::Function, true),
    word("caller", Type::Symbol, Builtin::Caller, true),
    word("probe", Type::Probe, Builtin::Probe, false),
    word("cpu", NUMBER, Builtin::Cpu, false),
    word("ncpus", NUMBER, Builtin::Cpus, false),
    word("rand", NUMBER, Builtin::Random, false),
    word("tid", NUMBER, Builtin::Task, false),
    word("pid", NUMBER, Builtin::Task, false),
    word("nsecs", NUMBER, Builtin::Nanoseconds, false),
    word("elapsed", NUMBER, Builtin::Elapsed, false),
    BuiltinWord { name: "comm", value: BuiltinValue::Comm },
    BuiltinWord { name: "probetype", value: BuiltinValue::ProbeKind },
    BuiltinWord { name: "retval", value: BuiltinValue::Result },
    BuiltinWord { name: "default_str_length", value: BuiltinValue::TextLength },
];

/// Returns whether this name may be written as a call without arguments, as in bpftrace.
pub(crate) fn is_callable(name: &str) -> bool {
    BUILTIN_WORDS.iter().any(|word| word.name == name)
}

/// A call: its role, its name, and the minimum and the maximum number of arguments.
pub(crate) struct Callable {
    pub role: Role,
    pub name: &'static str,
    pub least: usize,
    pub most: usize,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its value. `check::call` compiles the call, except for `getopt`, which the parser replaces.
    Value,
    /// Its effect. `check::action` compiles the call, which has no value.
    Action,
    /// Assignment to a map, which collects the argument. `check::action` compiles the call.
    Aggregate,
}

impl Callable {
    /// Refuses a wrong number of arguments.
    pub fn check(&self, arguments: usize) -> Result<(), Problem> {
        if (self.least..=self.most).contains(&arguments) { Ok(()) } else { Err(self.miscounted()) }
    }

    /// Returns the problem with another number of arguments.
    pub fn miscounted(&self) -> Problem {
        Problem::ArgumentCount { least: self.least, most: self.most }
    }
}

const fn value(name: &'static str, least: usize, most: usize) -> Callable {
    Callable { role: Role::Value, name, least, most }
}

const fn action(name: &'static str, least: usize, most: usize) -> Callable {
    Callable { role: Role::Action, name, least, most }
}

const fn aggregate(name: &'static str, least: usize, most: usize) -> Callable {
    Callable { role: Role::Aggregate, name, least, most }
}

/// The calls, except those of words: [`is_callable`] tells which words may be called without arguments, and
/// `check::call` has the arguments of `kstack` and `nsecs`.
pub(crate) static CALLABLES: [Callable; 53] = [
    value("str", 1, 2),
    value("kaddr", 1, 1),
    value("ksym", 1, 1),
    value("line", 1, 1),
    value("reg", 1, 1),
    value("len", 1, 1),
    value("strlen", 1, 1),
    value("strstr", 2, 2),
    value("strcontains", 2, 2),
    value("has_key", 2, 2),
    value("find", 3, 3),
    value("macaddr", 1, 1),
    value("ntop", 1, 2),
    value("pton", 1, 1),
    value("offsetof", 2, 2),
    value("memcmp", 3, 3),
    value("bswap", 1, 1),
    value("buf", 2, 2),
    value("strftime", 2, 2),
    value("strncmp", 3, 3),
    value("getopt", 1, 3),
    value("sizeof", 1, 1),
    value("strcap", 1, 1),
    value("is_integer", 1, 1),
    value("is_unsigned_integer", 1, 1),
    value("is_ptr", 1, 1),
    value("is_str", 1, 1),
    value("is_array", 1, 1),
    value("is_literal", 1, 1),
    value("delete", 1, 2),
    action("printf", 1, 32),
    action("errorf", 1, 32),
    action("warnf", 1, 32),
    action("time", 0, 1),
    action("print", 1, 3),
    action("clear", 1, 1),
    action("zero", 1, 1),
    action("delete", 1, 2),
    action("exit", 0, 1),
    action("unwatch", 1, 1),
    action("assert", 2, 2),
    action("assert_str", 1, 1),
    action("static_assert", 2, 2),
    action("fail", 1, 32),
    aggregate("count", 0, 0),
    aggregate("sum", 1, 1),
    aggregate("avg", 1, 1),
    aggregate("min", 1, 1),
    aggregate("max", 1, 1),
    aggregate("stats", 1, 1),
    aggregate("hist", 1, 2),
    aggregate("lhist", 4, 4),
    aggregate("tseries", 3, 4),
];

/// Returns the call with this role and name.
pub(crate) fn find(role: Role, name: &str) -> Option<&'static Callable> {
    CALLABLES.iter().find(|call| call.role == role && call.name == name)
}

/// Returns the problem with the call `name` where a value is expected. `None` if no call has this name.
pub(crate) fn not_a_value(name: &str) -> Option<Problem> {
    // `delete` is both: the value comes first.
    let problem = CALLABLES.iter().find(|call| call.name == name).map(|call| match call.role {
        Role::Aggregate => Problem::AggregateAlone,
        Role::Action => Problem::NotAValue,
        Role::Value => call.miscounted(),
    });
    problem.or_else(|| is_callable(name).then_some(Problem::ArgumentCount { least: 0, most: 0 }))
}

/// The builtin words that are not in [`BUILTIN_WORDS`], besides `arg0` to `arg7`.
const WORDS: [&str; 3] = ["kstack", "args", "locals"];

/// The keywords of statements.
const KEYWORDS: [&str; 9] = ["if", "else", "unroll", "while", "for", "break", "continue", "let", "return"];

/// Returns all words of a clause: builtins, functions and keywords, each with the text that follows it: a `(` or
/// nothing.
pub fn words() -> impl Iterator<Item = (&'static str, &'static str)> {
    values().chain(KEYWORDS).map(|name| (name, "")).chain(functions().map(|name| (name, "(")))
}

/// Returns whether a value, other than `arg0` to `arg7`, or a function has this name.
pub(crate) fn is_known(name: &str) -> bool {
    values().chain(functions()).any(|known| known == name)
}

fn values() -> impl Iterator<Item = &'static str> {
    BUILTIN_WORDS.iter().map(|word| word.name).chain(WORDS)
}

fn functions() -> impl Iterator<Item = &'static str> {
    CALLABLES.iter().map(|call| call.name)
}

/// Returns the names of the calls with this role. For random programs.
#[doc(hidden)]
pub fn calls(role: Role) -> impl Iterator<Item = &'static str> + Clone {
    CALLABLES.iter().filter(move |call| call.role == role).map(|call| call.name)
}

/// Returns the problem with `name`, which is no value: the missing parentheses of a function, otherwise the nearest
/// value, otherwise that the word is unknown.
pub(crate) fn unknown_value(name: &str) -> Problem {
    if functions().any(|function| function == name) {
        return Problem::Parentheses;
    }
    nearest(name, values(), 3).map_or(Problem::Word, |meant| Problem::Meant { meant })
}

/// Returns the problem with `name`, which is no function: the nearest function, otherwise that the function is unknown.
pub(crate) fn unknown_function(name: &str) -> Problem {
    nearest(name, functions(), 3).map_or(Problem::Function, |meant| Problem::Meant { meant })
}

/// Returns the names of the builtins that an op loads; with `numbers`, only of those that are a number in every clause.
/// For random programs.
#[doc(hidden)]
pub fn names(numbers: bool) -> impl Iterator<Item = &'static str> {
    BUILTIN_WORDS.iter().filter_map(move |word| match word.value {
        BuiltinValue::Loaded { of, needs_hit, .. } => (!numbers || of == NUMBER && !needs_hit).then_some(word.name),
        _ => None,
    })
}
