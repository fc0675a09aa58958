//! The watchpoints of a program.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use aarch64_kprobes::probe::{AliasableBox, WatchError, Watchpoint};
use fallible::{Arc, OutOfMemory};
use kprobes_program::syntax::Probe;
use spin::Mutex;

use super::Shared;
use super::hit::{ArmedWatchpoint, WATCHED};
use super::resolve::Watched;
use crate::{host, symbol};

/// The ranges of the functions of the image, in ascending order, for hits: a hit looks up nothing else.
#[derive(Debug, Default)]
pub(super) struct Functions(Vec<(u64, u64)>);

impl Functions {
    /// Returns the ranges of all functions.
    pub fn of_image() -> Result<Self, OutOfMemory> {
        let all = symbol::table().into_iter().flat_map(|table| table.iter()).filter(|function| function.size > 0);
        fallible::collect(all.map(|function| (function.address, function.address + function.size))).map(Self)
    }

    /// Returns the ranges.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }
}

/// The watchpoints that a program has, until they end.
#[derive(Debug, Default)]
pub(super) struct Watchpoints {
    active: Mutex<Vec<Watchpoint>>,
    /// The number of calls of [`end`](Self::end) whose watchpoints may still be hit.
    ending: AtomicUsize,
    /// The missed hits of those that have ended.
    missed: AtomicU64,
    /// The addresses at which watchpoints were given up that have ended.
    given_up: Mutex<Vec<usize>>,
}

/// The watchpoints of a running program, which end when this is dropped, with what they use at their hits.
#[derive(Debug)]
pub(super) struct AttachedWatchpoints {
    /// The program, which has the watchpoints.
    shared: Arc<Shared>,
    /// The armed watchpoints, whose addresses the watchpoints have as data. They never move.
    armed: AliasableBox<[ArmedWatchpoint]>,
}

/// What is known at the end of the watchpoints.
#[derive(Debug)]
pub(super) struct Ended {
    /// The number of missed hits.
    pub missed: u64,
    /// The virtual addresses of the exclusive loads at which watchpoints were given up.
    pub given_up: Vec<usize>,
}

/// The reason why a watchpoint cannot be registered.
pub(super) enum WatchpointError {
    /// There is no memory.
    OutOfMemory,
    /// The probe with this number cannot be watched.
    Refused {
        /// The number of the probe in the text.
        probe: usize,
        why: WatchError,
    },
}

impl From<OutOfMemory> for WatchpointError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl AttachedWatchpoints {
    /// Registers disarmed watchpoints for `all`, which run the clauses of `shared`.
    ///
    /// # Errors
    ///
    /// The machine cannot watch one of them, or there is no memory. None is registered then.
    pub fn register(shared: &Arc<Shared>, all: &[Watched]) -> Result<Self, WatchpointError> {
        let armed = |watched: &Watched| ArmedWatchpoint {
            shared: &raw const **shared,
            clause: watched.clause,
            name: watched.name as u64,
            wants_caller: watched.wants_caller,
        };
        let armed = AliasableBox::<[ArmedWatchpoint]>::new(fallible::boxed_slice(all.iter().map(armed))?);
        let mut found = Vec::new();
        for (watched, armed) in all.iter().zip(armed.iter()) {
            let data = core::ptr::from_ref(armed).expose_provenance();
            let builder = Watchpoint::at(watched.address as usize, watched.length as usize, WATCHED).data(data);
            let builder = if watched.loads { builder.loads() } else { builder };
            let builder = if watched.stores { builder.stores() } else { builder };
            let watchpoint =
                builder.register().map_err(|why| WatchpointError::Refused { probe: watched.probe, why })?;
            fallible::push(&mut found, watchpoint)?;
        }
        *shared.watchpoints.active.lock() = found;
        Ok(Self { shared: shared.clone(), armed })
    }

    /// Returns the number of watchpoints that were registered.
    pub fn count(&self) -> usize {
        self.armed.len()
    }

    /// Ends the watchpoints. No handler runs any more when this returns.
    pub fn end(self) -> Ended {
        self.shared.watchpoints.end_all()
    }
}

impl Drop for AttachedWatchpoints {
    fn drop(&mut self) {
        self.shared.watchpoints.end_all();
    }
}

impl Watchpoints {
    /// Arms all of them.
    ///
    /// # Errors
    ///
    /// The machine does not let them. None is armed then.
    pub fn arm(&self) -> Result<(), WatchError> {
        let all = self.active.lock();
        if all.is_empty() { Ok(()) } else { Watchpoint::set_all_enabled(&*all, true) }
    }

    /// Ends those whose first byte is at the virtual address `address`.
    pub fn end(&self, address: usize) {
        loop {
            let ended = {
                let mut all = self.active.lock();
                let found = all.iter().position(|watchpoint| watchpoint.address() == address);
                // Counted under the lock: who finds the watchpoint gone waits until no handler of it runs.
                self.ending.fetch_add(usize::from(found.is_some()), Ordering::Relaxed);
                found.map(|found| all.swap_remove(found))
            };
            let Some(ended) = ended else { return };
            let _ = Watchpoint::set_all_enabled([&ended], false);
            self.missed.fetch_add(ended.missed(), Ordering::Relaxed);
            if let Some(address) = ended.given_up_at() {
                // Without memory, nothing says where it was given up.
                let _ = fallible::push(&mut self.given_up.lock(), address);
            }
            drop(ended);
            self.ending.fetch_sub(1, Ordering::Release);
        }
    }

    /// Ends all of them. No handler runs any more when this returns.
    fn end_all(&self) -> Ended {
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

/// Returns the ranges of the functions, if `names` has a watchpoint.
pub(super) fn functions(names: &[Probe]) -> Result<Functions, OutOfMemory> {
    let watches = names.iter().any(|probe| matches!(probe, Probe::Watch { .. }));
    if watches { Functions::of_image() } else { Ok(Functions::default()) }
}
