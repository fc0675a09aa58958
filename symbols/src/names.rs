//! Matches globs against function names. One function of the source may have several functions in the image: one for
//! each type that it is generic over, and the parts and copies that the compiler makes. A plain path names all of them;
//! a path with the types or the suffix names one.

use alloc::string::String;
use core::str::Chars;

use fallible::OutOfMemory;

use crate::{Brackets, class_match_chars, glob_match_chars};

/// Returns whether `glob` matches the demangled path `name`, or the plain path of `name`: see [`plain_path`]. `*`
/// stands for any run of characters, and `?` for one character.
#[must_use]
pub fn matches(glob: &str, name: &str) -> bool {
    Glob::new(glob).matches(name)
}

/// A glob that is matched against many names.
#[derive(Clone, Copy, Debug)]
pub struct Glob<'a> {
    text: &'a str,
    longest_word: &'a [u8],
    has_classes: bool,
}

/// Returns the longest word of a glob, which every name that it matches has.
fn longest_word(text: &str) -> &[u8] {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.max_by_key(|word| word.len()).unwrap_or_default().as_bytes()
}

impl<'a> Glob<'a> {
    /// Prepares the glob `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, longest_word: longest_word(text), has_classes: false }
    }

    /// Prepares the glob `text`, in which `[…]` also stands for one of the characters in it. As names have brackets of
    /// their own, the glob also matches every name that it would match without that meaning.
    #[must_use]
    pub fn with_classes(text: &'a str) -> Self {
        let has_classes = text.contains('[');
        // A word of a class may not be in a name that matches.
        let longest_word = if has_classes { &[][..] } else { longest_word(text) };
        Self { text, longest_word, has_classes }
    }

    /// Returns whether the glob matches `name`, as the function [`matches()`] does.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.matches_chars(name.chars()) || self.may_match_plain(name) && self.matches_chars(plain_chars(name))
    }

    fn matches_chars(&self, name: impl Iterator<Item = char> + Clone) -> bool {
        glob_match_chars(self.text, name.clone()) || self.has_classes && class_match_chars(self.text, name)
    }

    /// Returns whether the glob matches `name` or its plain path `plain`. Faster than [`matches`](Self::matches) where
    /// the plain path is at hand.
    #[must_use]
    pub fn matches_either(&self, name: &str, plain: &str) -> bool {
        self.matches_chars(name.chars()) || name.len() != plain.len() && self.matches_chars(plain.chars())
    }

    /// Returns whether the plain path of `name` may match although `name` does not. This quick check rules out nearly
    /// every name without computing its plain path: the plain path equals `name`, or a word of the glob is missing in
    /// `name`. Stripping a name never joins two of its words into one.
    fn may_match_plain(&self, name: &str) -> bool {
        let word = self.longest_word;
        let (name, mut is_longer, mut has_word) = (name.as_bytes(), false, word.is_empty());
        // A loop rather than a search of `core`, whose preparation takes longer than a scan of one name.
        for (at, &byte) in name.iter().enumerate() {
            is_longer |= matches!(byte, b'<' | b'.');
            has_word |= word.first() == Some(&byte) && name.get(at..).is_some_and(|rest| rest.starts_with(word));
        }
        is_longer && has_word
    }
}

/// Splits `path` at a `#N` at its end. N selects one of the functions with the same path: their number in the order of
/// their addresses, from 1.
#[must_use]
pub fn numbered(path: &str) -> (&str, Option<usize>) {
    let number = |digits: &str| digits.parse().ok().filter(|&number| number > 0 && !digits.starts_with(['0', '+']));
    let split = path.rsplit_once('#').and_then(|(path, digits)| Some((path, number(digits)?)));
    split.map_or((path, None), |(path, number)| (path, Some(number)))
}

/// Returns the demangled path `name` without what distinguishes the copies of one function: generic arguments, and
/// suffixes like `.cold`. `<a::B<u8>>::f::<u32>` becomes `a::B::f`, and `<a::B<u8> as c::D<u8>>::f` becomes
/// `<a::B as c::D>::f`.
///
/// # Errors
///
/// There is no memory for the path.
pub fn plain_path(name: &str) -> Result<String, OutOfMemory> {
    let mut plain = String::new();
    plain.try_reserve_exact(name.len())?;
    plain_pieces(name, &mut |piece| plain.push_str(piece));
    Ok(plain)
}

/// Passes the pieces of [`plain_path`] to `out`, in order. The plain path is never longer than `name`.
pub fn plain_pieces<'a>(name: &'a str, out: &mut dyn FnMut(&'a str)) {
    strip(without_suffix(name), 0, out);
}

/// Returns the characters of [`plain_path`], without an allocation.
fn plain_chars(name: &str) -> impl Iterator<Item = char> + Clone {
    PlainChars { name: without_suffix(name), pieces: 0, piece: "".chars() }
}

/// An iterator over the characters of a plain path, which consists of pieces of the name. A path has few pieces, so
/// each is searched from the beginning of the name. That needs no stack of open brackets, and keeps the iterator small
/// to clone.
#[derive(Clone)]
struct PlainChars<'a> {
    name: &'a str,
    /// The number of pieces that have begun.
    pieces: usize,
    /// The rest of the current piece.
    piece: Chars<'a>,
}

impl Iterator for PlainChars<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        loop {
            if let Some(c) = self.piece.next() {
                return Some(c);
            }
            let (mut number, mut found) = (0, None);
            strip(self.name, 0, &mut |piece| {
                if number == self.pieces {
                    found = Some(piece);
                }
                number += 1;
            });
            self.piece = found?.chars();
            self.pieces += 1;
        }
    }
}

/// Returns `name` up to the first `.` outside brackets.
fn without_suffix(name: &str) -> &str {
    let mut brackets = Brackets::ALL;
    let suffix = name.char_indices().find(|&(at, c)| brackets.pass(c) && c == '.' && at > 0);
    suffix.and_then(|(at, _)| name.get(..at)).unwrap_or(name)
}

/// The maximum nesting of types; types nested more deeply keep their generic arguments.
const DEPTH_MAX: usize = 16;

/// Passes the pieces of `path` without generic arguments to `out`.
fn strip<'a>(path: &'a str, depth: usize, out: &mut dyn FnMut(&'a str)) {
    let mut rest = path;
    while let Some(at) = rest.find('<') {
        let (before, bracket) = rest.split_at(at);
        let Some(end) = closing(bracket).filter(|_| depth < DEPTH_MAX) else {
            break;
        };
        let (inside, after) = (bracket.get(1..end).unwrap_or(""), bracket.get(end + 1..).unwrap_or(""));
        let is_self = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '}' || c == '>');
        if is_self && (!before.is_empty() || after.starts_with("::")) {
            out(before);
            match find_as(inside) {
                Some(at) => {
                    out("<");
                    strip(inside.get(..at).unwrap_or(""), depth + 1, out);
                    out(" as ");
                    strip(inside.get(at + 4..).unwrap_or(""), depth + 1, out);
                    out(">");
                }
                None => strip(inside, depth + 1, out),
            }
        } else {
            out(before.strip_suffix("::").unwrap_or(before));
        }
        rest = after;
    }
    out(rest);
}

/// Returns the offset at which the angle bracket at the start of `text` is closed.
fn closing(text: &str) -> Option<usize> {
    let mut brackets = Brackets::ANGLE;
    text.char_indices().find(|&(_, c)| brackets.pass(c)).map(|(at, _)| at)
}

/// Returns the offset of ` as ` in `text`, outside angle brackets.
fn find_as(text: &str) -> Option<usize> {
    let mut brackets = Brackets::ANGLE;
    let is_as = |at| text.get(at..).is_some_and(|rest| rest.starts_with(" as "));
    text.char_indices().find(|&(at, c)| brackets.pass(c) && is_as(at)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;

    use kprobes_random::tried::tried;

    use super::{Glob, matches, numbered, plain_path};

    #[test]
    fn copies_of_one_function_have_one_plain_path() {
        for (name, plain) in tried([
            ("blk::submit", "blk::submit"),
            ("blk::submit::<u32, [u8; 4]>", "blk::submit"),
            ("blk::submit.cold", "blk::submit"),
            ("a::f.llvm.123", "a::f"),
            ("<a::B<u8>>::f::<u32>", "a::B::f"),
            ("<a::B<u8> as c::D<u8>>::f", "<a::B as c::D>::f"),
            ("<a::B as c::D>::f::{closure#0}", "<a::B as c::D>::f::{closure#0}"),
            ("<fn(u8) -> a::B<u8> as c::D>::f", "<fn(u8) -> a::B as c::D>::f"),
            ("core::ptr::drop_in_place::<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place"),
            ("<&'a a::B<u8> as c::D>::f", "<&'a a::B as c::D>::f"),
            ("a<b", "a<b"),
            ("", ""),
        ]) {
            assert_eq!(plain_path(name).unwrap(), plain, "{name}");
            for (at, _) in tried(plain.char_indices()) {
                let (before, after) = plain.split_at(at);
                for glob in [plain.to_string(), format!("{before}*"), format!("*{after}"), format!("{before}*{after}")]
                {
                    assert!(matches(&glob, name), "{glob} {name}");
                    assert!(Glob::new(&glob).matches_either(name, plain), "{glob} {name}");
                }
            }
        }
    }

    #[test]
    fn functions_of_one_path_have_numbers() {
        for (text, path, number) in tried([
            ("a::f#2", "a::f", Some(2)),
            ("a::f::<u8>#10", "a::f::<u8>", Some(10)),
            ("a::{closure#0}", "a::{closure#0}", None),
            ("a::{closure#0}#1", "a::{closure#0}", Some(1)),
            ("a::*#3", "a::*", Some(3)),
            ("a::f", "a::f", None),
            ("a::f#", "a::f#", None),
            ("a::f#0", "a::f#0", None),
            ("a::f#02", "a::f#02", None),
            ("a::f#+2", "a::f#+2", None),
            ("a::f#99999999999999999999", "a::f#99999999999999999999", None),
            ("", "", None),
        ]) {
            assert_eq!(numbered(text), (path, number), "{text}");
        }
    }

    #[test]
    fn a_glob_matches_all_copies_or_the_one_that_it_spells_out() {
        assert!(matches("blk::submit", "blk::submit::<u32>"));
        assert!(matches("blk::submit", "blk::submit.cold"));
        assert!(matches("blk::submit::<u32>", "blk::submit::<u32>"));
        assert!(!matches("blk::submit::<u64>", "blk::submit::<u32>"));
        assert!(matches("*::submit", "<blk::Disk<u8> as blk::Device>::submit"));
        assert!(matches("a::Vec::push", "<a::Vec<u8>>::push"));
        assert!(!matches("blk::*", "net::send"));
    }
}
