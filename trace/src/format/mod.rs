//! The layout of an event's record: the contents of its file `format`, and everything needed to interpret a record.
//!
//! The bytes are laid out as in Linux, so that its `format` text is true of them: first the 8 bytes that every event
//! has, then where the probe was hit, then the arguments without gaps (so a field may be unaligned), then texts.
//!
//! ```text
//!  0  u16  common_type            the number of the event, as in its file `id`
//!  2  u8   common_flags           see [`Flags`](crate::recorder::Flags)
//!  3  u8   common_preempt_count
//!  4  s32  common_pid             the number of the task
//!  8  u64  __probe_ip             of a probe: the address of the instruction
//!  8  u64  __probe_func           of a return probe: the address of the function, and
//! 16  u64  __probe_ret_ip         the return address
//! ```
//!
//! A text has a `__data_loc` word among the fields: its low half is the offset of the text in the record, its high half
//! the length including the zero at the end. A length of 0 means that the text could not be read. After the last field,
//! each array of numbers has a word that says which of its values could not be read; `format` does not show it. Nor
//! does it show the fields before these words that only the filter in the definition of an event probe tests.
//!
//! Code that filters, counts or prints records uses only the [`Field`]s and the bytes.

mod file;
mod fixed;
mod kind;
mod synthetic;

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use fallible::OutOfMemory;

pub(crate) use fixed::{Parts, fetch};
pub use kind::{Base, Bits, Type, Width};

/// The size in bytes of the word that says which values of an array could not be read.
const UNREAD: usize = 8;
/// The size in bytes of a field of a synthetic event, except texts of fixed size.
const WORD: usize = 8;
/// The space in a record of a synthetic event for a text of fixed size, and the largest such size, in bytes
/// (`STR_VAR_LEN_MAX`).
pub(crate) const TEXT_SIZE: usize = 256;

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name.
    pub name: Cow<'static, str>,
    /// The type, as `format` shows it: `unsigned long`, `u64`, `u8[4]`, `__data_loc char[]`.
    pub text: Cow<'static, str>,
    /// The offset in the record, in bytes.
    pub offset: usize,
    /// The size in bytes; for a text after the fields, the size of its `__data_loc` word.
    pub size: usize,
    /// Whether `format` shows the field as signed.
    pub signed: bool,
    /// The type of the value, which decides how it is printed.
    pub kind: Type,
    /// For an array of numbers: the offset of the word that says which values could not be read, bit 0 for the first.
    pub(crate) unread: Option<usize>,
    /// For an argument: the bit of the record's faults that says that it could not be read, if it has a bit of its own.
    pub(crate) fault: Option<u8>,
}

/// The number of arguments with a fault bit of their own; all further arguments share one bit.
pub(crate) const FAULTS: usize = 31;

/// The kind of event, which decides the fields before its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A probe: `__probe_ip`.
    Probe,
    /// A return probe: `__probe_func` and `__probe_ret_ip`.
    Return,
    /// A synthetic event: no such fields.
    Synthetic,
    /// A static event: no such fields.
    Static,
}

/// The record of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The kind of event.
    pub shape: Shape,
    /// All fields: the [`COMMON`](Self::COMMON) ones, those of the shape, and the arguments.
    pub fields: Vec<Field>,
    /// The `print fmt` of a static event that has one of its own.
    pub print: Option<&'static str>,
    /// The event that this one is on (`t` and `e`), as the definition names it. It is printed instead of the address.
    pub base_event: Option<String>,
    /// The fields after the arguments that only the filter in the definition tests.
    pub(crate) tested: Vec<Field>,
}

impl Field {
    fn new(name: &'static str, text: &'static str, base: Base, offset: usize) -> Self {
        Self {
            name: Cow::Borrowed(name),
            text: Cow::Borrowed(text),
            offset,
            size: base.size(),
            signed: base.is_signed(),
            kind: Type::one(base),
            unread: None,
            fault: None,
        }
    }

    /// Returns the value `index` of the field in `record`, extended to 64 bits according to its sign. For a text, this
    /// is its `__data_loc` word. `None` if the field has fewer values, or if the record is too short.
    #[must_use]
    pub fn value(&self, record: &[u8], index: usize) -> Option<u64> {
        let size = self.kind.base.size();
        let start = (index < self.kind.values()).then(|| self.offset + index * size)?;
        let bytes = record.get(start..start + size)?;
        let value = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let unused = 64 - 8 * size as u32;
        Some(match self.kind.base {
            Base::Signed(_) => ((value << unused) as i64 >> unused) as u64,
            _ => value,
        })
    }

    /// Returns the text `index` of the field in `record`, without the zero at its end. `None` if the field is not a
    /// text after the fields, or if the text could not be read.
    #[must_use]
    pub fn bytes<'a>(&self, record: &'a [u8], index: usize) -> Option<&'a [u8]> {
        let place = self.is_located().then(|| self.value(record, index))?? as usize;
        let (offset, length) = (place & 0xffff, place >> 16);
        record.get(offset..offset + length.checked_sub(1)?)
    }

    /// Whether the value lies after the fields, and is located by a `__data_loc` word.
    fn is_located(&self) -> bool {
        self.kind.base.is_text() || self.kind.base == Base::Stack
    }

    /// Returns the return addresses in `record`, if the field is a stack; otherwise none.
    pub fn stack<'a>(&self, record: &'a [u8]) -> impl Iterator<Item = u64> + use<'a> {
        let bytes = if self.kind.base == Base::Stack { self.bytes(record, 0) } else { None };
        let words = bytes.unwrap_or(&[]).as_chunks().0.iter();
        words.map(|word| u64::from_le_bytes(*word)).take_while(|&address| address != 0)
    }

    /// Returns the text of fixed size in `record`, without the padding zeros.
    #[must_use]
    pub fn characters<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        let bytes = record.get(self.offset..).unwrap_or(&[]);
        let bytes = bytes.get(..self.size).unwrap_or(bytes);
        bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)
    }

    /// Returns which values of an array could not be read: bit 0 for the first.
    #[must_use]
    pub fn unread(&self, record: &[u8]) -> u64 {
        if self.kind.base.is_text() {
            let is_unread = |index: &usize| self.bytes(record, *index).is_none();
            return (0..self.kind.values()).filter(is_unread).fold(0, |unread, index| unread | 1 << index);
        }
        let word = self.unread.and_then(|at| record.get(at..)?.first_chunk());
        word.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Whether the field is one number to filters and histograms.
    #[must_use]
    pub fn is_number(&self) -> bool {
        self.kind.count == 0 && !self.is_text() && !self.is_stack()
    }

    /// Whether the field is a stack to histograms.
    #[must_use]
    pub fn is_stack(&self) -> bool {
        self.kind.base == Base::Stack
    }

    /// Whether the field is one text to filters and histograms.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.kind.count == 0 && (self.kind.base.is_text() || self.kind.base == Base::Characters)
    }
}

impl Format {
    /// The number of fields that every event has.
    pub const COMMON: usize = 4;

    /// Makes the format of an event with these arguments, each a name and a type.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the fields.
    pub fn new<'a>(shape: Shape, arguments: impl IntoIterator<Item = (&'a str, Type)>) -> Result<Self, OutOfMemory> {
        Self::with_tested(shape, arguments, [])
    }

    /// Makes the format of an event with these arguments and with fields that only the filter in its definition
    /// tests, each a name and a type.
    pub(crate) fn with_tested<'a>(
        shape: Shape,
        arguments: impl IntoIterator<Item = (&'a str, Type)>,
        tested: impl IntoIterator<Item = (&'a str, Type)>,
    ) -> Result<Self, OutOfMemory> {
        const UNSIGNED_LONG: Base = Base::Unsigned(Width::W64);
        let mut fields = Self::common()?;
        match shape {
            Shape::Probe => {
                fallible::push(&mut fields, Field::new("__probe_ip", "unsigned long", UNSIGNED_LONG, 8))?;
            }
            Shape::Return => fallible::extend(
                &mut fields,
                [
                    Field::new("__probe_func", "unsigned long", UNSIGNED_LONG, 8),
                    Field::new("__probe_ret_ip", "unsigned long", UNSIGNED_LONG, 16),
                ],
            )?,
            Shape::Synthetic | Shape::Static => {}
        }
        let mut offset = shape.size();
        let mut number = 0;
        let mut field = |(name, kind): (&str, Type)| -> Result<Field, OutOfMemory> {
            let field = Field {
                name: Cow::Owned(fallible::copy(name)?),
                text: kind.field_text()?,
                offset,
                size: kind.size(),
                signed: kind.base.is_signed(),
                kind,
                unread: None,
                fault: (number < FAULTS).then_some(number as u8),
            };
            offset += field.size;
            number += 1;
            Ok(field)
        };
        arguments.into_iter().try_for_each(|argument| fallible::push(&mut fields, field(argument)?))?;
        let mut tested = fallible::collect_results(tested.into_iter().map(field))?;
        for field in
            fields.iter_mut().chain(&mut tested).filter(|field| field.kind.count > 0 && !field.kind.base.is_text())
        {
            field.unread = Some(offset);
            offset += UNREAD;
        }
        Ok(Self { shape, fields, print: None, base_event: None, tested })
    }

    fn common() -> Result<Vec<Field>, OutOfMemory> {
        fallible::collect([
            Field::new("common_type", "unsigned short", Base::Unsigned(Width::W16), 0),
            Field::new("common_flags", "unsigned char", Base::Unsigned(Width::W8), 2),
            Field::new("common_preempt_count", "unsigned char", Base::Unsigned(Width::W8), 3),
            Field::new("common_pid", "int", Base::Signed(Width::W32), 4),
        ])
    }

    /// Returns the fields of the arguments.
    #[must_use]
    pub fn arguments(&self) -> &[Field] {
        let before = Self::COMMON
            + match self.shape {
                Shape::Probe => 1,
                Shape::Return => 2,
                Shape::Synthetic | Shape::Static => 0,
            };
        self.fields.get(before..).unwrap_or(&[])
    }

    /// Returns all fields that are fetched: those of the arguments, followed by those that only the filter in the
    /// definition tests.
    pub(crate) fn fetched(&self) -> impl Iterator<Item = &Field> + Clone {
        self.arguments().iter().chain(&self.tested)
    }

    /// Returns the fields for the filter in the definition: those that every event has, and those that the filter
    /// tests. If the event is on a probe, the addresses are fields, too: both events have the same.
    pub(crate) fn fields_of_filter(&self, is_on_probe: bool) -> Result<Vec<Field>, OutOfMemory> {
        let mut fields = Vec::new();
        let own = self.fields.len() - self.arguments().len();
        let own = self.fields.iter().take(if is_on_probe { own } else { Self::COMMON });
        for &Field { ref name, ref text, offset, size, signed, kind, unread, fault } in own.chain(&self.tested) {
            let (name, text) = (Cow::Owned(fallible::copy(name)?), Cow::Owned(fallible::copy(text)?));
            fallible::push(&mut fields, Field { name, text, offset, size, signed, kind, unread, fault })?;
        }
        Ok(fields)
    }

    /// Returns the field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns the size of the fields in bytes, with the words about arrays and without texts.
    #[must_use]
    pub fn size(&self) -> usize {
        let arrays = self.fields.iter().chain(&self.tested).filter(|field| field.unread.is_some()).count();
        let end = |field: &Field| match (self.shape, field.kind.base) {
            (Shape::Synthetic, Base::Characters) => field.offset + TEXT_SIZE,
            (Shape::Synthetic, _) => field.offset + WORD,
            _ => field.offset + field.size,
        };
        let size = self.tested.last().or(self.fields.last()).map_or(0, end) + UNREAD * arrays;
        if self.shape == Shape::Static { size.next_multiple_of(WORD) } else { size }
    }

    /// Writes the fields of a synthetic event as `synthetic_events` lists them.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_fields(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (number, field) in self.arguments().iter().enumerate() {
            let text = field.text.strip_prefix("__data_loc ").unwrap_or(&field.text);
            write!(out, "{}{text} {}", if number > 0 { "; " } else { "" }, field.name)?;
        }
        Ok(())
    }
}

impl Shape {
    /// Returns the number of bytes before the arguments.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Probe => 16,
            Self::Return => 24,
            Self::Synthetic | Self::Static => 8,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
