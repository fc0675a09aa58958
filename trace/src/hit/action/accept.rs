//! Filters at a hit: the tests of a filter are evaluated here.

use super::{Moment, load};
use crate::filter::{ACCEPT, Pattern, Question, Test, WordQuestion};
use crate::hit::Registers;

/// Whether the tests accept the record. A test of a value that could not be read is false.
#[inline]
pub(super) fn accepts(tests: &[Test], record: &[u8], moment: &Moment<'_>) -> bool {
    walk(tests, |question| match question {
        Question::Number { number, range } => {
            load::number(*number, record, moment).is_some_and(|number| range.has(number))
        }
        Question::Text { text, pattern } => {
            load::text(*text, record, moment).is_some_and(|text| matches(pattern, text))
        }
    })
}

/// Whether tests of words accept the hit, from its registers alone. A word that cannot be read counts as 0, as in the
/// record.
#[inline(always)]
pub(super) fn accepts_words(tests: &[Test<WordQuestion>], registers: Registers<'_>) -> bool {
    walk(tests, |question| question.range.has(registers.fetch(&question.word).unwrap_or(0)))
}

/// Whether the tests, from the first on, lead to [`ACCEPT`]. Each test leads to a later one, so there are at most as
/// many steps as tests.
#[inline(always)]
fn walk<Q>(tests: &[Test<Q>], answer: impl Fn(&Q) -> bool) -> bool {
    let mut next = 0;
    while let Some(test) = tests.get(usize::from(next)) {
        next = if answer(&test.question) { test.yes } else { test.no };
    }
    next == ACCEPT
}

fn matches(pattern: &Pattern, text: &[u8]) -> bool {
    let found = if pattern.is_glob { glob(&pattern.bytes, text) } else { same(&pattern.bytes, text) };
    found != pattern.negated
}

/// Compares byte by byte: a comparison of slices would be a call out of the region.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one == other)
}

/// Whether `pattern` matches the whole `text`. On a mismatch, the last `*` takes one more byte. The number of steps is
/// at most the product of the two lengths, which are both bounded.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match (pattern.get(at), text.get(from)) {
            (Some(b'*'), _) => {
                star = Some((at, from));
                at += 1;
                continue;
            }
            (None, None) => return true,
            (Some(_), Some(&byte)) => element(pattern, at, byte),
            _ => None,
        };
        match (step, star) {
            (Some(length), _) => (at, from) = (at + length, from + 1),
            (None, Some((place, taken))) if taken < text.len() => {
                star = Some((place, taken + 1));
                (at, from) = (place + 1, taken + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Returns the length of the element of `pattern` at `at`, if the element matches `byte`.
fn element(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(1),
        b'[' => match class(pattern, at, byte) {
            Some((length, found)) => found.then_some(length),
            // A `[` without a `]` stands for itself.
            None => (byte == b'[').then_some(1),
        },
        b'\\' if at + 1 < pattern.len() => (pattern.get(at + 1) == Some(&byte)).then_some(2),
        own => (own == byte).then_some(1),
    }
}

/// Returns the length of the class that begins at `at`, and whether `byte` is in it. `None` if the class is not closed.
fn class(pattern: &[u8], at: usize, byte: u8) -> Option<(usize, bool)> {
    let negated = pattern.get(at + 1) == Some(&b'!');
    let start = at + 1 + usize::from(negated);
    let (mut place, mut found) = (start, false);
    loop {
        let low = *pattern.get(place)?;
        if low == b']' && place > start {
            return Some((place + 1 - at, found != negated));
        }
        let range = match (pattern.get(place + 1), pattern.get(place + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => Some(high),
            _ => None,
        };
        found |= low <= byte && byte <= range.unwrap_or(low);
        place += if range.is_some() { 3 } else { 1 };
    }
}
