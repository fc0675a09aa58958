//! The formats of synthetic events.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use fallible::OutOfMemory;

use super::{Base, Field, Format, Shape, TEXT_SIZE, Type, WORD};
use crate::definition::synthetic::{self, Synthetic};

impl Format {
    /// Makes the format of a synthetic event. As in Linux, each field takes a word, and a text of fixed size takes 256
    /// bytes.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the fields.
    pub fn of_synthetic(definition: Synthetic) -> Result<Self, OutOfMemory> {
        let mut fields = Self::common()?;
        let mut offset = Shape::Synthetic.size();
        for synthetic::Field { name, kind, base, size, signed } in definition.fields {
            let (name, text, kind) = (Cow::Owned(name), Cow::Owned(kind), Type::one(base));
            let field = Field { name, text, offset, size, signed, kind, unread: None, fault: None };
            offset += if base == Base::Characters { TEXT_SIZE } else { WORD };
            fallible::push(&mut fields, field)?;
        }
        Ok(Self { shape: Shape::Synthetic, fields, print: None, base_event: None, tested: Vec::new() })
    }
}
