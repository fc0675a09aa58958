//! The events that stand for the commands of functions: one for each function that has any, at its entry, without
//! fields. It is never recorded; its triggers are the commands.

use alloc::boxed::Box;

use fallible::{Arc, OutOfMemory};

use super::{Armed, Event, Events, Unplaced};
use crate::definition::{Definition, EventKind};
use crate::format::{Format, Shape};
use crate::host::Symbols;
use crate::recorder::Recorder;

impl<P> Event<P> {
    /// Whether it stands for the commands of a function.
    pub(crate) fn is_of_commands(&self) -> bool {
        self.definition.kind == EventKind::Command
    }
}

impl<P: Armed> Events<P> {
    /// Returns the event for the commands of the function at the virtual address `function`.
    pub(crate) fn of_commands(&self, function: u64) -> Option<&Event<P>> {
        self.events.iter().find(|event| event.is_of_commands() && event.address == function)
    }

    /// Adds the event for the commands of the function at the virtual address `function`, which has none. Returns
    /// the reason if the engine refuses the probe.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub(crate) fn add_of_commands(
        &mut self,
        function: u64,
        symbols: &dyn Symbols,
    ) -> Result<Result<(), P::Error>, OutOfMemory> {
        let definition = Definition::of_commands(function)?;
        let format = Format::new(Shape::Probe, [])?;
        let number = self.free_number().ok_or(OutOfMemory)?;
        let recorder = Arc::try_new(Recorder::new(number, &format, &[], Box::default(), None, self.rings)?)?;
        let mut event = Event::new(number, function, definition, format, recorder);
        match self.register(&mut event, None, symbols, false) {
            Ok(probe) => {
                self.push(Event { probe: Some(probe), ..event });
                Ok(Ok(()))
            }
            Err(Unplaced::OutOfMemory) => Err(OutOfMemory),
            Err(Unplaced::Refused(error)) => Ok(Err(error)),
        }
    }

    /// Removes the events for commands that are not `is_kept`.
    pub(crate) fn retain_of_commands(&mut self, is_kept: &dyn Fn(&Event<P>) -> bool) {
        self.events.retain(|event| !event.is_of_commands() || is_kept(event));
    }
}
