//! The handle of a registered probe of any kind: its counts, and arming and disarming it.

use alloc::vec::Vec;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;

use fallible::OutOfMemory;

use super::hit::disarm;
use super::hit::point::{Probe, ProbeRef};
use super::registry::Request;
use super::{ProbeError, registry};

/// A probe that is registered for as long as this exists.
#[derive(Debug)]
pub struct Registration {
    pub(super) address: usize,
    pub(super) probe: ProbeRef,
    pub(super) state: State,
}

/// Whether there is something to be done when a [`Registration`] is dropped. A word, so that it is moved as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum State {
    Registered,
    /// It has been unregistered together with others.
    Unregistered,
}

impl Registration {
    /// Registers one probe.
    pub(super) fn one(request: Request) -> Result<Self, ProbeError> {
        let address = request.address;
        let requests = fallible::collect([Ok(request)]).map_err(|OutOfMemory| ProbeError::OutOfMemory { address })?;
        let outcome = registry::register(requests)?.pop();
        outcome.unwrap_or(Err(ProbeError::OutOfMemory { address }))
    }

    /// Registers many probes, each asked for at an address, at once. The results are in the order of the requests, and for those
    /// that are errors, these.
    ///
    /// # Errors
    ///
    /// [`ProbeError::OutOfMemory`], about the lists of them; nothing has changed then.
    pub(super) fn all<T>(
        requests: impl Iterator<Item = (usize, Result<Request, ProbeError>)>,
        probe: impl Fn(Self) -> T,
    ) -> Result<Vec<Result<T, ProbeError>>, ProbeError> {
        let (mut listed, mut probes) = (Vec::new(), Vec::new());
        let (mut first, least) = (0, requests.size_hint().0);
        for (address, request) in requests {
            let more = if listed.is_empty() { least.max(1) } else { 1 };
            listed.try_reserve(more).map_err(|_| ProbeError::OutOfMemory { address })?;
            if listed.is_empty() {
                first = address;
            }
            listed.push(request);
        }
        probes.try_reserve_exact(listed.len()).map_err(|_| ProbeError::OutOfMemory { address: first })?;
        let results = registry::register(listed)?.into_iter();
        probes.extend(results.map(|result| result.map(&probe)));
        Ok(probes)
    }

    /// Unregisters many probes: at once, as far as there is memory for a list of them. Returns how many hits they have missed, up
    /// to the last.
    pub(super) fn unregister_all(registrations: impl IntoIterator<Item = Self>) -> u64 {
        let mut registrations = registrations.into_iter().fuse();
        let (mut listed, mut missed) = (Vec::new(), 0);
        // All at once, if it can be told: until they are disarmed, each step of this may be a hit.
        let _ = listed.try_reserve_exact(registrations.size_hint().0);
        disarm::collect(&mut registrations, &mut listed);
        for mut registration in registrations {
            if listed.try_reserve(1).is_ok() {
                listed.push(registration);
            } else {
                missed += registry::unregister(slice::from_mut(&mut registration));
            }
        }
        missed + registry::unregister(&mut listed)
    }

    /// The virtual address of the probed instruction; of a return probe, that of the function.
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }

    /// How many hits the probe has been told of; of a return probe, how many calls it has followed to their return.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.probe.hits()
    }

    /// How many hits the probe has not been told of: they happened while handlers ran on the same CPU, or
    /// another probe there took execution elsewhere. A return probe also misses calls for which no instance was free,
    /// those whose task exited before they returned, and returns whose stack pointer is that of no call.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.probe.counters.missed()
    }

    /// How many calls of a return-probed function are in progress. The returns of the others are in what
    /// [`hits`](Self::hits) and [`missed`](Self::missed) say after this.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.probe.active()
    }

    /// Whether the probe is armed.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.probe.enabled.load(Relaxed)
    }

    /// Arms the probe.
    ///
    /// # Errors
    ///
    /// [`ProbeError::InterruptsMasked`] and [`ProbeError::OutOfMemory`]; nothing has changed then.
    pub fn enable(&self) -> Result<(), ProbeError> {
        registry::set_enabled(&[self], true)
    }

    /// Disarms the probe. When this returns, no handler of it is running; but a return probe still reports the returns
    /// of calls in progress. If it was the last probe at its address, the instruction is back in place, and costs what
    /// it costs without probes.
    ///
    /// # Errors
    ///
    /// [`ProbeError::InterruptsMasked`]; nothing has changed then. It takes no memory.
    pub fn disable(&self) -> Result<(), ProbeError> {
        registry::set_enabled(&[self], false)
    }
}

impl Registration {
    /// Disarms this probe and arms `after`, which is at the same instruction: each hit is one of this or one of the other. When
    /// this returns, no handler of this is running.
    ///
    /// # Errors
    ///
    /// [`ProbeError::InterruptsMasked`] and [`ProbeError::OutOfMemory`]; nothing has changed then.
    pub fn exchange(&self, after: &Self) -> Result<(), ProbeError> {
        registry::exchange(self, after)
    }

    /// Arms or disarms many probes at once, as [`enable`](Self::enable) and [`disable`](Self::disable) do one.
    ///
    /// # Errors
    ///
    /// [`ProbeError::InterruptsMasked`] and [`ProbeError::OutOfMemory`], which may also be about the list of them; nothing has
    /// changed then.
    pub fn set_all_enabled<'a>(
        registrations: impl IntoIterator<Item = &'a Self>,
        enabled: bool,
    ) -> Result<(), ProbeError> {
        let mut registrations = registrations.into_iter().fuse();
        let mut probes = Vec::new();
        let _ = probes.try_reserve_exact(registrations.size_hint().0);
        disarm::collect(&mut registrations, &mut probes);
        for registration in registrations {
            let address = registration.address;
            fallible::push(&mut probes, registration).map_err(|OutOfMemory| ProbeError::OutOfMemory { address })?;
        }
        registry::set_enabled(&probes, enabled)
    }
}

impl Probe {
    /// How many hits it has been told of, in its stub or by its handler.
    pub(super) fn hits(&self) -> u64 {
        self.counters.hits() + self.inserted.as_ref().map_or(0, |inserted| inserted.counters.hits())
    }
}

impl Drop for Registration {
    /// Unregisters the probe.
    ///
    /// # Panics
    ///
    /// If interrupts are masked.
    fn drop(&mut self) {
        if self.state == State::Registered {
            let _ = registry::unregister(slice::from_mut(self));
        }
    }
}
