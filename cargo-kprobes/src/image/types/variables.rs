//! The variables of a function: arguments and locals, with the instructions at which each has a place. Those of inlined
//! copies are not among them.

use std::ops::Range;

use kprobes_types::write::Variable;
use kprobes_types::{Part, Source, Unknown, ValuePlace};

use super::entries::Index;
use super::layout::Layouts;
use super::location::{Location, Piece};

/// Returns the variables of the function whose instructions are at the virtual addresses `within`. Those of a block
/// come after those of the blocks around it.
pub fn of(layouts: &mut Layouts<'_>, function: Index, within: &Range<u64>) -> Vec<Variable> {
    let frame = layouts.entries[function].frame;
    let mut function_variables = FunctionVariables { within, frame, found: Vec::new() };
    for parameter in layouts.entries.parameters(function) {
        function_variables.add(layouts, parameter, true, &[]);
    }
    function_variables.add_block(layouts, function, &[]);
    let mut found = function_variables.found;
    // A scope tells apart variables of one name. Elsewhere, a variable is where it has a place.
    let is_same = |one: &Variable, other: &Variable| (&one.name, one.is_argument) == (&other.name, other.is_argument);
    let are_alone: Vec<bool> =
        found.iter().map(|one| found.iter().filter(|other| is_same(one, other)).count() == 1).collect();
    found.iter_mut().zip(are_alone).filter(|(_, is_alone)| *is_alone).for_each(|(one, _)| one.scope.clear());
    found
}

struct FunctionVariables<'f> {
    within: &'f Range<u64>,
    /// The register with the base of the frame.
    frame: Option<u8>,
    found: Vec<Variable>,
}

impl FunctionVariables<'_> {
    /// Adds the locals of a block, or of the function itself, whose scope is `scope`.
    fn add_block(&mut self, layouts: &mut Layouts<'_>, block: Index, scope: &[Range<u32>]) {
        let entries = layouts.entries;
        for local in entries.children(block, gimli::DW_TAG_variable) {
            self.add(layouts, local, false, scope);
        }
        for inner in entries.children(block, gimli::DW_TAG_lexical_block) {
            let scope = self.offsets(entries[inner].ranges.iter().map(|range| (range.clone(), ())));
            let scope: Vec<_> = scope.into_iter().map(|(range, ())| range).collect();
            // A block without instructions is the scope of nothing.
            if !scope.is_empty() {
                self.add_block(layouts, inner, &scope);
            }
        }
    }

    fn add(&mut self, layouts: &mut Layouts<'_>, entry: Index, is_argument: bool, scope: &[Range<u32>]) {
        let entries = layouts.entries;
        let (name, of) = (entries.name(entry), entries.type_of(entry));
        // The address of a static is known by its symbol.
        if name.is_empty() || entries[entry].address.is_some() {
            return;
        }
        let size = of.and_then(|of| layouts.size(of));
        let places = match size {
            Some(0) => self.offsets([(self.within.clone(), ValuePlace::Nothing)]),
            Some(1..=8) if let Some(value) = entries[entry].value => {
                self.offsets([(self.within.clone(), ValuePlace::Constant(value))])
            }
            _ => self.offsets(entries[entry].locations.iter().filter_map(|(range, location)| {
                let place = size.map_or(Some(ValuePlace::Unknown(Unknown::Layout)), |size| self.place(location, size));
                Some((range.clone(), place?))
            })),
        };
        let scope = scope.to_vec();
        self.found.push(Variable { name, of: layouts.of(of), is_argument, scope, places });
    }

    /// Returns where a value of `size` bytes is. `None` if it is nowhere.
    fn place(&self, location: &Location, size: u64) -> Option<ValuePlace> {
        let unknown = Some(ValuePlace::Unknown(Unknown::Form));
        let Location::Parts(parts) = location else { return unknown };
        if let &[(piece, 0)] = parts.as_slice() {
            return match piece {
                Piece::Lost | Piece::Entry(_) | Piece::EntryMemory(..) => None,
                Piece::Constant(value) if size <= 8 => Some(ValuePlace::Constant(value)),
                Piece::Register(_) | Piece::Sum(..) if size <= 8 => self.source(piece).map_or(unknown, |source| {
                    let first = Part { offset: 0, bytes: size as u8, source };
                    Some(ValuePlace::Words { first, second: None })
                }),
                Piece::FrameAddress(_) => self.source(piece).map_or(unknown, |source| Some(ValuePlace::At(source))),
                _ => match self.source(piece) {
                    Ok(Source::Memory { register, offset }) => Some(ValuePlace::Memory { register, offset }),
                    _ => unknown,
                },
            };
        }
        let mut at = 0;
        let mut found = Vec::new();
        for &(piece, bytes) in parts {
            match self.source(piece) {
                Ok(Source::Lost) => {}
                Ok(source) if bytes <= 8 => found.push(Part { offset: at, bytes: bytes as u8, source }),
                _ => return unknown,
            }
            at += bytes as u32;
        }
        match *found.as_slice() {
            [] => None,
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
            Piece::Memory(register, offset) => memory(register, offset).map_err(drop),
            Piece::Frame(offset) | Piece::FrameAddress(offset) => memory(self.frame.ok_or(())?, offset).map_err(drop),
            Piece::Sum(register, offset) => {
                let (register, offset) = (register.or(self.frame).ok_or(())?, i32::try_from(offset).map_err(drop)?);
                Ok(Source::Sum { register, offset })
            }
            // The reader knows where the stack pointer is that of the frame.
            Piece::Stack(offset) => memory(Source::STACK_POINTER, offset).map_err(drop),
            Piece::EntryMemory(..) | Piece::Masked(_) | Piece::Other => Err(()),
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
