//! Whole programs: what they print for hits that are made up.

mod golden;
mod machine;
mod output;
mod random;

pub(crate) use machine::{Bed, Image, Task};
