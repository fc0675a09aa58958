//! Reads values, by how strongly operators bind.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::DEPTH_MAX;
use super::parser::{Parser, target};
use super::token::Token;
use super::tree::{Expression, ExpressionForm, MapReference, Operator, Spanned, TypeName, Unary};
use crate::error::{Error, Problem, Span};

impl Parser<'_> {
    /// A value.
    pub fn value(&mut self) -> Result<Expression, Error> {
        self.deeper(|parser| {
            let condition = parser.binary(Operator::WEAKEST)?;
            if !parser.accept("?")? {
                return Ok(condition);
            }
            let start = condition.span;
            let then = parser.value()?;
            parser.expect(":")?;
            let otherwise = parser.value()?;
            parser.node(ExpressionForm::Choice { condition, then, otherwise }, start)
        })
    }

    /// The value that is `form`, from `start` to the last token.
    fn node(&self, form: ExpressionForm, start: Span) -> Result<Expression, Error> {
        let value = Expression::new(form, start.to(self.last));
        if value.height > DEPTH_MAX { Err(value.span.error(Problem::Deep)) } else { Ok(value) }
    }

    /// Values between operators that bind at least as strongly as `weakest`.
    fn binary(&mut self, weakest: u8) -> Result<Expression, Error> {
        let mut left = self.unary()?;
        while let Token::Sign(sign) = self.token {
            let Some(operator) = Operator::of_sign(sign).filter(|operator| operator.strength() >= weakest) else {
                break;
            };
            self.advance()?;
            let right = self.deeper(|parser| parser.binary(operator.strength() + 1))?;
            let start = left.span;
            left = self.node(ExpressionForm::Binary { operator, left, right }, start)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let operator = match self.token {
            Token::Sign("-") => Unary::Negate,
            Token::Sign("~") => Unary::Invert,
            Token::Sign("!") => Unary::Not,
            Token::Sign("*") => Unary::Read,
            Token::Sign(sign @ ("++" | "--")) => {
                self.advance()?;
                let operand = self.deeper(Self::unary)?;
                let form = ExpressionForm::Step { target: target(operand)?, up: sign == "++", first: true };
                return self.node(form, start);
            }
            Token::Sign("(") => {
                if let Token::Word(word) = self.second()?
                    && let Some(to) = TypeName::integer(word)
                {
                    self.advance()?;
                    self.advance()?;
                    let to = TypeName { pointer: self.accept("*")?, ..to };
                    self.expect(")")?;
                    let operand = self.deeper(Self::unary)?;
                    return self.node(ExpressionForm::Cast { to, operand }, start);
                }
                return self.postfix();
            }
            _ => return self.postfix(),
        };
        self.advance()?;
        let operand = self.deeper(Self::unary)?;
        self.node(ExpressionForm::Unary { operator, operand }, start)
    }

    /// A value with what may follow it: `[i]`, `++`, `--`.
    fn postfix(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let mut value = self.primary()?;
        loop {
            if self.accept("[")? {
                let index = self.value()?;
                self.expect("]")?;
                value = self.node(ExpressionForm::Index { pointer: value, index }, start)?;
            } else if let Token::Sign(sign @ ("++" | "--")) = self.token {
                let target = target(value)?;
                self.advance()?;
                value = self.node(ExpressionForm::Step { target, up: sign == "++", first: false }, start)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let form = match self.token.clone() {
            Token::Integer(value) => ExpressionForm::Integer(value),
            Token::Text(text) => ExpressionForm::Text(text),
            Token::Variable(name) => ExpressionForm::Variable(name.to_owned()),
            Token::Map(name) => {
                self.advance()?;
                let keys = if self.accept("[")? { self.values("]")? } else { Vec::new() };
                return self.node(ExpressionForm::Map(MapReference { name: name.to_owned(), keys }), start);
            }
            Token::Word(word) => {
                self.advance()?;
                if !self.accept("(")? {
                    return self.node(ExpressionForm::Builtin(word.to_owned()), start);
                }
                let name: Spanned<String> = Spanned { node: word.to_owned(), span: start };
                let arguments = if self.accept(")")? { Vec::new() } else { self.values(")")? };
                return self.node(ExpressionForm::Call { name, arguments }, start);
            }
            Token::Sign("(") => {
                self.advance()?;
                let mut value = self.value()?;
                self.expect(")")?;
                value.span = start.to(self.last);
                return Ok(value);
            }
            _ => return Err(self.here(Problem::Value)),
        };
        self.advance()?;
        self.node(form, start)
    }

    /// Values between commas, one at least, up to the sign `end`.
    fn values(&mut self, end: &'static str) -> Result<Vec<Expression>, Error> {
        let mut values = alloc::vec![self.value()?];
        while self.accept(",")? {
            values.push(self.value()?);
        }
        self.expect(end)?;
        Ok(values)
    }
}
