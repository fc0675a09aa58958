//! The names that programs are about, from the table of the image.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::{self, Write};

use kprobes_program::check::Symbols;
use kprobes_program::report::Names;
use kprobes_program::syntax::{Probe, matches};
use kprobes_symbols::Symbol;

use super::inlined;
use crate::symbol;

/// The functions of the image, for the checker.
pub(super) struct Image;

impl Symbols for Image {
    fn address(&self, name: &str) -> Option<u64> {
        symbol::find(name).map(|symbol| symbol.address).next()
    }

    fn inlined(&self, name: &str) -> Option<u64> {
        inlined::find(name)
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

    fn site(&self, number: u64, out: &mut dyn Write) -> fmt::Result {
        match self.probes.get(number as usize) {
            Some(probe) => write!(out, "{probe}"),
            None => write!(out, "{number}"),
        }
    }
}

/// The functions that `glob` matches, in the order of their addresses, each once.
pub(super) fn functions(glob: &str) -> impl Iterator<Item = Symbol<'static>> {
    let mut end = 0;
    let all = symbol::table().into_iter().flat_map(|table| table.iter());
    all.filter(move |function| function.size > 0 && matches(glob, function.name)).filter(move |function| {
        // Functions of several names are meant once.
        let is_new = function.address >= end;
        end = end.max(function.address + function.size);
        is_new
    })
}
