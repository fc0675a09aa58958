//! The handle of a registered probe of any kind: reads its counts, enables it and disables it.

use alloc::vec::Vec;
use core::mem;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;

use fallible::OutOfMemory;

use super::hit::disarm;
use super::hit::point::{Probe, ProbeRef};
use super::registry::Request;
use super::{ProbeError, registry};

/// A registered probe. Dropping it unregisters the probe, and panics with interrupts masked.
#[derive(Debug)]
pub struct Registration {
    pub(super) address: usize,
    pub(super) probe: ProbeRef,
    pub(super) state: State,
}

/// Whether a [`Registration`] has to unregister its probe when it is dropped. As wide as a word, so that it is moved as
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum State {
    Registered,
    /// Not registered after all, because there was no memory to arm the instruction.
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

    /// Registers many probes at once. Each request comes with its address. The results are in the order of the
    /// requests; a request that is an error gives that error.
    ///
    /// # Errors
    ///
    /// [`ProbeError::OutOfMemory`] if there is no memory for the lists of probes; nothing has changed then.
    pub(super) fn all<T>(
        requests: impl Iterator<Item = (usize, Result<Request, ProbeError>)>,
        probe: impl Fn(Self) -> T,
    ) -> Result<Vec<Result<T, ProbeError>>, ProbeError> {
        let (mut listed, mut probes) = (Vec::new(), Vec::new());
        let least = requests.size_hint().0;
        let mut requests = requests.peekable();
        let first = requests.peek().map_or(0, |(address, _)| *address);
        for (address, request) in requests {
            if listed.len() == listed.capacity() {
                // Room for the lower bound at first, then for at least as many again.
                listed.try_reserve(least.max(1)).map_err(|_| ProbeError::OutOfMemory { address })?;
            }
            listed.push(request);
        }
        probes.try_reserve_exact(listed.len()).map_err(|_| ProbeError::OutOfMemory { address: first })?;
        let results = registry::register(listed)?.into_iter();
        probes.extend(results.map(|result| result.map(&probe)));
        Ok(probes)
    }

    /// Unregisters many probes, all at once as far as there is memory for a list of them. Returns the total of the hits
    /// that they have missed, up to the last one.
    pub(super) fn unregister_all(registrations: impl IntoIterator<Item = Self>) -> u64 {
        let mut registrations = registrations.into_iter().fuse();
        let (mut listed, mut missed) = (Vec::new(), 0);
        // All at once, if the number is known: until the instructions are disarmed, each step here may be a hit.
        let _ = listed.try_reserve_exact(registrations.size_hint().0);
        disarm::collect(&mut registrations, &mut listed);
        for registration in registrations {
            if listed.try_reserve(1).is_ok() {
                listed.push(registration);
            } else {
                missed += registry::unregister(slice::from_ref(&registration));
                mem::forget(registration);
            }
        }
        missed += registry::unregister(&listed);
        // SAFETY: the length is not above the capacity. The items are not dropped, because they are unregistered.
        unsafe { listed.set_len(0) };
        missed
    }

    /// Returns the virtual address of the probed instruction; for a return probe, that of the function.
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }

    /// Returns the number of hits that the probe has reported; for a return probe, the number of calls that it has
    /// followed to their return.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.probe.hits()
    }

    /// Returns the number of hits that the probe could not report, because handlers were running on the same CPU, or
    /// because another probe on the instruction sent execution elsewhere.
    ///
    /// A return probe also misses calls for which no instance was free, calls whose task exited before they returned,
    /// and returns whose stack pointer belongs to no call. A call for which no instance was free counts once more if
    /// the first instruction of the function faults, and the kernel repairs the fault.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.probe.counters.missed()
    }

    /// Returns the number of calls in progress that a return probe follows. [`hits`](Self::hits) and
    /// [`missed`](Self::missed), if read after this, include the returns of all other calls.
    ///
    /// While the probe is enabled, calls begin and end during the count, so the result may never have been right at any
    /// one time. Within an entry handler, its own call counts, too.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.probe.active()
    }

    /// Returns whether the probe is enabled.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.probe.enabled.load(Relaxed)
    }

    /// Enables the probe: its instruction is armed when this returns.
    ///
    /// # Errors
    ///
    /// [`ProbeError::InterruptsMasked`] or [`ProbeError::OutOfMemory`], or [`ProbeError::Embedding`] if the kernel's
    /// executable memory is unfit; nothing has changed then.
    pub fn enable(&self) -> Result<(), ProbeError> {
        registry::set_enabled(&[self], true)
    }

    /// Disables the probe. When this returns, none of its handlers is running; but a return probe still reports the
    /// returns of calls in progress. If no other probe at the address is enabled, the instruction is restored, and
    /// costs no more than without probes.
    ///
    /// # Errors
    ///
    /// [`ProbeError::InterruptsMasked`]; nothing has changed then. Disabling needs no memory.
    pub fn disable(&self) -> Result<(), ProbeError> {
        registry::set_enabled(&[self], false)
    }
}

impl Registration {
    /// Disables this probe and enables `after`. If both are on the same instruction, this is one step: each hit belongs
    /// to one of the two. Hits under way may belong to neither if `after` needs more than this probe does, as a
    /// post-handler or an entry handler. If they are on different instructions, `after` is enabled first. When this
    /// returns, no handler of this probe is running.
    ///
    /// # Errors
    ///
    /// [`ProbeError::InterruptsMasked`] or [`ProbeError::OutOfMemory`], or [`ProbeError::Embedding`] if the kernel's
    /// executable memory is unfit; nothing has changed then.
    pub fn exchange(&self, after: &Self) -> Result<(), ProbeError> {
        registry::exchange(self, after)
    }

    /// Enables or disables many probes at once, as [`enable`](Self::enable) and [`disable`](Self::disable) do for one.
    ///
    /// # Errors
    ///
    /// Those of [`enable`](Self::enable); [`ProbeError::OutOfMemory`] also if there is no memory for the list of
    /// probes. Nothing has changed then.
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
    /// Returns the number of hits that the probe has reported, by its snippet or by its handler.
    pub(super) fn hits(&self) -> u64 {
        self.counters.hits() + self.inserted.as_ref().map_or(0, |inserted| inserted.counters.hits())
    }
}

impl Drop for Registration {
    /// Unregisters the probe.
    ///
    /// # Panics
    ///
    /// If interrupts are masked. The panic does not unwind, because the owner would then drop what the handlers use.
    fn drop(&mut self) {
        if self.state == State::Registered {
            let _ = registry::unregister(slice::from_ref(self));
        }
    }
}
