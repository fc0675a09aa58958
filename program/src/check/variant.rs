//! The variants of enums, which programs compare and print. A tag in the value tells the variant.

use alloc::vec::Vec;

use kprobes_types::{Tag, TypeKind};
use kprobes_vm::ir::{Arithmetic, Comparison, Op, Operand};

use super::clause::Clause;
use super::rust_place::RustPlace;
use super::value::{UNSIGNED, Value};
use crate::checked::RustValue;
use crate::error::{Error, Listed, Problem, Span};
use crate::syntax::{Expression, ExpressionForm, Operator};

impl Clause<'_, '_> {
    /// Returns the variant of an enum with fields.
    pub fn variant(&mut self, value: RustPlace, span: Span) -> Result<Value, Error> {
        let of = self.rust(value.of, span)?;
        let TypeKind::Variants { tag, variants } = of.kind else {
            return Err(span.error(Problem::NotAnEnum { of: of.name }));
        };
        let tags = Tags::of(tag.map_or(8, |tag| tag.bytes), variants.clone().filter_map(|variant| variant.value));
        let of_variant = self.checker.rust_type(RustValue::Variant { of: value.of, first: tags.first }, 1, span)?;
        let Some(tag) = tag else { return Ok(Value { at: Operand::Constant(u64::MAX), of: of_variant }) };
        let number = self.load(value.spot.at(tag.offset.into()), tag.bytes, UNSIGNED, span)?;
        let distance = self.distance(number, tag.bytes, tags.first, span)?;
        if variants.clone().all(|variant| variant.value.is_some()) {
            return Ok(Value { of: of_variant, ..distance });
        }
        let to = self.room(1, span)?;
        self.push(Op::Set { to, from: distance.at }, span)?;
        let (left, right) = (Operand::Word(to), Operand::Constant(tags.span));
        let mut exits = Vec::new();
        self.branch_if(Comparison::Below, left, right, &mut exits, span)?;
        self.push(Op::Set { to, from: Operand::Constant(u64::MAX) }, span)?;
        self.land(&exits);
        Ok(Value { at: left, of: of_variant })
    }

    /// Returns the distance of a tag from the tag `first`, truncated to the size of the tag.
    pub fn distance(&mut self, tag: Value, bytes: u8, first: u64, span: Span) -> Result<Value, Error> {
        if first == 0 {
            return Ok(tag);
        }
        let distance = self.compute(Arithmetic::Subtract, tag.at, Operand::Constant(first), UNSIGNED, span)?;
        match bytes {
            8 => Ok(distance),
            _ => {
                let from = distance.at;
                self.give(UNSIGNED, |to| Op::Extend { to, from, bits: 8 * bytes, signed: false }, span)
            }
        }
    }

    /// Returns the comparison of the tag of an enum with that of a variant: it holds exactly if they are equal, or
    /// unequal if `operator` is [`Operator::Unequal`]. `wanted` is the tag of the variant, and `values` are those of
    /// all variants that have one.
    pub fn has_tag(
        &mut self,
        operator: Operator,
        value: RustPlace,
        tag: Tag,
        wanted: Option<u64>,
        values: impl Iterator<Item = u64> + Clone,
        span: Span,
    ) -> Result<(Comparison, Operand, Operand), Error> {
        let is_unequal = operator == Operator::Unequal;
        let number = self.load(value.spot.at(tag.offset.into()), tag.bytes, UNSIGNED, span)?;
        if let Some(wanted) = wanted {
            let how = if is_unequal { Comparison::Unequal } else { Comparison::Equal };
            return Ok((how, number.at, Operand::Constant(wanted)));
        }
        let tags = Tags::of(tag.bytes, values);
        let distance = self.distance(number, tag.bytes, tags.first, span)?;
        let how = if is_unequal { Comparison::Below } else { Comparison::AboveEqual };
        Ok((how, distance.at, Operand::Constant(tags.span)))
    }

    /// Returns the comparison with a variant, if `path` names one and `value` is a Rust value. The result is a
    /// comparison of two numbers that holds exactly if `value operator path` does.
    pub fn is_variant(
        &mut self,
        operator: Operator,
        value: &Expression,
        path: &Expression,
    ) -> Result<Option<(Comparison, Operand, Operand)>, Error> {
        let (name, is_path) = match &*path.form {
            ExpressionForm::Path(path) => (path.as_str(), true),
            // Every variant begins with a capital letter, and no builtin value does.
            ExpressionForm::Builtin(name) => (name.as_str(), name.starts_with(|c: char| c.is_ascii_uppercase())),
            _ => return Ok(None),
        };
        let span = value.span;
        let Some(value) = self.rust_place(value)? else { return Ok(None) };
        let value = self.followed(value, span)?;
        let of = self.rust(value.of, span)?;
        let mut segments = name.rsplit("::").map(str::trim);
        let name = segments.next().unwrap_or("");
        // The segments before the variant are the type and the modules that contain it.
        let generic = of.name.split('<').next().unwrap_or("");
        let is_type = segments.next().is_none_or(|own| own == generic)
            && segments.zip(of.module.rsplit("::")).all(|(one, other)| one == other);
        let equal = matches!(operator, Operator::Equal);
        if !equal && operator != Operator::Unequal {
            return if is_path { Err(path.span.error(Problem::Order)) } else { Ok(None) };
        }
        let how = if equal { Comparison::Equal } else { Comparison::Unequal };
        let names = Listed::Variants(self.types(span)?, value.of);
        let no_variant = path.span.error(Problem::NoVariant { of: of.name, names });
        match of.kind {
            TypeKind::Enumeration { mut enumerators, .. } => {
                let Some(found) = enumerators.find(|one| one.name == name && is_type) else {
                    return if is_path { Err(no_variant) } else { Ok(None) };
                };
                let bytes = u8::try_from(of.size).unwrap_or(8);
                let number = self.load(value.spot, bytes, UNSIGNED, span)?;
                Ok(Some((how, number.at, Operand::Constant(found.value))))
            }
            TypeKind::Variants { tag, mut variants } => {
                let all = variants.clone();
                let Some(found) = variants.find(|one| one.name == name && is_type) else {
                    return if is_path { Err(no_variant) } else { Ok(None) };
                };
                let Some(tag) = tag else {
                    return Ok(Some((how, Operand::Constant(0), Operand::Constant(0))));
                };
                let values = all.filter_map(|one| one.value);
                self.has_tag(operator, value, tag, found.value, values, span).map(Some)
            }
            _ if is_path => Err(path.span.error(Problem::NotAnEnum { of: of.name })),
            _ => Ok(None),
        }
    }
}

/// The smallest range that contains the tags of all variants that have their own: its first number, and its length. The
/// range may wrap around at the size of the tag.
pub(super) struct Tags {
    pub first: u64,
    pub span: u64,
}

impl Tags {
    /// Returns the shortest range that contains all `values`, of tags of `bytes` bytes.
    pub fn of(bytes: u8, values: impl Iterator<Item = u64> + Clone) -> Self {
        let most = u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8)));
        let span = |first: u64| values.clone().map(|value| value.wrapping_sub(first) & most).max().unwrap_or(0);
        let first = values.clone().min_by_key(|&first| span(first)).unwrap_or(0);
        Self { first, span: span(first).saturating_add(1) }
    }
}
