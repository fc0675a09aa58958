//! Parses statements.

use alloc::vec::Vec;

use super::expression::target;
use super::parser::Parser;
use super::token::Token;
use super::tree::{
    Expression, ExpressionForm, LoopRange, Operator, Spanned, Statement, StatementForm, TypeForm, TypeName,
};
use crate::error::{Error, Problem, Span};
use crate::foreign;

impl Parser<'_> {
    /// Parses statements in braces, and returns them with the offset after the last brace. The token after the brace of
    /// a clause is not read, because it may begin the name of a probe. If the block `takes_value`, its last statement
    /// may be any expression.
    pub fn block(&mut self, takes_value: bool) -> Result<(Vec<Statement>, usize), Error> {
        let open = self.span;
        self.expect("{")?;
        self.deeper(|parser| {
            let mut body = Vec::new();
            loop {
                match parser.token {
                    Token::End => return Err(open.error(Problem::OpenBlock)),
                    Token::Sign("}") => return Ok((body, parser.span.end)),
                    Token::Sign(";") => parser.advance()?,
                    _ => {
                        let statement = parser.statement(takes_value)?;
                        parser.end(&statement, open)?;
                        fallible::push(&mut body, statement)?;
                    }
                }
            }
        })
    }

    /// Moves past the `;` after `statement`, if it needs one. Its block begins at `open`.
    #[inline(never)]
    fn end(&mut self, statement: &Statement, open: Span) -> Result<(), Error> {
        let ends_in_brace = self.last.of(self.cursor.text) == "}";
        let is_block = match &statement.node {
            StatementForm::Unroll { .. } | StatementForm::While { .. } | StatementForm::For { .. } => true,
            StatementForm::Do(value) => matches!(*value.form, ExpressionForm::Block { .. }) && ends_in_brace,
            // It may be `c ? a : b`.
            StatementForm::If { .. } => ends_in_brace,
            _ => false,
        };
        match self.token {
            _ if is_block => Ok(()),
            Token::Sign("}") => Ok(()),
            Token::End => Err(open.error(Problem::OpenBlock)),
            _ => self.expect(";"),
        }
    }

    /// Parses a block up to its last brace. It has a value if its last statement is an expression without a `;`.
    #[inline(never)]
    pub fn value_block(&mut self) -> Result<ExpressionForm, Error> {
        let (mut body, _) = self.block(true)?;
        let is_value = |last: &Statement| last.span.end == self.last.end && matches!(last.node, StatementForm::Do(_));
        let value = match body.pop_if(|last| is_value(last)) {
            Some(Spanned { node: StatementForm::Do(value), .. }) => Some(value),
            _ => None,
        };
        Ok(ExpressionForm::Block { body, value })
    }

    /// Parses a block within a block.
    fn inner_block(&mut self) -> Result<Vec<Statement>, Error> {
        let (body, _) = self.block(false)?;
        self.expect("}")?;
        Ok(body)
    }

    fn statement(&mut self, takes_value: bool) -> Result<Statement, Error> {
        match self.token {
            Token::Word("if" | "unroll" | "while" | "for" | "break" | "continue" | "let" | "_" | "return") => {
                self.keyword()
            }
            Token::Word(word) if let Some(problem) = foreign::keyword(word) => Err(self.here(problem)),
            Token::Sign("(" | "++" | "--" | "*" | "-" | "!" | "~" | "{") => self.action(takes_value),
            Token::Sign(_) | Token::EndPredicate => Err(self.here(Problem::Statement)),
            _ => self.action(takes_value),
        }
    }

    /// Parses a statement that begins with a keyword.
    #[inline(never)]
    fn keyword(&mut self) -> Result<Statement, Error> {
        let start = self.span;
        let form = match self.token {
            Token::Word("if") => self.deeper(Self::condition)?,
            Token::Word("for") => self.each()?,
            Token::Word("let") => self.variable()?,
            Token::Word(word) => {
                self.advance()?;
                match word {
                    "unroll" => StatementForm::Unroll { count: self.in_parentheses()?, body: self.inner_block()? },
                    "while" => StatementForm::While { condition: self.in_parentheses()?, body: self.inner_block()? },
                    "break" => StatementForm::Break,
                    "continue" => StatementForm::Continue,
                    "return" => StatementForm::Return,
                    _ => {
                        self.expect("=")?;
                        StatementForm::Discard(self.value()?)
                    }
                }
            }
            _ => return Err(self.here(Problem::Statement)),
        };
        Ok(Spanned { node: form, span: start.to(self.last) })
    }

    /// Parses a value in parentheses.
    #[inline(never)]
    fn in_parentheses(&mut self) -> Result<Expression, Error> {
        self.expect("(")?;
        let value = self.value()?;
        self.expect(")")?;
        Ok(value)
    }

    /// Parses `for ($name : range)`, with or without the parentheses, and its body.
    fn each(&mut self) -> Result<StatementForm, Error> {
        self.advance()?;
        let is_open = self.accept("(")?;
        let Token::Variable(name) = self.token else { return Err(self.here(Problem::LoopRange)) };
        let name = self.variable_name(name)?;
        self.advance()?;
        self.expect(":")?;
        let first = self.value()?;
        let range = if self.accept("..")? {
            LoopRange::Numbers { first, end: self.value()? }
        } else {
            match *first.form {
                ExpressionForm::Map(map) if map.keys.is_empty() => {
                    LoopRange::Map(Spanned { node: map.name, span: first.span })
                }
                _ => return Err(first.span.error(Problem::LoopRange)),
            }
        };
        if is_open {
            self.expect(")")?;
        }
        Ok(StatementForm::For { name, range, body: self.inner_block()? })
    }

    /// Parses `let $name`, with an optional type and value.
    fn variable(&mut self) -> Result<StatementForm, Error> {
        let start = self.span;
        self.advance()?;
        let Token::Variable(name) = self.token else {
            let problem = foreign::keyword("let").filter(|_| matches!(self.token, Token::Map(_)));
            return Err(problem.map_or_else(|| self.here(Problem::VariableName), |problem| start.error(problem)));
        };
        let name = self.variable_name(name)?;
        self.advance()?;
        let to = if self.accept(":")? { Some(self.type_form()?) } else { None };
        let mut value = if self.accept("=")? { Some(self.value()?) } else { None };
        if let Some(to) = to {
            let span = start.to(self.last);
            let operand = match value {
                Some(value) => value,
                None => self.zero(&to, start, span)?,
            };
            value = Some(self.node(ExpressionForm::Cast { to, operand }, start)?);
        }
        Ok(StatementForm::Let { name, value })
    }

    /// Returns the value of a variable of the type `to` that is declared without a value.
    fn zero(&mut self, to: &TypeForm, start: Span, span: Span) -> Result<Expression, Error> {
        let zero = Expression::new(ExpressionForm::Integer(0), span)?;
        let TypeForm::Array { element, count: Some(count) } = to else { return Ok(zero) };
        match u64::from(element.bits).saturating_mul(*count) {
            // An array is cast from an integer of its size.
            bits @ (8 | 16 | 32) => {
                let to = TypeForm::Named(TypeName { signed: false, bits: bits as u8, pointer: false });
                self.node(ExpressionForm::Cast { to, operand: zero }, start)
            }
            _ => Ok(zero),
        }
    }

    fn condition(&mut self) -> Result<StatementForm, Error> {
        self.advance()?;
        let condition = self.in_parentheses()?;
        let then = self.inner_block()?;
        let mut otherwise = Vec::new();
        if self.token == Token::Word("else") {
            self.advance()?;
            if self.token == Token::Word("if") {
                fallible::push(&mut otherwise, self.statement(false)?)?;
            } else {
                otherwise = self.inner_block()?;
            }
        }
        Ok(StatementForm::If { condition, then, otherwise })
    }

    /// Parses an assignment, or an expression statement.
    #[inline(never)]
    fn action(&mut self, takes_value: bool) -> Result<Statement, Error> {
        let start = self.span;
        let value = self.value()?;
        self.assigned(value, takes_value, start)
    }

    /// Parses the rest of an assignment to `value`, if an assignment is next.
    #[inline(never)]
    fn assigned(&mut self, value: Expression, takes_value: bool, start: Span) -> Result<Statement, Error> {
        let operator = match self.token {
            Token::Sign(sign) => Operator::of_assignment(sign),
            _ => None,
        };
        let form = match self.token {
            Token::Sign("}") if takes_value => StatementForm::Do(value),
            Token::Sign(sign) if sign == "=" || operator.is_some() => {
                let target = target(value)?;
                self.advance()?;
                StatementForm::Assign { target, operator, value: self.value()? }
            }
            _ => done(value)?,
        };
        Ok(Spanned { node: form, span: start.to(self.last) })
    }
}

/// Converts an expression to a statement.
#[inline(never)]
fn done(value: Expression) -> Result<StatementForm, Error> {
    let span = value.span;
    match *value.form {
        ExpressionForm::Call { .. } | ExpressionForm::Step { .. } | ExpressionForm::Block { .. } => {
            Ok(StatementForm::Do(value))
        }
        ExpressionForm::Choice { condition, then, otherwise } => {
            let block = |value: Expression| {
                let span = value.span;
                Ok::<_, Error>(fallible::collect([Spanned { node: done(value)?, span }])?)
            };
            Ok(StatementForm::If { condition, then: block(then)?, otherwise: block(otherwise)? })
        }
        _ => Err(span.error(Problem::Useless)),
    }
}
