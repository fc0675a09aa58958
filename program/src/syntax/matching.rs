//! Which functions a glob means. One function of the source may have several in the image: one for each type that it is
//! generic over, and those that the compiler has split or copied. Whoever asks for it by its path wants them all; whoever
//! writes the types or the suffix down wants that one.

use alloc::string::String;
use core::str::Chars;

use fallible::OutOfMemory;
use kprobes_symbols::{glob_match, glob_match_chars};

/// Whether `glob`, with `*` for any run of characters and `?` for one, matches the demangled path `name`, or the same
/// without what tells the copies of one function apart: see [`plain_path`].
#[must_use]
pub fn matches(glob: &str, name: &str) -> bool {
    Glob::new(glob).matches(name)
}

/// A glob that is compared with many names.
#[derive(Clone, Copy, Debug)]
pub struct Glob<'a> {
    text: &'a str,
    longest_word: &'a [u8],
}

impl<'a> Glob<'a> {
    /// That of this text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        Self { text, longest_word: words.max_by_key(|word| word.len()).unwrap_or_default().as_bytes() }
    }

    /// As [`matches`].
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        glob_match(self.text, name) || self.may_match_plain(name) && glob_match_chars(self.text, plain_chars(name))
    }

    /// The same, of a name whose plain path is `plain`.
    #[must_use]
    pub fn matches_either(&self, name: &str, plain: &str) -> bool {
        glob_match(self.text, name) || name.len() != plain.len() && glob_match(self.text, plain)
    }

    /// Whether the plain path of `name` may match though `name` does not. Nearly always it cannot, which is told without making
    /// that path: nothing is left out of `name`, or a word is not in it. No two words of a path become one by what is left out
    /// between them.
    fn may_match_plain(&self, name: &str) -> bool {
        let word = self.longest_word;
        let (name, mut is_longer, mut has_word) = (name.as_bytes(), false, word.is_empty());
        // Not by a search of `core`, which prepares more than it takes to look through one name.
        for (at, &byte) in name.iter().enumerate() {
            is_longer |= matches!(byte, b'<' | b'.');
            has_word |= word.first() == Some(&byte) && name.get(at..).is_some_and(|rest| rest.starts_with(word));
        }
        is_longer && has_word
    }
}

/// `path` without the `#N` that it may end with, and N: which one is meant of the functions that have the same path, from 1 on
/// in the order of their addresses.
#[must_use]
pub fn numbered(path: &str) -> (&str, Option<usize>) {
    let number = |digits: &str| digits.parse().ok().filter(|&number| number > 0 && !digits.starts_with(['0', '+']));
    let split = path.rsplit_once('#').and_then(|(path, digits)| Some((path, number(digits)?)));
    split.map_or((path, None), |(path, number)| (path, Some(number)))
}

/// The demangled path `name` without what tells the copies of one function apart: generic arguments, and suffixes like
/// `.cold`. `<a::B<u8>>::f::<u32>` becomes `a::B::f`, and `<a::B<u8> as c::D<u8>>::f` becomes `<a::B as c::D>::f`.
///
/// # Errors
///
/// There is no memory for it.
pub fn plain_path(name: &str) -> Result<String, OutOfMemory> {
    let mut plain = String::new();
    plain.try_reserve_exact(name.len())?;
    plain_pieces(name, &mut |piece| plain.push_str(piece));
    Ok(plain)
}

/// Passes the pieces of [`plain_path`] to `out`, in their order. No path is longer than its name.
pub fn plain_pieces<'a>(name: &'a str, out: &mut dyn FnMut(&'a str)) {
    strip(without_suffix(name), 0, out);
}

/// The characters of [`plain_path`]. They take no memory.
fn plain_chars(name: &str) -> impl Iterator<Item = char> + Clone {
    PlainChars { name: without_suffix(name), pieces: 0, piece: "".chars() }
}

/// The characters of a plain path, which consists of pieces of the name. A path has few of them, so each is looked for from the
/// beginning: that takes no stack for the brackets that are open, and a copy of this is small.
#[derive(Clone)]
struct PlainChars<'a> {
    name: &'a str,
    /// How many pieces have begun.
    pieces: usize,
    /// The rest of the last of them.
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

/// `name` up to the first `.` outside brackets.
fn without_suffix(name: &str) -> &str {
    let mut depth = 0_usize;
    let mut previous = ' ';
    for (at, c) in name.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' if previous == '-' => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '.' if depth == 0 && at > 0 => return name.get(..at).unwrap_or(name),
            _ => {}
        }
        previous = c;
    }
    name
}

/// How deep types within types are followed; deeper ones stay as they are.
const DEPTH_MAX: usize = 16;

/// Passes `path` to `out` without generic arguments, piece by piece.
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

/// Where the bracket that `text` begins with is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if previous == '-' => {}
            '>' if depth == 1 => return Some(at),
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        previous = c;
    }
    None
}

/// Where ` as ` stands in `text`, outside brackets.
fn find_as(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut previous = ' ';
    text.char_indices().find_map(|(at, c)| {
        match c {
            '<' => depth += 1,
            '>' if previous != '-' => depth = depth.saturating_sub(1),
            _ => {}
        }
        previous = c;
        (depth == 0 && text.get(at..).is_some_and(|rest| rest.starts_with(" as "))).then_some(at)
    })
}
