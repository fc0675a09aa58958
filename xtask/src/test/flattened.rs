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

/// Returns the tree without the first node whose name begins with `name`. `None` if there is no such node.
pub fn without_node(tree: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut at = structure(tree)?.start;
    // The start of the node, once it was found, and the current depth in it.
    let mut found = None;
    let mut depth = 0;
    loop {
        let token = word(tree, at)?;
        let next = match token {
            BEGIN_NODE => {
                let start = at + WORD;
                let own = tree.get(start..)?.split(|byte| *byte == 0).next()?;
                if found.is_none() && own.starts_with(name.as_bytes()) {
                    found = Some((at, depth));
                }
                depth += 1;
                (start + own.len() + 1).next_multiple_of(WORD)
            }
            PROPERTY => (at + 3 * WORD + word(tree, at + WORD)? as usize).next_multiple_of(WORD),
            END_NODE => {
                depth -= 1;
                at + WORD
            }
            NOP => at + WORD,
            _ => return None,
        };
        if let Some((start, outside)) = found
            && token == END_NODE
            && depth == outside
        {
            let mut without = tree.to_vec();
            without[start..next].chunks_exact_mut(WORD).for_each(|word| word.copy_from_slice(&NOP.to_be_bytes()));
            return Some(without);
        }
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::{structure, without_node};

    /// Returns a tree with a header and these words.
    fn tree(words: &[u32]) -> Vec<u8> {
        let mut header = [0; 10];
        (header[0], header[2], header[9]) = (0xd00d_feed, 40, words.len() as u32 * 4);
        header.iter().chain(words).flat_map(|word| word.to_be_bytes()).collect()
    }

    const NAMES: [u32; 2] = [u32::from_be_bytes(*b"a@10"), u32::from_be_bytes(*b"b\0\0\0")];

    #[test]
    fn a_node_is_removed_with_what_is_in_it() {
        let [a, b] = NAMES;
        let whole = [1, 0, 3, 5, 0, 0, 0, 1, a, 0, 3, 4, 0, 2, 1, b, 2, 2, 1, b, 2, 2, 9];
        let without = [1, 0, 3, 5, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1, b, 2, 2, 9];
        assert_eq!(structure(&tree(&whole)), Some(40..40 + whole.len() * 4));
        assert_eq!(without_node(&tree(&whole), "a@"), Some(tree(&without)));
        assert_eq!(without_node(&tree(&whole), "c"), None);
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let mut bad = tree(&[1, 0, 2, 9]);
        assert_eq!(structure(&bad[..50]), None);
        assert_eq!(without_node(&bad[..50], "a"), None);
        bad[0] = 0;
        assert_eq!(structure(&bad), None);
    }
}
