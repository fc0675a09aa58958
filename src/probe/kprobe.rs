//! Kprobes: handlers around one instruction.

use alloc::vec::Vec;
use core::ops::{Deref, Range};

use super::hit::arguments::ArgumentHandler;
use super::hit::point::{Handlers, Pre};
use super::hit::{PostHandler, PreHandler};
use super::registry::Request;
use super::snippet::{Insertion, InsertionRef};
use super::{Mode, ProbeError, Registration};

/// A probe on one instruction. Dropping it unregisters it, and panics with interrupts masked.
///
/// ```no_run
/// use core::sync::atomic::{AtomicU64, Ordering};
///
/// use aarch64_kprobes::{Hit, Kprobe, ProbeError};
///
/// static LARGEST: AtomicU64 = AtomicU64::new(0);
///
/// extern "C" fn entered(hit: &mut Hit<'_>) {
///     LARGEST.fetch_max(hit.frame().x[0], Ordering::Relaxed);
/// }
///
/// fn watch(address: usize) -> Result<(), ProbeError> {
///     let probe = Kprobe::at(address).pre(entered).register()?;
///     assert_eq!(probe.missed(), 0);
///     probe.unregister();
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Kprobe(Registration);

/// A kprobe that has not been registered yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "a probe does nothing until it is registered"]
pub struct KprobeBuilder {
    address: usize,
    /// The beginning and the end of the function, if the caller has given them.
    bounds: Option<(usize, usize)>,
    pre: Pre,
    post: Option<PostHandler>,
    data: usize,
    insertion: Option<InsertionRef>,
    enabled: bool,
    fastest: Mode,
}

impl Kprobe {
    /// Makes a probe on the instruction at the virtual address `address`.
    pub const fn at(address: usize) -> KprobeBuilder {
        KprobeBuilder {
            address,
            bounds: None,
            pre: Pre::Nothing,
            post: None,
            data: 0,
            insertion: None,
            enabled: true,
            fastest: Mode::FASTEST,
        }
    }

    /// Unregisters the probe. When this returns, none of its handlers is running, and none will run.
    ///
    /// # Panics
    ///
    /// If interrupts are masked.
    pub fn unregister(self) {}

    /// Registers many probes at once: the other CPUs are held once for all of them, or a few times. Returns one result
    /// for each probe, in the order of the probes, as from [`KprobeBuilder::register`].
    ///
    /// # Errors
    ///
    /// [`ProbeError::OutOfMemory`] if there is no memory for the lists of probes; nothing has changed then.
    pub fn register_all(
        probes: impl IntoIterator<Item = KprobeBuilder>,
    ) -> Result<Vec<Result<Self, ProbeError>>, ProbeError> {
        Registration::all(probes.into_iter().map(|probe| (probe.address, Ok(probe.request()))), Self)
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

impl Deref for Kprobe {
    type Target = Registration;

    fn deref(&self) -> &Registration {
        &self.0
    }
}

impl KprobeBuilder {
    /// Calls `handler` before the instruction is executed.
    pub const fn pre(mut self, handler: PreHandler) -> Self {
        self.pre = Pre::Hit(handler);
        self
    }

    /// Calls `handler` before the instruction is executed, instead of the handler given earlier to [`pre`](Self::pre)
    /// or to this function.
    ///
    /// The handler sees the registers that a call passes, and changes none. So a probe on the first instruction of a
    /// function costs less: [`Mode::Lean`]. The values of x9 to x17 and of the flags at the call are then lost, as the
    /// procedure call standard allows (AAPCS64, section 6.1).
    ///
    /// All registers are saved, as for [`pre`](Self::pre), if the code shows that this cannot be done: a branch leads
    /// to the first instruction, or an indirect branch may do so ([`NotEntry`](super::NotEntry)), or these registers
    /// are not known to be dead there ([`Live`](crate::insn::Live)).
    pub const fn arguments(mut self, handler: ArgumentHandler) -> Self {
        self.pre = Pre::Arguments(handler);
        self
    }

    /// Has the probe's stub run the snippet of `insertion` in the usual case, instead of calling the handler given to
    /// [`pre`](Self::pre) or [`arguments`](Self::arguments).
    ///
    /// This is done if the code shows that it does not need what the snippet changes, and if this is the only probe on
    /// the instruction, or shares it only with a return probe that does nothing but follow the call
    /// ([`Mode::Compiled`]). Otherwise, and whenever the snippet takes its exit to the handler, the handler is called,
    /// so the two must have the same meaning. A snippet [of returns](super::Snippet::of_returns) is not used.
    ///
    /// A hit in a handler of another probe is not missed by the snippet, because the snippet has no state that another
    /// hit could disturb. If a return probe shares the instruction, it is: both probes are handled, or both miss the
    /// hit. Disabling or unregistering the probe waits for tasks that were interrupted in a snippet: they have to run
    /// until they have left it.
    ///
    /// # Safety
    ///
    /// `insertion` and its snippet stay at their addresses until each probe that is made of the result, or of a copy of
    /// it, is unregistered. The snippet may be executed with the operand of `insertion`. If the probed instruction
    /// faults, the kernel does not continue elsewhere in the function with the values of x9 to x17 or of the flags.
    pub const unsafe fn snippet(mut self, insertion: &Insertion) -> Self {
        self.insertion = Some(InsertionRef::new(insertion));
        self
    }

    /// Calls `handler` after the instruction has been executed.
    pub const fn post(mut self, handler: PostHandler) -> Self {
        self.post = Some(handler);
        self
    }

    /// Takes `function` for the virtual addresses of the function that contains the instruction, instead of asking
    /// [`Platform::function`](crate::platform::Platform::function). For kernels that do not know where their functions
    /// begin and end.
    ///
    /// [`register`](Self::register) fails with [`ProbeError::NoFunction`] if the range does not begin and end at
    /// multiples of 4, lies outside the text, or does not contain the instruction. All other checks are the same. The
    /// probe is not [`Lean`](Mode::Lean) or [`Compiled`](Mode::Compiled), because these modes depend on the functions
    /// around this one.
    ///
    /// # Safety
    ///
    /// The range is a whole function, or larger. Each load-exclusive from which control gets to the instruction other
    /// than by a call is in the range, and so is each instruction that reads it as data. A function that calls the
    /// range between a load-exclusive and its store-exclusive is one that
    /// [`Platform::function`](crate::platform::Platform::function) returns.
    pub const unsafe fn within(mut self, function: Range<usize>) -> Self {
        self.bounds = Some((function.start, function.end));
        self
    }

    /// Passes `word` to the handlers: [`Hit::data`](super::Hit::data).
    pub const fn data(mut self, word: usize) -> Self {
        self.data = word;
        self
    }

    /// Registers the probe without enabling it.
    pub const fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Executes the instruction in the mode `fastest` or a slower one, even if a faster one is possible; but one that
    /// can only be simulated is simulated. For comparisons and tests. If several probes share an instruction, the
    /// slowest of their limits applies.
    pub const fn at_most(mut self, fastest: Mode) -> Self {
        self.fastest = fastest;
        self
    }

    /// Registers the probe.
    ///
    /// # Errors
    ///
    /// A [`ProbeError`] with the address and the reason; nothing has changed then.
    pub fn register(self) -> Result<Kprobe, ProbeError> {
        Registration::one(self.request()).map(Kprobe)
    }

    fn request(self) -> Request {
        let Self { address, bounds, pre, post, data, insertion, enabled, fastest } = self;
        let insertion = insertion.filter(|insertion| bounds.is_none() && !insertion.snippet().is_of_returns());
        let fastest = if bounds.is_some() { fastest.min(Mode::Optimized) } else { fastest };
        Request { address, bounds, handlers: Handlers::Kprobe { pre, post }, data, insertion, enabled, fastest }
    }
}
