//! The table of types of a linked program, from its debugging information: the arguments of every function by name, where a call
//! passes them, and the layouts that lead from them to values. What is not said there is not guessed: the table says that it is not
//! known, and why.

mod convention;
mod entries;
mod layout;
mod lines;
mod location;

use std::collections::{BTreeMap, HashMap};

use anyhow::{Result, anyhow};
use kprobes_types::write::{Argument, Contents, Function, Type, lengths, write};
use kprobes_types::{Kind, Place, Source, Unknown};
use object::{Object, ObjectSection, read::elf::ElfFile64};

use crate::audit::Program;
use convention::Convention;
use entries::{Entries, Index};
use layout::Layouts;

/// What there is to say of a program; nothing if it has no debugging information about types.
pub fn read(file: &ElfFile64<'_>) -> Result<Option<Contents>> {
    let section = |name: &str| file.section_by_name(name).and_then(|section| section.data().ok()).unwrap_or_default();
    if section(".debug_info").is_empty() {
        return Ok(None);
    }
    let entries = Entries::read(section).map_err(|error| anyhow!("its debugging information is not valid: {error}"))?;
    let program = Program::parse(file.data())?;
    // Functions that the compiler has found equal are one, but their types are not: it has kept those of one of them.
    let is_alone =
        |address| program.function(address).is_some_and(|of| of.range.start == address && of.names.len() == 1);
    let mut contents = contents(&entries, &is_alone);
    let says_types = contents.types.iter().any(|of| of.shape != Kind::Unit);
    let lines = lines::read(section, &program)?;
    (contents.rows, contents.files) = (lines.rows, lines.files);
    Ok((says_types || !contents.rows.is_empty()).then_some(contents))
}

/// The table of these contents for an image that begins at the virtual address `base`.
pub fn table(contents: &Contents, base: u64) -> Result<Vec<u8>> {
    Ok(write(base, contents)?)
}

/// What the parts of a table have.
const PARTS: [&str; 8] = ["functions", "arguments", "types", "layouts", "names", "blocks of lines", "lines", "files"];

/// How long the table is, part by part, and how many arguments it has, by what it knows of their places.
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
            Place::Nothing => "without bytes",
            Place::Words { first, second }
                if [Some(first), second].into_iter().flatten().any(|part| part.source == Source::Lost) =>
            {
                "known in part"
            }
            Place::Words { .. } => "in registers, or on the stack",
            Place::At(_) => "in memory, by their address",
            Place::Constant(_) => "the same at every call",
            Place::Unknown(Unknown::OptimizedOut) => "optimised out",
            Place::Unknown(Unknown::Elsewhere { .. }) => "not known at the entry, but further on",
            Place::Unknown(Unknown::Contradiction) => "not known: contradictory",
            Place::Unknown(Unknown::Unsaid) => "not known: in the frame only",
            Place::Unknown(Unknown::Layout) => "not known: no layout",
        };
        *places.entry(what).or_insert(0) += 1;
    }
    lines.extend(places.iter().map(|(what, count): (_, &usize)| format!("{count:>8} arguments {what}")));
    lines.join("\n")
}

/// What the entries say of the functions at the addresses that are `wanted`.
fn contents(entries: &Entries<'_>, wanted: &dyn Fn(u64) -> bool) -> Contents {
    let mut layouts = Layouts::new(entries);
    // Of functions that the linker has found equal, one has the address.
    let mut functions = BTreeMap::new();
    for function in entries.functions() {
        let Some(address) = entries[function].start.filter(|&address| wanted(address)) else { continue };
        functions.entry(address).or_insert_with(|| self::function(&mut layouts, function, address));
    }
    unique(layouts.types, functions.into_values().collect())
}

/// A function, and where its arguments are.
fn function(layouts: &mut Layouts<'_>, function: Index, address: u64) -> Function {
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
        None => Place::Nothing,
        Some(of) => convention.result(layouts, of),
    };
    let returned = Argument { name: String::new(), of: layouts.of(result), place };
    Function { address, arguments, returned }
}

/// The same functions, where types that are the same in all that can be seen of them are one. Compilation units do not share
/// the descriptions of types, and a type may refer to itself: two are the same unless something tells them apart, here or in
/// what they refer to.
fn unique(types: Vec<Type>, functions: Vec<Function>) -> Contents {
    let mut classes = vec![0; types.len()];
    let mut count = 1;
    loop {
        let mut known = HashMap::new();
        let next: Vec<usize> = types
            .iter()
            .map(|of| {
                let key = of.referring(|other| classes[other]);
                let number = known.len();
                *known.entry(key).or_insert(number)
            })
            .collect();
        let is_final = known.len() == count;
        count = known.len();
        classes = next;
        if is_final {
            break;
        }
    }
    let mut result: Vec<Option<Type>> = vec![None; count];
    for (of, &class) in types.iter().zip(&classes) {
        result[class].get_or_insert_with(|| of.referring(|other| classes[other]));
    }
    let argument = |argument: Argument| Argument { of: classes[argument.of], ..argument };
    let functions = functions.into_iter().map(|function| Function {
        arguments: function.arguments.into_iter().map(argument).collect(),
        returned: argument(function.returned),
        ..function
    });
    Contents { functions: functions.collect(), types: result.into_iter().flatten().collect(), ..Contents::default() }
}
