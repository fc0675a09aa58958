//! From the probes of a program to instructions of the image.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use aarch64_kprobes::probe;
use fallible::{OutOfMemory, TryClone};
use kprobes_program::error::{Error, Problem, Span};
use kprobes_program::syntax::{Probe, Spanned};
use kprobes_symbols::Symbol;
use kprobes_vm::code::{Builtin, Op, Routine};

use super::exits::{Exit, exit_at};
use super::hit;
use super::inlined::{Copies, Site, Table};
use crate::{prologue, source_lines, symbol};

/// How an instruction is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By what a call passes.
    Entry,
    /// By all registers.
    Instruction,
    /// Likewise, if it leaves its function.
    Exit(Exit),
    /// It is the entry of a function whose returns are probed.
    Return,
}

/// An instruction that is to be probed.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub way: Way,
    /// Its virtual address.
    pub address: usize,
    /// The number of the clause.
    pub clause: usize,
    /// The number of the probe in the text of the program.
    pub probe: usize,
    /// The number of the name of its probe.
    pub name: usize,
    /// The virtual addresses of its function.
    pub function: Range<usize>,
    /// Where the function returns to is in x30 there, and in no frame record; not set where no clause asks.
    pub is_caller_in_link: bool,
    /// What it is about, if that is not the function but a copy in it.
    pub inlined: Option<Inlined>,
}

/// What stands for a function of which a copy is probed, and for the function that it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inlined {
    pub function: u64,
    pub caller: u64,
}

impl Place {
    /// What stands for the function that it is about: its virtual address, but for a copy.
    pub fn meant(&self) -> u64 {
        self.inlined.map_or(self.function.start as u64, |inlined| inlined.function)
    }

    /// How many bytes of memory it takes at most to probe it, by and large.
    pub fn memory(&self) -> usize {
        // Of a return probe each call that is in progress takes an instance besides.
        if matches!(self.way, Way::Return) { 5120 } else { 512 }
    }
}

/// All that a program probes.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub places: Vec<Place>,
    /// Where the text names each probe, by their numbers.
    pub spans: Vec<Span>,
    /// Each probe by its number, with the function that it is in; also those of clauses that run by themselves.
    pub names: Vec<Probe>,
    /// Clauses that run by themselves, each with the number of its name.
    pub alone: Vec<(usize, usize)>,
    /// The functions of which copies are probed, and those that they are in, by what stands for them.
    pub inlined: Vec<(u64, String)>,
    /// How many copies are not probed, as no instruction tells when control passes.
    pub untold: usize,
}

/// What a clause wants to know.
struct Wants {
    /// More registers than a call passes.
    registers: bool,
    /// Who called the function.
    caller: bool,
}

impl Wants {
    fn of(routine: &Routine) -> Self {
        let mut wants = Self { registers: false, caller: false };
        for op in &routine.ops {
            match op {
                Op::Load { what: Builtin::Register(register), .. } => wants.registers |= !hit::is_passed(*register),
                Op::Load { what: Builtin::Caller, .. } | Op::Stack { .. } => wants.caller = true,
                _ => {}
            }
        }
        wants
    }
}

impl Places {
    /// Adds where clause `clause`, which is `routine`, runs for `probe`; in copies of functions, those of `table`.
    ///
    /// # Errors
    ///
    /// There is no such place, or no memory for all of them.
    pub fn add(
        &mut self,
        clause: usize,
        routine: &Routine,
        probe: &Spanned<Probe>,
        table: &Table,
    ) -> Result<(), Error> {
        let wants = Wants::of(routine);
        let before = self.places.len();
        fallible::push(&mut self.spans, probe.span)?;
        match &probe.node {
            Probe::Begin | Probe::End | Probe::Interval { .. } => {
                fallible::push(&mut self.alone, (clause, self.names.len()))?;
                fallible::push(&mut self.names, probe.node.try_clone()?)?;
                return Ok(());
            }
            Probe::Inline { function, exit } => {
                let found = table.copies(function, *exit);
                let outcome = found.and_then(|found| self.push_copies(clause, found, *exit, &wants));
                return outcome.map_err(|problem| probe.span.error(problem));
            }
            Probe::Entry { glob } => {
                for function in symbol::functions(glob) {
                    let name = self.name(Probe::Entry { glob: symbol::path(&function)? })?;
                    // What is called otherwise than functions are cannot be probed: see `tracing::Names`.
                    let way = if wants.registers { Way::Instruction } else { Way::Entry };
                    self.push(way, clause, name, &function, 0, &wants)?;
                }
            }
            Probe::Return { glob } => {
                for function in symbol::functions(glob) {
                    let name = self.name(Probe::Return { glob: symbol::path(&function)? })?;
                    self.push(Way::Return, clause, name, &function, 0, &wants)?;
                }
            }
            Probe::Exit { glob } => {
                for function in symbol::functions(glob) {
                    let name = self.name(Probe::Exit { glob: symbol::path(&function)? })?;
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
            Probe::Line { file, line } => {
                let places =
                    source_lines::places(file, *line).map_err(|why| probe.span.error(Problem::Line { why }))?;
                // A copy of the line is a place of its own, in whichever function it is.
                let functions = places.filter_map(|address| Some((address, symbol::lookup(address as usize)?)));
                for (address, function) in functions {
                    let name = self.name(Probe::Line { file: fallible::copy(file)?, line: *line })?;
                    self.push(
                        Way::Instruction,
                        clause,
                        name,
                        &function,
                        (address - function.address) as usize,
                        &wants,
                    )?;
                }
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
            Probe::Exit { glob } => (glob, Problem::NoExit),
            Probe::Entry { glob } | Probe::Return { glob } => (glob, Problem::NoMatch),
            _ => return Err(probe.span.error(Problem::NoMatch)),
        };
        let is_there = symbol::functions(function).next().is_some();
        Err(probe.span.error(match symbol::nearest(function) {
            _ if is_there => problem,
            Some(meant) => Problem::NoMatchBut { meant },
            None => Problem::NoMatch,
        }))
    }

    /// Adds where control passes into the copies that were found, or out of them.
    fn push_copies(&mut self, clause: usize, found: Copies, exit: bool, wants: &Wants) -> Result<(), Problem> {
        let untold = found.copies.iter().filter(|copy| copy.sites.is_none()).count();
        if untold == found.copies.len() {
            return Err(Problem::UntoldInlined);
        }
        self.untold += untold;
        fallible::extend(&mut self.inlined, found.names)?;
        let mut last: Option<(u64, usize)> = None;
        for copy in found.copies {
            let Some(sites) = copy.sites else { continue };
            let name = match last {
                Some((function, name)) if function == copy.function => name,
                _ => self.name(Probe::Inline { function: copy.name, exit })?,
            };
            last = Some((copy.function, name));
            for Site { way, address } in sites {
                let is_certain = address == copy.host.start;
                let place = Place {
                    way,
                    address,
                    clause,
                    probe: self.probe(),
                    name,
                    function: copy.host.clone(),
                    is_caller_in_link: wants.caller && (is_certain || prologue::is_caller_in_link(address)),
                    inlined: Some(Inlined { function: copy.function, caller: copy.caller }),
                };
                fallible::push(&mut self.places, place)?;
            }
        }
        Ok(())
    }

    /// The number of the probe that is being added.
    fn probe(&self) -> usize {
        self.spans.len().saturating_sub(1)
    }

    /// The number of a new name.
    fn name(&mut self, probe: Probe) -> Result<usize, OutOfMemory> {
        fallible::push(&mut self.names, probe)?;
        Ok(self.names.len() - 1)
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
        // A function that is left has given up its frame, whatever leads out of it.
        let is_certain = offset == 0 || matches!(way, Way::Exit(_));
        let is_caller_in_link = wants.caller && (is_certain || prologue::is_caller_in_link(address));
        let probe = self.probe();
        let place = Place { way, address, clause, probe, name, function, is_caller_in_link, inlined: None };
        fallible::push(&mut self.places, place)
    }
}

fn range(function: &Symbol<'_>) -> Range<usize> {
    function.address as usize..(function.address + function.size) as usize
}
