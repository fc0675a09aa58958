//! The reader. Every number is checked before it is used: [`Types::parse`] looks at all there is, and what it has accepted is read
//! again by the same checks.

use core::{fmt, str};

use kprobes_symbols::crc32;
use zerocopy::FromBytes;

use crate::lines::{self, Lines};
use crate::model::{Flavor, Form, Kind, Place, Tag, TypeId, Unknown};
use crate::record::Cursor;
use crate::{ALIGNMENT, CHECKED_FROM, HEADER_WORDS, LINES, MAGIC, PARTS, VERSION};

/// Why bytes are not a table of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypesError {
    /// There are no bytes, or others than those of a table.
    Absent,
    /// There are fewer bytes than the table needs.
    Truncated {
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that are there.
        present: usize,
    },
    /// The bytes lie at an address that no table is at.
    Misaligned {
        /// The virtual address, which is no multiple of 4.
        address: usize,
    },
    /// The table is of a version that this reader does not know.
    Version {
        /// The version in the header.
        found: u32,
    },
    /// The bytes are not those that were written.
    Checksum {
        /// The checksum in the header.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The checksum is right, but this part contradicts the format.
    Inconsistent {
        /// The part, as a noun.
        part: &'static str,
    },
}

impl fmt::Display for TypesError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => write!(out, "there is no table of types behind the symbols of this image"),
            Self::Truncated { needed, present } => {
                write!(out, "the table of types is truncated: it needs {needed} bytes and {present} are there")
            }
            Self::Misaligned { address } => {
                write!(out, "the table of types is at {address:#x}, which is no multiple of {ALIGNMENT}")
            }
            Self::Version { found } => {
                write!(out, "the table of types is of version {found}, and only version {VERSION} is known")
            }
            Self::Checksum { expected, found } => {
                write!(out, "the table of types is damaged: its checksum is {found:#010x} instead of {expected:#010x}")
            }
            Self::Inconsistent { part } => write!(out, "the table of types contradicts itself in {part}"),
        }
    }
}

impl core::error::Error for TypesError {}

/// A table that lies in memory as the host wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types<'a> {
    base: u64,
    /// Offset, and where the record begins, of every function, in ascending order of offset.
    functions: &'a [[u32; 2]],
    function_records: &'a [u8],
    /// Where the record begins of every type.
    types: &'a [u32],
    type_records: &'a [u8],
    names: &'a [u8],
    lines: lines::Parts<'a>,
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    types: Types<'a>,
    count: usize,
    rest: Cursor<'a>,
}

/// What a function is given, or returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// Its name; empty for what is returned.
    pub name: &'a str,
    /// Its type.
    pub of: TypeId,
    /// Where it is at the entry of the function; of what is returned, where it is at the return.
    pub place: Place,
}

/// A type.
#[derive(Clone, Debug)]
pub struct Type<'a> {
    /// As the compiler names it, without the paths of modules.
    pub name: &'a str,
    /// The path of the module that declares it; empty for what the language has.
    pub module: &'a str,
    /// In bytes.
    pub size: u64,
    /// What it is.
    pub kind: Kind<TypeId, Members<'a>, Variants<'a>, Enumerators<'a>>,
}

/// A member of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its name, or its number.
    pub name: &'a str,
    /// Where it is in the struct, in bytes.
    pub offset: u32,
    /// Its type.
    pub of: TypeId,
}

/// A variant of an enum with fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant<'a> {
    /// Its name.
    pub name: &'a str,
    /// The tag that it is known by; nothing for the one that all tags are for that no other variant has.
    pub value: Option<u64>,
    /// A struct of its fields, at their places in the enum.
    pub of: TypeId,
}

/// A variant of an enum without fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumerator<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value, in as many bytes as the type has.
    pub value: u64,
}

/// Makes an iterator over a list in a record.
macro_rules! list {
    ($(#[$doc:meta])* $list:ident, $item:ident, $next:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $list<'a> {
            types: Types<'a>,
            count: usize,
            rest: Cursor<'a>,
        }

        impl<'a> $list<'a> {
            /// Takes the list that begins at `rest`, and leaves what follows it.
            fn take(types: Types<'a>, rest: &mut Cursor<'a>) -> Option<Self> {
                let count = rest.number()?.try_into().ok()?;
                let list = Self { types, count, rest: *rest };
                let mut items = list.clone();
                for _ in 0..count {
                    items.$next()?;
                }
                *rest = items.rest;
                Some(list)
            }
        }

        impl<'a> Iterator for $list<'a> {
            type Item = $item<'a>;

            fn next(&mut self) -> Option<$item<'a>> {
                self.count = self.count.checked_sub(1)?;
                self.$next()
            }
        }
    };
}

list!(
    /// The members of a struct, in the order of their declaration.
    Members, Member, member
);
list!(
    /// The variants of an enum with fields.
    Variants, Variant, variant
);
list!(
    /// The variants of an enum without fields.
    Enumerators, Enumerator, enumerator
);

impl<'a> Members<'a> {
    fn member(&mut self) -> Option<Member<'a>> {
        let name = self.types.name(self.rest.word()?)?;
        Some(Member { name, offset: self.rest.word()?, of: self.types.id(self.rest.word()?)? })
    }
}

impl<'a> Variants<'a> {
    fn variant(&mut self) -> Option<Variant<'a>> {
        let name = self.types.name(self.rest.word()?)?;
        let value = match self.rest.number()? {
            0 => None,
            1 => Some(self.rest.number()?),
            _ => return None,
        };
        Some(Variant { name, value, of: self.types.id(self.rest.word()?)? })
    }
}

impl<'a> Enumerators<'a> {
    fn enumerator(&mut self) -> Option<Enumerator<'a>> {
        Some(Enumerator { name: self.types.name(self.rest.word()?)?, value: self.rest.number()? })
    }
}

impl<'a> Function<'a> {
    /// What it is given, in the order of its declaration.
    pub fn arguments(&self) -> impl Iterator<Item = Argument<'a>> + Clone + use<'a> {
        let Self { types, count, mut rest } = *self;
        (0..count).map_while(move |_| types.argument(&mut rest))
    }

    /// What it returns.
    #[must_use]
    pub fn returned(&self) -> Option<Argument<'a>> {
        let Self { types, count, mut rest } = *self;
        (0..count).try_for_each(|_| types.argument(&mut rest).map(drop))?;
        let of = types.id(rest.word()?)?;
        Some(Argument { name: "", of, place: rest.place()? })
    }
}

/// The signature without the name, as in `fn(self: &Disk, block: u64) -> Result<(), Error>`. What cannot be asked for at the entry
/// is followed by the reason, in parentheses.
impl fmt::Display for Function<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |of: TypeId| self.types.get(of).map_or("?", |of| of.name);
        out.write_str("fn(")?;
        for (number, argument) in self.arguments().enumerate() {
            out.write_str(if number > 0 { ", " } else { "" })?;
            let own = if argument.name.is_empty() { "_" } else { argument.name };
            write!(out, "{own}: {}", name(argument.of))?;
            match argument.place {
                Place::Unknown(Unknown::OptimizedOut) => out.write_str(" (optimised out)")?,
                Place::Unknown(_) => out.write_str(" (unknown at the entry)")?,
                _ => {}
            }
        }
        out.write_str(")")?;
        match self.returned() {
            Some(returned) if name(returned.of) != "()" => write!(out, " -> {}", name(returned.of)),
            _ => Ok(()),
        }
    }
}

impl<'a> Types<'a> {
    /// The table at the start of `bytes`; what follows it is ignored.
    ///
    /// # Errors
    ///
    /// If the bytes are not a table that is aligned, complete, intact and consistent. All of it is checked here.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TypesError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(TypesError::Absent);
        }
        let truncated = |needed| TypesError::Truncated { needed, present: bytes.len() };
        let (words, _) = bytes.as_chunks::<4>();
        let (header, parts) = words.split_first_chunk::<HEADER_WORDS>().ok_or(truncated(4 * HEADER_WORDS))?;
        let [_, _, checksum, version, length, count, base_low, base_high] = header.map(u32::from_le_bytes);
        if version != VERSION {
            return Err(TypesError::Version { found: version });
        }
        let table = bytes.get(..length as usize).ok_or(truncated(length as usize))?;
        if !table.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            return Err(TypesError::Misaligned { address: table.as_ptr().addr() });
        }
        let checked = table.get(CHECKED_FROM..).ok_or(TypesError::Inconsistent { part: "its length" })?;
        let found = crc32(checked);
        if found != checksum {
            return Err(TypesError::Checksum { expected: checksum, found });
        }
        let part = |wanted: u32| {
            let (parts, _) = parts.as_chunks::<3>();
            let parts = parts.get(..count as usize)?.iter().map(|part| part.map(u32::from_le_bytes));
            let [_, start, length] = parts.clone().find(|[kind, ..]| *kind == wanted)?;
            table.get(start as usize..)?.get(..length as usize)
        };
        let base = u64::from(base_low) | u64::from(base_high) << 32;
        let types = Self::of_parts(base, PARTS.map(part), LINES.map(part));
        let types = types.ok_or(TypesError::Inconsistent { part: "its parts" })?;
        types.check()?;
        Ok(types)
    }

    fn of_parts(base: u64, parts: [Option<&'a [u8]>; 5], lines: [Option<&'a [u8]>; 3]) -> Option<Self> {
        let [functions, function_records, types, type_records, names] = parts;
        let lines = match lines {
            [Some(blocks), Some(rows), Some(files)] => lines::Parts {
                blocks: FromBytes::ref_from_bytes(blocks).ok()?,
                rows,
                files: FromBytes::ref_from_bytes(files).ok()?,
            },
            _ => lines::Parts::default(),
        };
        Some(Self {
            base,
            functions: FromBytes::ref_from_bytes(functions?).ok()?,
            function_records: function_records?,
            types: FromBytes::ref_from_bytes(types?).ok()?,
            type_records: type_records?,
            names: names?,
            lines,
        })
    }

    /// Whether every record is one.
    fn check(&self) -> Result<(), TypesError> {
        let part = |part| TypesError::Inconsistent { part };
        for number in 0..self.types.len() {
            self.get(TypeId(number as u32)).ok_or(part("a type"))?;
        }
        if !self.functions.is_sorted_by(|[one, _], [next, _]| u32::from_le(*one) < u32::from_le(*next)) {
            return Err(part("the order of its functions"));
        }
        for function in self.functions {
            self.record(function).and_then(|function| function.returned()).ok_or(part("a function"))?;
        }
        if let Some(lines) = self.lines() {
            lines.check().ok_or(part("its lines"))?;
        }
        Ok(())
    }

    /// The lines of source, if the table has them.
    #[must_use]
    pub fn lines(&self) -> Option<Lines<'a>> {
        Lines::of(*self, self.lines)
    }

    /// The address that offsets count from.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// How many functions the table has.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// How many types the table has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether the table has no type.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The function that begins at the virtual address `address`.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<Function<'a>> {
        let wanted = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let found = self.functions.binary_search_by_key(&wanted, |[offset, _]| u32::from_le(*offset)).ok()?;
        self.record(self.functions.get(found)?)
    }

    fn record(&self, [_, at]: &[u32; 2]) -> Option<Function<'a>> {
        let mut rest = Cursor(self.function_records.get(u32::from_le(*at) as usize..)?);
        let count = rest.number()?.try_into().ok()?;
        Some(Function { types: *self, count, rest })
    }

    fn argument(&self, rest: &mut Cursor<'a>) -> Option<Argument<'a>> {
        let name = self.name(rest.word()?)?;
        Some(Argument { name, of: self.id(rest.word()?)?, place: rest.place()? })
    }

    /// The name that begins there.
    pub(crate) fn name(&self, at: u32) -> Option<&'a str> {
        let mut rest = Cursor(self.names.get(at as usize..)?);
        let length = rest.number()?.try_into().ok()?;
        str::from_utf8(rest.bytes(length)?).ok()
    }

    /// The type of this number, if there is one.
    fn id(&self, number: u32) -> Option<TypeId> {
        ((number as usize) < self.types.len()).then_some(TypeId(number))
    }

    /// A type.
    #[must_use]
    pub fn get(&self, id: TypeId) -> Option<Type<'a>> {
        let at = u32::from_le(*self.types.get(id.0 as usize)?);
        let mut rest = Cursor(self.type_records.get(at as usize..)?);
        let (name, module) = (self.name(rest.word()?)?, self.name(rest.word()?)?);
        let size = rest.number()?;
        let rest = &mut rest;
        let flag = |rest: &mut Cursor<'a>| match rest.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let id = |rest: &mut Cursor<'a>| self.id(rest.word()?);
        let kind = match rest.number()? {
            0 => Kind::Opaque,
            1 => Kind::Unit,
            2 => Kind::Bool,
            3 => Kind::Char,
            4 => Kind::Integer { signed: flag(rest)? },
            5 => Kind::Float,
            6 => Kind::Function,
            7 => {
                let flavor = match rest.number()? {
                    0 => Flavor::Reference,
                    1 => Flavor::Shared,
                    2 => Flavor::Raw,
                    _ => return None,
                };
                Kind::Pointer { flavor, target: id(rest)?, at: rest.word()? }
            }
            8 => Kind::Sequence { element: id(rest)?, is_text: flag(rest)?, data: rest.word()?, length: rest.word()? },
            9 => Kind::Dynamic { data: rest.word()?, vtable: rest.word()? },
            10 => Kind::Array { element: id(rest)?, count: rest.number()? },
            11 => {
                let form = if flag(rest)? { Form::Tuple } else { Form::Named };
                Kind::Struct { form, members: Members::take(*self, rest)? }
            }
            12 => Kind::Wrapper { target: id(rest)?, at: rest.word()? },
            13 => Kind::Enumeration { signed: flag(rest)?, enumerators: Enumerators::take(*self, rest)? },
            14 => {
                let tag = match flag(rest)? {
                    false => None,
                    true => {
                        let (offset, bytes) = (rest.word()?, rest.word()?);
                        matches!(bytes, 1 | 2 | 4 | 8).then_some(Some(Tag { offset, bytes: bytes as u8 }))?
                    }
                };
                Kind::Variants { tag, variants: Variants::take(*self, rest)? }
            }
            _ => return None,
        };
        Some(Type { name, module, size, kind })
    }
}

#[cfg(test)]
mod tests;
