//! Whole programs: what they become, and what they print for hits that are made up.

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
