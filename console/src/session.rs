//! The state that commands work on.

use alloc::vec::Vec;

use aarch64_kprobes::Kprobe;
use kprobes_trace::engine::Probe;
use kprobes_trace::errno::Errno;
use kprobes_trace::events::Events;

use crate::input;
use crate::instances::Instances;
use crate::line_editor::LineEditor;
use crate::tracer::Tracing;
use crate::tracing::{self, Event};

/// The prompt before a line.
pub(crate) const PROMPT: &str = "kprobes> ";

/// The state that commands work on.
pub struct Session {
    /// The events of the kernel's trace.
    pub(crate) events: Events<Probe>,
    /// The tracer that is set, with its settings.
    pub(crate) tracing: Tracing,
    /// The other traces, each with its own events and tracer.
    pub(crate) instances: Instances,
    /// The probes that `everything` registered on every instruction.
    pub(crate) everything: Vec<Kprobe>,
    pub(crate) editor: LineEditor,
    /// The number of lost bytes of input that no line is refused for any more.
    pub(crate) lost: u64,
    /// Whether a command runs this session as a nested console, until [`exit`](crate::dialog::exit).
    pub(crate) is_lent: bool,
    /// Whether the current line was refused by a command that has already shown why.
    pub(crate) is_refused: bool,
    /// Whether the previous line was refused: the value of `$?`.
    pub(crate) was_refused: bool,
}

impl Session {
    /// Creates a session with the static events of the image.
    ///
    /// # Panics
    ///
    /// Panics if there is no memory for the rings and the events.
    pub(crate) fn new() -> Self {
        let mut events = tracing::events(tracing::rings()).expect("there is memory for what readers take");
        events.add_all_static().expect("there is memory for the events of the kernel");
        Self {
            events,
            tracing: Tracing::default(),
            instances: Instances::default(),
            everything: Vec::new(),
            editor: LineEditor::new(PROMPT),
            lost: input::lost(),
            is_lent: false,
            is_refused: false,
            was_refused: false,
        }
    }

    /// Returns whether the event is in use, in this trace or in an instance.
    pub(crate) fn is_busy(&self, event: &Event) -> bool {
        self.events.is_busy(event) || self.instances.have_busy(event)
    }

    /// Runs `act` with the instance `name` in the place of the kernel's trace.
    ///
    /// # Errors
    ///
    /// No instance has this name.
    pub(crate) fn within_instance<T>(&mut self, name: &str, act: impl FnOnce(&mut Self) -> T) -> Result<T, Errno> {
        let number = self.instances.position(name)?;
        self.exchange_instance(number);
        let done = act(self);
        self.exchange_instance(number);
        Ok(done)
    }

    fn exchange_instance(&mut self, number: usize) {
        self.instances.exchange(number, &mut self.events, &mut self.tracing);
    }

    /// Returns the event, of any instance, whose probe was registered with `data`.
    pub(crate) fn event_of(&self, data: usize) -> Option<&Event> {
        self.events.iter().chain(self.instances.events()).find(|event| event.data() == data)
    }
}
