//! Makes the record of a static event from the engine's description of it: the fields, and how each is fetched from the
//! struct that the event passes.
//!
//! A record begins with the fields that every event has. The fields follow, each at a multiple of its size, as the
//! compiler lays out the same struct in C. So the struct of an event without texts is a part of its record, word by
//! word. A [`Text`](aarch64_kprobes::event::Text) is an address and a length in the struct; in the record, the text
//! comes after the fields.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use aarch64_kprobes::event::{self, Event, FieldKind};
use fallible::OutOfMemory;

use super::{Base, Field, Format, Shape, Type, Width};
use crate::fetch::{Fetch, RecordedPart, Register, Source};
use crate::print;

/// The size of a word, in bytes.
const WORD: usize = 8;

/// The fetches from the struct of an event, and the fields of the record that they fill.
pub(crate) type Parts = (Vec<Fetch>, Vec<Field>);

impl Format {
    /// Makes the format of `event`.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the fields.
    pub fn of_static(event: &Event) -> Result<Self, OutOfMemory> {
        let mut fields = Self::common()?;
        let mut offset = Shape::Static.size();
        for described in event.fields() {
            let field = field(described, &mut offset)?;
            fallible::push(&mut fields, field)?;
        }
        let print = event.print().filter(|print| print::is_understood(print, &fields));
        Ok(Self { shape: Shape::Static, fields, print, base_event: None, tested: Vec::new() })
    }

    /// Returns the parts of a record of `event`, whose format this is.
    pub(crate) fn parts(&self, event: &Event) -> Result<Parts, OutOfMemory> {
        let mut parts = (Vec::new(), Vec::new());
        if event.fields().iter().all(|field| field.kind != FieldKind::Text) {
            for offset in (0..self.size() - Shape::Static.size()).step_by(WORD) {
                push_number(&mut parts, offset, Shape::Static.size() + offset, Width::W64)?;
            }
            return Ok(parts);
        }
        let mut end = Shape::Static.size();
        for (described, field) in event.fields().iter().zip(self.arguments()) {
            push_zeros(&mut parts, end, field.offset)?;
            end = field.offset + field.size;
            match described.kind {
                FieldKind::Text => push_text(&mut parts, described.offset, field)?,
                _ => push_bytes(&mut parts, described.offset, field.offset, described.size)?,
            }
        }
        push_zeros(&mut parts, end, self.size())?;
        Ok(parts)
    }
}

/// Makes a field of the record at the next multiple of its size from `offset` on. Moves `offset` to the end of the
/// field.
fn field(described: &event::Field, offset: &mut usize) -> Result<Field, OutOfMemory> {
    let event::Field { name, c_type, kind, size, .. } = *described;
    let width = Width::of_bytes(size as u64).unwrap_or(Width::W64);
    let base = match kind {
        FieldKind::Unsigned => Base::Unsigned(width),
        FieldKind::Signed => Base::Signed(width),
        FieldKind::Address => Base::Hexadecimal(Width::W64),
        FieldKind::Characters => Base::Characters,
        FieldKind::Text => Base::String,
    };
    let text = match kind {
        FieldKind::Characters => Cow::Owned(fallible::format(format_args!("{c_type}[{size}]"))?),
        FieldKind::Text => Cow::Owned(fallible::format(format_args!("__data_loc {c_type}"))?),
        _ => Cow::Borrowed(c_type),
    };
    let size = if kind == FieldKind::Text { base.size() } else { size };
    let start = offset.next_multiple_of(base.size());
    *offset = start + size;
    let (name, signed) = (Cow::Borrowed(name), kind == FieldKind::Signed);
    Ok(Field { name, text, offset: start, size, signed, kind: Type::one(base), unread: None, fault: None })
}

/// Returns the source of the address of the struct: x0.
fn source() -> Source {
    Register::x(0).map_or(Source::Immediate(0), Source::Register)
}

/// Returns the fetch of `field` from the struct.
pub(crate) fn fetch(field: &event::Field) -> Result<Fetch, OutOfMemory> {
    match field.kind {
        FieldKind::Unsigned | FieldKind::Signed | FieldKind::Address => fetch_number(field.offset),
        FieldKind::Characters => {
            Ok(Fetch { part: RecordedPart::Padded(field.size as u16), ..fetch_number(field.offset)? })
        }
        FieldKind::Text => fetch_text(field.offset),
    }
}

/// Returns the fetch of the number at byte `from` of the struct.
fn fetch_number(from: usize) -> Result<Fetch, OutOfMemory> {
    Ok(Fetch { source: source(), reads: fallible::collect([from as i64])?, part: RecordedPart::Whole })
}

/// Returns the fetch of the [`Text`](event::Text) at byte `from` of the struct.
fn fetch_text(from: usize) -> Result<Fetch, OutOfMemory> {
    let length = fallible::collect([(from + WORD) as i64])?;
    Ok(Fetch { part: RecordedPart::Text(source(), length), ..fetch_number(from)? })
}

fn push_number(parts: &mut Parts, from: usize, to: usize, width: Width) -> Result<(), OutOfMemory> {
    push(parts, fetch_number(from)?, to, width)
}

fn push((fetches, fields): &mut Parts, fetch: Fetch, to: usize, width: Width) -> Result<(), OutOfMemory> {
    fallible::push(fetches, fetch)?;
    fallible::push(fields, Field::new("", "", Base::Unsigned(width), to))
}

/// Splits `size` bytes into the widest numbers. Returns each width, with the number of bytes before it.
fn numbers(size: usize) -> impl Iterator<Item = (usize, Width)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let width = match size - done {
            8.. => Width::W64,
            4.. => Width::W32,
            2.. => Width::W16,
            1 => Width::W8,
            0 => return None,
        };
        let before = done;
        done += width.bytes();
        Some((before, width))
    })
}

fn push_bytes(parts: &mut Parts, from: usize, to: usize, size: usize) -> Result<(), OutOfMemory> {
    numbers(size).try_for_each(|(before, width)| push_number(parts, from + before, to + before, width))
}

/// Adds zeros from `start` to `end`, which no field covers. Otherwise the record would keep bytes of an earlier record:
/// all are composed in one buffer.
fn push_zeros(parts: &mut Parts, start: usize, end: usize) -> Result<(), OutOfMemory> {
    numbers(end - start).try_for_each(|(before, width)| {
        let zero = Fetch { source: Source::Immediate(0), reads: Vec::new(), part: RecordedPart::Whole };
        push(parts, zero, start + before, width)
    })
}

fn push_text((fetches, fields): &mut Parts, from: usize, field: &Field) -> Result<(), OutOfMemory> {
    fallible::push(fetches, fetch_text(from)?)?;
    fallible::push(fields, Field::new("", "", Base::String, field.offset))
}
