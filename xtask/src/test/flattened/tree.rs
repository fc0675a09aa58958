//! A parsed tree, which can be changed and written again.

use super::{BEGIN_NODE, END_NODE, NOP, PROPERTY, WORD, structure, word};

const END: u32 = 9;
/// The versions in the header: version 17, which readers of version 16 understand (chapter 5.2).
const VERSIONS: [u32; 2] = [17, 16];
const HEADER_SIZE: usize = 40;

enum Token {
    Begin(Vec<u8>),
    Property { name: Vec<u8>, value: Vec<u8> },
    End,
}

/// The nodes and properties of a tree, and its memory reservations.
pub struct Tree {
    reservations: Vec<[u64; 2]>,
    tokens: Vec<Token>,
}

/// Returns a string with its terminating zero.
pub fn text(text: &str) -> Vec<u8> {
    format!("{text}\0").into_bytes()
}

fn name_at(tree: &[u8], at: usize) -> Option<Vec<u8>> {
    Some(tree.get(at..)?.split(|byte| *byte == 0).next()?.to_vec())
}

impl Tree {
    /// Parses `tree`. `None` if it is not a tree. Reservations are dropped: QEMU makes none.
    pub fn parse(tree: &[u8]) -> Option<Self> {
        let mut at = structure(tree)?.start;
        let strings = word(tree, 12)? as usize;
        let mut tokens = Vec::new();
        loop {
            let token = word(tree, at)?;
            at += WORD;
            match token {
                BEGIN_NODE => {
                    let name = name_at(tree, at)?;
                    at = (at + name.len() + 1).next_multiple_of(WORD);
                    tokens.push(Token::Begin(name));
                }
                PROPERTY => {
                    let length = word(tree, at)? as usize;
                    let name = name_at(tree, strings.checked_add(word(tree, at + WORD)? as usize)?)?;
                    let value = tree.get(at + 2 * WORD..)?.get(..length)?.to_vec();
                    at = (at + 2 * WORD + length).next_multiple_of(WORD);
                    tokens.push(Token::Property { name, value });
                }
                END_NODE => tokens.push(Token::End),
                NOP => {}
                END => return Some(Self { reservations: Vec::new(), tokens }),
                _ => return None,
            }
        }
    }

    /// Removes the first node whose name begins with `name`, with what is in it. `None` if there is no such node.
    pub fn remove_node(&mut self, name: &str) -> Option<()> {
        let begins = |token: &Token| matches!(token, Token::Begin(own) if own.starts_with(name.as_bytes()));
        let start = self.tokens.iter().position(begins)?;
        let mut depth = 0;
        let is_end = |token: &Token| {
            match token {
                Token::Begin(_) => depth += 1,
                Token::Property { .. } => {}
                Token::End => depth -= 1,
            }
            depth == 0
        };
        let length = self.tokens[start..].iter().position(is_end)?;
        self.tokens.drain(start..=start + length);
        Some(())
    }

    /// Returns the places of the properties of the first node with this name.
    fn properties(&self, node: &str) -> Option<std::ops::Range<usize>> {
        let begins = |token: &Token| matches!(token, Token::Begin(name) if name == node.as_bytes());
        let start = self.tokens.iter().position(begins)? + 1;
        let count = self.tokens[start..].iter().take_while(|token| matches!(token, Token::Property { .. })).count();
        Some(start..start + count)
    }

    /// Returns the value of a property of the first node with this name.
    pub fn get(&self, node: &str, property: &str) -> Option<&[u8]> {
        self.tokens[self.properties(node)?].iter().find_map(|token| match token {
            Token::Property { name, value } if name == property.as_bytes() => Some(&value[..]),
            _ => None,
        })
    }

    /// Removes a property from the first node with this name. `None` if it does not have it.
    pub fn remove(&mut self, node: &str, property: &str) -> Option<()> {
        let places = self.properties(node)?;
        let is_it = |token: &Token| matches!(token, Token::Property { name, .. } if name == property.as_bytes());
        if let Some(place) = self.tokens[places.clone()].iter().position(is_it) {
            self.tokens.remove(places.start + place);
        }
        Some(())
    }

    /// Sets a property of the first node with this name.
    pub fn set(&mut self, node: &str, property: &str, value: Vec<u8>) -> Option<()> {
        self.remove(node, property)?;
        let start = self.properties(node)?.start;
        self.tokens.insert(start, Token::Property { name: property.into(), value });
        Some(())
    }

    /// Adds a memory reservation.
    pub fn reserve(&mut self, address: u64, size: u64) {
        self.reservations.push([address, size]);
    }

    /// Returns the tree as bytes.
    pub fn blob(&self) -> Vec<u8> {
        let ended = [&self.reservations[..], &[[0, 0]]].concat();
        let reservations: Vec<u8> = ended.iter().flatten().flat_map(|number| number.to_be_bytes()).collect();
        let (mut structure, mut strings) = (Vec::new(), Vec::new());
        let mut put = |words: &[u32], bytes: &[u8]| {
            structure.extend(words.iter().flat_map(|word| word.to_be_bytes()));
            structure.extend(bytes);
            structure.resize(structure.len().next_multiple_of(WORD), 0);
        };
        for token in &self.tokens {
            match token {
                Token::Begin(name) => put(&[BEGIN_NODE], &[name, &[0][..]].concat()),
                Token::Property { name, value } => {
                    put(&[PROPERTY, value.len() as u32, strings.len() as u32], value);
                    strings.extend([name, &[0][..]].concat());
                }
                Token::End => put(&[END_NODE], &[]),
            }
        }
        put(&[END], &[]);
        let structure_at = HEADER_SIZE + reservations.len();
        let strings_at = structure_at + structure.len();
        let offsets = [strings_at + strings.len(), structure_at, strings_at, HEADER_SIZE].map(|offset| offset as u32);
        let sizes = [0, strings.len() as u32, structure.len() as u32];
        let header = [&[super::MAGIC], &offsets[..], &VERSIONS, &sizes].concat();
        let header: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
        [header, reservations, structure, strings].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::{Tree, text};

    fn example() -> Tree {
        let mut tree = Tree { reservations: Vec::new(), tokens: vec![super::Token::Begin(Vec::new())] };
        for name in ["a", "b"] {
            tree.tokens.extend([super::Token::Begin(name.into()), super::Token::End]);
        }
        tree.tokens.push(super::Token::End);
        tree.set("a", "one", text("1")).unwrap();
        tree.set("b", "one", vec![1; 8]).unwrap();
        tree
    }

    #[test]
    fn a_tree_comes_back_as_it_was_put_together() {
        let blob = example().blob();
        let tree = Tree::parse(&blob).unwrap();
        assert_eq!(tree.blob(), blob);
        assert_eq!((tree.get("a", "one"), tree.get("b", "one")), (Some(&b"1\0"[..]), Some(&[1; 8][..])));
    }

    #[test]
    fn a_node_is_removed_with_what_is_in_it() {
        let mut tree = example();
        for token in [super::Token::End, super::Token::Begin("c@10".into())] {
            tree.tokens.insert(3, token);
        }
        let whole = tree.blob();
        tree.remove_node("c@").unwrap();
        assert_eq!((tree.blob(), tree.remove_node("c@")), (example().blob(), None));
        let mut tree = Tree::parse(&whole).unwrap();
        tree.remove_node("a").unwrap();
        assert_eq!(tree.remove_node("c@"), None);
        assert_eq!((tree.get("a", "one"), tree.get("b", "one")), (None, Some(&[1; 8][..])));
        tree.remove_node("b").unwrap();
        assert_eq!(tree.tokens.len(), 2);
    }

    #[test]
    fn properties_change_in_one_node() {
        let mut tree = example();
        tree.set("b", "one", text("other")).unwrap();
        tree.remove("a", "one").unwrap();
        tree.reserve(0x1000, 0x10);
        assert_eq!((tree.get("a", "one"), tree.get("b", "one")), (None, Some(&b"other\0"[..])));
        assert_eq!(tree.set("c", "one", Vec::new()), None);
        let blob = tree.blob();
        assert_eq!(blob[40..72].iter().map(|byte| u64::from(*byte)).sum::<u64>(), 0x10 + 0x10);
        assert!(Tree::parse(&blob[..blob.len() / 2]).is_none());
    }
}
