//! Events: the definitions, their probes, and what the probes have counted.
//!
//! As in Linux, an event does nothing until it is enabled, and it cannot be removed while it is enabled. Several
//! definitions under one name, with the same arguments at several places, are several probes of one event. Each of them
//! is listed and counted on its own.
//!
//! The name and the format of a removed event are kept as long as the rings hold records of it, so that the records can
//! still be printed.
//!
//! The probes are behind the trait [`Armed`], and the symbols behind [`Symbols`]. Therefore everything here except the
//! probing itself is tested on the host.

mod resolve;
mod statics;
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
use crate::recorder::{GRAPH_ENTRY_EVENT, GRAPH_RETURN_EVENT, PRINT_EVENT, Recorder};
use crate::ring::{Counts, Pages, RECORD_HEADER, RECORD_MAX, Record, Rings, Snapshot, Stats};
use crate::text::{self, ShowError};
use crate::tracer::Tracer;
use crate::tracer::graph::{Printer, Style};
use crate::trigger::Plan;

/// The registers that a probe saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Only the registers that a function is called with. The probe is at a function's entry, and its event uses no
    /// other register.
    Call,
    /// All registers.
    Full,
}

/// A registered probe. Dropping it unregisters it; after that, nothing uses its recorder any more.
pub trait Armed: Sized {
    /// Why a probe is refused.
    type Error: fmt::Display;

    /// Registers a probe of `kind` and `form` at the virtual address `address`, which records with `recorder` and is
    /// not armed. If the engine can, it puts the snippet of `insertion` into the stub, which then handles the hits that
    /// the snippet does not leave to the handler.
    ///
    /// # Errors
    ///
    /// Returns why the probe is refused. Then nothing has changed.
    ///
    /// # Safety
    ///
    /// `recorder` and `insertion` must neither move nor be dropped until the probe has been dropped. `insertion` must
    /// be made for `recorder`.
    unsafe fn register(
        kind: Kind,
        form: Form,
        address: u64,
        recorder: &Recorder,
        insertion: Option<&Insertion>,
    ) -> Result<Self, Self::Error>;

    /// Disarms this probe and arms `after`, which is at the same place. Each hit is reported by exactly one of the two.
    ///
    /// # Errors
    ///
    /// Returns why the engine could not. Then nothing has changed.
    fn exchange(&self, after: &Self) -> Result<(), Self::Error>;

    /// Returns where the kernel keeps the values that stubs record; `None` if there are no stubs.
    fn offsets() -> Option<Offsets> {
        None
    }

    /// Arms or disarms the probe.
    ///
    /// # Errors
    ///
    /// Returns why the engine could not. Then nothing has changed.
    fn set_enabled(&self, enabled: bool) -> Result<(), Self::Error>;

    /// Whether the probe is armed.
    fn is_enabled(&self) -> bool;

    /// Returns the number of recorded hits.
    fn hits(&self) -> u64;

    /// Returns the number of hits that were not recorded.
    fn missed(&self) -> u64;
}

/// A probe of an event.
#[derive(Debug)]
pub struct Event<P> {
    /// Dropped first: afterwards nothing uses the fields below. A synthetic event has no probe, nor has a static event
    /// while it is disarmed.
    probe: Option<P>,
    /// The code for the stub of the probe, if there is any.
    compiled: Option<Compiled>,
    /// Shared with the triggers that record a synthetic event.
    recorder: Arc<Recorder>,
    form: Form,
    /// The hits and missed hits of the probes that this one has replaced.
    before: [u64; 2],
    number: u16,
    address: u64,
    definition: Definition,
    format: Format,
}

/// A probe to exchange with that of an event; after the exchange, the probe that the event had before.
#[derive(Debug)]
pub(crate) struct OtherProbe<P> {
    /// Dropped first, because it uses the code. A static event that is not armed has none.
    probe: Option<P>,
    compiled: Option<Compiled>,
}

/// Compiles the code for the stub of `recorder` at the virtual address `address` with this `plan`. `None` if a stub
/// cannot do it, or if there are no stubs.
fn code<P: Armed>(recorder: &Recorder, plan: Option<&Plan>, address: u64) -> Result<Option<Code>, OutOfMemory> {
    match P::offsets() {
        Some(offsets) => compiled::code(recorder, plan, Some(address), offsets),
        None => Ok(None),
    }
}

impl<P: Armed> Event<P> {
    /// Registers a probe to exchange with this one, not armed, if this `plan` needs other code in the stub. `None` if
    /// the code stays.
    pub(crate) fn other_probe(&self, plan: Option<&Plan>) -> Result<Option<OtherProbe<P>>, OutOfMemory> {
        if self.is_synthetic() {
            return Ok(None);
        }
        let kind = self.definition.kind;
        let code = code::<P>(&self.recorder, plan, self.address)?;
        if self.probe.is_some() && code.as_ref() == self.compiled.as_ref().map(Compiled::code) {
            return Ok(None);
        }
        let compiled = code.map(Compiled::new).transpose()?;
        let insertion = compiled.as_ref().and_then(Compiled::insertion);
        // SAFETY: the caller keeps the returned probe with its code, and exchanges or drops it while this event exists.
        // Both `OtherProbe` and `Event` drop the probe before the code, and `Event` drops it before the recorder.
        let probe = unsafe { P::register(kind, self.form, self.address, &self.recorder, insertion) };
        // The place has a probe already, or is the function of a static event, so lack of memory is the only reason
        // left.
        probe.map(|probe| Some(OtherProbe { probe: Some(probe), compiled })).map_err(|_| OutOfMemory)
    }

    /// Exchanges the probe with `other`, and arms `other` if the probe was armed.
    pub(crate) fn exchange(&mut self, other: &mut OtherProbe<P>) -> Result<(), P::Error> {
        match (&self.probe, &other.probe) {
            (Some(probe), Some(other)) if probe.is_enabled() => probe.exchange(other)?,
            _ => {}
        }
        mem::swap(&mut self.probe, &mut other.probe);
        mem::swap(&mut self.compiled, &mut other.compiled);
        Ok(())
    }

    /// Replaces the probe, which is not armed, by one without code, if its code refers to memory of a trigger. Takes
    /// the probe of a static event away. Returns the old probe; `None` if there was nothing to replace or no memory.
    pub(crate) fn drop_code(&mut self) -> Option<OtherProbe<P>> {
        if self.is_static() {
            let probe = self.probe.take()?;
            return Some(OtherProbe { probe: Some(probe), compiled: self.compiled.take() });
        }
        self.compiled.as_ref().filter(|compiled| compiled.counts())?;
        // SAFETY: the recorder is dropped after the probe, as in `other_probe`; there is no code.
        let probe = unsafe { P::register(self.definition.kind, self.form, self.address, &self.recorder, None) };
        let mut other = OtherProbe { probe: Some(probe.ok()?), compiled: None };
        self.exchange(&mut other).ok().map(|()| other)
    }

    /// Drops a probe that this event had before, and adds its counts to those of the event.
    pub(crate) fn retire(&mut self, other: OtherProbe<P>) {
        let Some(probe) = &other.probe else { return };
        let counts = [probe.hits(), probe.missed()];
        self.before.iter_mut().zip(counts).for_each(|(before, more)| *before += more);
    }

    /// Returns the number of hits that were reported to the probe, whether its filter accepted them or not.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.before[0] + self.probe.as_ref().map_or(0, P::hits)
    }

    /// Returns the number of hits that the probe missed.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.before[1] + self.probe.as_ref().map_or(0, P::missed)
    }

    /// Returns the definition.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Returns the layout of the records.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Returns the number of the event, as its file `id` and its records show it.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the virtual address of the probe; 0 for a synthetic event.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the probe; `None` for a synthetic event.
    #[must_use]
    pub fn probe(&self) -> Option<&P> {
        self.probe.as_ref()
    }

    /// Whether the event is recorded by triggers of other events, and has no probe.
    #[must_use]
    pub fn is_synthetic(&self) -> bool {
        self.definition.kind == Kind::Synthetic
    }

    /// Whether the event can be hit; for a synthetic event, whether triggers may record it.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.probe.as_ref().map_or_else(|| self.recorder.armed.load(Relaxed), P::is_enabled)
    }

    /// Arms or disarms the event. A static event that has no probe is left as it is:
    /// [`Controls`](crate::trigger::controls::Controls) places one.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Armed::set_enabled`].
    pub fn set_enabled(&self, enabled: bool) -> Result<(), P::Error> {
        match &self.probe {
            Some(probe) => probe.set_enabled(enabled),
            None if self.is_static() => Ok(()),
            None => {
                self.recorder.armed.store(enabled, Relaxed);
                Ok(())
            }
        }
    }

    /// Returns the recorder, the form of the event that the hit path uses.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Returns the recorder to share with a trigger that records the event.
    pub(crate) fn shared_recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Returns the word that the probe was registered with. A listing of all probes identifies the event by it.
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

/// The largest number that no defined event has.
const FIXED: u16 = PRINT_EVENT;

/// All events, and the rings that hold their records.
#[derive(Debug)]
pub struct Events<P> {
    events: Vec<Event<P>>,
    /// Events that were removed while there are records of them: number, name, format.
    removed: Vec<(u16, String, Format)>,
    last: u16,
    rings: &'static Rings,
    /// The records that readers of `trace_pipe` (first) and of each `per_cpu/cpuN/trace_pipe` have taken out of the
    /// rings.
    pipes: Box<[Mutex<Pipe>]>,
    /// The contents of the file `snapshot`.
    kept: Mutex<Kept>,
    /// How records are printed. [`Flag::Overwrite`] is kept by the rings instead.
    options: Options,
    /// The index of function names, made for the first event that records names.
    functions: Option<Arc<Functions>>,
}

/// Records that were taken out of the rings for a `trace_pipe`.
#[derive(Debug, Default)]
struct Pipe {
    taken: Snapshot,
    /// The number of records already written. The next read of the file writes the rest.
    written: usize,
    /// What the tracer `function_graph` knows from the records that were.
    graph: Printer,
}

/// The contents of the file `snapshot`.
#[derive(Debug, Default)]
struct Kept {
    /// Whether the file was written to, or a trigger has filled it, and it was not freed since.
    is_allocated: bool,
    snapshot: Snapshot,
}

/// The text of the file `snapshot` if it has no records.
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
    /// Makes a list without events, whose records will go to `rings`.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the state of the readers.
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

    /// Returns the rings.
    #[must_use]
    pub fn rings(&self) -> &'static Rings {
        self.rings
    }

    /// Defines an event, which is then disabled. If the event exists, adds another probe to it, which is armed if the
    /// other probes are. The new probe records every hit.
    ///
    /// # Errors
    ///
    /// Returns why not, with the position in the definition's line. Then nothing has changed.
    pub fn define(&mut self, definition: Definition, symbols: &dyn Symbols) -> Result<(), Error> {
        self.define_with(definition, symbols, &|_, _| Ok(None))
    }

    /// Defines an event as [`define`](Self::define) does, but with a plan: `plan` makes it from the recorder and the
    /// virtual address of the probe. The plan applies from the first hit on.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`define`](Self::define).
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
        // Two definitions may spell one function or static differently, so compare what they resolve to.
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
        // The recorder is new, so there is no old plan.
        drop(recorder.plan().replace(plan));
        self.events.try_reserve(1).map_err(OutOfMemory::from)?;
        // Reserved now, so that removing an event needs no memory.
        self.removed.try_reserve(self.events.len() + 1).map_err(OutOfMemory::from)?;
        let form = if recorder.is_of_a_call() && symbols.is_call(address) { Form::Call } else { Form::Full };
        let insertion = compiled.as_ref().and_then(Compiled::insertion);
        // SAFETY: the recorder is behind an `Arc`, and the code is boxed, so neither moves. Both are dropped after the
        // probe: `Event` declares them after it, and `remove`, which takes all three out, keeps the order.
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

    /// Returns a number that neither an event nor a record has.
    fn free_number(&self) -> Option<u16> {
        let is_free = |number: &u16| {
            !matches!(*number, GRAPH_ENTRY_EVENT | GRAPH_RETURN_EVENT)
                && self.events.iter().all(|event| event.number != *number)
                && self.removed.iter().all(|other| other.0 != *number)
        };
        (self.last.saturating_add(1)..=u16::MAX).chain(FIXED + 1..=self.last).find(is_free)
    }

    /// Removes the probes that `removal` matches. Returns how many there were.
    ///
    /// # Errors
    ///
    /// Returns [`Problem::Busy`] at the last probe of an event that is enabled. That probe and those after it are not
    /// removed.
    pub fn remove(&mut self, removal: &Removal) -> Result<usize, Problem> {
        self.remove_unless(removal, &Event::is_enabled)
    }

    /// Removes probes as [`remove`](Self::remove) does, but asks `is_enabled` whether an event is enabled.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`remove`](Self::remove).
    pub fn remove_unless(
        &mut self,
        removal: &Removal,
        is_enabled: &dyn Fn(&Event<P>) -> bool,
    ) -> Result<usize, Problem> {
        let mut count = 0;
        let mut at = 0;
        while let Some(event) = self.events.get(at) {
            if !event.is_of_probe() || !removal.matches(&event.definition) {
                at += 1;
                continue;
            }
            let others = self.events.iter().filter(|other| other.is_sibling(&event.definition)).count() - 1;
            if others == 0 && is_enabled(event) {
                self.forget();
                return Err(Problem::Busy);
            }
            let Event { probe, compiled, recorder, number, definition, format, .. } = self.events.remove(at);
            // A hit may use the recorder and the code until the probe is unregistered.
            drop(probe);
            drop((compiled, recorder));
            if others == 0 {
                // `define_with` has reserved room for it.
                self.removed.push((number, definition.event, format));
            }
            count += 1;
        }
        self.forget();
        Ok(count)
    }

    /// Removes all events that are not synthetic.
    ///
    /// # Errors
    ///
    /// Returns [`Problem::Busy`] if one is enabled. Then none is removed.
    pub fn remove_all(&mut self) -> Result<(), Problem> {
        if self.events.iter().any(|event| event.is_of_probe() && event.is_enabled()) {
            return Err(Problem::Busy);
        }
        self.remove(&Removal { group: None, event: None, rest: Vec::new() }).map(|_| ())
    }

    /// Drops the formats of removed events without records.
    fn forget(&mut self) {
        // If there is no memory to find the records, the formats stay.
        if self.removed.is_empty() {
            return;
        }
        if let Ok(mut recorded) = self.recorded() {
            recorded.sort_unstable();
            self.removed.retain(|(number, ..)| recorded.binary_search(number).is_ok());
        }
    }

    /// Returns the numbers of the events that have records, one for each record.
    fn recorded(&mut self) -> Result<Vec<u16>, OutOfMemory> {
        // Records that a reader has found split off are in neither place until they are moved to the file.
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

    /// Enables or disables the events of this name, in this group or in any. Returns the number of their probes.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Armed::set_enabled`] for the first probe that fails.
    pub fn set_enabled(&self, group: Option<&str>, event: &str, enabled: bool) -> Result<usize, P::Error> {
        self.enable(group, Some(event), enabled)
    }

    /// Enables or disables all events of one group, or of all. Returns the number of their probes.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Armed::set_enabled`] for the first probe that fails.
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

    /// Returns the probe at this index, in the order of definition.
    pub(crate) fn get(&self, number: usize) -> Option<&Event<P>> {
        self.events.get(number)
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Event<P>> {
        self.events.get_mut(number)
    }

    /// Returns the probes of all events, in the order of definition.
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

    /// Moves the records that a trigger `snapshot` has split off out of the rings, before the rings are changed. If
    /// there is no memory for them, they are lost with the rings' contents.
    pub fn keep_parted(&self) {
        let _ = self.keep_snapshot(false);
    }

    /// Moves the records that a trigger `snapshot` has split off into the file; with `now`, all records of the rings.
    fn keep_snapshot(&self, now: bool) -> Result<(), OutOfMemory> {
        let mut kept = self.kept.lock();
        if let Some(snapshot) = self.rings.split_off(now)? {
            *kept = Kept { is_allocated: true, snapshot };
        }
        Ok(())
    }

    /// Acts on a number that is written to `snapshot`: 0 frees the snapshot, 1 takes one, any other number empties it.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the records.
    pub fn set_snapshot(&mut self, number: u64) -> Result<(), OutOfMemory> {
        match number {
            1 => self.keep_snapshot(true)?,
            // Freeing must not fail for lack of memory.
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

    /// Writes the file `snapshot`, for a machine with `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write_trace`](Self::write_trace).
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
            let tracer = self.options.tracer.name();
            write!(out, "# tracer: {tracer}\n#\n#\n# * Snapshot is {state} *\n#\n")?;
            return Ok(out.write_str(SNAPSHOT_HELP)?);
        }
        text::write_header(out, snapshot.present(), snapshot.written(), cpus, self.options)?;
        self.write_records(out, snapshot, &|_, _| true, symbols, clock)
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

    /// Returns the options of the trace.
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

    /// Has records printed as those of `tracer`. As in Linux they are forgotten.
    pub fn set_tracer(&mut self, tracer: Tracer) {
        self.options.tracer = tracer;
        self.clear_trace();
    }

    /// Sets the number of tasks that `saved_cmdlines` names.
    pub fn set_names(&mut self, names: usize) {
        self.options.names = names;
    }

    /// Writes the file `saved_cmdlines`: the number and the newest name of each task in the trace, for at most
    /// [`Options::names`] tasks. The tasks that appeared first are left out.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write_trace`](Self::write_trace).
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

    /// Sets the clock of the records. As in Linux, all records are dropped, even if the clock stays the same.
    pub fn set_clock(&mut self, clock: TraceClock) {
        self.options.clock = clock;
        self.clear_trace();
        self.kept.get_mut().snapshot = Snapshot::default();
    }

    /// Writes the file `kprobe_events`: each definition in a form that can be typed again.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_definitions(&self, out: &mut dyn Write) -> fmt::Result {
        self.events
            .iter()
            .filter(|event| event.is_of_probe())
            .try_for_each(|event| writeln!(out, "{}", event.definition))
    }

    /// Writes the file `synthetic_events`: the name and the fields of each synthetic event.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_synthetic(&self, out: &mut dyn Write) -> fmt::Result {
        self.events.iter().filter(|event| event.is_synthetic()).try_for_each(|event| {
            write!(out, "{}\t", event.definition.event)?;
            event.format.write_fields(out)?;
            out.write_char('\n')
        })
    }

    /// Writes the file `dynamic_events`: all definitions.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_all_definitions(&self, out: &mut dyn Write) -> fmt::Result {
        self.events.iter().filter(|event| !event.is_static()).try_for_each(|event| {
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
    /// Fails if a synthetic event has this name, if its records would be too large, or if there is no memory.
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

    /// Removes the synthetic event of this name; `None` removes all. Returns how many there were.
    ///
    /// # Errors
    ///
    /// Returns [`Problem::Busy`] if one of them `is_busy`. Then none is removed.
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
            // The definition has reserved room for it.
            self.removed.push((number, definition.event, format));
            count += 1;
        }
        self.forget();
        Ok(count)
    }

    /// Writes the file `kprobe_profile`: each probe with its hits and its missed hits.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_profile(&self, out: &mut dyn Write) -> fmt::Result {
        self.events
            .iter()
            .filter(|event| event.is_of_probe())
            .try_for_each(|event| text::write_profile(out, &event.definition.event, event.hits(), event.missed()))
    }

    /// Writes the file `trace`: the newest `limit` records, oldest first, for a machine with `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`, or fails if there is no memory for a copy of the records.
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
        self.write_records(out, &snapshot, &|number, _| number >= skipped, symbols, clock)
    }

    /// Writes the file `per_cpu/cpuN/trace`: the records of `cpu`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write_trace`](Self::write_trace).
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
        self.write_records(out, &snapshot, &|_, record| record.cpu == cpu, symbols, clock)
    }

    /// Writes the file `per_cpu/cpuN/stats` of `cpu`; `now` is the system counter.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write_trace`](Self::write_trace).
    pub fn write_stats(&self, out: &mut dyn Write, cpu: usize, clock: Clock, now: u64) -> Result<(), ShowError> {
        self.keep_snapshot(false)?;
        let snapshot = self.rings.snapshot()?;
        let Stats { entries, overrun, dropped, read, bytes, oldest } = snapshot.stats().nth(cpu).unwrap_or_default();
        // A hit that interrupts the recording of another one is counted as dropped, so Linux's "commit overrun" is
        // always 0.
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

    /// Takes all records out of the rings, and writes them as `trace_pipe` does: without a header. Returns the number
    /// of records written.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`: the record that was not written completely comes first in the next call. Fails also
    /// if there is no memory for the records.
    pub fn write_pipe(&self, out: &mut dyn Write, symbols: &dyn Symbols, clock: Clock) -> Result<usize, ShowError> {
        self.write_pipe_of(out, None, symbols, clock)
    }

    /// Writes records as [`write_pipe`](Self::write_pipe) does, but only those of `cpu`, unless that is `None`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write_pipe`](Self::write_pipe).
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
            (pipe.taken, pipe.written) = (self.rings.take_of(cpu)?, 0);
        }
        let Pipe { taken, written, graph } = &mut *pipe;
        let before = *written;
        for (record, next) in taken.records_with_next()?.skip(before) {
            self.write_record(out, &record, next.as_ref(), graph, symbols, clock)?;
            *written += 1;
        }
        let count = *written - before;
        (pipe.taken, pipe.written) = (Snapshot::default(), 0);
        Ok(count)
    }

    /// Takes the oldest records of `cpu` out of its ring, as pages of `trace_pipe_raw`. Records that were taken for
    /// `trace_pipe` are not among them.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for them. Then nothing was taken.
    pub fn take_pages(&self, cpu: usize, clock: Clock) -> Result<Pages, ShowError> {
        Ok(self.rings.take_pages(cpu, clock, &mut |_| Ok(()))?)
    }

    /// Writes those records of `snapshot` that are `meant`, by their number in it and what they are.
    fn write_records(
        &self,
        out: &mut dyn Write,
        snapshot: &Snapshot,
        is_meant: &dyn Fn(usize, &Record<'_>) -> bool,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        let mut graph = Printer::of(snapshot.records()?, symbols)?;
        for (number, (record, next)) in snapshot.records_with_next()?.enumerate() {
            if is_meant(number, &record) {
                self.write_record(out, &record, next.as_ref(), &mut graph, symbols, clock)?;
            } else {
                graph.pass_over(&record, symbols)?;
            }
        }
        Ok(())
    }

    /// Writes `record`, which `next` follows on its CPU.
    fn write_record(
        &self,
        out: &mut dyn Write,
        record: &Record<'_>,
        next: Option<&Record<'_>>,
        graph: &mut Printer,
        symbols: &dyn Symbols,
        clock: Clock,
    ) -> Result<(), ShowError> {
        let (event, options) = (self.described(record.event()), self.options);
        // A snapshot may have records of a tracer that was set before.
        if options.tracer == Tracer::FunctionGraph || matches!(record.event(), GRAPH_ENTRY_EVENT | GRAPH_RETURN_EVENT) {
            let style = Style { symbols, clock, options, cpus: self.rings.cpus() };
            return graph.write(out, record, next, event, style);
        }
        Ok(text::write_record(out, record, event, symbols, clock, options)?)
    }

    /// Returns the name and the format of the event with this number; `None` if it was removed and its format dropped.
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
