//! The path that a name is: from an argument or the result, through fields, to a value.
//!
//! A path is followed as in a program, without reading the value. Fields are found through references, pointers, `Box`,
//! `Rc`, `Arc`, `Pin` and structs around a single value, so `->` and `.` mean the same.

use alloc::vec::Vec;
use core::fmt;

use kprobes_types::{Type as Rust, TypeId, TypeKind as Shape, ValuePlace};

use super::spot::Spot;
use super::{ArgumentError, Names, STEPS_MAX, Signature};
use crate::definition::{Named, Problem};
use crate::recorder::EntryValue;

/// A value that is located but not read yet.
pub(super) struct Value {
    pub(super) of: TypeId,
    pub(super) spot: Spot,
}

impl Signature<'_> {
    /// Locates the value that `named` leads to.
    pub(super) fn named(&self, named: &Named, kept: &mut Vec<EntryValue>) -> Result<Value, ArgumentError> {
        let mut value = match &named.argument {
            Some(name) => {
                let Some(found) = self.function.arguments().find(|one| one.name == name) else {
                    let names = Names(self.function.arguments().map(|one| one.name));
                    let reason = format_args!("the arguments are {names}");
                    return Err(ArgumentError::new(Problem::NoArgumentOfName, named.at, reason));
                };
                Value { of: found.of, spot: Spot::Passed(found.place, 0) }
            }
            None => {
                let returned =
                    self.function.returned().ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, named.at))?;
                if returned.place == ValuePlace::Nothing {
                    return Err(ArgumentError::bare(Problem::NothingReturned, named.at));
                }
                let spot = match returned.place {
                    // The caller passes the address at the entry.
                    ValuePlace::At(source) => Spot::Memory(self.source(source, true, named.at, kept)?, Vec::new(), 0),
                    place => Spot::Passed(place, 0),
                };
                Value { of: returned.of, spot }
            }
        };
        for (field, at) in &named.fields {
            value = self.field(value, field, named, *at, kept)?;
        }
        Ok(value)
    }

    /// Locates the field of this name, in the value or in what the value leads to.
    fn field(
        &self,
        value: Value,
        name: &str,
        named: &Named,
        at: usize,
        kept: &mut Vec<EntryValue>,
    ) -> Result<Value, ArgumentError> {
        let Value { mut of, mut spot } = value;
        let whole = self.get(of)?;
        for _ in 0..STEPS_MAX {
            let shape = self.get(of)?;
            let no_field = |names: &dyn fmt::Display| {
                ArgumentError::new(Problem::NoField, at, format_args!("the fields of {} are {names}", shape.name))
            };
            match shape.kind.clone() {
                Shape::Struct { members, .. } => {
                    if let Some(member) = members.clone().find(|member| member.name == name) {
                        return Ok(Value { of: member.of, spot: spot.at(member.offset.into()) });
                    }
                    let names = Names(members.map(|member| member.name));
                    let inner = self.types.only_member(&shape).ok_or_else(|| no_field(&names))?;
                    let is_way = |of: Rust<'_>| {
                        matches!(of.kind, Shape::Struct { .. } | Shape::Pointer { .. } | Shape::Wrapper { .. })
                    };
                    if !self.types.get(inner.of).is_some_and(is_way) {
                        return Err(no_field(&names));
                    }
                    (of, spot) = (inner.of, spot.at(inner.offset.into()));
                }
                Shape::Sequence { data, length, .. } => {
                    // `data_ptr` and `length` are the compiler's names. An address and a length get the type of a word.
                    return match name {
                        "data_ptr" => {
                            Ok(Value { of, spot: spot.at(data.into()) }).and_then(|value| self.as_word(value, at))
                        }
                        "length" => {
                            Ok(Value { of, spot: spot.at(length.into()) }).and_then(|value| self.as_word(value, at))
                        }
                        _ => Err(no_field(&"data_ptr and length")),
                    };
                }
                Shape::Variants { tag: None, mut variants } => {
                    of = variants.next().ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, at))?.of;
                }
                Shape::Variants { .. } => {
                    let reason = format_args!("{} is an enum, whose fields depend on its variant", shape.name);
                    return Err(ArgumentError::new(Problem::NoStruct, at, reason));
                }
                Shape::Pointer { target, at: behind, .. } => {
                    spot = self.pointed(spot, behind.into(), named, kept)?;
                    of = target;
                }
                Shape::Wrapper { target, at: within } => (of, spot) = (target, spot.at(within.into())),
                _ => {
                    return Err(ArgumentError::new(
                        Problem::NoStruct,
                        at,
                        format_args!("{} has no fields", whole.name),
                    ));
                }
            }
        }
        Err(ArgumentError::bare(Problem::TypeInfo, at))
    }

    /// Gives a value the type of a word, for the address and the length of a slice. The type is `usize` from the table,
    /// which every program with a slice has.
    fn as_word(&self, value: Value, at: usize) -> Result<Value, ArgumentError> {
        let word = (0..self.types.len()).map(|number| TypeId(number as u32)).find(|&of| {
            let is_word = |of: Rust<'_>| of.size == 8 && matches!(of.kind, Shape::Integer { signed: false });
            self.types.get(of).is_some_and(is_word)
        });
        Ok(Value { of: word.ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, at))?, ..value })
    }
}
