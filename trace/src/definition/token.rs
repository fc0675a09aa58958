//! Splits a definition into tokens.
//!
//! Linux separates the parts of a definition by white space, because C symbols contain none. Demangled Rust paths
//! contain white space, but only inside brackets: `<T as Trait>::name`, `name::<[u8; 4]>`, `name::<fn(u8) -> u8>`.
//! Therefore white space inside brackets does not separate the second token, which is the place. A symbol can be typed
//! exactly as a symbol table prints it.

use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_symbols::Brackets;

use super::{ParseError, Problem};

/// A part of a line, and the column where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// The characters of the part.
    pub text: &'a str,
    /// The number of characters of the line before it.
    pub column: usize,
}

impl<'a> Token<'a> {
    /// Splits at the byte position `at`, which must lie between two characters.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let (left, right) = self.text.split_at(at);
        let column = self.column + left.chars().count();
        (Self { text: left, ..self }, Self { text: right, column })
    }

    /// Splits at the first `separator`, which belongs to neither side.
    pub fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let (left, rest) = self.split_at(self.text.find(separator)?);
        Some((left, rest.skip(1)))
    }

    /// Returns what remains after the first `count` characters, which must be ASCII.
    pub fn skip(self, count: usize) -> Self {
        self.split_at(count).1
    }

    /// Makes the error of `problem` with this token as the cause.
    pub fn error(self, problem: Problem) -> ParseError {
        ParseError { problem, column: self.column }
    }
}

/// Tracks brackets outside character literals.
struct Nesting {
    brackets: Brackets,
    /// The characters of a character literal that are still to come. In `'('` and `'\''` nothing opens or closes.
    literal: usize,
}

impl Nesting {
    const START: Self = Self { brackets: Brackets::ALL, literal: 0 };

    /// Takes the next character, and the rest of the text after it. Returns whether the character lies outside all
    /// brackets.
    fn outside(&mut self, character: char, rest: &str) -> bool {
        if self.literal > 0 {
            self.literal -= 1;
            return self.brackets.is_outside();
        }
        if character == '\'' {
            self.literal = literal_length(rest);
        }
        self.brackets.pass(character)
    }
}

/// Returns the number of characters that still belong to the character literal whose opening quote precedes `rest`; 0
/// if the quote begins a lifetime.
fn literal_length(rest: &str) -> usize {
    /// The number of characters after the `u` of the longest escape, `'\u{10FFFF}'`.
    const LONGEST: usize = 9;
    let mut characters = rest.chars();
    match characters.next() {
        Some('\\') => {
            let mut word = characters.skip(1).take(LONGEST).take_while(|character| !character.is_whitespace());
            word.position(|character| character == '\'').map_or(0, |position| position + 3)
        }
        Some(_) if characters.next() == Some('\'') => 2,
        _ => 0,
    }
}

/// Returns the tokens of `line` up to a comment. As in Linux, any `#` begins a comment, except within a name: `f#2` is
/// the second function with the path `f`, and `f::{closure#0}` has its `#` in brackets.
pub(crate) fn tokens(line: &str) -> Result<Vec<Token<'_>>, OutOfMemory> {
    const PLACE: usize = 1;
    let mut tokens = Vec::new();
    let mut rest = Token { text: line, column: 0 };
    loop {
        let start = rest.text.find(|character: char| !character.is_whitespace()).unwrap_or(rest.text.len());
        rest = rest.split_at(start).1;
        if rest.text.is_empty() || rest.text.starts_with('#') {
            return Ok(tokens);
        }
        let ends =
            |character: char, after: &str| character.is_whitespace() || character == '#' && !starts_number(after);
        // A bracket that is never closed does not join anything.
        let bracketed = if tokens.len() == PLACE { find_outside_brackets(rest.text, ends) } else { None };
        let anywhere = || with_rests(rest.text).find(|&(_, character, after)| ends(character, after));
        let is_unbracketed = tokens.len() != PLACE || !is_closed(rest.text);
        let end = bracketed.or_else(|| anywhere().filter(|_| is_unbracketed).map(|(position, ..)| position));
        let (token, after) = rest.split_at(end.unwrap_or(rest.text.len()));
        fallible::push(&mut tokens, token)?;
        rest = after;
    }
}

/// Whether `text`, which follows a `#`, begins with the number of a function.
fn starts_number(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns each character of `text`, with its byte position before it and the rest of the text after it.
fn with_rests(text: &str) -> impl Iterator<Item = (usize, char, &str)> {
    text.char_indices().map(|(position, character)| (position, character, &text[position + character.len_utf8()..]))
}

/// Whether all brackets in `text` are closed.
pub(crate) fn is_closed(text: &str) -> bool {
    let mut nesting = Nesting::START;
    with_rests(text).fold(true, |_, (_, character, rest)| nesting.outside(character, rest))
}

/// Returns the byte position of the first character outside brackets for which `wanted` holds. `wanted` also gets the
/// rest of the text after the character.
pub(crate) fn find_outside_brackets(text: &str, wanted: impl Fn(char, &str) -> bool) -> Option<usize> {
    let mut nesting = Nesting::START;
    let mut outside = with_rests(text).filter(|&(_, character, rest)| nesting.outside(character, rest));
    outside.find(|&(_, character, rest)| wanted(character, rest)).map(|(position, ..)| position)
}

/// Returns the position of the first `:` after a path: one that is neither half of a `::` nor in braces, as that of
/// `f::{shim:vtable#0}` is.
#[must_use]
pub fn single_colon(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = text.rfind('}').unwrap_or(0);
    while let Some(byte) = bytes.get(at) {
        match (byte, bytes.get(at + 1)) {
            (b':', Some(b':')) => at += 2,
            (b':', _) => return Some(at),
            _ => at += 1,
        }
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<&str> {
        tokens(line).unwrap().iter().map(|token| token.text).collect()
    }

    #[test]
    fn white_space_separates_outside_brackets_only() {
        assert_eq!(texts("  p:x  f\t%x0 "), ["p:x", "f", "%x0"]);
        assert_eq!(texts("p <a::T as b::U<c, d>>::f x=%x0"), ["p", "<a::T as b::U<c, d>>::f", "x=%x0"]);
        assert_eq!(texts("p f::<[u8; 4]> %x0"), ["p", "f::<[u8; 4]>", "%x0"]);
        assert_eq!(texts("p <fn(u8) -> u8 as T>::f %x0"), ["p", "<fn(u8) -> u8 as T>::f", "%x0"]);
        assert_eq!(texts("p f::<'>'>::g::<'\\'', '('> %x0"), ["p", "f::<'>'>::g::<'\\'', '('>", "%x0"]);
        assert_eq!(texts("p f::<'\\u{10FFFF}'>::<'>'> %x0"), ["p", "f::<'\\u{10FFFF}'>::<'>'>", "%x0"]);
        assert_eq!(texts("p f[5'\\ a] %x0'"), ["p", "f[5'\\ a]", "%x0'"]);
        assert_eq!(texts("p <&'a T as U<'b, 'c>>::f %x0"), ["p", "<&'a T as U<'b, 'c>>::f", "%x0"]);
        assert_eq!(texts(""), Vec::<&str>::new());
    }

    #[test]
    fn brackets_join_in_the_place_alone() {
        assert_eq!(texts("p f +0(%x0 %x1)"), ["p", "f", "+0(%x0", "%x1)"]);
        assert_eq!(texts("p f::<u8 %x0"), ["p", "f::<u8", "%x0"]);
    }

    #[test]
    fn a_number_sign_outside_brackets_begins_a_comment() {
        assert_eq!(texts("p f::{closure#0} # why"), ["p", "f::{closure#0}"]);
        assert_eq!(texts("p f#why"), ["p", "f"]);
        assert_eq!(texts("p f %x0#why"), ["p", "f", "%x0"]);
        assert_eq!(texts("# why"), Vec::<&str>::new());
        assert_eq!(texts("p f::{closure#0}#why %x0"), ["p", "f::{closure#0}"]);
        assert_eq!(texts("p f #2 %x0"), ["p", "f"]);
    }

    #[test]
    fn a_number_sign_with_a_number_is_within_a_name() {
        assert_eq!(texts("p:x f#1 %x0"), ["p:x", "f#1", "%x0"]);
        assert_eq!(texts("p f::<u8>#12+4 @g#2-8:u8 # why"), ["p", "f::<u8>#12+4", "@g#2-8:u8"]);
        assert_eq!(texts("r f::{closure#0}#1%return#why"), ["r", "f::{closure#0}#1%return"]);
        assert_eq!(texts("p f::<u8#2 %x0"), ["p", "f::<u8#2", "%x0"]);
    }

    #[test]
    fn columns_count_characters() {
        let columns: Vec<usize> = tokens("é p\u{a0}ff  g").unwrap().iter().map(|token| token.column).collect();
        assert_eq!(columns, [0, 2, 4, 8]);
    }

    #[test]
    fn what_is_inside_brackets_is_not_found() {
        assert_eq!(find_outside_brackets("<dyn A + B>::f+0x4", |character, _| character == '+'), Some(14));
        assert_eq!(find_outside_brackets("<dyn A + B>::f", |character, _| character == '+'), None);
    }
}
