//! The macros of a program, `macro name($variable, @map, value) { … }`, and the scopes of their calls.
//!
//! A macro sees nothing of its caller but its parameters. A parameter `$v` or `@m` is another name for a variable or a
//! map of the caller. Any other parameter stands for its argument, which is parsed in the scope of the caller.
//! Variables that the block itself makes get names that the text does not contain.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;

use super::probe;
use super::token::{Cursor, Token};
use crate::error::{Error, Problem, Span};

/// The maximum number of calls of macros and uses of their arguments in a program. It bounds the time to parse macros
/// that call each other several times.
const EXPANSIONS_MAX: usize = 1000;
/// The maximum number of tokens that are parsed of a program, those of a macro at each call, and those of an argument at
/// each use. It bounds the memory of the parsed program.
const TOKENS_MAX: usize = 1 << 14;

/// The macros of a program, and the counters that their calls share.
#[derive(Default)]
pub(super) struct Macros<'a> {
    all: Vec<Macro<'a>>,
    /// The number of calls and of uses of arguments so far.
    expansions: Cell<usize>,
    /// The number of tokens that have been parsed.
    tokens: Cell<usize>,
}

/// A macro.
pub(super) struct Macro<'a> {
    name: &'a str,
    pub formals: Vec<Formal<'a>>,
    /// The offset of the block.
    pub body: usize,
}

/// A formal parameter of a macro, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Formal<'a> {
    Variable(&'a str),
    Map(&'a str),
    Value(&'a str),
}

/// A call of a macro, while its block is parsed.
pub(super) struct Scope<'a> {
    pub of: &'a Macro<'a>,
    pub arguments: &'a [Argument],
    /// The number that the names of the block's own variables end with.
    pub number: usize,
    /// The scope of the caller.
    pub outer: Option<&'a Scope<'a>>,
}

/// The argument for a parameter.
pub(super) enum Argument {
    /// The name of a variable or a map.
    Name(String),
    /// The offset of a value or a type, and whether the block has named it so far.
    Value { position: usize, is_used: Cell<bool> },
}

impl<'a> Macros<'a> {
    /// Finds the macros in the text of a program. The parser reports the problems outside of their heads.
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

    /// Returns the macro with this name and number of parameters.
    pub fn of_name(&self, name: &str, arity: usize) -> Option<&Macro<'a>> {
        self.all.iter().find(|one| one.name == name && one.formals.len() == arity)
    }

    /// Returns the least and the greatest number of parameters of the macros with this name.
    pub fn arity(&self, name: &str) -> Option<(usize, usize)> {
        let counts = || self.all.iter().filter(|one| one.name == name).map(|one| one.formals.len());
        counts().min().zip(counts().max())
    }

    /// Counts a call or a use of an argument, and returns its number. `text` does not contain `__` followed by the
    /// number.
    pub fn count(&self, text: &str, span: Span) -> Result<usize, Error> {
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

    /// Counts a token that is parsed, at `span`.
    pub fn count_token(&self, span: Span) -> Result<(), Error> {
        let number = self.tokens.get() + 1;
        self.tokens.set(number);
        if number > TOKENS_MAX { Err(span.error(Problem::Expanded { most: TOKENS_MAX })) } else { Ok(()) }
    }
}

impl<'a> Macro<'a> {
    /// Reads a macro from its name on, and moves past its block. Returns the macro, and the place of its name.
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
                let formal = match token {
                    Token::Variable(name) => Formal::Variable(name),
                    Token::Map(name) => Formal::Map(name),
                    Token::Word(name) => Formal::Value(name),
                    _ => return Err(span.error(Problem::MacroHead)),
                };
                if formals.contains(&formal) {
                    return Err(span.error(Problem::FormalTwice));
                }
                fallible::push(&mut formals, formal)?;
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

/// Moves past the head of a macro, after the word `macro`, and past its block.
pub(super) fn skip(cursor: &mut Cursor<'_>) -> Result<(), Error> {
    Macro::read(cursor).map(drop)
}

/// Moves past `sign`, or returns an error if it is not the next token.
fn expect(cursor: &mut Cursor<'_>, sign: &'static str) -> Result<(), Error> {
    match cursor.token()? {
        (Token::Sign(found), _) if found == sign => Ok(()),
        (_, span) => Err(span.error(Problem::Expected { sign })),
    }
}

/// Moves past a block in braces.
fn skip_block(cursor: &mut Cursor<'_>) -> Result<(), Error> {
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
                skip_block(cursor)?;
                cursor.skip_blank()?;
                cursor.position += usize::from(cursor.rest().starts_with(';'));
                continue;
            }
            "let" => {
                while !matches!(cursor.token()?.0, Token::Sign(";") | Token::End) {}
                continue;
            }
            _ if cursor.rest().is_empty() => return Ok(false),
            _ => {
                probe::list(cursor, &mut Vec::new())?;
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

impl Scope<'_> {
    /// Returns the argument for a parameter.
    pub fn argument(&self, formal: Formal<'_>) -> Option<&Argument> {
        let at = self.of.formals.iter().position(|one| *one == formal)?;
        self.arguments.get(at)
    }
}
