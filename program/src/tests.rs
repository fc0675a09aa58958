//! Whole programs: the code they compile to, and the output they print for simulated hits.

/// Asserts that two values are equal, if the test [tries](is_tried) this case.
macro_rules! assert_tried {
    ($found:expr, $expected:expr $(,)?) => {
        if crate::tests::is_tried() {
            assert_eq!($found, $expected);
        }
    };
}

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

use std::thread;
use std::time::{Duration, Instant};

use fallible::failing::Heap;

pub(crate) use machine::{Bed, Image, Task};

#[global_allocator]
static HEAP: Heap = Heap;

/// Returns the number of rounds of a test: `usual` times the factor in the environment variable `PROGRAM_ROUNDS`.
pub(crate) fn rounds(usual: u64) -> u64 {
    let factor = std::env::var("PROGRAM_ROUNDS").ok().and_then(|text| text.parse::<u64>().ok());
    usual * factor.unwrap_or(1)
}

/// Returns whether a test tries its next case: always, and in Miri for a tenth of a second after its first case. The
/// clock of Miri counts what it executes, so that each run tries the same cases.
pub(crate) fn is_tried() -> bool {
    const TIME: Duration = Duration::from_millis(100);
    std::thread_local! {
        static FIRST: Instant = {
            // Otherwise the tests would share their time.
            assert_ne!(thread::current().name(), Some("main"), "each test has a thread of its own");
            Instant::now()
        };
    }
    !cfg!(miri) || FIRST.with(Instant::elapsed) < TIME
}

/// Returns the cases that a test [tries](is_tried). The first is always among them.
pub(crate) fn tried<T>(cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    cases.into_iter().enumerate().take_while(|(number, _)| is_tried() || *number == 0).map(|(_, case)| case)
}
