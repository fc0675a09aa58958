//! The types of tuples: a tuple has the number of the types of its parts, so that a type is small and can be copied.

use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_vm::code::{MANY_MAX, Type};

/// The types of the parts of tuples, by their numbers; none twice.
#[derive(Debug, Default)]
pub(super) struct Shapes(pub Vec<Vec<Type>>);

impl Shapes {
    /// The tuple of these parts; none if it has too many words, or if there are too many kinds.
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

    /// The types of the parts of a tuple.
    pub fn parts(&self, shape: u8) -> &[Type] {
        self.0.get(usize::from(shape)).map_or(&[], Vec::as_slice)
    }

    /// What is both `one` and `other`, if something can be: of two uses of a map or a variable.
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
