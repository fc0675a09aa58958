//! A simulated machine: memory, an image with functions, and hits.

use std::fmt::{self, Write};
use std::ops::Range;
use std::string::{String, ToString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use fallible::failing::with_memory;
use kprobes_symbols::names::{matches, numbered};
use kprobes_types::Types;
use kprobes_vm::hit::{Machine, run};
use kprobes_vm::ir::Register;
use kprobes_vm::maps::{Limits, Store};

use super::tried;
use crate::check::{Instruction, Symbols, VariableScope, check};
use crate::checked::Checked;
use crate::error::{Error, Problem};
use crate::report::{Names, OutputFormat, drain, write_maps};
use crate::syntax::{Probe, Spanned, parse};

/// The functions of the image, with their addresses; each is 0x100 bytes long.
pub(crate) const IMAGE: [(&str, u64); 8] = [
    ("blk::submit", 0x1000),
    ("blk::read", 0x1100),
    ("net::send", 0x1200),
    ("main", 0x1300),
    // Two instances of a generic function, and two functions with the same path.
    ("net::check::<u32>", 0x1400),
    ("net::twin", 0x1500),
    ("net::check::<u64>", 0x1600),
    ("net::twin", 0x1700),
];

/// The symbol table of the simulated image.
pub(crate) struct SimulatedImage;

impl Symbols for SimulatedImage {
    fn address(&self, name: &str) -> Option<u64> {
        let (path, number) = numbered(name);
        IMAGE
            .iter()
            .filter(|(of, _)| *of == path)
            .nth(number.map_or(0, |number| number - 1))
            .map(|&(_, address)| address)
    }

    fn functions(&self, path: &str) -> Result<Vec<Range<u64>>, Problem> {
        let (path, wanted) = numbered(path);
        // The memory for the answers of the image does not count as memory of the program.
        with_memory(usize::MAX, || {
            let meant = IMAGE.iter().filter(|(name, _)| matches(path, name));
            let meant = meant.filter(|&&(_, start)| wanted.is_none_or(|wanted| self.number(start).max(1) == wanted));
            Ok(meant.map(|&(_, start)| start..start + 0x100).collect())
        })
    }

    fn instructions(&self, probe: &Spanned<Probe>) -> Result<Vec<Instruction>, Error> {
        if let Probe::Inline { function, .. } = &probe.node {
            let hash = kprobes_types::hash(function);
            let at = |&(_, function, address, first): &(&str, u64, u64, u64)| Instruction {
                function,
                address,
                looked_up: address,
                has_frame: true,
                has_stack: true,
                scope: VariableScope::Copy { hash, first },
            };
            // The copies of `net::inner` stand for those that the table does not describe.
            let known =
                super::rust_place::COPIES.iter().filter(|(name, ..)| name == function || function == "net::inner");
            return Ok(with_memory(usize::MAX, || known.map(at).collect()));
        }
        let (Probe::Offset { function, offset } | Probe::Instruction { function, offset: Some(offset) }) = &probe.node
        else {
            return Err(probe.span.error(Problem::NoMatch));
        };
        let found = self.functions(function).map_err(|problem| probe.span.error(problem))?;
        with_memory(usize::MAX, || {
            let at = |start| Instruction {
                function: start,
                address: start + offset,
                looked_up: start + offset,
                has_frame: *offset >= 8,
                has_stack: (8..0xf0).contains(offset),
                scope: VariableScope::All,
            };
            Ok(found.into_iter().map(|function| at(function.start)).collect())
        })
    }

    fn types(&self) -> Result<Option<&'static Types<'static>>, Problem> {
        Ok(Some(with_memory(usize::MAX, super::rust_place::table)))
    }
}

impl Names for SimulatedImage {
    fn symbol(&self, address: u64) -> Option<(&str, u64)> {
        IMAGE.iter().find(|(_, start)| (*start..start + 0x100).contains(&address)).map(|&(name, start)| (name, start))
    }

    fn number(&self, address: u64) -> usize {
        let Some((name, start)) = self.symbol(address) else { return 0 };
        let same = || IMAGE.iter().filter(|(of, _)| *of == name).map(|&(_, start)| start);
        if same().count() == 1 { 0 } else { 1 + same().filter(|other| *other < start).count() }
    }

    fn types(&self) -> Option<Types<'static>> {
        Some(*with_memory(usize::MAX, super::rust_place::table))
    }

    fn probe(&self, number: u64, out: &mut dyn Write) -> fmt::Result {
        write!(out, "kprobe:{}", IMAGE[number as usize - 1].0)
    }
}

/// The state of the machine at a hit.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub registers: [u64; 31],
    pub stack_pointer: u64,
    pub function: u64,
    pub caller: u64,
    pub cpu: usize,
    pub task: u64,
    pub comm: &'static str,
    pub time: u64,
    pub stack: &'static [u64],
    /// The memory from address 0x8000 on. Other addresses cannot be read.
    pub memory: [u8; 64],
}

impl Task {
    /// Creates a hit of `blk::submit` with these arguments.
    pub fn with(arguments: &[u64]) -> Self {
        let mut registers = [0; 31];
        registers[..arguments.len()].copy_from_slice(arguments);
        registers[9] = 99;
        let memory = *b"a string\0of 63 bytes and \xff\xfe\xfd\xfc\x01\x80\0\0 what else there is in here ...";
        Self {
            registers,
            stack_pointer: 0x8000,
            function: 0x1000,
            caller: 0x1310,
            cpu: 0,
            task: 7,
            comm: "worker",
            time: 5_000,
            stack: &[0x1004, 0x1110, 0x1320],
            memory,
        }
    }
}

impl Machine for Task {
    fn register(&self, register: Register) -> u64 {
        match register {
            Register::X(number) => self.registers[usize::from(number)],
            Register::Sp => self.stack_pointer,
            Register::Pc => self.function,
            Register::Pstate => 0x3c5,
        }
    }

    fn result(&self) -> u64 {
        0x8000
    }

    fn function(&self) -> u64 {
        self.function
    }

    fn caller(&self) -> u64 {
        self.caller
    }

    fn probe(&self) -> u64 {
        1 + ((self.function >> 8) & 3)
    }

    fn cpu(&self) -> usize {
        self.cpu
    }

    fn task(&self) -> u64 {
        self.task
    }

    fn comm(&self) -> [u8; 16] {
        let mut comm = [0; 16];
        comm[..self.comm.len()].copy_from_slice(self.comm.as_bytes());
        comm
    }

    fn nanoseconds(&self) -> u64 {
        self.time
    }

    fn read(&self, address: u64, bytes: u8) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(0x8000)?).ok()?;
        let found = self.memory.get(start..start.checked_add(bytes.into())?)?;
        let mut word = [0; 8];
        word[..found.len()].copy_from_slice(found);
        Some(u64::from_le_bytes(word))
    }

    fn stack(&self, frames: &[AtomicU64]) -> usize {
        frames.iter().zip(self.stack).map(|(to, frame)| to.store(*frame, Ordering::Relaxed)).count()
    }
}

/// Reads and checks a program for the simulated image.
pub(crate) fn load(program: &str) -> Result<Checked, Error> {
    check(&parse(program)?, &SimulatedImage)
}

/// Masks interrupts, of which this machine has none.
pub(crate) fn masked(action: &mut dyn FnMut()) {
    action();
}

/// A program that is loaded on a machine with four CPUs.
pub(crate) struct Bed {
    pub program: Checked,
    pub store: Store,
    pub text: String,
    pub format: OutputFormat,
}

impl Bed {
    /// Loads a valid program. In Miri the tables are small, because a borrow of a table takes time for each of its
    /// words.
    pub fn new(program: &str) -> Self {
        let usual = Limits::usual(4);
        Self::within(
            program,
            &if cfg!(miri) { Limits { entries: 32, stacks: 16, output_bytes: 2 << 10, ..usual } } else { usual },
        )
    }

    /// Loads a valid program within `limits`.
    pub fn within(program: &str, limits: &Limits) -> Self {
        Self::of(load(program).unwrap_or_else(|error| panic!("{}", error.within(program))), limits)
    }

    /// Loads a checked program within `limits`.
    pub fn of(program: Checked, limits: &Limits) -> Self {
        let store = Store::new(&program.code, limits, 1_000).unwrap_or_else(|flaw| panic!("{program}{flaw}"));
        Self { program, store, text: String::new(), format: OutputFormat::Text }
    }

    /// Runs clause `clause` for `hit`.
    pub fn hit(&self, clause: usize, hit: &Task) -> &Self {
        run(&self.program.code, clause, &self.store, hit);
        self
    }

    /// Drains the output. Returns whether the program asked to exit.
    pub fn drain(&mut self) -> bool {
        drain(&self.program, &self.store, &SimulatedImage, &masked, self.format, &mut self.text).unwrap()
    }

    /// Returns everything that is printed, up to and including the maps at the end.
    pub fn finish(mut self) -> String {
        self.drain();
        write_maps(&self.program, &self.store, &SimulatedImage, &masked, self.format, &mut self.text).unwrap();
        self.text
    }
}

/// Returns what `program` prints for hits of its first clause with these arguments.
pub(super) fn printed(program: &str, hits: &[&[u64]]) -> String {
    let bed = Bed::new(program);
    for arguments in hits {
        bed.hit(0, &Task::with(arguments));
    }
    bed.finish()
}

/// Returns what `kprobe:f { body }` prints for one hit with these arguments.
pub(super) fn once(body: &str, arguments: &[u64]) -> String {
    printed(&format!("kprobe:f {{ {body} }}"), &[arguments])
}

/// Returns why `program` is refused: the mark below its line, and the sentence.
pub(super) fn refused(program: &str) -> String {
    match load(program) {
        Ok(code) => panic!("{program} is not refused:\n{code}"),
        Err(error) => error.within(program).to_string(),
    }
}

/// Asserts what `print` shows for each expression, with arg0 to arg3 being 10, 3, -1 and 0x8000.
#[track_caller]
pub(super) fn assert_values(cases: &[(&str, &str)]) {
    for &(expression, shown) in tried(cases) {
        let printed = once(&format!("print({expression});"), &[10, 3, u64::MAX, 0x8000]);
        assert_eq!(printed.trim_end(), shown, "{expression}");
    }
}

/// Asserts that each program is refused with a sentence that contains the text.
#[track_caller]
pub(super) fn assert_refused(cases: &[(&str, &str)]) {
    for &(program, why) in tried(cases) {
        assert!(refused(program).contains(why), "{program}: {}", refused(program));
    }
}
