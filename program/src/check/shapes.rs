//! The types of tuples and records. Such a type refers to the list of its parts by a number, so that a [`Type`] is small
//! and can be copied.

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_vm::code::{MANY_MAX, Type};

use crate::checked::Shape;

/// The parts of each tuple type, indexed by number; no list occurs twice.
#[derive(Debug, Default)]
pub(super) struct Shapes(pub Vec<Shape>);

impl Shapes {
    /// Returns the tuple type with these parts; `None` if it has too many words, or if there are too many tuple types.
    pub fn tuple(&mut self, parts: Vec<Type>) -> Result<Option<Type>, OutOfMemory> {
        self.record(parts, Vec::new())
    }

    /// Returns the record type with these parts and names.
    pub fn record(&mut self, parts: Vec<Type>, names: Vec<String>) -> Result<Option<Type>, OutOfMemory> {
        let words = parts.iter().map(|part| usize::from(part.words())).sum::<usize>();
        let known = self.0.iter().position(|shape| shape.parts == parts && shape.names == names);
        let number = known.unwrap_or(self.0.len());
        let (Ok(words), Ok(shape)) = (u8::try_from(words), u8::try_from(number)) else { return Ok(None) };
        if known.is_none() {
            fallible::push(&mut self.0, Shape { parts, names })?;
        }
        debug_assert!(self.0.len() <= MANY_MAX);
        Ok(Some(Type::Tuple { shape, words }))
    }

    /// Returns the part types of a tuple type.
    pub fn parts(&self, shape: u8) -> &[Type] {
        self.0.get(usize::from(shape)).map_or(&[], |shape| shape.parts.as_slice())
    }

    /// Returns the names of the parts of a record type; none for a tuple type.
    pub fn names(&self, shape: u8) -> &[String] {
        self.0.get(usize::from(shape)).map_or(&[], |shape| shape.names.as_slice())
    }

    /// Returns the type that holds values of both types, for two uses of a map or a variable; `None` if no type does.
    pub fn merge(&mut self, one: Type, other: Type) -> Result<Option<Type>, OutOfMemory> {
        use Type::{Bytes, Integer, Pointer, Text, Tuple};
        Ok(match (one, other) {
            _ if one == other => Some(one),
            (Text { words }, Text { words: others }) => Some(Text { words: words.max(others) }),
            (Bytes { words }, Bytes { words: others }) => Some(Bytes { words: words.max(others) }),
            (Integer { .. } | Pointer { .. }, Integer { .. } | Pointer { .. }) => Some(one),
            (Tuple { shape, .. }, Tuple { shape: another, .. }) => {
                let (ones, others) = (self.parts(shape), self.parts(another));
                if ones.len() != others.len() || self.names(shape) != self.names(another) {
                    return Ok(None);
                }
                let names = fallible::collect_results(self.names(shape).iter().map(|name| fallible::copy(name)))?;
                let pairs = fallible::collect(ones.iter().copied().zip(others.iter().copied()))?;
                let mut merged = Vec::new();
                for (one, other) in pairs {
                    let Some(part) = self.merge(one, other)? else { return Ok(None) };
                    fallible::push(&mut merged, part)?;
                }
                self.record(merged, names)?
            }
            _ => None,
        })
    }
}
