//! Whole programs: the code they compile to, and the output they print for simulated hits.

mod compiled;
mod flow;
mod foreign;
mod golden;
mod json;
mod kinds;
mod machine;
mod macros;
mod output;
mod parameters;
mod random;
mod scarce;
mod series;
mod snippets;
mod stepped;
mod typed;

use fallible::failing::Heap;

pub(crate) use machine::{Bed, Image, Task};

#[global_allocator]
static HEAP: Heap = Heap;

/// Returns the number of rounds of a test: `usual` times the factor in the environment variable `PROGRAM_ROUNDS`. Miri
/// runs a 500th of `usual`.
pub(crate) fn rounds(usual: u64) -> u64 {
    let factor = std::env::var("PROGRAM_ROUNDS").ok().and_then(|text| text.parse::<u64>().ok());
    if cfg!(miri) { usual / 500 } else { usual * factor.unwrap_or(1) }
}

/// Returns the cases that a test tries: all of them, and in Miri the first and every fourth after it.
pub(crate) fn tried<T>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    cases.into_iter().step_by(if cfg!(miri) { 4 } else { 1 })
}

/// Returns whether an assertion that is called for many programs tries this one: in Miri, one in four.
pub(crate) fn is_tried(program: &str) -> bool {
    !cfg!(miri) || program.bytes().map(u32::from).sum::<u32>().is_multiple_of(4)
}
