//! Inlined copies: functions that the compiler has put into others. They have no symbols, but users ask for them by
//! name as for any function. The host finds out where each copy is entered and left, and this module reads its list.
//!
//! There are many copies. Therefore each takes few bytes, the whole list is packed, and a query reads the list from its
//! first byte on. The documentation of the crate describes the format.

use alloc::string::String;
use alloc::vec::Vec;
use core::str;

use fallible::OutOfMemory;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::frame;

/// The number of flag bits: the copy is in pieces, its entries are unknown, its exits are unknown.
pub(crate) const FLAGS: u32 = 3;
pub(crate) const IN_PIECES: u64 = 1;
pub(crate) const NO_ENTRIES: u64 = 2;
pub(crate) const NO_EXITS: u64 = 4;

/// When control passes into or out of a copy at an instruction that is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Whenever the instruction is executed.
    Always,
    /// If the instruction branches.
    Taken,
    /// If the instruction does not branch.
    NotTaken,
}

impl When {
    /// All values, in the order of their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::Always, Self::Taken, Self::NotTaken];
}

/// An instruction at which control passes into or out of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Passage {
    /// The virtual (link) address of the instruction.
    pub address: u64,
    /// When control passes there.
    pub when: When,
}

/// A function that has inlined copies, or that contains copies of others.
#[derive(Clone, Debug)]
pub struct InlinedFunction<'a> {
    /// The number among all such functions, in ascending order of name.
    pub number: usize,
    /// The demangled name.
    pub name: String,
    base: u64,
    copies: Numbers<'a>,
}

impl<'a> InlinedFunction<'a> {
    /// Returns the copies in ascending order of address.
    pub fn copies(&self) -> impl Iterator<Item = InlinedCopy<'a>> + use<'a> {
        let (mut numbers, mut last) = (self.copies, self.base);
        core::iter::from_fn(move || {
            let copy = numbers.copy(last)?;
            last = copy.address;
            Some(copy)
        })
    }
}

/// A copy of a function.
#[derive(Clone, Copy, Debug)]
pub struct InlinedCopy<'a> {
    /// The virtual (link) address of the first instruction.
    pub address: u64,
    /// The number of the function that it was copied into, if that one is itself a copy.
    pub caller: Option<usize>,
    /// Whether the entries and exits do not enclose exactly the copy's instructions, because the compiler has mixed
    /// them with others.
    pub is_in_pieces: bool,
    entries: Option<Numbers<'a>>,
    exits: Option<Numbers<'a>>,
}

impl<'a> InlinedCopy<'a> {
    /// Returns where control enters the copy; `None` if instructions do not tell.
    pub fn entries(&self) -> Option<impl Iterator<Item = Passage> + use<'a>> {
        Some(self.entries?.passages(self.address))
    }

    /// Returns where control leaves the copy; `None` if instructions do not tell.
    pub fn exits(&self) -> Option<impl Iterator<Item = Passage> + use<'a>> {
        Some(self.exits?.passages(self.address))
    }
}

/// A sequence of encoded numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    fn next(&mut self) -> Option<u64> {
        frame::take(&mut self.0)
    }

    fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads the copy after one at the virtual address `last`.
    fn copy(&mut self, last: u64) -> Option<InlinedCopy<'a>> {
        let address = last.checked_add(self.next()?.checked_mul(4)?)?;
        let about = self.next()?;
        let entries = self.counted()?;
        let exits = self.counted()?;
        Some(InlinedCopy {
            address,
            caller: (about >> FLAGS).checked_sub(1).and_then(|number| usize::try_from(number).ok()),
            is_in_pieces: about & IN_PIECES != 0,
            entries: (about & NO_ENTRIES == 0).then_some(entries),
            exits: (about & NO_EXITS == 0).then_some(exits),
        })
    }

    /// Reads a count, and returns that many numbers after it.
    fn counted(&mut self) -> Option<Self> {
        let count = self.next()?;
        let all = self.0;
        for _ in 0..count {
            self.next()?;
        }
        let length = all.len() - self.0.len();
        Some(Self(all.get(..length)?))
    }

    /// Returns the entries or exits of a copy at the virtual address `copy`.
    fn passages(mut self, copy: u64) -> impl Iterator<Item = Passage> + use<'a> {
        core::iter::from_fn(move || {
            let number = self.next()?;
            let when = *When::ALL.get((number & 3) as usize)?;
            let distance = (number >> 3).checked_mul(4)?;
            let address = if number & 4 == 0 { copy.checked_add(distance) } else { copy.checked_sub(distance) }?;
            Some(Passage { address, when })
        })
    }
}

/// Why a table's inlined copies cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlinedError {
    /// There is not enough memory.
    NoMemory {
        /// The number of bytes that were needed.
        bytes: usize,
    },
    /// The copies contradict the format.
    Inconsistent,
}

/// The part of a table about inlined copies, as it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    pub base: u64,
    pub count: usize,
    /// The size of the part in bytes when it is unpacked.
    pub length: usize,
    pub bytes: &'a [u8],
}

impl Packed<'_> {
    pub fn unpack(self) -> Result<InlinedCopies, InlinedError> {
        let Self { base, count, length, bytes: packed } = self;
        // DEFLATE compresses at most 1,032 times. A part that claims more is refused before memory is allocated for it.
        if length / 1032 > packed.len() {
            return Err(InlinedError::Inconsistent);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| InlinedError::NoMemory { bytes: length })?;
        bytes.resize(length, 0);
        // On the heap, because the caller may have little stack left.
        let mut state: Vec<DecompressorOxide> = Vec::new();
        let bytes_needed = length + size_of::<DecompressorOxide>();
        state.try_reserve_exact(1).map_err(|_| InlinedError::NoMemory { bytes: bytes_needed })?;
        state.resize_with(1, DecompressorOxide::new);
        let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, _, written) = decompress(&mut state[0], packed, &mut bytes, 0, flags);
        let copies = InlinedCopies { base, count, bytes };
        let is_right = status == TINFLStatus::Done && written == length && copies.is_consistent();
        if is_right { Ok(copies) } else { Err(InlinedError::Inconsistent) }
    }
}

/// The inlined copies of functions, unpacked.
#[derive(Clone, Debug)]
pub struct InlinedCopies {
    base: u64,
    count: usize,
    bytes: Vec<u8>,
}

/// A function as it is stored.
struct Stored<'a> {
    shared: usize,
    rest: &'a str,
    copies: Numbers<'a>,
}

impl<'a> Stored<'a> {
    fn next(numbers: &mut Numbers<'a>) -> Option<Self> {
        let shared = usize::try_from(numbers.next()?).ok()?;
        let length = numbers.next()?;
        let rest = str::from_utf8(numbers.bytes(length)?).ok()?;
        let length = numbers.next()?;
        let copies = Numbers(numbers.bytes(length)?);
        Some(Self { shared, rest, copies })
    }
}

impl InlinedCopies {
    /// Returns every function that has copies, or that contains copies of others, in ascending order of name. If there
    /// is no memory for a name, the last item is an error.
    pub fn functions(&self) -> impl Iterator<Item = Result<InlinedFunction<'_>, OutOfMemory>> {
        self.functions_where(|_, _| true)
    }

    /// Returns the functions that are wanted by number and name. The others take no memory. If there is no memory for a
    /// name, the last item is an error.
    pub fn functions_where(
        &self,
        is_wanted: impl Fn(usize, &str) -> bool,
    ) -> impl Iterator<Item = Result<InlinedFunction<'_>, OutOfMemory>> {
        let (mut numbers, mut name) = (Numbers(&self.bytes), String::new());
        let functions = (0..self.count).map_while(move |number| {
            let Stored { shared, rest, copies } = Stored::next(&mut numbers)?;
            // Names share whole characters in a table that the writer made.
            name.truncate(name.is_char_boundary(shared).then_some(shared)?);
            let mut found = || {
                name.try_reserve(rest.len())?;
                name.push_str(rest);
                let copy = is_wanted(number, &name).then(|| fallible::copy(&name)).transpose()?;
                Ok(copy.map(|name| InlinedFunction { number, name, base: self.base, copies }))
            };
            let found = found();
            if found.is_err() {
                // The following names are stored relative to this one, which may be incomplete.
                numbers = Numbers(&[]);
            }
            Some(found.transpose())
        });
        functions.flatten()
    }

    /// Returns the memory that the copies take, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether all functions and copies can be read.
    fn is_consistent(&self) -> bool {
        let (mut numbers, mut last_length) = (Numbers(&self.bytes), 0);
        let mut is_right = |numbers: &mut Numbers<'_>| {
            let Stored { shared, rest, mut copies } = Stored::next(numbers)?;
            let is_known = |caller: Option<usize>| caller.is_none_or(|caller| caller < self.count);
            let mut address = self.base;
            while !copies.0.is_empty() {
                let copy = copies.copy(address).filter(|copy| is_known(copy.caller))?;
                address = copy.address;
                for part in [copy.entries, copy.exits].into_iter().flatten() {
                    let mut stored = part;
                    let mut count = 0;
                    while stored.next().is_some() {
                        count += 1;
                    }
                    (part.passages(address).count() == count).then_some(())?;
                }
            }
            (shared <= last_length).then_some(())?;
            last_length = shared + rest.len();
            Some(())
        };
        (0..self.count).all(|_| is_right(&mut numbers).is_some()) && numbers.0.is_empty()
    }
}
