//! Random words, made from the encodings of a class, and registers with which such a word has a comparable effect: a
//! branch leads to a pad, loads and stores access the memory, and a write to sp leaves it on the stack.
//!
//! A class consists of fixed bits, random bits, and a function. The function refuses words that are unallocated or
//! CONSTRAINED UNPREDICTABLE, fills in fields that cannot be random, and returns what the word needs of the registers.
//! All encodings are those of the Arm ARM, C4.1; instructions are in C6.2 under their names.

mod memory;
mod processing;
mod simulated;
mod system;

use aarch64_kprobes::exception::TrapFrame;

use super::arena::Arena;
use super::features::Features;
use kprobes_random::Random;

/// Instructions that are made in the same way.
pub struct Class {
    /// The name of the class.
    pub name: &'static str,
    /// Returns whether the CPU has the instructions.
    has: fn(&Features) -> bool,
    fixed: u32,
    random: u32,
    fill: fn(&mut WordContext<'_>, u32) -> Option<(u32, Need)>,
}

/// The context for making a word.
pub struct WordContext<'a> {
    pub sequence: &'a mut Random,
    pub arena: &'a Arena,
    pub features: &'a Features,
    /// The virtual address at which the word is executed.
    pub address: usize,
}

/// The requirement of a word on the registers.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    Nothing,
    /// Register `rn` holds the address of a pad.
    Pad {
        rn: u8,
    },
    /// The word loads from or stores to the memory.
    Access(Access),
    /// sp becomes register `rn` plus `offset`, plus a random part of register `index`, and must stay on the stack.
    Stack {
        rn: u8,
        offset: i64,
        index: Option<Index>,
    },
}

/// A load or a store.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    rn: u8,
    /// The offset of the first byte from the base register.
    offset: i64,
    /// The number that is added to the base register at the end.
    writeback: i64,
    index: Option<Index>,
    /// The size, in bytes.
    size: u64,
    /// The alignment in bytes, a power of two.
    alignment: u64,
}

/// A register that is extended and shifted before it is added.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    rm: u8,
    /// The extension, encoded as for DecodeRegExtend.
    option: u32,
    shift: u32,
}

/// The registers before a word is executed, and the part of the memory that is compared afterwards.
#[derive(Clone)]
pub struct Case {
    pub before: TrapFrame,
    /// The lowest virtual address that is compared: memory below sp is not.
    pub live: u64,
}

impl Class {
    /// Creates a class of words that continue with the next instruction and have no requirement.
    const fn plain(name: &'static str, fixed: u32, random: u32) -> Self {
        Self { name, has: |_| true, fixed, random, fill: |_, word| Some((word, Need::Nothing)) }
    }

    const fn only_if(mut self, has: fn(&Features) -> bool) -> Self {
        self.has = has;
        self
    }

    const fn filled(mut self, fill: fn(&mut WordContext<'_>, u32) -> Option<(u32, Need)>) -> Self {
        self.fill = fill;
        self
    }

    /// Returns a random word of the class.
    pub fn word(&self, context: &mut WordContext<'_>) -> (u32, Need) {
        loop {
            let random = context.sequence.next() as u32 & self.random;
            if let Some(made) = (self.fill)(context, self.fixed | random) {
                return made;
            }
        }
    }

    /// Returns the classes that the CPU has.
    pub fn present(classes: &'static [Self], features: &Features) -> impl Iterator<Item = &'static Self> {
        classes.iter().filter(|class| (class.has)(features))
    }
}

/// Simulated instructions.
pub const SIMULATED: &[Class] = simulated::CLASSES;
/// Data processing.
pub const PROCESSING: &[Class] = processing::CLASSES;
/// Loads and stores.
pub const MEMORY: &[Class] = memory::CLASSES;
/// System instructions.
pub const SYSTEM: &[Class] = system::CLASSES;

/// The number of bytes between the lowest stack pointer and the end of the stack. The rest below is for trap frames and
/// handlers.
const STACK: u64 = 16 * 1024;

impl WordContext<'_> {
    /// Returns random registers for a word with this requirement.
    pub fn case(&mut self, need: Need) -> Case {
        let mut before = TrapFrame::default();
        before.x.fill_with(|| self.sequence.value());
        let memory = self.arena.memory();
        let (start, end) = (memory.start as u64, memory.end as u64);
        let floor = end - STACK;
        before.pc = self.address as u64;
        // EL1 with SP_EL1, interrupts masked, and the other flags and masks random.
        before.pstate = (self.sequence.next() & (0b1111 << 28 | TrapFrame::DAIF)) | TrapFrame::IRQ_MASKED | 0b0101;
        before.sp = floor + self.sequence.below((start - floor) / 16) * 16;
        let mut live = start;
        match need {
            Need::Nothing => {}
            Need::Pad { rn } => {
                before.set_register(rn, self.arena.pad(self.sequence, self.address, usize::MAX) as u64);
            }
            Need::Access(access) => {
                // sp will be rounded down, which moves the access down, too.
                let slack = if access.rn == 31 { 16 } else { 0 };
                // The access must not leave the stack upwards either, where no trap frame is expected.
                let up = if access.rn == 31 { (access.writeback - access.offset).max(0).unsigned_abs() } else { 0 };
                let room = end - start - slack - up - access.size;
                let target = start + slack + self.sequence.below(room / access.alignment + 1) * access.alignment;
                if let (31, Some(Index { rm, shift, .. })) = (access.rn, access.index) {
                    // The index must not lead below sp: it is positive with any extension, and so small that sp stays
                    // on the stack.
                    let garbage = self.sequence.next() << 32;
                    let small = self.sequence.below((STACK / 2) >> shift);
                    let wide = access.index.is_some_and(|index| index.option & 1 != 0);
                    before.set_register(rm, if wide { small } else { garbage | small });
                }
                let index = access.index.map_or(0, |index| index.value(&before));
                let base = target.wrapping_sub(index).wrapping_sub(access.offset.cast_unsigned());
                if access.rn == 31 {
                    before.sp = base & !15;
                    live = before.sp.max(before.sp.wrapping_add_signed(access.writeback));
                } else {
                    before.set_register(access.rn, base);
                }
            }
            Need::Stack { rn, offset, index } => {
                if let Some(Index { rm, .. }) = index {
                    let garbage = self.sequence.next() << 8;
                    before.set_register(rm, garbage | (self.sequence.below(8) * 16));
                }
                let wide = index.is_some_and(|index| index.option & 3 != 0);
                if let (true, Some(Index { rm, .. })) = (wide, index) {
                    before.set_register(rm, self.sequence.below(8) * 16);
                }
                let moved = offset.wrapping_add_unsigned(index.map_or(0, |index| index.value(&before)));
                let middle = (floor + (start - floor) / 2) & !511;
                let result = middle + self.sequence.below(32) * 16;
                let base = result.wrapping_sub(moved.cast_unsigned());
                if rn == 31 {
                    before.sp = base;
                } else {
                    before.set_register(rn, base);
                }
            }
        }
        Case { before, live }
    }
}

impl Index {
    /// Returns the number that the index adds.
    fn value(self, frame: &TrapFrame) -> u64 {
        let value = frame.register(self.rm);
        let bits = 8 << (self.option & 3);
        let unused = 64 - bits;
        let extended = if self.option & 4 == 0 {
            value << unused >> unused
        } else {
            ((value << unused).cast_signed() >> unused).cast_unsigned()
        };
        extended << self.shift
    }
}

/// Returns bits `high` to `low` of `word`, both inclusive.
const fn field(word: u32, high: u32, low: u32) -> u32 {
    word >> low & (u32::MAX >> (31 - (high - low)))
}

/// Returns bit `number` of `word`.
const fn bit(word: u32, number: u32) -> bool {
    word >> number & 1 != 0
}

/// Returns the signed number in bits `high` to `low`, both inclusive.
const fn signed(word: u32, high: u32, low: u32) -> i64 {
    ((word << (31 - high)).cast_signed() >> (31 - high + low)) as i64
}

const fn rd(word: u32) -> u8 {
    field(word, 4, 0) as u8
}

const fn rn(word: u32) -> u8 {
    field(word, 9, 5) as u8
}

const fn rm(word: u32) -> u8 {
    field(word, 20, 16) as u8
}
