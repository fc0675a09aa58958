//! How `printf` shows a value: the conversions of C, of whole 64 bits unless told otherwise.

use alloc::string::String;
use core::fmt::{self, Write};

use kprobes_vm::code::Type;
use kprobes_vm::hit::extend;

/// Text, and the value behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// As it is written.
    pub text: String,
    /// How the value is shown, if there is one.
    pub conversion: Option<Conversion>,
}

/// How a value is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The letter.
    pub shown: Shown,
    /// How many characters, at least.
    pub width: usize,
    /// How many digits at least, or characters of a string at most.
    pub precision: Option<usize>,
    /// How many bits of a number count: 8, 16 or 64.
    pub bits: u8,
    /// `-`: filled up on the right.
    pub left: bool,
    /// `0`: filled up with zeros.
    pub zeros: bool,
    /// `#`: with a prefix that says the base.
    pub prefix: bool,
    /// `+`: with a sign in any case.
    pub plus: bool,
    /// ` `: with a space in the place of a sign.
    pub space: bool,
    /// What is shown.
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

/// The letter of a conversion.
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
        /// In capital letters.
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
        /// Characters of ASCII as they are.
        characters: bool,
        /// Others as `\x00`, instead of as `00`, with spaces between them.
        escaped: bool,
    },
}

impl Conversion {
    /// Writes the number `value`, or `text` if a string is shown.
    pub(super) fn write(&self, value: u64, text: &str, out: &mut dyn Write) -> fmt::Result {
        let extended = |signed| if self.bits < 64 { extend(value, self.bits, signed) } else { value };
        let unsigned = extended(false);
        let (sign, digits) = match self.shown {
            Shown::Text | Shown::Bytes { .. } => {
                let length = self.precision.and_then(|most| text.char_indices().nth(most)).map(|(at, _)| at);
                return self.pad(text.get(..length.unwrap_or(text.len())).unwrap_or(text), out);
            }
            Shown::Character => return self.pad(&super::lossy(&[value as u8])?, out),
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
            // The prefix is a digit: one more, if the first is not 0 anyway.
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
        // C shows 0 with a precision of 0 as no digit at all, but for `%#o`.
        let is_shown = self.precision != Some(0)
            || digits != "0"
            || self.shown == Shown::Pointer
            || self.shown == Shown::Octal && self.prefix;
        let digits = if is_shown { digits.as_str() } else { "" };
        self.pad(&fallible::format(format_args!("{sign}{digits:0>fill$}"))?, out)
    }

    /// Writes `text`, filled up with spaces.
    fn pad(&self, text: &str, out: &mut dyn Write) -> fmt::Result {
        let width = self.width;
        if self.left { write!(out, "{text:<width$}") } else { write!(out, "{text:>width$}") }
    }
}
