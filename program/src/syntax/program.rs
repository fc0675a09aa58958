//! Parses programs: their settings, the declarations of their maps, and their clauses.

use alloc::vec::Vec;

use super::macros::{self, Macros};
use super::parameters::Parameters;
use super::parser::Parser;
use super::probe;
use super::token::{Cursor, Token};
use super::tree::{Clause, Expression, ExpressionForm, MapDeclaration, Program, Setting, SettingValue, Spanned};
use crate::error::{Error, Problem, Span};
use crate::foreign;

/// Parses a program with these parameters.
pub(super) fn parse(text: &str, parameters: Parameters<'_>) -> Result<Program, Error> {
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
                macros::skip(&mut cursor)?;
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
        probe::list(&mut cursor, &mut probes)?;
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

impl<'a> Parser<'a> {
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
        // If the predicate begins with a block, the token for its first `/` is the one that ends a predicate.
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
}
