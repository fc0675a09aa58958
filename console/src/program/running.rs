//! A program from its text to what it has found out.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use aarch64_kprobes::probe::Registration;
use fallible::{Arc, OutOfMemory};
use kprobes_program::check::check;
use kprobes_program::checked::Checked;
use kprobes_program::error::{Error, Span};
use kprobes_program::report::{self, OutputFormat};
use kprobes_program::syntax::{self, Probe};
use kprobes_vm::code::Routine;
use kprobes_vm::store::{Limits, Store};

use super::alone::{self, Intervals};
use super::attach::{self, Attached, Unattached, Unseen};
use super::compiled::Reason;
use super::inlined::Table;
use super::names::{Image, Known};
use super::places::{Place, Places};
use super::snippets::Snippets;
use crate::host::{self, host};
use crate::{symbol, time, types};

/// Starts a program that runs until it exits by itself.
const GO_ON: &dyn Fn() -> bool = &|| false;

/// What the tasks and the hits of a program share.
#[derive(Debug)]
pub struct Shared {
    pub(super) program: Checked,
    pub(super) store: Store,
    /// The probes by their numbers.
    pub(super) names: Vec<Probe>,
    /// Clauses that run by themselves, with the numbers of their names.
    pub(super) alone: Vec<(usize, usize)>,
    /// The functions of which copies are probed, and those that they are in, by what stands for them, which ascends.
    inlined: Vec<(u64, String)>,
    /// How many copies are not probed, as no instruction tells when control passes.
    untold: usize,
    /// How many turns of clauses with an interval were not run, as they came too late.
    pub(super) late: AtomicU64,
    /// When the tasks of the program were told to end, in nanoseconds; `u64::MAX` before.
    ending: AtomicU64,
    /// Whether a task takes the output: one at a time can.
    reading: AtomicBool,
    format: OutputFormat,
}

/// A program that runs. To drop it ends it, without its `END`, and shows nothing.
pub struct Program {
    // Before what its handlers use.
    attached: Attached,
    tasks: Tasks,
    shared: Arc<Shared>,
}

/// What runs besides the probes of a program, and ends when this goes.
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

/// What takes the output of a program while it runs, in a task of its own.
#[derive(Clone, Debug)]
pub struct Reader(Arc<Shared>);

/// Why a program does not run.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// A sentence without its full stop.
    sentence: String,
    /// The part of the text that is the cause.
    cause: Option<Span>,
    /// The program was asked to end.
    is_stopped: bool,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::at(sentence(format_args!("{}", error.problem)), error.span)
    }
}

impl From<OutOfMemory> for Refusal {
    fn from(error: OutOfMemory) -> Self {
        Error::from(error).into()
    }
}

impl From<Unattached> for Refusal {
    fn from(why: Unattached) -> Self {
        match why {
            Unattached::Stopped => {
                Self { is_stopped: true, ..Self::new(sentence(format_args!("the program was stopped before it ran"))) }
            }
            Unattached::OutOfMemory => OutOfMemory.into(),
        }
    }
}

/// The text of a sentence; nothing without memory for it.
fn sentence(arguments: fmt::Arguments<'_>) -> String {
    fallible::format(arguments).unwrap_or_default()
}

impl Refusal {
    fn new(sentence: String) -> Self {
        Self { sentence, cause: None, is_stopped: false }
    }

    fn at(sentence: String, cause: Span) -> Self {
        Self { cause: Some(cause), ..Self::new(sentence) }
    }

    /// Whether nothing is wrong, but [`Program::start_unless`] was to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// What is wrong, without a full stop.
    #[must_use]
    pub fn sentence(&self) -> &str {
        if self.sentence.is_empty() { "there is no memory left to say what is wrong" } else { &self.sentence }
    }

    /// The part of the text that is the cause.
    #[must_use]
    pub fn cause(&self) -> Option<Span> {
        self.cause
    }

    /// Writes why, and the place in `source`, the text of the program, marked below it.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, source: &str, out: &mut dyn Write) -> fmt::Result {
        writeln!(out, "error: {}", self.sentence())?;
        let Some(cause) = self.cause else { return Ok(()) };
        fallible::format(format_args!("{}", cause.mark(source)))?.lines().try_for_each(|line| writeln!(out, "  {line}"))
    }
}

/// How a program is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// By the interpreter alone.
    pub is_interpreted: bool,
    /// For how many keys each of its maps has room, if not for the usual number, and for how many stacks.
    pub keys: Option<usize>,
    /// What its output looks like.
    pub format: OutputFormat,
}

/// What a program may keep; for stacks, a sixteenth of the memory that is to spare, if that is more than the usual.
fn limits(keys: Option<usize>) -> Limits {
    let usual = Limits::usual(host::cpus());
    let stack_bytes = usual.stack_bytes.max(host().memory_to_spare().map_or(0, |bytes| bytes / 16));
    let limits = Limits { stack_bytes, ..usual };
    keys.map_or(limits, |keys| limits.with_keys(keys))
}

/// Refuses what would leave less than an eighth of the heap to others: a single line can ask for more probes than there is room
/// for, besides the `kept` bytes that the program keeps.
fn check_memory(places: &[Place], kept: usize) -> Result<(), Refusal> {
    let free = host::memory_to_spare();
    if kept > free {
        let (kept, free) = (kept >> 10, free >> 10);
        return Err(Refusal::new(sentence(format_args!(
            "what the program keeps takes {kept} KiB, and {free} KiB are free for it: have fewer maps, or room for fewer keys"
        ))));
    }
    let free = free - kept;
    let needed: usize = places.iter().map(Place::memory).sum();
    if needed <= free {
        return Ok(());
    }
    let (probes, needed, free) = (places.len(), needed >> 10, free >> 10);
    Err(Refusal::new(sentence(format_args!(
        "{probes} probes take about {needed} KiB, and {free} KiB are free for them: name fewer instructions"
    ))))
}

impl Shared {
    /// Reads a program, checks it, finds the instructions that it is about, and takes the memory that it needs. Returns these, and
    /// where the text names each of its probes, too.
    fn load(text: &str, options: Options) -> Result<(Self, Vec<Place>, Vec<Span>), Refusal> {
        let tree = syntax::parse(text)?;
        let table = Table::default();
        let program = check(&tree, &Image(&table))?;
        let limits = limits(options.keys);
        let kept = limits.bytes(&program.code);
        check_memory(&[], kept)?;
        let mut all = Places::default();
        for (number, (clause, routine)) in tree.clauses.iter().zip(&program.code.routines).enumerate() {
            for probe in &clause.probes {
                all.add(number, routine, probe, &table)?;
                check_memory(&all.places, kept)?;
            }
        }
        drop(table);
        let Places { places, spans, names, alone, mut inlined, untold } = all;
        inlined.sort_unstable();
        inlined.dedup_by_key(|(value, _)| *value);
        let store = Store::new(&program.code, &limits, time::nanoseconds());
        let store = store.map_err(|flaw| Refusal::new(sentence(format_args!("the program cannot run: {flaw}"))))?;
        let (ending, reading, late) = (AtomicU64::new(u64::MAX), AtomicBool::new(false), AtomicU64::new(0));
        Ok((
            Self { program, store, names, alone, inlined, untold, late, ending, reading, format: options.format },
            places,
            spans,
        ))
    }

    /// When the program has ended, by `exit()` or as it was told to, in nanoseconds; `u64::MAX` while it runs.
    pub(super) fn end(&self) -> u64 {
        self.ending.load(Ordering::Relaxed).min(self.store.ended())
    }

    /// Whether the tasks of the program are to end.
    pub(super) fn is_ending(&self) -> bool {
        self.end() != u64::MAX
    }

    /// What its output names.
    fn known(&self) -> Known<'_> {
        Known { probes: &self.names, inlined: &self.inlined }
    }

    fn drain(&self, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        if self.reading.swap(true, Ordering::Acquire) {
            return Ok(false);
        }
        let outcome = report::drain(&self.program, &self.store, &self.known(), &host::masked, self.format, out);
        self.reading.store(false, Ordering::Release);
        outcome
    }
}

impl Reader {
    /// As [`Program::drain`].
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn drain(&self, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        self.0.drain(out)
    }

    /// Whether nothing more will be put out than there is already.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.0.is_ending()
    }
}

impl Program {
    /// Reads a program, runs its `BEGIN`, and probes all that it is about.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or why nothing that one of its probes means can be probed: it has done nothing then. Or there is no
    /// memory to arm its probes: its `BEGIN` has run then.
    pub fn start(text: &str) -> Result<Self, Refusal> {
        Self::start_unless(text, Options::default(), GO_ON)
    }

    /// The same, by the interpreter alone, to be compared with it.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn interpret(text: &str) -> Result<Self, Refusal> {
        Self::start_unless(text, Options { is_interpreted: true, ..Options::default() }, GO_ON)
    }

    /// The same, as `options` say, unless `is_stopped` becomes true, as it does when ^C is pressed: what is
    /// to be probed may be much. If that was before its `BEGIN` has run, it is refused. If it was later, none of its probes
    /// is armed, and it is to be ended.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn start_unless(text: &str, options: Options, is_stopped: &dyn Fn() -> bool) -> Result<Self, Refusal> {
        let is_interpreted = options.is_interpreted;
        let (shared, places, spans) = Shared::load(text, options)?;
        // Code has addresses in what is shared, from here on.
        let mut shared = Arc::try_new(shared)?;
        let snippets = match Arc::get_mut(&mut shared) {
            Some(shared) if !is_interpreted => Snippets::of(shared, &places)?,
            _ => Snippets::default(),
        };
        // SAFETY: the field with the probes goes before that which shares this, and `finish` keeps the order.
        let attached = unsafe { attach::attach(&raw const *shared, places, snippets, is_interpreted, is_stopped) }?;
        if let Some((probe, why)) = attached.refused.probes.first() {
            return Err(Refusal::at(sentence(format_args!("{why}")), spans.get(*probe).copied().unwrap_or_default()));
        }
        alone::run(&shared, |probe| *probe == Probe::Begin);
        attached.arm(is_stopped).map_err(|error| Refusal::new(sentence(format_args!("{error}"))))?;
        let tasks = Tasks { intervals: Some(alone::start_intervals(&shared)?), shared: shared.clone() };
        Ok(Self { attached, tasks, shared })
    }

    /// Writes how many probes it has, if its output has an object for that.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_attached(&self, out: &mut dyn Write) -> fmt::Result {
        self.shared.format.write_attached(self.probes(), out)
    }

    /// How many probes it has, those included that no code is hit for.
    #[must_use]
    pub fn probes(&self) -> usize {
        self.attached.count() + self.shared.alone.len()
    }

    /// The probes on code.
    pub fn registrations(&self) -> impl Iterator<Item = &Registration> {
        self.attached.probes()
    }

    /// The functions that one of its probes means and cannot reach, each once, in the order of their addresses.
    pub fn refused(&self) -> impl Iterator<Item = &'static str> {
        let functions = self.attached.refused.functions.iter().copied();
        functions.filter_map(symbol::lookup).map(|function| function.name)
    }

    /// The virtual addresses of the instructions that one of its probes means and cannot reach, in functions of which it reaches
    /// others; each once, in ascending order.
    #[must_use]
    pub fn refused_instructions(&self) -> &[usize] {
        &self.attached.refused.instructions
    }

    /// How many inlined copies are not probed, as no instruction tells when control passes into them, or out of them.
    #[must_use]
    pub fn untold(&self) -> usize {
        self.shared.untold
    }

    /// The clauses that the interpreter runs as there are no instructions for them, by their numbers from 0 on, and why; none if it
    /// was asked to.
    #[must_use]
    pub fn interpreted(&self) -> &[(usize, Reason)] {
        &self.attached.clauses.interpreted
    }

    /// How many handlers were made of its clauses.
    #[must_use]
    pub fn handlers(&self) -> usize {
        self.attached.clauses.count()
    }

    /// Whether it has ended itself, by `exit()`.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.store.is_over()
    }

    /// What takes its output.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader(self.shared.clone())
    }

    /// Writes what it has put out since the last time, and prints and clears its maps where it has asked for it. Returns whether
    /// it has asked to end.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn drain(&self, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        self.shared.drain(out)
    }

    /// Runs its clauses with an interval whose time has come, if the kernel has no tasks that would. Returns how long to sleep until
    /// the next turn.
    pub fn turn(&mut self) -> Duration {
        self.tasks.intervals.as_mut().map_or(Duration::ZERO, |intervals| intervals.turn(&self.shared))
    }

    /// Takes its probes away, and ends its tasks: no clause runs any more. Returns what is left of it.
    pub fn detach(self) -> Detached {
        let Self { attached, tasks, shared } = self;
        let unseen = attached.detach();
        drop(tasks);
        Detached { shared, unseen }
    }

    /// Ends it: runs its `END`, and writes what it has put out, and what is left in its maps; then what it has missed and lost.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn finish(self, out: &mut dyn Write) -> fmt::Result {
        self.detach().finish(out)
    }
}

/// A program that runs no more, but for its `END`.
#[must_use]
pub struct Detached {
    shared: Arc<Shared>,
    unseen: Unseen,
}

impl Detached {
    /// As [`Program::finish`].
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn finish(self, out: &mut dyn Write) -> fmt::Result {
        let Self { shared, unseen } = self;
        alone::run(&shared, |probe| *probe == Probe::End);
        // What CPUs have put out that have not seen yet that one has asked to end stands behind that.
        while shared.drain(out)? {}
        report::write_maps(&shared.program, &shared.store, &shared.known(), &host::masked, shared.format, out)?;
        let keeps_calls = shared.names.iter().any(|probe| matches!(probe, Probe::Return { .. }));
        let or = if keeps_calls { ", or too many calls of the function were in progress" } else { "" };
        let busy = fallible::format(format_args!("another was being handled on the same CPU{or}"))?;
        for (missed, what, why) in [
            (shared.late.load(Ordering::Relaxed), "interval", "the CPU was busy"),
            (unseen.hits, "hit", busy.as_str()),
            (unseen.returns, "return", "the call was in progress when the program ended"),
        ] {
            match missed {
                0 => {}
                _ => {
                    let s = if missed == 1 { "" } else { "s" };
                    let sentence = fallible::format(format_args!("Missed {missed} {what}{s}, as {why}"))?;
                    shared.format.write_failure(&sentence, out)?;
                }
            }
        }
        Ok(())
    }
}

/// The probes that `text`, probes separated by commas, means in this image, a line for each.
///
/// # Errors
///
/// What is wrong with it, or that it means none.
pub fn list(text: &str, has_signatures: bool) -> Result<Vec<String>, Refusal> {
    let (mut lines, table) = (Vec::new(), Table::default());
    let routine = Routine { ops: Vec::new(), runs_after_exit: false };
    for probe in syntax::parse_probes(text)? {
        if let Probe::Inline { function, exit } = &probe.node {
            fallible::extend(&mut lines, table.list(function, *exit).map_err(|problem| probe.span.error(problem))?)?;
            continue;
        }
        let mut all = Places::default();
        all.add(0, &routine, &probe, &table)?;
        for (number, name) in all.names.iter().enumerate() {
            fallible::push(&mut lines, fallible::format(format_args!("{name}"))?)?;
            let place = all.places.iter().find(|place| has_signatures && place.name == number);
            if let Some(signature) = place.and_then(|place| types::function(place.function.start as u64)) {
                fallible::push(&mut lines, fallible::format(format_args!("    {signature}"))?)?;
            }
        }
    }
    Ok(lines)
}
