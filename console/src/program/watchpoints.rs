//! The watchpoints that a program has, and the functions that their hits look up.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use aarch64_kprobes::probe::{WatchError, Watchpoint};
use fallible::OutOfMemory;
use kprobes_program::syntax::Probe;
use spin::Mutex;

use crate::{host, symbol};

/// The ranges of the functions of the image, in ascending order. A hit looks up its function here.
#[derive(Debug, Default)]
pub(super) struct Functions(Vec<(u64, u64)>);

impl Functions {
    /// Returns the ranges of the functions of the image, or none if `names` has no watchpoint.
    pub fn of(names: &[Probe]) -> Result<Self, OutOfMemory> {
        if !names.iter().any(|probe| matches!(probe, Probe::Watch { .. })) {
            return Ok(Self::default());
        }
        let ranges = symbol::all().map(|(_, function)| (function.address, function.address + function.size));
        fallible::collect(ranges).map(Self)
    }

    /// Returns the ranges.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }
}

/// The watchpoints of a program that have not ended, and what those that ended have missed.
#[derive(Debug, Default)]
pub(super) struct Watchpoints {
    /// The watchpoints that have not ended.
    pub active: Mutex<Vec<Watchpoint>>,
    /// The number of calls of [`end`](Self::end) whose watchpoints may still be hit.
    ending: AtomicUsize,
    /// The number of missed hits of watchpoints that have ended.
    missed: AtomicU64,
    /// The virtual addresses of the exclusive loads at which ended watchpoints were given up.
    given_up: Mutex<Vec<usize>>,
}

/// The result of the watchpoints after their end.
#[derive(Debug)]
pub(super) struct Ended {
    /// The number of missed hits.
    pub missed: u64,
    /// The virtual addresses of the exclusive loads at which watchpoints were given up.
    pub given_up: Vec<usize>,
}

impl Watchpoints {
    /// Enables all watchpoints.
    ///
    /// # Errors
    ///
    /// The machine cannot watch them all. None is enabled then.
    pub fn enable(&self) -> Result<(), WatchError> {
        let all = self.active.lock();
        if all.is_empty() { Ok(()) } else { Watchpoint::set_all_enabled(&*all, true) }
    }

    /// Ends the watchpoints whose first byte is at the virtual address `address`.
    pub fn end(&self, address: usize) {
        loop {
            let ended = {
                let mut all = self.active.lock();
                let found = all.iter().position(|watchpoint| watchpoint.address() == address);
                // Counted under the lock, so that `end_all`, which finds the watchpoint gone, waits until no handler of
                // it runs.
                self.ending.fetch_add(usize::from(found.is_some()), Ordering::Relaxed);
                found.map(|found| all.swap_remove(found))
            };
            let Some(ended) = ended else { return };
            let _ = Watchpoint::set_all_enabled([&ended], false);
            self.missed.fetch_add(ended.missed(), Ordering::Relaxed);
            if let Some(address) = ended.given_up_at() {
                // Without memory, the place where it was given up is not reported.
                let _ = fallible::push(&mut self.given_up.lock(), address);
            }
            drop(ended);
            self.ending.fetch_sub(1, Ordering::Release);
        }
    }

    /// Ends all watchpoints. No handler runs any more when this returns.
    pub fn end_all(&self) -> Ended {
        let all = core::mem::take(&mut *self.active.lock());
        if !all.is_empty() {
            let _ = Watchpoint::set_all_enabled(&all, false);
        }
        // Another task may be ending one of them.
        while self.ending.load(Ordering::Acquire) > 0 {
            host::sleep(Duration::from_millis(1));
        }
        let missed: u64 = all.iter().map(Watchpoint::missed).sum();
        let mut given_up = core::mem::take(&mut *self.given_up.lock());
        let _ = fallible::collect(all.iter().filter_map(Watchpoint::given_up_at))
            .and_then(|others| fallible::extend(&mut given_up, others));
        Ended { missed: missed + self.missed.swap(0, Ordering::Relaxed), given_up }
    }
}
