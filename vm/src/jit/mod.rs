//! The compiler: from the checked form to A64 instructions that do what the interpreter does.
//!
//! Each clause becomes a function, a handler, which is called with the address of the kernel's description of a hit in
//! x0 (AAPCS64). A [`Kernel`] tells the compiler what that address points to, and where everything else is found. A
//! [`MachineCode`] has the instructions of a handler, and the calls that they make.
//!
//! # What is compiled, and what is called
//!
//! Computations, comparisons, jumps and loads of properties of a hit are instructions. So are reads and changes of
//! one-word values, and all aggregations but time series, in maps with keys of at most two words. For everything else
//! the handler calls the kernel's routine, which does the same op by [`hit::perform`](crate::hit::perform): reads of
//! memory, stacks, output, strings in maps, values of aggregations. It also calls the routine for the unusual cases of
//! compiled ops: a new key, a key in a bucket after its home, and a value that another CPU is changing.
//!
//! # Registers and memory
//!
//! A handler saves nothing unless it calls. It uses only registers that a function need not preserve: x0 is the hit; x1
//! is the row of this CPU (see [`Directory`]) and x2 its frame, both loaded where they are first needed; x3 to x8 are
//! values, as `allocation` assigns them; and x9 to x17 are temporary within an op. Around a call, values are in the
//! frame, where the interpreter has them. So the stack holds at most 32 bytes: a frame record, x0 and x1.
//!
//! A handler writes only that part of the stack, the store, and its frame in the store. Control goes forward, except in
//! the search of a bucket, which has a bit for each slot. `verify` and `reach` check all of this again in the finished
//! words.

mod access;
mod allocation;
mod assembler;
mod call;
mod clock;
mod collect;
mod compute;
mod emit;
mod operation;
mod reach;
mod snippet;
mod verify;
mod words;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use aarch64_kprobes::insn::{Literal, encode};
use fallible::OutOfMemory;

use allocation::Allocations;
use assembler::Assembler;
pub use clock::Clock;
use emit::Emitter;
use reach::Reach;
pub use snippet::{At, InStub, Key, KeyPart, in_stub};

use crate::counted::counted;
use crate::ir::{Code, Op, Register};
use crate::maps::Store;

/// The register with the hit.
const HIT: u8 = 0;
/// The register with the row of this CPU.
const ROW: u8 = 1;
/// The register with the frame of this CPU.
const FRAME: u8 = 2;
/// The registers for values.
const VARIABLES: RangeInclusive<u8> = 3..=8;
/// The register with the address of the bucket.
const BUCKET: u8 = 9;
/// The register with the bucket's lock word; before that, the factor of the hash.
const HOLDER: u8 = 10;
/// The register with the mask of used slots.
const TAKEN: u8 = 11;
/// The register with the address of a slot.
const SLOT: u8 = 12;
/// Registers for the results of an op.
const ONE: u8 = 13;
const OTHER: u8 = 14;
/// Registers for the operands of an op that are not in registers of their own.
const LEFT: u8 = 15;
const RIGHT: u8 = 16;
const THIRD: u8 = 17;
/// The number of the zero register.
const ZERO: u8 = 31;

/// `ldr xt, [xn, #offset]`.
const fn load(rt: u8, rn: u8, offset: u16) -> u32 {
    encode::load(Literal::Doubleword, rt, rn, offset)
}

/// The largest number of words in a compiled clause: a branch on a bit reaches 32 KiB.
// Fewer in Miri, where the test of a clause that is too long would take a minute.
pub const WORDS_MAX: usize = if cfg!(miri) { 1023 } else { 8191 };

/// The start of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The address in x0.
    Hit,
    /// The address in TPIDR_EL1.
    Thread,
}

/// The path to a word of 64 bits in memory: load at the first offset from the base, then at the second offset from the
/// loaded address, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The start.
    pub base: Base,
    /// The offsets in bytes. Each is a multiple of 8 below 32,768, and there is at least one.
    pub offsets: &'static [u16],
}

/// Where a word of 64 bits comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A constant.
    Constant(u64),
    /// A word in memory.
    Path(Path),
}

/// What the compiler must know of the kernel. For a property whose source is `None`, the handler calls
/// [`perform`](Self::perform).
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Returns the offset of a register of the interrupted code from the address in x0, in bytes: a multiple of 8 below
    /// 32,768.
    pub register: fn(Register) -> Option<u16>,
    /// The source of [`Machine::function`](crate::hit::Machine::function).
    pub function: Option<Source>,
    /// The source of [`Machine::caller`](crate::hit::Machine::caller).
    pub caller: Option<Source>,
    /// The source of [`Machine::probe`](crate::hit::Machine::probe).
    pub probe: Option<Source>,
    /// The source of [`Machine::cpu`](crate::hit::Machine::cpu).
    pub cpu: Path,
    /// The number of CPUs. The number of each CPU is below it.
    pub cpus: usize,
    /// The source of [`Machine::task`](crate::hit::Machine::task).
    pub task: Option<Source>,
    /// The source of the first of the two words of [`Machine::comm`](crate::hit::Machine::comm).
    pub comm: Option<Path>,
    /// The clock of [`Machine::nanoseconds`](crate::hit::Machine::nanoseconds).
    pub nanoseconds: Option<Clock>,
    /// The virtual address of a function that calls [`hit::perform`](crate::hit::perform) and may be called from a
    /// handler (AAPCS64). Its x0 is that of the handler; x1 has the number of the op, and from bit 16 on that of the
    /// clause; x2 is `context`.
    pub perform: u64,
    /// The value of x2 in that call.
    pub context: u64,
}

/// The addresses of each CPU's data in a store: one row of words per CPU, with the address of its frame and of its
/// table of each map.
///
/// Compiled code contains the address of the directory.
#[derive(Debug)]
pub struct Directory {
    words: Box<[u64]>,
    /// The number of words in a row, as a power of 2.
    shift: u8,
}

impl Directory {
    /// Makes the directory of `store`, which must stay in place as long as the directory is used.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the directory.
    pub fn new(store: &Store) -> Result<Self, OutOfMemory> {
        let row = (1 + store.tables.len()).next_power_of_two();
        let rows = store.per_cpu.iter().enumerate().flat_map(|(cpu, of_cpu)| {
            let frame = of_cpu.frame.as_ptr().expose_provenance() as u64;
            let tables =
                store.tables.iter().map(move |tables| tables.get(cpu).or(tables.first()).map_or(0, |of| of.address()));
            [frame].into_iter().chain(tables).chain(core::iter::repeat(0)).take(row)
        });
        Ok(Self { words: fallible::boxed_slice(rows)?, shift: row.trailing_zeros() as u8 })
    }

    fn address(&self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }
}

/// A call in machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallInstruction {
    /// The number of the word with the BLR.
    pub word: usize,
    /// The virtual address that is called.
    pub to: u64,
}

/// The instructions of a compiled clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCode {
    /// The words. They run at any multiple of 8, if branch targets are not checked there. The handler begins with the
    /// first word.
    pub words: Vec<u32>,
    /// The number of words that are instructions; literals follow.
    pub instructions: usize,
    /// The bytes of stack that the handler needs, without those of the functions that it calls.
    pub stack_bytes: usize,
    /// All calls in it.
    pub calls: Vec<CallInstruction>,
}

/// Why a clause is not compiled. The interpreter can still run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No clause has this number.
    NoClause(usize),
    /// The clause would have more words than [`WORDS_MAX`].
    Long,
    /// The clause has a loop.
    Loop,
    /// The compiled words break a rule of handlers, because of a flaw in the compiler.
    Flaw {
        /// The number of the word.
        word: usize,
        /// The broken rule, as a predicate about the word.
        what: &'static str,
    },
    /// The store was made for fewer CPUs than the kernel has.
    Cpus {
        /// The number of CPUs of the store.
        store: usize,
        /// The number of CPUs of the kernel.
        kernel: usize,
    },
    /// There is no memory to compile the clause.
    OutOfMemory,
}

impl From<OutOfMemory> for Refused {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClause(number) => write!(f, "there is no clause {number}"),
            Self::Long => write!(f, "the clause compiles to more than {WORDS_MAX} instructions"),
            Self::Loop => f.write_str("the clause has a loop"),
            Self::Flaw { word, what } => write!(f, "word {word} of the instructions {what}"),
            Self::Cpus { store, kernel } => {
                write!(f, "the kernel has {}, but the program is loaded for {store}", counted(*kernel, "CPU", "CPUs"))
            }
            Self::OutOfMemory => f.write_str("there is no memory to compile the clause"),
        }
    }
}

impl core::error::Error for Refused {}

/// Compiles the clause of `code` with this number, to run with `store`, which was made for `code`, and with the store's
/// `directory`.
///
/// The words may be executed, with interrupts masked, as long as `store` and `directory` stay in place and everything
/// in `kernel` remains true.
///
/// # Errors
///
/// [`Refused`], with the reason. The interpreter can still run the clause.
pub fn compile(
    code: &Code,
    clause: usize,
    store: &Store,
    directory: &Directory,
    kernel: &Kernel,
) -> Result<MachineCode, Refused> {
    let routine = code.routines.get(clause).ok_or(Refused::NoClause(clause))?;
    if store.per_cpu.len() < kernel.cpus {
        return Err(Refused::Cpus { store: store.per_cpu.len(), kernel: kernel.cpus });
    }
    // The allocations of values are found along paths that only go forward.
    if routine.ops.iter().any(|op| matches!(op, Op::Again { .. })) {
        return Err(Refused::Loop);
    }
    let allocations = Allocations::new(code, &routine.ops, VARIABLES)?;
    let machine_code = Emitter::new(code, clause, routine, store, directory, kernel, allocations)?.emit()?;
    machine_code.verify(|to| to == kernel.perform, Reach { store, directory, cpu: kernel.cpu })?;
    Ok(machine_code)
}

#[cfg(test)]
mod tests;
