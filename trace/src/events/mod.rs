//! Events: what was defined, the probes that were made for it, and what they have counted.
//!
//! An event is armed as soon as it is defined: whoever types a definition sees hits, without a second step.
//! (In Linux an event starts disabled, and a file of its own enables it; [`Events::set_enabled`] is what such a
//! file would do.) Its number is never used again, and its definition is kept as long as records of it are in
//! the rings, so that they can be printed after the event has gone.
//!
//! The probes are behind a trait, [`Armed`], and so are the symbols: everything here but the probing itself is
//! tested on the host.

mod error;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::{self, Write};

pub use error::{EventError, Refusal};

use crate::definition::{Base, Definition, Kind, Place};
use crate::host::{Clock, Function, Symbols};
use crate::recorder::Recorder;
use crate::ring::Rings;
use crate::text;

/// A registered probe. Dropping it unregisters it, after which its recorder is not used any more.
pub trait Armed: Sized {
    /// Why a probe is refused.
    type Error: fmt::Display;

    /// Places and arms a probe of `kind` at the virtual address `address`, which records with `recorder`.
    ///
    /// # Errors
    ///
    /// The probe is refused; nothing has changed then.
    ///
    /// # Safety
    ///
    /// `recorder` stays in place until the probe has been dropped.
    unsafe fn arm(kind: Kind, address: u64, recorder: &Recorder) -> Result<Self, Self::Error>;

    /// Arms or disarms the probe.
    ///
    /// # Errors
    ///
    /// The engine could not; nothing has changed then.
    fn set_enabled(&self, enabled: bool) -> Result<(), Self::Error>;

    /// Whether the probe is armed.
    fn is_enabled(&self) -> bool;

    /// How many hits were recorded.
    fn hits(&self) -> u64;

    /// How many hits were not recorded.
    fn missed(&self) -> u64;
}

/// An event that is defined.
#[derive(Debug)]
pub struct Event<P> {
    /// Dropped first: the recorder is then not used any more.
    probe: P,
    recorder: Box<Recorder>,
    number: u32,
    address: u64,
    definition: Definition,
}

impl<P: Armed> Event<P> {
    /// What was typed.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The virtual address of the probe.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The probe.
    #[must_use]
    pub fn probe(&self) -> &P {
        &self.probe
    }

    /// The word that the probe was registered with, by which a listing of all probes tells it.
    #[must_use]
    pub fn data(&self) -> usize {
        &raw const *self.recorder as usize
    }
}

/// All events, and the rings that they are recorded in.
#[derive(Debug)]
pub struct Events<P> {
    events: Vec<Event<P>>,
    /// Definitions of events that are gone, while there are records of them.
    removed: Vec<(u32, Definition)>,
    next: u32,
    rings: &'static Rings,
}

impl<P: Armed> Events<P> {
    /// No events, which will be recorded in `rings`.
    #[must_use]
    pub fn new(rings: &'static Rings) -> Self {
        Self { events: Vec::new(), removed: Vec::new(), next: 1, rings }
    }

    /// Defines an event and arms it.
    ///
    /// # Errors
    ///
    /// Why not, with the column of the definition's line; nothing has changed then.
    pub fn define(&mut self, definition: Definition, symbols: &dyn Symbols) -> Result<(), EventError<P::Error>> {
        if self
            .events
            .iter()
            .any(|event| event.definition.event == definition.event && event.definition.group == definition.group)
        {
            return Err(EventError { refusal: Refusal::Exists, column: definition.column });
        }
        let address = resolve(&definition.place, symbols)?;
        let number = self.next;
        let sources = definition.arguments.iter().map(|argument| argument.source);
        let recorder = Box::new(Recorder::new(number, sources, self.rings));
        // SAFETY: the recorder is in a box, which is dropped after the probe: in `Event` it stands after it, and
        // nothing takes the probe out.
        let probe = unsafe { P::arm(definition.kind, address, &recorder) }
            .map_err(|reason| EventError { refusal: Refusal::Probe(reason), column: definition.place.column })?;
        self.next += 1;
        self.events.push(Event { probe, recorder, number, address, definition });
        Ok(())
    }

    /// Removes the events of this group and name, or all with either where it is not given. Returns how many.
    pub fn remove(&mut self, group: Option<&str>, event: Option<&str>) -> usize {
        let before = self.events.len();
        let gone = self.events.extract_if(.., |candidate| matches(&candidate.definition, group, event));
        self.removed.extend(gone.map(|event| {
            drop(event.probe);
            (event.number, event.definition)
        }));
        let rings = self.rings;
        self.removed.retain(|&(number, _)| rings.holds(number));
        before - self.events.len()
    }

    /// Arms or disarms the events of this group, if one is given, and name. Returns how many there are.
    ///
    /// # Errors
    ///
    /// Those of [`Armed::set_enabled`], for the first event that has one.
    pub fn set_enabled(&self, group: Option<&str>, event: &str, enabled: bool) -> Result<usize, P::Error> {
        let mut count = 0;
        for candidate in self.events.iter().filter(|candidate| matches(&candidate.definition, group, Some(event))) {
            candidate.probe.set_enabled(enabled)?;
            count += 1;
        }
        Ok(count)
    }

    /// The events, in the order in which they were defined.
    pub fn iter(&self) -> impl Iterator<Item = &Event<P>> {
        self.events.iter()
    }

    /// Empties the rings.
    pub fn clear_trace(&mut self) {
        self.rings.clear();
        self.removed.clear();
    }

    /// Writes `kprobe_events`: the definitions, each as it could be typed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_definitions(&self, out: &mut dyn Write) -> fmt::Result {
        self.events.iter().try_for_each(|event| writeln!(out, "{}", event.definition))
    }

    /// Writes `kprobe_profile`: each event with its hits and the hits that were missed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_profile(&self, out: &mut dyn Write) -> fmt::Result {
        self.events.iter().try_for_each(|event| {
            text::write_profile(out, &event.definition.event, event.probe.hits(), event.probe.missed())
        })
    }

    /// Writes `trace`: the newest `limit` records, oldest first, of a machine that runs `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// Those of `out`; also where there is no memory for a copy of the records.
    pub fn write_trace(
        &self,
        out: &mut dyn Write,
        limit: usize,
        cpus: usize,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> fmt::Result {
        let snapshot = self.rings.snapshot().map_err(|_| fmt::Error)?;
        text::write_header(out, snapshot.records.len(), snapshot.written, cpus)?;
        for (cpu, &lost) in snapshot.lost.iter().enumerate().filter(|&(_, &lost)| lost > 0) {
            text::write_lost(out, cpu, lost)?;
        }
        let skipped = snapshot.records.len().saturating_sub(limit);
        snapshot
            .records
            .iter()
            .skip(skipped)
            .try_for_each(|record| text::write_record(out, record, self.definition_of(record.event), symbols, clock))
    }

    fn definition_of(&self, number: u32) -> Option<&Definition> {
        let present = self.events.iter().map(|event| (event.number, &event.definition));
        let removed = self.removed.iter().map(|(number, definition)| (*number, definition));
        present.chain(removed).find(|&(other, _)| other == number).map(|(_, definition)| definition)
    }
}

fn matches(definition: &Definition, group: Option<&str>, event: Option<&str>) -> bool {
    group.is_none_or(|group| group == definition.group) && event.is_none_or(|event| event == definition.event)
}

/// The virtual address of `place`.
///
/// # Errors
///
/// No function, or more than one, has the name; or the offset leads out of it.
pub fn resolve<E>(place: &Place, symbols: &dyn Symbols) -> Result<u64, EventError<E>> {
    let base = match &place.base {
        Base::Address(address) => return Ok(address.wrapping_add(place.offset)),
        Base::Symbol(name) => name,
    };
    let mut found: Option<Function<'_>> = None;
    let mut count = 0;
    symbols.find(base, &mut |function| {
        count += 1;
        found.get_or_insert(function);
    });
    let refuse = |refusal, column| Err(EventError { refusal, column });
    match found {
        None => refuse(Refusal::UnknownSymbol, place.column),
        Some(_) if count > 1 => refuse(Refusal::Ambiguous { count }, place.column),
        Some(function) if place.offset >= function.size => {
            refuse(Refusal::PastEnd { size: function.size }, place.offset_column)
        }
        Some(_) if !place.offset.is_multiple_of(4) => refuse(Refusal::Misaligned, place.offset_column),
        Some(function) => Ok(function.address + place.offset),
    }
}

#[cfg(test)]
mod tests;
