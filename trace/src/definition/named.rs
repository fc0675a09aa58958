//! Arguments and results by their names, as Linux has them of BTF: `NAME`, `NAME->FIELD.FIELD`, `$retval->FIELD`.
//!
//! What the names mean is not known before the function is: see [`events`](crate::events).

use alloc::string::String;
use alloc::vec::Vec;

use super::token::Token;
use super::{Fault, Problem};

/// A value of the probed function, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The argument of this name; what the function returns, without one.
    pub argument: Option<String>,
    /// How many characters of the argument, after `NAME=`, precede it.
    pub(crate) at: usize,
    /// The fields that lead on from there, each with how many characters precede it.
    pub(crate) fields: Vec<(String, usize)>,
}

/// Whether `text` begins as a name does.
pub(super) fn begins(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Reads `token`, a name with fields behind it, of an argument whose expression begins at the column `start`.
pub(super) fn parse(token: Token<'_>, start: usize) -> Result<Named, Fault> {
    let (name, mut rest) = split(token)?;
    let mut fields = Vec::new();
    while let Some(token) = rest {
        let (field, behind) = split(token)?;
        fallible::push(&mut fields, (fallible::copy(field.text)?, field.column.saturating_sub(start)))?;
        rest = behind;
    }
    let argument = (name.text != "$retval").then(|| fallible::copy(name.text)).transpose()?;
    Ok(Named { argument, at: token.column.saturating_sub(start), fields })
}

/// What precedes the first `->` or `.`, and what follows it.
fn split(token: Token<'_>) -> Result<(Token<'_>, Option<Token<'_>>), Fault> {
    let Some(at) = token.text.find(['.', '-']) else { return Ok((token, None)) };
    let (name, rest) = token.split_at(at);
    match (rest.text.starts_with("->"), rest.text.starts_with('.')) {
        (true, _) => Ok((name, Some(rest.skip(2)))),
        (_, true) => Ok((name, Some(rest.skip(1)))),
        _ => Err(rest.fault(Problem::Hyphen)),
    }
}
