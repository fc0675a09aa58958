//! The state of the parser, with a lookahead of one token.

use super::DEPTH_MAX;
use super::macros::{Macros, Scope};
use super::parameters::Parameters;
use super::token::{Cursor, Token};
use crate::error::{Error, Problem, Span};
use crate::stack::StackBound;

/// The state of the parser.
pub(super) struct Parser<'a> {
    pub cursor: Cursor<'a>,
    pub token: Token<'a>,
    /// The place of the next token.
    pub span: Span,
    /// The place of the token before it.
    pub last: Span,
    pub depth: usize,
    pub bound: StackBound,
    pub macros: &'a Macros<'a>,
    pub parameters: Parameters<'a>,
    /// The call of a macro whose block is parsed.
    pub scope: Option<&'a Scope<'a>>,
}

impl<'a> Parser<'a> {
    pub fn new(mut cursor: Cursor<'a>, macros: &'a Macros<'a>, parameters: Parameters<'a>) -> Result<Self, Error> {
        let (token, span) = cursor.token()?;
        Ok(Self {
            cursor,
            token,
            span,
            last: span,
            depth: 0,
            bound: StackBound::here(),
            macros,
            parameters,
            scope: None,
        })
    }

    /// Returns the error for `problem` at the next token.
    pub fn here(&self, problem: Problem) -> Error {
        self.span.error(problem)
    }

    /// Moves past the next token.
    pub fn advance(&mut self) -> Result<(), Error> {
        self.macros.count_token(self.span)?;
        self.last = self.span;
        (self.token, self.span) = self.cursor.token()?;
        Ok(())
    }

    /// Returns the token after the next one.
    pub fn second(&self) -> Result<Token<'a>, Error> {
        let mut ahead = self.cursor;
        Ok(ahead.token()?.0)
    }

    /// Moves past `sign` if it is the next token, and returns whether it was.
    pub fn accept(&mut self, sign: &'static str) -> Result<bool, Error> {
        let is_next = self.token == Token::Sign(sign);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    /// Moves past `sign`, or returns an error if it is not the next token.
    pub fn expect(&mut self, sign: &'static str) -> Result<(), Error> {
        if self.accept(sign)? { Ok(()) } else { Err(self.here(Problem::Expected { sign })) }
    }

    /// Runs `read` one nesting level deeper.
    pub fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= DEPTH_MAX || self.bound.is_reached() {
            return Err(self.here(Problem::Deep));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }
}
