//! The reader of symbol tables. It runs in fatal reports, on whatever bytes follow the image. Therefore it neither
//! allocates nor panics, and it checks every number before use.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::{fmt, str};

use zerocopy::FromBytes;

use crate::frame::{self, Defect};
use crate::inlined::{InlinedCopies, InlinedError, Packed};
use crate::{HEADER_BYTES, HEADER_WORDS, MAGIC, VERSION};

/// A word of the table as it is in memory: little-endian.
type Word = u32;

/// A function or a static of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The demangled name.
    pub name: &'a str,
    /// The virtual (link) address of the first byte.
    pub address: u64,
    /// The length in bytes, never 0 in a table that the host tool wrote.
    pub size: u64,
}

/// Why bytes are not a symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolError {
    /// The bytes do not begin with the magic of a table.
    Magic,
    /// The bytes begin like a table, which has this defect.
    Defect(Defect),
}

impl fmt::Display for SymbolError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => write!(out, "there is no symbol table: `cargo kprobes image KERNEL` fills it in"),
            Self::Defect(defect) => write!(out, "the symbol table {defect}"),
        }
    }
}

impl core::error::Error for SymbolError {}

impl From<Defect> for SymbolError {
    fn from(defect: Defect) -> Self {
        Self::Defect(defect)
    }
}

/// A symbol table, read in place.
#[derive(Clone, Copy, Debug)]
pub struct SymbolTable<'a> {
    /// The size in bytes.
    length: usize,
    functions: List<'a>,
    statics: List<'a>,
    data: Ranges<'a>,
    survey: &'a [u8],
    inlined: Packed<'a>,
}

/// Symbols with two sort orders.
#[derive(Clone, Copy, Debug)]
struct List<'a> {
    base: u64,
    /// The offset, size and name of each symbol, in ascending order of offset.
    entries: &'a [[Word; 3]],
    /// The entry numbers in ascending order of name.
    by_name: &'a [Word],
    names: &'a [u8],
}

/// Ranges of addresses.
#[derive(Clone, Copy, Debug)]
struct Ranges<'a> {
    base: u64,
    /// The offset and size of each range, in ascending order.
    entries: &'a [[Word; 2]],
}

impl<'a> SymbolTable<'a> {
    /// Parses the table at the start of `bytes`, and ignores what follows it.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a complete, aligned, intact and consistent table. Everything except the inlined
    /// copies is checked here.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SymbolError> {
        if bytes.get(..MAGIC.len()).is_some_and(|start| start != MAGIC) {
            return Err(SymbolError::Magic);
        }
        let (header, bytes) = frame::open::<HEADER_WORDS>(bytes, VERSION)?;
        let [_, _, _, _, length, functions, base_low, base_high, inlined, inlined_at, unpacked, statics, data, survey] =
            header;
        let base = u64::from(base_low) | u64::from(base_high) << 32;
        let (bytes, copies) = bytes
            .split_at_checked(inlined_at as usize)
            .ok_or(Defect::Inconsistent { part: "its start of inlined copies" })?;
        let inlined = Packed { base, count: inlined as usize, length: unpacked as usize, bytes: copies };
        let table = Self::split(bytes, [functions, statics, data, survey].map(|number| number as usize), base, inlined)
            .map(|table| Self { length: length as usize, ..table })
            .ok_or(Defect::Inconsistent { part: "its number of symbols" })?;
        table.functions.check()?;
        table.statics.check()?;
        table.data.check()?;
        Ok(table)
    }

    /// Returns the table of an image that runs `distance` bytes after its link address, modulo 2⁶⁴. All addresses in
    /// the result are those at which the image runs.
    ///
    /// # Errors
    ///
    /// Fails if the image would not end within the address space.
    pub fn moved_by(mut self, distance: u64) -> Result<Self, SymbolError> {
        if distance == 0 {
            return Ok(self);
        }
        let Self { functions, statics, data, inlined, .. } = &mut self;
        for base in [&mut functions.base, &mut statics.base, &mut data.base, &mut inlined.base] {
            *base = base.wrapping_add(distance);
        }
        self.functions.check()?;
        self.statics.check()?;
        self.data.check()?;
        Ok(self)
    }

    /// Splits the bytes into the parts after the header. `None` if the numbers of functions, statics, ranges of data
    /// and bytes of the survey do not fit.
    fn split(bytes: &'a [u8], numbers: [usize; 4], base: u64, inlined: Packed<'a>) -> Option<Self> {
        let [functions, statics, data, survey] = numbers;
        let (_, bytes) = bytes.split_at_checked(HEADER_BYTES)?;
        let (functions, bytes) = bytes.split_at_checked(functions.checked_mul(LISTED)?)?;
        let (statics, bytes) = bytes.split_at_checked(statics.checked_mul(LISTED)?)?;
        let (data, bytes) = bytes.split_at_checked(data.checked_mul(size_of::<[Word; 2]>())?)?;
        let (survey, names) = bytes.split_at_checked(survey)?;
        let list = |bytes| List::split(bytes, base, names);
        let data = Ranges { base, entries: FromBytes::ref_from_bytes(data).ok()? };
        Some(Self { length: 0, functions: list(functions)?, statics: list(statics)?, data, survey, inlined })
    }

    /// Returns the size of the table in bytes. The next table in an image begins at the next multiple of 4.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the function that contains `address`. Of several names for one function, this is the first in ascending
    /// order.
    pub fn lookup(&self, address: u64) -> Option<Symbol<'a>> {
        self.functions.symbol(self.functions.containing(address, &mut 0)?)
    }

    /// Returns the virtual addresses of the function that [`lookup`](Self::lookup) finds for `address`. This is faster
    /// than `lookup`, because the name is not read. `near` is a hint, and is updated: successive calls with nearby
    /// addresses need no search. Any initial value is allowed.
    #[inline]
    pub fn range(&self, address: u64, near: &mut usize) -> Option<Range<u64>> {
        let [offset, size, _] = self.functions.containing(address, near)?.map(u32::from_le);
        let start = self.functions.base + u64::from(offset);
        Some(start..start + u64::from(size))
    }

    /// Returns what [`range`](Self::range) finds, for addresses of this image, with a hint that CPUs share.
    #[inline]
    pub fn range_with_hint(&self, address: usize, near: &AtomicUsize) -> Option<Range<usize>> {
        let mut hint = near.load(Ordering::Relaxed);
        let Range { start, end } = self.range(address as u64, &mut hint)?;
        near.store(hint, Ordering::Relaxed);
        Some(start as usize..end as usize)
    }

    /// Returns the functions whose name is exactly `name`, in ascending order of address.
    pub fn find(&self, name: &str) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        self.functions.find(name)
    }

    /// Returns the statics whose name is exactly `name`, in ascending order of address.
    pub fn find_static(&self, name: &str) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        self.statics.find(name)
    }

    /// Returns every function, in ascending order of address.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        self.functions.iter()
    }

    /// Returns every function, in ascending order of name and, for one name, of address.
    pub fn by_name(&self) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        let list = self.functions;
        list.by_name.iter().filter_map(move |number| list.numbered(number))
    }

    /// Returns every static, in ascending order of address.
    pub fn statics(&self) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        self.statics.iter()
    }

    /// Whether there is data among the instructions at `addresses`, according to the mapping symbols of the program
    /// (ELF for the Arm 64-bit Architecture, section 5.7).
    pub fn has_data(&self, addresses: Range<u64>) -> bool {
        self.data.overlap(&addresses)
    }

    /// Returns the survey of the text that the engine has made on the host, for `Platform::survey`; empty if the table
    /// has no such part.
    #[must_use]
    pub fn survey(&self) -> &'a [u8] {
        self.survey
    }

    /// Unpacks the inlined copies of functions. Unlike all other functions of the reader, this one allocates.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory, or if the copies contradict the format.
    pub fn inlined(&self) -> Result<InlinedCopies, InlinedError> {
        self.inlined.unpack()
    }

    /// Returns the number of functions in the table.
    pub fn len(&self) -> usize {
        self.functions.entries.len()
    }

    /// Whether the table has no function.
    pub fn is_empty(&self) -> bool {
        self.functions.entries.is_empty()
    }
}

impl Ranges<'_> {
    /// Checks that the ranges are in order, do not touch, and end within the address space.
    fn check(&self) -> Result<(), Defect> {
        let ends = self.entries.iter().map(|entry| {
            let [offset, size] = entry.map(u32::from_le);
            (size > 0).then_some(offset.checked_add(size)?).filter(|&end| self.base.checked_add(end.into()).is_some())
        });
        let starts = self.entries.iter().skip(1).map(|&[offset, _]| u32::from_le(offset)).chain([u32::MAX]);
        match ends.zip(starts).all(|(end, next)| end.is_some_and(|end| end < next)) {
            true => Ok(()),
            false => Err(Defect::Inconsistent { part: "its ranges of data" }),
        }
    }

    /// Whether a range overlaps `addresses`.
    fn overlap(&self, addresses: &Range<u64>) -> bool {
        let upto = self.entries.partition_point(|entry| self.range(entry).start < addresses.end);
        let last = self.entries.get(..upto).and_then(<[_]>::last);
        last.is_some_and(|entry| self.range(entry).end > addresses.start)
    }

    /// Returns the virtual addresses of an entry.
    fn range(&self, entry: &[Word; 2]) -> Range<u64> {
        let [offset, size] = entry.map(|word| u64::from(u32::from_le(word)));
        let start = self.base.wrapping_add(offset);
        start..start.wrapping_add(size)
    }
}

/// The bytes that a list takes for each symbol, without its name.
const LISTED: usize = 16;

impl<'a> List<'a> {
    /// Splits the bytes of a list, which has 16 for each symbol.
    fn split(bytes: &'a [u8], base: u64, names: &'a [u8]) -> Option<Self> {
        let (entries, by_name) = bytes.split_at_checked(bytes.len() / LISTED * 12)?;
        let (entries, by_name) = (FromBytes::ref_from_bytes(entries).ok()?, FromBytes::ref_from_bytes(by_name).ok()?);
        Some(Self { base, entries, by_name, names })
    }

    /// Checks that every entry is a symbol and that both orders hold.
    fn check(&self) -> Result<(), Defect> {
        let part = |part| Defect::Inconsistent { part };
        for words in self.entries {
            self.symbol(words).ok_or(part("an entry"))?;
        }
        if !self.entries.is_sorted_by_key(|[offset, ..]| u32::from_le(*offset)) {
            return Err(part("the order of its addresses"));
        }
        let mut last = "";
        for number in self.by_name {
            let name = self.numbered(number).ok_or(part("an entry number"))?.name;
            if name < last {
                return Err(part("the order of its names"));
            }
            last = name;
        }
        Ok(())
    }

    /// Returns the symbol of an entry; `None` if its name or its end is out of bounds.
    fn symbol(&self, words: &[Word; 3]) -> Option<Symbol<'a>> {
        let [offset, size, name] = words.map(u32::from_le);
        let (length, name) = self.names.get(name as usize..)?.split_first_chunk::<2>()?;
        let name = str::from_utf8(name.get(..usize::from(u16::from_le_bytes(*length)))?).ok()?;
        let address = self.base.checked_add(offset.into())?;
        let size = u64::from(size);
        address.checked_add(size)?;
        Some(Symbol { name, address, size })
    }

    /// Returns the symbol with this entry number.
    fn numbered(&self, number: &Word) -> Option<Symbol<'a>> {
        self.symbol(self.entries.get(u32::from_le(*number) as usize)?)
    }

    /// Returns the entry of the symbol that contains `address`. Of several, this is the one that begins nearest to the
    /// address, and among equal ones the first entry. `near` is a guess of how many symbols begin at or below the
    /// address, and is updated to that number.
    #[inline]
    fn containing(&self, address: u64, near: &mut usize) -> Option<&'a [Word; 3]> {
        let wanted = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let offset = |[offset, ..]: &[Word; 3]| u32::from_le(*offset);
        let begins = |words: &[Word; 3]| offset(words) <= wanted;
        // By the guess, the last symbol that begins at or below the address, and the two after it.
        let around = near.checked_sub(1).and_then(|last| self.entries.get(last..)?.first_chunk());
        *near = match around {
            Some([last, next, _]) if begins(last) && !begins(next) => *near,
            Some([_, next, after]) if begins(next) && !begins(after) => *near + 1,
            _ => self.entries.partition_point(begins),
        };
        let (last, before) = self.entries.get(..*near)?.split_last()?;
        let start = offset(last);
        let contains = |[_, size, _]: &[Word; 3]| wanted - start < u32::from_le(*size);
        // Entries with the same offset: further names of the function, or functions without instructions.
        let others = before.iter().rev().take_while(|words| offset(words) == start).filter(|words| contains(words));
        others.last().or(Some(last).filter(|last| contains(last)))
    }

    /// Returns the symbols whose name is exactly `name`, in ascending order of address.
    fn find(&self, name: &str) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        let name_of = |number: &Word| self.numbered(number).map_or("", |symbol| symbol.name);
        let from = self.by_name.partition_point(|number| name_of(number) < name);
        let to = self.by_name.partition_point(|number| name_of(number) <= name);
        let list = *self;
        list.by_name.get(from..to).unwrap_or_default().iter().filter_map(move |number| list.numbered(number))
    }

    /// Returns every symbol, in ascending order of address.
    fn iter(&self) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        let list = *self;
        list.entries.iter().filter_map(move |words| list.symbol(words))
    }
}

#[cfg(test)]
mod tests;
