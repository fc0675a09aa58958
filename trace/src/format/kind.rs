//! The types of values: the name of an argument's type, its size in a record, and how it is printed.
//!
//! The types are those of Linux's `kprobe_events` (Documentation/trace/kprobetrace.rst, "Types"). Each has three texts:
//! the one that is typed, as `x64`; the one of the field in `format`, as `u64`; and the conversion in the `print fmt`
//! of that file, as `0x%Lx`.

use alloc::borrow::Cow;
use core::fmt;

use fallible::OutOfMemory;

/// The type of a single value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// `u8` to `u64`, printed in decimal.
    Unsigned(Width),
    /// `s8` to `s64`, printed in decimal with a sign.
    Signed(Width),
    /// `x8` to `x64`, printed in hexadecimal.
    Hexadecimal(Width),
    /// `char`: a byte, printed as a character.
    Char,
    /// `symbol`: an address, printed as the function that contains it.
    Symbol,
    /// `string` and `ustring`: a text up to a zero, recorded after the fields.
    String,
    /// `symstr`: an address, recorded as the text of `symbol`.
    SymbolString,
    /// `char[N]`: a text of fixed size, recorded among the fields.
    Characters,
    /// `long[]`: the return addresses of a stack, recorded after the fields and ended by a 0.
    Stack,
}

/// The width of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    W8,
    /// 16 bits.
    W16,
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

/// A bitfield of an integer: `b<width>@<offset>/<size>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The number of bits; not 0.
    pub width: u8,
    /// The number of lower bits before them.
    pub offset: u8,
}

/// The type of an argument: one value or an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    /// The type of each value.
    pub base: Base,
    /// The bitfield, if the argument is one.
    pub bits: Option<Bits>,
    /// The number of values of an array; 0 if the argument is not an array.
    pub count: u8,
}

impl Width {
    /// Returns the width in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::W8 => 1,
            Self::W16 => 2,
            Self::W32 => 4,
            Self::W64 => 8,
        }
    }

    /// Returns the width in bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        8 * self.bytes() as u32
    }

    /// Returns the width of this number of bytes; `None` if no integer has it.
    #[must_use]
    pub const fn of_bytes(bytes: u64) -> Option<Self> {
        Some(match bytes {
            1 => Self::W8,
            2 => Self::W16,
            4 => Self::W32,
            8 => Self::W64,
            _ => return None,
        })
    }

    /// Returns the width for a decimal number of bits; `None` if it is not 8, 16, 32 or 64.
    #[must_use]
    pub fn of(bits: &str) -> Option<Self> {
        Some(match bits {
            "8" => Self::W8,
            "16" => Self::W16,
            "32" => Self::W32,
            "64" => Self::W64,
            _ => return None,
        })
    }
}

impl Base {
    /// Returns the type of this name, as it is typed.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "char" => Self::Char,
            "symbol" => Self::Symbol,
            "string" | "ustring" => Self::String,
            "symstr" => Self::SymbolString,
            _ => {
                let (letter, bits) = name.split_at_checked(1)?;
                let width = Width::of(bits)?;
                match letter {
                    "u" => Self::Unsigned(width),
                    "s" => Self::Signed(width),
                    "x" => Self::Hexadecimal(width),
                    _ => return None,
                }
            }
        })
    }

    /// Returns the size of a value in a record, in bytes; for a text after the fields, the size of its `__data_loc`
    /// word.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Unsigned(width) | Self::Signed(width) | Self::Hexadecimal(width) => width.bytes(),
            Self::Char | Self::Characters => 1,
            Self::Symbol => 8,
            Self::String | Self::SymbolString | Self::Stack => 4,
        }
    }

    /// Returns the width of a number of this type; `None` if the value is no number.
    #[must_use]
    pub const fn width(self) -> Option<Width> {
        match self {
            Self::Unsigned(width) | Self::Signed(width) | Self::Hexadecimal(width) => Some(width),
            Self::Char => Some(Width::W8),
            Self::Symbol => Some(Width::W64),
            Self::String | Self::SymbolString | Self::Characters | Self::Stack => None,
        }
    }

    /// Whether `format` shows the type as signed. Linux shows texts as signed, too.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::Signed(_) | Self::String | Self::SymbolString)
    }

    /// Whether the type is a text that is recorded after the fields.
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Self::String | Self::SymbolString)
    }

    /// Returns the name of the type in `format`.
    #[must_use]
    pub const fn field_text(self) -> &'static str {
        match self {
            Self::Signed(Width::W8) => "s8",
            Self::Signed(Width::W16) => "s16",
            Self::Signed(Width::W32) => "s32",
            Self::Signed(Width::W64) => "s64",
            Self::Unsigned(Width::W8) | Self::Hexadecimal(Width::W8) | Self::Char => "u8",
            Self::Unsigned(Width::W16) | Self::Hexadecimal(Width::W16) => "u16",
            Self::Unsigned(Width::W32) | Self::Hexadecimal(Width::W32) => "u32",
            Self::Unsigned(Width::W64) | Self::Hexadecimal(Width::W64) | Self::Symbol => "u64",
            Self::String | Self::SymbolString => "__data_loc char[]",
            Self::Characters => "char",
            Self::Stack => "__data_loc unsigned long[]",
        }
    }

    /// Returns the conversion in `print fmt`.
    #[must_use]
    pub const fn conversion(self) -> &'static str {
        match self {
            Self::Unsigned(Width::W64) => "%Lu",
            Self::Unsigned(_) => "%u",
            Self::Signed(Width::W64) => "%Ld",
            Self::Signed(_) => "%d",
            Self::Hexadecimal(Width::W64) => "0x%Lx",
            Self::Hexadecimal(_) => "0x%x",
            Self::Char => "'%c'",
            Self::Symbol => "%pS",
            Self::String | Self::SymbolString => r#"\"%s\""#,
            Self::Characters | Self::Stack => "%s",
        }
    }
}

impl Type {
    /// The type of an argument that gives none: `x64`.
    pub const DEFAULT: Self = Self::one(Base::Hexadecimal(Width::W64));

    /// Makes the type of one value of `base`.
    #[must_use]
    pub const fn one(base: Base) -> Self {
        Self { base, bits: None, count: 0 }
    }

    /// Returns the number of values in a record.
    #[must_use]
    pub const fn values(self) -> usize {
        if self.count == 0 { 1 } else { self.count as usize }
    }

    /// Returns the size of all values in a record, in bytes, without texts after the fields.
    #[must_use]
    pub const fn size(self) -> usize {
        self.base.size() * self.values()
    }

    /// Returns the text of the type in `format`, followed by the number of values if it is an array.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the text.
    pub fn field_text(self) -> Result<Cow<'static, str>, OutOfMemory> {
        Ok(match self.count {
            0 => Cow::Borrowed(self.base.field_text()),
            count => Cow::Owned(fallible::format(format_args!("{}[{count}]", self.base.field_text()))?),
        })
    }
}

/// The name of the base, as it is typed.
impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(width) => write!(f, "u{}", width.bits()),
            Self::Signed(width) => write!(f, "s{}", width.bits()),
            Self::Hexadecimal(width) => write!(f, "x{}", width.bits()),
            Self::Char => f.write_str("char"),
            Self::Symbol => f.write_str("symbol"),
            Self::String => f.write_str("string"),
            Self::SymbolString => f.write_str("symstr"),
            Self::Characters => f.write_str("char"),
            Self::Stack => f.write_str("long[]"),
        }
    }
}
