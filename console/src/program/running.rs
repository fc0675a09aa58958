//! Runs a program, from its text to its results.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use aarch64_kprobes::probe::Registration;
use fallible::{Arc, OutOfMemory};
use kprobes_program::check::check;
use kprobes_program::checked::Checked;
use kprobes_program::config::Missing;
use kprobes_program::error::{Error, Problem, Span};
use kprobes_program::report::{self, OutputFormat};
use kprobes_program::syntax::{self, Parameters, Probe};
use kprobes_symbols::Symbol;
use kprobes_vm::counted::counted;
use kprobes_vm::maps::{Limits, Store};

use super::alone::{self, Intervals};
use super::attach::{self, AttachError, AttachedProbes, Unseen};
use super::image_symbols::ImageSymbols;
use super::inlined::CopyTable;
use super::machine_code::Reason;
use super::places::{ResolvedPlace, Watched};
use super::resolve::ResolvedProbes;
use super::samples::Samples;
use super::shared::Shared;
use super::snippets::Snippets;
use super::watch::{AttachedWatchpoints, WatchpointError};
use super::watchpoints::{Ended, Functions, Watchpoints};
use crate::host::{self, host};
use crate::symbol::Symbolic;
use crate::{symbol, time};

/// The condition for [`RunningProgram::start_unless`] that never stops it.
const GO_ON: &dyn Fn() -> bool = &|| false;

/// Returns the refusal of a program none of whose probes reaches anything. `first` says why one does not.
fn none_reached(first: Option<&str>) -> ProgramRefusal {
    const SENTENCE: &str = "no probe reaches anything";
    match first {
        Some(why) => ProgramRefusal::new(format_args!("{SENTENCE}; the first: {why}")),
        None => ProgramRefusal::new(SENTENCE),
    }
}

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

/// The reason why a program does not run.
#[derive(Clone, Debug)]
pub struct ProgramRefusal {
    /// The reason, without its full stop.
    sentence: String,
    /// The part of the text that is the cause.
    cause: Option<Span>,
    /// Whether the program was interrupted.
    is_stopped: bool,
}

impl From<Error> for ProgramRefusal {
    fn from(error: Error) -> Self {
        Self::at(error.problem, error.span)
    }
}

impl From<OutOfMemory> for ProgramRefusal {
    fn from(error: OutOfMemory) -> Self {
        Error::from(error).into()
    }
}

impl From<AttachError> for ProgramRefusal {
    fn from(why: AttachError) -> Self {
        match why {
            AttachError::Stopped => {
                let refusal = Self::new("the program was stopped before it started");
                Self { is_stopped: true, ..refusal }
            }
            AttachError::OutOfMemory => OutOfMemory.into(),
        }
    }
}

impl ProgramRefusal {
    pub(crate) fn new(reason: impl fmt::Display) -> Self {
        // Empty if there is no memory for it.
        let sentence = fallible::format(format_args!("{reason}")).unwrap_or_default();
        Self { sentence, cause: None, is_stopped: false }
    }

    pub(super) fn at(reason: impl fmt::Display, cause: Span) -> Self {
        Self { cause: Some(cause), ..Self::new(reason) }
    }

    /// Returns whether there is no problem, but [`RunningProgram::start_unless`] was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns the reason, without its full stop.
    #[must_use]
    pub fn sentence(&self) -> &str {
        if self.sentence.is_empty() { "there is not enough memory to show the error" } else { &self.sentence }
    }

    /// Returns the part of the text that is the cause.
    #[must_use]
    pub fn cause(&self) -> Option<Span> {
        self.cause
    }

    /// Writes the reason, with its place marked in `source`, the text of the program.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write(&self, source: &str, out: &mut dyn Write) -> fmt::Result {
        writeln!(out, "error: {}", self.sentence())?;
        let Some(cause) = self.cause else { return Ok(()) };
        fallible::format(format_args!("{}", cause.mark(source)))?.lines().try_for_each(|line| writeln!(out, "  {line}"))
    }
}

/// Options for running a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Whether all clauses are interpreted.
    pub is_interpreted: bool,
    /// The number of keys that each map has room for, which also scales the room for stacks; `None` for the default.
    pub keys: Option<usize>,
    /// The form of the output.
    pub format: OutputFormat,
    /// The number of the task whose hits the program sees; `None` for all tasks.
    pub task: Option<u64>,
    /// The parameters of the program.
    pub parameters: Parameters<'a>,
}

/// Returns the limits of the program's memory. Stacks may take a sixteenth of the memory to spare, if that is more than
/// the default.
fn limits(keys: Option<usize>) -> Limits {
    let usual = Limits::usual(host::cpus());
    let stack_bytes = usual.stack_bytes.max(host().memory_to_spare().map_or(0, |bytes| bytes / 16));
    let limits = Limits { stack_bytes, ..usual };
    keys.map_or(limits, |keys| limits.with_keys(keys))
}

/// Refuses a program that would leave less than an eighth of the heap to others. A single line can ask for more probes
/// than there is memory for, in addition to the `kept` bytes that the program keeps.
fn check_memory(places: &[ResolvedPlace], kept: usize) -> Result<(), ProgramRefusal> {
    let free = host::memory_to_spare();
    if kept > free {
        let (kept, free) = (kept >> 10, free >> 10);
        return Err(ProgramRefusal::new(format_args!(
            "the maps and the output of the program take {kept} KiB, and {free} KiB are free: use fewer maps or a \
             smaller -k"
        )));
    }
    let free = free - kept;
    let needed: usize = places.iter().map(ResolvedPlace::memory).sum();
    if needed <= free {
        return Ok(());
    }
    let (probes, needed, free) = (places.len(), needed >> 10, free >> 10);
    Err(ProgramRefusal::new(format_args!(
        "{probes} probes take about {needed} KiB, and {free} KiB are free: probe fewer instructions"
    )))
}

/// Parses a program with its parameters. A refusal quotes the parameter that is its cause.
pub(super) fn parse(text: &str, parameters: Parameters<'_>) -> Result<syntax::Program, ProgramRefusal> {
    syntax::parse_with(text, parameters)
        .map_err(|Error { problem, span }| ProgramRefusal::at(parameters.sentence(problem), span))
}

/// Parses a program with the parameters of `options`, and restricts it to their task.
pub(super) fn tree(text: &str, options: Options<'_>) -> Result<syntax::Program, ProgramRefusal> {
    let mut tree = parse(text, options.parameters)?;
    if let Some(task) = options.task {
        tree.restrict_to_task(task)?;
    }
    Ok(tree)
}

/// A program that is parsed and checked.
struct Read {
    tree: syntax::Program,
    /// The inlined functions, unpacked if they were needed.
    table: CopyTable,
    program: Checked,
}

/// Parses and checks a program. Both recurse, so this is called where little of the stack is in use, and not inlined
/// into functions with large frames.
#[inline(never)]
fn read(text: &str, options: Options<'_>) -> Result<Read, ProgramRefusal> {
    let tree = tree(text, options)?;
    let table = CopyTable::default();
    let program = check(&tree, &ImageSymbols(&table))?;
    Ok(Read { tree, table, program })
}

/// The places that a program probes and watches.
struct Wanted {
    /// The places to probe.
    places: Vec<ResolvedPlace>,
    /// The memory to watch.
    watched: Vec<Watched>,
    /// The place of each probe in the text.
    spans: Vec<Span>,
}

impl Shared {
    /// Resolves the probes of a program, and allocates the memory that it needs. Returns the shared state, and the
    /// places to probe and to watch.
    fn load(checked: Box<Read>, options: Options<'_>) -> Result<(Self, Wanted), ProgramRefusal> {
        let Read { tree, table, program } = *checked;
        let config = program.config;
        let limits = limits(options.keys.or(config.keys));
        let output_bytes = config.output_pages.map_or(limits.output_bytes, |pages| pages << 12);
        let limits = Limits { output_bytes, ..limits };
        let kept = limits.bytes(&program.code);
        check_memory(&[], kept)?;
        let (mut all, mut missing) = (ResolvedProbes::default(), Vec::new());
        for (number, (clause, routine)) in tree.clauses.iter().zip(&program.code.routines).enumerate() {
            for probe in &clause.probes {
                match all.add(number, routine, probe, &table) {
                    Err(error) if config.missing != Missing::Error && error.problem != Problem::OutOfMemory => {
                        let why = fallible::format(format_args!("{}: {}", probe.node, error.problem))?;
                        fallible::push(&mut missing, why)?;
                    }
                    outcome => outcome?,
                }
                check_memory(&all.places, kept)?;
            }
        }
        drop(table);
        if config.missing == Missing::Ignored {
            missing.clear();
        }
        let probes = all.places.len() + all.alone.len() + all.sampled.len() + all.watched.len();
        match config.probes {
            _ if probes == 0 => return Err(none_reached(missing.first().map(String::as_str))),
            Some(most) if probes > most => {
                return Err(ProgramRefusal::new(format_args!(
                    "the program has {probes} probes, and max_probes is {most}"
                )));
            }
            _ => {}
        }
        let ResolvedProbes { places, spans, names, alone, sampled, mut inlined, untold, moved, watched } = all;
        fallible::extend(&mut missing, moved)?;
        fallible::sort_by(&mut inlined, Ord::cmp);
        inlined.dedup_by_key(|(value, _)| *value);
        let store = Store::new(&program.code, &limits, time::nanoseconds());
        let store = store.map_err(|flaw| ProgramRefusal::new(format_args!("the program cannot run: {flaw}")))?;
        let (watchpoints, functions) = (Watchpoints::default(), Functions::of(&names)?);
        let (ending, reading) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        let (late, missed_samples) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok((
            Self {
                program,
                store,
                names,
                alone,
                sampled,
                inlined,
                untold,
                warnings: missing,
                watchpoints,
                functions,
                late,
                missed_samples,
                ending,
                reading,
                format: options.format,
                kept,
            },
            Wanted { places, watched, spans },
        ))
    }
}

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

/// A program whose clauses no longer run, except for `END`.
#[must_use]
pub struct DetachedProgram {
    shared: Arc<Shared>,
    unseen: Unseen,
    /// The virtual addresses of the exclusive loads at which watchpoints were given up.
    given_up: Vec<usize>,
}

impl DetachedProgram {
    /// Runs `END`, and writes the rest of the output: see [`RunningProgram::finish`]. Called once.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn finish(&self, out: &mut dyn Write) -> fmt::Result {
        let Self { shared, unseen, given_up } = self;
        // `drain` returns true at the record of an `exit()`. CPUs that had not seen the exit yet may have written
        // output after it.
        while shared.drain(out)? {}
        // There is room for the output of `END` now.
        alone::run(shared, |probe| *probe == Probe::End);
        while shared.drain(out)? {}
        report::write_maps(&shared.program, &shared.store, &**shared, &host::masked, shared.format, out)?;
        let keeps_calls = shared.names.iter().any(|probe| matches!(probe, Probe::Kretprobe { .. }));
        const OF_CALLS: &str = ", too many calls of the function were in progress, or a call did not return";
        let or = if keeps_calls { OF_CALLS } else { "" };
        let busy = fallible::format(format_args!("another hit was being handled on the same CPU{or}"))?;
        for (missed, [one, many], why) in [
            (shared.late.load(Ordering::Relaxed), ["interval", "intervals"], "the CPU was busy"),
            (
                shared.missed_samples.load(Ordering::Relaxed),
                ["sample", "samples"],
                "the interrupt was answered too late",
            ),
            (unseen.hits, ["hit", "hits"], busy.as_str()),
            (unseen.returns, ["return", "returns"], "the call was in progress when the program ended"),
        ] {
            match missed {
                0 => {}
                _ => {
                    let sentence = fallible::format(format_args!("Missed {}: {why}", counted(missed, one, many)))?;
                    shared.format.write_failure(&sentence, out)?;
                }
            }
        }
        for &address in given_up {
            let sentence = fallible::format(format_args!(
                "A watchpoint ended at {}: the sequence of this exclusive load cannot be followed to its store",
                Symbolic(address)
            ))?;
            shared.format.write_failure(&sentence, out)?;
        }
        Ok(())
    }

    /// Returns the exit status that the program asked for first; 0 if it has not.
    #[must_use]
    pub fn status(&self) -> u8 {
        self.shared.store.status()
    }
}
