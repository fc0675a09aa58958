//! The commands of functions: what a function does to the trace when it is called (Linux:
//! Documentation/trace/ftrace.rst, "Filter commands").
//!
//! An event stands for the commands of a function, one for each function that has any, at its entry, without fields. It
//! is never recorded; its triggers are the commands.

use alloc::boxed::Box;

use fallible::{Arc, OutOfMemory};

use super::controls::name;
use super::{Event, Events, RegisteredProbe, Unplaced};
use crate::definition::{Definition, EventKind};
use crate::errno::Errno;
use crate::format::{Format, Shape};
use crate::recorder::Recorder;
use crate::symbols::Symbols;
use crate::trigger::settings::Settings;
use crate::trigger::{Request, Trigger, TriggerKind};

impl<P> Event<P> {
    /// Whether the event stands for the commands of a function.
    pub(crate) fn is_of_commands(&self) -> bool {
        self.definition.kind == EventKind::Command
    }
}

impl<P: RegisteredProbe> Events<P> {
    /// Gives each of the functions at these virtual addresses the command `text`: `traceon`, `traceoff`, `snapshot`,
    /// `stacktrace`, `enable_event:GROUP:EVENT` or `disable_event:GROUP:EVENT`, with `:COUNT` to carry it out at most
    /// COUNT times. A function that has the command already keeps it. `refused` gets the reason for each function that
    /// cannot be probed.
    ///
    /// # Errors
    ///
    /// Fails if the text is no command, if no function can be probed, or if there is no memory. Then nothing has
    /// changed.
    pub fn add_command(
        &mut self,
        functions: &[u64],
        text: &str,
        symbols: &dyn Symbols,
        refused: &mut dyn FnMut(P::Error),
    ) -> Result<(), Errno> {
        let request = command(text)?;
        let mut add = |events: &mut Self| {
            let mut draft = events.draft()?;
            let mut is_any = false;
            for &function in functions {
                if events.of_commands(function).is_none()
                    && let Err(error) = events.add_of_commands(function, symbols)?
                {
                    refused(error);
                    continue;
                }
                let Some(event) = events.of_commands(function) else { continue };
                let target = events.target(&mut draft, &request.kind)?;
                is_any = true;
                draft.get_mut(name(event))?.add_command(&request, events.rings(), target)?;
            }
            if !is_any {
                return Err(Errno::Invalid);
            }
            draft.retarget();
            events.commit(draft)?;
            if request.kind.takes_snapshots() {
                events.allocate_snapshot();
            }
            Ok(())
        };
        add(self).inspect_err(|_| self.drop_without_command())
    }

    /// Removes the command `text` from those of the functions at these virtual addresses that have it. A `text` with a
    /// count removes the command that has a count, whatever the count is.
    ///
    /// # Errors
    ///
    /// Fails if the text is no command, if none of the functions has it, or if there is no memory.
    pub fn remove_command(&mut self, functions: &[u64], text: &str) -> Result<(), Errno> {
        let request = command(text)?;
        let mut draft = self.draft()?;
        let mut is_any = false;
        for event in functions.iter().filter_map(|&function| self.of_commands(function)) {
            is_any |= draft.get_mut(name(event))?.remove_command(&request);
        }
        if !is_any {
            return Err(Errno::Invalid);
        }
        draft.retarget();
        self.commit(draft)?;
        self.drop_without_command();
        Ok(())
    }

    /// Returns the commands of all functions, each with the virtual address of its function.
    pub fn commands(&self) -> impl Iterator<Item = (u64, &Trigger)> {
        let functions = self.all().filter(|event| event.is_of_commands());
        functions.flat_map(|event| self.commands_of(event).map(|command| (event.address(), command)))
    }

    fn commands_of(&self, event: &Event<P>) -> impl Iterator<Item = &Trigger> {
        self.settings(name(event)).map_or(&[][..], Settings::triggers).iter().map(|trigger| &**trigger)
    }

    /// Drops the events of functions that have no command any more.
    fn drop_without_command(&mut self) {
        let Self { events, controls, .. } = self;
        let has_command = |event: &Event<P>| !controls.get(name(event)).map_or(&[][..], Settings::triggers).is_empty();
        events.retain(|event| !event.is_of_commands() || has_command(event));
        self.drop_settings();
    }

    /// Returns the event for the commands of the function at the virtual address `function`.
    fn of_commands(&self, function: u64) -> Option<&Event<P>> {
        self.events.iter().find(|event| event.is_of_commands() && event.address == function)
    }

    /// Adds the event for the commands of the function at the virtual address `function`, which has none. Returns
    /// the reason if the engine refuses the probe.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the event.
    fn add_of_commands(&mut self, function: u64, symbols: &dyn Symbols) -> Result<Result<(), P::Error>, OutOfMemory> {
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
}

/// Parses a command. It has neither a filter nor the parameters of a histogram.
fn command(text: &str) -> Result<Request, Errno> {
    let request = Request::parse(text, &[]).map_err(|_| Errno::Invalid)?;
    match request {
        Request { kind: TriggerKind::Histogram(_) | TriggerKind::Histograms { .. }, .. }
        | Request { filter: Some(_), .. }
        | Request { remove: true, .. } => Err(Errno::Invalid),
        Request { kind: TriggerKind::Stacktrace { .. }, .. } => {
            Ok(Request { kind: TriggerKind::Stacktrace { is_command: true }, ..request })
        }
        request => Ok(request),
    }
}
