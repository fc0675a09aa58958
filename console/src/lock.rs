//! A lock for tasks. A waiting task lets other tasks run.

use aarch64_kprobes::platform;
use spin::RelaxStrategy;
use spin::mutex::SpinMutex;

/// Lets other tasks run.
pub struct Yield;

impl RelaxStrategy for Yield {
    fn relax() {
        platform::yield_now();
    }
}

/// A value that one task at a time can access.
pub type Lock<T> = SpinMutex<T, Yield>;
