//! Resolves the probes of a program to instructions of the image.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use aarch64_kprobes::event::{self, Event};
use aarch64_kprobes::probe::{self, CallArguments};
use fallible::{OutOfMemory, TryClone};
use kprobes_program::error::{Described, Error, Problem, Span};
use kprobes_program::syntax::{Period, Probe, Spanned, can_watch};
use kprobes_symbols::Symbol;
use kprobes_symbols::names::matches;
use kprobes_vm::ir::{BuiltinNeed, Op, Register, Routine};

use super::exits::exit_at;
use super::inlined::{CopyBoundary, CopyTable, FoundCopies};
use super::places::{Inlined, ResolvedPlace, SampledClause, Watched, Way};
use crate::nearest::nearest;
use crate::{prologue, source_lines, symbol};

/// The maximum number of sentences about lines for a probe, one for each function. A generic function may have hundreds
/// of copies.
const MOVED_MAX: usize = 4;

/// Everything that a program probes.
#[derive(Debug, Default)]
pub(super) struct ResolvedProbes {
    pub places: Vec<ResolvedPlace>,
    /// The place of each probe in the text, by the probe's number.
    pub spans: Vec<Span>,
    /// The names: each probe with its function, including probes of clauses that run at no hit. Their numbers count
    /// from 1, because in a program 0 is no probe.
    pub names: Vec<Probe>,
    /// The clauses that run at no hit, each with the number of its name.
    pub alone: Vec<(usize, usize)>,
    /// The clauses that run for samples.
    pub sampled: Vec<SampledClause>,
    /// The values of the functions whose copies are probed, and of the functions that contain the copies, with their
    /// names.
    pub inlined: Vec<(u64, String)>,
    /// The number of copies that are not probed, because no instruction marks their entry or exit.
    pub untold: usize,
    /// Sentences about lines without instructions in a function: another line is probed there, or none. For a probe
    /// that has many such functions, the last sentence tells how many more there are.
    pub moved: Vec<String>,
    /// The memory to be watched.
    pub watched: Vec<Watched>,
}

/// The state that a clause asks for.
struct Wants {
    /// Whether the clause asks for registers that a call does not pass.
    registers: bool,
    /// Whether the clause asks for the caller of the function.
    caller: bool,
    /// Whether the clause asks for the function.
    function: bool,
}

impl Wants {
    fn of(routine: &Routine) -> Self {
        let mut wants = Self { registers: false, caller: false, function: false };
        for op in &routine.ops {
            let need = match op {
                Op::Load { what, .. } => what.need(),
                Op::Stack { .. } => BuiltinNeed::Caller,
                _ => BuiltinNeed::Nothing,
            };
            match need {
                BuiltinNeed::Register(register) => wants.registers |= !is_passed(register),
                BuiltinNeed::Function => wants.function = true,
                BuiltinNeed::Caller => wants.caller = true,
                BuiltinNeed::Nothing => {}
            }
        }
        wants
    }
}

/// Returns whether a call passes this register, so that [`CallArguments`] have it.
fn is_passed(register: Register) -> bool {
    match register {
        Register::X(number) => CallArguments::offset_of(number).is_some(),
        Register::Sp | Register::Pc => true,
        Register::Pstate => false,
    }
}

impl ResolvedProbes {
    /// Adds the places at which clause `clause`, whose code is `routine`, runs for `probe`. `table` has the inlined
    /// copies.
    ///
    /// # Errors
    ///
    /// There is no such place, or there is no memory for all of them.
    pub fn add(
        &mut self,
        clause: usize,
        routine: &Routine,
        probe: &Spanned<Probe>,
        table: &CopyTable,
    ) -> Result<(), Error> {
        let wants = Wants::of(routine);
        let before = self.places.len();
        fallible::push(&mut self.spans, probe.span)?;
        match &probe.node {
            Probe::Begin | Probe::End | Probe::Interval { .. } => {
                let name = self.name(probe.node.try_clone()?)?;
                return Ok(fallible::push(&mut self.alone, (clause, name))?);
            }
            Probe::Profile { .. } | Probe::CpuClock { .. } | Probe::Hardware { .. } => {
                let period = probe.node.sampling_period().unwrap_or(Period::Time(Duration::MAX));
                let name = self.name(probe.node.try_clone()?)?;
                let (probe, wants_function) = (self.probe(), wants.function);
                let wants_caller = wants.caller;
                let sampled = SampledClause { clause, name, probe, period, wants_function, wants_caller };
                return Ok(fallible::push(&mut self.sampled, sampled)?);
            }
            Probe::Inline { function, exit } => {
                let found = table.copies(function, *exit);
                let outcome = found.and_then(|found| self.push_copies(clause, found, *exit, &wants));
                return outcome.map_err(|problem| probe.span.error(problem));
            }
            Probe::Kprobe { glob } => {
                for function in functions(glob) {
                    let name = self.name(Probe::Kprobe { glob: symbol::path(&function)? })?;
                    // An entry probe assumes the procedure call standard. Functions with another calling convention
                    // cannot be probed: see `tracing::Names`.
                    let way = if wants.registers { Way::Instruction } else { Way::Entry };
                    self.push(way, clause, name, &function, 0, &wants)?;
                }
            }
            Probe::Kretprobe { glob } => {
                for function in functions(glob) {
                    let name = self.name(Probe::Kretprobe { glob: symbol::path(&function)? })?;
                    self.push(Way::Kretprobe, clause, name, &function, 0, &wants)?;
                }
            }
            Probe::Return { glob } => {
                for function in functions(glob) {
                    let name = self.name(Probe::Return { glob: symbol::path(&function)? })?;
                    let range = range(&function);
                    for address in range.clone().step_by(4) {
                        let exit = probe::instruction(address).and_then(|word| exit_at(address, word, &range));
                        if let Some(exit) = exit {
                            self.push(Way::Exit(exit), clause, name, &function, address - range.start, &wants)?;
                        }
                    }
                }
            }
            Probe::Offset { function, offset } => {
                for function in symbol::functions(function).filter(|function| *offset < function.size) {
                    let name = self.name(Probe::Offset { function: symbol::path(&function)?, offset: *offset })?;
                    self.push(Way::Instruction, clause, name, &function, *offset as usize, &wants)?;
                }
            }
            Probe::Tracepoint { group, event } => {
                let is_meant = |known: &&Event| matches(group, known.group()) && matches(event, known.name());
                let mut meant = fallible::collect(event::all().filter(is_meant))?;
                fallible::sort_by_key(&mut meant, |known| (known.group(), known.name()));
                for known in meant {
                    // Without a symbol for its function, an event cannot be probed.
                    if let Some(function) = symbol::lookup(known.address()) {
                        let (group, event) = (fallible::copy(known.group())?, fallible::copy(known.name())?);
                        let name = self.name(Probe::Tracepoint { group, event })?;
                        let way = if wants.registers { Way::Instruction } else { Way::Entry };
                        self.push(way, clause, name, &function, 0, &wants)?;
                    }
                }
                return match (self.places.len() > before, nearest_event(group, event)) {
                    (true, _) => Ok(()),
                    (false, Some(meant)) => Err(probe.span.error(Problem::NoEventBut { meant: Described(meant) })),
                    (false, None) => Err(probe.span.error(Problem::NoEvent)),
                };
            }
            Probe::Line { file, line } => self.add_line(clause, probe.span, file, *line, &wants)?,
            Probe::FunctionLine { function, line } => {
                self.add_function_line(clause, probe.span, function, *line, &wants)?
            }
            Probe::Watch { symbol, offset, length, loads, stores } => {
                let start = match symbol {
                    None => 0,
                    Some(path) => symbol::address(path).ok_or_else(|| probe.span.error(Problem::NoAddress))?,
                };
                let address = start.wrapping_add(*offset);
                if !can_watch(address, *length) {
                    return Err(probe.span.error(Problem::WatchRange));
                }
                let watched = Watched {
                    address,
                    length: *length,
                    loads: *loads,
                    stores: *stores,
                    clause,
                    probe: self.probe(),
                    name: self.name(probe.node.try_clone()?)?,
                    wants_caller: wants.caller,
                };
                fallible::push(&mut self.watched, watched)?;
                return Ok(());
            }
            Probe::Instruction { function, offset } => {
                for function in symbol::functions(function) {
                    let path = symbol::path(&function)?;
                    let all = (0..function.size).step_by(4);
                    for offset in all.filter(|at| offset.is_none_or(|offset| offset == *at)) {
                        let probe = Probe::Instruction { function: fallible::copy(&path)?, offset: Some(offset) };
                        let name = self.name(probe)?;
                        self.push(Way::Instruction, clause, name, &function, offset as usize, &wants)?;
                    }
                }
            }
        }
        if self.places.len() > before {
            return Ok(());
        }
        let (function, problem) = match &probe.node {
            Probe::Offset { function, .. } | Probe::Instruction { function, .. } => (function, Problem::NoInstruction),
            Probe::FunctionLine { function, .. } => (function, Problem::NoMatch),
            Probe::Return { glob } => (glob, Problem::NoExit),
            Probe::Kprobe { glob } | Probe::Kretprobe { glob } => (glob, Problem::NoMatch),
            _ => return Err(probe.span.error(Problem::NoMatch)),
        };
        let is_there = symbol::functions(function).next().is_some();
        Err(probe.span.error(match symbol::nearest(function) {
            _ if is_there => problem,
            Some(meant) => Problem::NoMatchBut { meant },
            None => Problem::NoMatch,
        }))
    }

    /// Adds the instructions that begin a line of a file. Not inlined, for the reason of
    /// [`add_function_line`](Self::add_function_line).
    #[inline(never)]
    fn add_line(&mut self, clause: usize, span: Span, file: &str, line: u32, wants: &Wants) -> Result<(), Error> {
        let places = source_lines::addresses(file, line).map_err(|why| span.error(Problem::Line { why }))?;
        // Each copy of the line is a place of its own, even within one function.
        let functions = places.filter_map(|address| Some((address, symbol::lookup(address as usize)?)));
        for (address, function) in functions {
            let name = self.name(Probe::Line { file: fallible::copy(file)?, line })?;
            self.push(Way::Instruction, clause, name, &function, (address - function.address) as usize, wants)?;
        }
        Ok(())
    }

    /// Adds the instructions that begin a line of the functions that match `function`, counted from their declarations.
    ///
    /// Not inlined, because the iterators of lines would make the frames of the callers large.
    #[inline(never)]
    fn add_function_line(
        &mut self,
        clause: usize,
        span: Span,
        function: &str,
        line: u32,
        wants: &Wants,
    ) -> Result<(), Error> {
        let before = self.places.len();
        let mut failed = Vec::new();
        let told = self.moved.len();
        for function in symbol::functions(function) {
            match source_lines::addresses_in(&function, line) {
                Ok((found, places)) => self.push_lines(clause, &function, line, found, places, wants)?,
                Err(why) => fallible::push(&mut failed, (symbol::path(&function)?, why))?,
            }
        }
        if let Some(&(_, why)) = failed.first().filter(|_| self.places.len() == before) {
            return Err(span.error(Problem::Line { why }));
        }
        for (path, why) in failed {
            let warning = format_args!("kprobe:{path}:{line}: {why}");
            fallible::push(&mut self.moved, fallible::format(warning)?)?;
        }
        let more = self.moved.len().saturating_sub(told + MOVED_MAX);
        if more > 0 {
            self.moved.truncate(told + MOVED_MAX);
            let rest = format_args!("kprobe:{function}:{line}: and {more} more");
            fallible::push(&mut self.moved, fallible::format(rest)?)?;
        }
        Ok(())
    }

    /// Adds the instructions `places` of a function, which begin its line `found`. If another line was `wanted`, adds a
    /// sentence about it.
    fn push_lines(
        &mut self,
        clause: usize,
        function: &Symbol<'_>,
        wanted: u32,
        found: u32,
        places: impl Iterator<Item = u64>,
        wants: &Wants,
    ) -> Result<(), OutOfMemory> {
        let path = symbol::path(function)?;
        if found != wanted {
            let moved = format_args!("kprobe:{path}:{wanted}: no instruction begins this line; line {found} is probed");
            fallible::push(&mut self.moved, fallible::format(moved)?)?;
        }
        let name = self.name(Probe::FunctionLine { function: path, line: found })?;
        for address in places {
            self.push(Way::Instruction, clause, name, function, (address - function.address) as usize, wants)?;
        }
        Ok(())
    }

    /// Adds the places at which control passes into the copies, or out of them if `exit`.
    fn push_copies(&mut self, clause: usize, found: FoundCopies, exit: bool, wants: &Wants) -> Result<(), Problem> {
        let untold = found.copies.iter().filter(|copy| copy.boundaries.is_none()).count();
        if untold == found.copies.len() {
            return Err(Problem::UntoldInlined);
        }
        self.untold += untold;
        fallible::extend(&mut self.inlined, found.names)?;
        let mut last: Option<(u64, usize)> = None;
        for copy in found.copies {
            let Some(boundaries) = copy.boundaries else { continue };
            let name = match last {
                Some((function, name)) if function == copy.function => name,
                _ => self.name(Probe::Inline { function: copy.name, exit })?,
            };
            last = Some((copy.function, name));
            let (function, caller, hash, first) = (copy.function, copy.caller, copy.hash, copy.address as u64);
            for CopyBoundary { way, address } in boundaries {
                let is_certain = address == copy.host.start;
                let place = ResolvedPlace {
                    way,
                    address,
                    clause,
                    probe: self.probe(),
                    name,
                    function: copy.host.clone(),
                    is_caller_in_x30: wants.caller && (is_certain || prologue::is_caller_in_x30(address)),
                    inlined: Some(Inlined { function, caller, hash, first }),
                };
                fallible::push(&mut self.places, place)?;
            }
        }
        Ok(())
    }

    /// Returns the number of the probe that is being added.
    fn probe(&self) -> usize {
        self.spans.len().saturating_sub(1)
    }

    /// Adds a name, and returns its number.
    fn name(&mut self, probe: Probe) -> Result<usize, OutOfMemory> {
        fallible::push(&mut self.names, probe)?;
        Ok(self.names.len())
    }

    fn push(
        &mut self,
        way: Way,
        clause: usize,
        name: usize,
        function: &Symbol<'_>,
        offset: usize,
        wants: &Wants,
    ) -> Result<(), OutOfMemory> {
        let function = range(function);
        let address = function.start + offset;
        // A function has released its frame at every instruction that leaves it.
        let is_certain = offset == 0 || matches!(way, Way::Exit(_));
        let is_caller_in_x30 = wants.caller && (is_certain || prologue::is_caller_in_x30(address));
        let probe = self.probe();
        let place = ResolvedPlace { way, address, clause, probe, name, function, is_caller_in_x30, inlined: None };
        fallible::push(&mut self.places, place)
    }
}

/// Returns the functions that `glob` means. A pattern does not match the functions of static events: a probe there
/// makes all code that emits the event evaluate its fields.
pub(super) fn functions(glob: &str) -> impl Iterator<Item = Symbol<'static>> {
    let is_pattern = glob.contains(['*', '?']);
    let is_of_event = |function: &Symbol<'_>| event::of_function(function.address as usize).is_some();
    symbol::functions(glob).filter(move |function| !is_pattern || !is_of_event(function))
}

fn range(function: &Symbol<'_>) -> Range<usize> {
    function.address as usize..(function.address + function.size) as usize
}

/// Returns the static event that was probably meant: the event with the most similar name, in any group.
fn nearest_event(group: &str, event: &str) -> Option<&'static Event> {
    if group.contains(['*', '?']) || event.contains(['*', '?']) {
        return None;
    }
    let name = nearest(event, event::all().map(Event::name))?;
    event::all().find(|known| known.name() == name)
}
