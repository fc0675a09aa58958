//! Parses clauses and statements.

use alloc::vec::Vec;

use super::macros::{Macros, Scope};
use super::parameters::Parameters;
use super::token::{Cursor, Token};
use super::tree::{
    Clause, ExpressionForm, LoopRange, MapDeclaration, Operator, Probe, Program, Setting, SettingValue, Spanned,
    Statement, StatementForm, Target,
};
use super::{DEPTH_MAX, Expression, probe};
use crate::error::{Error, Problem, Span};
use crate::foreign;
use crate::stack::StackBound;

/// The state of the parser, with a lookahead of one token.
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

/// Parses a program with these parameters.
pub(super) fn program(text: &str, parameters: Parameters<'_>) -> Result<Program, Error> {
    let macros = Macros::find(text)?;
    let mut cursor = Cursor { text, position: 0 };
    let (mut config, mut maps, mut clauses) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_first = true;
    loop {
        cursor.skip_blank()?;
        if cursor.rest().is_empty() {
            break;
        }
        let mut ahead = cursor;
        match ahead.word() {
            "macro" => {
                cursor = ahead;
                Parser::skip_macro(&mut cursor)?;
                is_first = false;
                continue;
            }
            "config" if ahead.next_sign()? == Some("=") => {
                if !core::mem::take(&mut is_first) {
                    return Err(cursor.ahead()?.error(Problem::LateConfig));
                }
                cursor = Parser::new(ahead, &macros, parameters)?.config(&mut config)?;
                cursor.skip_blank()?;
                cursor.position += usize::from(cursor.rest().starts_with(';'));
                continue;
            }
            "let" => {
                cursor = Parser::new(ahead, &macros, parameters)?.map_declaration(&mut maps)?;
                is_first = false;
                continue;
            }
            _ => is_first = false,
        }
        let mut probes = Vec::new();
        probe_list(&mut cursor, &mut probes)?;
        let mut parser = Parser::new(cursor, &macros, parameters)?;
        let predicate = parser.predicate()?;
        if parser.token != Token::Sign("{") {
            return Err(parser.here(Problem::Block));
        }
        let (body, end) = parser.block(false)?;
        cursor = Cursor { text, position: end };
        fallible::push(&mut clauses, Clause { probes, predicate, body })?;
    }
    parameters.check(text)?;
    match clauses.is_empty() {
        true => Err(Span { start: text.len(), end: text.len() }.error(Problem::Empty)),
        false => Ok(Program { config, maps, clauses }),
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

pub(super) fn probe_list(cursor: &mut Cursor<'_>, probes: &mut Vec<Spanned<Probe>>) -> Result<(), Error> {
    loop {
        let probe = probe::parse(cursor)?;
        let text = probe.span.of(cursor.text);
        if let Some(at) = text.find('$').filter(|at| text[at + 1..].starts_with(|c: char| c.is_ascii_digit())) {
            let start = probe.span.start + at;
            return Err(Span { start, end: start + 2 }.error(Problem::ProbeParameter));
        }
        fallible::push(probes, probe)?;
        cursor.skip_blank()?;
        if !cursor.rest().starts_with(',') {
            return Ok(());
        }
        cursor.position += 1;
    }
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

    /// Parses the settings of a program after the word `config`. Returns the place after the last brace.
    fn config(&mut self, settings: &mut Vec<Spanned<Setting>>) -> Result<Cursor<'a>, Error> {
        self.expect("=")?;
        let open = self.span;
        self.expect("{")?;
        loop {
            let start = self.span;
            let name = match self.token {
                Token::Sign("}") => return Ok(Cursor { position: self.span.end, ..self.cursor }),
                Token::End => return Err(open.error(Problem::OpenBlock)),
                Token::Word(name) => fallible::copy(name)?,
                _ => return Err(self.here(Problem::Setting)),
            };
            self.advance()?;
            self.expect("=")?;
            let value = match &self.token {
                Token::Integer(number) => SettingValue::Number(*number),
                Token::Word(word) => SettingValue::Text(fallible::copy(word)?),
                Token::Text(text) => SettingValue::Text(fallible::copy(text)?),
                _ => return Err(self.here(Problem::Value)),
            };
            self.advance()?;
            fallible::push(settings, Spanned { node: Setting { name, value }, span: start.to(self.last) })?;
            if !self.accept(";")? && self.token != Token::Sign("}") {
                return Err(self.here(Problem::Expected { sign: ";" }));
            }
        }
    }

    /// Parses the declaration of a map after the word `let`. Returns the place after its `;`.
    fn map_declaration(&mut self, maps: &mut Vec<Spanned<MapDeclaration>>) -> Result<Cursor<'a>, Error> {
        let start = self.span;
        let Token::Map(name) = self.token else { return Err(self.here(Problem::MapDeclaration)) };
        if maps.iter().any(|map| map.node.name == name) {
            return Err(self.here(Problem::MapTwice));
        }
        let name = fallible::copy(name)?;
        self.advance()?;
        self.expect("=")?;
        match self.token {
            Token::Word("hash" | "percpuhash") => self.advance()?,
            Token::Word(word) if let Some(problem) = foreign::map(word) => return Err(self.here(problem)),
            _ => return Err(self.here(Problem::MapDeclaration)),
        }
        self.expect("(")?;
        let keys = self.span;
        let value = match self.token {
            Token::Positional(place) => self.positional(place)?,
            Token::Integer(_) => self.literal()?,
            _ => return Err(self.here(Problem::MapDeclaration)),
        };
        let ExpressionForm::Integer(keys) = *value.form else { return Err(keys.error(Problem::MapDeclaration)) };
        self.expect(")")?;
        fallible::push(maps, Spanned { node: MapDeclaration { name, keys }, span: start.to(self.last) })?;
        match self.token {
            Token::Sign(";") => Ok(Cursor { position: self.span.end, ..self.cursor }),
            _ => Err(self.here(Problem::Expected { sign: ";" })),
        }
    }

    fn predicate(&mut self) -> Result<Option<Expression>, Error> {
        let start = self.span;
        // Before the value of a predicate that is a block, the `/` looks as if it ended one.
        match self.token {
            Token::Sign("/") | Token::EndPredicate => self.advance()?,
            _ => return Ok(None),
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
    /// a clause is not read, because it may begin the name of a probe. If the block `takes_value`, its last statement
    /// may be any expression.
    fn block(&mut self, takes_value: bool) -> Result<(Vec<Statement>, usize), Error> {
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

    /// Moves past the `;` after a statement that needs one, of the block that begins at `open`.
    #[inline(never)]
    fn end(&mut self, statement: &Statement, open: Span) -> Result<(), Error> {
        let is_block = match &statement.node {
            StatementForm::If { .. }
            | StatementForm::Unroll { .. }
            | StatementForm::While { .. }
            | StatementForm::For { .. } => true,
            StatementForm::Do(value) if let ExpressionForm::Block { .. } = *value.form => {
                self.last.of(self.cursor.text) == "}"
            }
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
                None => Expression::new(ExpressionForm::Integer(0), span)?,
            };
            value = Some(self.node(ExpressionForm::Cast { to, operand }, start)?);
        }
        Ok(StatementForm::Let { name, value })
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
