//! Kretprobes: handlers at the entry and the return of a function.

use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ops::{Deref, Range};

use fallible::OutOfMemory;

use super::aliasable::AliasableBox;
use super::hit::instance::{Instance, Pool};
use super::hit::point::Handlers;
use super::hit::result::ResultHandler;
use super::hit::returns::{EntryHandler, ReturnHandler, ReturnProbe, Returned};
use super::registry::Request;
use super::snippet::{Insertion, InsertionRef};
use super::{MAX_ACTIVE, MAX_DATA_WORDS, Mode, ProbeError, Registration};
use crate::kernel;

/// A probe on the returns of a function. Dropping it unregisters it, and panics with interrupts masked.
///
/// Every call in progress takes an instance from a pool that is filled when the probe is registered. A call that finds
/// no free instance is not followed, and [`missed`](Registration::missed) counts it. Hits and missed calls together are
/// the calls that have been made and have ended, except those that the entry handler has declined.
///
/// ```no_run
/// use core::sync::atomic::{AtomicU64, Ordering};
///
/// use aarch64_kprobes::{Call, Kretprobe, ProbeError};
///
/// static FAILURES: AtomicU64 = AtomicU64::new(0);
///
/// extern "C" fn returned(call: &mut Call<'_>) {
///     if call.return_value().cast_signed() < 0 {
///         FAILURES.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// /// Counts the negative results of the function at `address`, for as long as the probe exists.
/// fn watch(address: usize) -> Result<Kretprobe, ProbeError> {
///     Kretprobe::at(address).handler(returned).register()
/// }
/// ```
#[derive(Debug)]
pub struct Kretprobe(Registration);

/// A kretprobe that has not been registered yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "a probe does nothing until it is registered"]
pub struct KretprobeBuilder {
    function: usize,
    bounds: Option<(usize, usize)>,
    entry: Option<EntryHandler>,
    handler: Returned,
    maxactive: Option<u32>,
    data_words: usize,
    data: usize,
    insertion: Option<InsertionRef>,
    enabled: bool,
    fastest: Mode,
}

impl Kretprobe {
    /// Makes a probe on the returns of the function at the virtual address `function`.
    pub const fn at(function: usize) -> KretprobeBuilder {
        KretprobeBuilder {
            function,
            bounds: None,
            entry: None,
            handler: Returned::Nothing,
            maxactive: None,
            data_words: 0,
            data: 0,
            insertion: None,
            enabled: true,
            fastest: Mode::FASTEST,
        }
    }

    /// Enables or disables the [snippet](KretprobeBuilder::snippet) of the probe, if it has one. While the snippet is
    /// disabled, all returns are left to the handler, and so are those of calls that have begun before. This changes
    /// neither the text nor the stub.
    ///
    /// When this returns, another CPU may still be handling a return in the old way. Of two calls for one probe at the
    /// same time, each may win for some calls in progress.
    #[doc(hidden)]
    pub fn set_snippet_enabled(&self, enabled: bool) {
        let probe = &self.0.probe;
        if let Handlers::Return(return_probe) = &probe.handlers
            && probe.inserted.is_some()
        {
            return_probe.leave_to_handler(!enabled);
        }
    }

    /// Unregisters the probe. When this returns, none of its handlers is running, and none will run. Calls in progress
    /// return as they would without it.
    ///
    /// # Panics
    ///
    /// If interrupts are masked.
    pub fn unregister(self) {}

    /// Registers many probes at once: the other CPUs are held once for all of them, or a few times. Returns one result
    /// for each probe, in the order of the probes, as from [`KretprobeBuilder::register`].
    ///
    /// # Errors
    ///
    /// [`ProbeError::OutOfMemory`] if there is no memory for the lists of probes; nothing has changed then.
    pub fn register_all(
        probes: impl IntoIterator<Item = KretprobeBuilder>,
    ) -> Result<Vec<Result<Self, ProbeError>>, ProbeError> {
        Registration::all(probes.into_iter().map(|probe| (probe.function, probe.request())), Self)
    }

    /// Unregisters many probes at once, as [`unregister`](Self::unregister) does one. Returns the total of the hits
    /// that they have [missed](Registration::missed), up to the last one.
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
    /// Calls `handler` at the entry of the function. The handler may decline to follow the call.
    pub const fn entry(mut self, handler: EntryHandler) -> Self {
        self.entry = Some(handler);
        self
    }

    /// Calls `handler` when the function has returned, instead of the handler given earlier to this function or to
    /// [`result`](Self::result).
    pub const fn handler(mut self, handler: ReturnHandler) -> Self {
        self.handler = Returned::Call(handler);
        self
    }

    /// Calls `handler` when the function has returned, instead of the handler given earlier to
    /// [`handler`](Self::handler) or to this function.
    ///
    /// The handler sees what the function returns, and changes nothing. So a return costs less. The values that the
    /// function leaves in x9 to x17 and in the flags are then lost, as the procedure call standard allows (AAPCS64,
    /// section 6.1).
    ///
    /// A listing shows [`Mode::Lean`] then. All registers are saved instead, as for `handler`,
    ///
    /// - if these registers are not known to be dead at the entry of the function, or after a direct call of it
    ///   ([`Live`](crate::insn::Live)); or if a branch may lead to its first instruction
    ///   ([`NotEntry`](super::NotEntry));
    /// - if this probe does more at the entry than follow the call: it has an entry handler, or private words;
    /// - if the function has other enabled probes at its first instruction, except for a
    ///   [compiled](Mode::Compiled) one;
    /// - if the first instruction cannot be executed from a stub, or may not be ([`at_most`](Self::at_most));
    /// - if the probe comes with the bounds of its function ([`within`](Self::within)).
    ///
    /// The first such probe analyzes the whole text, unless [`Platform::survey`](crate::platform::Platform::survey)
    /// returns a survey of it.
    pub const fn result(mut self, handler: ResultHandler) -> Self {
        self.handler = Returned::Result(handler);
        self
    }

    /// Follows up to `calls` calls at the same time, from 1 to [`MAX_ACTIVE`]. The default is twice the number of CPUs,
    /// as in Linux, but at least 64, because every task can be in a call.
    pub const fn maxactive(mut self, calls: u32) -> Self {
        self.maxactive = Some(calls);
        self
    }

    /// Gives each call `words` private words, up to [`MAX_DATA_WORDS`]:
    /// [`Call::instance_data`](super::Call::instance_data).
    pub const fn data_words(mut self, words: usize) -> Self {
        self.data_words = words;
        self
    }

    /// Takes `function` for the virtual addresses of the probed function, instead of asking
    /// [`Platform::function`](crate::platform::Platform::function). For kernels that do not know where their functions
    /// begin and end.
    ///
    /// [`register`](Self::register) fails with [`ProbeError::NoFunction`] if the range does not begin and end at
    /// multiples of 4, lies outside the text, or does not contain the function, and with [`ProbeError::NotEntry`] if it
    /// does not begin there. All other checks are the same. At the entry and at the return all registers are saved
    /// ([`Fallback::Given`]), because what else is possible depends on the functions around this one.
    ///
    /// # Safety
    ///
    /// The range is the whole function. Control gets to its first instruction only by calls, or from instructions in
    /// the range. Each instruction that reads the first one as data is in the range.
    ///
    /// [`Fallback::Given`]: super::Fallback::Given
    pub const unsafe fn within(mut self, function: Range<usize>) -> Self {
        self.bounds = Some((function.start, function.end));
        self
    }

    /// Passes `word` to the handlers: [`Call::data`](super::Call::data).
    pub const fn data(mut self, word: usize) -> Self {
        self.data = word;
        self
    }

    /// Runs the snippet of `insertion` at a return in the usual case, instead of calling the handler given to
    /// [`handler`](Self::handler) or [`result`](Self::result).
    ///
    /// This is done if the callers show that they do not need what the function leaves in x9 to x17 and in the flags,
    /// if this is the only probe on the instruction, or shares it with one that has a snippet, and if the probe does
    /// nothing at the entry but follow the call. Otherwise, and whenever the snippet takes its exit to the handler, the
    /// handler is called, so the two must have the same meaning. The snippet finds all other registers as the function
    /// returned them.
    ///
    /// # Safety
    ///
    /// `insertion` and its snippet stay at their addresses until each probe that is made of the result, or of a copy of
    /// it, is unregistered. The snippet may be executed with the operand of `insertion`, also for calls in progress
    /// while the probe is being unregistered, but not after that.
    pub const unsafe fn snippet(mut self, insertion: &Insertion) -> Self {
        self.insertion = Some(InsertionRef::new(insertion));
        self
    }

    /// Registers the probe without enabling it.
    pub const fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Executes the first instruction in the mode `fastest` or a slower one, even if a faster one is possible; but one
    /// that can only be simulated is simulated. For comparisons and tests.
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
        let Self { function, bounds, entry, handler, maxactive, data_words, data, insertion, enabled, fastest } = self;
        let maxactive = maxactive.unwrap_or_else(|| (2 * kernel::cpus() as u32).max(64));
        if !(1..=MAX_ACTIVE).contains(&maxactive) {
            return Err(ProbeError::MaxActive { maxactive });
        }
        if data_words > MAX_DATA_WORDS {
            return Err(ProbeError::DataWords { words: data_words });
        }
        let no_memory = ProbeError::OutOfMemory { address: function };
        let Some(pool) = make_pool(maxactive, data_words) else { return Err(no_memory) };
        let probe = fallible::boxed(ReturnProbe::new(function, entry, handler, pool, bounds.is_some()));
        let handlers = Handlers::Return(AliasableBox::new(probe.map_err(|OutOfMemory| no_memory)?));
        let insertion = insertion.filter(|_| bounds.is_none() && fastest >= Mode::Compiled);
        Ok(Request { address: function, bounds, handlers, data, insertion, enabled, fastest })
    }
}

/// Makes a pool of `count` free instances with `data_words` words of private data each; `None` if there is no memory.
pub(super) fn make_pool(count: u32, data_words: usize) -> Option<Pool> {
    let words = (count as usize).checked_mul(data_words)?;
    let instances = fallible::boxed_slice((0..count).map(|index| Instance::free(index, count))).ok()?;
    let data = fallible::boxed_slice((0..words).map(|_| UnsafeCell::new(0))).ok()?;
    Some(Pool::new(instances, data, data_words))
}
