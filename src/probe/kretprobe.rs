//! Kretprobes: handlers at the entry and the return of a function.

use core::ops::Deref;
use core::sync::atomic::AtomicBool;

use super::hit::instance::Pool;
use super::hit::point::Kind;
use super::hit::returns::{EntryHandler, ReturnHandler, ReturnProbe};
use super::{MAX_ACTIVE, ProbeError, Registration};
use crate::platform::MAX_CPUS;

/// A probe on the returns of a function. Dropping it unregisters it: calls in progress return as they would
/// without it.
///
/// Every call in progress takes an instance from a list that is filled when the probe is registered. A call
/// that finds none is not followed, and counted by [`missed`](Registration::missed): hits and missed calls add up to
/// the calls that have been made and have ended, less those that the entry handler has declined.
#[derive(Debug)]
pub struct Kretprobe(Registration);

/// A kretprobe that is not registered yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "a probe does nothing until it is registered"]
pub struct KretprobeBuilder {
    function: usize,
    entry: Option<EntryHandler>,
    handler: Option<ReturnHandler>,
    maxactive: u32,
    data_words: usize,
    data: usize,
    enabled: bool,
}

impl Kretprobe {
    /// How many calls can be followed at a time unless [`maxactive`](KretprobeBuilder::maxactive) is given:
    /// twice the CPUs, as Linux does, and not less than 64, since every task can be in one.
    pub const DEFAULT_MAX_ACTIVE: u32 = if 2 * MAX_CPUS > 64 { 2 * MAX_CPUS as u32 } else { 64 };

    /// A probe on the returns of the function at the virtual address `function`.
    pub const fn at(function: usize) -> KretprobeBuilder {
        KretprobeBuilder {
            function,
            entry: None,
            handler: None,
            maxactive: Self::DEFAULT_MAX_ACTIVE,
            data_words: 0,
            data: 0,
            enabled: true,
        }
    }

    /// Unregisters the probe: calls in progress return without a handler.
    ///
    /// # Panics
    ///
    /// If interrupts are masked.
    pub fn unregister(self) {}
}

impl Deref for Kretprobe {
    type Target = Registration;

    fn deref(&self) -> &Registration {
        &self.0
    }
}

impl KretprobeBuilder {
    /// Calls `handler` at the entry of the function; it may decline to follow the call.
    pub const fn entry(mut self, handler: EntryHandler) -> Self {
        self.entry = Some(handler);
        self
    }

    /// Calls `handler` when the function has returned.
    pub const fn handler(mut self, handler: ReturnHandler) -> Self {
        self.handler = Some(handler);
        self
    }

    /// Follows up to `calls` calls at a time, 1 to [`MAX_ACTIVE`].
    pub const fn maxactive(mut self, calls: u32) -> Self {
        self.maxactive = calls;
        self
    }

    /// Gives each call `words` private words.
    pub const fn data_words(mut self, words: usize) -> Self {
        self.data_words = words;
        self
    }

    /// Gives `word` to the handlers, as [`Call::data`](super::Call::data).
    pub const fn data(mut self, word: usize) -> Self {
        self.data = word;
        self
    }

    /// Registers the probe without arming it.
    pub const fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Registers the probe.
    ///
    /// # Errors
    ///
    /// A [`ProbeError`] with the address and the reason; nothing has changed then.
    pub fn register(self) -> Result<Kretprobe, ProbeError> {
        if !(1..=MAX_ACTIVE).contains(&self.maxactive) {
            return Err(ProbeError::MaxActive { maxactive: self.maxactive });
        }
        let kind = Kind::Return(ReturnProbe {
            function: self.function,
            entry: self.entry,
            handler: self.handler,
            pool: Pool::new(self.maxactive, self.data_words)
                .ok_or(ProbeError::OutOfMemory { address: self.function })?,
            retired: AtomicBool::new(false),
        });
        Registration::new(self.function, kind, self.data, self.enabled).map(Kretprobe)
    }
}
