//! Parses calls of macros. A call is replaced by the block of the macro, which is parsed anew for each call, so that
//! errors are marked in it.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;

use super::macros::{Argument, Formal, Macro, Scope};
use super::parser::Parser;
use super::token::{Cursor, Token};
use super::tree::Expression;
use crate::builtins;
use crate::error::{Error, Problem, Span};

impl<'a> Parser<'a> {
    /// Returns the full name of a variable that is called `name` here.
    pub fn variable_name(&self, name: &str) -> Result<String, Error> {
        let Some(scope) = self.scope else { return Ok(fallible::copy(name)?) };
        match scope.argument(Formal::Variable(name)) {
            Some(Argument::Name(name)) => Ok(fallible::copy(name)?),
            _ => Ok(fallible::format(format_args!("{name}__{}", scope.number))?),
        }
    }

    /// Returns the full name of the map that is called `name` here.
    pub fn map_name(&self, name: &str) -> Result<String, Error> {
        match self.scope.map(|scope| scope.argument(Formal::Map(name))) {
            None => Ok(fallible::copy(name)?),
            Some(Some(Argument::Name(name))) => Ok(fallible::copy(name)?),
            Some(_) => Err(self.here(Problem::MacroMap)),
        }
    }

    /// Returns a parser for the argument of the parameter `name`; `None` if there is no such parameter.
    pub fn argument(&self, name: &str) -> Result<Option<Parser<'a>>, Error> {
        let Some(scope) = self.scope else { return Ok(None) };
        let Some(&Argument::Value { position, .. }) = scope.argument(Formal::Value(name)) else { return Ok(None) };
        Ok(Some(self.elsewhere(position, scope.outer)?))
    }

    /// Checks that `given`, the parser for the argument of the parameter `name`, has come to the end of the argument.
    /// The parameter is at `span`.
    pub fn end_argument(&self, name: &str, given: &Parser<'_>, span: Span) -> Result<(), Error> {
        self.use_argument(name, span)?;
        given.ended()
    }

    /// Counts that the block of a macro uses the argument of its parameter `name` at `span`.
    pub fn use_argument(&self, name: &str, span: Span) -> Result<(), Error> {
        let argument = self.scope.and_then(|scope| scope.argument(Formal::Value(name)));
        if let Some(Argument::Value { is_used, .. }) = argument {
            is_used.set(true);
        }
        self.macros.count(self.cursor.text, span).map(drop)
    }

    /// Checks that this parser for an argument has come to the end of the argument.
    fn ended(&self) -> Result<(), Error> {
        match self.token {
            Token::Sign("," | ")") => Ok(()),
            _ => Err(self.here(Problem::Expected { sign: "," })),
        }
    }

    /// Parses the arguments that the block of a macro has not used, to report their problems.
    fn check_unused(&self, arguments: &[Argument]) -> Result<(), Error> {
        for argument in arguments {
            let Argument::Value { position, is_used } = argument else { continue };
            if is_used.get() {
                continue;
            }
            self.macros.count(self.cursor.text, self.span)?;
            let mut given = self.elsewhere(*position, self.scope)?;
            match given.is_type_next()? {
                true => drop(given.type_form()?),
                false => drop(given.value()?),
            }
            given.ended()?;
        }
        Ok(())
    }

    /// Returns a parser for another part of the text.
    fn elsewhere<'b>(&self, position: usize, scope: Option<&'b Scope<'b>>) -> Result<Parser<'b>, Error>
    where
        'a: 'b,
    {
        let cursor = Cursor { position, ..self.cursor };
        let mut parser: Parser<'b> = Parser::new(cursor, self.macros, self.parameters)?;
        (parser.scope, parser.depth, parser.bound) = (scope, self.depth, self.bound);
        Ok(parser)
    }

    /// Returns whether `word`, the next token, is a macro, or a parameter that stands for its argument. A builtin with
    /// the name of a macro stays one where it has another number of arguments.
    #[inline(never)]
    pub fn is_substituted(&self, word: &str) -> Result<bool, Error> {
        let is_formal = self.scope.is_some_and(|scope| scope.argument(Formal::Value(word)).is_some());
        match is_formal || self.macros.arity(word).is_none() {
            true => Ok(is_formal),
            false => Ok(!builtins::is_known(word) || self.is_called(word)?),
        }
    }

    /// Returns whether a macro called `word`, which is the next token, has as many parameters as arguments follow.
    #[inline(never)]
    fn is_called(&self, word: &str) -> Result<bool, Error> {
        let mut ahead = self.elsewhere(self.span.start, self.scope)?;
        ahead.advance()?;
        Ok(self.macros.of_name(word, ahead.arguments()?.len()).is_some())
    }

    /// Parses the rest of a call of the macro `name` after its name, at `start`.
    #[inline(never)]
    pub fn expansion(&mut self, name: &str, start: Span) -> Result<Expression, Error> {
        let (of, arguments) = self.called(name, start)?;
        let number = self.macros.count(self.cursor.text, start)?;
        let scope = Scope { of, arguments: &arguments, number, outer: self.scope };
        let block = self.elsewhere(of.body, Some(&scope))?.value_block()?;
        self.check_unused(&arguments)?;
        self.node(block, start)
    }

    /// Returns the macro that is called, and moves past its arguments.
    #[inline(never)]
    fn called(&mut self, name: &str, start: Span) -> Result<(&'a Macro<'a>, Vec<Argument>), Error> {
        let places = self.arguments()?;
        let macros = self.macros;
        let Some(of) = macros.of_name(name, places.len()) else {
            let (least, most) = macros.arity(name).unwrap_or_default();
            return Err(start.to(self.last).error(Problem::ArgumentCount { least, most }));
        };
        let mut around = self.scope;
        while let Some(scope) = around {
            if core::ptr::eq(scope.of, of) {
                return Err(start.error(Problem::MacroWithin));
            }
            around = scope.outer;
        }
        let mut arguments = Vec::new();
        for (formal, place) in of.formals.iter().zip(places) {
            let given = self.elsewhere(place.start, self.scope)?;
            let argument = match (formal, &given.token) {
                (Formal::Value(_), _) => Argument::Value { position: place.start, is_used: Cell::new(false) },
                (Formal::Variable(_), &Token::Variable(name)) if given.span == place => {
                    Argument::Name(self.variable_name(name)?)
                }
                (Formal::Map(_), &Token::Map(name)) if given.span == place => Argument::Name(given.map_name(name)?),
                (Formal::Variable(_), _) => return Err(place.error(Problem::MacroVariable)),
                (Formal::Map(_), _) => return Err(place.error(Problem::NotAMap)),
            };
            fallible::push(&mut arguments, argument)?;
        }
        Ok((of, arguments))
    }

    /// Moves past the arguments of a call, if there are any, and returns their places.
    fn arguments(&mut self) -> Result<Vec<Span>, Error> {
        let mut places = Vec::new();
        let open = self.span;
        if !self.accept("(")? || self.accept(")")? {
            return Ok(places);
        }
        let (mut depth, mut first) = (0, self.span);
        loop {
            match self.token {
                Token::End => return Err(open.error(Problem::Expected { sign: ")" })),
                Token::Sign("," | ")") if depth == 0 => {
                    if self.span == first {
                        return Err(self.here(Problem::Value));
                    }
                    fallible::push(&mut places, first.to(self.last))?;
                    let is_last = self.token == Token::Sign(")");
                    self.advance()?;
                    if is_last {
                        return Ok(places);
                    }
                    first = self.span;
                    continue;
                }
                Token::Sign("(" | "[" | "{") => depth += 1,
                Token::Sign(")" | "]" | "}") => depth -= 1,
                _ => {}
            }
            self.advance()?;
        }
    }
}
