//! The profile of functions: how often each was called, and how long its calls took.

use aarch64_kprobes::probe::AliasableBox;
use fallible::OutOfMemory;
use kprobes_trace::tracer::Traced;
use kprobes_trace::tracer::profile::Counts;

use super::Tracing;
use crate::host::cpus;

/// The counts of functions, with the probes that count.
#[derive(Debug)]
pub(super) struct Profile {
    /// Dropped before the counts, which its handlers add to.
    pub(super) traced: Option<Traced>,
    counts: AliasableBox<[Counts]>,
}

impl Tracing {
    /// Returns the counts of functions. There are none before the first profile.
    pub(crate) fn counts(&self) -> &[Counts] {
        self.profile.as_ref().map_or(&[], |profile| &profile.counts)
    }

    /// Returns whether functions are counted.
    pub(crate) fn is_profiling(&self) -> bool {
        self.profile.as_ref().is_some_and(|profile| profile.traced.is_some())
    }

    /// Begins a new profile, or ends it. The counts stay.
    ///
    /// # Errors
    ///
    /// There is no memory: nothing has changed.
    pub(crate) fn set_profiling(&mut self, on: bool) -> Result<(), OutOfMemory> {
        match (on, self.is_profiling()) {
            (true, false) => {
                let counts = Counts::of(&self.settings.functions()?, cpus())?;
                let counts = AliasableBox::<[Counts]>::new(counts);
                // SAFETY: `Profile` drops the counts after the probes, and they stay in their box.
                let traced = unsafe { Traced::profile(&counts)? };
                traced.set_enabled(true)?;
                self.profile = Some(Profile { traced: Some(traced), counts });
            }
            (false, true) => {
                if let Some(profile) = &mut self.profile {
                    profile.traced = None;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
