//! What a probe that is registered can be asked and told, whatever its kind.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use super::hit::point::{Kind, Probe};
use super::{ProbeError, registry};

/// A probe that is registered for as long as this exists.
#[derive(Debug)]
pub struct Registration {
    address: usize,
    probe: Arc<Probe>,
}

impl Registration {
    pub(super) fn new(address: usize, kind: Kind, data: usize, enabled: bool) -> Result<Self, ProbeError> {
        Ok(Self { address, probe: registry::register(address, Probe::new(kind, data, enabled))? })
    }

    /// The virtual address of the probed instruction; of a return probe, that of the function.
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }

    /// How many hits the probe has been told of; of a return probe, how many calls it has followed to their return.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.probe.hits.load(Relaxed)
    }

    /// How many hits the probe has not been told of: they happened while handlers ran on the same CPU, or
    /// another probe there took execution elsewhere. A return probe also misses calls for which no instance was free,
    /// and those whose task exited before they returned.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.probe.missed.load(Relaxed)
    }

    /// How many calls of a return-probed function are in progress.
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
        registry::set_enabled(self.address, &self.probe, true)
    }

    /// Disarms the probe. When this returns, no handler of it is running; but a return probe still reports the returns
    /// of calls in progress. If it was the last probe at its address, the instruction is back in place, and costs what
    /// it costs without probes.
    ///
    /// # Errors
    ///
    /// [`ProbeError::InterruptsMasked`] and [`ProbeError::OutOfMemory`]; nothing has changed then.
    pub fn disable(&self) -> Result<(), ProbeError> {
        registry::set_enabled(self.address, &self.probe, false)
    }
}

impl Drop for Registration {
    /// Unregisters the probe.
    ///
    /// # Panics
    ///
    /// If interrupts are masked.
    fn drop(&mut self) {
        registry::unregister(self.address, &self.probe);
    }
}
