//! The contents of the sections with debugging information.

use gimli::{EndianSlice, LittleEndian};

/// The contents of a section, or of a part of it.
pub type Bytes<'a> = EndianSlice<'a, LittleEndian>;
