//! The places of arguments in a call, and of a function's result: the calling convention of Rust 1.95 for its own
//! functions (`rustc_ty_utils::abi`, of which LLVM then makes AAPCS64, section 6.8), checked against the debugging
//! information.
//!
//! A value that is a number to the compiler is passed in a register, and one that is two numbers in two. Any other
//! value of 8 bytes or less is passed in a register as if it were a number. A larger one is in memory, with its address
//! in a register; a result of this kind is written to the memory that x8 points to at the entry. DWARF does not say
//! which of these a value is, but its layout does: see [`Passing`].
//!
//! The location of a parameter at the entry is used if the convention passes values of its type in that way. Many
//! parameters have a location only further on, as most that are kept in the frame do. Such a parameter is where the
//! convention puts it, but only
//!
//! - if LLVM has not changed how the function is called, and
//! - if a declaration, or a later parameter with a location, confirms the count. A pattern in the list of parameters,
//!   as in `fn f((a, b): (u8, u8))`, is no parameter to DWARF, and shifts the later ones.
//!
//! A parameter without any location may be in no register: callers leave out unused arguments.

use kprobes_types::{Source, Unknown, ValuePart, ValuePlace};

use super::super::debug::{Index, Location, NESTED_MAX, Piece};
use super::layout::Layouts;

/// The number of registers that arguments are passed in.
const REGISTERS: u32 = 8;
/// The register with the address of a result that is returned in memory.
const RESULT: u8 = 8;

/// A value that is a number to the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scalar {
    /// The size, 1 to 8 or 16.
    bytes: u64,
    is_float: bool,
}

impl Scalar {
    /// Returns a number of this size. `None` if numbers do not have this size.
    fn new(bytes: u64, is_float: bool) -> Option<Self> {
        matches!(bytes, 1..=8 | 16).then_some(Self { bytes, is_float })
    }
}

/// The kind of a value to the compiler, as far as calls depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passing {
    /// It has no bytes.
    Nothing,
    /// A number.
    Scalar(Scalar),
    /// Two numbers, with the offset of the second.
    Pair(Scalar, Scalar, u64),
    /// Any other value, with its size in bytes.
    Memory(u64),
}

/// How calls of a function pass the arguments.
pub struct Convention {
    passing: Vec<Option<Passing>>,
    /// The expected place of each parameter, if DWARF has all parameters before it.
    expected: Vec<Option<ValuePlace>>,
    /// Whether LLVM has changed how the function is called, so that only the debugging information counts.
    is_changed: bool,
    /// Whether the compiler has left out unused arguments or results.
    is_lessened: bool,
    /// Whether the function has Rust's calling convention.
    is_rust: bool,
    /// Whether a declaration confirms that these are all parameters.
    is_counted: bool,
}

/// Allocates registers, and then words on the stack.
#[derive(Default)]
struct Words {
    registers: u32,
    stack: i32,
}

impl Words {
    fn next(&mut self) -> Source {
        if self.registers < REGISTERS {
            self.registers += 1;
            return Source::Register(self.registers as u8 - 1);
        }
        self.stack += 8;
        Source::stack(self.stack - 8)
    }

    /// Allocates two words for a number of 128 bits: a register of an even number and the next, or an aligned place on
    /// the stack.
    fn two(&mut self) -> [Source; 2] {
        self.registers = self.registers.next_multiple_of(2);
        if self.registers >= REGISTERS {
            self.stack += self.stack % 16;
        }
        [self.next(), self.next()]
    }

    /// Returns the place of a value. `None` if that takes more words than the table can describe.
    fn place(&mut self, passing: Passing) -> Option<ValuePlace> {
        let part = |offset: u64, bytes: u64, source| ValuePart { offset: offset as u32, bytes: bytes as u8, source };
        let one = |first| ValuePlace::Words { first, second: None };
        Some(match passing {
            Passing::Nothing => ValuePlace::Nothing,
            Passing::Scalar(Scalar { bytes: 16, .. }) => {
                let [first, second] = self.two();
                ValuePlace::Words { first: part(0, 8, first), second: Some(part(8, 8, second)) }
            }
            Passing::Scalar(Scalar { bytes, .. }) | Passing::Memory(bytes @ ..=8) => one(part(0, bytes, self.next())),
            Passing::Pair(first, second, _) if first.bytes > 8 || second.bytes > 8 => {
                for number in [first, second] {
                    if number.bytes > 8 {
                        let _ = self.two();
                    } else {
                        let _ = self.next();
                    }
                }
                return None;
            }
            Passing::Pair(first, second, offset) => ValuePlace::Words {
                first: part(0, first.bytes, self.next()),
                second: Some(part(offset, second.bytes, self.next())),
            },
            Passing::Memory(_) => ValuePlace::At(self.next()),
        })
    }
}

impl Convention {
    /// Returns how calls of `function`, with these parameters, pass the arguments.
    pub fn of(layouts: &Layouts<'_>, function: Index, parameters: &[Index]) -> Self {
        let entries = layouts.entries;
        let passing: Vec<_> = parameters.iter().map(|&one| passing(layouts, entries.type_of(one)?)).collect();
        let mut words = Words::default();
        let mut is_known = true;
        let place = |one: &Option<Passing>| {
            is_known &= one.is_some();
            if is_known { words.place((*one)?) } else { None }
        };
        let expected = passing.iter().map(place).collect();
        let declared = entries.declared_parameters(function);
        let is_counted = declared.is_some();
        // Functions without a mangled name have the C calling convention, which differs for all types but numbers.
        let is_rust =
            entries.inherited(function, |entry| entry.linkage_name).is_some_and(|name| name.starts_with(b"_R"));
        let is_lessened = entries[function].is_changed;
        let is_changed = is_lessened || !is_rust || declared.is_some_and(|count| count != parameters.len());
        Self { passing, expected, is_changed, is_lessened, is_rust, is_counted }
    }

    /// Returns how the function returns a value of this type, as a place.
    pub fn result(&self, layouts: &Layouts<'_>, of: Index) -> ValuePlace {
        // A result that no caller uses is not returned.
        if self.is_lessened {
            return ValuePlace::Unknown(Unknown::Contradiction);
        }
        match passing(layouts, of) {
            Some(Passing::Nothing) => ValuePlace::Nothing,
            Some(passing) if self.is_rust || matches!(passing, Passing::Scalar(Scalar { bytes: ..=8, .. })) => {
                result(passing).unwrap_or(ValuePlace::Unknown(Unknown::Layout))
            }
            _ => ValuePlace::Unknown(Unknown::Layout),
        }
    }

    /// Returns the places of the parameters at the entry, whose address is `address`.
    pub fn places(&self, layouts: &Layouts<'_>, address: u64, parameters: &[Index]) -> Vec<ValuePlace> {
        let locations = |one: Index| &layouts.entries[one].locations;
        let said: Vec<Option<&Location>> = parameters
            .iter()
            .map(|&one| locations(one).iter().find(|(range, _)| range.contains(&address)).map(|(_, location)| location))
            .collect();
        let read: Vec<Option<ValuePlace>> =
            said.iter().zip(&self.passing).map(|(said, of)| read((*said)?, *of)).collect();
        // The last parameter that confirms the count: if it is where it is expected, the parameters before it are all
        // known.
        let confirmed = (0..parameters.len()).rev().find(|&number| {
            matches!(read[number], Some(ValuePlace::Words { .. } | ValuePlace::At(_)))
                && read[number] == self.expected[number]
        });
        let place = |(number, &one): (usize, &Index)| {
            let Some(of) = self.passing[number] else { return ValuePlace::Unknown(Unknown::Layout) };
            if of == Passing::Nothing {
                return ValuePlace::Nothing;
            }
            let all = locations(one);
            let Some((range, _)) = all.iter().find(|(range, _)| !range.is_empty()) else {
                return ValuePlace::Unknown(Unknown::OptimizedOut);
            };
            let unknown = ValuePlace::Unknown(elsewhere(range, address));
            if let Some(place) = read[number] {
                return if self.agrees(number, place) { place } else { ValuePlace::Unknown(Unknown::Contradiction) };
            }
            let Some(expected) = self.expected[number].filter(|_| !self.is_changed) else {
                return unknown;
            };
            // A location further on can name the place at the entry, or be still the same place, if all parameters
            // before it are known.
            let is_counted = self.is_counted || confirmed.is_some_and(|last| number < last);
            let is_said = all.iter().any(|(_, location)| {
                (is_of_entry(location) || is_counted) && read_entry(location, of) == Some(expected)
            });
            let is_framed = all.iter().any(|(_, location)| is_framed(location));
            match is_said || is_framed && is_counted {
                true => expected,
                false => unknown,
            }
        };
        parameters.iter().enumerate().map(place).collect()
    }

    /// Whether the place that the debugging information gives is possible: passed in the expected way, and in no
    /// register that earlier parameters take.
    fn agrees(&self, number: usize, place: ValuePlace) -> bool {
        let order = |place: &ValuePlace| match *place {
            ValuePlace::Words { first: ValuePart { source, .. }, .. } | ValuePlace::At(source) => match source {
                Source::Lost => None,
                Source::Register(number) => Some(u32::from(number)),
                Source::Memory { offset, .. } => Some(REGISTERS + offset.cast_unsigned() / 8),
                Source::Sum { .. } | Source::Bits { .. } => None,
            },
            _ => None,
        };
        let Some(expected) = self.expected[number].filter(|_| !self.is_changed) else { return true };
        let is_same_way = match (place, expected) {
            (ValuePlace::Constant(_), _) | (ValuePlace::At(_), ValuePlace::At(_)) => true,
            (ValuePlace::Words { second: one, .. }, ValuePlace::Words { second: other, .. }) => {
                one.is_some() == other.is_some()
            }
            _ => false,
        };
        is_same_way && order(&place).zip(order(&expected)).is_none_or(|(place, expected)| place >= expected)
    }
}

/// Returns how a function of Rust returns a value of this kind, as a place. `None` if that takes more words than the
/// table can describe.
fn result(of: Passing) -> Option<ValuePlace> {
    let memory = ValuePlace::At(Source::Register(RESULT));
    match of {
        Passing::Memory(9..) => Some(memory),
        Passing::Pair(_, second, offset) if offset + second.bytes > 16 => Some(memory),
        of => Words::default().place(of),
    }
}

/// Converts a location at the entry to a place, for a value of this kind. `None` if the location says nothing about the
/// entry: the frame is made after the entry.
fn read(location: &Location, of: Option<Passing>) -> Option<ValuePlace> {
    let Location::Parts(parts) = location else { return None };
    let whole = match of? {
        Passing::Nothing => return None,
        Passing::Scalar(number) => number.bytes,
        Passing::Pair(_, second, offset) => offset + second.bytes,
        Passing::Memory(bytes) => bytes,
    };
    let register = |piece, bytes| match piece {
        Piece::Register(register) | Piece::Entry(register) => Some(Source::Register(register)),
        // Callers extend a bool to a byte.
        Piece::Bits(register, 1 | 8) if bytes == 1 => Some(Source::Register(register)),
        // If a value is in parts, its constant parts are not passed.
        Piece::Lost | Piece::Constant(_) => Some(Source::Lost),
        _ => None,
    };
    if let [(piece, 0)] = parts.as_slice() {
        return match *piece {
            Piece::Memory(register, 0) | Piece::EntryMemory(register, 0) => {
                Some(ValuePlace::At(Source::Register(register)))
            }
            Piece::Constant(value) if whole <= 8 => Some(ValuePlace::Constant(value)),
            piece if whole <= 8 => {
                let first = ValuePart { offset: 0, bytes: whole as u8, source: register(piece, whole)? };
                Some(ValuePlace::Words { first, second: None })
            }
            _ => None,
        };
    }
    let mut offset = 0;
    let mut found = Vec::new();
    for &(piece, bytes) in parts {
        if bytes > 8 {
            return None;
        }
        found.push(ValuePart { offset, bytes: bytes as u8, source: register(piece, bytes)? });
        offset += bytes as u32;
    }
    // There may be padding between the parts of a pair.
    let (first, second) = match (of?, found.as_slice()) {
        (Passing::Pair(_, _, at), &[first, .., second])
            if u64::from(second.offset) == at
                && found[1..found.len() - 1].iter().all(|part| part.source == Source::Lost) =>
        {
            (first, Some(second))
        }
        (Passing::Pair(one, other, at), &[first]) if u64::from(first.bytes) <= one.bytes && other.bytes <= 8 => {
            (first, Some(ValuePart { offset: at as u32, bytes: other.bytes as u8, source: Source::Lost }))
        }
        (Passing::Scalar(_), &[first, second]) => (first, Some(second)),
        (Passing::Scalar(_) | Passing::Memory(..=8), &[first]) if u64::from(first.bytes) == whole => (first, None),
        _ => return None,
    };
    let is_lost = first.source == Source::Lost && second.is_none_or(|part| part.source == Source::Lost);
    (!is_lost).then_some(ValuePlace::Words { first, second })
}

/// Returns the place that a later location names, in registers as they were at the entry, or still are.
fn read_entry(location: &Location, of: Passing) -> Option<ValuePlace> {
    let Location::Parts(parts) = location else { return None };
    let is_place = |&(piece, _): &(Piece, u64)| !matches!(piece, Piece::Lost | Piece::Constant(_));
    if parts.iter().all(is_place) { read(location, Some(of)) } else { None }
}

/// Whether a location refers to the values of registers at the entry.
fn is_of_entry(location: &Location) -> bool {
    let Location::Parts(parts) = location else { return false };
    parts.iter().all(|(piece, _)| matches!(piece, Piece::Entry(_) | Piece::EntryMemory(..)))
}

/// Whether the value is in the frame of the function: it was stored there, so callers must have passed it.
fn is_framed(location: &Location) -> bool {
    let Location::Parts(parts) = location else { return false };
    parts.iter().all(|(piece, _)| matches!(piece, Piece::Frame(_) | Piece::Stack(_)))
}

/// Returns the reason that a value is not known at the entry, but in this range of addresses.
fn elsewhere(range: &std::ops::Range<u64>, address: u64) -> Unknown {
    let offset = |at: u64| at.checked_sub(address).and_then(|offset| u32::try_from(offset).ok());
    match (offset(range.start), offset(range.end)) {
        (Some(from @ 1..), Some(to)) => Unknown::Elsewhere { from, to },
        // The location at the entry exists, but cannot be read.
        (Some(0), Some(_)) => Unknown::OptimizedOut,
        // In the frame, whatever its range.
        _ => Unknown::Unsaid,
    }
}

/// Returns the kind of a type's values to the compiler (`rustc_abi::layout`). `None` if its layout does not tell.
fn passing(layouts: &Layouts<'_>, of: Index) -> Option<Passing> {
    passing_within(layouts, of, NESTED_MAX)
}

/// Returns the kind of a type's values to the compiler; `None` also if types are nested deeper than `depth`.
fn passing_within(layouts: &Layouts<'_>, of: Index, depth: usize) -> Option<Passing> {
    let depth = depth.checked_sub(1)?;
    let entries = layouts.entries;
    let bytes = layouts.size(of)?;
    if bytes == 0 {
        return Some(Passing::Nothing);
    }
    Some(match entries[of].tag? {
        gimli::DW_TAG_base_type => Passing::Scalar(Scalar::new(bytes, entries[of].encoding? == gimli::DW_ATE_float)?),
        gimli::DW_TAG_pointer_type | gimli::DW_TAG_enumeration_type => Passing::Scalar(Scalar::new(bytes, false)?),
        gimli::DW_TAG_array_type => Passing::Memory(bytes),
        // Whether it is a number depends on all its fields. Up to 8 bytes are in a register in either case.
        gimli::DW_TAG_union_type if bytes <= 8 => Passing::Memory(bytes),
        gimli::DW_TAG_structure_type => match entries.children(of, gimli::DW_TAG_variant_part).next() {
            None => fields(layouts, &layouts.members(of), bytes, layouts.alignment(of)?, depth)?,
            Some(part) => variants(layouts, part, bytes, layouts.alignment(of)?, depth)?,
        },
        _ => return None,
    })
}

/// Returns the offset and the type of each member that has bytes.
fn filled(layouts: &Layouts<'_>, members: &[Index]) -> Option<Vec<(u64, Index)>> {
    let mut all = Vec::new();
    for &member in members {
        let of = layouts.entries.type_of(member)?;
        if layouts.size(of)? > 0 {
            all.push((layouts.entries[member].offset, of));
        }
    }
    all.sort_unstable();
    Some(all)
}

/// Returns the kind of a struct with these members, this size and alignment. Its members are nested no deeper than
/// `depth`.
fn fields(layouts: &Layouts<'_>, members: &[Index], bytes: u64, alignment: u64, depth: usize) -> Option<Passing> {
    let memory = Some(Passing::Memory(bytes));
    match *filled(layouts, members)?.as_slice() {
        [(0, of)] if layouts.size(of)? == bytes && layouts.alignment(of)? == alignment => {
            passing_within(layouts, of, depth)
        }
        [(first, one), (second, other)] => {
            // The second is not followed in vain: pairs of pairs would take twice as long at each level.
            let Passing::Scalar(one) = passing_within(layouts, one, depth)? else { return memory };
            let Passing::Scalar(other) = passing_within(layouts, other, depth)? else { return memory };
            let is_pair = first == 0 && pair(one, other) == (second, bytes, alignment);
            if is_pair { Some(Passing::Pair(one, other, second)) } else { memory }
        }
        _ => memory,
    }
}

/// Lays out two numbers side by side. Returns the offset of the second, the size and the alignment.
fn pair(one: Scalar, other: Scalar) -> (u64, u64, u64) {
    let alignment = one.bytes.max(other.bytes);
    let offset = one.bytes.next_multiple_of(other.bytes);
    (offset, (offset + other.bytes).next_multiple_of(alignment), alignment)
}

/// Returns the kind of an enum with fields, of this size and alignment. Its fields are nested no deeper than `depth`.
fn variants(layouts: &Layouts<'_>, part: Index, bytes: u64, alignment: u64, depth: usize) -> Option<Passing> {
    let entries = layouts.entries;
    let memory = Some(Passing::Memory(bytes));
    let mut all = Vec::new();
    for variant in entries.children(part, gimli::DW_TAG_variant) {
        let member = entries.children(variant, gimli::DW_TAG_member).next()?;
        let of = entries.type_of(member)?;
        all.push((entries[variant].value, layouts.members(of)));
    }
    let Some(tag) = entries.tag_member(part) else {
        return match all.as_slice() {
            [(_, members)] => fields(layouts, members, bytes, alignment, depth),
            _ => None,
        };
    };
    let (tag_offset, tag) = (entries[tag].offset, Scalar::new(layouts.size(entries.type_of(tag)?)?, false)?);
    if let Some((_, members)) = all.iter().find(|(value, _)| value.is_none()) {
        // The tag uses values that this variant's field never has. Other variants have their fields beside it, or none.
        let mut others = all.iter().filter(|(value, _)| value.is_some());
        let is_alone = others.all(|(_, members)| filled(layouts, members).is_some_and(|all| all.is_empty()));
        return if is_alone { fields(layouts, members, bytes, alignment, depth) } else { memory };
    }
    if tag_offset == 0 && tag.bytes == bytes {
        return Some(Passing::Scalar(tag));
    }
    // Beside the tag, all variants that have a field have the same number.
    let mut common: Option<(u64, Scalar)> = None;
    for (_, members) in &all {
        match filled(layouts, members)?.as_slice() {
            [] => {}
            &[(offset, of)] => match passing_within(layouts, of, depth)? {
                Passing::Scalar(number) if common.is_none_or(|known| known == (offset, number)) => {
                    common = Some((offset, number));
                }
                _ => return memory,
            },
            _ => return memory,
        }
    }
    match common {
        Some((offset, number)) if tag_offset == 0 && pair(tag, number) == (offset, bytes, alignment) => {
            Some(Passing::Pair(tag, number, offset))
        }
        _ => memory,
    }
}
