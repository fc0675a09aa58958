//! The clock that records are printed with.

/// The conversion of counter ticks to times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Ticks per second; not 0.
    pub frequency: u64,
    /// The value of the counter at time 0.
    pub origin: u64,
}

impl Clock {
    /// Returns the nanoseconds from time 0 to `ticks`.
    #[must_use]
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        let elapsed = u128::from(ticks.saturating_sub(self.origin));
        (elapsed * 1_000_000_000 / u128::from(self.frequency.max(1))) as u64
    }

    /// Returns the microseconds from time 0 to `ticks`, rounded as in Linux's `ns2usecs`.
    #[must_use]
    pub fn microseconds(self, ticks: u64) -> u64 {
        self.nanoseconds(ticks).saturating_add(500) / 1000
    }
}
