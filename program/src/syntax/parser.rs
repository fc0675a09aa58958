//! Parses clauses and statements.

use alloc::vec::Vec;

use super::token::{Cursor, Token};
use super::tree::{Clause, ExpressionForm, Operator, Probe, Program, Range, Spanned, Statement, StatementForm, Target};
use super::{DEPTH_MAX, Expression, probe};
use crate::error::{Error, Problem, Span};
use crate::foreign;

/// The state of the parser, with a lookahead of one token.
pub(super) struct Parser<'a> {
    pub cursor: Cursor<'a>,
    pub token: Token<'a>,
    /// The place of the next token.
    pub span: Span,
    /// The place of the token before it.
    pub last: Span,
    pub depth: usize,
}

/// Parses a program.
pub(super) fn program(text: &str) -> Result<Program, Error> {
    let mut cursor = Cursor { text, position: 0 };
    let mut clauses = Vec::new();
    loop {
        cursor.skip_blank()?;
        if cursor.rest().is_empty() {
            break;
        }
        let mut probes = Vec::new();
        probe_list(&mut cursor, &mut probes)?;
        let mut parser = Parser::new(cursor)?;
        let predicate = parser.predicate()?;
        if parser.token != Token::Sign("{") {
            return Err(parser.here(Problem::Block));
        }
        let (body, end) = parser.block()?;
        cursor = Cursor { text, position: end };
        fallible::push(&mut clauses, Clause { probes, predicate, body })?;
    }
    match clauses.is_empty() {
        true => Err(Span { start: text.len(), end: text.len() }.error(Problem::Empty)),
        false => Ok(Program { clauses }),
    }
}

/// Parses a list of probes without a program.
pub(super) fn probes_alone(text: &str) -> Result<Vec<Spanned<Probe>>, Error> {
    let mut cursor = Cursor { text, position: 0 };
    let mut probes = Vec::new();
    probe_list(&mut cursor, &mut probes)?;
    cursor.skip_blank()?;
    match cursor.rest() {
        "" => Ok(probes),
        _ => Err(Span { start: cursor.position, end: text.len() }.error(Problem::Expected { sign: "," })),
    }
}

fn probe_list(cursor: &mut Cursor<'_>, probes: &mut Vec<Spanned<Probe>>) -> Result<(), Error> {
    loop {
        fallible::push(probes, probe::parse(cursor)?)?;
        cursor.skip_blank()?;
        if !cursor.rest().starts_with(',') {
            return Ok(());
        }
        cursor.position += 1;
    }
}

impl<'a> Parser<'a> {
    fn new(mut cursor: Cursor<'a>) -> Result<Self, Error> {
        let (token, span) = cursor.token()?;
        Ok(Self { cursor, token, span, last: span, depth: 0 })
    }

    /// Returns the error for `problem` at the next token.
    pub fn here(&self, problem: Problem) -> Error {
        self.span.error(problem)
    }

    /// Moves past the next token.
    pub fn advance(&mut self) -> Result<(), Error> {
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
        if self.depth == DEPTH_MAX {
            return Err(self.here(Problem::Deep));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn predicate(&mut self) -> Result<Option<Expression>, Error> {
        let start = self.span;
        if !self.accept("/")? {
            return Ok(None);
        }
        let value = self.value()?;
        if self.token != Token::EndPredicate {
            return Err(match self.token {
                Token::End | Token::Sign("{") => start.error(Problem::OpenPredicate),
                _ => self.here(Problem::Expected { sign: "/" }),
            });
        }
        self.advance()?;
        Ok(Some(value))
    }

    /// Parses statements in braces, and returns them with the offset after the last brace. The token after the brace of
    /// a clause is not read, because it may begin the name of a probe.
    fn block(&mut self) -> Result<(Vec<Statement>, usize), Error> {
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
                        let statement = parser.statement()?;
                        let is_block = matches!(
                            statement.node,
                            StatementForm::If { .. }
                                | StatementForm::Unroll { .. }
                                | StatementForm::While { .. }
                                | StatementForm::For { .. }
                        );
                        if !is_block && parser.token != Token::Sign("}") {
                            if parser.token == Token::End {
                                return Err(open.error(Problem::OpenBlock));
                            }
                            parser.expect(";")?;
                        }
                        fallible::push(&mut body, statement)?;
                    }
                }
            }
        })
    }

    /// Parses a block within a block.
    fn inner_block(&mut self) -> Result<Vec<Statement>, Error> {
        let (body, _) = self.block()?;
        self.expect("}")?;
        Ok(body)
    }

    fn statement(&mut self) -> Result<Statement, Error> {
        let start = self.span;
        let form = match self.token {
            Token::Word("if") => self.deeper(Self::condition)?,
            Token::Word("unroll") => {
                self.advance()?;
                self.expect("(")?;
                let count = self.value()?;
                self.expect(")")?;
                StatementForm::Unroll { count, body: self.inner_block()? }
            }
            Token::Word("while") => {
                self.advance()?;
                self.expect("(")?;
                let condition = self.value()?;
                self.expect(")")?;
                StatementForm::While { condition, body: self.inner_block()? }
            }
            Token::Word("for") => self.each()?,
            Token::Word(word @ ("break" | "continue")) => {
                self.advance()?;
                if word == "break" { StatementForm::Break } else { StatementForm::Continue }
            }
            Token::Word("let") => self.variable()?,
            Token::Word("return") => {
                self.advance()?;
                StatementForm::Return
            }
            Token::Sign("(" | "++" | "--" | "*" | "-" | "!" | "~") => self.action()?,
            Token::Word(word) if let Some(problem) = foreign::keyword(word) => return Err(self.here(problem)),
            Token::Sign(_) | Token::EndPredicate => return Err(self.here(Problem::Statement)),
            _ => self.action()?,
        };
        Ok(Spanned { node: form, span: start.to(self.last) })
    }

    /// Parses `for ($name : range)`, with or without the parentheses, and its body.
    fn each(&mut self) -> Result<StatementForm, Error> {
        self.advance()?;
        let is_open = self.accept("(")?;
        let Token::Variable(name) = self.token else { return Err(self.here(Problem::LoopRange)) };
        let name = fallible::copy(name)?;
        self.advance()?;
        self.expect(":")?;
        let first = self.value()?;
        let range = if self.accept("..")? {
            Range::Numbers { first, end: self.value()? }
        } else {
            match *first.form {
                ExpressionForm::Map(map) if map.keys.is_empty() => {
                    Range::Map(Spanned { node: map.name, span: first.span })
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
        let name = fallible::copy(name)?;
        self.advance()?;
        let to = if self.accept(":")? { Some(self.type_name()?) } else { None };
        let mut value = if self.accept("=")? { Some(self.value()?) } else { None };
        if let Some(to) = to {
            let span = start.to(self.last);
            let operand = match value {
                Some(value) => value,
                None => Expression::new(ExpressionForm::Integer(0), span)?,
            };
            value = Some(self.node(ExpressionForm::Cast { to, operand }, start)?);
        }
        Ok(StatementForm::Let { name, value })
    }

    fn condition(&mut self) -> Result<StatementForm, Error> {
        self.advance()?;
        self.expect("(")?;
        let condition = self.value()?;
        self.expect(")")?;
        let then = self.inner_block()?;
        let mut otherwise = Vec::new();
        if self.token == Token::Word("else") {
            self.advance()?;
            if self.token == Token::Word("if") {
                fallible::push(&mut otherwise, self.statement()?)?;
            } else {
                otherwise = self.inner_block()?;
            }
        }
        Ok(StatementForm::If { condition, then, otherwise })
    }

    /// Parses an assignment, or an expression statement.
    fn action(&mut self) -> Result<StatementForm, Error> {
        let value = self.value()?;
        let operator = match self.token {
            Token::Sign("=") => None,
            Token::Sign(sign) => match Operator::of_assignment(sign) {
                Some(operator) => Some(operator),
                None => return self.done(value),
            },
            _ => return self.done(value),
        };
        let target = target(value)?;
        self.advance()?;
        Ok(StatementForm::Assign { target, operator, value: self.value()? })
    }

    fn done(&self, value: Expression) -> Result<StatementForm, Error> {
        match *value.form {
            ExpressionForm::Call { .. } | ExpressionForm::Step { .. } => Ok(StatementForm::Do(value)),
            _ => Err(value.span.error(Problem::Useless)),
        }
    }
}

/// Converts an expression to the target of an assignment.
pub(super) fn target(value: Expression) -> Result<Spanned<Target>, Error> {
    let span = value.span;
    let node = match *value.form {
        ExpressionForm::Variable(name) => Target::Variable(name),
        ExpressionForm::Map(map) => Target::Map(map),
        _ => return Err(span.error(Problem::NoTarget)),
    };
    Ok(Spanned { node, span })
}
