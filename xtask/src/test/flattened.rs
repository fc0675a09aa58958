//! The part of the flattened device tree format (Devicetree Specification, chapter 5) that is needed to damage a tree
//! in a chosen place.

mod tree;

use std::ops::Range;

pub use tree::{Tree, text};

/// The place in the header of the length of the whole tree.
pub const TOTAL_SIZE: Range<usize> = 4..8;

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;
/// The alignment of names, properties and tokens in bytes.
const WORD: usize = 4;

fn word(tree: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(tree.get(at..at + WORD)?.try_into().ok()?))
}

/// Returns the range of the structure block of `tree`. `None` if it is not a tree.
pub fn structure(tree: &[u8]) -> Option<Range<usize>> {
    let start = word(tree, 8)? as usize;
    let end = start.checked_add(word(tree, 36)? as usize)?;
    (word(tree, 0)? == MAGIC && end <= tree.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::{MAGIC, structure};

    #[test]
    fn what_is_no_tree_is_refused() {
        // A header, and four words after it.
        let mut words = [0; 14];
        (words[0], words[2], words[9]) = (MAGIC, 40, 16);
        let mut tree: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(structure(&tree), Some(40..56));
        assert_eq!(structure(&tree[..50]), None);
        tree[0] = 0;
        assert_eq!(structure(&tree), None);
    }
}
