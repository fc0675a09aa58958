//! Fetch arguments: what of the probed code an event records.
//!
//! An argument is `[NAME=]SOURCE[:TYPE]`. The source says how a 64-bit value is had from the registers; the
//! type says how many of its bits count and how they are printed.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::token::Token;
use super::{Error, Problem, is_identifier};

/// The largest number of arguments of an event: what a record of the rings has room for.
pub const MAX_ARGUMENTS: usize = 8;

/// The longest name of an argument, in characters.
pub const ARGUMENT_NAME_MAX: usize = 32;

/// The fields that every event has, in Linux.
const RESERVED: [&str; 8] = [
    "common_type",
    "common_flags",
    "common_preempt_count",
    "common_pid",
    "common_tgid",
    "__probe_ip",
    "__probe_ret_ip",
    "__probe_func",
];

/// The registers that hold arguments (AAPCS64, section 6.8.2, stage C.9).
const ARGUMENT_REGISTERS: u8 = 8;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// x0 to x30.
    Register(u8),
    /// The stack pointer.
    StackPointer,
    /// The address of the probed instruction; in a return probe, the address that is returned to.
    ProgramCounter,
    /// The processor state, in the layout of SPSR_EL1.
    ProcessorState,
}

/// How the bits of a value are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `u8` to `u64`, printed in decimal.
    Unsigned,
    /// `s8` to `s64`, printed in decimal with its sign.
    Signed,
    /// `x8` to `x64`, printed in hexadecimal.
    Hexadecimal,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    /// How the bits are read.
    pub format: Format,
    /// The number of low bits that count: 8, 16, 32 or 64.
    pub bits: u32,
}

impl Type {
    /// What an argument without a type is.
    pub const DEFAULT: Self = Self { format: Format::Hexadecimal, bits: 64 };

    fn parse(text: &str) -> Option<Self> {
        let format = match text.chars().next()? {
            'u' => Format::Unsigned,
            's' => Format::Signed,
            'x' => Format::Hexadecimal,
            _ => return None,
        };
        let bits = match &text[1..] {
            "8" => 8,
            "16" => 16,
            "32" => 32,
            "64" => 64,
            _ => return None,
        };
        Some(Self { format, bits })
    }

    /// Writes `value` as this type has it.
    pub fn write(self, value: u64, out: &mut dyn fmt::Write) -> fmt::Result {
        let unused = 64 - self.bits;
        let unsigned = value << unused >> unused;
        match self.format {
            Format::Unsigned => write!(out, "{unsigned}"),
            Format::Signed => write!(out, "{}", ((value << unused) as i64) >> unused),
            Format::Hexadecimal => write!(out, "{unsigned:#x}"),
        }
    }
}

/// One argument of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name before the value in the trace.
    pub name: String,
    /// The source and type as they were typed.
    pub text: String,
    /// Where the value comes from.
    pub source: Source,
    /// How it is printed.
    pub kind: Type,
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.text)
    }
}

/// What of a probe decides which variables it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A function is called.
    Entry,
    /// An instruction further on, or at a bare address, is executed.
    Inside,
    /// A function has returned.
    Return,
}

/// The arguments that an event records whose definition names none.
pub(crate) fn default_arguments(moment: Moment) -> Vec<Argument> {
    let register = |name: &str, text: &str, number| Argument {
        name: name.to_string(),
        text: text.to_string(),
        source: Source::Register(number),
        kind: Type::DEFAULT,
    };
    match moment {
        Moment::Return => [register("ret", "$retval", 0)].into(),
        Moment::Entry | Moment::Inside => {
            (0..4).map(|number| register(&format!("x{number}"), &format!("%x{number}"), number)).collect()
        }
    }
}

/// Reads the argument `token`, which follows `others`.
pub(crate) fn parse(token: Token<'_>, moment: Moment, others: &[Argument]) -> Result<Argument, Error> {
    if others.len() == MAX_ARGUMENTS {
        return Err(token.error(Problem::TooManyArguments));
    }
    let (name, body) = match token.split_once('=') {
        Some((name, body)) => {
            check_name(name)?;
            (name.text.to_string(), body)
        }
        None => (format!("arg{}", others.len() + 1), token),
    };
    if others.iter().any(|other| other.name == name) {
        return Err(token.error(Problem::UsedArgumentName));
    }
    if body.text.is_empty() {
        return Err(body.error(Problem::NoArgument));
    }
    let (source, kind) = match body.split_once(':') {
        Some((source, kind)) => (source, Type::parse(kind.text).ok_or_else(|| kind.error(Problem::Type))?),
        None => (body, Type::DEFAULT),
    };
    Ok(Argument { name, text: body.text.to_string(), source: parse_source(source, moment)?, kind })
}

fn check_name(name: Token<'_>) -> Result<(), Error> {
    let problem = if name.text.is_empty() {
        Problem::NoArgumentName
    } else if name.text.chars().count() > ARGUMENT_NAME_MAX {
        Problem::ArgumentNameTooLong
    } else if !is_identifier(name.text) {
        Problem::ArgumentName
    } else if RESERVED.contains(&name.text) {
        Problem::ReservedArgumentName
    } else {
        return Ok(());
    };
    Err(name.error(problem))
}

fn parse_source(token: Token<'_>, moment: Moment) -> Result<Source, Error> {
    let source = if let Some(register) = token.text.strip_prefix('%') {
        parse_register(register).ok_or(Problem::Register)
    } else if let Some(variable) = token.text.strip_prefix('$') {
        parse_variable(variable, moment)
    } else {
        Err(Problem::Argument)
    };
    source.map_err(|problem| token.error(problem))
}

fn parse_register(name: &str) -> Option<Source> {
    match name {
        "sp" => Some(Source::StackPointer),
        "pc" => Some(Source::ProgramCounter),
        "pstate" => Some(Source::ProcessorState),
        _ => {
            let number: u8 = plain_number(name.strip_prefix('x')?)?;
            (number <= 30).then_some(Source::Register(number))
        }
    }
}

fn parse_variable(name: &str, moment: Moment) -> Result<Source, Problem> {
    if name == "retval" {
        return match moment {
            Moment::Return => Ok(Source::Register(0)),
            Moment::Entry | Moment::Inside => Err(Problem::ReturnValueOnProbe),
        };
    }
    let number = name.strip_prefix("arg").ok_or(Problem::Variable)?;
    let number: u8 = plain_number(number).ok_or(Problem::ArgumentNumber)?;
    if number == 0 || number > ARGUMENT_REGISTERS {
        return Err(Problem::ArgumentNumber);
    }
    match moment {
        Moment::Entry => Ok(Source::Register(number - 1)),
        Moment::Inside | Moment::Return => Err(Problem::ArgumentAfterEntry),
    }
}

/// A number in decimal digits without a sign and without leading zeros.
fn plain_number(text: &str) -> Option<u8> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok())?
}
