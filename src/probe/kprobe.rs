//! Kprobes: handlers around one instruction.

use core::ops::Deref;

use super::hit::point::Kind;
use super::hit::{PostHandler, PreHandler};
use super::{ProbeError, Registration};

/// A probe on one instruction. Dropping it unregisters it.
///
/// ```ignore
/// static ENTERED: AtomicU64 = AtomicU64::new(0);
///
/// fn entered(hit: &mut Hit<'_>) {
///     ENTERED.fetch_add(hit.frame().x[0], Ordering::Relaxed);
/// }
///
/// let probe = Kprobe::at(address).pre(entered).register()?;
/// ```
#[derive(Debug)]
pub struct Kprobe(Registration);

/// A kprobe that is not registered yet.
#[derive(Clone, Copy, Debug)]
#[must_use = "a probe does nothing until it is registered"]
pub struct KprobeBuilder {
    address: usize,
    pre: Option<PreHandler>,
    post: Option<PostHandler>,
    data: usize,
    enabled: bool,
}

impl Kprobe {
    /// A probe on the instruction at the virtual address `address`.
    pub const fn at(address: usize) -> KprobeBuilder {
        KprobeBuilder { address, pre: None, post: None, data: 0, enabled: true }
    }

    /// Unregisters the probe. When this returns, no handler of it is running, and none will run.
    ///
    /// # Panics
    ///
    /// If interrupts are masked.
    pub fn unregister(self) {}
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
        self.pre = Some(handler);
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

    /// Registers the probe.
    ///
    /// # Errors
    ///
    /// A [`ProbeError`] with the address and the reason; nothing has changed then.
    pub fn register(self) -> Result<Kprobe, ProbeError> {
        let kind = Kind::Kprobe { pre: self.pre, post: self.post };
        Registration::new(self.address, kind, self.data, self.enabled).map(Kprobe)
    }
}
