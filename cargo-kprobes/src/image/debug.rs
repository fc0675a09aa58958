//! The debugging information of a linked program, from which the tables of inlined copies and of types are made. It is
//! read once for both.

mod bytes;
mod entries;
mod lines;
mod location;

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, ensure};
use kprobes_types::LineRow;
use object::{CompressionFormat, Object, ObjectSection, read::elf::ElfFile64};

use crate::audit::Executable;
pub use bytes::load;
pub use entries::{Entries, Index, NESTED_MAX};
pub use lines::Files;
pub use location::{Location, Piece};

/// A linked program with its debugging information.
pub struct DebugInfo<'a> {
    pub executable: Executable,
    pub entries: Entries<'a>,
    /// The lines of source, in the order of their addresses.
    pub rows: Vec<LineRow>,
    /// The addresses at which the prologues of functions have ended.
    pub prologues: BTreeSet<u64>,
    /// The files that the entries and the rows refer to.
    pub files: Files,
}

impl<'a> DebugInfo<'a> {
    /// Reads the debugging information. `None` if the program has none.
    pub fn read(file: &ElfFile64<'a>) -> Result<Option<Self>> {
        let section =
            |name: &str| file.section_by_name(name).and_then(|section| section.data().ok()).unwrap_or_default();
        if section(".debug_info").is_empty() {
            return Ok(None);
        }
        let info = file.section_by_name(".debug_info").and_then(|info| info.compressed_file_range().ok());
        ensure!(
            info.is_none_or(|info| info.format == CompressionFormat::None),
            "its debugging information is compressed: link without --compress-debug-sections"
        );
        let (dwarf, mut files) = (load(section), Files::default());
        let entries = Entries::read(&dwarf, &mut files)
            .map_err(|error| anyhow!("its debugging information is not valid: {error}"))?;
        let executable = Executable::read(file)?;
        let (rows, prologues) = lines::read(&dwarf, &executable, &mut files)?;
        Ok(Some(Self { executable, entries, rows, prologues, files }))
    }
}
