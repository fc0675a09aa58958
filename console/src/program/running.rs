//! Runs a program: starts its probes and its tasks, shows its output, and ends it.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;
use core::time::Duration;

use aarch64_kprobes::probe::Registration;
use fallible::{Arc, OutOfMemory};
use kprobes_program::config::Missing;
use kprobes_program::syntax::Probe;
use kprobes_symbols::Symbol;

use super::alone::{self, Intervals};
use super::attach::{self, AttachedProbes};
use super::detached::DetachedProgram;
use super::load::{Options, Read, Wanted, read};
use super::machine_code::Reason;
use super::refusal::{ProgramRefusal, none_reached};
use super::samples::Samples;
use super::shared::Shared;
use super::snippets::Snippets;
use super::watch::{AttachedWatchpoints, WatchpointError};
use super::watchpoints::Ended;
use crate::{symbol, time};

/// The condition for [`RunningProgram::start_unless`] that never stops it.
const GO_ON: &dyn Fn() -> bool = &|| false;

/// A running program. Dropping it ends it without running its `END`, and shows nothing.
pub struct RunningProgram {
    // The samples and the probes are dropped before the fields below, which their handlers use.
    samples: Samples,
    pub(super) attached: AttachedProbes,
    pub(super) watchpoints: AttachedWatchpoints,
    tasks: Tasks,
    pub(super) shared: Arc<Shared>,
}

/// The part of a program that runs besides its probes. Dropping it ends that part.
struct Tasks {
    intervals: Option<Intervals>,
    shared: Arc<Shared>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.shared.ending.store(time::nanoseconds(), Ordering::Relaxed);
        if let Some(intervals) = self.intervals.take() {
            intervals.end(&self.shared);
        }
    }
}

/// Drains the output of a program while it runs, from a task.
#[derive(Clone, Debug)]
pub struct Reader(Arc<Shared>);

impl Reader {
    /// Writes the output so far: see [`RunningProgram::drain`].
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn drain(&self, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        self.0.drain(out)
    }

    /// Returns whether the program is ending. What its clauses still write, and the output of `END`, is left to
    /// [`DetachedProgram::finish`].
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.0.is_ending()
    }
}

impl RunningProgram {
    /// Parses a program, runs its `BEGIN`, and enables its probes.
    ///
    /// # Errors
    ///
    /// Returns the problem with the program, or the reason why one of its probes reaches nothing; the program has had
    /// no effect then. If the probes, the watchpoints, the samples or the `interval:` clauses cannot be started after
    /// all, returns an error after `BEGIN` has run; they have ended then.
    pub fn start(text: &str) -> Result<Self, ProgramRefusal> {
        Self::start_unless(text, Options::default(), GO_ON)
    }

    /// Starts a program whose clauses are all interpreted, for comparison with compiled clauses.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`start`](Self::start).
    pub fn interpret(text: &str) -> Result<Self, ProgramRefusal> {
        Self::start_unless(text, Options { is_interpreted: true, ..Options::default() }, GO_ON)
    }

    /// Starts a program with `options`, unless `is_stopped` becomes true, as it does when ^C is pressed: registering
    /// many probes takes long. If it becomes true before `BEGIN` has run, the program is refused. If it becomes true
    /// later, nothing is probed, watched or sampled, and the caller has to end the program.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`start`](Self::start), or a refusal that [is stopped](ProgramRefusal::is_stopped).
    pub fn start_unless(
        text: &str,
        options: Options<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self, ProgramRefusal> {
        let mut program = Self::prepare(text, options, is_stopped)?;
        let Self { samples, attached, tasks, shared, .. } = &mut program;
        alone::run(shared, |probe| *probe == Probe::Begin);
        // Asked once: probes, watchpoints and samples start together or not at all.
        if !is_stopped() {
            attached.enable().map_err(ProgramRefusal::new)?;
            shared.watchpoints.enable().map_err(ProgramRefusal::new)?;
            // SAFETY: `shared` is in an `Arc`, so it does not move. `RunningProgram` drops the field with the samples
            // before the `Arc`, and `detach` keeps this order.
            let sampled = unsafe { samples.start(shared) };
            sampled.map_err(ProgramRefusal::new)?;
        }
        tasks.intervals = Some(alone::start_intervals(shared)?);
        Ok(program)
    }

    /// Checks and compiles a program, and registers its probes without enabling them, unless `is_stopped` becomes true.
    /// No clause runs, and no instruction of the kernel is changed.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`start_unless`](Self::start_unless) that are found before `BEGIN` runs.
    pub fn prepare(text: &str, options: Options<'_>, is_stopped: &dyn Fn() -> bool) -> Result<Self, ProgramRefusal> {
        Self::register(fallible::boxed(read(text, options)?)?, options, is_stopped)
    }

    /// Does the rest of [`prepare`](Self::prepare) for a program that is checked.
    #[inline(never)]
    fn register(
        checked: Box<Read>,
        options: Options<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self, ProgramRefusal> {
        let is_interpreted = options.is_interpreted;
        let (shared, Wanted { places, watched, spans }) = Shared::load(checked, options)?;
        // From here on, `shared` must not move, because generated code contains addresses in it.
        let mut shared = Arc::try_new(shared)?;
        let snippets = match Arc::get_mut(&mut shared) {
            Some(shared) if !is_interpreted => Snippets::of(shared, &places)?,
            _ => Snippets::default(),
        };
        // SAFETY: `shared` is in an `Arc`, so it does not move. `RunningProgram` drops the field with the probes before
        // the `Arc`, and `detach` keeps this order.
        let attached = unsafe { attach::attach(&raw const *shared, places, snippets, is_interpreted, is_stopped) }?;
        let missing = shared.program.config.missing;
        let first = attached.refused.probes.first();
        if let (Some((probe, why)), Missing::Error) = (first, missing) {
            return Err(ProgramRefusal::at(why, spans.get(*probe).copied().unwrap_or_default()));
        }
        if attached.count() + shared.alone.len() + shared.sampled.len() + watched.len() == 0 {
            let first = first.filter(|_| missing == Missing::Warning);
            return Err(none_reached(first.map(|(_, why)| why.as_str())));
        }
        let watchpoints = AttachedWatchpoints::register(&shared, &watched).map_err(|error| match error {
            WatchpointError::OutOfMemory => OutOfMemory.into(),
            WatchpointError::Refused { probe, why } => {
                ProgramRefusal::at(why, spans.get(probe).copied().unwrap_or_default())
            }
        })?;
        let samples = Samples::prepare(&shared).map_err(|why| {
            let refused = why.place(shared.sampled.iter().map(|sampled| sampled.period));
            let span = refused.and_then(|place| spans.get(shared.sampled.get(place)?.probe));
            ProgramRefusal::at(why, span.copied().unwrap_or_default())
        })?;
        let tasks = Tasks { intervals: None, shared: shared.clone() };
        Ok(Self { samples, attached, watchpoints, tasks, shared })
    }

    /// Writes the number of probes, if the form of the output has an object for it.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write_attached(&self, out: &mut dyn Write) -> fmt::Result {
        self.shared.format.write_attached(self.probes(), out)
    }

    /// Returns the number of probes, including those of clauses that run at no hit.
    #[must_use]
    pub fn probes(&self) -> usize {
        self.attached.count() + self.watchpoints.count() + self.shared.alone.len() + self.shared.sampled.len()
    }

    /// Returns the probes on code.
    pub fn registrations(&self) -> impl Iterator<Item = &Registration> {
        self.attached.probes()
    }

    /// Returns the functions that a probe means, but in which it reaches no instruction. Each is returned once, in the
    /// order of the addresses.
    pub fn refused(&self) -> impl Iterator<Item = Symbol<'static>> {
        self.attached.refused.functions.iter().copied().filter_map(symbol::lookup)
    }

    /// Returns the virtual addresses of the instructions that a probe means, but cannot reach, in functions in which it
    /// reaches others. Each is returned once, in ascending order.
    #[must_use]
    pub fn refused_instructions(&self) -> &[usize] {
        &self.attached.refused.instructions
    }

    /// Returns the number of inlined copies that are not probed, because no instruction marks their entry or exit.
    #[must_use]
    pub fn untold(&self) -> usize {
        self.shared.untold
    }

    /// Returns a line about each probe that reaches nothing, if the settings of the program ask for a warning, and
    /// about each probe that reaches another line than the program names.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.shared.warnings
    }

    /// Returns the reason why code that has interrupts masked is not sampled; `None` if it is sampled, or if the
    /// program takes no samples.
    #[must_use]
    pub fn unmasked_only(&self) -> Option<&'static str> {
        self.samples.unmasked_only()
    }

    /// Returns the numbers of the clauses, from 0, that are interpreted because they could not be compiled, with the
    /// reason. Empty if interpretation was requested.
    #[must_use]
    pub fn interpreted(&self) -> &[(usize, Reason)] {
        &self.attached.clauses.interpreted
    }

    /// Returns the number of compiled handlers.
    #[must_use]
    pub fn handlers(&self) -> usize {
        self.attached.clauses.count()
    }

    /// Returns whether the program has ended itself by `exit()`.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.store.is_over()
    }

    /// Returns a reader for the output.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader(self.shared.clone())
    }

    /// Writes the output since the last call, and carries out the actions on maps that it requests. Returns whether the
    /// program asked to exit.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn drain(&self, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        self.shared.drain(out)
    }

    /// Runs the `interval:` clauses that are due, if the kernel has no tasks to run them. Returns how long to sleep
    /// until the next call.
    pub fn turn(&mut self) -> Duration {
        self.tasks.intervals.as_mut().map_or(Duration::ZERO, |intervals| intervals.turn(&self.shared))
    }

    /// Unregisters the probes and ends the tasks. No clause but `END` runs after that. Returns the rest of the program.
    pub fn detach(self) -> DetachedProgram {
        let Self { samples, attached, watchpoints, tasks, shared } = self;
        samples.end(&shared);
        let Ended { missed, given_up } = watchpoints.end();
        let mut unseen = attached.detach();
        unseen.hits += missed;
        drop(tasks);
        DetachedProgram { shared, unseen, given_up }
    }

    /// Ends the program: runs its `END`, and writes the rest of its output and its maps, followed by what it missed and
    /// lost.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn finish(self, out: &mut dyn Write) -> fmt::Result {
        self.detach().finish(out)
    }
}
