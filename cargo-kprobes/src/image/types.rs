//! Makes the table of types of a linked program from its debugging information: the arguments of every function by
//! name, their places in a call, and the layouts that lead from them to values. Missing information is not guessed: the
//! table says that it is unknown, and why.

mod convention;
mod copies;
mod function_variables;
mod layout;
mod variables;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::Range;

use anyhow::Result;
use kprobes_types::write::{Argument, Contents, Function, Inlined, InlinedCopy, Type, Variable, lengths, write};
use kprobes_types::{Declaration, LineRow, Source, TypeKind, Types, Unknown, ValuePlace};

use super::debug::{DebugInfo, Entries, Index};
use convention::Convention;
use copies::InlinedFunctions;
use layout::Layouts;

/// Returns the contents of the table. `None` if the debugging information says nothing of types or lines.
pub fn contents(debug: &DebugInfo<'_>) -> Option<Contents> {
    let DebugInfo { executable, entries, rows, prologues, files } = debug;
    // Equal functions that were merged may have different types, and the debugging information has those of one of
    // them. So the table leaves out merged functions.
    let alone = |address| {
        let found = executable.function(address).filter(|of| of.range.start == address && of.names.len() == 1);
        found.map(|of| of.range.clone())
    };
    let mut contents = functions(entries, &alone, prologues);
    for function in &mut contents.functions {
        let within = executable.function(function.address).map(|of| of.range.clone()).unwrap_or_default();
        function.declaration = function
            .declaration
            .map(|declaration| Declaration { more: extent(entries, declaration, within, rows), ..declaration });
    }
    contents.rows.clone_from(rows);
    contents.files.clone_from(&files.paths);
    (has_types(&contents) || !rows.is_empty()).then_some(contents)
}

/// Returns whether a table says what the types of arguments are. Without full debugging information it has lines alone.
pub fn has_types(contents: &Contents) -> bool {
    contents.types.iter().any(|of| of.shape != TypeKind::Unit)
}

/// Makes the table of these contents for an image that begins at the virtual address `base`. Fails if the image could
/// not read it.
pub fn table(contents: &Contents, base: u64) -> Result<Vec<u8>> {
    let table = write(base, contents)?;
    Types::parse(&table)?;
    Ok(table)
}

/// The parts of a table.
const PARTS: [&str; 14] = [
    "functions",
    "arguments",
    "types",
    "layouts",
    "places",
    "names",
    "text of names",
    "blocks of lines",
    "lines",
    "files",
    "vtables",
    "lists of variables",
    "variables",
    "inlined functions",
];

/// Describes the length of the table, part by part, and the number of its arguments, by what is known of their places.
pub fn describe(contents: &Contents, table: &[u8]) -> String {
    let mut lines = Vec::new();
    for (name, length) in PARTS.iter().zip(lengths(table)) {
        lines.push(format!("{length:>8} bytes of {name}"));
    }
    let (functions, types) = (contents.functions.len(), contents.types.len());
    let (rows, files) = (contents.rows.len(), contents.files.len());
    lines.push(format!(
        "{:>8} bytes in all, for {functions} functions, {types} types, and {rows} stretches of lines in {files} files",
        table.len()
    ));
    let mut places = BTreeMap::new();
    for argument in contents.functions.iter().flat_map(|function| &function.arguments) {
        let what = match argument.place {
            ValuePlace::Nothing => "without bytes",
            ValuePlace::Words { first, second }
                if [Some(first), second].into_iter().flatten().any(|part| part.source == Source::Lost) =>
            {
                "known in part"
            }
            ValuePlace::Words { .. } => "in registers, or on the stack",
            ValuePlace::At(_) | ValuePlace::Memory { .. } => "in memory, by their address",
            ValuePlace::Constant(_) => "the same at every call",
            ValuePlace::Unknown(Unknown::OptimizedOut) => "optimised out",
            ValuePlace::Unknown(Unknown::Elsewhere { .. }) => "not known at the entry, but further on",
            ValuePlace::Unknown(Unknown::Contradiction) => "not known: contradictory",
            ValuePlace::Unknown(Unknown::Unsaid) => "not known: in the frame only",
            ValuePlace::Unknown(Unknown::Layout) => "not known: no layout",
            ValuePlace::Unknown(Unknown::Form) => "not known: in another form",
        };
        *places.entry(what).or_insert(0) += 1;
    }
    lines.extend(places.iter().map(|(what, count): (_, &usize)| format!("{count:>8} arguments {what}")));
    lines.join("\n")
}

/// Returns what the entries say about the functions, without their lines. `wanted` tells the addresses of the
/// instructions of the wanted one at an address, and `prologues` has the addresses at which prologues end.
fn functions(entries: &Entries<'_>, wanted: &dyn Fn(u64) -> Option<Range<u64>>, prologues: &BTreeSet<u64>) -> Contents {
    let mut layouts = Layouts::new(entries);
    // If the linker has merged equal functions, only one has the address.
    let (mut functions, mut inlined) = (BTreeMap::new(), InlinedFunctions::default());
    for function in entries.functions() {
        let Some(within) = entries[function].start.and_then(wanted) else { continue };
        let described = || self::function(&mut layouts, function, &within, prologues, &mut inlined);
        functions.entry(within.start).or_insert_with(described);
    }
    let vtables = entries.vtables().map(|(address, of)| (address, layouts.of(Some(of)))).collect();
    unique(layouts.types, functions.into_values().collect(), vtables, inlined.all)
}

/// Returns the number of lines from a declaration to the last that instructions of the function itself, which are at
/// the addresses `within`, come from. Functions of the same file that are inlined may come from later lines.
fn extent(entries: &Entries<'_>, declaration: Declaration, within: Range<u64>, rows: &[LineRow]) -> u32 {
    let first = rows.partition_point(|row| row.address < within.start);
    let rows = rows[first..].iter().take_while(|row| row.address < within.end);
    let own = rows.filter(|row| row.file == declaration.file && !entries.is_inlined(row.address));
    own.filter_map(|row| row.line.checked_sub(declaration.line)).max().unwrap_or(0)
}

/// Returns a function with the places of its arguments and variables. Its instructions are at the addresses `within`.
fn function(
    layouts: &mut Layouts<'_>,
    function: Index,
    within: &Range<u64>,
    prologues: &BTreeSet<u64>,
    inlined: &mut InlinedFunctions,
) -> Function {
    let address = within.start;
    let parameters = layouts.entries.parameters(function);
    let convention = Convention::of(layouts, function, &parameters);
    let places = convention.places(layouts, address, &parameters);
    let mut arguments = Vec::new();
    for (parameter, place) in parameters.iter().zip(places) {
        let entry = layouts.entries.inherited(*parameter, |entry| entry.name);
        let name = String::from_utf8_lossy(entry.unwrap_or_default()).into_owned();
        arguments.push(Argument { name, of: layouts.of(layouts.entries.type_of(*parameter)), place });
    }
    let result = layouts.entries.type_of(function);
    let place = match result {
        None => ValuePlace::Nothing,
        Some(of) => convention.result(layouts, of),
    };
    let returned = Argument { name: String::new(), of: layouts.of(result), place };
    let declaration = layouts.entries.inherited(function, |entry| entry.declared);
    let declaration = declaration.map(|(file, line)| Declaration { file, line, more: 0 });
    let (variables, copies) = variables::of(layouts, function, within, prologues, inlined);
    Function { address, declaration, arguments, returned, variables, copies }
}

/// Returns a class for each key, the same for equal keys, and the number of classes.
fn partition<T: Eq + Hash>(keys: impl Iterator<Item = T>) -> (Vec<usize>, usize) {
    let mut known = HashMap::new();
    let number = |key| {
        let next = known.len();
        *known.entry(key).or_insert(next)
    };
    (keys.map(number).collect(), known.len())
}

/// Merges equal types, and then equal inlined functions. Returns the functions and vtables with the merged types.
/// Compilation units do not share descriptions of types, and a type may refer to itself. So two types are equal unless
/// something distinguishes them, in themselves or in the types that they refer to.
fn unique(types: Vec<Type>, functions: Vec<Function>, vtables: Vec<(u64, usize)>, inlined: Vec<Inlined>) -> Contents {
    // The first partition compares types without their references.
    let mut references = Vec::new();
    let (mut classes, mut count) = partition(types.iter().map(|of| {
        let mut all = Vec::new();
        let own = of.referring(|other| {
            all.push(other);
            0
        });
        references.push(all);
        own
    }));
    loop {
        let of_references = |all: &Vec<usize>| -> Vec<usize> { all.iter().map(|&of| classes[of]).collect() };
        let next = partition(references.iter().zip(&classes).map(|(all, &class)| (class, of_references(all))));
        let is_final = next.1 == count;
        (classes, count) = next;
        if is_final {
            break;
        }
    }
    let mut result: Vec<Option<Type>> = vec![None; count];
    for (of, &class) in types.iter().zip(&classes) {
        result[class].get_or_insert_with(|| of.referring(|other| classes[other]));
    }
    let (mut merged, mut known) = (Vec::new(), HashMap::new());
    let mut number = |mut one: Inlined| {
        one.variables.iter_mut().for_each(|(_, of, _)| *of = of.map(|of| classes[of]));
        *known.entry(one).or_insert_with_key(|one| {
            merged.push(one.clone());
            merged.len() - 1
        })
    };
    let numbers: Vec<usize> = inlined.into_iter().map(&mut number).collect();
    let argument = |argument: Argument| Argument { of: classes[argument.of], ..argument };
    let functions = functions.into_iter().map(|function| Function {
        arguments: function.arguments.into_iter().map(argument).collect(),
        returned: argument(function.returned),
        variables: function
            .variables
            .into_iter()
            .map(|variable| Variable { of: classes[variable.of], ..variable })
            .collect(),
        copies: function.copies.into_iter().map(|copy| InlinedCopy { of: numbers[copy.of], ..copy }).collect(),
        ..function
    });
    // A vtable that several types share identifies none of them.
    let mut implementors: BTreeMap<u64, Option<usize>> = BTreeMap::new();
    for (address, of) in vtables {
        let implementor = implementors.entry(address).or_insert(Some(classes[of]));
        *implementor = implementor.filter(|&known| known == classes[of]);
    }
    Contents {
        functions: functions.collect(),
        types: result.into_iter().flatten().collect(),
        vtables: implementors.into_iter().filter_map(|(address, of)| Some((address, of?))).collect(),
        inlined: merged,
        ..Contents::default()
    }
}

#[cfg(test)]
mod tests;
