//! The types of tuples. A tuple type refers to the list of its part types by a number, so that a [`Type`] is small and
//! can be copied.

use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_vm::code::{MANY_MAX, Type};

/// The part types of each tuple type, indexed by number; no list occurs twice.
#[derive(Debug, Default)]
pub(super) struct Shapes(pub Vec<Vec<Type>>);

impl Shapes {
    /// Returns the tuple type with these parts; `None` if it has too many words, or if there are too many tuple types.
    pub fn tuple(&mut self, parts: Vec<Type>) -> Result<Option<Type>, OutOfMemory> {
        let words = parts.iter().map(|part| usize::from(part.words())).sum::<usize>();
        let number = self.0.iter().position(|shape| *shape == parts).unwrap_or(self.0.len());
        let (Ok(words), Ok(shape)) = (u8::try_from(words), u8::try_from(number)) else { return Ok(None) };
        if number == self.0.len() {
            fallible::push(&mut self.0, parts)?;
        }
        debug_assert!(self.0.len() <= MANY_MAX);
        Ok(Some(Type::Tuple { shape, words }))
    }

    /// Returns the part types of a tuple type.
    pub fn parts(&self, shape: u8) -> &[Type] {
        self.0.get(usize::from(shape)).map_or(&[], Vec::as_slice)
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
                if ones.len() != others.len() {
                    return Ok(None);
                }
                let pairs = fallible::collect(ones.iter().copied().zip(others.iter().copied()))?;
                let mut merged = Vec::new();
                for (one, other) in pairs {
                    let Some(part) = self.merge(one, other)? else { return Ok(None) };
                    fallible::push(&mut merged, part)?;
                }
                self.tuple(merged)?
            }
            _ => None,
        })
    }
}
