//! Defining and removing synthetic events.

use alloc::boxed::Box;
use core::mem;

use fallible::{Arc, OutOfMemory};

use super::{Event, Events, RegisteredProbe};
use crate::definition::synthetic::{self, Synthetic};
use crate::definition::{Definition, Problem};
use crate::format::Format;
use crate::recorder::Recorder;
use crate::ring::{RECORD_HEADER, RECORD_MAX};

impl<P: RegisteredProbe> Events<P> {
    /// Defines a synthetic event, which is then disabled.
    ///
    /// # Errors
    ///
    /// Fails if a synthetic event has this name, if its records would be too large, or if there is no memory.
    pub fn define_synthetic(&mut self, definition: Synthetic) -> Result<(), synthetic::Problem> {
        if self.has_synthetic(&definition.name) {
            return Err(synthetic::Problem::Exists);
        }
        self.try_define_synthetic(definition).map_err(|OutOfMemory| synthetic::Problem::OutOfMemory)?
    }

    /// Whether a synthetic event has this name.
    #[must_use]
    pub fn has_synthetic(&self, name: &str) -> bool {
        self.events.iter().any(|event| event.is_synthetic() && event.definition.event == name)
    }

    fn try_define_synthetic(
        &mut self,
        mut definition: Synthetic,
    ) -> Result<Result<(), synthetic::Problem>, OutOfMemory> {
        let name = mem::take(&mut definition.name);
        let format = Format::of_synthetic(definition)?;
        if RECORD_HEADER + format.size() > RECORD_MAX {
            return Ok(Err(synthetic::Problem::TooManyFields));
        }
        let definition = Definition::of_synthetic(name)?;
        let number = self.free_number().ok_or(OutOfMemory)?;
        let recorder = Arc::try_new(Recorder::new(number, &format, &[], Box::default(), None, self.rings)?)?;
        self.reserve()?;
        self.push(Event::new(number, 0, definition, format, recorder));
        Ok(Ok(()))
    }

    /// Removes the synthetic event of this name; `None` removes all. Returns how many there were. `is_used` says
    /// whether an event is in use in another trace.
    ///
    /// # Errors
    ///
    /// Returns [`Problem::Busy`] if one of the events is in use, or if another event is on one of them. Then no event
    /// is removed.
    pub fn remove_synthetic(
        &mut self,
        name: Option<&str>,
        is_used: &dyn Fn(&Event<P>) -> bool,
    ) -> Result<usize, Problem> {
        let is_meant =
            |event: &Event<P>| event.is_synthetic() && name.is_none_or(|name| event.definition.event == name);
        let is_in_use = |event: &Event<P>| self.is_busy(event) || is_used(event) || self.has_dependents(event);
        if self.events.iter().any(|event| is_meant(event) && is_in_use(event)) {
            return Err(Problem::Busy);
        }
        Ok(self.take_all(is_meant))
    }
}
