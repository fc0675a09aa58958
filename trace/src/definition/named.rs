//! Arguments and results by their names, as Linux has them from BTF: `NAME`, `NAME->FIELD.FIELD`, `$retval->FIELD`.
//!
//! The parser does not resolve names, because the function is not known yet; [`events`](crate::events) does.

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;

use super::token::Token;
use super::{ParseError, Problem};

/// A value of the probed function, given by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name of the argument; `None` for the result of the function.
    pub argument: Option<String>,
    /// The number of characters of the argument, after `NAME=`, before the name.
    pub(crate) at: usize,
    /// The fields that follow, each with the number of characters before it.
    pub(crate) fields: Vec<(String, usize)>,
}

impl Named {
    /// Makes the value of an argument, without fields.
    pub(super) fn of(name: &str) -> Result<Self, OutOfMemory> {
        Ok(Self { argument: Some(fallible::copy(name)?), at: 0, fields: Vec::new() })
    }
}

/// Whether the first character of `text` can begin a name.
pub(super) fn begins(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Parses `token`, a name followed by fields, in an argument whose expression begins at the column `start`.
pub(super) fn parse(token: Token<'_>, start: usize) -> Result<Named, ParseError> {
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

/// Splits at the first `->` or `.`.
fn split(token: Token<'_>) -> Result<(Token<'_>, Option<Token<'_>>), ParseError> {
    let Some(at) = token.text.find(['.', '-']) else { return Ok((token, None)) };
    let (name, rest) = token.split_at(at);
    match (rest.text.starts_with("->"), rest.text.starts_with('.')) {
        (true, _) => Ok((name, Some(rest.skip(2)))),
        (_, true) => Ok((name, Some(rest.skip(1)))),
        _ => Err(rest.error(Problem::Hyphen)),
    }
}
