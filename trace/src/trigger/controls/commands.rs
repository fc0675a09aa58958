//! The commands of functions: what a function does to the trace when it is called (Linux:
//! Documentation/trace/ftrace.rst, "Filter commands"). A command is a trigger of the event behind the function's
//! commands.

use super::triggers::switch;
use super::{Controls, name};
use crate::errno::Errno;
use crate::events::{Armed, Event, Events};
use crate::host::Symbols;
use crate::trigger::settings::{SetError, Settings};
use crate::trigger::{Kind, Request, Trigger};

impl Controls {
    /// Gives each of the functions at these virtual addresses the command `text`: `traceon`, `traceoff`, `snapshot`,
    /// `stacktrace`, `enable_event:GROUP:EVENT` or `disable_event:GROUP:EVENT`, with `:COUNT` to carry it out so often
    /// at most. A function that has the command keeps it as it is. `refused` gets the reason of each function that cannot
    /// be probed.
    ///
    /// # Errors
    ///
    /// Fails if the text is no command, if a function has the opposite command, if no function can be probed, or if
    /// there is no memory. Then nothing has changed.
    pub fn add_command<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        functions: &[u64],
        text: &str,
        symbols: &dyn Symbols,
        refused: &mut dyn FnMut(P::Error),
    ) -> Result<(), Errno> {
        command(text)?;
        let added = self.try_add_command(events, functions, text, symbols, refused);
        if added.is_err() {
            self.drop_without_command(events);
        }
        added
    }

    fn try_add_command<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        functions: &[u64],
        text: &str,
        symbols: &dyn Symbols,
        refused: &mut dyn FnMut(P::Error),
    ) -> Result<(), Errno> {
        let mut draft = self.draft()?;
        let room = self.room(events);
        let mut is_any = false;
        for &function in functions {
            if events.of_commands(function).is_none()
                && let Err(error) = events.add_of_commands(function, symbols)?
            {
                refused(error);
                continue;
            }
            let Some(event) = events.of_commands(function) else { continue };
            let request = command(text)?;
            let switch = switch(events, &mut draft, &request.kind)?;
            is_any = true;
            match draft.get_mut(name(event))?.set_trigger(request, room, switch) {
                Ok(()) => {}
                // It has it already, or the opposite.
                Err(SetError::Exists) if self.has_command(event, text)? => {}
                Err(SetError::Exists) => return Err(Errno::Exists),
                Err(SetError::Memory | SetError::Histogram(_)) => return Err(Errno::NoMemory),
            }
        }
        if !is_any {
            return Err(Errno::Invalid);
        }
        draft.retarget();
        self.commit(events, draft, self.disarmed)
    }

    /// Takes the command `text` from those of the functions at these virtual addresses that have it, whatever its count
    /// is.
    ///
    /// # Errors
    ///
    /// Fails if the text is no command, if none of them has it, or if there is no memory.
    pub fn remove_command<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        functions: &[u64],
        text: &str,
    ) -> Result<(), Errno> {
        let request = command(text)?;
        let mut draft = self.draft()?;
        let mut is_any = false;
        for event in functions.iter().filter_map(|&function| events.of_commands(function)) {
            is_any |= draft.get_mut(name(event))?.remove_trigger(&request).is_some();
        }
        if !is_any {
            return Err(Errno::Invalid);
        }
        draft.retarget();
        self.commit(events, draft, self.disarmed)?;
        self.drop_without_command(events);
        Ok(())
    }

    /// Returns the commands of all functions, each with the virtual address of its function.
    pub fn commands<P: Armed>(&self, events: &Events<P>) -> impl Iterator<Item = (u64, &Trigger)> {
        let functions = events.all().filter(|event| event.is_of_commands());
        functions.flat_map(|event| self.commands_of(event).map(|command| (event.address(), command)))
    }

    fn commands_of<P: Armed>(&self, event: &Event<P>) -> impl Iterator<Item = &Trigger> {
        self.get(name(event)).map_or(&[][..], Settings::triggers).iter().map(|trigger| &**trigger)
    }

    fn has_command<P: Armed>(&self, event: &Event<P>, text: &str) -> Result<bool, Errno> {
        let request = command(text)?;
        Ok(self.get(name(event)).is_some_and(|settings| settings.has_trigger(&request)))
    }

    /// Drops the events behind commands that have none.
    fn drop_without_command<P: Armed>(&mut self, events: &mut Events<P>) {
        events.retain_of_commands(&|event| self.commands_of(event).next().is_some());
        self.forget(events);
    }
}

/// Parses a command. It has neither a filter nor the parameters of a histogram.
fn command(text: &str) -> Result<Request, Errno> {
    let request = Request::parse(text, &[]).map_err(|_| Errno::Invalid)?;
    match request {
        Request { kind: Kind::Histogram(_), .. } | Request { filter: Some(_), .. } | Request { remove: true, .. } => {
            Err(Errno::Invalid)
        }
        request => Ok(request),
    }
}
