//! Data of which every CPU has its own, so that CPUs neither contend for it nor see each other's.
//!
//! An array indexed by the dense CPU number. It gives shared references only: what changes in it is atomic or
//! behind a lock, because another CPU may look (a listing, a wake-up) and because a task that reads its CPU's number
//! with interrupts on may be elsewhere when it uses it.

use crate::{smp, task};

pub use crate::device_tree::MAX_CPUS;

/// One `T` for every CPU.
pub struct PerCpu<T>([T; MAX_CPUS]);

impl<T> PerCpu<T> {
    /// From the values of all CPUs, in the order of their dense numbers.
    pub const fn new(values: [T; MAX_CPUS]) -> Self {
        Self(values)
    }

    /// The value of the CPU with the dense number `cpu`.
    ///
    /// # Panics
    ///
    /// Where there is no CPU of that number.
    pub fn of(&self, cpu: usize) -> &T {
        &self.0[cpu]
    }

    /// The value of the CPU that runs this. It stays that CPU's only as long as interrupts are masked.
    pub fn here(&self) -> &T {
        self.of(task::current_cpu())
    }

    /// The values of all CPUs that may ever run, in the order of their dense numbers.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().take(smp::possible())
    }
}
