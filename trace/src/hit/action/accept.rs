//! Filters at a hit: the tests of a filter are evaluated here.

use kprobes_symbols::glob_match_units;

use super::{HitState, load};
use crate::filter::{ACCEPT, Pattern, Question, RegisterQuestion, Test};
use crate::hit::Registers;

/// Whether the tests accept the record. A test of a value that could not be read is false.
#[inline]
pub(super) fn accepts(tests: &[Test], record: &[u8], state: &HitState<'_>) -> bool {
    walk(tests, |question| match question {
        Question::Number { number, range } => {
            load::number(*number, record, state).is_some_and(|number| range.has(number))
        }
        Question::Text { text, pattern } => load::text(*text, record, state).is_some_and(|text| matches(pattern, text)),
    })
}

/// Whether tests of registers accept the hit.
#[inline(always)]
pub(super) fn accepts_registers(tests: &[Test<RegisterQuestion>], registers: Registers<'_>) -> bool {
    walk(tests, |question| question.range.has(registers.part(question.part)))
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

/// Whether `pattern` matches the whole `text`. Both lengths are bounded, and so is the number of steps: for each place
/// in the text those of one pass over the pattern, in which a `[` looks for its `]`.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    glob_match_units::<true, u8>(pattern.iter().copied(), text.iter().copied())
}
