//! The conversions of `printf`, as in C. Numbers have 64 bits unless a length modifier says otherwise.

use alloc::string::String;
use core::fmt::{self, Write};

use fallible::{OutOfMemory, Text};
use kprobes_vm::hit::extend;
use kprobes_vm::ir::Type;

/// Literal text, with the conversion of the value that follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The literal text.
    pub text: String,
    /// The conversion of the value; `None` if no value follows.
    pub conversion: Option<Conversion>,
}

/// A conversion of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The kind of conversion, from its letter.
    pub shown: Shown,
    /// The minimum width, in characters.
    pub width: usize,
    /// The minimum number of digits, or the maximum length of a string in characters.
    pub precision: Option<usize>,
    /// The number of bits of the value that are used: 8, 16 or 64.
    pub bits: u8,
    /// `-`: padded on the right.
    pub left: bool,
    /// `0`: padded with zeros.
    pub zeros: bool,
    /// `#`: with a prefix for the base.
    pub prefix: bool,
    /// `+`: with a sign for positive numbers, too.
    pub plus: bool,
    /// ` `: with a space in place of a plus sign.
    pub space: bool,
    /// The type of the value.
    pub of: Type,
}

impl Default for Conversion {
    fn default() -> Self {
        Self {
            shown: Shown::Signed,
            width: 0,
            precision: None,
            bits: 64,
            left: false,
            zeros: false,
            prefix: false,
            plus: false,
            space: false,
            of: Type::Integer { signed: true },
        }
    }
}

/// The kind of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// `%d` and `%i`.
    Signed,
    /// `%u`.
    Unsigned,
    /// `%o`.
    Octal,
    /// `%x` and `%X`.
    Hexadecimal {
        /// Whether the digits are capital letters.
        upper: bool,
    },
    /// `%p`.
    Pointer,
    /// `%c`.
    Character,
    /// `%s`.
    Text,
    /// `%r`, `%rx` and `%rh`.
    Bytes {
        /// Whether printable ASCII characters are shown as they are.
        characters: bool,
        /// Whether other bytes are shown as `\x00`, instead of as `00` separated by spaces.
        escaped: bool,
    },
}

impl Conversion {
    /// Writes `value`, or `text` if the conversion shows a string.
    pub(super) fn write(&self, value: u64, text: &str, out: &mut dyn Write) -> fmt::Result {
        let extended = |signed| if self.bits < 64 { extend(value, self.bits, signed) } else { value };
        let unsigned = extended(false);
        let (sign, digits) = match self.shown {
            Shown::Text | Shown::Bytes { .. } => {
                let length = self.precision.and_then(|most| text.char_indices().nth(most)).map(|(at, _)| at);
                return self.pad(text.get(..length.unwrap_or(text.len())).unwrap_or(text), out);
            }
            Shown::Character => return self.pad(&lossy(&[value as u8])?, out),
            Shown::Signed => {
                let signed = extended(true).cast_signed();
                let sign = match signed {
                    ..0 => "-",
                    _ if self.plus => "+",
                    _ if self.space => " ",
                    _ => "",
                };
                (sign, fallible::format(format_args!("{}", signed.unsigned_abs()))?)
            }
            Shown::Unsigned => ("", fallible::format(format_args!("{unsigned}"))?),
            // The prefix is itself a digit, and is added unless the number is 0.
            Shown::Octal if self.prefix && unsigned != 0 => ("", fallible::format(format_args!("0{unsigned:o}"))?),
            Shown::Octal => ("", fallible::format(format_args!("{unsigned:o}"))?),
            Shown::Hexadecimal { upper: false } => {
                (if self.prefix && unsigned != 0 { "0x" } else { "" }, fallible::format(format_args!("{unsigned:x}"))?)
            }
            Shown::Hexadecimal { upper: true } => {
                (if self.prefix && unsigned != 0 { "0X" } else { "" }, fallible::format(format_args!("{unsigned:X}"))?)
            }
            Shown::Pointer => ("0x", fallible::format(format_args!("{value:x}"))?),
        };
        let fill = match self.precision {
            Some(least) => least,
            None if self.zeros && !self.left => self.width.saturating_sub(sign.len()),
            None => 0,
        };
        // C shows 0 with a precision of 0 as no digits, except for `%#o`.
        let is_shown = self.precision != Some(0)
            || digits != "0"
            || self.shown == Shown::Pointer
            || self.shown == Shown::Octal && self.prefix;
        let digits = if is_shown { digits.as_str() } else { "" };
        self.pad(&fallible::format(format_args!("{sign}{digits:0>fill$}"))?, out)
    }

    /// Writes `text`, padded with spaces.
    fn pad(&self, text: &str, out: &mut dyn Write) -> fmt::Result {
        let width = self.width;
        if self.left { write!(out, "{text:<width$}") } else { write!(out, "{text:>width$}") }
    }
}

/// Returns `bytes` as text, with a replacement character for invalid UTF-8.
pub(crate) fn lossy(bytes: &[u8]) -> Result<String, OutOfMemory> {
    let mut text = Text::default();
    for chunk in bytes.utf8_chunks() {
        let replacement = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        write!(text, "{}{replacement}", chunk.valid()).map_err(|_| OutOfMemory)?;
    }
    Ok(text.0)
}
