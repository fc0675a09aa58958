//! Finds the copies of functions that the compiler has inlined into others, in the debugging information of a linked
//! program (DWARF 4, section 3.3.8, and 5).

use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::ops::Range;

use anyhow::{Context, Result, anyhow};
use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, LittleEndian, SectionId, Unit};
use kprobes_symbols::{Inlined, Passage};
use object::{Object, ObjectSection, read::elf::ElfFile64};

use super::region::{Function, Region};
use crate::audit::{Program, with_control};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = DebuggingInformationEntry<Bytes<'a>>;

/// The name of a function in its entry. Entries are identified by their offset in `.debug_info`.
#[derive(Default)]
struct Named {
    linkage_name: Option<String>,
    name: Option<String>,
    /// Another entry, which has the rest.
    completes: Option<usize>,
}

/// A copy in the debugging information.
struct Found {
    /// The entry of the function.
    of: usize,
    /// The entry of the function that it was inlined into, if that is itself a copy.
    caller: Option<usize>,
    /// The virtual addresses of its instructions.
    ranges: Vec<Range<u64>>,
}

/// Returns all copies in the program. Empty if it has no debugging information.
pub fn copies(file: &ElfFile64<'_>) -> Result<Vec<Inlined>> {
    if file.section_by_name(".debug_info").is_none() {
        return Ok(Vec::new());
    }
    let contents = |name: &str| file.section_by_name(name).and_then(|section| section.data().ok()).unwrap_or_default();
    let (names, found) = read(contents).map_err(|error| anyhow!("its debugging information is not valid: {error}"))?;
    let program = Program::parse(file.data())?;
    let mut by_function: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
    for copy in found {
        // Functions that the linker has removed have no address.
        let first = copy.ranges.first();
        if let Some(function) = first.and_then(|range| program.function(range.start)) {
            by_function.entry(function.range.start).or_default().push(copy);
        }
    }
    let mut demangled = Demangled { names: &names, known: HashMap::new() };
    with_control(&program, |control| {
        let mut copies = Vec::new();
        for (start, found) in by_function {
            let function = program.function(start).context("a function has moved")?;
            let words = function.range.clone().step_by(4).map(|address| program.word(address).unwrap_or(0)).collect();
            let host = Function::new(start, words, &control(start).unwrap_or_default());
            for copy in found {
                let Range { start, end } = function.range;
                let within =
                    copy.ranges.iter().flat_map(|range| (range.start.max(start)..range.end.min(end)).step_by(4));
                let numbers: Vec<usize> = within.map(|address| ((address - start) / 4) as usize).collect();
                let Some(name) = demangled.name(copy.of) else { continue };
                let Some(region) = host.region(&numbers) else { continue };
                let caller = copy.caller.and_then(|caller| demangled.name(caller));
                copies.push(inlined(name, caller, start, region));
            }
        }
        Ok(copies)
    })
}

/// Describes a copy in the function at `start`.
fn inlined(name: String, caller: Option<String>, start: u64, region: Region) -> Inlined {
    let address = |number: usize| start + 4 * number as u64;
    let passages = |all: Vec<(usize, _)>| {
        let mut all: Vec<_> = all.into_iter().map(|(at, when)| Passage { address: address(at), when }).collect();
        all.sort();
        all
    };
    Inlined {
        name,
        address: address(region.first),
        caller,
        is_in_pieces: region.is_in_pieces,
        entries: region.entries.map(passages),
        exits: region.exits.map(passages),
    }
}

/// The names of functions as symbols have them, cached because most are needed many times.
struct Demangled<'a> {
    names: &'a HashMap<usize, Named>,
    known: HashMap<&'a str, String>,
}

impl Demangled<'_> {
    /// Returns the name of an entry's function.
    fn name(&mut self, of: usize) -> Option<String> {
        /// The longest chain of entries that complete one another: a copy, a definition and a declaration.
        const ENTRIES_MAX: usize = 3;
        let first = self.names.get(&of)?;
        let all = iter::successors(Some(first), |named| self.names.get(&named.completes?)).take(ENTRIES_MAX);
        let named = all.clone().find(|named| named.linkage_name.is_some()).or(all.last())?;
        let name = named.linkage_name.as_ref().or(named.name.as_ref())?;
        let demangled = self.known.entry(name).or_insert_with(|| format!("{:#}", rustc_demangle::demangle(name)));
        Some(demangled.clone())
    }
}

/// Reads the names of all functions, and all copies. `contents` returns the contents of a section by its name.
fn read<'a>(contents: impl Fn(&str) -> &'a [u8]) -> gimli::Result<(HashMap<usize, Named>, Vec<Found>)> {
    let section =
        |id: SectionId| -> gimli::Result<Bytes<'a>> { Ok(EndianSlice::new(contents(id.name()), LittleEndian)) };
    let dwarf = gimli::Dwarf::load(section)?;
    let mut names = HashMap::new();
    let mut found = Vec::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let unit = dwarf.unit(header)?;
        let mut entries = unit.entries();
        // The copies around an entry, with their depths.
        let mut within: Vec<(isize, Option<usize>)> = Vec::new();
        while let Some(entry) = entries.next_dfs()? {
            while within.last().is_some_and(|&(depth, _)| depth >= entry.depth()) {
                within.pop();
            }
            let text = |at| -> gimli::Result<Option<String>> {
                let Some(value) = entry.attr_value(at) else { return Ok(None) };
                Ok(Some(dwarf.attr_string(&unit, value)?.to_string_lossy().into_owned()))
            };
            match entry.tag() {
                gimli::DW_TAG_subprogram => {
                    let named = Named {
                        linkage_name: text(gimli::DW_AT_linkage_name)?,
                        name: text(gimli::DW_AT_name)?,
                        completes: refers(&unit, entry, gimli::DW_AT_specification)
                            .or_else(|| refers(&unit, entry, gimli::DW_AT_abstract_origin)),
                    };
                    names.insert(header_offset(&unit) + entry.offset().0, named);
                    within.push((entry.depth(), None));
                }
                gimli::DW_TAG_inlined_subroutine => {
                    let Some(of) = refers(&unit, entry, gimli::DW_AT_abstract_origin) else { continue };
                    let mut ranges = dwarf.die_ranges(&unit, entry)?;
                    let mut all = Vec::new();
                    while let Some(range) = ranges.next()? {
                        all.push(range.begin..range.end);
                    }
                    let caller = within.last().and_then(|&(_, caller)| caller);
                    found.push(Found { of, caller, ranges: all });
                    within.push((entry.depth(), Some(of)));
                }
                _ => {}
            }
        }
    }
    Ok((names, found))
}

/// Returns the offset of a unit in `.debug_info`.
fn header_offset(unit: &Unit<Bytes<'_>>) -> usize {
    unit.header.offset().0
}

/// Returns the entry that an attribute of another refers to.
fn refers(unit: &Unit<Bytes<'_>>, entry: &Entry<'_>, at: gimli::DwAt) -> Option<usize> {
    match entry.attr_value(at)? {
        AttributeValue::UnitRef(offset) => Some(header_offset(unit) + offset.0),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
