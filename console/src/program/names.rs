//! Names for reports, from the tables of the image and from the program.

use alloc::string::String;
use core::fmt::{self, Write};

use kprobes_program::report::Names;
use kprobes_program::syntax::Probe;
use kprobes_types::Types;

use super::watchpoints::Watchpoints;
use crate::{symbol, types};

/// The functions of the image, and the probes of a program.
pub(super) struct ProgramNames<'a> {
    /// The probes in the order of their numbers, which count from 1.
    pub probes: &'a [Probe],
    /// The values of the functions whose copies are probed, and of the functions that contain the copies, with their
    /// names, in ascending order of the values.
    pub inlined: &'a [(u64, String)],
    pub watchpoints: &'a Watchpoints,
}

impl Names for ProgramNames<'_> {
    fn symbol(&self, address: u64) -> Option<(&str, u64)> {
        let found = self.inlined.binary_search_by_key(&address, |&(known, _)| known).ok();
        let inlined = found.and_then(|found| self.inlined.get(found)).map(|(_, name)| (name.as_str(), address));
        inlined.or_else(|| symbol::lookup(address as usize).map(|symbol| (symbol.name, symbol.address)))
    }

    fn number(&self, address: u64) -> usize {
        symbol::lookup(address as usize).map_or(0, |function| symbol::number(&function))
    }

    fn types(&self) -> Option<Types<'static>> {
        types::table().ok().copied()
    }

    fn unwatch(&self, address: u64) {
        self.watchpoints.end(address as usize);
    }

    fn probe(&self, number: u64, out: &mut dyn Write) -> fmt::Result {
        match (number as usize).checked_sub(1).and_then(|place| self.probes.get(place)) {
            Some(probe) => write!(out, "{probe}"),
            None => write!(out, "{number}"),
        }
    }
}
