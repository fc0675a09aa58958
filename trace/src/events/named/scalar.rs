//! How an event records a located value: as a number or as a text, and of which type, if its definition names none.

use alloc::vec::Vec;
use core::fmt;

use kprobes_types::{Flavor, Type as Rust, TypeId, TypeKind as Shape};

use super::path::Value;
use super::spot::{Spot, small};
use super::{ArgumentError, Names, STEPS_MAX, Signature};
use crate::definition::{Argument, Named, Problem};
use crate::fetch::{BitRange, Fetch, RecordedPart};
use crate::format::{Base, Type, Width};
use crate::recorder::EntryValue;

/// A value in the form that an event can record.
enum Scalar {
    /// A number: its location, its size in bytes, and the type that it gets.
    Number(Spot, u64, Base),
    /// A text: the locations of its address and of its length.
    Text(Spot, Spot),
    /// Neither a number nor a text.
    Other(Value),
}

impl<'a> Signature<'a> {
    /// Reduces a value to the form that an event can record.
    fn scalar(&self, value: Value, named: &Named, kept: &mut Vec<EntryValue>) -> Result<Scalar, ArgumentError> {
        let Value { mut of, mut spot } = value;
        let mut is_behind = false;
        for _ in 0..STEPS_MAX {
            let shape = self.get(of)?;
            let bytes = shape.size;
            let width = Width::of_bytes(bytes);
            let base = match shape.kind.clone() {
                Shape::Integer { signed: true } | Shape::Enumeration { signed: true, .. } => width.map(Base::Signed),
                Shape::Integer { .. } | Shape::Enumeration { .. } | Shape::Bool | Shape::Char => {
                    width.map(Base::Unsigned)
                }
                Shape::Float => width.map(Base::Hexadecimal),
                Shape::Function if bytes == 8 => Some(Base::Symbol),
                Shape::Pointer { flavor, target, at } if bytes == 8 => {
                    // A reference to a text stands for the text; any other pointer is an address.
                    if flavor == Flavor::Raw || !self.leads_to_text(target) {
                        Some(Base::Hexadecimal(Width::W64))
                    } else {
                        spot = self.pointed(spot, at.into(), named, kept)?;
                        (of, is_behind) = (target, true);
                        continue;
                    }
                }
                Shape::Wrapper { target, at } => {
                    (of, spot) = (target, spot.at(at.into()));
                    continue;
                }
                Shape::Sequence { is_text: true, data, length, .. } => {
                    return Ok(Scalar::Text(spot.copy()?.at(data.into()), spot.at(length.into())));
                }
                Shape::Struct { .. } => match self.types.only_member(&shape) {
                    Some(inner) => {
                        (of, spot) = (inner.of, spot.at(inner.offset.into()));
                        continue;
                    }
                    None => None,
                },
                _ => None,
            };
            return Ok(match base {
                Some(base) if !is_behind => Scalar::Number(spot, bytes, base),
                _ => Scalar::Other(Value { of, spot }),
            });
        }
        Err(ArgumentError::bare(Problem::TypeInfo, named.at))
    }

    /// Whether a value of this type is a text, or a reference to one.
    fn leads_to_text(&self, of: TypeId) -> bool {
        let mut of = of;
        for _ in 0..STEPS_MAX {
            let Some(shape) = self.types.get(of) else { return false };
            of = match shape.kind {
                Shape::Sequence { is_text, .. } => return is_text,
                Shape::Pointer { flavor: Flavor::Reference | Flavor::Shared, target, .. }
                | Shape::Wrapper { target, .. } => target,
                _ => return false,
            };
        }
        false
    }

    /// Returns the error for a value of this type, which an event cannot record.
    fn no_value(&self, of: &Rust<'a>, id: TypeId, at: usize) -> ArgumentError {
        let no = |reason: &dyn fmt::Display| ArgumentError::new(Problem::NoOneValue, at, reason);
        let name = of.name;
        match self.types.get(id).map(|of| of.kind) {
            Some(Shape::Struct { members, .. }) => {
                let names = Names(members.map(|member| member.name));
                no(&format_args!("{name} has several values; its fields are {names}"))
            }
            Some(Shape::Sequence { .. }) => {
                no(&format_args!("{name} has several values; its fields are data_ptr and length"))
            }
            _ => no(&format_args!("{name} is not a single number or text")),
        }
    }

    /// Returns the fetch of a value for an argument. The argument has the `wanted` type, or otherwise the type of the
    /// value.
    pub(super) fn part(
        &self,
        argument: &Argument,
        named: &Named,
        value: Value,
        wanted: Option<Type>,
        kept: &mut Vec<EntryValue>,
    ) -> Result<(Fetch, Type), ArgumentError> {
        let outer = &argument.expression.reads;
        let wants_text = wanted.is_some_and(|kind| kind.base == Base::String) && outer.is_empty();
        let whole = self.get(value.of)?;
        let (id, shape) = (value.of, whole.kind.clone());
        let no_text = || ArgumentError::bare(Problem::NoText, named.at);
        let (spot, bytes, base) = match self.scalar(value, named, kept)? {
            Scalar::Text(data, length) if wants_text || wanted.is_none() && outer.is_empty() => {
                if wanted.is_some_and(|kind| kind.count > 0) {
                    return Err(ArgumentError::bare(Problem::Text, named.at));
                }
                let (source, reads) = self.read(data, 8, named, kept)?;
                let (length, lengths) = self.read(length, 8, named, kept)?;
                let part = RecordedPart::Text(length, lengths);
                return Ok((Fetch { source, reads, part }, Type::one(Base::String)));
            }
            Scalar::Text(data, _) => (data, 8, Base::Hexadecimal(Width::W64)),
            Scalar::Number(spot, bytes, base) => (spot, bytes, base),
            Scalar::Other(Value { of, spot }) => {
                let is_array = matches!(self.get(of)?.kind, Shape::Array { .. });
                let is_wanted = wants_text || wanted.is_some_and(|kind| kind.count > 0);
                match (self.memory(spot, named, kept)?, wanted) {
                    (Spot::Memory(source, mut reads, offset), Some(kind))
                        if is_array && is_wanted && outer.is_empty() =>
                    {
                        let is_text = |of: Shape<TypeId, _, _, _>| match of {
                            Shape::Array { element, .. } => self.is_byte(element),
                            _ => false,
                        };
                        if wants_text && (kind.count > 0 || !is_text(self.get(of)?.kind)) {
                            return Err(no_text());
                        }
                        fallible::push(&mut reads, small(offset)?)?;
                        return Ok((Fetch { source, reads, part: RecordedPart::Whole }, kind));
                    }
                    _ if wants_text => return Err(no_text()),
                    _ => return Err(self.no_value(&whole, id, named.at)),
                }
            }
        };
        if wants_text {
            let is_bytes = matches!(shape, Shape::Pointer { flavor: Flavor::Raw, target, .. } if self.is_byte(target));
            let no_count = wanted.is_none_or(|kind| kind.count == 0);
            if !is_bytes || !no_count {
                return Err(no_text());
            }
        }
        let kind = wanted.unwrap_or(if outer.is_empty() { Type::one(base) } else { Type::DEFAULT });
        let (source, mut reads, bit) = self.read_part(spot, bytes, named, kept)?;
        if !outer.is_empty() || wants_text {
            if bytes != 8 {
                return Err(ArgumentError::new(
                    Problem::NoStruct,
                    named.at,
                    format_args!("{} is not an address", whole.name),
                ));
            }
            let zero = wants_text.then_some(0);
            fallible::extend(&mut reads, outer.iter().copied().chain(zero))?;
            return Ok((Fetch { source, reads, part: RecordedPart::Whole }, kind));
        }
        if kind.count > 0 && (reads.is_empty() || kind.base.is_text()) {
            return Err(ArgumentError::bare(Problem::Text, named.at));
        }
        let is_longer = kind.base.size() as u64 > bytes && !kind.base.is_text();
        let part = match Width::of_bytes(bytes) {
            Some(width) if (bit > 0 || is_longer) && kind.count == 0 => {
                let range = BitRange::new(bit, width.bits() as u8, matches!(base, Base::Signed(_)));
                RecordedPart::Bits(range.ok_or_else(|| self.no_value(&whole, id, named.at))?)
            }
            _ => RecordedPart::Whole,
        };
        Ok((Fetch { source, reads, part }, kind))
    }

    /// Whether a type is a byte, the element of a C string.
    fn is_byte(&self, of: TypeId) -> bool {
        self.types.get(of).is_some_and(|of| of.is_byte())
    }
}
