//! Events: what was defined, the probes that were made for it, and what they have counted.
//!
//! As in Linux, an event does nothing until it is enabled, and cannot be removed while it is. Several definitions of one name,
//! with the same arguments at several places, are several probes of one event; they are listed and counted each for itself.
//! What is needed to print records is kept as long as there are records in the rings, so that they can be printed after
//! the event has gone.
//!
//! The probes are behind a trait, [`Armed`], and so are the symbols: everything here but the probing itself is
//! tested on the host.

mod resolve;
mod typed;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::mem;
use core::sync::atomic::Ordering::Relaxed;

use aarch64_kprobes::probe::Insertion;
use fallible::{Arc, OutOfMemory};
use spin::Mutex;

pub use resolve::{Refusal, resolve};

use crate::compiled::{self, Code, Compiled};
use crate::definition::synthetic::{self, Synthetic};
use crate::definition::{Definition, Error, Kind, Problem, Removal};
use crate::format::{Base, Format, Shape};
use crate::functions::Functions;
use crate::host::{Clock, Offsets, Symbols};
use crate::options::{Flag, Options, TraceClock};
use crate::recorder::{PRINT_EVENT, Recorder};
use crate::ring::{Counts, Pages, RECORD_HEADER, RECORD_MAX, Record, Rings, Snapshot, Stats};
use crate::text::{self, ShowError};
use crate::trigger::Plan;

/// What a probe is to save of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// What a function is called with: the probe is at its entry, and asks for no more.
    Call,
    /// All of them.
    Full,
}

/// A registered probe. Dropping it unregisters it, after which its recorder is not used any more.
pub trait Armed: Sized {
    /// Why a probe is refused.
    type Error: fmt::Display;

    /// Places a probe of `kind` at the virtual address `address`, which has this `form`, records with `recorder`, and is not armed.
    /// Where it can, its stub does what `insertion` says, instead.
    ///
    /// # Errors
    ///
    /// The probe is refused; nothing has changed then.
    ///
    /// # Safety
    ///
    /// `recorder` and `insertion`, which is for it, stay in place until the probe has been dropped.
    unsafe fn register(
        kind: Kind,
        form: Form,
        address: u64,
        recorder: &Recorder,
        insertion: Option<&Insertion>,
    ) -> Result<Self, Self::Error>;

    /// Disarms this probe and arms `after`, at the same place: each hit is one of this or one of the other.
    ///
    /// # Errors
    ///
    /// The engine could not; nothing has changed then.
    fn exchange(&self, after: &Self) -> Result<(), Self::Error>;

    /// Where the kernel keeps what stubs record; nothing if there are no stubs.
    fn offsets() -> Option<Offsets> {
        None
    }

    /// Arms or disarms the probe.
    ///
    /// # Errors
    ///
    /// The engine could not; nothing has changed then.
    fn set_enabled(&self, enabled: bool) -> Result<(), Self::Error>;

    /// Whether the probe is armed.
    fn is_enabled(&self) -> bool;

    /// How many hits were recorded.
    fn hits(&self) -> u64;

    /// How many hits were not recorded.
    fn missed(&self) -> u64;
}

/// A probe of an event.
#[derive(Debug)]
pub struct Event<P> {
    /// Dropped first: what follows is then not used any more. A synthetic event has none.
    probe: Option<P>,
    /// What its stub does, where it can.
    compiled: Option<Compiled>,
    /// The triggers that record a synthetic event have it, too.
    recorder: Arc<Recorder>,
    form: Form,
    /// Hits of the probes that were in its place, and hits that they have missed.
    before: [u64; 2],
    number: u16,
    address: u64,
    definition: Definition,
    format: Format,
}

/// A probe for the place of another one of the same event; and then that one.
#[derive(Debug)]
pub(crate) struct OtherProbe<P> {
    /// Dropped first.
    probe: P,
    compiled: Option<Compiled>,
}

/// What a stub does for `recorder` at the virtual address `address`, where it has this `plan`, if stubs can do it.
fn code<P: Armed>(recorder: &Recorder, plan: Option<&Plan>, address: u64) -> Result<Option<Code>, OutOfMemory> {
    match P::offsets() {
        Some(offsets) => compiled::code(recorder, plan, address, offsets),
        None => Ok(None),
    }
}

impl<P: Armed> Event<P> {
    /// A probe, not armed, for the place of this one, if with this `plan` its stub is to do something else.
    pub(crate) fn other_probe(&self, plan: Option<&Plan>) -> Result<Option<OtherProbe<P>>, OutOfMemory> {
        if self.probe.is_none() {
            return Ok(None);
        }
        let kind = self.definition.kind;
        let code = code::<P>(&self.recorder, plan, self.address)?;
        if code.as_ref() == self.compiled.as_ref().map(Compiled::code) {
            return Ok(None);
        }
        let compiled = code.map(Compiled::new).transpose()?;
        let insertion = compiled.as_ref().and_then(Compiled::insertion);
        // SAFETY: the recorder is dropped after the probe, as the code is.
        let probe = unsafe { P::register(kind, self.form, self.address, &self.recorder, insertion) };
        // There is one already, so nothing else is in its way.
        probe.map(|probe| Some(OtherProbe { probe, compiled })).map_err(|_| OutOfMemory)
    }

    /// Has `other` take the place of the probe, and be armed if that is.
    pub(crate) fn exchange(&mut self, other: &mut OtherProbe<P>) -> Result<(), P::Error> {
        let Some(probe) = &mut self.probe else { return Ok(()) };
        if probe.is_enabled() {
            probe.exchange(&other.probe)?;
        }
        mem::swap(probe, &mut other.probe);
        mem::swap(&mut self.compiled, &mut other.compiled);
        Ok(())
    }

    /// Has a probe take the place of this one, which is not armed, that keeps no memory of a trigger; if there is memory for it.
    /// Returns the one that was there.
    pub(crate) fn drop_code(&mut self) -> Option<OtherProbe<P>> {
        self.compiled.as_ref().filter(|compiled| compiled.counts())?;
        // SAFETY: as in `other_probe`.
        let probe = unsafe { P::register(self.definition.kind, self.form, self.address, &self.recorder, None) };
        let mut other = OtherProbe { probe: probe.ok()?, compiled: None };
        self.exchange(&mut other).ok().map(|()| other)
    }

    /// Drops a probe that was in the place of the present one. What it has counted stays.
    pub(crate) fn retire(&mut self, other: OtherProbe<P>) {
        let counts = [other.probe.hits(), other.probe.missed()];
        self.before.iter_mut().zip(counts).for_each(|(before, more)| *before += more);
    }

    /// How many hits the probe was told of, whatever its filter has made of them.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.before[0] + self.probe.as_ref().map_or(0, P::hits)
    }

    /// How many hits were missed.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.before[1] + self.probe.as_ref().map_or(0, P::missed)
    }

    /// What was typed.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// How its records are laid out.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The number of the event, as in its file `id`, and in its records.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The virtual address of the probe.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The probe, if the event is not synthetic.
    #[must_use]
    pub fn probe(&self) -> Option<&P> {
        self.probe.as_ref()
    }

    /// Whether triggers of other events record it.
    #[must_use]
    pub fn is_synthetic(&self) -> bool {
        self.definition.kind == Kind::Synthetic
    }

    /// Whether it can be hit.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.probe.as_ref().map_or_else(|| self.recorder.armed.load(Relaxed), P::is_enabled)
    }

    /// Arms or disarms it.
    ///
    /// # Errors
    ///
    /// Those of [`Armed::set_enabled`].
    pub fn set_enabled(&self, enabled: bool) -> Result<(), P::Error> {
        match &self.probe {
            Some(probe) => probe.set_enabled(enabled),
            None => {
                self.recorder.armed.store(enabled, Relaxed);
                Ok(())
            }
        }
    }

    /// What the hit path has of it.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The same, for a trigger that records it.
    pub(crate) fn shared_recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// The word that the probe was registered with, by which a listing of all probes tells it.
    #[must_use]
    pub fn data(&self) -> usize {
        (&raw const *self.recorder).addr()
    }

    fn is(&self, group: Option<&str>, event: Option<&str>) -> bool {
        let Definition { group: own_group, event: own_event, .. } = &self.definition;
        group.is_none_or(|group| group == own_group) && event.is_none_or(|event| event == own_event)
    }

    fn is_sibling(&self, definition: &Definition) -> bool {
        self.is(Some(&definition.group), Some(&definition.event))
    }
}

/// The numbers up to this one are no event's that is defined.
const FIXED: u16 = PRINT_EVENT;

/// All events, and the rings that they are recorded in.
#[derive(Debug)]
pub struct Events<P> {
    events: Vec<Event<P>>,
    /// Events that are gone, while there are records of them: number, name, format.
    removed: Vec<(u16, String, Format)>,
    last: u16,
    rings: &'static Rings,
    /// Of all CPUs, and of each: what was taken for `trace_pipe`, and for `per_cpu/cpuN/trace_pipe`.
    pipes: Box<[Mutex<Pipe>]>,
    /// The file `snapshot`.
    kept: Mutex<Kept>,
    /// How records are printed. Whether they are overwritten is the rings'.
    options: Options,
    /// Made for the first event that records names.
    functions: Option<Arc<Functions>>,
}

/// What was taken away from the rings to be written as `trace_pipe`.
#[derive(Debug, Default)]
struct Pipe {
    taken: Snapshot,
    /// How many records of it were written. The others are, when `trace_pipe` is written next.
    written: usize,
}

/// What is in the file `snapshot`.
#[derive(Debug, Default)]
struct Kept {
    /// The file has been written to, or a trigger has acted, and it has not been freed since.
    is_allocated: bool,
    snapshot: Snapshot,
}

/// What the file `snapshot` says where it has no records.
const SNAPSHOT_HELP: &str = "\
# Snapshot commands:
# echo 0 > snapshot : Clears and frees snapshot buffer
# echo 1 > snapshot : Allocates snapshot buffer, if not already allocated.
#                      Takes a snapshot of the main buffer.
# echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)
#                      (Doesn't have to be '2' works with any number that
#                       is not a '0' or '1')
";

/// Makes the plan of a probe from its recorder and its virtual address. `None` means record every hit.
type MakePlan<'a> = dyn Fn(&Recorder, u64) -> Result<Option<Box<Plan>>, OutOfMemory> + 'a;

impl<P: Armed> Events<P> {
    /// No events, which will be recorded in `rings`.
    ///
    /// # Errors
    ///
    /// No memory for what readers of each ring have taken.
    pub fn new(rings: &'static Rings) -> Result<Self, OutOfMemory> {
        Ok(Self {
            events: Vec::new(),
            removed: Vec::new(),
            last: FIXED,
            rings,
            pipes: fallible::boxed_slice((0..=rings.cpus()).map(|_| Mutex::default()))?,
            kept: Mutex::default(),
            options: Options::default(),
            functions: None,
        })
    }

    /// The rings.
    #[must_use]
    pub fn rings(&self) -> &'static Rings {
        self.rings
    }

    /// Defines an event, which is then disabled; or gives one that there is another probe, which is armed if the others are, and
    /// all of whose hits are recorded then.
    ///
    /// # Errors
    ///
    /// Why not, with the place in the definition's line; nothing has changed then.
    pub fn define(&mut self, definition: Definition, symbols: &dyn Symbols) -> Result<(), Error> {
        self.define_with(definition, symbols, &|_, _| Ok(None))
    }

    /// The same, where what is done at a hit besides recording it is what `plan` says for the recorder, and the virtual address
    /// of the probe: from its first hit on.
    ///
    /// # Errors
    ///
    /// As of [`define`](Self::define).
    pub fn define_with(
        &mut self,
        mut definition: Definition,
        symbols: &dyn Symbols,
        plan: &MakePlan<'_>,
    ) -> Result<(), Error> {
        typed::settle(&mut definition, symbols)?;
        let siblings = self.events.iter().filter(|event| event.is_sibling(&definition));
        let sibling = siblings.clone().next().map(|event| (event.number, event.is_enabled(), &event.definition));
        if let Some((_, _, other)) = sibling {
            if mem::discriminant(&other.kind) != mem::discriminant(&definition.kind) {
                return Err(definition.error(0, Problem::OtherKind, None));
            }
            if let Some(part) = definition.differs(other) {
                return Err(definition.error(part, Problem::OtherArguments, None));
            }
        }
        let sibling = sibling.map(|(number, enabled, _)| (number, enabled));
        let shape = if definition.kind == Kind::Probe { Shape::Probe } else { Shape::Return };
        let fields = definition.arguments.iter().map(|argument| (argument.name.as_str(), argument.kind));
        let format = Format::new(shape, fields)?;
        if RECORD_HEADER + format.size() > RECORD_MAX {
            return Err(definition.error(2, Problem::TooBig, None));
        }
        let refuse = |Refusal { problem, reason }| definition.error(1, problem, reason);
        let address = resolve(&definition.place, symbols).map_err(refuse)?;
        let arguments = resolve::arguments(&definition, symbols).map_err(refuse)?;
        // One function and one static can be spelled in several ways.
        for event in siblings.filter(|event| event.address == address && event.format == format) {
            if resolve::arguments(&event.definition, symbols).map_err(refuse)? == arguments {
                return Err(definition.error(0, Problem::Same, None));
            }
        }
        let (fetches, entry) = arguments;
        let number = match sibling {
            Some((number, _)) => number,
            None => self.free_number().ok_or_else(|| definition.error(0, Problem::OutOfMemory, None))?,
        };
        let records_names = definition.arguments.iter().any(|argument| argument.kind.base == Base::SymbolString);
        let functions = match (records_names, &self.functions) {
            (false, _) => None,
            (true, Some(functions)) => Some(functions.clone()),
            (true, None) => Some(Functions::new(symbols)?),
        };
        let entry = fallible::boxed_slice(entry)?;
        let recorder = Recorder::new(number, &format, &fetches, entry, functions.clone(), self.rings)?;
        let recorder = Arc::try_new(recorder)?;
        let plan = plan(&recorder, address)?;
        let code = code::<P>(&recorder, plan.as_deref(), address)?;
        let compiled = code.map(Compiled::new).transpose()?;
        // There was none before.
        drop(recorder.plan().replace(plan));
        self.events.try_reserve(1).map_err(OutOfMemory::from)?;
        // So that an event can be removed without memory.
        self.removed.try_reserve(self.events.len() + 1).map_err(OutOfMemory::from)?;
        let form = if recorder.is_of_a_call() && symbols.is_call(address) { Form::Call } else { Form::Full };
        let insertion = compiled.as_ref().and_then(Compiled::insertion);
        // SAFETY: the recorder is shared, and dropped after the probe: in `Event` it stands after it, and `remove`, which
        // takes both out, keeps the order. So it is with the code.
        let probe = unsafe { P::register(definition.kind, form, address, &recorder, insertion) }
            .and_then(|probe| match sibling {
                Some((_, true)) => probe.set_enabled(true).map(|()| probe),
                _ => Ok(probe),
            })
            .map_err(|reason| refuse(Refusal::new(Problem::Refused, reason)))?;
        self.last = number.max(self.last);
        self.functions = functions.or(self.functions.take());
        let before = [0; 2];
        let probe = Some(probe);
        self.events.push(Event { probe, compiled, recorder, form, before, number, address, definition, format });
        Ok(())
    }

    /// A number that no event has, nor a record.
    fn free_number(&self) -> Option<u16> {
        let is_free = |number: &u16| {
            self.events.iter().all(|event| event.number != *number)
                && self.removed.iter().all(|other| other.0 != *number)
        };
        (self.last.saturating_add(1)..=u16::MAX).chain(FIXED + 1..=self.last).find(is_free)
    }

    /// Removes the probes that `removal` means. Returns how many.
    ///
    /// # Errors
    ///
    /// [`Problem::Busy`]: the last probe of an event that is enabled is not removed, nor what would come after it.
    pub fn remove(&mut self, removal: &Removal) -> Result<usize, Problem> {
        self.remove_unless(removal, &Event::is_enabled)
    }

    /// The same, where it is told otherwise whether an event is enabled.
    ///
    /// # Errors
    ///
    /// As of [`remove`](Self::remove).
    pub fn remove_unless(
        &mut self,
        removal: &Removal,
        is_enabled: &dyn Fn(&Event<P>) -> bool,
    ) -> Result<usize, Problem> {
        let mut count = 0;
        let mut at = 0;
        while let Some(event) = self.events.get(at) {
            if event.is_synthetic() || !removal.matches(&event.definition) {
                at += 1;
                continue;
            }
            let others = self.events.iter().filter(|other| other.is_sibling(&event.definition)).count() - 1;
            if others == 0 && is_enabled(event) {
                self.forget();
                return Err(Problem::Busy);
            }
            let Event { probe, compiled, recorder, number, definition, format, .. } = self.events.remove(at);
            // Hits use the recorder and the code until the probe is unregistered.
            drop(probe);
            drop((compiled, recorder));
            if others == 0 {
                // `define_with` has made room for it.
                self.removed.push((number, definition.event, format));
            }
            count += 1;
        }
        self.forget();
        Ok(count)
    }

    /// Removes all events.
    ///
    /// # Errors
    ///
    /// [`Problem::Busy`]: one is enabled. None is removed then.
    pub fn remove_all(&mut self) -> Result<(), Problem> {
        if self.events.iter().any(|event| !event.is_synthetic() && event.is_enabled()) {
            return Err(Problem::Busy);
        }
        self.remove(&Removal { group: None, event: None, rest: Vec::new() }).map(|_| ())
    }

    /// Forgets events of which there is no record any more.
    fn forget(&mut self) {
        // Without memory for a look they stay.
        if self.removed.is_empty() {
            return;
        }
        if let Ok(mut recorded) = self.recorded() {
            recorded.sort_unstable();
            self.removed.retain(|(number, ..)| recorded.binary_search(number).is_ok());
        }
    }

    /// The numbers of the events of which there are records.
    fn recorded(&mut self) -> Result<Vec<u16>, OutOfMemory> {
        // What a reader has found parted is in neither.
        self.keep_snapshot(false)?;
        let mut numbers = Vec::new();
        fallible::extend(&mut numbers, self.rings.snapshot()?.records()?.map(|record| record.event()))?;
        let kept = self.kept.get_mut().snapshot.records()?;
        fallible::extend(&mut numbers, kept.map(|record| record.event()))?;
        for pipe in &mut self.pipes {
            fallible::extend(&mut numbers, pipe.get_mut().taken.records()?.map(|record| record.event()))?;
        }
        Ok(numbers)
    }

    /// Enables or disables the events of this group, if one is given, and name. Returns how many probes there are.
    ///
    /// # Errors
    ///
    /// Those of [`Armed::set_enabled`], for the first probe that has one.
    pub fn set_enabled(&self, group: Option<&str>, event: &str, enabled: bool) -> Result<usize, P::Error> {
        self.enable(group, Some(event), enabled)
    }

    /// Enables or disables all events, or all of one group. Returns how many probes there are.
    ///
    /// # Errors
    ///
    /// Those of [`Armed::set_enabled`], for the first probe that has one.
    pub fn set_all_enabled(&self, group: Option<&str>, enabled: bool) -> Result<usize, P::Error> {
        self.enable(group, None, enabled)
    }

    fn enable(&self, group: Option<&str>, event: Option<&str>, enabled: bool) -> Result<usize, P::Error> {
        let mut count = 0;
        for candidate in self.events.iter().filter(|candidate| candidate.is(group, event)) {
            candidate.set_enabled(enabled)?;
            count += 1;
        }
        Ok(count)
    }

    /// The probe of this number, in the order in which they were defined.
    pub(crate) fn get(&self, number: usize) -> Option<&Event<P>> {
        self.events.get(number)
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Event<P>> {
        self.events.get_mut(number)
    }

    /// The probes of all events, in the order in which they were defined.
    pub fn iter(&self) -> impl Iterator<Item = &Event<P>> + Clone {
        self.events.iter()
    }

    /// Empties the rings.
    pub fn clear_trace(&mut self) {
        self.keep_parted();
        self.rings.clear();
        self.pipes.iter_mut().for_each(|pipe| *pipe.get_mut() = Pipe::default());
        self.forget();
    }

    /// Puts aside what a trigger `snapshot` has parted, before the rings are changed. Without memory for it, it is lost with them.
    pub fn keep_parted(&self) {
        let _ = self.keep_snapshot(false);
    }

    /// Puts aside what a trigger `snapshot` has parted, or all that is in the rings `now`.
    fn keep_snapshot(&self, now: bool) -> Result<(), OutOfMemory> {
        let mut kept = self.kept.lock();
        if let Some(snapshot) = self.rings.split_off(now)? {
            *kept = Kept { is_allocated: true, snapshot };
        }
        Ok(())
    }

    /// Does what a number that is written to `snapshot` means: 0 frees it, 1 takes one, all others empty it.
    ///
    /// # Errors
    ///
    /// There is no memory for the records.
    pub fn set_snapshot(&mut self, number: u64) -> Result<(), OutOfMemory> {
        match number {
            1 => self.keep_snapshot(true)?,
            // Memory is given back without any.
            _ => self.keep_parted(),
        }
        let kept = self.kept.get_mut();
        match number {
            0 => *kept = Kept::default(),
            1 => {}
            _ => kept.snapshot = Snapshot::default(),
        }
        self.forget();
        Ok(())
    }

    /// Writes `snapshot`, of a machine that runs `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// As of [`write_trace`](Self::write_trace).
    pub fn write_snapshot(
        &self,
        out: &mut dyn Write,
        cpus: usize,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        self.keep_snapshot(false)?;
        let Kept { is_allocated, snapshot } = &*self.kept.lock();
        if snapshot.present() == 0 {
            let state = if *is_allocated { "allocated" } else { "freed" };
            write!(out, "# tracer: nop\n#\n#\n# * Snapshot is {state} *\n#\n")?;
            return Ok(out.write_str(SNAPSHOT_HELP)?);
        }
        text::write_header(out, snapshot.present(), snapshot.written(), cpus, self.options)?;
        snapshot.records()?.try_for_each(|record| Ok(self.write_record(out, &record, symbols, clock)?))
    }

    /// Empties the ring of `cpu`.
    pub fn clear_trace_of(&mut self, cpu: usize) {
        self.keep_parted();
        self.rings.clear_of(Some(cpu));
        if let Some(pipe) = self.pipes.get_mut(cpu + 1) {
            *pipe.get_mut() = Pipe::default();
        }
        self.forget();
    }

    /// What is set about the text of the trace.
    #[must_use]
    pub fn options(&self) -> Options {
        let mut options = self.options;
        options.set(Flag::Overwrite, self.rings.overwrites());
        options
    }

    /// Turns an option on or off.
    pub fn set_option(&mut self, flag: Flag, on: bool) {
        match flag {
            Flag::Overwrite => self.rings.set_overwrites(on),
            _ => self.options.set(flag, on),
        }
    }

    /// Has `saved_cmdlines` name so many tasks.
    pub fn set_names(&mut self, names: usize) {
        self.options.names = names;
    }

    /// Writes `saved_cmdlines`: the number and the newest name of each task in the trace, of the last [`Options::names`] that came.
    ///
    /// # Errors
    ///
    /// As of [`write_trace`](Self::write_trace).
    pub fn write_names(&self, out: &mut dyn Write) -> Result<(), ShowError> {
        let snapshot = self.rings.snapshot()?;
        let mut tasks: Vec<(u32, [u8; 16])> = Vec::new();
        for record in snapshot.records()?.filter(|record| record.task() != 0) {
            match tasks.iter_mut().find(|(task, _)| *task == record.task()) {
                Some((_, name)) => *name = record.name,
                None => fallible::push(&mut tasks, (record.task(), record.name))?,
            }
        }
        let skipped = tasks.len().saturating_sub(self.options.names);
        let mut shown = tasks.iter().skip(skipped);
        Ok(shown.try_for_each(|(task, name)| writeln!(out, "{task} {}", text::task_name(name)))?)
    }

    /// Has records another clock. As in Linux they are forgotten, also if the clock is the one that they have.
    pub fn set_clock(&mut self, clock: TraceClock) {
        self.options.clock = clock;
        self.clear_trace();
        self.kept.get_mut().snapshot = Snapshot::default();
    }

    /// Writes `kprobe_events`: the definitions, each as it could be typed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_definitions(&self, out: &mut dyn Write) -> fmt::Result {
        self.events
            .iter()
            .filter(|event| !event.is_synthetic())
            .try_for_each(|event| writeln!(out, "{}", event.definition))
    }

    /// Writes `synthetic_events`: the name and the fields of each synthetic event.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_synthetic(&self, out: &mut dyn Write) -> fmt::Result {
        self.events.iter().filter(|event| event.is_synthetic()).try_for_each(|event| {
            write!(out, "{}\t", event.definition.event)?;
            event.format.write_fields(out)?;
            out.write_char('\n')
        })
    }

    /// Writes `dynamic_events`: all definitions.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_all_definitions(&self, out: &mut dyn Write) -> fmt::Result {
        self.events.iter().try_for_each(|event| {
            write!(out, "{}", event.definition)?;
            if event.is_synthetic() {
                out.write_char('\t')?;
                event.format.write_fields(out)?;
            }
            out.write_char('\n')
        })
    }

    /// Defines a synthetic event, which is then disabled.
    ///
    /// # Errors
    ///
    /// There is one of this name, or its records would be too large; or there is no memory.
    pub fn define_synthetic(&mut self, definition: Synthetic) -> Result<(), synthetic::Problem> {
        if self.events.iter().any(|event| event.is_synthetic() && event.definition.event == definition.name) {
            return Err(synthetic::Problem::Exists);
        }
        self.try_define_synthetic(definition).map_err(|OutOfMemory| synthetic::Problem::OutOfMemory)?
    }

    fn try_define_synthetic(
        &mut self,
        mut definition: Synthetic,
    ) -> Result<Result<(), synthetic::Problem>, OutOfMemory> {
        let name = mem::take(&mut definition.name);
        let format = Format::of_synthetic(definition)?;
        if RECORD_HEADER + format.size() > RECORD_MAX {
            return Ok(Err(synthetic::Problem::TooManyFields));
        }
        let definition = Definition::of_synthetic(name)?;
        let number = self.free_number().ok_or(OutOfMemory)?;
        let recorder = Arc::try_new(Recorder::new(number, &format, &[], Box::default(), None, self.rings)?)?;
        self.events.try_reserve(1).map_err(OutOfMemory::from)?;
        self.removed.try_reserve(self.events.len() + 1).map_err(OutOfMemory::from)?;
        self.last = number.max(self.last);
        let (probe, compiled, form, before, address) = (None, None, Form::Full, [0; 2], 0);
        self.events.push(Event { probe, compiled, recorder, form, before, number, address, definition, format });
        Ok(Ok(()))
    }

    /// Removes the synthetic event of this name, or all. Returns how many there were.
    ///
    /// # Errors
    ///
    /// [`Problem::Busy`]: one `is_busy`; then none is removed.
    pub fn remove_synthetic(
        &mut self,
        name: Option<&str>,
        is_busy: &dyn Fn(&Event<P>) -> bool,
    ) -> Result<usize, Problem> {
        let is_meant =
            |event: &Event<P>| event.is_synthetic() && name.is_none_or(|name| event.definition.event == name);
        if self.events.iter().any(|event| is_meant(event) && is_busy(event)) {
            return Err(Problem::Busy);
        }
        let mut count = 0;
        while let Some(at) = self.events.iter().position(is_meant) {
            let Event { number, definition, format, .. } = self.events.remove(at);
            // It was made room for when it was defined.
            self.removed.push((number, definition.event, format));
            count += 1;
        }
        self.forget();
        Ok(count)
    }

    /// Writes `kprobe_profile`: each probe with its hits and the hits that were missed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_profile(&self, out: &mut dyn Write) -> fmt::Result {
        self.events
            .iter()
            .filter(|event| !event.is_synthetic())
            .try_for_each(|event| text::write_profile(out, &event.definition.event, event.hits(), event.missed()))
    }

    /// Writes `trace`: the newest `limit` records, oldest first, of a machine that runs `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// Those of `out`; also where there is no memory for a copy of the records.
    pub fn write_trace(
        &self,
        out: &mut dyn Write,
        limit: usize,
        cpus: usize,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        self.keep_snapshot(false)?;
        let snapshot = self.rings.snapshot()?;
        text::write_header(out, snapshot.present(), snapshot.written(), cpus, self.options)?;
        let skipped = (snapshot.present() as usize).saturating_sub(limit);
        let mut records = snapshot.records()?.skip(skipped);
        records.try_for_each(|record| Ok(self.write_record(out, &record, symbols, clock)?))
    }

    /// Writes `per_cpu/cpuN/trace`: the records of `cpu`.
    ///
    /// # Errors
    ///
    /// As of [`write_trace`](Self::write_trace).
    pub fn write_trace_of(
        &self,
        out: &mut dyn Write,
        cpu: usize,
        cpus: usize,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        self.keep_snapshot(false)?;
        let snapshot = self.rings.snapshot()?;
        let Counts { present, lost } = snapshot.counts().nth(cpu).unwrap_or_default();
        text::write_header(out, present, present + lost, cpus, self.options)?;
        let mut records = snapshot.records()?.filter(|record| record.cpu == cpu);
        records.try_for_each(|record| Ok(self.write_record(out, &record, symbols, clock)?))
    }

    /// Writes `per_cpu/cpuN/stats` of `cpu`, at `now` of the system counter.
    ///
    /// # Errors
    ///
    /// As of [`write_trace`](Self::write_trace).
    pub fn write_stats(&self, out: &mut dyn Write, cpu: usize, clock: Clock, now: u64) -> Result<(), ShowError> {
        self.keep_snapshot(false)?;
        let snapshot = self.rings.snapshot()?;
        let Stats { entries, overrun, dropped, read, bytes, oldest } = snapshot.stats().nth(cpu).unwrap_or_default();
        // What interrupts a recording is counted as dropped.
        writeln!(out, "entries: {entries}\noverrun: {overrun}\ncommit overrun: 0\nbytes: {bytes}")?;
        let oldest = clock.microseconds(oldest.unwrap_or(clock.origin));
        match self.options.clock {
            TraceClock::Counter => {
                let of_cpu = |record: &Record<'_>| record.cpu == cpu;
                let oldest = snapshot.records()?.find(of_cpu).map_or(0, |record| record.count);
                writeln!(out, "oldest event ts: {oldest}\nnow ts: {}", snapshot.count())?;
            }
            _ => {
                let now = clock.microseconds(now);
                writeln!(out, "oldest event ts: {}\nnow ts: {}", text::Time(oldest), text::Time(now))?;
            }
        }
        Ok(writeln!(out, "dropped events: {dropped}\nread events: {read}")?)
    }

    /// Takes what is in the rings away, and writes it as `trace_pipe` does: without a header. Returns how many records it has
    /// written.
    ///
    /// # Errors
    ///
    /// Those of `out`: the record that it has not taken whole comes first when this is called next. Also where there is no memory
    /// for the records.
    pub fn write_pipe(&self, out: &mut dyn Write, symbols: &dyn Symbols, clock: Clock) -> Result<usize, ShowError> {
        self.write_pipe_of(out, None, symbols, clock)
    }

    /// The same for the records of `cpu` alone, if it is given.
    ///
    /// # Errors
    ///
    /// As of [`write_pipe`](Self::write_pipe).
    pub fn write_pipe_of(
        &self,
        out: &mut dyn Write,
        cpu: Option<usize>,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<usize, ShowError> {
        self.keep_snapshot(false)?;
        let Some(pipe) = self.pipes.get(cpu.map_or(0, |cpu| cpu + 1)) else { return Ok(0) };
        let mut pipe = pipe.lock();
        if pipe.taken.records()?.nth(pipe.written).is_none() {
            *pipe = Pipe { taken: self.rings.take_of(cpu)?, written: 0 };
        }
        let Pipe { taken, written } = &mut *pipe;
        let before = *written;
        for record in taken.records()?.skip(before) {
            self.write_record(out, &record, symbols, clock)?;
            *written += 1;
        }
        let count = *written - before;
        *pipe = Pipe::default();
        Ok(count)
    }

    /// Takes the oldest records of `cpu` away, as pages of `trace_pipe_raw`; what was taken for `trace_pipe` stays there.
    ///
    /// # Errors
    ///
    /// There is no memory for them, and nothing was taken away.
    pub fn take_pages(&self, cpu: usize, clock: Clock) -> Result<Pages, ShowError> {
        Ok(self.rings.take_pages(cpu, clock, &mut |_| Ok(()))?)
    }

    fn write_record(
        &self,
        out: &mut dyn Write,
        record: &Record<'_>,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> fmt::Result {
        text::write_record(out, record, self.described(record.event()), symbols, clock, self.options)
    }

    /// The name and the format of the event with this number.
    #[must_use]
    pub fn described(&self, number: u16) -> Option<(&str, &Format)> {
        let present = self.events.iter().map(|event| (event.number, &event.definition.event, &event.format));
        let removed = self.removed.iter().map(|(number, name, format)| (*number, name, format));
        let found = present.chain(removed).find(|&(other, ..)| other == number);
        found.map(|(_, name, format)| (name.as_str(), format))
    }
}

#[cfg(test)]
mod tests;
