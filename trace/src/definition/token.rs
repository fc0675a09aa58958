//! Cuts a definition into tokens.
//!
//! Linux separates the parts of a definition by white space, which is all that C symbols need. Demangled Rust
//! paths contain white space themselves, but only inside brackets: `<T as Trait>::name`, `name::<[u8; 4]>`,
//! `name::<fn(u8) -> u8>`. White space inside brackets therefore does not separate, so that whatever a symbol
//! table prints can be typed back unchanged.

use alloc::vec::Vec;

use super::{Error, Problem};

/// A part of a line, and the column at which it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// The characters of the part.
    pub text: &'a str,
    /// How many characters of the line precede it.
    pub column: usize,
}

impl<'a> Token<'a> {
    /// Cuts at the byte position `at`, which must lie between two characters.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let (left, right) = self.text.split_at(at);
        let column = self.column + left.chars().count();
        (Self { text: left, ..self }, Self { text: right, column })
    }

    /// Cuts at the first `separator`, which belongs to neither side.
    pub fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let (left, rest) = self.split_at(self.text.find(separator)?);
        Some((left, rest.skip(1)))
    }

    /// What remains after the first `count` characters, which must be ASCII.
    pub fn skip(self, count: usize) -> Self {
        self.split_at(count).1
    }

    /// The error that this token is the cause of.
    pub fn error(self, problem: Problem) -> Error {
        Error { problem, column: self.column }
    }
}

/// Follows brackets from character to character.
#[derive(Default)]
struct Brackets {
    depth: usize,
    previous: char,
    /// Characters of a character literal that are still to come: `'('` and `'\''` open and close nothing.
    literal: usize,
}

impl Brackets {
    /// Takes the next character, with what follows it, and returns whether it lies outside all brackets.
    fn outside(&mut self, character: char, rest: &str) -> bool {
        let arrow = self.previous == '-';
        self.previous = character;
        if self.literal > 0 {
            self.literal -= 1;
            return self.depth == 0;
        }
        match character {
            '<' | '(' | '[' | '{' => self.depth += 1,
            '>' if arrow => {}
            '>' | ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            '\'' => self.literal = literal_length(rest),
            _ => {}
        }
        self.depth == 0
    }
}

/// The characters that still belong to the character literal whose opening quote precedes `rest`; 0 if the
/// quote begins a lifetime.
fn literal_length(rest: &str) -> usize {
    let mut characters = rest.chars();
    match characters.next() {
        Some('\\') => match characters.skip(1).position(|character| character == '\'') {
            Some(position) => position + 3,
            None => 0,
        },
        Some(_) if characters.next() == Some('\'') => 2,
        _ => 0,
    }
}

/// The tokens of `line` up to a comment, which a `#` outside brackets begins.
pub(crate) fn tokens(line: &str) -> Result<Vec<Token<'_>>, Error> {
    let mut tokens = Vec::new();
    let mut brackets = Brackets::default();
    let mut start: Option<(usize, usize)> = None;
    let mut opened = 0;
    let mut end = line.len();
    for (column, (position, character)) in line.char_indices().enumerate() {
        let rest = &line[position + character.len_utf8()..];
        let was_outside = brackets.depth == 0;
        let outside = brackets.outside(character, rest);
        if was_outside && !outside {
            opened = column;
        }
        if outside && character == '#' {
            end = position;
            break;
        }
        if outside && character.is_whitespace() {
            if let Some((from, column)) = start.take() {
                tokens.push(Token { text: &line[from..position], column });
            }
        } else if start.is_none() {
            start = Some((position, column));
        }
    }
    if brackets.depth > 0 {
        return Err(Error { problem: Problem::Unclosed, column: opened });
    }
    if let Some((from, column)) = start.filter(|&(from, _)| from < end) {
        tokens.push(Token { text: &line[from..end], column });
    }
    Ok(tokens)
}

/// The byte position of the first `wanted` outside brackets in `text`.
pub(crate) fn find_outside(text: &str, wanted: char) -> Option<usize> {
    let mut brackets = Brackets::default();
    text.char_indices().find_map(|(position, character)| {
        let outside = brackets.outside(character, &text[position + character.len_utf8()..]);
        (outside && character == wanted).then_some(position)
    })
}

#[cfg(test)]
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
        assert_eq!(texts("p <&'a T as U<'b, 'c>>::f %x0"), ["p", "<&'a T as U<'b, 'c>>::f", "%x0"]);
        assert_eq!(texts(""), Vec::<&str>::new());
    }

    #[test]
    fn a_number_sign_outside_brackets_begins_a_comment() {
        assert_eq!(texts("p f::{closure#0} # why"), ["p", "f::{closure#0}"]);
        assert_eq!(texts("p f#why"), ["p", "f"]);
        assert_eq!(texts("# why"), Vec::<&str>::new());
    }

    #[test]
    fn columns_count_characters() {
        let columns: Vec<usize> = tokens("é p\u{a0}ff  g").unwrap().iter().map(|token| token.column).collect();
        assert_eq!(columns, [0, 2, 4, 8]);
    }

    #[test]
    fn an_open_bracket_is_pointed_at() {
        assert_eq!(tokens("p:x f::<u8 %x0"), Err(Error { problem: Problem::Unclosed, column: 7 }));
    }

    #[test]
    fn what_is_inside_brackets_is_not_found() {
        assert_eq!(find_outside("<dyn A + B>::f+0x4", '+'), Some(14));
        assert_eq!(find_outside("<dyn A + B>::f", '+'), None);
    }
}
