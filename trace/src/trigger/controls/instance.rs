//! The events of an instance: the same definitions as in the main trace, each with a probe and settings of its own.

use fallible::OutOfMemory;

use super::Controls;
use crate::definition::{self, Command, synthetic};
use crate::events::{Armed, Events, Listed};
use crate::host::Symbols;
use crate::text::is_shown_as;

/// Why an instance has not all definitions of the main trace.
#[derive(Debug)]
pub enum FollowError {
    /// This one is refused in the instance.
    Refused(definition::Error),
    /// There is no memory for one.
    OutOfMemory,
}

impl From<OutOfMemory> for FollowError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl Controls {
    /// Gives `events` the definitions that `main` has, with the same numbers where they are free, and takes away those
    /// that it has not, whether they are in use or not. Each new one is disabled, unless other probes of its event are
    /// enabled.
    ///
    /// # Errors
    ///
    /// Returns why the first definition that is lacking cannot be added. Those before it are there.
    pub fn follow<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        main: &Events<P>,
        symbols: &dyn Symbols,
    ) -> Result<(), FollowError> {
        let defined = |events: &Events<P>, text: &str| {
            events.iter().filter(|event| !event.is_static()).any(|event| is_shown_as(&Listed(event), text))
        };
        while let Some(number) = events.position_of_defined(&|text| !defined(main, text))? {
            events.take(number);
        }
        self.forget(events);
        for event in main.iter().filter(|event| !event.is_static()) {
            let text = fallible::format(format_args!("{}", Listed(event)))?;
            if defined(events, &text) {
                continue;
            }
            events.prefer_number(event.number());
            if event.is_synthetic() {
                let parsed = synthetic::parse_dynamic(&text).map_err(|_| FollowError::OutOfMemory)?;
                if let synthetic::Command::Define(definition) = parsed {
                    events.define_synthetic(definition).map_err(|_| FollowError::OutOfMemory)?;
                }
            } else if let Some(Command::Define(definition)) = definition::parse(&text).map_err(FollowError::Refused)? {
                self.define(events, definition, symbols).map_err(FollowError::Refused)?;
            }
        }
        Ok(())
    }
}
