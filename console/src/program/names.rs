//! Names for reports, from the tables of the image and from the program.

use core::fmt::{self, Write};

use kprobes_program::report::Names;
use kprobes_types::Types;

use super::shared::Shared;
use crate::{symbol, types};

impl Names for Shared {
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
        match self.named_probe(number as usize) {
            Some(probe) => write!(out, "{probe}"),
            None => write!(out, "{number}"),
        }
    }
}
