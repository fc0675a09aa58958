//! The command `symbols`: lists functions and statics of the image by name.

use fallible::OutOfMemory;
use kprobes_symbols::Symbol;
use kprobes_symbols::names::{matches, numbered};

use crate::arguments::name;
use crate::session::Session;
use crate::words::{Failure, Words};
use crate::{input, symbol, types};

/// Runs the command `symbols [-v] GLOB`.
pub(crate) fn symbols(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let has_signatures = words.option("-v");
    let (glob, column) = name(words)?;
    if glob.is_empty() {
        words.expect("a part of a name, or a pattern with * and ?,")?;
    }
    let is_wanted = selection(&glob)?;
    let table = symbol::table().ok_or_else(|| Failure::new("this image has no symbol table"))?;
    let (mut functions, mut statics) = (0, 0);
    for function in table.iter().filter(&is_wanted) {
        if input::is_interrupted() {
            return Ok(());
        }
        let path = symbol::path(&function)?;
        println!("{:016x} {:>6}  {path}", function.address, function.size);
        if has_signatures {
            types::describe(function.address)?.iter().for_each(|line| println!("{line}"));
        }
        functions += 1;
    }
    for Symbol { address, size, name } in table.statics().filter(&is_wanted) {
        if input::is_interrupted() {
            return Ok(());
        }
        println!("{address:016x} {size:>6}  {name}");
        statics += 1;
    }
    if functions + statics == 0
        && let Some(meant) = symbol::nearest(&glob).or_else(|| symbol::nearest_static(&glob))
    {
        let sentence = format_args!("no function or static matches this; did you mean `{meant}`?");
        return Err(Failure::at(column, sentence));
    }
    println!("{functions} of {} functions", table.len());
    if statics > 0 {
        println!("{statics} of {} statics", table.statics().count());
    }
    Ok(())
}

/// Returns a predicate for the symbols that `glob` selects. A glob without `*` and `?` selects the names that contain
/// it. It may end with the number of one of several functions with the same path, as in `f#2`.
///
/// # Errors
///
/// There is no memory for the pattern.
pub(crate) fn selection(glob: &str) -> Result<impl Fn(&Symbol<'static>) -> bool, OutOfMemory> {
    let around = if glob.contains(['*', '?']) { "" } else { "*" };
    let pattern = fallible::format(format_args!("{around}{glob}{around}"))?;
    let is_numbered = numbered(glob).1.is_some();
    // More digits would be another number.
    let whole = fallible::format(format_args!("{around}{glob}"))?;
    Ok(move |symbol: &Symbol<'static>| {
        matches(&pattern, symbol.name) || is_numbered && symbol::path(symbol).is_ok_and(|path| matches(&whole, &path))
    })
}
