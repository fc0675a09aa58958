//! Parses the format of `printf`.

use alloc::string::String;
use alloc::vec::Vec;
use core::iter::Peekable;
use core::str::Chars;

use fallible::OutOfMemory;
use kprobes_vm::ir::Type;

use crate::conversion::{Conversion, Piece, Shown};
use crate::error::{Noun, Problem};

/// The maximum width and precision, in characters.
const WIDTH_MAX: usize = 255;

/// Splits a format into pieces; `None` if it has an unknown conversion.
pub(super) fn pieces(format: &str) -> Result<Option<Vec<Piece>>, OutOfMemory> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            fallible::push_char(&mut text, c)?;
            continue;
        }
        if rest.next_if_eq(&'%').is_some() {
            fallible::push_char(&mut text, '%')?;
            continue;
        }
        let Some(conversion) = conversion(&mut rest) else { return Ok(None) };
        let text = core::mem::take(&mut text);
        fallible::push(&mut pieces, Piece { text, conversion: Some(conversion) })?;
    }
    if !text.is_empty() {
        fallible::push(&mut pieces, Piece { text, conversion: None })?;
    }
    Ok(Some(pieces))
}

/// Parses the conversion after a `%`; `None` if it is unknown.
fn conversion(rest: &mut Peekable<Chars<'_>>) -> Option<Conversion> {
    let mut conversion = Conversion::default();
    while let Some(flag) = rest.next_if(|c| "-0#+ ".contains(*c)) {
        match flag {
            '-' => conversion.left = true,
            '0' => conversion.zeros = true,
            '#' => conversion.prefix = true,
            '+' => conversion.plus = true,
            _ => conversion.space = true,
        }
    }
    let number = |rest: &mut Peekable<Chars<'_>>| {
        let mut value = 0_usize;
        while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
            rest.next();
            value = value.saturating_mul(10).saturating_add(digit as usize);
        }
        (value <= WIDTH_MAX).then_some(value)
    };
    conversion.width = number(rest)?;
    if rest.next_if_eq(&'.').is_some() {
        conversion.precision = Some(number(rest)?);
    }
    let mut length = ['\0'; 2];
    for place in &mut length {
        *place = rest.next_if(|c| "hljzt".contains(*c)).unwrap_or_default();
    }
    conversion.bits = match length {
        ['h', 'h'] => 8,
        ['h', '\0'] => 16,
        ['\0' | 'l' | 'j' | 'z' | 't', '\0'] | ['l', 'l'] => 64,
        _ => return None,
    };
    conversion.shown = match rest.next()? {
        'd' | 'i' => Shown::Signed,
        'u' => Shown::Unsigned,
        'o' => Shown::Octal,
        'x' => Shown::Hexadecimal { upper: false },
        'X' => Shown::Hexadecimal { upper: true },
        'c' => Shown::Character,
        'p' => Shown::Pointer,
        's' => Shown::Text,
        'r' => {
            let style = rest.next_if(|c| "hx".contains(*c));
            Shown::Bytes { characters: style.is_none(), escaped: style != Some('h') }
        }
        _ => return None,
    };
    Some(conversion)
}

/// Records the type of the value in `conversion`, or refuses a type that the conversion cannot show.
pub(super) fn fit(conversion: &mut Conversion, of: Type) -> Result<(), Problem> {
    let is_number = matches!(of, Type::Integer { .. } | Type::Pointer { .. });
    let (wanted, fits) = match conversion.shown {
        Shown::Text => (Noun::Text, !is_number),
        Shown::Bytes { .. } => (Noun::Bytes, matches!(of, Type::Bytes { .. } | Type::Rust { .. })),
        Shown::Pointer | Shown::Hexadecimal { .. } => {
            (Noun::Integer, is_number || matches!(of, Type::Symbol | Type::Time { .. }))
        }
        _ => (Noun::Integer, is_number),
    };
    conversion.of = of;
    if fits { Ok(()) } else { Err(Problem::ConversionType { wanted, found: of.into() }) }
}
