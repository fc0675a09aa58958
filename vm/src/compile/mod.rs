//! The compiler: from the checked form to A64 instructions, which do what the interpreter does.
//!
//! Each clause becomes a function, a handler, that is called with the address of what is known of a hit in x0 (AAPCS64). What
//! that is, and where the rest is found, the kernel says in a [`Kernel`]; the words and what they lead to are a [`Compiled`].
//!
//! # What is compiled, and what is called
//!
//! Computations, comparisons, jumps, loads of what is known of a hit, and what changes or reads a value of one word in a map
//! whose key has at most two words, are instructions. The rest is a call of the kernel's routine, which does the same op by
//! [`hit::perform`](crate::hit::perform): reads of memory, stacks, output, strings in maps, sums over all CPUs; and, of what
//! is compiled, what is not usual: a new key, one that is behind its home, and a value that another CPU is changing.
//!
//! # Registers and memory
//!
//! A handler saves nothing unless it calls. The registers that it uses need not be preserved by a function: x0 is the hit, x1
//! the row of this CPU (see [`Directory`]) and x2 its frame, both found where they are needed first; x3 to x8 are values, as
//! `places` gives them, and x9 to x17 are for a single op. Around a call, values are in the frame, as the interpreter has
//! them. So the stack has 32 bytes at most: a frame record, x0 and x1.
//!
//! It writes nothing but these, the store, and its frame in the store. Control goes forward, but for the search in a bucket,
//! which has a bit for each of its slots. That all this is so is looked over once more in the finished words (`verify`, `reach`).

mod access;
mod assembler;
mod call;
mod clock;
mod collect;
mod compute;
mod emit;
mod places;
mod reach;
mod snippet;
mod verify;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use aarch64_kprobes::insn::{Literal, encode};
use fallible::OutOfMemory;

use assembler::Assembler;
pub use clock::Clock;
use emit::Emitter;
use places::Places;
use reach::Reach;
pub use snippet::{At, InStub, Key, Part, in_stub};

use crate::code::{Code, Op, Register};
use crate::store::Store;

/// The hit.
const HIT: u8 = 0;
/// The row of this CPU.
const ROW: u8 = 1;
/// Its frame.
const FRAME: u8 = 2;
/// What values are in.
const VARIABLES: RangeInclusive<u8> = 3..=8;
/// The bucket.
const BUCKET: u8 = 9;
/// What holds it, and the number that its keys are mixed with.
const HOLDER: u8 = 10;
/// Which of its slots are taken.
const TAKEN: u8 = 11;
/// One of them.
const SLOT: u8 = 12;
/// What an op computes.
const ONE: u8 = 13;
const OTHER: u8 = 14;
/// The operands of an op, where they are not in registers.
const LEFT: u8 = 15;
const RIGHT: u8 = 16;
const THIRD: u8 = 17;
/// The zero register.
const ZERO: u8 = 31;

/// `ldr xt, [xn, #offset]`.
const fn load(rt: u8, rn: u8, offset: u16) -> u32 {
    encode::load(Literal::Doubleword, rt, rn, offset)
}

/// The most words of a clause: a branch by a bit reaches 32 KiB.
pub const WORDS_MAX: usize = 8191;

/// From where an address is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// What x0 holds.
    Hit,
    /// What TPIDR_EL1 holds.
    Thread,
}

/// A word of 64 bits in memory: the address at an offset from the base, the one at an offset from that, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where it begins.
    pub base: Base,
    /// In bytes, each a multiple of 8 below 32,768, and at least one.
    pub offsets: &'static [u16],
}

/// How a word of 64 bits is had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is this.
    Constant(u64),
    /// It is there.
    Path(Path),
}

/// What compiled code is told of the kernel. For what is `None`, [`perform`](Self::perform) is called.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Where a register of the interrupted code is, in bytes from the address in x0: a multiple of 8 below 32,768.
    pub register: fn(Register) -> Option<u16>,
    /// [`Machine::function`](crate::hit::Machine::function).
    pub function: Option<Source>,
    /// [`Machine::caller`](crate::hit::Machine::caller).
    pub caller: Option<Source>,
    /// [`Machine::site`](crate::hit::Machine::site).
    pub site: Option<Source>,
    /// [`Machine::cpu`](crate::hit::Machine::cpu).
    pub cpu: Path,
    /// How many CPUs there are: the number of each is below that.
    pub cpus: usize,
    /// [`Machine::task`](crate::hit::Machine::task).
    pub task: Option<Source>,
    /// [`Machine::comm`](crate::hit::Machine::comm): the first of its two words.
    pub comm: Option<Path>,
    /// [`Machine::nanoseconds`](crate::hit::Machine::nanoseconds).
    pub nanoseconds: Option<Clock>,
    /// The virtual address of a function that calls [`hit::perform`](crate::hit::perform), as a handler may be called (AAPCS64):
    /// x0 is that of the handler; in x1 are the number of the op, and from bit 16 on that of the clause; x2 is `context`.
    pub perform: u64,
    /// What is in x2 then.
    pub context: u64,
}

/// Where what each CPU has of a store is, in a row of words for each: the addresses of its frame, and of its table of each map.
///
/// Compiled code has the address of this in it.
#[derive(Debug)]
pub struct Directory {
    words: Box<[u64]>,
    /// How many words a row has, as a power of 2.
    shift: u8,
}

impl Directory {
    /// Of `store`, which stays where it is as long as this is used.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub fn new(store: &Store) -> Result<Self, OutOfMemory> {
        let row = (1 + store.tables.len()).next_power_of_two();
        let rows = store.lanes.iter().enumerate().flat_map(|(cpu, lane)| {
            let frame = lane.frame.as_ptr().addr() as u64;
            let tables =
                store.tables.iter().map(move |tables| tables.get(cpu).or(tables.first()).map_or(0, |of| of.address()));
            [frame].into_iter().chain(tables).chain(core::iter::repeat(0)).take(row)
        });
        Ok(Self { words: fallible::boxed_slice(rows)?, shift: row.trailing_zeros() as u8 })
    }

    fn address(&self) -> u64 {
        self.words.as_ptr().addr() as u64
    }
}

/// A call in compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number of the word that is BLR.
    pub word: usize,
    /// The virtual address of what is called.
    pub to: u64,
}

/// A clause as instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// To be put at a multiple of 8, anywhere, where branch targets are not checked. The handler begins with the first.
    pub words: Vec<u32>,
    /// How many of the words are instructions; numbers follow.
    pub instructions: usize,
    /// The most bytes of the stack that it takes, besides those of what it calls.
    pub stack_bytes: usize,
    /// All its calls.
    pub calls: Vec<Call>,
}

/// Why a clause is not compiled. The interpreter can run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no clause of this number.
    NoClause(usize),
    /// It would have more words than [`WORDS_MAX`].
    Long,
    /// It has a loop.
    Loop,
    /// What has been made of it breaks a rule of handlers. There is a flaw in the compiler.
    Flaw {
        /// The number of the word.
        word: usize,
        /// The rule, as what is wrong.
        what: &'static str,
    },
    /// The store is made for fewer CPUs than there are.
    Cpus {
        /// For how many it is made.
        store: usize,
        /// How many there are.
        kernel: usize,
    },
    /// There is no memory to compile it.
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
            Self::Long => write!(f, "the clause has more than {WORDS_MAX} words as instructions"),
            Self::Loop => f.write_str("the clause has a loop"),
            Self::Flaw { word, what } => write!(f, "word {word} of the instructions {what}"),
            Self::Cpus { store, kernel } => {
                write!(f, "there are {kernel} CPUs, and the program is loaded for {store}")
            }
            Self::OutOfMemory => f.write_str("there is no memory to compile the clause"),
        }
    }
}

impl core::error::Error for Refused {}

/// Compiles a clause of `code`, by its number, to run with `store`, which was made for `code`. `directory` is that of the store.
///
/// The words are good to be executed, with interrupts masked, as long as `store` and `directory` are where they are now, and with
/// what `kernel` says being so.
///
/// # Errors
///
/// If it is too long, has a loop, or is not there, if a CPU has no part in the store, or if there is no memory.
pub fn compile(
    code: &Code,
    clause: usize,
    store: &Store,
    directory: &Directory,
    kernel: &Kernel,
) -> Result<Compiled, Refused> {
    let routine = code.routines.get(clause).ok_or(Refused::NoClause(clause))?;
    if store.lanes.len() < kernel.cpus {
        return Err(Refused::Cpus { store: store.lanes.len(), kernel: kernel.cpus });
    }
    // Where values are is found out along ways that go forward.
    if routine.ops.iter().any(|op| matches!(op, Op::Again { .. })) {
        return Err(Refused::Loop);
    }
    let places = Places::new(code, &routine.ops, VARIABLES)?;
    let compiled = Emitter::new(code, clause, routine, store, directory, kernel, places)?.emit()?;
    compiled.verify(|to| to == kernel.perform, Reach { store, directory, cpu: kernel.cpu })?;
    Ok(compiled)
}

#[cfg(test)]
mod tests;
