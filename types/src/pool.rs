//! Items of a table that are stored once, and referred to by number.

use std::collections::HashMap;
use std::hash::Hash;
use std::string::String;
use std::{vec, vec::Vec};

/// The number of each item, and how often it is used.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    items: HashMap<T, Item>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    number: u64,
    uses: u64,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { items: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Pool<T> {
    /// Creates a pool of items with their numbers.
    pub fn of(items: impl IntoIterator<Item = (T, u64)>) -> Self {
        let items = items.into_iter().map(|(item, number)| (item, Item { number, uses: 0 }));
        Self { items: items.collect() }
    }

    /// Uses an item, and returns its number. A new item gets the next number.
    pub fn number(&mut self, item: &T) -> u64 {
        let next = self.items.len() as u64;
        let item = self.items.entry(item.clone()).or_insert(Item { number: next, uses: 0 });
        item.uses += 1;
        item.number
    }

    /// Returns all items, the most used first.
    pub fn ranked(&self) -> Vec<T> {
        let mut all: Vec<_> = self.items.iter().collect();
        all.sort_unstable_by_key(|(_, item)| (u64::MAX - item.uses, item.number));
        all.into_iter().map(|(item, _)| item.clone()).collect()
    }
}

/// Returns a text that contains all `names`, and the offset of each in it. A name that occurs in another one adds
/// nothing to the text. The names are distinct.
pub(crate) fn shared_text(names: &[String]) -> (String, Vec<usize>) {
    // A suffix is a name, by its number, without its first bytes. Suffixes that begin with a name follow each other in
    // ascending order.
    let mut suffixes: Vec<(usize, usize)> = Vec::new();
    for (number, name) in names.iter().enumerate() {
        suffixes.extend(name.char_indices().map(|(at, _)| (number, at)));
    }
    let text_of = |&(number, at): &(usize, usize)| &names[number][at..];
    suffixes.sort_unstable_by_key(text_of);
    // A name is only contained in longer ones, which have their offsets before it.
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|&number| usize::MAX - names[number].len());
    let (mut text, mut offsets) = (String::new(), vec![0; names.len()]);
    for number in order {
        let name = &names[number];
        let first = suffixes.partition_point(|suffix| text_of(suffix) < name.as_str());
        let containing = suffixes[first..].iter().take_while(|suffix| text_of(suffix).starts_with(name.as_str()));
        offsets[number] = match containing.clone().find(|(other, _)| *other != number) {
            Some(&(other, at)) => offsets[other] + at,
            None => text.len(),
        };
        if offsets[number] == text.len() {
            text.push_str(name);
        }
    }
    (text, offsets)
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::{vec, vec::Vec};

    use super::{Pool, shared_text};

    #[test]
    fn the_most_used_items_are_first() {
        let mut pool = Pool::default();
        let numbers: Vec<u64> = ["a", "b", "b", "c", "b", "c"].iter().map(|item| pool.number(item)).collect();
        assert_eq!(numbers, [0, 1, 1, 2, 1, 2]);
        assert_eq!(pool.ranked(), ["b", "c", "a"]);
        let mut given = Pool::of([("x", 7)]);
        assert_eq!((given.number(&"x"), given.number(&"y")), (7, 1));
    }

    #[test]
    fn a_name_in_another_takes_no_bytes() {
        let names =
            ["u8", "Option<Iter<u8>>", "", "Iter<u8>", "é", "Iter<u16>", "café", "Iter"].map(|name| name.to_string());
        let (text, offsets) = shared_text(&names);
        let found: Vec<&str> = names.iter().zip(&offsets).map(|(name, &at)| &text[at..at + name.len()]).collect();
        assert_eq!(found, names.each_ref().map(|name| name.as_str()));
        assert_eq!(text, "Option<Iter<u8>>Iter<u16>café");
        assert_eq!(shared_text(&[]), (std::string::String::new(), vec![]));
    }
}
