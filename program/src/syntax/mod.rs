//! The text of a program, read into a tree; and the tree, written as text.
//!
//! ```text
//! program    = clause…
//! clause     = probe [, probe]… [/ value /] { statement… }
//! statement  = target = value;  target += value;  value;  return;  let $name [: type] [= value];
//!            | if (value) block [else block | else if …]  |  unroll (number) block
//!            | while (value) block  |  for ($name : value..value) block  |  for ($name : @name) block  |  break;  continue;
//! block      = { statement… }
//! target     = $name | @name | @name[value, …]
//! ```
//!
//! Values are those of C, with its operators and how strongly they bind. What [`parse`] returns, written by `Display`, reads
//! back as the same tree.

mod expression;
mod matching;
mod parser;
mod probe;
mod text;
mod token;
mod tree;

use alloc::vec::Vec;

pub use matching::{Glob, matches, numbered, plain_path, plain_pieces};
pub use tree::{
    Clause, Expression, ExpressionForm, MapReference, Operator, Probe, Program, Range, Spanned, Statement,
    StatementForm, Target, TypeName, Unary, Unit,
};

use crate::error::{Error, Problem, Span};

/// The longest text of a program, in bytes.
pub const PROGRAM_MAX: usize = 4096;

/// How deep values and blocks may be nested, together. It bounds the stack that reading and checking take: less than 24 KiB.
pub const DEPTH_MAX: usize = 16;

/// Reads the text of a program.
///
/// # Errors
///
/// What is wrong, and where.
pub fn parse(text: &str) -> Result<Program, Error> {
    if text.len() > PROGRAM_MAX {
        return Err(Span { start: 0, end: 0 }.error(Problem::LongProgram { most: PROGRAM_MAX }));
    }
    parser::program(text)
}

/// Reads probes alone, separated by commas, as a list of what there is takes them.
///
/// # Errors
///
/// What is wrong, and where; also if something follows them.
pub fn parse_probes(text: &str) -> Result<Vec<Spanned<Probe>>, Error> {
    parser::probes_alone(text)
}

#[cfg(any(test, feature = "generate"))]
pub mod generate;
#[cfg(test)]
mod tests;
