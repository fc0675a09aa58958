//! The commands of functions: what a function does to the trace when it is called (Linux:
//! Documentation/trace/ftrace.rst, "Filter commands"). A command is a trigger of an event that stands for the commands
//! of its function.

use super::triggers::target;
use super::{Controls, name};
use crate::errno::Errno;
use crate::events::{Armed, Event, Events};
use crate::host::Symbols;
use crate::trigger::settings::Settings;
use crate::trigger::{Request, Trigger, TriggerKind};

impl Controls {
    /// Gives each of the functions at these virtual addresses the command `text`: `traceon`, `traceoff`, `snapshot`,
    /// `stacktrace`, `enable_event:GROUP:EVENT` or `disable_event:GROUP:EVENT`, with `:COUNT` to carry it out at most
    /// COUNT times. A function that has the command keeps it as it is. `refused` gets the reason of each function that
    /// cannot be probed.
    ///
    /// # Errors
    ///
    /// Fails if the text is no command, if no function can be probed, or if there is no memory. Then nothing has
    /// changed.
    pub fn add_command<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        functions: &[u64],
        text: &str,
        symbols: &dyn Symbols,
        refused: &mut dyn FnMut(P::Error),
    ) -> Result<(), Errno> {
        let request = command(text)?;
        let mut add = || {
            let mut draft = self.draft()?;
            let mut is_any = false;
            for &function in functions {
                if events.of_commands(function).is_none()
                    && let Err(error) = events.add_of_commands(function, symbols)?
                {
                    refused(error);
                    continue;
                }
                let Some(event) = events.of_commands(function) else { continue };
                let target = target(events, &mut draft, &request.kind)?;
                is_any = true;
                draft.get_mut(name(event))?.add_command(&request, events.rings(), target)?;
            }
            if !is_any {
                return Err(Errno::Invalid);
            }
            draft.retarget();
            self.commit(events, draft, self.disarmed)?;
            if request.kind.takes_snapshots() {
                events.allocate_snapshot();
            }
            Ok(())
        };
        let added = add();
        added.inspect_err(|_| self.drop_without_command(events))
    }

    /// Takes the command `text` from those of the functions at these virtual addresses that have it. With a count, the
    /// command is meant that has one, whatever it is.
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
            is_any |= draft.get_mut(name(event))?.remove_command(&request);
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

    /// Drops the events of functions that have no command any more.
    fn drop_without_command<P: Armed>(&mut self, events: &mut Events<P>) {
        events.retain_of_commands(&|event| self.commands_of(event).next().is_some());
        self.forget(events);
    }
}

/// Parses a command. It has neither a filter nor the parameters of a histogram.
fn command(text: &str) -> Result<Request, Errno> {
    let request = Request::parse(text, &[]).map_err(|_| Errno::Invalid)?;
    match request {
        Request { kind: TriggerKind::Histogram(_) | TriggerKind::Histograms { .. }, .. }
        | Request { filter: Some(_), .. }
        | Request { remove: true, .. } => Err(Errno::Invalid),
        request => Ok(request),
    }
}
