//! The command `lines`: shows the source lines that can be probed, and their addresses.

use alloc::vec::Vec;

use kprobes_types::Declaration;

use crate::arguments::name;
use crate::session::Session;
use crate::words::{Failure, Words};
use crate::{input, source_lines, symbol, types};

/// The maximum number of starts that are shown for a line of a file. A line of an inlined function may have hundreds.
const STARTS_MAX: usize = 4;

/// An instruction that begins a line: the file number, the line number, and the virtual address.
type LineStart = (u32, u32, u64);

/// Runs the command `lines FUNC|FILE.rs`.
pub(crate) fn lines(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let (wanted, column) = name(words)?;
    if wanted.is_empty() {
        words.expect("a function, or a file as in console.rs,")?;
    }
    let table = source_lines::table().map_err(Failure::new)?;
    let mut starts: Vec<LineStart> = Vec::new();
    let statements = || table.rows().filter(|row| row.is_statement && row.line > 0);
    let is_file = wanted.ends_with(".rs") || wanted.ends_with(".S");
    if is_file {
        let (file, _) = table.find(&wanted).map_err(|error| Failure::at(column, error))?;
        let rows = statements().filter(|row| row.file == file);
        fallible::extend(&mut starts, rows.map(|row| (row.file, row.line, row.address)))?;
        starts.sort_unstable();
        return write(&starts, STARTS_MAX, None, None);
    }
    let mut is_known = false;
    let signature = |start| types::function(start).and_then(|function| function.declaration());
    for function in symbol::meant(&wanted) {
        is_known = true;
        if input::is_interrupted() {
            return Ok(());
        }
        println!("{}:", symbol::path(&function)?);
        let within = function.address..function.address + function.size;
        let rows = statements().filter(|row| within.contains(&row.address));
        starts.clear();
        fallible::extend(&mut starts, rows.map(|row| (row.file, row.line, row.address)))?;
        starts.sort_unstable();
        write(&starts, usize::MAX, Some(function.address), signature(function.address))?;
    }
    match (is_known, symbol::nearest(&wanted)) {
        (true, _) => Ok(()),
        (false, Some(meant)) => {
            Err(Failure::at(column, format_args!("no function has this name; did you mean `{meant}`?")))
        }
        (false, None) => Err(Failure::at(column, "no function has this name; `symbols` lists them")),
    }
}

/// Writes each file, with its lines and up to `most` starts of each line. If there is only one function, `start` is its
/// address: starts are shown as offsets from it, and its lines also with their numbers from its declaration.
fn write(
    starts: &[LineStart],
    most: usize,
    start: Option<u64>,
    declaration: Option<Declaration>,
) -> Result<(), Failure> {
    let table = source_lines::table().map_err(Failure::new)?;
    let declared = declaration.map(|declaration| declaration.file);
    for of_file in starts.chunk_by(|(one, ..), (other, ..)| one == other) {
        let file = of_file.first().map(|(file, ..)| *file);
        println!("{}", file.and_then(|file| table.file(file)).unwrap_or("?"));
        for of_line in of_file.chunk_by(|(_, one, _), (_, other, _)| one == other) {
            if input::is_interrupted() {
                return Ok(());
            }
            let Some((_, line, _)) = of_line.first() else { continue };
            print!("{line:>8} ");
            if start.is_some() {
                match declaration.filter(|_| file == declared).and_then(|declaration| declaration.count(*line)) {
                    Some(count) => print!(" :{count:<4}"),
                    None => print!("      "),
                }
            }
            for (_, _, address) in of_line.iter().take(most) {
                match (start, symbol::lookup(*address as usize)) {
                    (Some(start), _) => print!(" +{:#x}", address - start),
                    (None, Some(function)) => {
                        let path = symbol::path(&function)?;
                        print!(" {path}+{:#x}", address - function.address);
                    }
                    (None, None) => print!(" {address:#018x}"),
                }
            }
            match of_line.len().saturating_sub(most) {
                0 => println!(),
                more => println!(" and {more} more"),
            }
        }
    }
    Ok(())
}
