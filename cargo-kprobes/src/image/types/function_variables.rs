//! Where the variables of a function are: from what the debugging information says of each to the places of a table.

use std::ops::Range;

use kprobes_types::write::Variable;
use kprobes_types::{Source, Unknown, ValuePart, ValuePlace};

use super::super::debug::{Entries, Index, Location, Piece};
use super::layout::Layouts;

/// The kind of a variable, which decides when it is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// An argument of the function.
    Argument,
    /// An argument of an inlined copy.
    ArgumentOfCopy,
    /// A local of either.
    Local,
}

/// The size of the largest value that a call of a Rust function passes in registers, in bytes.
const PASSED_MAX: u64 = 16;

/// The range of a location that is not one of a list.
const WHOLE: Range<u64> = 0..u64::MAX;

/// The variables of a function that have been found so far.
pub struct FunctionVariables<'f> {
    pub within: &'f Range<u64>,
    /// The address at which the prologue has ended, if the line table tells it.
    pub prologue_end: Option<u64>,
    /// The register with the base of the frame.
    pub frame: Option<u8>,
    pub found: Vec<Variable>,
}

impl FunctionVariables<'_> {
    /// Adds the locals of a block, or of the function itself, whose scope is `scope`. Of a function that was also
    /// inlined, LLVM leaves out the blocks without instructions (`LexicalScopes`), so the locals of these hide none.
    pub fn add_block(&mut self, layouts: &mut Layouts<'_>, block: Index, scope: &[Range<u32>]) {
        let entries = layouts.entries;
        // Blocks can be nested as deep as there are entries.
        let mut blocks = vec![(block, scope.to_vec())];
        while let Some((block, scope)) = blocks.pop() {
            for local in entries.children(block, gimli::DW_TAG_variable) {
                self.add(layouts, local, false, &scope);
            }
            let inner = entries.children(block, gimli::DW_TAG_lexical_block);
            let inner = inner.map(|inner| (inner, self.scope(entries, inner, &[])));
            // A block without instructions is the scope of nothing.
            let mut inner: Vec<_> = inner.filter(|(_, scope)| !scope.is_empty()).collect();
            inner.reverse();
            blocks.extend(inner);
        }
    }

    /// Adds a variable with a name and a place, whose scope is `scope`.
    pub fn add(&mut self, layouts: &mut Layouts<'_>, entry: Index, is_argument: bool, scope: &[Range<u32>]) {
        let entries = layouts.entries;
        let (name, of) = (entries.name(entry), entries.type_of(entry));
        // The address of a static is known by its symbol.
        if name.is_empty() || entries[entry].address.is_some() {
            return;
        }
        let kind = if is_argument { VariableKind::Argument } else { VariableKind::Local };
        let places = self.places(layouts, entry, kind, scope);
        let scope = scope.to_vec();
        self.found.push(Variable { name, of: layouts.of(of), is_argument, scope, places });
    }

    /// Returns the instructions of a block or a copy that are within `around`, as [`offsets`](Self::offsets).
    pub fn scope(&self, entries: &Entries<'_>, block: Index, around: &[Range<u32>]) -> Vec<Range<u32>> {
        let scope = self.offsets(entries[block].ranges.iter().map(|range| (range.clone(), ())));
        in_scope(scope, around).into_iter().map(|(range, ())| range).collect()
    }

    /// Returns the places of a variable, with the instructions of its scope at which they hold.
    pub fn places(
        &self,
        layouts: &Layouts<'_>,
        entry: Index,
        kind: VariableKind,
        scope: &[Range<u32>],
    ) -> Vec<(Range<u32>, ValuePlace)> {
        let entries = layouts.entries;
        let size = entries.type_of(entry).and_then(|of| layouts.size(of));
        let whole = |place| (WHOLE, place);
        let places = match size {
            Some(0) => vec![whole(ValuePlace::Nothing)],
            Some(1..=8) if let Some(value) = entries[entry].value => vec![whole(ValuePlace::Constant(value))],
            _ => {
                let place =
                    |location| size.map_or(Some(ValuePlace::Unknown(Unknown::Layout)), |of| self.place(location, of));
                let all = entries[entry].locations.iter();
                all.filter_map(|(range, location)| Some((range.clone(), place(location)?))).collect()
            }
        };
        // A single place is that of the whole scope. An argument is stored in its place in memory by the prologue. An
        // argument of a copy that a call would pass in registers is stored at some time after the copy was entered.
        let is_passed = size.is_some_and(|size| size <= PASSED_MAX);
        let whole = |place| match (kind, place) {
            (VariableKind::Argument, ValuePlace::Memory { .. }) => {
                self.prologue_end.map(|start| (start..self.within.end, place))
            }
            (VariableKind::ArgumentOfCopy, ValuePlace::Memory { .. }) if is_passed => {
                Some((self.within.clone(), ValuePlace::Unknown(Unknown::Unsaid)))
            }
            _ => Some((self.within.clone(), place)),
        };
        let places = places.into_iter().filter_map(|(range, place)| match range == WHOLE {
            true => whole(place),
            false => Some((range, place)),
        });
        in_scope(self.offsets(places), scope)
    }

    /// Returns where a value of `size` bytes is. `None` if it has no place.
    fn place(&self, location: &Location, size: u64) -> Option<ValuePlace> {
        let unknown = Some(ValuePlace::Unknown(Unknown::Form));
        let Location::Parts(parts) = location else { return unknown };
        if let &[(piece, 0)] = parts.as_slice() {
            return match piece {
                Piece::Lost | Piece::Entry(_) | Piece::EntryMemory(..) => None,
                Piece::Constant(value) if size <= 8 => Some(ValuePlace::Constant(value)),
                Piece::Register(_) | Piece::Sum(..) | Piece::Bits(..) if size <= 8 => {
                    self.source(piece).map_or(unknown, |source| {
                        let first = ValuePart { offset: 0, bytes: size as u8, source };
                        Some(ValuePlace::Words { first, second: None })
                    })
                }
                Piece::FrameAddress(at) => {
                    self.source(Piece::Frame(at)).map_or(unknown, |source| Some(ValuePlace::At(source)))
                }
                _ => match self.source(piece) {
                    Ok(Source::Memory { register, offset }) => Some(ValuePlace::Memory { register, offset }),
                    _ => unknown,
                },
            };
        }
        // Every byte is in a part, so that a part that is lost is not taken for zeros.
        let mut at = 0;
        let mut found: Vec<ValuePart> = Vec::new();
        let length = parts.iter().fold(0_u64, |length, &(_, bytes)| length.saturating_add(bytes));
        let rest = (Piece::Lost, size.saturating_sub(length));
        for (piece, bytes) in parts.iter().copied().chain([rest]).filter(|&(_, bytes)| bytes > 0) {
            match (self.source(piece), found.last_mut()) {
                (Ok(Source::Lost), Some(last)) if last.source == Source::Lost && u64::from(last.bytes) + bytes <= 8 => {
                    last.bytes += bytes as u8;
                }
                (Ok(source), _) if bytes <= 8 => found.push(ValuePart { offset: at, bytes: bytes as u8, source }),
                _ => return unknown,
            }
            at += bytes as u32;
        }
        if found.iter().all(|part| part.source == Source::Lost) {
            return None;
        }
        match *found.as_slice() {
            [first] => Some(ValuePlace::Words { first, second: None }),
            [first, second] => Some(ValuePlace::Words { first, second: Some(second) }),
            _ => unknown,
        }
    }

    /// Returns where a word is. Fails if that cannot be described.
    fn source(&self, piece: Piece) -> Result<Source, ()> {
        let memory = |register, offset: i64| i32::try_from(offset).map(|offset| Source::Memory { register, offset });
        match piece {
            // If a value is in parts, its constant parts are not described.
            Piece::Lost | Piece::Constant(_) | Piece::Entry(_) => Ok(Source::Lost),
            Piece::Register(register) => Ok(Source::Register(register)),
            Piece::Bits(register, bits) => Ok(Source::Bits { register, bits }),
            Piece::Memory(register, offset) => memory(register, offset).map_err(drop),
            Piece::Frame(offset) => memory(self.frame.ok_or(())?, offset).map_err(drop),
            Piece::Sum(register, offset) => {
                let (register, offset) = (register.or(self.frame).ok_or(())?, i32::try_from(offset).map_err(drop)?);
                Ok(Source::Sum { register, offset })
            }
            // The reader knows where the stack pointer is that of the frame.
            Piece::Stack(offset) => memory(Source::STACK_POINTER, offset).map_err(drop),
            Piece::FrameAddress(_) | Piece::EntryMemory(..) | Piece::Other => Err(()),
        }
    }

    /// Returns ranges of virtual addresses as ascending ranges of offsets in the function, in bytes, that do not
    /// overlap. Those that follow each other with the same value are one.
    fn offsets<T: PartialEq>(&self, ranges: impl IntoIterator<Item = (Range<u64>, T)>) -> Vec<(Range<u32>, T)> {
        let Range { start, end } = *self.within;
        let offset = |address: u64| (address.clamp(start, end) - start) as u32 / 4 * 4;
        let mut all: Vec<_> =
            ranges.into_iter().map(|(range, value)| (offset(range.start)..offset(range.end), value)).collect();
        all.sort_by_key(|(range, _)| (range.start, range.end));
        let mut merged: Vec<(Range<u32>, T)> = Vec::new();
        for (mut range, value) in all {
            if let Some((last, _)) = merged.last() {
                range.start = range.start.max(last.end);
            }
            match merged.last_mut() {
                _ if range.is_empty() => {}
                Some((last, of)) if *of == value && last.end == range.start => last.end = range.end,
                _ => merged.push((range, value)),
            }
        }
        merged
    }
}

/// Returns the parts of ranges that are in a scope. Both are in ascending order. An empty scope is everything.
pub fn in_scope<T: Copy>(ranges: Vec<(Range<u32>, T)>, scope: &[Range<u32>]) -> Vec<(Range<u32>, T)> {
    if scope.is_empty() {
        return ranges;
    }
    let part = |range: &Range<u32>, of: &Range<u32>| range.start.max(of.start)..range.end.min(of.end);
    let parts = ranges.iter().flat_map(|(range, value)| scope.iter().map(move |of| (part(range, of), *value)));
    parts.filter(|(range, _)| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use kprobes_types::{Source, Unknown, ValuePart, ValuePlace};

    use super::{FunctionVariables, Location, Piece, in_scope};

    const OF_FUNCTION: FunctionVariables<'static> =
        FunctionVariables { within: &(0x1000..0x1100), prologue_end: None, frame: Some(29), found: Vec::new() };

    fn place(parts: &[(Piece, u64)], size: u64) -> Option<ValuePlace> {
        OF_FUNCTION.place(&Location::Parts(parts.to_vec()), size)
    }

    fn words(first: (u32, u8, Source), second: Option<(u32, u8, Source)>) -> Option<ValuePlace> {
        let part = |(offset, bytes, source)| ValuePart { offset, bytes, source };
        Some(ValuePlace::Words { first: part(first), second: second.map(part) })
    }

    #[test]
    fn every_byte_of_a_value_is_in_a_part() {
        let (x3, x4) = (Source::Register(3), Source::Register(4));
        assert_eq!(place(&[(Piece::Register(3), 0)], 4), words((0, 4, x3), None));
        // The variant of an enum, in a byte of a register, is a number of 8 bytes.
        let low = Source::Bits { register: 3, bits: 8 };
        assert_eq!(place(&[(Piece::Bits(3, 8), 0)], 8), words((0, 8, low), None));
        let pair = [(Piece::Register(3), 8), (Piece::Register(4), 8)];
        assert_eq!(place(&pair, 16), words((0, 8, x3), Some((8, 8, x4))));
        // A part that is lost, or that the location does not mention, is no zero.
        let lost = Some((8, 8, Source::Lost));
        assert_eq!(place(&[(Piece::Register(3), 8), (Piece::Lost, 8)], 16), words((0, 8, x3), lost));
        assert_eq!(place(&[(Piece::Register(3), 8), (Piece::Constant(5), 8)], 16), words((0, 8, x3), lost));
        assert_eq!(place(&[(Piece::Register(3), 8)], 16), words((0, 8, x3), lost));
        assert_eq!(place(&[(Piece::Lost, 4), (Piece::Lost, 4)], 8), None);
        let form = Some(ValuePlace::Unknown(Unknown::Form));
        assert_eq!(place(&[(Piece::Register(3), 4), (Piece::Lost, 4), (Piece::Register(4), 8)], 16), form);
        assert_eq!(place(&[(Piece::Register(3), 0)], 16), form, "it does not fit");
        assert_eq!(place(&[(Piece::FrameAddress(8), 8), (Piece::Register(3), 8)], 16), form);
        assert_eq!(place(&[(Piece::Lost, u64::MAX / 8); 9], 16), form, "their sum is no number of 64 bits");
    }

    #[test]
    fn memory_counts_from_the_frame_and_from_registers() {
        let memory = |register, offset| Some(ValuePlace::Memory { register, offset });
        assert_eq!(place(&[(Piece::Frame(-24), 0)], 64), memory(29, -24));
        assert_eq!(place(&[(Piece::Stack(16), 0)], 64), memory(31, 16));
        assert_eq!(place(&[(Piece::Memory(8, 4), 0)], 64), memory(8, 4));
        let address = Source::Memory { register: 29, offset: -8 };
        assert_eq!(place(&[(Piece::FrameAddress(-8), 0)], 64), Some(ValuePlace::At(address)));
        let sum = Source::Sum { register: 29, offset: -8 };
        assert_eq!(place(&[(Piece::Sum(None, -8), 0)], 8), words((0, 8, sum), None));
        // A register no longer holds its value from the entry.
        assert_eq!(place(&[(Piece::Entry(2), 0)], 8), None);
    }

    #[test]
    fn ranges_are_offsets_in_the_scope() {
        let ranges = [(0x1010..0x1020, 'a'), (0x1020..0x1030, 'a'), (0xf00..0x1004, 'b'), (0x1028..0x1200, 'c')];
        let offsets = OF_FUNCTION.offsets(ranges);
        assert_eq!(offsets, [(0..4, 'b'), (0x10..0x30, 'a'), (0x30..0x100, 'c')]);
        let scope = [0x20..0x28, 0x80..0x88];
        assert_eq!(in_scope(offsets.clone(), &scope), [(0x20..0x28, 'a'), (0x80..0x88, 'c')]);
        assert_eq!(in_scope(offsets.clone(), &[]), offsets);
    }
}
