//! The events of an instance: the same definitions as in the main trace, each with a probe and settings of its own.

use fallible::OutOfMemory;

use super::{Event, Events, Listed, RegisteredProbe};
use crate::definition::{self, Command, synthetic};
use crate::symbols::Symbols;

/// Why an instance lacks a definition of the main trace.
#[derive(Debug)]
pub enum DefineError {
    /// The definition of this probe is refused in the instance.
    Probe(definition::Error),
    /// The definition of this synthetic event is refused in the instance.
    Synthetic(synthetic::Problem),
    /// There is no memory for a definition.
    OutOfMemory,
}

impl From<OutOfMemory> for DefineError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<definition::Error> for DefineError {
    fn from(error: definition::Error) -> Self {
        Self::Probe(error)
    }
}

impl<P: RegisteredProbe> Events<P> {
    /// Copies the definitions of `main` to this list, with the same numbers where they are free, and removes all
    /// others, even if they are in use. A new event is disabled; a new probe of an enabled event is enabled.
    ///
    /// # Errors
    ///
    /// Returns why a definition cannot be added. The definitions before it have been added.
    pub fn copy_definitions(&mut self, main: &Self, symbols: &dyn Symbols) -> Result<(), DefineError> {
        while let Some(number) = self.position_of_foreign(main) {
            self.take(number);
        }
        self.drop_formats();
        self.drop_settings();
        for event in main.iter().filter(|event| !event.is_static()) {
            if !self.has_definition(event.serial()) {
                self.prefer(event);
                self.define_like(event, symbols)?;
            }
        }
        Ok(())
    }

    /// Defines an event as `event` is defined.
    fn define_like(&mut self, event: &Event<P>, symbols: &dyn Symbols) -> Result<(), DefineError> {
        let text = fallible::format(format_args!("{}", Listed(event)))?;
        if event.is_synthetic() {
            let parsed =
                synthetic::parse_dynamic(&text, &|_| false).map_err(|error| DefineError::Synthetic(error.problem))?;
            let synthetic::Command::Define(definition) = parsed else { return Ok(()) };
            return self.define_synthetic(definition).map_err(DefineError::Synthetic);
        }
        match definition::parse(&text)? {
            Some(Command::Define(definition)) => Ok(self.define(definition, symbols)?),
            _ => Ok(()),
        }
    }
}
