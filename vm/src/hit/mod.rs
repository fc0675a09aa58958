//! What runs while a probe is hit: the interpreter, which is the meaning of the checked form, and what it does to the store.
//! Compiled code does the same, and is tested against it.
//!
//! Everything in this module and below runs with interrupts masked: no lock but those of the maps, no allocation, no panic, no
//! loop without a bound, and no call out of the closed region of the image. The linker script places it there by its path. So
//! only functions of the hit path are here, and none of the types that others are generic over: those are in [`code`](crate::code)
//! and [`store`](crate::store), and some of their methods are here.
//!
//! The interpreter touches only the store, of which the frame and the ring of its CPU are its own, and what [`Machine`] gives it.

mod append;
mod evaluate;
mod intern;
mod lookup;
mod maps;
mod merge;

pub use evaluate::extend;
#[cfg(test)]
pub(crate) use intern::NO_STACK;
#[cfg(all(test, loom))]
pub(crate) use intern::hash;
pub(crate) use merge::{halves, is_better, join, widened};
pub use merge::{total, wide};

use core::sync::atomic::Ordering;

use crate::atomic::AtomicU64;
use crate::code::{Builtin, Code, FRAME_WORDS, Op, Operand, Register, Routine, TURNS_MAX, Word};
use crate::store::{Cells, Lane, MIX, Store, Table};

/// Whether `holds` is true of each element of `left` and the element of `right` in the same place, as far as there are both.
///
/// This module goes through two slices at once by patterns. At some levels of optimization `Iterator::zip` is a call of a function
/// of
/// `core`, which can be probed.
#[inline(always)]
fn all_pairs<A, B>(mut left: &[A], mut right: &[B], mut holds: impl FnMut(&A, &B) -> bool) -> bool {
    while let ([first, left_rest @ ..], [second, right_rest @ ..]) = (left, right) {
        if !holds(first, second) {
            return false;
        }
        (left, right) = (left_rest, right_rest);
    }
    true
}

/// Copies `from` to `to`, as far as both go.
#[inline(always)]
fn copy_cells(to: &Cells, from: &Cells) {
    all_pairs(to, from, |to, from| {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        true
    });
}

/// Loads `from` to `to`, as far as both go.
#[inline(always)]
fn load_cells(mut to: &mut [u64], mut from: &Cells) {
    while let ([first, to_rest @ ..], [second, from_rest @ ..]) = (to, from) {
        *first = second.load(Ordering::Relaxed);
        (to, from) = (to_rest, from_rest);
    }
}

/// What a program is told of a hit. All of it is asked with interrupts masked, while a probe is handled: it must not be
/// probed, wait, allocate or panic.
pub trait Machine {
    /// A register of the interrupted code.
    fn register(&self, register: Register) -> u64;

    /// The virtual address that the function was told to write what it returns to; 0 if that is not known.
    fn result(&self) -> u64;

    /// The virtual address of the function that the probe is in.
    fn function(&self) -> u64;

    /// The virtual address of the call that the function returns behind.
    fn caller(&self) -> u64;

    /// The number of the probe.
    fn site(&self) -> u64;

    /// The number of this CPU, dense from 0.
    fn cpu(&self) -> usize;

    /// The number of the task.
    fn task(&self) -> u64;

    /// The name of the task, filled up with zeros.
    fn comm(&self) -> [u8; 16];

    /// Nanoseconds since the start of the machine.
    fn nanoseconds(&self) -> u64;

    /// What lies at the virtual address `address`, in its lowest `bytes`, which are 1, 2, 4 or 8; `None` if it cannot be
    /// read.
    fn read(&self, address: u64, bytes: u8) -> Option<u64>;

    /// The virtual addresses of the stack, the innermost first, in `frames`, which nothing else uses meanwhile: as many as fit.
    /// Returns how many.
    fn stack(&self, frames: &[AtomicU64]) -> usize;
}

/// What a program does on one CPU.
struct Run<'a, M> {
    code: &'a Code,
    store: &'a Store,
    lane: &'a Lane,
    frame: &'a [AtomicU64; FRAME_WORDS],
    machine: &'a M,
    /// How many ops are left for turns of loops.
    left: AtomicU64,
}

/// Runs a clause of `code`, by its number, with interrupts masked. `store` was made for `code`. Does nothing if the program
/// has asked to end, unless the clause runs after that, too.
#[inline]
pub fn run<M: Machine>(code: &Code, clause: usize, store: &Store, machine: &M) {
    let Some(routine) = code.routines.get(clause) else { return };
    if store.is_over() && !routine.runs_after_exit {
        return;
    }
    Run::with(code, store, machine, |run| run.routine(routine));
}

/// Does one op of a clause, by their numbers, with the values that the frame of this CPU has: what compiled code calls where it
/// has no instructions for an op. Jumps do nothing. The rest is as for [`run`].
#[inline]
pub fn perform<M: Machine>(code: &Code, clause: usize, op: usize, store: &Store, machine: &M) {
    let Some(op) = code.routines.get(clause).and_then(|routine| routine.ops.get(op)) else { return };
    Run::with(code, store, machine, |run| _ = run.op(op));
}

impl<'a, M: Machine> Run<'a, M> {
    /// Calls `act` with what a program does on this CPU. It is not moved: that may be a call of `memcpy`, which can be probed.
    #[inline(always)]
    fn with(code: &'a Code, store: &'a Store, machine: &'a M, act: impl FnOnce(&Self)) {
        let Some(lane) = store.lanes.get(machine.cpu()) else { return };
        let Ok(frame) = <&[AtomicU64; FRAME_WORDS]>::try_from(&*lane.frame) else { return };
        act(&Self { code, store, lane, frame, machine, left: AtomicU64::new(TURNS_MAX) });
    }

    fn routine(&self, routine: &Routine) {
        let mut next = 0;
        while let Some(op) = routine.ops.get(next) {
            // Every other target is further on: see `Code::verify`.
            if let Op::Again { target } = *op {
                let target = usize::from(target).min(next);
                if !self.spend(next.wrapping_sub(target).wrapping_add(1) as u64) {
                    return;
                }
                next = target;
                continue;
            }
            next = match self.op(op) {
                Some(target) => usize::from(target).max(next + 1),
                None => next + 1,
            };
        }
    }

    /// Takes `ops` of what is left for turns of loops. Whether there was enough; if not, that is counted.
    #[inline]
    fn spend(&self, ops: u64) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left < ops {
            self.left.store(0, Ordering::Relaxed);
            self.lane.cut.store(self.lane.cut.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            return false;
        }
        self.left.store(left.wrapping_sub(ops), Ordering::Relaxed);
        true
    }

    #[inline]
    fn get(&self, word: Word) -> u64 {
        self.frame[usize::from(word.0)].load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, word: Word, value: u64) {
        self.frame[usize::from(word.0)].store(value, Ordering::Relaxed);
    }

    #[inline]
    fn operand(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Word(word) => self.get(word),
            Operand::Constant(value) => value,
        }
    }

    /// `words` words of the frame.
    #[inline]
    fn words(&self, first: Word, words: usize) -> &Cells {
        self.frame.get(usize::from(first.0)..).and_then(|rest| rest.get(..words)).unwrap_or(&[])
    }

    #[inline]
    fn fault(&self) {
        self.lane.faults.store(self.lane.faults.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Does `op`. The number of the op to go on with, if it is not the next.
    //
    // Not inlined into the loop, out of which the compiler would move the addresses of tables of jumps, away from the jumps: who
    // follows them in the image finds them only there.
    #[inline(never)]
    fn op(&self, op: &Op) -> Option<u16> {
        match *op {
            Op::Set { to, from } => self.set(to, self.operand(from)),
            Op::Copy { to, from, words } => {
                for word in 0..words {
                    self.set(Word(to.0.wrapping_add(word)), self.get(Word(from.0.wrapping_add(word))));
                }
            }
            Op::Load { to, what } => self.set(to, self.builtin(what)),
            Op::Comm { to } => {
                let comm = self.machine.comm();
                for (number, part) in comm.as_chunks::<8>().0.iter().enumerate() {
                    self.set(Word(to.0.wrapping_add(number as u8)), u64::from_le_bytes(*part));
                }
            }
            Op::Stack { to, frames } => {
                let frames = self.lane.stack.get(..usize::from(frames)).unwrap_or(&[]);
                let found = self.machine.stack(frames);
                let number = self.store.stacks.number(frames.get(..found).unwrap_or(frames));
                self.set(to, number);
            }
            Op::Compute { to, how, left, right } => {
                self.set(to, how.apply(self.operand(left), self.operand(right)));
            }
            Op::Extend { to, from, bits, signed } => self.set(to, extend(self.operand(from), bits, signed)),
            Op::Compare { to, how, left, right } => {
                self.set(to, how.holds(self.operand(left), self.operand(right)).into());
            }
            Op::Differ { to, left, right, bytes } => self.set(to, self.differ(left, right, bytes).into()),
            Op::Find { to, text, text_words, part, part_words } => {
                let (text, part) = (self.words(text, text_words.into()), self.words(part, part_words.into()));
                self.set(to, find(text, part));
            }
            Op::Length { to, text, words } => self.set(to, length(self.words(text, words.into())) as u64),
            Op::Frames { to, stack } => self.set(to, self.store.stacks.depth(self.operand(stack))),
            Op::Branch { how, left, right, target } => {
                return how.holds(self.operand(left), self.operand(right)).then_some(target);
            }
            Op::Jump { target } => return Some(target),
            Op::Again { .. } => {}
            // Behind all ops: the end.
            Op::Next { place, map } => return (!self.next_key(place, map)).then_some(u16::MAX),
            Op::Read { to, address, bytes, signed } => {
                let found = self.machine.read(self.operand(address), bytes);
                if found.is_none() {
                    self.fault();
                }
                let found = found.unwrap_or(0);
                self.set(to, if bytes == 8 { found } else { extend(found, bytes.wrapping_mul(8), signed) });
            }
            Op::ReadText { to, words, address, length } => {
                let most = u64::from(words).wrapping_mul(8).saturating_sub(1).min(self.operand(length));
                self.read_run(to, words, self.operand(address), most, true);
            }
            Op::ReadBytes { to, words, address, length } => {
                let most = u64::from(words.saturating_sub(1)).wrapping_mul(8).min(self.operand(length));
                let bytes = Word(to.0.wrapping_add(1));
                let found = self.read_run(bytes, words.saturating_sub(1), self.operand(address), most, false);
                self.set(to, found);
            }
            Op::Has { to, map, key } => self.set(to, self.has(map, key).into()),
            Op::Keys { to, map } => {
                let table = self.store.tables.get(usize::from(map)).and_then(|tables| tables.first());
                self.set(to, table.map_or(0, Table::keys));
            }
            Op::Get { to, map, key } => self.get_value(to, map, key),
            Op::Total { to, map, key } => self.set(to, self.total(map, key)),
            Op::Put { map, key, from } => {
                self.with_table(map, key, |table, key| {
                    let from = self.words(from, table.value_words());
                    table.change(key, |value| {
                        copy_cells(value, from);
                    })
                });
            }
            Op::Modify { to, map, key, how, by, after } => {
                let by = self.operand(by);
                let changed = self.with_table(map, key, |table, key| {
                    table.change(key, |value| {
                        let word = value.first()?;
                        let old = word.load(Ordering::Relaxed);
                        let new = how.apply(old, by);
                        word.store(new, Ordering::Relaxed);
                        Some(if after { new } else { old })
                    })
                });
                self.set(to, changed.flatten().unwrap_or(0));
            }
            Op::Collect { map, key, value } => self.collect(map, key, self.operand(value)),
            Op::Delete { map, key } => self.delete(map, key),
            Op::Emit { action, from, words } => {
                self.lane.ring.write(action, self.machine.nanoseconds(), self.words(from, words.into()));
            }
            Op::Exit => self.store.end(self.machine.nanoseconds()),
        }
        None
    }

    #[inline]
    fn builtin(&self, what: Builtin) -> u64 {
        match what {
            Builtin::Register(register) => self.machine.register(register),
            Builtin::Result => self.machine.result(),
            Builtin::Function => self.machine.function(),
            Builtin::Caller => self.machine.caller(),
            Builtin::Site => self.machine.site(),
            Builtin::Cpu => self.machine.cpu() as u64,
            Builtin::Cpus => self.store.lanes.len() as u64,
            Builtin::Random => self.lane.random(),
            Builtin::Task => self.machine.task(),
            Builtin::Nanoseconds => self.machine.nanoseconds(),
            Builtin::Elapsed => self.machine.nanoseconds().wrapping_sub(self.store.start),
        }
    }

    /// Whether two strings differ in their first `bytes`.
    #[inline]
    fn differ(&self, left: Word, right: Word, bytes: u8) -> bool {
        let words = usize::from(bytes).div_ceil(8);
        let (left, right) = (self.words(left, words), self.words(right, words));
        let mut rest = u32::from(bytes);
        !all_pairs(left, right, |left, right| {
            let away = 64_u32.saturating_sub(rest.saturating_mul(8)).min(63);
            rest = rest.saturating_sub(8);
            (left.load(Ordering::Relaxed) ^ right.load(Ordering::Relaxed)) << away == 0
        })
    }

    /// Reads bytes, `most` at most, or up to a zero if `is_text`, by words that are aligned, and so lie in one page each. How
    /// many they are.
    fn read_run(&self, to: Word, words: u8, address: u64, most: u64, is_text: bool) -> u64 {
        let mut found = 0_u64;
        let mut ended = false;
        let mut loaded: Option<(u64, u64)> = None;
        for number in 0..words {
            let mut packed = 0_u64;
            for at in 0..8_u64 {
                let index = u64::from(number) * 8 + at;
                ended |= index >= most;
                if ended {
                    break;
                }
                let place = address.wrapping_add(index);
                let base = place & !7;
                let word = match loaded {
                    Some((of, word)) if of == base => Some(word),
                    _ => self.machine.read(base, 8),
                };
                let Some(word) = word else {
                    self.fault();
                    ended = true;
                    break;
                };
                loaded = Some((base, word));
                let byte = word >> (8 * (place & 7)) & 0xff;
                ended = is_text && byte == 0;
                if ended {
                    break;
                }
                found = index.wrapping_add(1);
                packed |= byte << (8 * at);
            }
            self.set(Word(to.0.wrapping_add(number)), packed);
        }
        found
    }
}

/// The byte of a string at `index`; 0 behind it.
#[inline(always)]
fn byte(text: &Cells, index: usize) -> u8 {
    text.get(index / 8).map_or(0, |word| (word.load(Ordering::Relaxed) >> (8 * (index % 8))) as u8)
}

/// How many bytes a string has.
#[inline]
fn length(text: &Cells) -> usize {
    let most = text.len().wrapping_mul(8);
    let mut at = 0;
    while at < most && byte(text, at) != 0 {
        at += 1;
    }
    at
}

/// Where `part` is first in `text`; -1 if it is not.
#[inline]
fn find(text: &Cells, part: &Cells) -> u64 {
    let (all, wanted) = (length(text), length(part));
    let mut start = 0_usize;
    while start.wrapping_add(wanted) <= all {
        let mut same = 0;
        while same < wanted && byte(text, start.wrapping_add(same)) == byte(part, same) {
            same += 1;
        }
        if same == wanted {
            return start as u64;
        }
        start += 1;
    }
    u64::MAX
}

impl Lane {
    /// A number of 32 bits: SplitMix64, of a state of this CPU.
    #[inline]
    fn random(&self) -> u64 {
        let state = self.random.load(Ordering::Relaxed).wrapping_add(MIX);
        self.random.store(state, Ordering::Relaxed);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) >> 32
    }
}
