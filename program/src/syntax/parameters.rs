//! The words that follow a program: `--NAME=VALUE`, whose value stands where the program has `getopt("NAME", …)`, and
//! others, which stand for `$1`, `$2` and so on. They are in the tree as if they had been written there.

use alloc::string::String;
use core::cell::Cell;

use super::parser::Parser;
use super::token::{self, TEXT_MAX, Token};
use super::tree::{Expression, ExpressionForm, Unary};
use crate::error::{Error, Problem, Span};

/// The words that follow a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parameters<'a> {
    /// The words, without the `--` before them.
    pub words: &'a [String],
}

/// The words that follow a program while it is parsed.
#[derive(Default)]
pub(super) struct Given<'a> {
    words: &'a [String],
    /// A bit for each of the first 64 words that the program has named.
    named: Cell<u64>,
}

/// What `getopt` returns without a word.
enum Otherwise {
    Flag(bool),
    Number { magnitude: u64, is_negative: bool },
    Text(String),
}

impl<'a> Given<'a> {
    pub fn new(Parameters { words }: Parameters<'a>) -> Self {
        Self { words, named: Cell::new(0) }
    }

    /// Returns the last word with this name: its number from 1 on, and its value. Notes all words with the name.
    fn named(&self, name: &str) -> Option<(usize, Option<&'a str>)> {
        let mut found = None;
        for (place, word) in self.words.iter().enumerate() {
            let Some(word) = word.strip_prefix("--") else { continue };
            let (known, value) = word.split_once('=').map_or((word, None), |(known, value)| (known, Some(value)));
            if known == name {
                self.named.set(self.named.get() | 1_u64.checked_shl(place as u32).unwrap_or(0));
                found = Some((place + 1, value));
            }
        }
        found
    }

    /// Returns the words for `$1` and so on.
    fn positional(&self) -> impl Iterator<Item = &'a str> {
        self.words.iter().map(String::as_str).filter(|word| !word.starts_with("--"))
    }

    /// Refuses a word with a name that the program has nowhere.
    pub fn check(&self) -> Result<(), Error> {
        let is_named = |place: usize| self.named.get().checked_shr(place as u32).is_none_or(|named| named & 1 != 0);
        match self.words.iter().enumerate().position(|(place, word)| word.starts_with("--") && !is_named(place)) {
            Some(place) => Err(Span::default().error(Problem::UnknownParameter { number: place + 1 })),
            None => Ok(()),
        }
    }
}

impl Parser<'_> {
    /// Parses the rest of `getopt("name", value, "description")` after its parenthesis, where the last two may be left
    /// out. Returns the value of the parameter.
    #[inline(never)]
    pub fn parameter(&mut self, start: Span) -> Result<Expression, Error> {
        let name = self.literal_text()?;
        let otherwise = if self.accept(",")? { self.otherwise()? } else { Otherwise::Flag(false) };
        if self.accept(",")? {
            self.literal_text()?;
        }
        self.expect(")")?;
        let given = self.given.named(&name);
        let wrong = |wanted| {
            let number = given.map_or(0, |(number, _)| number);
            start.to(self.last).error(Problem::Parameter { number, wanted })
        };
        let value = match (given, otherwise) {
            (None, otherwise) => otherwise,
            (Some((_, value)), Otherwise::Flag(_)) => match value {
                None | Some("true" | "1") => Otherwise::Flag(true),
                Some("false" | "0") => Otherwise::Flag(false),
                Some(_) => return Err(wrong("true or false")),
            },
            (Some((_, value)), Otherwise::Number { .. }) => {
                value.and_then(number).ok_or_else(|| wrong("a number, as in --name=5"))?
            }
            (Some((_, value)), Otherwise::Text(_)) => {
                let value = value.filter(|value| is_text(value));
                Otherwise::Text(fallible::copy(value.ok_or_else(|| wrong("a string, as in --name=text"))?)?)
            }
        };
        self.known(value, start)
    }

    /// Parses what `getopt` returns without a word.
    fn otherwise(&mut self) -> Result<Otherwise, Error> {
        let is_negative = self.accept("-")?;
        let value = match &self.token {
            &Token::Integer(magnitude) => Otherwise::Number { magnitude, is_negative },
            Token::Word(word @ ("true" | "false")) if !is_negative => Otherwise::Flag(*word == "true"),
            Token::Text(_) if !is_negative => return Ok(Otherwise::Text(self.literal_text()?)),
            _ => return Err(self.here(Problem::Default)),
        };
        self.advance()?;
        Ok(value)
    }

    /// Moves past a string, and returns it.
    fn literal_text(&mut self) -> Result<String, Error> {
        let Token::Text(text) = &mut self.token else { return Err(self.here(Problem::NotLiteral)) };
        let text = core::mem::take(text);
        self.advance()?;
        Ok(text)
    }

    /// Parses `$#`, or `$1` and so on: the word as a number if it is one, and otherwise as a string; 0 without a word.
    #[inline(never)]
    pub fn position(&mut self, place: Option<usize>) -> Result<Expression, Error> {
        let start = self.span;
        let word = place.and_then(|place| self.given.positional().nth(place));
        let value = match (place, word) {
            (None, _) => Otherwise::Number { magnitude: self.given.positional().count() as u64, is_negative: false },
            (Some(_), None) => Otherwise::Number { magnitude: 0, is_negative: false },
            (Some(_), Some(word)) => match number(word) {
                Some(number) => number,
                None if is_text(word) => Otherwise::Text(fallible::copy(word)?),
                None => return Err(self.here(Problem::LongText { most: TEXT_MAX })),
            },
        };
        self.advance()?;
        self.known(value, start)
    }

    /// Parses the rest of `str($1)` after its parenthesis: the word as a string, empty without a word. Returns `None`
    /// if something else is next.
    #[inline(never)]
    pub fn position_text(&mut self, start: Span) -> Result<Option<Expression>, Error> {
        let Token::Position(Some(place)) = self.token else { return Ok(None) };
        if self.second()? != Token::Sign(")") {
            return Ok(None);
        }
        let word = self.given.positional().nth(place).unwrap_or("");
        if !is_text(word) {
            return Err(self.here(Problem::LongText { most: TEXT_MAX }));
        }
        let text = fallible::copy(word)?;
        self.advance()?;
        self.expect(")")?;
        self.node(ExpressionForm::Text(text), start).map(Some)
    }

    fn known(&self, value: Otherwise, start: Span) -> Result<Expression, Error> {
        match value {
            Otherwise::Flag(is_set) => self.node(ExpressionForm::Integer(is_set.into()), start),
            Otherwise::Text(text) => self.node(ExpressionForm::Text(text), start),
            Otherwise::Number { magnitude, is_negative } => {
                let operand = self.node(ExpressionForm::Integer(magnitude), start)?;
                match is_negative {
                    true => self.node(ExpressionForm::Unary { operator: Unary::Negate, operand }, start),
                    false => Ok(operand),
                }
            }
        }
    }
}

/// Returns whether a word can be a string of a program.
fn is_text(word: &str) -> bool {
    word.len() <= TEXT_MAX && !word.contains('\0')
}

/// Parses a word as a number or a time, perhaps with a sign.
fn number(word: &str) -> Option<Otherwise> {
    let digits = word.strip_prefix('-');
    let magnitude = token::value(digits.unwrap_or(word))?;
    Some(Otherwise::Number { magnitude, is_negative: digits.is_some() })
}
