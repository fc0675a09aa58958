//! Registers the watchpoints of a program.

use alloc::vec::Vec;

use aarch64_kprobes::probe::{AliasableBox, WatchError, Watchpoint};
use fallible::{Arc, OutOfMemory};

use super::hit::{ArmedWatchpoint, WATCHED};
use super::places::Watched;
use super::shared::Shared;
use super::watchpoints::Ended;

/// The watchpoints of a running program, with the memory that their hits use. They end when this is dropped.
#[derive(Debug)]
pub(super) struct AttachedWatchpoints {
    /// The program, whose state has the watchpoints.
    shared: Arc<Shared>,
    /// The armed watchpoints, whose addresses the watchpoints have as data. They never move.
    armed: AliasableBox<[ArmedWatchpoint]>,
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
    /// Registers disabled watchpoints for `all`, which run the clauses of `shared`.
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

    /// Returns the number of watchpoints of clause `clause` that were registered.
    pub fn places_of(&self, clause: usize) -> usize {
        self.armed.iter().filter(|armed| armed.clause == clause).count()
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
