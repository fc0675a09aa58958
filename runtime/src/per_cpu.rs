//! Data that every CPU has a copy of, so that CPUs neither contend for it nor see each other's.
//!
//! A [`PerCpu`] is an array indexed by the dense CPU number. It gives out shared references only, so mutable parts are
//! atomic or behind a lock. There are two reasons. Another CPU may look at the value, for a listing or a wake-up. And a
//! task that reads the number of its CPU with interrupts unmasked may run on another CPU by the time it uses the
//! number.

use crate::{smp, task};

pub use device_tree::MAX_CPUS;

/// One `T` for every CPU.
pub struct PerCpu<T>([T; MAX_CPUS]);

impl<T> PerCpu<T> {
    /// Wraps the values of all CPUs, which are in the order of their dense numbers.
    pub const fn new(values: [T; MAX_CPUS]) -> Self {
        Self(values)
    }

    /// Returns the value of the CPU with the dense number `cpu`.
    ///
    /// # Panics
    ///
    /// Panics if `cpu` is [`MAX_CPUS`] or more.
    pub fn of(&self, cpu: usize) -> &T {
        &self.0[cpu]
    }

    /// Returns the value of the CPU that runs this code. The caller stays on that CPU only as long as interrupts or
    /// preemption are masked.
    pub fn here(&self) -> &T {
        self.of(task::current_cpu())
    }

    /// Iterates over the values of all CPUs that may ever run, in the order of their dense numbers.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().take(smp::possible())
    }
}
