//! Whole programs: what they print for hits that are made up.

mod golden;
mod machine;
mod output;
mod random;
mod scarce;

pub(crate) use machine::{Bed, Image, Task};
