//! The lists of events as files show them: `kprobe_events`, `synthetic_events`, `dynamic_events`, and their counts.

use core::fmt::{self, Write};

use super::{Event, Events, RegisteredProbe};
use crate::definition::{Definition, Family};
use crate::text;

/// A defined event as `dynamic_events` lists it, in a form that can be typed again.
pub(crate) struct Listed<'a, P>(pub &'a Event<P>);

impl<P: RegisteredProbe> fmt::Display for Listed<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(event) = self;
        write!(f, "{}", event.definition)?;
        if event.is_synthetic() {
            f.write_char('\t')?;
            event.format.write_fields(f)?;
        }
        Ok(())
    }
}

impl<P: RegisteredProbe> Events<P> {
    /// Writes the file `kprobe_events`: each definition in a form that can be typed again.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_definitions(&self, out: &mut dyn Write) -> fmt::Result {
        self.probes_of(Some(Family::Kprobe)).try_for_each(|event| writeln!(out, "{}", event.definition))
    }

    /// Writes the file `synthetic_events`: the name and the fields of each synthetic event.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_synthetic(&self, out: &mut dyn Write) -> fmt::Result {
        self.events.iter().filter(|event| event.is_synthetic()).try_for_each(|event| {
            write!(out, "{}\t", event.definition.event)?;
            event.format.write_fields(out)?;
            out.write_char('\n')
        })
    }

    /// Writes the file `dynamic_events`: all definitions.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_all_definitions(&self, out: &mut dyn Write) -> fmt::Result {
        self.iter().filter(|event| !event.is_static()).try_for_each(|event| writeln!(out, "{}", Listed(event)))
    }

    /// Writes the file `kprobe_profile`: each probe with its hits and its missed hits.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_profile(&self, out: &mut dyn Write) -> fmt::Result {
        self.probes_of(Some(Family::Kprobe))
            .try_for_each(|event| text::write_profile(out, &event.definition.event, event.hits(), event.missed()))
    }

    /// Writes the file `trace_stat/events`: each static event with its hits and its missed hits, if there were any. The
    /// counts stay when the event is disabled, although its probe is removed.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_static_profile(&self, out: &mut dyn Write) -> fmt::Result {
        text::write_static_profile_header(out)?;
        let happened = |event: &&Event<P>| event.is_static() && (event.hits(), event.missed()) != (0, 0);
        self.events.iter().filter(happened).try_for_each(|event| {
            let Definition { group, event: name, .. } = &event.definition;
            text::write_static_profile(out, group, name, event.hits(), event.missed())
        })
    }
}
