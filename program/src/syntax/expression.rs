//! Parses expressions, by operator precedence.

use alloc::string::String;
use alloc::vec::Vec;

use super::DEPTH_MAX;
use super::parser::Parser;
use super::token::{TEXT_MAX, Token};
use super::tree::{Expression, ExpressionForm, MapReference, Operator, Spanned, Target, TypeForm, TypeName, Unary};
use crate::builtins;
use crate::error::{Error, Problem, Span};
use crate::foreign;

/// A prefix of a value.
enum Prefix {
    Operator(Unary),
    Step { up: bool },
    Cast(TypeForm),
}

// Functions off the recursive path are not inlined into it, so that the stack frame of each recursion stays small.
impl Parser<'_> {
    /// Parses an expression.
    pub fn value(&mut self) -> Result<Expression, Error> {
        self.deeper(|parser| {
            let value = parser.binary(Operator::WEAKEST)?;
            if parser.token == Token::Sign("?") { parser.choice(value) } else { Ok(value) }
        })
    }

    /// Parses the rest of a `?:` after its condition.
    #[inline(never)]
    fn choice(&mut self, condition: Expression) -> Result<Expression, Error> {
        self.advance()?;
        let start = condition.span;
        let then = self.value()?;
        self.expect(":")?;
        let otherwise = self.value()?;
        self.node(ExpressionForm::Choice { condition, then, otherwise }, start)
    }

    /// Creates a node whose span is from `start` to the last token.
    #[inline(never)]
    pub fn node(&self, form: ExpressionForm, start: Span) -> Result<Expression, Error> {
        let value = Expression::new(form, start.to(self.last))?;
        if value.height + self.depth > DEPTH_MAX { Err(value.span.error(Problem::Deep)) } else { Ok(value) }
    }

    /// Parses values with binary operators of precedence `weakest` or higher.
    fn binary(&mut self, weakest: u8) -> Result<Expression, Error> {
        let mut left = self.unary()?;
        while let Some(operator) = self.operator().filter(|operator| operator.strength() >= weakest) {
            left = self.operation(operator, left)?;
        }
        Ok(left)
    }

    /// Returns the binary operator that is the next token. `value is Variant` means `value == Variant`.
    fn operator(&self) -> Option<Operator> {
        match self.token {
            Token::Sign(sign) => Operator::of_sign(sign),
            Token::Word("is") => Some(Operator::Equal),
            _ => None,
        }
    }

    /// Parses the next operator and its right operand, and joins them with `left`.
    #[inline(never)]
    fn operation(&mut self, operator: Operator, left: Expression) -> Result<Expression, Error> {
        self.advance()?;
        let right = self.deeper(|parser| parser.binary(operator.strength() + 1))?;
        self.joined(operator, left, right)
    }

    /// Creates the node of a binary operation. Two strings that are added are one string.
    #[inline(never)]
    fn joined(&self, operator: Operator, left: Expression, right: Expression) -> Result<Expression, Error> {
        let start = left.span;
        if let (Operator::Add, ExpressionForm::Text(first), ExpressionForm::Text(second)) =
            (operator, &*left.form, &*right.form)
        {
            if first.len() + second.len() > TEXT_MAX {
                return Err(start.to(self.last).error(Problem::LongText { most: TEXT_MAX }));
            }
            return self.node(ExpressionForm::Text(fallible::format(format_args!("{first}{second}"))?), start);
        }
        self.node(ExpressionForm::Binary { operator, left, right }, start)
    }

    fn unary(&mut self) -> Result<Expression, Error> {
        if self.is_prefix()? { self.prefixed() } else { self.postfix() }
    }

    /// Returns whether the next token is a prefix, or begins a cast.
    #[inline(never)]
    fn is_prefix(&self) -> Result<bool, Error> {
        Ok(match self.token {
            Token::Sign("(") => match self.second()? {
                Token::Word(word) => self.is_type(word)? && !self.is_record()?,
                _ => false,
            },
            Token::Sign(sign) => ["-", "~", "!", "*", "++", "--"].contains(&sign),
            _ => false,
        })
    }

    /// Parses a prefix: a unary operator, a step, or a cast.
    #[inline(never)]
    fn prefix(&mut self) -> Result<Prefix, Error> {
        let prefix = match self.token {
            Token::Sign("-") => Prefix::Operator(Unary::Negate),
            Token::Sign("~") => Prefix::Operator(Unary::Invert),
            Token::Sign("!") => Prefix::Operator(Unary::Not),
            Token::Sign("*") => Prefix::Operator(Unary::Read),
            Token::Sign(sign @ ("++" | "--")) => Prefix::Step { up: sign == "++" },
            _ => {
                self.expect("(")?;
                let to = self.type_form()?;
                self.expect(")")?;
                return Ok(Prefix::Cast(to));
            }
        };
        self.advance()?;
        Ok(prefix)
    }

    /// Parses a prefix and its operand.
    #[inline(never)]
    fn prefixed(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let prefix = self.prefix()?;
        let operand = self.deeper(Self::unary)?;
        let form = match prefix {
            Prefix::Operator(operator) => ExpressionForm::Unary { operator, operand },
            Prefix::Step { up } => ExpressionForm::Step { target: target(operand)?, up, first: true },
            Prefix::Cast(to) => ExpressionForm::Cast { to, operand },
        };
        self.node(form, start)
    }

    /// Parses a value with its suffixes: `[i]`, `.field`, `->`, `++`, `--`.
    #[inline(never)]
    fn postfix(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let mut value = self.primary()?;
        while let Token::Sign("[" | "++" | "--" | "." | "->") = self.token {
            value = self.suffixed(value, start)?;
        }
        Ok(value)
    }

    /// Parses a value without prefixes and suffixes.
    #[inline(never)]
    fn primary(&mut self) -> Result<Expression, Error> {
        match self.token {
            Token::Sign("(") => self.parenthesized(),
            Token::Sign("{") => self.block_expression(),
            Token::Map(_) | Token::Word(_) => self.named(),
            Token::Positional(place) => self.positional(place),
            _ => self.literal(),
        }
    }

    #[inline(never)]
    fn block_expression(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let block = self.value_block()?;
        self.expect("}")?;
        self.node(block, start)
    }

    /// Parses one suffix of `value`.
    #[inline(never)]
    fn suffixed(&mut self, value: Expression, start: Span) -> Result<Expression, Error> {
        if self.accept("[")? {
            let index = self.value()?;
            self.expect("]")?;
            return self.node(ExpressionForm::Index { pointer: value, index }, start);
        }
        if let Token::Sign(sign @ ("." | "->")) = self.token {
            if let (".", Token::Integer(number)) = (sign, self.second()?) {
                self.advance()?;
                self.advance()?;
                return self.node(ExpressionForm::Part { tuple: value, number }, start);
            }
            if has_fields(&value) {
                self.advance()?;
                let Token::Word(name) = self.token else { return Err(self.here(Problem::FieldName)) };
                let name = fallible::copy(name)?;
                self.advance()?;
                return self.node(ExpressionForm::Field { of: value, name }, start);
            }
            let whole = match &*value.form {
                ExpressionForm::Builtin(name) => foreign::value(name).map(|problem| value.span.error(problem)),
                _ => None,
            };
            return Err(whole.unwrap_or_else(|| self.here(foreign::field(sign))));
        }
        let (target, up) = (target(value)?, self.token == Token::Sign("++"));
        self.advance()?;
        self.node(ExpressionForm::Step { target, up, first: false }, start)
    }

    #[inline(never)]
    fn parenthesized(&mut self) -> Result<Expression, Error> {
        let (start, is_record) = (self.span, self.is_record()?);
        self.advance()?;
        if is_record {
            return self.record(start);
        }
        if self.token == Token::Sign(")") {
            return self.tuple(None, start);
        }
        let value = self.value()?;
        if self.accept(",")? {
            return self.tuple(Some(value), start);
        }
        self.expect(")")?;
        Ok(Expression { span: start.to(self.last), ..value })
    }

    /// Returns whether the parenthesis that is the next token begins a record: a name and a `=` follow.
    fn is_record(&self) -> Result<bool, Error> {
        let mut ahead = self.cursor;
        Ok(matches!(ahead.token()?.0, Token::Word(_)) && ahead.next_sign()? == Some("="))
    }

    /// Parses the rest of a tuple after its first part, or of the empty tuple after its parenthesis.
    #[inline(never)]
    fn tuple(&mut self, first: Option<Expression>, start: Span) -> Result<Expression, Error> {
        let mut parts = fallible::collect(first)?;
        while !self.accept(")")? {
            fallible::push(&mut parts, self.value()?)?;
            if !self.accept(",")? {
                self.expect(")")?;
                break;
            }
        }
        self.node(ExpressionForm::Tuple(parts), start)
    }

    /// Parses a record after its parenthesis.
    #[inline(never)]
    fn record(&mut self, start: Span) -> Result<Expression, Error> {
        let mut parts: Vec<(String, Expression)> = Vec::new();
        loop {
            let Token::Word(name) = self.token else { return Err(self.here(Problem::FieldName)) };
            if parts.iter().any(|(other, _)| other == name) {
                return Err(self.here(Problem::FieldTwice));
            }
            let name = fallible::copy(name)?;
            self.advance()?;
            self.expect("=")?;
            fallible::push(&mut parts, (name, self.value()?))?;
            if !self.accept(",")? {
                self.expect(")")?;
                return self.node(ExpressionForm::Record(parts), start);
            }
        }
    }

    /// Parses a map, a call, or a builtin value.
    fn named(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        match self.token {
            Token::Map(name) => self.map(name, start),
            Token::Word(word) if self.is_substituted(word)? => self.substitute(word, start),
            Token::Word(word) => {
                self.advance()?;
                match self.accept("(")? {
                    true if word == "sizeof" && self.is_type_next()? => self.size(start),
                    true if word == "getopt" => self.parameter(start),
                    true => self.call(word, start),
                    false => self.word(word, start),
                }
            }
            _ => Err(self.here(Problem::Value)),
        }
    }

    #[inline(never)]
    fn map(&mut self, name: &str, start: Span) -> Result<Expression, Error> {
        let name = self.map_name(name)?;
        self.advance()?;
        let keys = if self.accept("[")? { self.values("]")? } else { Vec::new() };
        self.node(ExpressionForm::Map(MapReference { name, keys }), start)
    }

    /// Parses the argument of the parameter `word`, or the block of the macro `word`.
    #[inline(never)]
    fn substitute(&mut self, word: &str, start: Span) -> Result<Expression, Error> {
        let argument = self.argument(word)?;
        self.advance()?;
        match argument {
            Some(mut argument) => {
                let value = argument.value()?;
                self.end_argument(word, &argument, start)?;
                Ok(value)
            }
            None => self.expansion(word, start),
        }
    }

    /// Parses a call of `word` after its first parenthesis.
    #[inline(never)]
    fn call(&mut self, word: &str, start: Span) -> Result<Expression, Error> {
        if word == "str"
            && let Some(text) = self.positional_text(start)?
        {
            return Ok(text);
        }
        let arguments = if self.accept(")")? { Vec::new() } else { self.values(")")? };
        let name = fallible::copy(word)?;
        let form = match arguments.is_empty() && (builtins::is_callable(word) || word == "config") {
            true => ExpressionForm::Builtin(name),
            false => ExpressionForm::Call { name: Spanned { node: name, span: start }, arguments },
        };
        self.node(form, start)
    }

    /// Parses the rest of `sizeof(type)` from the type on.
    #[inline(never)]
    fn size(&mut self, start: Span) -> Result<Expression, Error> {
        let of = self.type_form()?;
        self.expect(")")?;
        let form = match of {
            TypeForm::Named(TypeName { bits, pointer: false, .. }) => ExpressionForm::Integer(u64::from(bits / 8)),
            TypeForm::Array { element, count: Some(count) } => {
                ExpressionForm::Integer(u64::from(element.bits / 8).saturating_mul(count))
            }
            TypeForm::Array { count: None, .. } => return Err(self.here(Problem::ArrayLength)),
            TypeForm::Of { value, pointer: false } => ExpressionForm::Call {
                name: Spanned { node: fallible::copy("sizeof")?, span: start },
                arguments: fallible::collect([value])?,
            },
            _ => ExpressionForm::Integer(8),
        };
        self.node(form, start)
    }

    /// Parses the rest of a path, or of a builtin value, after its first word.
    #[inline(never)]
    fn word(&mut self, word: &str, start: Span) -> Result<Expression, Error> {
        let is_path = self.token == Token::Sign("::");
        while self.accept("::")? {
            let Token::Word(_) = self.token else { return Err(self.here(Problem::Value)) };
            self.advance()?;
        }
        let form = match word {
            _ if let Some(problem) = foreign::type_name(word).filter(|_| !is_path) => return Err(start.error(problem)),
            _ if is_path => ExpressionForm::Path(fallible::copy(start.to(self.last).of(self.cursor.text))?),
            "false" => ExpressionForm::Integer(0),
            "true" => ExpressionForm::Integer(1),
            _ => ExpressionForm::Builtin(fallible::copy(word)?),
        };
        self.node(form, start)
    }

    /// Returns whether a type is next.
    #[inline(never)]
    pub fn is_type_next(&self) -> Result<bool, Error> {
        if let Token::Word(word) = self.token { self.is_type(word) } else { Ok(false) }
    }

    /// Returns whether a type begins with `word`.
    #[inline(never)]
    fn is_type(&self, word: &str) -> Result<bool, Error> {
        Ok(match TypeName::integer(word) {
            None if let Some(argument) = self.argument(word)? => argument.is_type_next()?,
            name => name.is_some() || word == "typeof",
        })
    }

    /// Parses a type: an integer, or the type of a value, or a pointer to one of these.
    #[inline(never)]
    pub fn type_form(&mut self) -> Result<TypeForm, Error> {
        let Token::Word(word) = self.token else { return Err(self.here(Problem::Value)) };
        let unknown = self.here(foreign::type_name(word).unwrap_or(Problem::Word));
        let name = TypeName::integer(word);
        let (argument, start) = (self.argument(word)?, self.span);
        self.advance()?;
        let mut to = match (name, argument) {
            (Some(name), _) => TypeForm::Named(name),
            (None, Some(mut argument)) => {
                let to = argument.type_form()?;
                self.end_argument(word, &argument, start)?;
                to
            }
            (None, None) if word == "typeof" => {
                self.expect("(")?;
                let of = match self.token {
                    Token::Word(word) if self.is_type(word)? => self.deeper(Self::type_form)?,
                    _ => TypeForm::Of { value: self.value()?, pointer: false },
                };
                self.expect(")")?;
                of
            }
            (None, None) => return Err(unknown),
        };
        if let TypeForm::Named(element @ TypeName { pointer: false, .. }) = to
            && self.accept("[")?
        {
            let count = if let Token::Integer(count) = self.token { Some(count) } else { None };
            if count.is_some() {
                self.advance()?;
            }
            self.expect("]")?;
            return Ok(TypeForm::Array { element, count });
        }
        let pointer = match &mut to {
            TypeForm::Named(TypeName { pointer, .. }) | TypeForm::Of { pointer, .. } => pointer,
            TypeForm::Array { .. } => return Ok(to),
        };
        if self.token == Token::Sign("*") {
            if core::mem::replace(pointer, true) {
                return Err(self.here(Problem::Value));
            }
            self.advance()?;
        }
        Ok(to)
    }

    #[inline(never)]
    pub fn literal(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let form = match &self.token {
            Token::Integer(value) => ExpressionForm::Integer(*value),
            Token::Text(text) => ExpressionForm::Text(fallible::copy(text)?),
            Token::Variable(name) => ExpressionForm::Variable(self.variable_name(name)?),
            Token::Sign("&") => return Err(self.here(foreign::ADDRESS)),
            _ => return Err(self.here(Problem::Value)),
        };
        self.advance()?;
        self.node(form, start)
    }

    /// Parses at least one value, separated by commas, up to the token `end`.
    fn values(&mut self, end: &'static str) -> Result<Vec<Expression>, Error> {
        let mut values = fallible::collect([self.value()?])?;
        while self.accept(",")? {
            fallible::push(&mut values, self.value()?)?;
        }
        self.expect(end)?;
        Ok(values)
    }
}

/// Returns whether a value can have named fields: arguments, locals, a return value, the settings, or a value that may
/// be a record.
fn has_fields(value: &Expression) -> bool {
    match &*value.form {
        ExpressionForm::Builtin(name) => matches!(name.as_str(), "args" | "locals" | "retval" | "config"),
        ExpressionForm::Field { .. }
        | ExpressionForm::Variable(_)
        | ExpressionForm::Map(_)
        | ExpressionForm::Record(_)
        | ExpressionForm::Choice { .. }
        | ExpressionForm::Block { .. } => true,
        ExpressionForm::Part { tuple: of, .. } | ExpressionForm::Index { pointer: of, .. } => has_fields(of),
        _ => false,
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
