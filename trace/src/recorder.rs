//! What an event leaves with its probe, so that a hit can be recorded without looking anything up.

use crate::definition::{MAX_ARGUMENTS, Source};
use crate::ring::Rings;

/// What the handlers of one event need.
#[derive(Debug)]
pub struct Recorder {
    pub(crate) event: u32,
    pub(crate) count: usize,
    pub(crate) sources: [Source; MAX_ARGUMENTS],
    pub(crate) rings: &'static Rings,
}

impl Recorder {
    /// A recorder of the event numbered `event`, that fetches `sources`, of which the first
    /// [`MAX_ARGUMENTS`] count, into `rings`.
    pub fn new(event: u32, sources: impl Iterator<Item = Source>, rings: &'static Rings) -> Self {
        let mut recorder = Self { event, count: 0, sources: [Source::Register(0); MAX_ARGUMENTS], rings };
        for (place, source) in recorder.sources.iter_mut().zip(sources) {
            *place = source;
            recorder.count += 1;
        }
        recorder
    }
}

/// The state of the CPU at a hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Interrupts were masked.
    pub const IRQS_OFF: u32 = 1 << 0;
    /// In an interrupt handler.
    pub const INTERRUPT: u32 = 1 << 1;
}
