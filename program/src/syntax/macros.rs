//! Macros: `macro name($variable, @map, value) { … }`. A call is replaced by the block of the macro, which is parsed
//! anew for each call, so that errors are marked in it.
//!
//! A macro sees nothing of its caller but its parameters. A parameter `$v` or `@m` is another name for a variable or a
//! map of the caller. Where any other parameter is named, its argument stands, parsed in the scope of the caller.
//! Variables that the block makes itself get names that the text does not contain.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;

use super::parser::Parser;
use super::token::{Cursor, Token};
use super::tree::Expression;
use crate::error::{Error, Problem, Span};

/// The maximum number of calls of macros and uses of their arguments in a program. It bounds the time to parse macros
/// whose calls double.
const EXPANSIONS_MAX: usize = 1000;

/// The macros of a program, and what their calls share.
#[derive(Default)]
pub(super) struct Macros<'a> {
    all: Vec<Macro<'a>>,
    /// The number of calls and uses so far.
    expansions: Cell<usize>,
}

/// A macro.
struct Macro<'a> {
    name: &'a str,
    formals: Vec<Formal<'a>>,
    /// The offset of the block.
    body: usize,
}

/// A formal parameter of a macro, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formal<'a> {
    Variable(&'a str),
    Map(&'a str),
    Value(&'a str),
}

/// A call of a macro, while its block is parsed.
pub(super) struct Scope<'a> {
    of: &'a Macro<'a>,
    arguments: &'a [Argument],
    /// The number in the names of the variables that the block makes.
    number: usize,
    /// The scope of the caller.
    outer: Option<&'a Scope<'a>>,
}

/// What stands for a parameter.
enum Argument {
    /// The name of a variable or a map.
    Name(String),
    /// The offset of a value or a type, and whether the block has named it so far.
    Value { position: usize, is_used: Cell<bool> },
}

impl<'a> Macros<'a> {
    /// Finds the macros in the text of a program. What is wrong outside of their heads is left to the parser.
    pub fn find(text: &'a str) -> Result<Self, Error> {
        let mut macros = Self::default();
        if !text.contains("macro") {
            return Ok(macros);
        }
        let mut cursor = Cursor { text, position: 0 };
        while let Ok(true) = skip_to_macro(&mut cursor) {
            let (found, span) = Macro::read(&mut cursor)?;
            if macros.of_name(found.name, found.formals.len()).is_some() {
                return Err(span.error(Problem::MacroTwice));
            }
            fallible::push(&mut macros.all, found)?;
        }
        Ok(macros)
    }

    fn of_name(&self, name: &str, arity: usize) -> Option<&Macro<'a>> {
        self.all.iter().find(|one| one.name == name && one.formals.len() == arity)
    }

    /// Returns the least and the greatest number of parameters of the macros with this name.
    fn arity(&self, name: &str) -> Option<(usize, usize)> {
        let counts = || self.all.iter().filter(|one| one.name == name).map(|one| one.formals.len());
        counts().min().zip(counts().max())
    }

    /// Counts a call or a use, and returns its number. No name in `text` ends with `__` and the number.
    fn count(&self, text: &str, span: Span) -> Result<usize, Error> {
        loop {
            let number = self.expansions.get() + 1;
            if number > EXPANSIONS_MAX {
                return Err(span.error(Problem::Expansions { most: EXPANSIONS_MAX }));
            }
            self.expansions.set(number);
            if !text.contains(fallible::format(format_args!("__{number}"))?.as_str()) {
                return Ok(number);
            }
        }
    }
}

impl<'a> Macro<'a> {
    /// Reads a macro from its name on, and moves past its block. Returns the place of its name, too.
    fn read(cursor: &mut Cursor<'a>) -> Result<(Self, Span), Error> {
        let (token, span) = cursor.token()?;
        let Token::Word(name) = token else { return Err(span.error(Problem::MacroHead)) };
        expect(cursor, "(")?;
        let mut formals = Vec::new();
        let mut ahead = *cursor;
        if ahead.token()?.0 == Token::Sign(")") {
            *cursor = ahead;
        } else {
            loop {
                let (token, span) = cursor.token()?;
                fallible::push(
                    &mut formals,
                    match token {
                        Token::Variable(name) => Formal::Variable(name),
                        Token::Map(name) => Formal::Map(name),
                        Token::Word(name) => Formal::Value(name),
                        _ => return Err(span.error(Problem::MacroHead)),
                    },
                )?;
                match cursor.token()? {
                    (Token::Sign(","), _) => {}
                    (Token::Sign(")"), _) => break,
                    (_, span) => return Err(span.error(Problem::Expected { sign: ")" })),
                }
            }
        }
        cursor.skip_blank()?;
        let body = cursor.position;
        skip_block(cursor)?;
        Ok((Self { name, formals, body }, span))
    }
}

/// Moves past `sign`, or returns an error if it is not the next token.
fn expect(cursor: &mut Cursor<'_>, sign: &'static str) -> Result<(), Error> {
    match cursor.token()? {
        (Token::Sign(found), _) if found == sign => Ok(()),
        (_, span) => Err(span.error(Problem::Expected { sign })),
    }
}

/// Moves past a block in braces.
pub(super) fn skip_block(cursor: &mut Cursor<'_>) -> Result<(), Error> {
    let open = cursor.ahead()?;
    expect(cursor, "{")?;
    let mut depth = 1;
    while depth > 0 {
        match cursor.token()?.0 {
            Token::Sign("{") => depth += 1,
            Token::Sign("}") => depth -= 1,
            Token::End => return Err(open.error(Problem::OpenBlock)),
            _ => {}
        }
    }
    Ok(())
}

/// Moves past the word `macro` that is next at the top of the text; returns `false` if there is none.
fn skip_to_macro(cursor: &mut Cursor<'_>) -> Result<bool, Error> {
    loop {
        cursor.skip_blank()?;
        let mut ahead = *cursor;
        match ahead.word() {
            "macro" => {
                *cursor = ahead;
                return Ok(true);
            }
            "config" => {
                *cursor = ahead;
                expect(cursor, "=")?;
            }
            "let" => {
                while !matches!(cursor.token()?.0, Token::Sign(";") | Token::End) {}
                continue;
            }
            _ if cursor.rest().is_empty() => return Ok(false),
            _ => {
                super::parser::probe_list(cursor, &mut Vec::new())?;
                let mut ahead = *cursor;
                if let Token::Sign("/") | Token::EndPredicate = ahead.token()?.0 {
                    while !matches!(ahead.token()?.0, Token::EndPredicate | Token::End) {}
                    *cursor = ahead;
                }
            }
        }
        skip_block(cursor)?;
    }
}

impl<'a> Parser<'a> {
    /// Moves past the head of a macro, after the word `macro`, and past its block. The macro is known already.
    pub fn skip_macro(cursor: &mut Cursor<'a>) -> Result<(), Error> {
        Macro::read(cursor).map(drop)
    }

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

    /// Returns a parser for the argument of the parameter `name`; `None` if there is none.
    pub fn argument(&self, name: &str) -> Result<Option<Parser<'a>>, Error> {
        let Some(scope) = self.scope else { return Ok(None) };
        let Some(&Argument::Value { position, .. }) = scope.argument(Formal::Value(name)) else { return Ok(None) };
        Ok(Some(self.elsewhere(position, scope.outer)?))
    }

    /// Checks that `given`, the parser for the argument of the parameter `name`, which is at `span`, has come to its
    /// end.
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

    /// Parses the arguments that the block of a macro has not used, only to refuse what is wrong in them.
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

    /// Returns whether `word` is a macro, or a parameter for whose name its argument stands.
    pub fn is_substituted(&self, word: &str) -> bool {
        let is_formal = self.scope.is_some_and(|scope| scope.argument(Formal::Value(word)).is_some());
        is_formal || self.macros.arity(word).is_some()
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

impl Scope<'_> {
    fn argument(&self, formal: Formal<'_>) -> Option<&Argument> {
        let at = self.of.formals.iter().position(|one| *one == formal)?;
        self.arguments.get(at)
    }
}
