//! Parses the text of a program into a tree, and writes the tree as text.
//!
//! ```text
//! program    = [config = { name = value; … }] part…
//! part       = clause  |  let @name = hash(number);  |  macro name($name | @name | name, …) block
//! clause     = probe [, probe]… [/ value /] { statement… }
//! statement  = target = value;  target += value;  value;  return;  let $name [: type] [= value];
//!            | if (value) block [else block | else if …]  |  unroll (number) block
//!            | while (value) block  |  for ($name : value..value) block  |  for ($name : @name) block  |  break;  continue;
//! block      = { statement… }
//! target     = $name | @name | @name[value, …]
//! ```
//!
//! Values are C expressions, with C's operators and their precedence. The tree that [`parse`] returns, written by
//! `Display`, parses back to an equal tree.

mod expansion;
mod expression;
mod macros;
mod parameter_values;
mod parameters;
mod parser;
mod period;
mod probe;
mod program;
mod sampling;
mod statement;
mod task;
mod text;
mod token;
mod tree;

use alloc::vec::Vec;

pub use parameters::{Parameters, Sentence};
pub use probe::{After, KINDS, can_watch};
pub use sampling::{HardwareEvent, Period};
pub use tree::{
    Clause, Expression, ExpressionForm, LoopRange, MapDeclaration, MapReference, Operator, Probe, Program, Setting,
    SettingValue, Spanned, Statement, StatementForm, Target, TypeForm, TypeName, Unary, Unit,
};

use crate::error::{Error, Problem, Span};

/// The maximum length of the text of a program, in bytes.
pub const PROGRAM_MAX: usize = 4096;

/// The maximum nesting depth of values and blocks together. Parsing and checking take less than 25 KiB of stack: a
/// program that needs more is also refused as too deep.
pub const DEPTH_MAX: usize = 32;

/// Parses the text of a program.
///
/// # Errors
///
/// Returns the first problem, with its place.
pub fn parse(text: &str) -> Result<Program, Error> {
    parse_with(text, Parameters::default())
}

/// Parses the text of a program with these parameters.
///
/// # Errors
///
/// Returns the first problem, with its place.
pub fn parse_with(text: &str, parameters: Parameters<'_>) -> Result<Program, Error> {
    if text.len() > PROGRAM_MAX {
        return Err(Span { start: 0, end: 0 }.error(Problem::LongProgram { most: PROGRAM_MAX }));
    }
    program::parse(text, parameters)
}

/// Parses a list of probes, separated by commas, without a program. For commands that list probes.
///
/// # Errors
///
/// Returns the first problem, with its place; text after the probes is a problem, too.
pub fn parse_probes(text: &str) -> Result<Vec<Spanned<Probe>>, Error> {
    probe::list_alone(text)
}

#[cfg(test)]
mod tests;
