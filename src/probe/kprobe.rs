//! Kprobes: handlers around one instruction.

use alloc::vec::Vec;
use core::ops::Deref;

use super::hit::entry::ArgumentHandler;
use super::hit::point::{Kind, Pre};
use super::hit::{PostHandler, PreHandler};
use super::registry::Request;
use super::snippet::{Insertion, InsertionRef};
use super::{Mode, ProbeError, Registration};

/// A probe on one instruction. Dropping it unregisters it.
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

/// A kprobe that is not registered yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "a probe does nothing until it is registered"]
pub struct KprobeBuilder {
    address: usize,
    pre: Pre,
    post: Option<PostHandler>,
    data: usize,
    insertion: Option<InsertionRef>,
    enabled: bool,
    fastest: Mode,
}

impl Kprobe {
    /// A probe on the instruction at the virtual address `address`.
    pub const fn at(address: usize) -> KprobeBuilder {
        KprobeBuilder {
            address,
            pre: Pre::Nothing,
            post: None,
            data: 0,
            insertion: None,
            enabled: true,
            fastest: Mode::FASTEST,
        }
    }

    /// Unregisters the probe. When this returns, no handler of it is running, and none will run.
    ///
    /// # Panics
    ///
    /// If interrupts are masked.
    pub fn unregister(self) {}

    /// Registers many probes at once: the other CPUs are held once for all of them, or few times. The results are in the
    /// order of the probes, and those of [`KprobeBuilder::register`].
    ///
    /// # Errors
    ///
    /// [`ProbeError::OutOfMemory`], about the lists of them; nothing has changed then.
    pub fn register_all(
        probes: impl IntoIterator<Item = KprobeBuilder>,
    ) -> Result<Vec<Result<Self, ProbeError>>, ProbeError> {
        Registration::all(probes.into_iter().map(|probe| (probe.address, Ok(probe.request()))), Self)
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

    /// Calls `handler` before the instruction is executed, instead of what was given to [`pre`](Self::pre) or here before.
    ///
    /// It sees what a call passes, and changes nothing, so that the first instruction of a function costs less:
    /// [`Mode::Lean`]. What is in x9 to x17 and in the flags when the function is called is lost then, as the procedure call
    /// standard allows (AAPCS64, section 6.1). All registers are saved as for [`pre`](Self::pre) where the code shows that this
    /// function is none of that kind: a branch leads to its first instruction, or one by a register may do so
    /// ([`NotEntry`](super::NotEntry)), or these registers are not known to be dead there ([`Live`](crate::insn::Live)).
    pub const fn entry(mut self, handler: ArgumentHandler) -> Self {
        self.pre = Pre::Entry(handler);
        self
    }

    /// Has the probe's stub do what the snippet of `insertion` says instead of calling the handler that was given to
    /// [`pre`](Self::pre) or [`entry`](Self::entry), in the usual case: where the code shows that it needs nothing of what the
    /// snippet changes, and this is the only probe of the instruction, or beside a return probe that only follows the call
    /// ([`Mode::Compiled`]). Elsewhere, and where the snippet leaves
    /// it to the handler, that is called: it has to mean the same. A snippet [of returns](super::Snippet::of_returns) is not used.
    ///
    /// What is hit in a handler of another probe is not missed by the snippet, which has nothing that another could disturb. To
    /// disarm or unregister the probe waits for tasks that were interrupted in a snippet: they have to run until they are out of
    /// it.
    ///
    /// # Safety
    ///
    /// `insertion` and its snippet stay where they are until the probe is unregistered. The snippet may be executed with the
    /// operand of `insertion`. If the instruction faults, the kernel does not continue elsewhere in the function with the values of
    /// x9 to x17 or of the flags.
    pub const unsafe fn snippet(mut self, insertion: &Insertion) -> Self {
        self.insertion = Some(InsertionRef::new(insertion));
        self
    }

    /// Calls `handler` after the instruction has been executed.
    pub const fn post(mut self, handler: PostHandler) -> Self {
        self.post = Some(handler);
        self
    }

    /// Gives `word` to the handlers, as [`Hit::data`](super::Hit::data).
    pub const fn data(mut self, word: usize) -> Self {
        self.data = word;
        self
    }

    /// Registers the probe without arming it.
    pub const fn disabled(mut self) -> Self {
        self.enabled = false;
        self
    }

    /// Has the instruction executed in this mode, or a slower one, though a faster one may be possible: for comparison, and
    /// for tests. Of several probes on an instruction, the one that allows least decides.
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
        let Self { address, pre, post, data, insertion, enabled, fastest } = self;
        let insertion = insertion.filter(|insertion| !insertion.snippet().is_of_returns());
        Request { address, kind: Kind::Kprobe { pre, post }, data, insertion, enabled, fastest }
    }
}
