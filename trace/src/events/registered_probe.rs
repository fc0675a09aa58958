//! The interface of events to their probes: those of the engine, or of a test on the host.

use core::fmt;

use aarch64_kprobes::probe::Insertion;

use crate::context::Offsets;
use crate::definition::EventKind;
use crate::recorder::Recorder;

/// The registers that a probe saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Only the registers that a function is called with. The probe is at a function's entry, and its event uses no
    /// other register.
    Call,
    /// All registers.
    Full,
}

/// A registered probe.
///
/// # Safety
///
/// Dropping it unregisters it; after that, nothing uses its recorder and its insertion any more. When
/// [`synchronize`](Self::synchronize) returns, every hit is over that was being handled on any CPU when it was called:
/// plans that such hits use are freed after it. Hits that begin later see what the caller had stored. The offsets, if
/// there are any, are those of the [`ContextLayout`](crate::context::ContextLayout): stubs load from them.
pub unsafe trait RegisteredProbe: Sized {
    /// Why a probe is refused.
    type Error: fmt::Display;

    /// Registers a probe of `kind` and `form` at the virtual address `address`, which records with `recorder` and is
    /// disabled. If the engine can, it puts the snippet of `insertion` into the stub, which then handles the hits that
    /// the snippet does not leave to the handler.
    ///
    /// # Errors
    ///
    /// Returns why the probe is refused. Then nothing has changed.
    ///
    /// # Safety
    ///
    /// `recorder` and `insertion` must neither move nor be dropped until the probe has been dropped. `insertion` must
    /// be made for `recorder`.
    unsafe fn register(
        kind: EventKind,
        form: Form,
        address: u64,
        recorder: &Recorder,
        insertion: Option<&Insertion>,
    ) -> Result<Self, Self::Error>;

    /// Disables this probe and enables `after`, which is at the same place. Each hit is reported by exactly one of the
    /// two.
    ///
    /// # Errors
    ///
    /// Returns why the engine could not. Then nothing has changed.
    fn exchange(&self, after: &Self) -> Result<(), Self::Error>;

    /// Enables or disables the snippet of a probe on returns. While it is disabled, all returns are left to the
    /// handler. In a new probe it is enabled.
    fn set_snippet_enabled(&self, enabled: bool);

    /// Waits until all hits that are being handled are over. Hits that begin later see what the caller has stored.
    fn synchronize();

    /// Returns where the kernel keeps the values that stubs record; `None` if there are no stubs.
    fn offsets() -> Option<Offsets> {
        None
    }

    /// Enables or disables the probe.
    ///
    /// # Errors
    ///
    /// Returns why the engine could not. Then nothing has changed.
    fn set_enabled(&self, enabled: bool) -> Result<(), Self::Error>;

    /// Whether the probe is enabled.
    fn is_enabled(&self) -> bool;

    /// Returns the number of hits that the probe has reported.
    fn hits(&self) -> u64;

    /// Returns the number of hits that the probe has missed.
    fn missed(&self) -> u64;
}
