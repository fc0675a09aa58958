//! Whole programs: the code they compile to, and the output they print for simulated hits.

mod compiled;
mod foreign;
mod golden;
mod json;
mod machine;
mod output;
mod random;
mod scarce;
mod snippets;
mod stepped;
mod typed;

use fallible::failing::Heap;

pub(crate) use machine::{Bed, Image, Task};

#[global_allocator]
static HEAP: Heap = Heap;
