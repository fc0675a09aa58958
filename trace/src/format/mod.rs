//! How the record of an event is laid out: what a file `format` says, and all that is needed to make sense of a record.
//!
//! The bytes are those that Linux has, so that its `format` text is true of them: 8 bytes that every event has, then where the
//! probe was hit, then the arguments, one behind the other without gaps (so a field need not be aligned), then texts.
//!
//! ```text
//!  0  u16  common_type            the number of the event, as in its file `id`
//!  2  u8   common_flags           see [`Flags`](crate::recorder::Flags)
//!  3  u8   common_preempt_count
//!  4  s32  common_pid             the number of the task
//!  8  u64  __probe_ip             of a probe: the address of the instruction
//!  8  u64  __probe_func           of a return probe: the address of the function, and
//! 16  u64  __probe_ret_ip         the address that it returned to
//! ```
//!
//! A text has a word among the fields that says where it is, `__data_loc`: in the low half at which byte of the record, in the
//! high half how many bytes with the zero at its end. A length of 0 is a text that could not be read. Behind the last field, and in
//! no `format`, each array of numbers has a word that says which of them could not be read.
//!
//! Everything that looks at records, be it to filter, to count or to print, works on [`Field`]s and the bytes alone.

mod kind;

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

use fallible::OutOfMemory;

pub use kind::{Base, Bits, Type, Width};

use crate::definition::synthetic::{self, Synthetic};

/// Bytes of the word that says which values of an array could not be read.
const UNREAD: usize = 8;
/// Bytes of a field of a synthetic event.
const WORD: usize = 8;

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its type, as `format` says it: `unsigned long`, `u64`, `u8[4]`, `__data_loc char[]`.
    pub text: Cow<'static, str>,
    /// The first byte of it.
    pub offset: usize,
    /// How many bytes it has; of a text, without the text.
    pub size: usize,
    /// Whether `format` says that it has a sign.
    pub signed: bool,
    /// What is in these bytes, and how it is printed.
    pub kind: Type,
    /// Of an array of numbers: the first byte of the word that says which of them could not be read, bit 0 for the first.
    pub(crate) unread: Option<usize>,
    /// Of an argument: the bit of a record's faults that says that it could not be read, if it has one of its own.
    pub(crate) fault: Option<u8>,
}

/// Arguments from this one on have one bit of a record's faults in common.
pub(crate) const FAULTS: usize = 31;

/// Which fields an event has before its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Of a probe: `__probe_ip`.
    Probe,
    /// Of a return probe: `__probe_func` and `__probe_ret_ip`.
    Return,
    /// Of a synthetic event: none.
    Synthetic,
}

/// The record of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// What precedes the arguments.
    pub shape: Shape,
    /// All fields: the [`COMMON`](Self::COMMON) ones, where the probe was hit, the arguments.
    pub fields: Vec<Field>,
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

    /// Value `index` in `record`, from the first on, extended to 64 bits with its sign if it has one; of a text the word that says
    /// where it is. `None` if the field has not so many, or the record is too short.
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

    /// Text `index` in `record`, without the zero at its end. `None` if it is none, or could not be read.
    #[must_use]
    pub fn bytes<'a>(&self, record: &'a [u8], index: usize) -> Option<&'a [u8]> {
        let place = self.is_located().then(|| self.value(record, index))?? as usize;
        let (offset, length) = (place & 0xffff, place >> 16);
        record.get(offset..offset + length.checked_sub(1)?)
    }

    /// Whether what it is lies behind the fields.
    fn is_located(&self) -> bool {
        self.kind.base.is_text() || self.kind.base == Base::Stack
    }

    /// The return addresses in `record`, if it is a stack.
    pub fn stack<'a>(&self, record: &'a [u8]) -> impl Iterator<Item = u64> + use<'a> {
        let bytes = if self.kind.base == Base::Stack { self.bytes(record, 0) } else { None };
        let words = bytes.unwrap_or(&[]).as_chunks().0.iter();
        words.map(|word| u64::from_le_bytes(*word)).take_while(|&address| address != 0)
    }

    /// The text in `record` that has a fixed size, without the zeros that fill it up.
    #[must_use]
    pub fn characters<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        let bytes = record.get(self.offset..).unwrap_or(&[]);
        let bytes = bytes.get(..self.size).unwrap_or(bytes);
        bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)
    }

    /// Which values of an array could not be read: bit 0 for the first.
    #[must_use]
    pub fn unread(&self, record: &[u8]) -> u64 {
        if self.kind.base.is_text() {
            let is_unread = |index: &usize| self.bytes(record, *index).is_none();
            return (0..self.kind.values()).filter(is_unread).fold(0, |unread, index| unread | 1 << index);
        }
        let word = self.unread.and_then(|at| record.get(at..)?.first_chunk());
        word.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Whether filters and histograms can take it for one number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        self.kind.count == 0 && !self.is_text() && !self.is_stack()
    }

    /// Whether histograms can take it for a stack.
    #[must_use]
    pub fn is_stack(&self) -> bool {
        self.kind.base == Base::Stack
    }

    /// Whether filters and histograms can take it for one text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.kind.count == 0 && (self.kind.base.is_text() || self.kind.base == Base::Characters)
    }
}

impl Format {
    /// How many of the fields every event has.
    pub const COMMON: usize = 4;

    /// The record of an event with these arguments, each a name and a type.
    ///
    /// # Errors
    ///
    /// There is no memory for the fields.
    pub fn new<'a>(shape: Shape, arguments: impl IntoIterator<Item = (&'a str, Type)>) -> Result<Self, OutOfMemory> {
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
            Shape::Synthetic => {}
        }
        let mut offset = shape.size();
        for (number, (name, kind)) in arguments.into_iter().enumerate() {
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
            fallible::push(&mut fields, field)?;
        }
        for field in fields.iter_mut().filter(|field| field.kind.count > 0 && !field.kind.base.is_text()) {
            field.unread = Some(offset);
            offset += UNREAD;
        }
        Ok(Self { shape, fields })
    }

    fn common() -> Result<Vec<Field>, OutOfMemory> {
        fallible::collect([
            Field::new("common_type", "unsigned short", Base::Unsigned(Width::W16), 0),
            Field::new("common_flags", "unsigned char", Base::Unsigned(Width::W8), 2),
            Field::new("common_preempt_count", "unsigned char", Base::Unsigned(Width::W8), 3),
            Field::new("common_pid", "int", Base::Signed(Width::W32), 4),
        ])
    }

    /// The record of a synthetic event. As in Linux, each of its fields has a word, and a text of a fixed size 256 bytes.
    ///
    /// # Errors
    ///
    /// There is no memory for the fields.
    pub fn of_synthetic(definition: Synthetic) -> Result<Self, OutOfMemory> {
        let mut fields = Self::common()?;
        let mut offset = Shape::Synthetic.size();
        for synthetic::Field { name, kind, base, size, signed } in definition.fields {
            let (name, text, kind) = (Cow::Owned(name), Cow::Owned(kind), Type::one(base));
            let field = Field { name, text, offset, size, signed, kind, unread: None, fault: None };
            offset += if base == Base::Characters { synthetic::TEXT_SIZE } else { WORD };
            fallible::push(&mut fields, field)?;
        }
        Ok(Self { shape: Shape::Synthetic, fields })
    }

    /// The arguments.
    #[must_use]
    pub fn arguments(&self) -> &[Field] {
        let before = Self::COMMON
            + match self.shape {
                Shape::Probe => 1,
                Shape::Return => 2,
                Shape::Synthetic => 0,
            };
        self.fields.get(before..).unwrap_or(&[])
    }

    /// The field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Bytes of the fields and of what is said about them, without texts.
    #[must_use]
    pub fn size(&self) -> usize {
        let arrays = self.fields.iter().filter(|field| field.unread.is_some()).count();
        let end = |field: &Field| match (self.shape, field.kind.base) {
            (Shape::Synthetic, Base::Characters) => field.offset + synthetic::TEXT_SIZE,
            (Shape::Synthetic, _) => field.offset + WORD,
            _ => field.offset + field.size,
        };
        self.fields.last().map_or(0, end) + UNREAD * arrays
    }

    /// Writes the file `format` of the event numbered `id`.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn fmt::Write, event: &str, id: u16) -> fmt::Result {
        writeln!(out, "name: {event}\nID: {id}\nformat:")?;
        for (number, field) in self.fields.iter().enumerate() {
            if number == Self::COMMON {
                out.write_char('\n')?;
            }
            write_field(out, field)?;
        }
        out.write_str("\nprint fmt: \"")?;
        if self.shape == Shape::Synthetic {
            return self.write_synthetic(out);
        }
        out.write_str(match self.shape {
            Shape::Probe => "(%lx)",
            Shape::Return => "(%lx <- %lx)",
            Shape::Synthetic => "",
        })?;
        for field in self.arguments() {
            write!(out, " {}=", field.name)?;
            let conversion = field.kind.base.conversion();
            match field.kind.count {
                0 => out.write_str(conversion)?,
                count => {
                    write!(out, "{{{conversion}")?;
                    (1..count).try_for_each(|_| write!(out, ",{conversion}"))?;
                    out.write_char('}')?;
                }
            }
        }
        out.write_str(match self.shape {
            Shape::Probe => "\", REC->__probe_ip",
            Shape::Return => "\", REC->__probe_func, REC->__probe_ret_ip",
            Shape::Synthetic => "\"",
        })?;
        for field in self.arguments() {
            let (before, after) = if field.kind.base.is_text() { ("__get_str(", ")") } else { ("REC->", "") };
            match field.kind.count {
                0 => write!(out, ", {before}{}{after}", field.name)?,
                count => {
                    (0..count).try_for_each(|index| write!(out, ", {before}{}[{index}]{after}", field.name))?;
                }
            }
        }
        out.write_char('\n')
    }
}

impl Format {
    /// Writes what a synthetic event has in `print fmt`, from the first field on.
    fn write_synthetic(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (number, field) in self.arguments().iter().enumerate() {
            let before = if number > 0 { ", " } else { "" };
            write!(out, "{before}{}={}", field.name, synthetic::conversion(&field.text))?;
        }
        out.write_char('"')?;
        for field in self.arguments() {
            let (before, after) = match field.kind.base {
                Base::Stack => ("__get_stacktrace(", ")"),
                base if base.is_text() => ("__get_str(", ")"),
                _ => ("REC->", ""),
            };
            write!(out, ", {before}{}{after}", field.name)?;
        }
        out.write_char('\n')
    }

    /// Writes the fields of a synthetic event as `synthetic_events` lists them.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_fields(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (number, field) in self.arguments().iter().enumerate() {
            let text = field.text.strip_prefix("__data_loc ").unwrap_or(&field.text);
            write!(out, "{}{text} {}", if number > 0 { "; " } else { "" }, field.name)?;
        }
        Ok(())
    }
}

impl Shape {
    /// Bytes before the arguments.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Probe => 16,
            Self::Return => 24,
            Self::Synthetic => 8,
        }
    }
}

/// Writes a line of `format`: of an array, the number of values stands behind the name, as in C.
fn write_field(out: &mut dyn fmt::Write, field: &Field) -> fmt::Result {
    let Field { name, text, offset, size, signed, .. } = field;
    let (text, dimension) = match text.find('[') {
        Some(at) if !field.is_located() => text.split_at(at),
        _ => (text.as_ref(), ""),
    };
    let signed = u8::from(*signed);
    writeln!(out, "\tfield:{text} {name}{dimension};\toffset:{offset};\tsize:{size};\tsigned:{signed};")
}

#[cfg(test)]
mod tests;
