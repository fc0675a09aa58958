//! The events of an instance: the same definitions as in the main trace, each with a probe and settings of its own.

use fallible::OutOfMemory;

use super::{Event, Events, Listed, RegisteredProbe};
use crate::definition::{self, Command, synthetic};
use crate::symbols::Symbols;

/// Why an instance has not all definitions of the main trace.
#[derive(Debug)]
pub enum DefineError {
    /// The definition of this probe is refused in the instance.
    Probe(definition::Error),
    /// The definition of this synthetic event is refused in the instance.
    Synthetic(synthetic::Problem),
    /// There is no memory for one.
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
    /// Gives this list the definitions that `main` has, with the same numbers where they are free, and takes away those
    /// that it has not, whether they are in use or not. Each new one is disabled, unless other probes of its event are
    /// enabled.
    ///
    /// # Errors
    ///
    /// Returns why the first definition that is lacking cannot be added. Those before it are there.
    pub fn copy_definitions(&mut self, main: &Self, symbols: &dyn Symbols) -> Result<(), DefineError> {
        while let Some(number) = self.position_of_foreign(main) {
            self.take(number);
        }
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
            let parsed = synthetic::parse_dynamic(&text).map_err(|error| DefineError::Synthetic(error.problem))?;
            let synthetic::Command::Define(definition) = parsed else { return Ok(()) };
            return self.define_synthetic(definition).map_err(DefineError::Synthetic);
        }
        match definition::parse(&text)? {
            Some(Command::Define(definition)) => Ok(self.define(definition, symbols)?),
            _ => Ok(()),
        }
    }
}
