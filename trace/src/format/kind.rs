//! The types of values: what an argument's type is called, how many bytes it has in a record, and how it is printed.
//!
//! They are those of Linux's `kprobe_events` (Documentation/trace/kprobetrace.rst, "Types"). A type has three texts: the one
//! that is typed, `x64`; that of the field in `format`, `u64`; and the conversion in the `print fmt` of that file, `0x%Lx`.

use alloc::borrow::Cow;
use core::fmt;

use fallible::OutOfMemory;

/// What one value is, apart from how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// `u8` to `u64`, printed in decimal.
    Unsigned(Width),
    /// `s8` to `s64`, printed in decimal with its sign.
    Signed(Width),
    /// `x8` to `x64`, printed in hexadecimal.
    Hexadecimal(Width),
    /// `char`: a byte, printed as a character.
    Char,
    /// `symbol`: an address, printed as the function that it is in.
    Symbol,
    /// `string` and `ustring`: text that ends with a zero, kept behind the fields.
    String,
    /// `symstr`: an address, recorded as the text of `symbol`.
    SymbolString,
    /// `char[N]`: text of a fixed size, among the fields.
    Characters,
    /// `long[]`: the return addresses of a stack, kept behind the fields up to one that is 0.
    Stack,
}

/// How many bits an integer has.
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

/// Which bits of an integer count: `b<width>@<offset>/<size>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// How many, not 0.
    pub width: u8,
    /// How many lower ones do not.
    pub offset: u8,
}

/// A type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    /// Of each value.
    pub base: Base,
    /// The bits that count, where not all do.
    pub bits: Option<Bits>,
    /// How many values there are; 0 for one that is no array.
    pub count: u8,
}

impl Width {
    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::W8 => 1,
            Self::W16 => 2,
            Self::W32 => 4,
            Self::W64 => 8,
        }
    }

    /// In bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        8 * self.bytes() as u32
    }

    /// The width of so many bits, given in decimal.
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
    /// The type of this name.
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

    /// Bytes of a value in a record; of text, those of the word that says where it is.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Unsigned(width) | Self::Signed(width) | Self::Hexadecimal(width) => width.bytes(),
            Self::Char | Self::Characters => 1,
            Self::Symbol => 8,
            Self::String | Self::SymbolString | Self::Stack => 4,
        }
    }

    /// Whether `format` says that it has a sign. It does so of text.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::Signed(_) | Self::String | Self::SymbolString)
    }

    /// Whether it is text, kept behind the fields.
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Self::String | Self::SymbolString)
    }

    /// Its name in `format`.
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

    /// Its conversion in `print fmt`.
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
    /// What an argument without a type is: `x64`.
    pub const DEFAULT: Self = Self::one(Base::Hexadecimal(Width::W64));

    /// One value of `base`.
    #[must_use]
    pub const fn one(base: Base) -> Self {
        Self { base, bits: None, count: 0 }
    }

    /// How many values a record has.
    #[must_use]
    pub const fn values(self) -> usize {
        if self.count == 0 { 1 } else { self.count as usize }
    }

    /// Bytes of all values in a record, without what text has behind the fields.
    #[must_use]
    pub const fn size(self) -> usize {
        self.base.size() * self.values()
    }

    /// The text of the type in `format`: with the number of values behind it, if it is an array.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
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
