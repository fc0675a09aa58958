//! The contents of the sections with debugging information.

use std::convert::Infallible;

use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};

/// The contents of a section, or of a part of it.
pub type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Returns the debugging information in these sections. `contents` returns the contents of a section by its name.
pub fn load<'a>(contents: impl Fn(&str) -> &'a [u8]) -> Dwarf<Bytes<'a>> {
    let section = |id: SectionId| Ok::<_, Infallible>(EndianSlice::new(contents(id.name()), LittleEndian));
    let Ok(dwarf) = Dwarf::load(section);
    dwarf
}
