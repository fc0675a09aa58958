//! Values of Rust as text, as `{:?}` writes them where `Debug` is derived.

use core::fmt::{self, Write};

use kprobes_types::{Kind, TypeId, Types};
use kprobes_vm::hit::extend;

use crate::checked::Known;

/// Writes a value of which `words` are what `known` says.
pub(super) fn write(types: &Types<'_>, known: Known, words: &[u64], out: &mut dyn Write) -> fmt::Result {
    let word = words.first().copied().unwrap_or(0);
    match known {
        Known::Whole(of) => scalar(types, of, word, out),
        Known::Variant { of, first } => variant(types, of, word, first, out),
    }
}

/// Writes a value of one word.
fn scalar(types: &Types<'_>, of: TypeId, word: u64, out: &mut dyn Write) -> fmt::Result {
    let Some(of) = types.get(of) else { return write!(out, "{word:#x}") };
    let bits = (8 * of.size).min(64) as u8;
    let cut = |signed| if bits < 64 { extend(word, bits, signed) } else { word };
    match of.kind {
        Kind::Bool => match word & 0xff {
            0 => out.write_str("false"),
            1 => out.write_str("true"),
            other => invalid(other, out),
        },
        Kind::Char => match u32::try_from(word).ok().and_then(char::from_u32) {
            Some(character) => write!(out, "{character:?}"),
            None => invalid(word, out),
        },
        Kind::Integer { signed: true } => write!(out, "{}", cut(true).cast_signed()),
        Kind::Integer { signed: false } => write!(out, "{}", cut(false)),
        Kind::Enumeration { signed, mut enumerators } => {
            match enumerators.find(|enumerator| enumerator.value == cut(false)) {
                Some(found) => out.write_str(found.name),
                None if signed => write!(out, "<invalid discriminant {}>", cut(true).cast_signed()),
                None => invalid(cut(false), out),
            }
        }
        _ => write!(out, "{word:#x}"),
    }
}

/// Writes which variant an enum with fields is, without its fields.
fn variant(types: &Types<'_>, of: TypeId, distance: u64, first: u64, out: &mut dyn Write) -> fmt::Result {
    let Some(Kind::Variants { tag, mut variants }) = types.get(of).map(|of| of.kind) else {
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
                Some(Kind::Struct { form, members }) if members.clone().next().is_some() => Some(form),
                _ => None,
            };
            match members {
                Some(kprobes_types::Form::Tuple) => out.write_str("(..)"),
                Some(kprobes_types::Form::Named) => out.write_str(" { .. }"),
                None => Ok(()),
            }
        }
    }
}

/// Writes that no variant has this number.
fn invalid(number: u64, out: &mut dyn Write) -> fmt::Result {
    write!(out, "<invalid discriminant {number}>")
}
