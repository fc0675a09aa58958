//! Rust values: arguments by their names, return values, and fields, resolved through the table of types.
//!
//! A value is not read while the checker walks through its fields: it stays a place and a type until a number, a string
//! or a variant is needed. Then it is loaded in the same way as `*(u32 *)(arg0 + 8)`. A field access dereferences
//! references automatically, as in Rust.

use kprobes_types::{Flavor, Type as RustType, TypeId, TypeKind, Types, ValuePlace};
use kprobes_vm::ir::{Arithmetic, Builtin, Op, Operand, Type};

use super::clause::Clause;
use super::place::Spot;
use super::value::{UNSIGNED, Value};
use super::variable_group::VariableGroup;
use crate::checked::RustValue;
use crate::error::{Error, Listed, Problem, Span};
use crate::syntax::{Expression, ExpressionForm, Operator, Probe};

/// The maximum number of references and wrappers that are followed to reach a field. Types may be recursive.
pub(super) const STEPS_MAX: usize = 16;

/// A Rust value that is not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct RustPlace {
    pub of: TypeId,
    pub spot: Spot,
}

impl Clause<'_, '_> {
    pub fn types(&self, span: Span) -> Result<&'static Types<'static>, Error> {
        let types = self.checker.symbols.types().map_err(|problem| span.error(problem))?;
        types.ok_or(span.error(Problem::NoTypes))
    }

    /// Returns a type. Types refer only to types that are in the table, because the table was validated when it was
    /// loaded.
    pub fn rust(&self, of: TypeId, span: Span) -> Result<RustType<'static>, Error> {
        self.types(span)?.get(of).ok_or(span.error(Problem::DamagedTypes))
    }

    /// Returns whether all probes are at completed returns. At `return:` the function may continue in another one by a
    /// tail call.
    fn is_at_returns(&self) -> bool {
        self.probes.iter().all(|probe| matches!(probe.node, Probe::Kretprobe { .. }))
    }

    /// Returns the return value of the functions, if it is the same for all.
    fn returned(&mut self, span: Span) -> Result<RustPlace, Error> {
        self.allow(self.allowed.result, Problem::NoReturnValue, span)?;
        let (of, spot) = self.of_places(|function, _| function.returned().ok_or(Problem::DamagedTypes), span)?;
        match spot {
            Spot::Passed(ValuePlace::Nothing, _) => Err(span.error(Problem::NothingReturned)),
            Spot::Passed(ValuePlace::At(_), _) => {
                self.allow(self.is_at_returns(), Problem::KnownAtReturns, span)?;
                let address = self.give(UNSIGNED, |to| Op::Load { to, what: Builtin::Result }, span)?;
                Ok(RustPlace { of, spot: Spot::Memory(address.at, 0) })
            }
            // The functions return it in different ways.
            Spot::Places(..) => Err(span.error(Problem::Differs)),
            _ => Ok(RustPlace { of, spot }),
        }
    }

    /// Returns the Rust value that an expression denotes; `None` if it denotes no Rust value.
    pub fn rust_place(&mut self, expression: &Expression) -> Result<Option<RustPlace>, Error> {
        let span = expression.span;
        self.go_on(span)?;
        match &*expression.form {
            ExpressionForm::Builtin(name) if name == "retval" => self.place_of_result(span),
            ExpressionForm::Field { of, name } => match &*of.form {
                // A field of a static event is no Rust value: see `event`.
                ExpressionForm::Builtin(root) if root == "args" && self.is_at_events() => Ok(None),
                ExpressionForm::Builtin(root) if root == "retval" => {
                    self.field_of_result(name, of.span, span).map(Some)
                }
                ExpressionForm::Builtin(root) if let Some(group) = VariableGroup::of(root) => {
                    self.variable_of_function(group, name, span).map(Some)
                }
                _ => {
                    let Some(of) = self.rust_place(of)? else { return Ok(None) };
                    self.field(of, name, span).map(Some)
                }
            },
            ExpressionForm::Part { tuple, number } => {
                let Some(tuple) = self.rust_place(tuple)? else { return Ok(None) };
                let name = fallible::format(format_args!("{number}"))?;
                self.field(tuple, &name, span).map(Some)
            }
            ExpressionForm::Index { pointer, index } => self.or_none(|clause| {
                let Some(array) = clause.rust_place(pointer)? else { return Ok(None) };
                clause.place_of_element(array, pointer.span, index, span)
            }),
            _ => Ok(None),
        }
    }

    #[inline(never)]
    fn place_of_result(&mut self, span: Span) -> Result<Option<RustPlace>, Error> {
        match self.returned(span) {
            // Without type information, `retval` falls back to the number in x0.
            Err(Error {
                problem: Problem::NoTypes | Problem::NoSignature | Problem::Differs | Problem::NoMatch,
                ..
            }) => Ok(None),
            Ok(_) if !self.is_at_returns() => Ok(None),
            found => found.map(Some),
        }
    }

    #[inline(never)]
    fn field_of_result(&mut self, name: &str, at: Span, span: Span) -> Result<RustPlace, Error> {
        let of = self.returned(at)?;
        self.allow(self.is_at_returns(), Problem::KnownAtReturns, span)?;
        self.field(of, name, span)
    }

    /// Returns an element of an array; `None` if `array` is another value.
    #[inline(never)]
    fn place_of_element(
        &mut self,
        array: RustPlace,
        at: Span,
        index: &Expression,
        span: Span,
    ) -> Result<Option<RustPlace>, Error> {
        let array = self.followed(array, at)?;
        // Indexing a raw pointer to integers is handled as for other pointers.
        let TypeKind::Array { element, count } = self.rust(array.of, span)?.kind else { return Ok(None) };
        let number = self.value(index)?;
        let number = super::value::constant(number, index.span)?;
        if number >= count {
            return Err(index.span.error(Problem::Range { least: 0, most: count.saturating_sub(1) }));
        }
        let bytes = self.rust(element, span)?.size;
        Ok(Some(RustPlace { of: element, spot: array.spot.at(number.wrapping_mul(bytes)) }))
    }

    /// Returns the field of this name, in the value or in the value that it refers to.
    #[inline(never)]
    fn field(&mut self, value: RustPlace, name: &str, span: Span) -> Result<RustPlace, Error> {
        let mut value = value;
        for _ in 0..STEPS_MAX {
            let of = self.rust(value.of, span)?;
            match of.kind {
                TypeKind::Struct { ref members, .. } => {
                    if let Some(member) = members.clone().find(|member| member.name == name) {
                        return Ok(RustPlace { of: member.of, spot: value.spot.at(member.offset.into()) });
                    }
                    let types = self.types(span)?;
                    let problem = span.error(Problem::NoField { of: of.name, names: Listed::Fields(types, value.of) });
                    let only = types.only_member(&of).ok_or(problem)?;
                    // In a struct with one field that has bytes, fields are looked up in that field, too. A field that
                    // has no fields itself is reported for the struct.
                    let inner = self.rust(only.of, span)?;
                    let has_fields = match inner.kind {
                        TypeKind::Struct { .. } | TypeKind::Pointer { .. } | TypeKind::Wrapper { .. } => true,
                        TypeKind::Variants { tag, mut variants } => {
                            tag.is_none() || variants.any(|variant| variant.name == name)
                        }
                        _ => false,
                    };
                    if !has_fields {
                        return Err(problem);
                    }
                    value = RustPlace { of: only.of, spot: value.spot.at(only.offset.into()) };
                }
                TypeKind::Variants { tag: None, mut variants } => {
                    let only = variants.next().ok_or(span.error(Problem::FieldOfEnum { of: of.name }))?;
                    value = RustPlace { of: only.of, ..value };
                    if only.name == name {
                        return Ok(value);
                    }
                }
                TypeKind::Variants { tag: Some(tag), mut variants } => {
                    let all = variants.clone();
                    let problem = match name.starts_with(|c: char| c.is_ascii_uppercase()) {
                        true => {
                            Problem::NoVariant { of: of.name, names: Listed::Variants(self.types(span)?, value.of) }
                        }
                        false => Problem::FieldOfEnum { of: of.name },
                    };
                    let found = variants.find(|variant| variant.name == name).ok_or(span.error(problem))?;
                    let values = all.filter_map(|variant| variant.value);
                    let (how, left, right) = self.has_tag(Operator::Unequal, value, tag, found.value, values, span)?;
                    // As `let Some(x) = value else { return };`: the clause ends at values of other variants.
                    let mut ends = core::mem::take(&mut self.ends);
                    let outcome = self.branch_if(how, left, right, &mut ends, span);
                    self.ends = ends;
                    outcome?;
                    return Ok(RustPlace { of: found.of, ..value });
                }
                TypeKind::Pointer { .. } | TypeKind::Wrapper { .. } => {
                    value = self.inner(value, span)?.ok_or(span.error(Problem::DamagedTypes))?;
                }
                _ => return Err(span.error(Problem::NoField { of: of.name, names: Listed::Names(&[]) })),
            }
        }
        Err(span.error(Problem::Deep))
    }

    /// Returns the target of a pointer, or the content of a wrapper; `None` for other values.
    fn inner(&mut self, value: RustPlace, span: Span) -> Result<Option<RustPlace>, Error> {
        Ok(match self.rust(value.of, span)?.kind {
            TypeKind::Pointer { target, at, .. } => {
                let address = self.load(value.spot, 8, UNSIGNED, span)?;
                Some(RustPlace { of: target, spot: Spot::Memory(address.at, at.into()) })
            }
            TypeKind::Wrapper { target, at } => Some(RustPlace { of: target, spot: value.spot.at(at.into()) }),
            _ => None,
        })
    }

    /// Follows references, counted references and wrappers to the value behind them.
    pub fn followed(&mut self, value: RustPlace, span: Span) -> Result<RustPlace, Error> {
        let mut value = value;
        for _ in 0..STEPS_MAX {
            match self.rust(value.of, span)?.kind {
                TypeKind::Pointer { flavor: Flavor::Reference | Flavor::Shared, .. } | TypeKind::Wrapper { .. } => {
                    value = self.inner(value, span)?.ok_or(span.error(Problem::DamagedTypes))?;
                }
                _ => return Ok(value),
            }
        }
        Err(span.error(Problem::Deep))
    }

    /// Returns whether a value of type `of` is a pointer whose address is read where a number is needed.
    pub fn is_address(&self, of: TypeId, span: Span) -> Result<bool, Error> {
        let mut of = of;
        for _ in 0..STEPS_MAX {
            of = match self.rust(of, span)?.kind {
                TypeKind::Wrapper { target, .. } => target,
                TypeKind::Pointer { flavor, target, .. } => {
                    return Ok(flavor == Flavor::Raw || !is_read_through(&self.rust(target, span)?.kind));
                }
                _ => return Ok(false),
            };
        }
        Err(span.error(Problem::Deep))
    }

    /// Reads a value where a number, a string or an address is needed.
    #[inline(never)]
    pub fn scalar(&mut self, value: RustPlace, span: Span) -> Result<Value, Error> {
        let mut value = value;
        for _ in 0..STEPS_MAX {
            let of = self.rust(value.of, span)?;
            let bytes = u8::try_from(of.size).unwrap_or(u8::MAX);
            let no_number = span.error(Problem::NotANumber { of: of.name });
            value = match of.kind {
                TypeKind::Integer { signed } | TypeKind::Enumeration { signed, .. }
                    if matches!(bytes, 1 | 2 | 4 | 8) =>
                {
                    return self.load(value.spot, bytes, Type::Integer { signed }, span);
                }
                TypeKind::Bool => return self.load(value.spot, 1, UNSIGNED, span),
                TypeKind::Char => return self.load(value.spot, 4, UNSIGNED, span),
                TypeKind::Function => return self.load(value.spot, 8, Type::Symbol, span),
                TypeKind::Pointer { flavor, target, at } => {
                    let to = self.rust(target, span)?;
                    match (flavor, to.kind) {
                        (Flavor::Reference | Flavor::Shared, kind) if is_read_through(&kind) => {
                            self.followed(value, span)?
                        }
                        (Flavor::Raw, TypeKind::Integer { signed }) if matches!(to.size, 1 | 2 | 4 | 8) => {
                            let of = Type::Pointer { signed, bytes: to.size as u8 };
                            return self.load(value.spot, 8, of, span);
                        }
                        (Flavor::Shared, _) => {
                            let address = self.load(value.spot, 8, UNSIGNED, span)?;
                            let distance = Operand::Constant(at.into());
                            return self.compute(Arithmetic::Add, address.at, distance, UNSIGNED, span);
                        }
                        _ => return self.load(value.spot, 8, UNSIGNED, span),
                    }
                }
                TypeKind::Wrapper { .. } => self.inner(value, span)?.ok_or(no_number)?,
                TypeKind::Sequence { is_text: true, .. } => {
                    return self.sequence_text(value, None, span)?.ok_or(no_number);
                }
                TypeKind::Struct { .. } => {
                    let only = self.types(span)?.only_member(&of).ok_or(no_number)?;
                    // A field that is no number is reported for the whole struct.
                    if let TypeKind::Variants { .. } | TypeKind::Array { .. } | TypeKind::Unit | TypeKind::Opaque =
                        self.rust(only.of, span)?.kind
                    {
                        return Err(no_number);
                    }
                    RustPlace { of: only.of, spot: value.spot.at(only.offset.into()) }
                }
                _ => return Err(no_number),
            };
        }
        Err(span.error(Problem::Deep))
    }

    /// Returns the address and the number of elements of a string or a slice of bytes; `None` for other values.
    pub fn bytes_of(&mut self, value: RustPlace, span: Span) -> Result<Option<(Operand, Operand)>, Error> {
        let value = self.followed(value, span)?;
        let of = self.rust(value.of, span)?;
        Ok(match of.kind {
            TypeKind::Sequence { element, is_text, data, length } => {
                if !is_text && !self.rust(element, span)?.is_byte() {
                    return Ok(None);
                }
                let data = self.load(value.spot.at(data.into()), 8, UNSIGNED, span)?;
                Some((data.at, self.load(value.spot.at(length.into()), 8, UNSIGNED, span)?.at))
            }
            TypeKind::Array { element, count } => {
                let is_bytes = self.rust(element, span)?.is_byte();
                match self.in_memory(value.spot, span)? {
                    Some((base, offset)) if is_bytes => {
                        let at = self.compute(Arithmetic::Add, base, Operand::Constant(offset), UNSIGNED, span)?.at;
                        Some((at, Operand::Constant(count)))
                    }
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// Returns the number of elements of a slice, string or array; `None` for other values.
    pub fn count_of(&mut self, value: RustPlace, span: Span) -> Result<Option<Value>, Error> {
        let value = self.followed(value, span)?;
        Ok(match self.rust(value.of, span)?.kind {
            TypeKind::Sequence { length, .. } => Some(self.load(value.spot.at(length.into()), 8, UNSIGNED, span)?),
            TypeKind::Array { count, .. } => Some(Value::constant(count, false)),
            _ => None,
        })
    }

    /// Reads a number that is shown as its type in Rust says.
    pub fn named(&mut self, value: RustPlace, span: Span) -> Result<Value, Error> {
        let number = self.scalar(value, span)?;
        let of = self.checker.rust_type(RustValue::Whole(value.of), 1, span)?;
        Ok(Value { of, ..number })
    }

    /// Compiles a value that is shown. A `bool`, a `char` and an enum are shown as in Rust, with the variant only for
    /// an enum with fields. Other values are read as numbers.
    pub fn shown(&mut self, expression: &Expression) -> Result<Value, Error> {
        let span = expression.span;
        let Some(place) = self.rust_place(expression)? else { return self.value(expression) };
        let shown = self.or_none(|clause| {
            let value = clause.followed(place, span)?;
            Ok(match clause.rust(value.of, span)?.kind {
                TypeKind::Bool | TypeKind::Char | TypeKind::Enumeration { .. } => Some(clause.named(value, span)?),
                TypeKind::Variants { .. } => Some(clause.variant(value, span)?),
                _ => None,
            })
        })?;
        match shown {
            Some(shown) => Ok(shown),
            None => self.scalar(place, span),
        }
    }
}

/// Returns whether a reference to a value of this kind denotes the value, and not its address, where a number or a
/// string is needed.
fn is_read_through<M, V, E>(kind: &TypeKind<TypeId, M, V, E>) -> bool {
    match kind {
        TypeKind::Integer { .. }
        | TypeKind::Bool
        | TypeKind::Char
        | TypeKind::Enumeration { .. }
        | TypeKind::Sequence { .. } => true,
        TypeKind::Pointer { flavor, .. } => *flavor != Flavor::Raw,
        _ => false,
    }
}
