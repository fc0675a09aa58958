//! The probes of events, made by the engine.

use aarch64_kprobes::{Kprobe, Kretprobe, ProbeError};

use crate::definition::Kind;
use crate::events::{Armed, Form};
use crate::hit::handler;
use crate::recorder::Recorder;

/// The probe of an event.
#[derive(Debug)]
pub enum Probe {
    /// On an instruction.
    Kprobe(Kprobe),
    /// On the returns of a function.
    Kretprobe(Kretprobe),
}

impl Armed for Probe {
    type Error = ProbeError;

    unsafe fn register(kind: Kind, form: Form, address: u64, recorder: &Recorder) -> Result<Self, ProbeError> {
        let (address, data) = (address as usize, &raw const *recorder as usize);
        match kind {
            Kind::Probe => {
                let probe = Kprobe::at(address).data(data).disabled();
                let probe = match form {
                    Form::Call => probe.entry(handler::called),
                    Form::Full => probe.pre(handler::hit),
                };
                probe.register().map(Self::Kprobe)
            }
            Kind::Return { maxactive } => {
                let mut probe = Kretprobe::at(address).handler(handler::returned).data(data).disabled();
                if let Some(calls) = maxactive {
                    probe = probe.maxactive(calls.into());
                }
                if recorder.entry_words() > 0 {
                    probe = probe.entry(handler::entered).data_words(recorder.entry_words());
                }
                probe.register().map(Self::Kretprobe)
            }
        }
    }

    fn set_enabled(&self, enabled: bool) -> Result<(), ProbeError> {
        match (self, enabled) {
            (Self::Kprobe(probe), true) => probe.enable(),
            (Self::Kprobe(probe), false) => probe.disable(),
            (Self::Kretprobe(probe), true) => probe.enable(),
            (Self::Kretprobe(probe), false) => probe.disable(),
        }
    }

    fn is_enabled(&self) -> bool {
        match self {
            Self::Kprobe(probe) => probe.is_enabled(),
            Self::Kretprobe(probe) => probe.is_enabled(),
        }
    }

    fn hits(&self) -> u64 {
        match self {
            Self::Kprobe(probe) => probe.hits(),
            Self::Kretprobe(probe) => probe.hits(),
        }
    }

    fn missed(&self) -> u64 {
        match self {
            Self::Kprobe(probe) => probe.missed(),
            Self::Kretprobe(probe) => probe.missed(),
        }
    }
}
