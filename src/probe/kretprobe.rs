//! Kretprobes: handlers at the entry and the return of a function.

use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ops::Deref;

use fallible::OutOfMemory;

use super::aliasable::AliasableBox;
use super::hit::instance::{Instance, Pool, Slot};
use super::hit::point::Kind;
use super::hit::returns::{EntryHandler, ReturnHandler, ReturnProbe};
use super::registry::Request;
use super::snippet::{Insertion, InsertionRef};
use super::{MAX_ACTIVE, Mode, ProbeError, Registration};
use crate::platform;

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
    maxactive: Option<u32>,
    data_words: usize,
    data: usize,
    insertion: Option<InsertionRef>,
    enabled: bool,
    fastest: Mode,
}

impl Kretprobe {
    /// A probe on the returns of the function at the virtual address `function`.
    pub const fn at(function: usize) -> KretprobeBuilder {
        KretprobeBuilder {
            function,
            entry: None,
            handler: None,
            maxactive: None,
            data_words: 0,
            data: 0,
            insertion: None,
            enabled: true,
            fastest: Mode::FASTEST,
        }
    }

    /// Unregisters the probe: calls in progress return without a handler.
    ///
    /// # Panics
    ///
    /// If interrupts are masked.
    pub fn unregister(self) {}

    /// Registers many probes at once: the other CPUs are held once for all of them, or few times. The results are in the
    /// order of the probes, and those of [`KretprobeBuilder::register`].
    ///
    /// # Errors
    ///
    /// [`ProbeError::OutOfMemory`], about the lists of them; nothing has changed then.
    pub fn register_all(
        probes: impl IntoIterator<Item = KretprobeBuilder>,
    ) -> Result<Vec<Result<Self, ProbeError>>, ProbeError> {
        Registration::all(probes.into_iter().map(|probe| (probe.function, probe.request())), Self)
    }

    /// Unregisters many probes at once, as [`unregister`](Self::unregister) does one. Returns how many hits they have
    /// [missed](Registration::missed), up to the last.
    ///
    /// # Panics
    ///
    /// If interrupts are masked.
    pub fn unregister_all(probes: impl IntoIterator<Item = Self>) -> u64 {
        Registration::unregister_all(probes.into_iter().map(|probe| probe.0))
    }
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

    /// Follows up to `calls` calls at a time, 1 to [`MAX_ACTIVE`]. By default twice as many as there are CPUs, as Linux does, and
    /// not less than 64, since every task can be in one.
    pub const fn maxactive(mut self, calls: u32) -> Self {
        self.maxactive = Some(calls);
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

    /// Has the code of a return do what the snippet of `insertion` says instead of calling the handler that was given to
    /// [`handler`](Self::handler), in the usual case: where callers show that they need nothing that the function leaves in x9 to
    /// x17 and in the flags, where this is the only probe of the instruction, or beside one with a snippet, and it asks for no more of the
    /// entry than to follow the call. Elsewhere, and where the snippet leaves it to the handler, that is called: it has to mean the same. The snippet
    /// finds all other registers as the function returned them.
    ///
    /// # Safety
    ///
    /// `insertion` and its snippet stay where they are until the probe is unregistered. The snippet may be executed with the
    /// operand of `insertion`, also for calls in progress while the probe is unregistered; after that it is not.
    pub const unsafe fn snippet(mut self, insertion: &Insertion) -> Self {
        self.insertion = Some(InsertionRef::new(insertion));
        self
    }

    /// Registers the probe without arming it.
    pub const fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Has the first instruction executed in this mode, or a slower one, though a faster one may be possible: for
    /// comparison, and for tests.
    pub const fn at_most(mut self, fastest: Mode) -> Self {
        self.fastest = fastest;
        self
    }

    /// Registers the probe.
    ///
    /// # Errors
    ///
    /// A [`ProbeError`] with the address and the reason; nothing has changed then.
    pub fn register(self) -> Result<Kretprobe, ProbeError> {
        Registration::one(self.request()?).map(Kretprobe)
    }

    fn request(self) -> Result<Request, ProbeError> {
        let Self { function, entry, handler, maxactive, data_words, data, insertion, enabled, fastest } = self;
        let maxactive = maxactive.unwrap_or_else(|| (2 * platform::cpus() as u32).max(64));
        if !(1..=MAX_ACTIVE).contains(&maxactive) {
            return Err(ProbeError::MaxActive { maxactive });
        }
        let no_memory = ProbeError::OutOfMemory { address: function };
        let Some(pool) = make_pool(maxactive, data_words) else { return Err(no_memory) };
        let probe = fallible::boxed(ReturnProbe::new(function, entry, handler, pool));
        let kind = Kind::Return(AliasableBox::new(probe.map_err(|OutOfMemory| no_memory)?));
        let insertion = insertion.filter(|_| fastest >= Mode::Compiled);
        Ok(Request { address: function, kind, data, insertion, enabled, fastest })
    }
}

/// A pool of `count` free instances with `data_words` words of data each, if there is memory for it.
pub(super) fn make_pool(count: u32, data_words: usize) -> Option<Pool> {
    let words = (count as usize).checked_mul(data_words)?;
    let instances = fallible::boxed_slice((0..count).map(|index| Instance::free(index, count))).ok()?;
    let data = fallible::boxed_slice((0..words).map(|_| UnsafeCell::new(0))).ok()?;
    let slots = fallible::boxed_slice((0..platform::cpus()).map(|_| Slot::default())).ok()?;
    Some(Pool::new(slots, instances, data, data_words))
}
