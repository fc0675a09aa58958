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
mod rust_place;
mod scarce;
mod series;
mod snippets;
mod stepped;

use fallible::failing::Heap;

pub(crate) use kprobes_random::tried::{is_tried, tried};
pub(crate) use machine::{Bed, Task, load};

#[global_allocator]
static HEAP: Heap = Heap;

/// Returns the number of rounds of a test: `usual` times the factor in the environment variable `PROGRAM_ROUNDS`.
pub(crate) fn rounds(usual: u64) -> u64 {
    let factor = std::env::var("PROGRAM_ROUNDS").ok().and_then(|text| text.parse::<u64>().ok());
    usual * factor.unwrap_or(1)
}
