//! Parses the expressions that stand for parameters of the program: `getopt("NAME", …)`, `$1`, `$#` and `str($1)`.

use alloc::string::String;

use super::parser::Parser;
use super::token::{self, TEXT_MAX, Token};
use super::tree::{Expression, ExpressionForm, Unary};
use crate::error::{Error, Problem, Span};

/// The value of `getopt` if the parameter is not given.
enum Otherwise {
    Flag(bool),
    Number { magnitude: u64, is_negative: bool },
    Text(String),
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
        let given = self.parameters.named(&name);
        let wrong = |wanted| {
            let number = given.map_or(0, |(number, _)| number);
            start.to(self.last).error(Problem::Parameter { number, wanted })
        };
        let value = match (given, otherwise) {
            (None, otherwise) => otherwise,
            (Some((_, value)), Otherwise::Flag(_)) => {
                Otherwise::Flag(value.map_or(Some(true), flag).ok_or_else(|| wrong("true or false"))?)
            }
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

    /// Parses the value of `getopt` if the parameter is not given.
    fn otherwise(&mut self) -> Result<Otherwise, Error> {
        let is_negative = self.accept("-")?;
        let value = match &self.token {
            &Token::Integer(magnitude) => Otherwise::Number { magnitude, is_negative },
            Token::Word(word @ ("true" | "false")) if !is_negative => Otherwise::Flag(*word == "true"),
            Token::Text(_) if !is_negative => return Ok(Otherwise::Text(self.literal_text()?)),
            _ => return Err(self.here(Problem::ParameterDefault)),
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

    /// Parses `$#`, or `$1` and so on. The value is a number if the parameter is one, otherwise a string; 0 if the
    /// parameter is not given.
    #[inline(never)]
    pub fn positional(&mut self, place: Option<usize>) -> Result<Expression, Error> {
        let start = self.span;
        let word = place.and_then(|place| self.parameters.positional().nth(place));
        let value = match (place, word) {
            (None, _) => {
                Otherwise::Number { magnitude: self.parameters.positional().count() as u64, is_negative: false }
            }
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

    /// Parses the rest of `str($1)`, `str($1, 5)` or `str($#)` after its parenthesis: the parameter as a string, or its
    /// beginning; empty if it is not given. Returns `None` if other text is next.
    #[inline(never)]
    pub fn positional_text(&mut self, start: Span) -> Result<Option<Expression>, Error> {
        let Some(place) = self.positional_alone()? else { return Ok(None) };
        let count = fallible::format(format_args!("{}", self.parameters.positional().count()))?;
        let word = place.map_or(count.as_str(), |place| self.parameters.positional().nth(place).unwrap_or(""));
        if !is_text(word) {
            return Err(self.here(Problem::LongText { most: TEXT_MAX }));
        }
        self.advance()?;
        let mut length = word.len();
        if self.accept(",")? {
            let most = self.value()?;
            let ExpressionForm::Integer(number) = *most.form else { return Err(most.span.error(Problem::NotConstant)) };
            length = word.floor_char_boundary(length.min(usize::try_from(number).unwrap_or(usize::MAX)));
        }
        self.expect(")")?;
        self.node(ExpressionForm::Text(fallible::copy(&word[..length])?), start).map(Some)
    }

    /// Returns the place of a parameter that is the next argument of a function, or `None` as the place for `$#`. In
    /// the block of a macro, the argument of the macro may be the parameter.
    fn positional_alone(&self) -> Result<Option<Option<usize>>, Error> {
        let Token::Sign(")" | ",") = self.second()? else { return Ok(None) };
        match self.token {
            Token::Positional(place) => Ok(Some(place)),
            Token::Word(name) => {
                let Some(argument) = self.argument(name)? else { return Ok(None) };
                let place = argument.positional_alone()?;
                if place.is_some() {
                    self.use_argument(name, self.span)?;
                }
                Ok(place)
            }
            _ => Ok(None),
        }
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

/// Parses a word as true or false, in large or small letters.
fn flag(word: &str) -> Option<bool> {
    match () {
        () if word == "1" || word.eq_ignore_ascii_case("true") => Some(true),
        () if word == "0" || word.eq_ignore_ascii_case("false") => Some(false),
        () => None,
    }
}

/// Parses a word as a number or a time, perhaps with a sign.
fn number(word: &str) -> Option<Otherwise> {
    let digits = word.strip_prefix('-');
    let magnitude = token::value(digits.unwrap_or(word))?;
    Some(Otherwise::Number { magnitude, is_negative: digits.is_some() })
}
