//! The inlined copies in a function, with the variables of each. A copy has only the places of its variables: their
//! names and types are those of the copied function, for all its copies.

use std::collections::HashMap;
use std::ops::Range;

use kprobes_types::write::{CopyVariable, Inlined, InlinedCopy};
use kprobes_types::{COPY_VARIABLES_MAX, ValuePlace, hash};

use super::super::debug::{Entries, Index};
use super::function_variables::{FunctionVariables, VariableKind};
use super::layout::Layouts;

/// The functions that were found to be inlined so far.
#[derive(Default)]
pub struct InlinedFunctions {
    pub all: Vec<Inlined>,
    /// The number of each function, by its entry.
    known: HashMap<Index, Option<usize>>,
    /// The number of the function of each variable, and its number there, by its entry.
    numbers: HashMap<Index, (usize, usize)>,
}

/// The crates whose inlined functions are left out. Five of six copies are of these.
const LEFT_OUT: [&str; 3] = ["core", "alloc", "compiler_builtins"];

impl InlinedFunctions {
    /// Returns the number of the function that `entry` describes. `None` if it is left out.
    fn number(&mut self, entries: &Entries<'_>, entry: Index) -> Option<usize> {
        if let Some(&number) = self.known.get(&entry) {
            return number;
        }
        let module = entries.module(entries.declaration(entry));
        if LEFT_OUT.contains(&module.split("::").next().unwrap_or("")) {
            self.known.insert(entry, None);
            return None;
        }
        let number = self.all.len();
        let name = entries.symbol_name(entry);
        let mut all = Vec::new();
        all.extend(entries.children(entry, gimli::DW_TAG_formal_parameter).map(|one| (one, true)));
        let mut blocks = vec![entry];
        // A block comes after those around it.
        while let Some(block) = blocks.pop() {
            all.extend(entries.children(block, gimli::DW_TAG_variable).map(|one| (one, false)));
            let inner: Vec<_> = entries.children(block, gimli::DW_TAG_lexical_block).collect();
            blocks.extend(inner.into_iter().rev());
        }
        let mut variables = Vec::new();
        for (variable, is_argument) in all {
            let name = entries.name(variable);
            if !name.is_empty() && entries[variable].address.is_none() {
                self.numbers.insert(variable, (number, variables.len()));
                variables.push((name, None, is_argument));
            }
        }
        if variables.len() > COPY_VARIABLES_MAX {
            self.numbers.retain(|_, of| of.0 != number);
            variables = vec![(String::new(), None, false)];
        }
        self.all.push(Inlined { hash: hash(&name), variables });
        self.known.insert(entry, Some(number));
        Some(number)
    }
}

/// Returns the copies in a function: a copy comes after those that contain it.
pub fn of(
    layouts: &mut Layouts<'_>,
    function: Index,
    places: &FunctionVariables<'_>,
    inlined: &mut InlinedFunctions,
) -> Vec<InlinedCopy> {
    let mut found = Vec::new();
    // The blocks and copies to be searched, each with the instructions of the copy that it is in. Empty for the
    // function.
    let mut pending: Vec<(Index, Vec<Range<u32>>)> = vec![(function, Vec::new())];
    while let Some((block, around)) = pending.pop() {
        let entries = layouts.entries;
        pending.extend(entries.children(block, gimli::DW_TAG_lexical_block).map(|inner| (inner, around.clone())));
        for copy in entries.children(block, gimli::DW_TAG_inlined_subroutine) {
            let instructions = places.scope(entries, copy, &around);
            let Some(origin) = entries.origin(copy).filter(|_| !instructions.is_empty()) else { continue };
            if let Some(of) = inlined.number(entries, origin) {
                let variables = variables(layouts, copy, &instructions, places, inlined);
                found.push(InlinedCopy { of, instructions: instructions.clone(), variables });
            }
            pending.push((copy, instructions));
        }
    }
    // A copy that begins with another and contains it was found first.
    found.sort_by_key(|copy: &InlinedCopy| copy.instructions.first().map(|range| range.start));
    found
}

fn variables(
    layouts: &mut Layouts<'_>,
    copy: Index,
    instructions: &[Range<u32>],
    places: &FunctionVariables<'_>,
    inlined: &mut InlinedFunctions,
) -> Vec<CopyVariable> {
    let entries = layouts.entries;
    let mut found = Vec::new();
    let mut add = |variable: Index, kind: VariableKind, scope: &[Range<u32>]| {
        let number = entries.origin(variable).and_then(|origin| inlined.numbers.get(&origin));
        let Some(&(of, number)) = number else { return };
        let all = widened(places.places(layouts, variable, kind, scope), instructions);
        if all.is_empty() {
            return;
        }
        let variables = &mut inlined.all[of].variables;
        variables[number].1 = Some(layouts.of(entries.type_of(variable)));
        // A scope tells apart variables of one name. A variable has no place outside of it.
        let of_name = |one: &&(String, _, bool)| (&one.0, one.2) == (&variables[number].0, variables[number].2);
        let is_alone = variables.iter().filter(of_name).count() == 1;
        let scope = if is_alone || scope == instructions { Vec::new() } else { scope.to_vec() };
        found.push(CopyVariable { number, scope, places: all });
    };
    for parameter in entries.children(copy, gimli::DW_TAG_formal_parameter) {
        add(parameter, VariableKind::ArgumentOfCopy, instructions);
    }
    let mut blocks = vec![(copy, instructions.to_vec())];
    while let Some((block, scope)) = blocks.pop() {
        for local in entries.children(block, gimli::DW_TAG_variable) {
            add(local, VariableKind::Local, &scope);
        }
        for inner in entries.children(block, gimli::DW_TAG_lexical_block) {
            let scope = places.scope(entries, inner, instructions);
            if !scope.is_empty() {
                blocks.push((inner, scope));
            }
        }
    }
    found.sort_by_key(|variable| variable.number);
    found.dedup_by_key(|variable| variable.number);
    found
}

/// Joins two ranges if no instruction of the copy is between them: they become one if their places are equal; otherwise
/// the first lasts until the second begins. A place that the table cannot describe is left out beside others.
fn widened(all: Vec<(Range<u32>, ValuePlace)>, instructions: &[Range<u32>]) -> Vec<(Range<u32>, ValuePlace)> {
    let is_known = |(_, place): &(Range<u32>, ValuePlace)| !matches!(place, ValuePlace::Unknown(_));
    if !all.iter().any(is_known) {
        let whole = instructions.first().zip(instructions.last()).map(|(first, last)| first.start..last.end);
        return whole.zip(all.first().map(|(_, place)| *place)).into_iter().collect();
    }
    let mut joined: Vec<(Range<u32>, ValuePlace)> = Vec::new();
    for (range, place) in all.into_iter().filter(is_known) {
        let is_next = |last: &Range<u32>| !instructions.iter().any(|of| of.start < range.start && of.end > last.end);
        match joined.last_mut() {
            Some((last, of)) if is_next(last) && *of == place => last.end = range.end,
            Some((last, _)) if is_next(last) => {
                last.end = range.start;
                joined.push((range, place));
            }
            _ => joined.push((range, place)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use kprobes_types::Unknown;

    use super::*;

    #[test]
    fn instructions_of_others_do_not_part_places() {
        let (one, other) = (ValuePlace::Constant(1), ValuePlace::Constant(2));
        let form = ValuePlace::Unknown(Unknown::Form);
        let instructions = [0x10..0x20, 0x40..0x50];
        let same = widened(vec![(0x10..0x20, one), (0x40..0x44, one), (0x48..0x50, one)], &instructions);
        assert_eq!(same, [(0x10..0x44, one), (0x48..0x50, one)]);
        let next = widened(vec![(0x10..0x18, one), (0x18..0x20, form), (0x40..0x50, other)], &instructions);
        assert_eq!(next, [(0x10..0x18, one), (0x40..0x50, other)]);
        let next = widened(vec![(0x10..0x20, one), (0x40..0x50, other)], &instructions);
        assert_eq!(next, [(0x10..0x40, one), (0x40..0x50, other)]);
        assert_eq!(widened(vec![(0x14..0x18, form)], &instructions), [(0x10..0x50, form)]);
        assert_eq!(widened(vec![], &instructions), []);
    }
}
