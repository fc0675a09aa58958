//! The probes of events, registered with the engine.

use aarch64_kprobes::probe::{Insertion, Registration};
use aarch64_kprobes::{Kprobe, Kretprobe, ProbeError};

use crate::context::Offsets;
use crate::definition::EventKind;
use crate::events::{Form, RegisteredProbe};
use crate::hit::handler;
use crate::recorder::Recorder;

/// The probe of an event.
#[derive(Debug)]
pub enum Probe {
    /// A probe on an instruction.
    Kprobe(Kprobe),
    /// A probe on the returns of a function.
    Kretprobe(Kretprobe),
}

impl Probe {
    /// Returns the registration with the engine, which both kinds have.
    #[must_use]
    pub fn registration(&self) -> &Registration {
        match self {
            Self::Kprobe(probe) => probe,
            Self::Kretprobe(probe) => probe,
        }
    }
}

// SAFETY: dropping a probe of the engine unregisters it, and the engine's `synchronize` waits for the hits on all CPUs.
// The offsets are those of the image's `ContextLayout`, by `Offsets::of_image`.
unsafe impl RegisteredProbe for Probe {
    type Error = ProbeError;

    unsafe fn register(
        kind: EventKind,
        form: Form,
        address: u64,
        recorder: &Recorder,
        insertion: Option<&Insertion>,
    ) -> Result<Self, ProbeError> {
        let (address, data) = (address as usize, &raw const *recorder as usize);
        match kind {
            EventKind::Synthetic | EventKind::OnSynthetic => {
                unreachable!("neither a synthetic event has a probe nor one on it")
            }
            EventKind::Probe | EventKind::Static | EventKind::Command => {
                let probe = Kprobe::at(address).data(data).disabled();
                let probe = match form {
                    Form::Call => probe.arguments(handler::called),
                    Form::Full => probe.pre(handler::hit),
                };
                let probe = match insertion {
                    // SAFETY: the caller guarantees that the insertion lives as long as the probe (see # Safety of
                    // `register`).
                    Some(insertion) => unsafe { probe.snippet(insertion) },
                    None => probe,
                };
                probe.register().map(Self::Kprobe)
            }
            EventKind::Return { maxactive } => {
                let mut probe = Kretprobe::at(address).handler(handler::returned).data(data).disabled();
                if let Some(calls) = maxactive {
                    probe = probe.maxactive(calls.into());
                }
                if recorder.entry_words() > 0 {
                    probe = probe.entry(handler::entered).data_words(recorder.entry_words());
                }
                if let Some(insertion) = insertion {
                    // SAFETY: the caller guarantees that the insertion lives as long as the probe (see # Safety of
                    // `register`).
                    probe = unsafe { probe.snippet(insertion) };
                }
                probe.register().map(Self::Kretprobe)
            }
        }
    }

    fn exchange(&self, after: &Self) -> Result<(), ProbeError> {
        self.registration().exchange(after.registration())
    }

    fn set_snippet_enabled(&self, enabled: bool) {
        if let Self::Kretprobe(probe) = self {
            probe.set_snippet_enabled(enabled);
        }
    }

    fn synchronize() {
        aarch64_kprobes::probe::synchronize();
    }

    fn offsets() -> Option<Offsets> {
        Some(Offsets::of_image())
    }

    fn set_enabled(&self, enabled: bool) -> Result<(), ProbeError> {
        if enabled { self.registration().enable() } else { self.registration().disable() }
    }

    fn is_enabled(&self) -> bool {
        self.registration().is_enabled()
    }

    fn hits(&self) -> u64 {
        self.registration().hits()
    }

    fn missed(&self) -> u64 {
        self.registration().missed()
    }
}
