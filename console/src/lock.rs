//! A lock for tasks: who waits for it lets others run.

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

/// A value that one task at a time has.
pub type Lock<T> = SpinMutex<T, Yield>;
