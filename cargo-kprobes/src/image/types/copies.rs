//! The inlined copies in a function, with the variables of each. A copy has only the places of its variables: their
//! names and types are those of the copied function, for all its copies.

use std::collections::HashMap;
use std::ops::Range;

use kprobes_types::write::{Copy, CopyVariable, Inlined};
use kprobes_types::{COPY_VARIABLES_MAX, ValuePlace, hash};

use super::super::debug::{Entries, Index};
use super::layout::Layouts;
use super::variables::{FunctionVariables, VariableKind};

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
        let declaration = std::iter::successors(Some(entry), |&entry| entries.origin(entry)).take(3).last();
        let module = entries.module(declaration.unwrap_or(entry));
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
) -> Vec<Copy> {
    let mut found = Vec::new();
    // The blocks and copies to be searched, each with the instructions of the copy that it is in. Empty for the function.
    let mut pending: Vec<(Index, Vec<Range<u32>>)> = vec![(function, Vec::new())];
    while let Some((block, around)) = pending.pop() {
        let entries = layouts.entries;
        pending.extend(entries.children(block, gimli::DW_TAG_lexical_block).map(|inner| (inner, around.clone())));
        for copy in entries.children(block, gimli::DW_TAG_inlined_subroutine) {
            let instructions = places.scope(entries, copy, &around);
            let Some(origin) = entries.origin(copy).filter(|_| !instructions.is_empty()) else { continue };
            if let Some(of) = inlined.number(entries, origin) {
                let variables = variables(layouts, copy, &instructions, places, inlined);
                found.push(Copy { of, instructions: instructions.clone(), variables });
            }
            pending.push((copy, instructions));
        }
    }
    // A copy that begins with another and contains it was found first.
    found.sort_by_key(|copy: &Copy| copy.instructions.first().map(|range| range.start));
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

/// Joins two ranges if no instruction of the copy is between them: they become one if their places are equal, and else
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
    use std::collections::BTreeSet;

    use kprobes_types::write::Contents;
    use kprobes_types::{Source, Unknown, ValuePart};

    use super::super::super::debug::Files;
    use super::*;

    const START: u64 = 0xffff_ffc0_0000_1000;

    /// Forms of entries (DWARF 4, section 7.5): for each the number, the tag, whether it has children, and the
    /// attributes with their forms.
    const ABBREVIATIONS: &[u8] = &[
        1, 0x11, 1, 0, 0, // A unit.
        2, 0x24, 0, 0x03, 0x08, 0x0b, 0x0b, 0x3e, 0x0b, 0, 0, // A number: name, size, encoding.
        3, 0x39, 1, 0x03, 0x08, 0, 0, // A module.
        4, 0x2e, 1, 0x03, 0x08, 0, 0, // A function by its name.
        5, 0x05, 0, 0x03, 0x08, 0x49, 0x13, 0, 0, // An argument of it: name, type.
        6, 0x34, 0, 0x03, 0x08, 0x49, 0x13, 0, 0, // A local of it.
        7, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x06, 0x40, 0x18, 0,
        0, // A function at addresses, with its frame.
        8, 0x1d, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, // A copy at consecutive addresses.
        9, 0x05, 0, 0x31, 0x13, 0x02, 0x18, 0, 0, // An argument of it, at one place.
        10, 0x34, 0, 0x31, 0x13, 0x02, 0x18, 0, 0, // A local of it.
        0,
    ];

    /// Assembles entries of one unit.
    struct Unit(Vec<u8>);

    impl Unit {
        /// Adds an entry, and returns its offset.
        fn add(&mut self, abbreviation: u8, parts: &[&[u8]]) -> [u8; 4] {
            let at = self.0.len() as u32;
            self.0.push(abbreviation);
            self.0.extend(parts.concat());
            at.to_le_bytes()
        }

        fn end(&mut self) {
            self.0.push(0);
        }
    }

    /// A function with a copy of `kernel::step`, in that one of `core::read`, and in that one of `kernel::last`.
    fn contents() -> Contents {
        let mut unit = Unit(vec![0; 11]);
        let at = |offset: u64| (START + offset).to_le_bytes();
        let length = |bytes: u32| bytes.to_le_bytes();
        unit.add(1, &[]);
        let number = unit.add(2, &[b"u64\0", &[8, 7]]);
        unit.add(3, &[b"kernel\0"]);
        let step = unit.add(4, &[b"step\0"]);
        let level = unit.add(5, &[b"level\0", &number]);
        let spilled = unit.add(5, &[b"spilled\0", &number]);
        unit.add(5, &[b"gone\0", &number]);
        let sum = unit.add(6, &[b"sum\0", &number]);
        unit.end();
        let last = unit.add(4, &[b"last\0"]);
        let item = unit.add(5, &[b"item\0", &number]);
        unit.end();
        unit.end();
        unit.add(3, &[b"core\0"]);
        let read = unit.add(4, &[b"read\0"]);
        let source = unit.add(5, &[b"source\0", &number]);
        unit.end();
        unit.end();
        // The base of the frame is x29.
        unit.add(7, &[b"main\0", &at(0), &length(0x80), &[1, 0x6d]]);
        unit.add(8, &[&step, &at(8), &length(0x20)]);
        unit.add(9, &[&level, &[1, 0x53]]);
        unit.add(9, &[&spilled, &[2, 0x91, 0x70]]);
        unit.add(10, &[&sum, &[2, 0x91, 0x08]]);
        unit.add(8, &[&read, &at(12), &length(0x10)]);
        unit.add(9, &[&source, &[1, 0x54]]);
        // Its end is beyond that of the copy that it is in.
        unit.add(8, &[&last, &at(16), &length(0x40)]);
        unit.add(9, &[&item, &[1, 0x55]]);
        for _ in 0..5 {
            unit.end();
        }
        let mut bytes = unit.0;
        let header = [&(bytes.len() as u32 - 4).to_le_bytes()[..], &[4, 0, 0, 0, 0, 0, 8]].concat();
        bytes[..11].copy_from_slice(&header);
        let (info, nothing): (&'static [u8], &'static [u8]) = (bytes.leak(), &[]);
        let section = |name: &str| match name {
            ".debug_info" => info,
            ".debug_abbrev" => ABBREVIATIONS,
            _ => nothing,
        };
        let entries = Entries::read(section, &mut Files::default()).unwrap();
        super::super::functions(&entries, &|start| (start == START).then_some(START..START + 0x80), &BTreeSet::new())
    }

    #[test]
    fn a_copy_has_the_places_of_the_variables_of_its_function() {
        let contents = contents();
        let [main] = contents.functions.as_slice() else { panic!("{:?}", contents.functions) };
        assert!(main.variables.is_empty(), "{:?}", main.variables);
        let names = |of: &Copy| {
            let variables = &contents.inlined[of.of].variables;
            variables
                .iter()
                .map(|(name, of, is_argument)| (name.as_str(), of.is_some(), *is_argument))
                .collect::<Vec<_>>()
        };
        let [step, last] = main.copies.as_slice() else { panic!("that of core is left out: {:?}", main.copies) };
        let all = [("level", true, true), ("spilled", true, true), ("gone", false, true), ("sum", true, false)];
        assert_eq!((names(step), names(last)), (all.to_vec(), vec![("item", true, true)]));
        let alone = |range: Range<u32>| std::iter::once(range).collect::<Vec<_>>();
        assert_eq!(contents.inlined[step.of].hash, hash("step"));
        assert_eq!((&step.instructions, &last.instructions), (&alone(0x8..0x28), &alone(0x10..0x1c)));
        let register = |number| {
            let first = ValuePart { offset: 0, bytes: 8, source: Source::Register(number) };
            ValuePlace::Words { first, second: None }
        };
        let place = |number, place| CopyVariable { number, scope: vec![], places: vec![(0x8..0x28, place)] };
        let sum = place(3, ValuePlace::Memory { register: 29, offset: 8 });
        // It is not known when the argument was stored in the frame.
        let spilled = place(1, ValuePlace::Unknown(Unknown::Unsaid));
        assert_eq!(step.variables, [place(0, register(3)), spilled, sum]);
        assert_eq!(
            last.variables,
            [CopyVariable { number: 0, scope: vec![], places: vec![(0x10..0x1c, register(5))] }]
        );
    }

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
