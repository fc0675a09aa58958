//! Measures pieces of work, without the time that measuring takes.

use alloc::vec::Vec;

use crate::clock::Clock;
use crate::target;

/// The number of measurements of the stopwatch's own overhead.
const TIMES: usize = 11;

/// Measures pieces of work.
pub struct Stopwatch {
    clock: Clock,
    /// The ticks that an empty measurement takes.
    overhead: u64,
    ticks: u64,
}

impl Stopwatch {
    /// Makes a stopwatch, and measures its own overhead.
    pub fn new(clock: Clock) -> Self {
        let mut stopwatch = Self::without_overhead(clock);
        stopwatch.overhead = median((0..TIMES).map(|_| {
            stopwatch.time(|| ());
            stopwatch.ticks
        }));
        stopwatch
    }

    /// Makes a stopwatch that does not subtract its own overhead.
    pub const fn without_overhead(clock: Clock) -> Self {
        Self { clock, overhead: 0, ticks: 0 }
    }

    /// Returns the ticks that the last work took.
    pub const fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Does `work`, and records the ticks that it took.
    #[inline(never)]
    pub fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let start = self.clock.now();
        let result = target::between_marks(work);
        self.ticks = (self.clock.now() - start).saturating_sub(self.overhead);
        result
    }
}

/// Returns the median.
pub fn median(samples: impl Iterator<Item = u64>) -> u64 {
    let mut samples: Vec<u64> = samples.collect();
    samples.sort_unstable();
    samples[samples.len() / 2]
}
