//! The names that programs are about, from the table of the image.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::ops::Range;

use kprobes_program::check::Symbols;
use kprobes_program::error::Problem;
use kprobes_program::report::Names;
use kprobes_program::syntax::{Probe, matches, numbered};
use kprobes_symbols::Symbol;

use super::inlined;
use crate::symbol;

/// The functions of the image, for the checker.
pub(super) struct Image<'a>(pub &'a inlined::Table);

impl Symbols for Image<'_> {
    fn address(&self, path: &str) -> Option<u64> {
        let (name, wanted) = numbered(path);
        symbol::find(name).find(|function| is_meant(function, wanted)).map(|function| function.address)
    }

    fn functions(&self, path: &str) -> Result<Vec<Range<u64>>, Problem> {
        let mut all: Vec<_> =
            functions(path).map(|function| function.address..function.address + function.size).collect();
        if all.is_empty() {
            all.extend(self.0.find(path)?.into_iter().map(|copies| copies..copies + 1));
        }
        Ok(all)
    }
}

/// The functions of the image, and the probes of a program by their numbers.
pub(super) struct Known<'a> {
    pub probes: &'a [Probe],
    /// The functions of which copies are probed, and those that they are in, by what stands for them.
    pub inlined: &'a BTreeMap<u64, String>,
}

impl Names for Known<'_> {
    fn symbol(&self, address: u64) -> Option<(&str, u64)> {
        let inlined = self.inlined.get(&address).map(|name| (name.as_str(), address));
        inlined.or_else(|| symbol::lookup(address as usize).map(|symbol| (symbol.name, symbol.address)))
    }

    fn number(&self, address: u64) -> usize {
        symbol::lookup(address as usize).map_or(0, |function| number(&function))
    }

    fn site(&self, number: u64, out: &mut dyn Write) -> fmt::Result {
        match self.probes.get(number as usize) {
            Some(probe) => write!(out, "{probe}"),
            None => write!(out, "{number}"),
        }
    }
}

/// Which one `function` is of the functions that have its path, from 1 on in the order of their addresses; 0 if there is no other.
fn number(function: &Symbol<'_>) -> usize {
    let same = || symbol::find(function.name).filter(|other| other.size > 0);
    match same().count() {
        ..=1 => 0,
        _ => 1 + same().filter(|other| other.address < function.address).count(),
    }
}

/// Whether `function` is the one of its path that has this number, if one is wanted.
fn is_meant(function: &Symbol<'_>, wanted: Option<usize>) -> bool {
    wanted.is_none_or(|wanted| number(function).max(1) == wanted)
}

/// The path of `function`, with its number if there are several of that path: what means it alone.
pub(super) fn path(function: &Symbol<'_>) -> String {
    match number(function) {
        0 => function.name.into(),
        number => format!("{}#{number}", function.name),
    }
}

/// The functions that `glob` means, in the order of their addresses, each once.
pub(super) fn functions(glob: &str) -> impl Iterator<Item = Symbol<'static>> {
    let (glob, wanted) = numbered(glob);
    let mut end = 0;
    let all = symbol::table().into_iter().flat_map(|table| table.iter());
    let matching =
        all.filter(move |function| function.size > 0 && matches(glob, function.name)).filter(move |function| {
            // Functions of several names are meant once.
            let is_new = function.address >= end;
            end = end.max(function.address + function.size);
            is_new
        });
    matching.filter(move |function| is_meant(function, wanted))
}
