//! Finds the copies of functions that the compiler has inlined into others, in the debugging information of a linked
//! program (DWARF 4, section 3.3.8, and 5).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use anyhow::{Context, Result};
use kprobes_symbols::{Inlined, Passage};

use super::debug::{DebugInfo, Entries, Index};
use super::region::{Function, Region};
use crate::audit::with_control;

/// Returns all copies in the program.
pub fn copies(debug: &DebugInfo<'_>) -> Result<Vec<Inlined>> {
    let DebugInfo { executable, entries, .. } = debug;
    let mut by_function: BTreeMap<u64, Vec<Index>> = BTreeMap::new();
    for copy in entries.copies() {
        // Functions that the linker has removed have no address.
        let first = entries[copy].ranges.first();
        if let Some(function) = first.and_then(|range| executable.function(range.start)) {
            by_function.entry(function.range.start).or_default().push(copy);
        }
    }
    let mut names = Names { entries, known: HashMap::new() };
    with_control(executable, |control| {
        let mut copies = Vec::new();
        for (start, found) in by_function {
            let function = executable.function(start).context("a function has moved")?;
            let read = |address| executable.word(address);
            let words = function.range.clone().step_by(4).map(|address| read(address).unwrap_or(0)).collect();
            let host = Function::new(start, words, read, &control(start).unwrap_or_default());
            for copy in found {
                let Range { start, end } = function.range;
                let ranges = &entries[copy].ranges;
                let within = ranges.iter().flat_map(|range| (range.start.max(start)..range.end.min(end)).step_by(4));
                let numbers: Vec<usize> = within.map(|address| ((address - start) / 4) as usize).collect();
                let Some(name) = names.of(copy) else { continue };
                let Some(region) = host.region(&numbers) else { continue };
                let caller = entries.copy_around(copy).and_then(|around| names.of(around));
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

/// Caches the demangled names of copied functions by their entries.
struct Names<'e, 'a> {
    entries: &'e Entries<'a>,
    known: HashMap<Index, String>,
}

impl Names<'_, '_> {
    /// Returns the name of the function that a copy is of, if it has one.
    fn of(&mut self, copy: Index) -> Option<String> {
        let function = self.entries.origin(copy)?;
        let name = self.known.entry(function).or_insert_with(|| self.entries.symbol_name(function));
        Some(name.clone()).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests;
