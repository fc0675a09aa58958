//! The writer of the part about inlined copies.

use std::{collections::BTreeMap, string::String, vec::Vec};

use super::WriteError;
use crate::frame::put;
use crate::inlined::{FLAGS, IN_PIECES, NO_ENTRIES, NO_EXITS, Passage, When};

/// A copy of a function, to be written. Copies sort in the order of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inlined {
    /// The demangled name of the function.
    pub name: String,
    /// The virtual (link) address of the first instruction.
    pub address: u64,
    /// The demangled name of the function that it was copied into, if that one is itself a copy.
    pub caller: Option<String>,
    /// Whether the entries and exits do not enclose exactly the copy's instructions.
    pub is_in_pieces: bool,
    /// Where control enters the copy; `None` if instructions do not tell.
    pub entries: Option<Vec<Passage>>,
    /// Where control leaves the copy; `None` if instructions do not tell.
    pub exits: Option<Vec<Passage>>,
}

/// Encodes `copies` for a table with this base. Returns the number of functions involved, and the part before packing.
pub(crate) fn encode(base: u64, copies: &[Inlined]) -> Result<(usize, Vec<u8>), WriteError> {
    let mut by_name: BTreeMap<&str, Vec<&Inlined>> = BTreeMap::new();
    for copy in copies {
        by_name.entry(&copy.name).or_default().push(copy);
        if let Some(caller) = &copy.caller {
            by_name.entry(caller).or_default();
        }
    }
    let numbers: BTreeMap<&str, u64> = by_name.keys().copied().zip(0..).collect();
    let mut part = Vec::new();
    let mut last = "";
    for (name, copies) in &mut by_name {
        copies.sort();
        let shared = last.char_indices().zip(name.char_indices()).take_while(|(one, other)| one == other).count();
        let shared: usize = name.chars().take(shared).map(char::len_utf8).sum();
        put(&mut part, shared as u64);
        put_bytes(&mut part, &name.as_bytes()[shared..]);
        let mut bytes = Vec::new();
        let mut from = base;
        for copy in copies {
            put_copy(&mut bytes, copy, from, &numbers)?;
            from = copy.address;
        }
        put_bytes(&mut part, &bytes);
        last = name;
    }
    Ok((by_name.len(), part))
}

/// Packs the part for storage.
pub(crate) fn pack(part: &[u8]) -> Vec<u8> {
    /// The highest level that is still fast.
    const LEVEL: u8 = 6;
    miniz_oxide::deflate::compress_to_vec(part, LEVEL)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Appends a copy that follows one at `from`, or the base.
fn put_copy(out: &mut Vec<u8>, copy: &Inlined, from: u64, numbers: &BTreeMap<&str, u64>) -> Result<(), WriteError> {
    let out_of_range = || WriteError::OutOfRange { name: copy.name.clone(), address: copy.address };
    let distance = copy.address.checked_sub(from).filter(|distance| distance % 4 == 0).ok_or_else(out_of_range)?;
    put(out, distance / 4);
    let caller = copy.caller.as_ref().map_or(0, |caller| numbers[caller.as_str()] + 1);
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let flags = flag(copy.is_in_pieces, IN_PIECES)
        | flag(copy.entries.is_none(), NO_ENTRIES)
        | flag(copy.exits.is_none(), NO_EXITS);
    put(out, (caller << FLAGS) | flags);
    for passages in [&copy.entries, &copy.exits] {
        let passages = passages.as_deref().unwrap_or_default();
        put(out, passages.len() as u64);
        for Passage { address, when } in passages {
            let distance = address.abs_diff(copy.address);
            if distance % 4 != 0 || distance > u64::from(u32::MAX) {
                return Err(out_of_range());
            }
            let when = When::ALL.iter().position(|one| one == when).unwrap_or(0) as u64;
            put(out, (distance / 4) << 3 | u64::from(*address < copy.address) << 2 | when);
        }
    }
    Ok(())
}
