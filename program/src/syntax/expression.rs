//! Parses expressions, by operator precedence.

use alloc::string::String;
use alloc::vec::Vec;

use super::DEPTH_MAX;
use super::parser::{Parser, target};
use super::token::Token;
use super::tree::{Expression, ExpressionForm, MapReference, Operator, Spanned, TypeName, Unary};
use crate::builtins;
use crate::error::{Error, Problem, Span};
use crate::foreign;

/// A prefix of a value.
enum Prefix {
    Operator(Unary),
    Step { up: bool },
    Cast(TypeName),
}

// Functions off the recursive path are not inlined into it, so that the stack frame of each recursion stays small.
impl Parser<'_> {
    /// Parses an expression.
    pub fn value(&mut self) -> Result<Expression, Error> {
        self.deeper(|parser| {
            let condition = parser.binary(Operator::WEAKEST)?;
            if parser.token == Token::Sign("?") { parser.choice(condition) } else { Ok(condition) }
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
        let start = left.span;
        self.node(ExpressionForm::Binary { operator, left, right }, start)
    }

    fn unary(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        match self.prefix()? {
            Some(prefix) => self.prefixed(prefix, start),
            None => self.postfix(),
        }
    }

    /// Parses a prefix: a unary operator, a step, or a cast.
    #[inline(never)]
    fn prefix(&mut self) -> Result<Option<Prefix>, Error> {
        let prefix = match self.token {
            Token::Sign("-") => Prefix::Operator(Unary::Negate),
            Token::Sign("~") => Prefix::Operator(Unary::Invert),
            Token::Sign("!") => Prefix::Operator(Unary::Not),
            Token::Sign("*") => Prefix::Operator(Unary::Read),
            Token::Sign(sign @ ("++" | "--")) => Prefix::Step { up: sign == "++" },
            Token::Sign("(") => {
                let Token::Word(word) = self.second()? else { return Ok(None) };
                let Some(to) = TypeName::integer(word) else {
                    let Some(problem) = foreign::keyword(word) else { return Ok(None) };
                    self.advance()?;
                    return Err(self.here(problem));
                };
                self.advance()?;
                self.advance()?;
                let to = TypeName { pointer: self.accept("*")?, ..to };
                self.expect(")")?;
                return Ok(Some(Prefix::Cast(to)));
            }
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(prefix))
    }

    /// Parses the operand of `prefix`, and applies the prefix to it.
    #[inline(never)]
    fn prefixed(&mut self, prefix: Prefix, start: Span) -> Result<Expression, Error> {
        let operand = self.deeper(Self::unary)?;
        let form = match prefix {
            Prefix::Operator(operator) => ExpressionForm::Unary { operator, operand },
            Prefix::Step { up } => ExpressionForm::Step { target: target(operand)?, up, first: true },
            Prefix::Cast(to) => ExpressionForm::Cast { to, operand },
        };
        self.node(form, start)
    }

    /// Parses a value with its suffixes: `[i]`, `.field`, `->`, `++`, `--`.
    fn postfix(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let mut value = match self.token {
            Token::Sign("(") => self.parenthesized()?,
            Token::Map(_) | Token::Word(_) => self.named()?,
            _ => self.literal()?,
        };
        while let Token::Sign("[" | "++" | "--" | "." | "->") = self.token {
            value = self.suffixed(value, start)?;
        }
        Ok(value)
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
        let start = self.span;
        self.advance()?;
        let mut value = self.value()?;
        if self.accept(",")? {
            let mut parts = fallible::collect([value])?;
            fallible::extend(&mut parts, self.values(")")?)?;
            return self.node(ExpressionForm::Tuple(parts), start);
        }
        self.expect(")")?;
        value.span = start.to(self.last);
        Ok(value)
    }

    /// Parses a map, a call, or a builtin value.
    #[inline(never)]
    fn named(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let form = match self.token {
            Token::Map(name) => {
                self.advance()?;
                let keys = if self.accept("[")? { self.values("]")? } else { Vec::new() };
                ExpressionForm::Map(MapReference { name: fallible::copy(name)?, keys })
            }
            Token::Word(word) => {
                self.advance()?;
                if self.accept("(")? {
                    if word == "sizeof" && matches!(self.token, Token::Word(word) if TypeName::integer(word).is_some())
                    {
                        let TypeName { bits, pointer, .. } = self.type_name()?;
                        self.expect(")")?;
                        let bytes = if pointer { 8 } else { bits / 8 };
                        return self.node(ExpressionForm::Integer(bytes.into()), start);
                    }
                    let name: Spanned<String> = Spanned { node: fallible::copy(word)?, span: start };
                    let arguments = if self.accept(")")? { Vec::new() } else { self.values(")")? };
                    match builtins::is_callable(word) && arguments.is_empty() {
                        true => ExpressionForm::Builtin(name.node),
                        false => ExpressionForm::Call { name, arguments },
                    }
                } else {
                    match word {
                        _ if self.token == Token::Sign("::") => {
                            while self.accept("::")? {
                                let Token::Word(_) = self.token else { return Err(self.here(Problem::Value)) };
                                self.advance()?;
                            }
                            let path = start.to(self.last).of(self.cursor.text);
                            ExpressionForm::Path(fallible::copy(path)?)
                        }
                        "false" => ExpressionForm::Integer(0),
                        "true" => ExpressionForm::Integer(1),
                        _ => ExpressionForm::Builtin(fallible::copy(word)?),
                    }
                }
            }
            _ => return Err(self.here(Problem::Value)),
        };
        self.node(form, start)
    }

    /// Parses an integer type, or a pointer to one.
    pub fn type_name(&mut self) -> Result<TypeName, Error> {
        let Token::Word(word) = self.token else { return Err(self.here(Problem::Value)) };
        let unknown = self.here(foreign::keyword(word).unwrap_or(Problem::Word));
        let to = TypeName::integer(word).ok_or(unknown)?;
        self.advance()?;
        Ok(TypeName { pointer: self.accept("*")?, ..to })
    }

    #[inline(never)]
    fn literal(&mut self) -> Result<Expression, Error> {
        let start = self.span;
        let form = match &self.token {
            Token::Integer(value) => ExpressionForm::Integer(*value),
            Token::Text(text) => ExpressionForm::Text(fallible::copy(text)?),
            Token::Variable(name) => ExpressionForm::Variable(fallible::copy(name)?),
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

/// Returns whether a value can have named fields: an argument, a return value, or a part of one.
fn has_fields(value: &Expression) -> bool {
    match &*value.form {
        ExpressionForm::Builtin(name) => matches!(name.as_str(), "args" | "retval"),
        ExpressionForm::Field { .. } => true,
        ExpressionForm::Part { tuple: of, .. } | ExpressionForm::Index { pointer: of, .. } => has_fields(of),
        _ => false,
    }
}
