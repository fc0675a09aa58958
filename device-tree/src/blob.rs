//! Checks that a blob can be given to the `fdt` crate: the header, blocks and tokens of the flattened format
//! (Devicetree Specification 0.4, chapter 5).
//!
//! The crate panics on damaged trees. Version 0.1.5 also panics on correct trees with NOPs between certain tokens. So
//! the whole blob is checked before the crate sees it, and its tokens are moved together over the NOPs.

use core::ops::Range;

use fdt::Fdt;

use super::DeviceTreeError as Error;

/// The size of the header in bytes.
pub const HEADER_SIZE: usize = 40;
/// The largest size in bytes that the boot protocol allows (Linux, Documentation/arch/arm64/booting.rst).
const MAX_SIZE: usize = 2 << 20;
const MAGIC: u32 = 0xd00d_feed;
/// The format version that has the size of the structure block in its header.
const VERSION: u32 = 17;
/// The limit of nesting. Real trees have fewer than ten levels, and the walk over the tree takes stack for each.
const MAX_DEPTH: usize = 24;
/// The size in bytes of an entry in the reservation block: address and size.
const RESERVATION_SIZE: usize = 16;

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;

/// Checks the physical address that the boot loader gives for the blob. It has to be below `limit`.
pub fn check_address(address: u64, limit: u64) -> Result<(), Error> {
    match address {
        0 => Err(Error::Absent),
        _ if !address.is_multiple_of(8) => Err(Error::Misaligned { address }),
        _ if address > limit - HEADER_SIZE as u64 => Err(Error::OutOfReach { address }),
        _ => Ok(()),
    }
}

/// Returns the size of the blob in bytes, from its header.
pub fn total_size(header: &[u8]) -> Result<usize, Error> {
    let truncated = Error::Truncated { length: header.len(), size: HEADER_SIZE };
    let field = |index: usize| word(header, index * 4).ok_or(truncated);
    let (magic, size, version, compatible) = (field(0)?, field(1)?, field(5)?, field(6)?);
    if magic != MAGIC {
        return Err(Error::Magic { found: magic });
    }
    if version < VERSION || compatible > VERSION {
        return Err(Error::Version { version, compatible });
    }
    if !(HEADER_SIZE..=MAX_SIZE).contains(&(size as usize)) {
        return Err(Error::Size { size });
    }
    Ok(size as usize)
}

/// Returns the big-endian word at `offset`, or `None` if it is not within `bytes`.
pub(super) fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Checks the blob at the start of `bytes`, and moves its tokens over the NOPs between them. The root, nodes,
/// properties and reservations of the returned tree can be read without panics.
pub(super) fn parse(bytes: &mut [u8]) -> Result<Fdt<'_>, Error> {
    let size = total_size(bytes)?;
    let present = bytes.len();
    let bytes = bytes.get_mut(..size).ok_or(Error::Truncated { length: present, size })?;
    let field = |index: usize| word(bytes, index * 4).unwrap_or(0);
    let block = |name, offset: u32, length: u32, alignment| {
        let start = offset as usize;
        let block = start.checked_add(length as usize).map(|end| start..end);
        let is_placed =
            |block: &Range<usize>| block.end <= size && start >= HEADER_SIZE && start.is_multiple_of(alignment);
        block.filter(is_placed).ok_or(Error::Block { block: name, offset, length })
    };
    let structure = block("structure", field(2), field(9), 4)?;
    let strings = block("strings", field(3), field(8), 1)?;
    let reservations = block("reservation", field(4), RESERVATION_SIZE as u32, 8)?;
    let reservations = reservations.start..end_of_reservations(bytes, reservations.start)?;
    let (offset, length) = (field(3), field(8));
    let overlap = |_| Error::Block { block: "strings", offset, length };
    let start = structure.start;
    let [structure, strings, _] = bytes.get_disjoint_mut([structure, strings, reservations]).map_err(overlap)?;
    compact(structure, strings).map_err(|(offset, reason)| Error::Structure { offset: start + offset, reason })?;
    Fdt::new(bytes).map_err(|_| Error::Truncated { length: present, size })
}

/// Returns the end of the list of reservations that starts at `start`: the first byte after the empty entry.
fn end_of_reservations(bytes: &[u8], start: usize) -> Result<usize, Error> {
    let is_empty = |entry: &[u8]| entry.iter().all(|byte| *byte == 0);
    match bytes[start..].chunks_exact(RESERVATION_SIZE).position(is_empty) {
        Some(count) => Ok(start + (count + 1) * RESERVATION_SIZE),
        None => Err(Error::Structure { offset: start, reason: "the list of reservations has no end" }),
    }
}

/// Checks that the tokens of the structure block are one node with its contents, properties before nodes (5.4.2), and
/// moves them over the NOPs between them. The error is the offset of the fault and a description.
fn compact(structure: &mut [u8], strings: &[u8]) -> Result<(), (usize, &'static str)> {
    let (mut at, mut to) = (0, 0);
    let (mut depth, mut properties) = (0, false);
    loop {
        let wrong = |reason| Err((at, reason));
        let is_first = to == 0;
        let contents = at + 4;
        let token = word(structure, at).ok_or((at, "it ends within a node"))?;
        let end = match token {
            NOP => {
                at = contents;
                continue;
            }
            BEGIN_NODE => {
                let name = text(&structure[contents..]).ok_or((at, "a node's name is not text"))?;
                match depth {
                    0 if !is_first => return wrong("there is a second root"),
                    0 if !name.is_empty() => return wrong("the root has a name"),
                    MAX_DEPTH => return wrong("nodes are nested too deeply"),
                    _ => {}
                }
                (depth, properties) = (depth + 1, true);
                contents + name.len() + 1
            }
            END_NODE if depth == 0 => return wrong("a node ends without a beginning"),
            END_NODE => {
                (depth, properties) = (depth - 1, false);
                contents
            }
            PROPERTY => {
                let field = |index: usize| word(structure, contents + 4 * index).ok_or((at, "a property is cut off"));
                let (length, name) = (field(0)? as usize, field(1)? as usize);
                strings.get(name..).and_then(text).ok_or((at, "a property's name is not text"))?;
                if structure.len() - (contents + 8) < length {
                    return wrong("a property reaches beyond the block");
                }
                if !properties {
                    return wrong("a property is outside the properties of a node");
                }
                contents + 8 + length
            }
            END if depth > 0 || is_first => return wrong("it ends within a node"),
            END => contents,
            _ => return wrong("an unknown token"),
        };
        // The padding of the last value may be missing.
        let end = end.next_multiple_of(4).min(structure.len());
        structure.copy_within(at..end, to);
        to += end - at;
        at = end;
        if token == END {
            return Ok(());
        }
    }
}

/// Returns the text up to the first NUL, or `None` if there is no NUL or no valid UTF-8.
fn text(bytes: &[u8]) -> Option<&str> {
    core::ffi::CStr::from_bytes_until_nul(bytes).ok()?.to_str().ok()
}
