//! The parameters of a program: the words that follow it. The value of `--NAME=VALUE` replaces `getopt("NAME", …)` in
//! the tree, and other words replace `$1`, `$2` and so on.

use alloc::string::String;
use core::fmt;

use super::token::{Cursor, Token};
use crate::error::{Error, Problem, Span};

/// The parameters of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parameters<'a> {
    /// The words that follow the program, without the `--` that separates them from it.
    pub words: &'a [String],
}

/// A problem of a program as a sentence without its full stop, which quotes the parameter that is the cause.
#[derive(Clone, Copy, Debug)]
pub struct Sentence<'a> {
    problem: Problem,
    words: &'a [String],
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |number: usize| self.words.get(number.wrapping_sub(1)).map(String::as_str);
        match self.problem {
            Problem::Parameter { number, wanted } if let Some(word) = quoted(number) => {
                write!(f, "parameter {number} of the program, `{word}`, has to be {wanted}")
            }
            Problem::UnknownParameter { number } if let Some(word) = quoted(number) => {
                write!(f, "parameter {number} of the program, `{word}`, has a name that no getopt in it has")
            }
            problem => problem.fmt(f),
        }
    }
}

impl<'a> Parameters<'a> {
    /// Returns the sentence for a problem of the program that these parameters follow.
    #[must_use]
    pub fn sentence(self, problem: Problem) -> Sentence<'a> {
        Sentence { problem, words: self.words }
    }

    /// Returns the last parameter with this name: its number from 1 on, and its value.
    pub(super) fn named(self, name: &str) -> Option<(usize, Option<&'a str>)> {
        let split = |(place, word): (usize, &'a String)| {
            let word = word.strip_prefix("--")?;
            let (known, value) = word.split_once('=').map_or((word, None), |(known, value)| (known, Some(value)));
            (known == name).then_some((place + 1, value))
        };
        self.words.iter().enumerate().rev().find_map(split)
    }

    /// Returns the parameters for `$1` and so on.
    pub(super) fn positional(self) -> impl Iterator<Item = &'a str> {
        self.words.iter().map(String::as_str).filter(|word| !word.starts_with("--"))
    }

    /// Refuses a parameter with a name that no `getopt` in `text` has. A `getopt` in a macro that is not called counts,
    /// too.
    pub(super) fn check(self, text: &str) -> Result<(), Error> {
        for (place, word) in self.words.iter().enumerate() {
            let Some(name) = word.strip_prefix("--") else { continue };
            let name = name.split_once('=').map_or(name, |(name, _)| name);
            if !has_getopt(text, name) {
                let end = Span { start: text.len(), end: text.len() };
                return Err(end.error(Problem::UnknownParameter { number: place + 1 }));
            }
        }
        Ok(())
    }
}

/// Returns whether `text` has a `getopt` with this name.
fn has_getopt(text: &str, name: &str) -> bool {
    const CALL: &str = "getopt";
    text.match_indices(CALL).any(|(at, _)| {
        let is_word = !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let mut cursor = Cursor { text, position: at + CALL.len() };
        is_word
            && matches!(cursor.token(), Ok((Token::Sign("("), _)))
            && matches!(cursor.token(), Ok((Token::Text(text), _)) if text == name)
    })
}
