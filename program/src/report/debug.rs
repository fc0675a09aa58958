//! Writes Rust values as text, as `{:?}` does for a derived `Debug`.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use kprobes_types::{Flavor, Form, TypeId, TypeKind, Types};
use kprobes_vm::hit::extend;

use super::{Names, line};
use crate::checked::{Block, RustValue};

/// The maximum nesting of values.
const NESTED_MAX: usize = 16;
/// Replaces a part that was not captured because the value is too large.
const MORE: &str = "…";
/// Replaces a part that could not be read.
const FAULT: &str = "(fault)";

/// The context for writing values.
pub(super) struct Values<'a> {
    pub types: Types<'static>,
    pub captures: &'a [Vec<Block>],
    pub names: &'a dyn Names,
}

/// Writes the Rust value that `words` represent, as described by `value`.
pub(super) fn write(values: &Values<'_>, value: RustValue, words: &[u64], out: &mut dyn Write) -> fmt::Result {
    let word = words.first().copied().unwrap_or(0);
    match value {
        RustValue::Whole(of) => scalar(&values.types, of, word, out),
        RustValue::Variant { of, first } => variant(&values.types, of, word, first, out),
        // The caller writes what is not in the table of types.
        RustValue::HardwareAddress | RustValue::InternetAddress { .. } => Ok(()),
        RustValue::Line => line::write(values.types.lines(), word, out),
        RustValue::Captured(number) => {
            let blocks = values.captures.get(usize::from(number)).map_or(&[][..], Vec::as_slice);
            let Some(own) = blocks.first() else { return out.write_str(MORE) };
            let captured = CapturedValue { values, blocks, words };
            captured.value(own.of, At { block: 0, offset: 0, nested: 0 }, out)
        }
    }
}

/// A value that was captured as a whole.
struct CapturedValue<'a> {
    values: &'a Values<'a>,
    blocks: &'a [Block],
    words: &'a [u64],
}

/// The place of a value in a captured one.
#[derive(Clone, Copy)]
struct At {
    block: usize,
    offset: u64,
    nested: usize,
}

impl At {
    /// Returns the place of a value within this one.
    fn inner(self, offset: u64) -> Self {
        Self { offset: self.offset.saturating_add(offset), nested: self.nested + 1, ..self }
    }
}

impl CapturedValue<'_> {
    /// Returns the number of bytes of a block that could be read.
    fn found(&self, block: usize) -> u64 {
        self.blocks.get(block).and_then(|block| self.words.get(usize::from(block.at))).copied().unwrap_or(0)
    }

    /// Returns the byte at `number` from `at`, or the text that replaces it.
    fn byte(&self, at: At, number: u64) -> Result<u8, &'static str> {
        let block = self.blocks.get(at.block).ok_or(MORE)?;
        let offset = at.offset.saturating_add(number);
        if offset >= u64::from(block.bytes) {
            return Err(MORE);
        }
        if offset >= self.found(at.block) {
            return Err(FAULT);
        }
        let word = self.words.get(usize::from(block.at) + 1 + (offset / 8) as usize).ok_or(MORE)?;
        Ok((word >> (8 * (offset % 8))) as u8)
    }

    /// Returns a number of `bytes` bytes, at most 16.
    fn number(&self, at: At, bytes: u64) -> Result<u128, &'static str> {
        (0..bytes.min(16)).try_fold(0, |number, byte| Ok(number | u128::from(self.byte(at, byte)?) << (8 * byte)))
    }

    fn word(&self, at: At, offset: u64, bytes: u64) -> Result<u64, &'static str> {
        self.number(at.inner(offset), bytes).map(|number| number as u64)
    }

    /// Returns the block that the reference at `at`, to a value of type `of`, leads to. Several variants may have
    /// references at one place; at most one of their blocks was read.
    fn referred(&self, at: At, of: TypeId) -> Option<usize> {
        let is_it = |block: &Block| {
            usize::from(block.parent) == at.block && u64::from(block.offset) == at.offset && block.of == of
        };
        let mut all =
            self.blocks.iter().enumerate().skip(1).filter(|(_, block)| is_it(block)).map(|(number, _)| number);
        let first = all.clone().next();
        all.find(|&block| self.found(block) > 0).or(first)
    }

    // Functions off the recursive path are not inlined into it, so that the stack frame of each recursion stays small.
    fn value(&self, of: TypeId, at: At, out: &mut dyn Write) -> fmt::Result {
        let Some(of) = self.values.types.get(of).filter(|_| at.nested < NESTED_MAX).map(|found| (of, found.kind))
        else {
            return out.write_str(MORE);
        };
        match of.1 {
            TypeKind::Pointer { flavor: Flavor::Reference | Flavor::Shared, target, .. } => self.refer(target, at, out),
            TypeKind::Wrapper { target, at: offset } => self.value(target, at.inner(offset.into()), out),
            TypeKind::Array { element, count } => self.elements(element, count, Some(at.inner(0)), out),
            TypeKind::Sequence { .. } => self.sequence(of.0, at, out),
            TypeKind::Object { .. } => self.object(of.0, at, out),
            TypeKind::Struct { .. } => self.structure(of.0, at, out),
            TypeKind::Variants { .. } => self.variant(of.0, at, out),
            _ => self.simple(of.0, at, out),
        }
    }

    /// Writes a value that contains no other values.
    #[inline(never)]
    fn simple(&self, id: TypeId, at: At, out: &mut dyn Write) -> fmt::Result {
        let types = &self.values.types;
        let Some(of) = types.get(id) else { return out.write_str(MORE) };
        let data = if let TypeKind::Dynamic { data, .. } = of.kind { data } else { 0 };
        let bytes = match of.kind {
            TypeKind::Unit => return out.write_str("()"),
            TypeKind::Opaque => return write!(out, "<{}>", of.name),
            TypeKind::Dynamic { .. } => 8,
            _ => of.size,
        };
        let number = match self.number(at.inner(data.into()), bytes) {
            Ok(number) => number,
            Err(why) => return out.write_str(why),
        };
        match of.kind {
            TypeKind::Integer { signed: true } => {
                let above = 128_u64.saturating_sub(8 * bytes).min(127) as u32;
                write!(out, "{}", number.cast_signed() << above >> above)
            }
            TypeKind::Integer { signed: false } => write!(out, "{number}"),
            TypeKind::Float => write!(out, "{}::from_bits({number:#x})", of.name),
            TypeKind::Dynamic { .. } => write!(out, "<{} at {number:#x}>", of.name),
            TypeKind::Function => match self.values.names.symbol(number as u64) {
                Some((name, start)) if start == number as u64 => out.write_str(name),
                _ => write!(out, "{number:#x}"),
            },
            TypeKind::Bool | TypeKind::Char | TypeKind::Enumeration { .. } => scalar(types, id, number as u64, out),
            _ => write!(out, "{number:#x}"),
        }
    }

    /// Writes a slice, a vector or a string.
    #[inline(never)]
    fn sequence(&self, of: TypeId, at: At, out: &mut dyn Write) -> fmt::Result {
        let Some(TypeKind::Sequence { element, is_text, data, length }) = self.values.types.get(of).map(|of| of.kind)
        else {
            return out.write_str(MORE);
        };
        let count = match self.word(at, length.into(), 8) {
            Ok(count) => count,
            Err(why) => return out.write_str(why),
        };
        let data = self.referred(At { offset: at.offset.saturating_add(data.into()), ..at }, element);
        let data = data.map(|block| At { block, offset: 0, nested: at.nested + 1 });
        if is_text { self.text(count, data, out) } else { self.elements(element, count, data, out) }
    }

    /// Writes the object that the reference at `at` leads to, if its vtable tells the type.
    #[inline(never)]
    fn object(&self, id: TypeId, at: At, out: &mut dyn Write) -> fmt::Result {
        let types = &self.values.types;
        let Some((name, TypeKind::Object { data, vtable })) = types.get(id).map(|of| (of.name, of.kind)) else {
            return out.write_str(MORE);
        };
        let words = [data, vtable].map(|offset| self.word(at, offset.into(), 8));
        let [address, vtable] = match words {
            [Ok(address), Ok(vtable)] => [address, vtable],
            [Err(why), _] | [_, Err(why)] => return out.write_str(why),
        };
        let Some(implementor) = types.implementor(vtable) else { return write!(out, "<{name} at {address:#x}>") };
        let place = At { offset: at.offset.saturating_add(data.into()), ..at };
        let block = self.referred(place, id).map(|block| At { block, offset: 0, nested: at.nested });
        self.target(implementor, place, block, out)
    }

    #[inline(never)]
    fn structure(&self, of: TypeId, at: At, out: &mut dyn Write) -> fmt::Result {
        let Some((name, TypeKind::Struct { form, members })) = self.values.types.get(of).map(|of| (of.name, of.kind))
        else {
            return out.write_str(MORE);
        };
        let name = if name.starts_with('(') { "" } else { name.split('<').next().unwrap_or("") };
        self.fields(name, form, members, at, out)
    }

    /// Writes an enum with fields.
    #[inline(never)]
    fn variant(&self, of: TypeId, at: At, out: &mut dyn Write) -> fmt::Result {
        let types = &self.values.types;
        let Some(TypeKind::Variants { tag, mut variants }) = types.get(of).map(|of| of.kind) else {
            return out.write_str(MORE);
        };
        let value = match tag.map(|tag| self.word(at, tag.offset.into(), tag.bytes.into())).transpose() {
            Ok(value) => value,
            Err(why) => return out.write_str(why),
        };
        let default = variants.clone().find(|variant| variant.value.is_none());
        let found = variants.find(|variant| variant.value.is_some() && variant.value == value).or(default);
        let Some(found) = found else { return invalid(value.unwrap_or(0), out) };
        match types.get(found.of).map(|of| of.kind) {
            Some(TypeKind::Struct { form, members }) => self.fields(found.name, form, members, at, out),
            _ => out.write_str(found.name),
        }
    }

    /// Writes `name` and the fields of a struct or a variant.
    #[inline(never)]
    fn fields(
        &self,
        name: &str,
        form: Form,
        members: kprobes_types::Members<'_>,
        at: At,
        out: &mut dyn Write,
    ) -> fmt::Result {
        let count = members.clone().count();
        out.write_str(name)?;
        if count == 0 {
            return Ok(());
        }
        out.write_str(if form == Form::Tuple { "(" } else { " { " })?;
        for (number, member) in members.enumerate() {
            out.write_str(if number > 0 { ", " } else { "" })?;
            if form == Form::Named {
                write!(out, "{}: ", member.name)?;
            }
            self.value(member.of, at.inner(member.offset.into()), out)?;
        }
        match form {
            Form::Tuple if name.is_empty() && count == 1 => out.write_str(",)"),
            Form::Tuple => out.write_str(")"),
            Form::Named => out.write_str(" }"),
        }
    }

    /// Writes the value that the reference at `at` leads to.
    #[inline(never)]
    fn refer(&self, target: TypeId, at: At, out: &mut dyn Write) -> fmt::Result {
        let block = self.referred(at, target).map(|block| At { block, offset: 0, nested: at.nested });
        self.target(target, at, block, out)
    }

    /// Writes a value of type `of` that the reference at `at` leads to. `block` is its place, if it was read.
    fn target(&self, of: TypeId, at: At, block: Option<At>, out: &mut dyn Write) -> fmt::Result {
        let is_empty = self.values.types.get(of).is_some_and(|of| of.size == 0);
        match block.or(is_empty.then_some(at)) {
            Some(place) => self.value(of, place.inner(0), out),
            None => out.write_str(MORE),
        }
    }

    /// Writes `count` elements, the first of which is at `first`.
    #[inline(never)]
    fn elements(&self, of: TypeId, count: u64, first: Option<At>, out: &mut dyn Write) -> fmt::Result {
        /// The maximum number of elements that have no bytes.
        const MOST: u64 = 64;
        let bytes = self.values.types.get(of).map_or(0, |of| of.size);
        out.write_char('[')?;
        for number in 0..count {
            out.write_str(if number > 0 { ", " } else { "" })?;
            let at = first.map(|first| first.inner(number.saturating_mul(bytes)));
            let is_there = match (at, bytes.checked_sub(1)) {
                (_, None) if number == MOST => Err(MORE),
                (_, None) => Ok(at.unwrap_or(At { block: 0, offset: 0, nested: 0 })),
                (None, _) => Err(MORE),
                (Some(at), Some(last)) => self.byte(at, last).map(|_| at),
            };
            match is_there {
                Ok(at) => self.value(of, at, out)?,
                Err(why) => {
                    out.write_str(why)?;
                    break;
                }
            }
        }
        out.write_char(']')
    }

    /// Writes a string of `count` bytes, the first of which is at `first`.
    #[inline(never)]
    fn text(&self, count: u64, first: Option<At>, out: &mut dyn Write) -> fmt::Result {
        let mut bytes = Vec::new();
        let mut end = "";
        for number in 0..count {
            match first.ok_or(MORE).and_then(|first| self.byte(first, number)) {
                Ok(byte) => fallible::push(&mut bytes, byte)?,
                Err(why) => {
                    end = why;
                    break;
                }
            }
        }
        out.write_char('"')?;
        for chunk in bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                // In a string, `'` is not escaped, as in `Debug` for `str`.
                match character {
                    '\'' => out.write_char(character)?,
                    _ => write!(out, "{}", character.escape_debug())?,
                }
            }
            // A character that is cut off at the end of the captured bytes is left out.
            if !chunk.invalid().is_empty() && end != MORE {
                out.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        out.write_char('"')?;
        out.write_str(end)
    }
}

/// Writes a value of one word.
fn scalar(types: &Types<'_>, of: TypeId, word: u64, out: &mut dyn Write) -> fmt::Result {
    let Some(of) = types.get(of) else { return write!(out, "{word:#x}") };
    let bits = (8 * of.size).min(64) as u8;
    let cut = |signed| if bits < 64 { extend(word, bits, signed) } else { word };
    match of.kind {
        TypeKind::Bool => match word & 0xff {
            0 => out.write_str("false"),
            1 => out.write_str("true"),
            other => invalid(other, out),
        },
        TypeKind::Char => match u32::try_from(word).ok().and_then(char::from_u32) {
            Some(character) => write!(out, "{character:?}"),
            None => invalid(word, out),
        },
        TypeKind::Integer { signed: true } => write!(out, "{}", cut(true).cast_signed()),
        TypeKind::Integer { signed: false } => write!(out, "{}", cut(false)),
        TypeKind::Enumeration { signed, mut enumerators } => {
            match enumerators.find(|enumerator| enumerator.value == cut(false)) {
                Some(found) => out.write_str(found.name),
                None if signed => write!(out, "<invalid discriminant {}>", cut(true).cast_signed()),
                None => invalid(cut(false), out),
            }
        }
        _ => write!(out, "{word:#x}"),
    }
}

/// Writes the name of a variant of an enum with fields, without its fields.
fn variant(types: &Types<'_>, of: TypeId, distance: u64, first: u64, out: &mut dyn Write) -> fmt::Result {
    let Some(TypeKind::Variants { tag, mut variants }) = types.get(of).map(|of| of.kind) else {
        return write!(out, "{distance:#x}");
    };
    let most = u64::MAX >> (64 - 8 * u32::from(tag.map_or(8, |tag| tag.bytes).clamp(1, 8)));
    let value = first.wrapping_add(distance) & most;
    let default = variants.clone().find(|variant| variant.value.is_none());
    match variants.find(|variant| variant.value == Some(value)).filter(|_| distance != u64::MAX).or(default) {
        None => invalid(value, out),
        Some(found) => {
            out.write_str(found.name)?;
            let members = match types.get(found.of).map(|of| of.kind) {
                Some(TypeKind::Struct { form, members }) if members.clone().next().is_some() => Some(form),
                _ => None,
            };
            match members {
                Some(Form::Tuple) => out.write_str("(..)"),
                Some(Form::Named) => out.write_str(" { .. }"),
                None => Ok(()),
            }
        }
    }
}

/// Writes that no variant has this tag.
fn invalid(number: u64, out: &mut dyn Write) -> fmt::Result {
    write!(out, "<invalid discriminant {number}>")
}
