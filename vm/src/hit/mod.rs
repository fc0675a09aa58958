//! The code that runs while a probe is hit: the interpreter, which defines the meaning of the checked form, and its
//! operations on the store. Compiled code does the same, and is tested against the interpreter.
//!
//! Everything in this module and below runs with interrupts masked: no locks except those of the maps and the stacks,
//! no allocation, no panic, no unbounded loop, and no call out of the region that is closed to probes. The linker
//! script finds this code by its module path. Therefore only functions of the hit path are here, and no types over
//! which other code is generic. Those types are in [`ir`](crate::ir) and [`maps`](crate::maps), with some of their
//! methods here.
//!
//! The interpreter accesses only the store and the [`Machine`]. The frame and the ring of its CPU in the store belong
//! to it alone.

mod append;
mod evaluate;
mod intern;
mod lookup;
mod map_ops;
pub(crate) mod merge;
mod series;

pub use evaluate::extend;
#[cfg(test)]
pub(crate) use intern::NO_STACK;
#[cfg(all(test, loom))]
pub(crate) use intern::hash;
use merge::{halves, is_better, join, widened};
pub use merge::{total, wide};

use core::sync::atomic::Ordering;

use crate::atomic::{AtomicU64, Cells};
use crate::ir::{Builtin, Code, FRAME_WORDS, LOOP_OPS_MAX, Op, Operand, Register, Routine, Word};
use crate::maps::{HashTable, MIX, PerCpu, Store};

/// Returns whether `holds` is true of each pair of elements at the same index, as far as both slices go.
///
/// This module walks pairs of slices by patterns. At some levels of optimization `Iterator::zip` is a call of a
/// function in `core`, which can be probed.
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

/// Loads `from` into `to`, as far as both go.
#[inline(always)]
fn load_cells(mut to: &mut [u64], mut from: &Cells) {
    while let ([first, to_rest @ ..], [second, from_rest @ ..]) = (to, from) {
        *first = second.load(Ordering::Relaxed);
        (to, from) = (to_rest, from_rest);
    }
}

/// What a program can ask about a hit. All methods are called with interrupts masked, while a probe is handled: they
/// must not be probed, wait, allocate or panic.
pub trait Machine {
    /// Returns a register of the interrupted code.
    fn register(&self, register: Register) -> u64;

    /// Returns the virtual address to which the caller told the function to write its result; 0 if it is unknown.
    fn result(&self) -> u64;

    /// Returns the virtual address of the function that contains the probe.
    fn function(&self) -> u64;

    /// Returns the virtual address of the instruction that called the function: the one before the return address.
    fn caller(&self) -> u64;

    /// Returns the number of the probe, from 1: a word that was never given a probe is 0.
    fn probe(&self) -> u64;

    /// Returns the number of this CPU, dense from 0.
    fn cpu(&self) -> usize;

    /// Returns the number of the task.
    fn task(&self) -> u64;

    /// Returns the name of the task, padded with zeros.
    fn comm(&self) -> [u8; 16];

    /// Returns the nanoseconds since the start of the machine.
    fn nanoseconds(&self) -> u64;

    /// Reads `bytes` bytes (1, 2, 4 or 8) at the virtual address `address`, into the lowest bytes of the result. `None`
    /// if they cannot be read.
    fn read(&self, address: u64, bytes: u8) -> Option<u64>;

    /// Stores the virtual addresses of the stack in `frames`, the innermost first, as many as fit. Returns their
    /// number. The caller guarantees that nothing else uses `frames` meanwhile.
    fn stack(&self, frames: &[AtomicU64]) -> usize;
}

/// A run of a program on one CPU.
struct Run<'a, M> {
    code: &'a Code,
    store: &'a Store,
    per_cpu: &'a PerCpu,
    frame: &'a [AtomicU64; FRAME_WORDS],
    machine: &'a M,
    /// The number of ops left for turns of loops.
    left: AtomicU64,
}

/// Runs the clause of `code` with this number. `store` must have been made for `code`, and interrupts must be masked.
/// Does nothing if the program has asked to end, unless the clause also runs after that.
#[inline]
pub fn run<M: Machine>(code: &Code, clause: usize, store: &Store, machine: &M) {
    let Some(routine) = code.routines.get(clause) else { return };
    if store.is_over() && !routine.runs_after_exit {
        return;
    }
    Run::with(code, store, machine, |run| run.routine(routine));
}

/// Executes one op of a clause with the values in the frame of this CPU. Compiled code calls this for an op that it has
/// no instructions for. Jumps do nothing. `store` must have been made for `code`, and interrupts must be masked.
#[inline]
pub fn perform<M: Machine>(code: &Code, clause: usize, op: usize, store: &Store, machine: &M) {
    let Some(op) = code.routines.get(clause).and_then(|routine| routine.ops.get(op)) else { return };
    Run::with(code, store, machine, |run| _ = run.op(op));
}

impl<'a, M: Machine> Run<'a, M> {
    /// Calls `act` with a run on this CPU. The run is not moved: a move may be a call of `memcpy`, which can be probed.
    #[inline(always)]
    fn with(code: &'a Code, store: &'a Store, machine: &'a M, act: impl FnOnce(&Self)) {
        let Some(per_cpu) = store.per_cpu.get(machine.cpu()) else { return };
        let Ok(frame) = <&[AtomicU64; FRAME_WORDS]>::try_from(&*per_cpu.frame) else { return };
        act(&Self { code, store, per_cpu, frame, machine, left: AtomicU64::new(LOOP_OPS_MAX) });
    }

    fn routine(&self, routine: &Routine) {
        let mut next = 0;
        while let Some(op) = routine.ops.get(next) {
            // `Code::verify` has checked that every other target is later.
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

    /// Takes `ops` from the budget for turns of loops. Returns false if it is too small, and counts the run as cut.
    #[inline]
    fn spend(&self, ops: u64) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left < ops {
            self.left.store(0, Ordering::Relaxed);
            self.per_cpu.cut.store(self.per_cpu.cut.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
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

    /// Returns `words` words of the frame.
    #[inline]
    fn words(&self, first: Word, words: usize) -> &Cells {
        self.frame.get(usize::from(first.0)..).and_then(|rest| rest.get(..words)).unwrap_or(&[])
    }

    #[inline]
    fn fault(&self) {
        self.per_cpu.faults.store(self.per_cpu.faults.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Executes `op`. Returns the number of the op to continue with, if it is not the next.
    //
    // Not inlined: in the loop, the compiler would move the addresses of jump tables away from the jumps, and the audit
    // could no longer find the tables.
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
                let frames = self.per_cpu.stack.get(..usize::from(frames)).unwrap_or(&[]);
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
            // If the budget is used up, continue after all ops: at the end.
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
                self.set(to, table.map_or(0, HashTable::keys));
            }
            Op::Get { to, map, key } => self.get_value(to, map, key),
            Op::Total { to, map, key } => self.set(to, self.total(map, key)),
            Op::Put { map, key, from } => {
                self.with_table(map, key, |table, key| {
                    let from = self.words(from, table.value_words);
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
                self.per_cpu.ring.write(action, self.machine.nanoseconds(), self.words(from, words.into()));
            }
            Op::Exit { status } => {
                let status = u8::try_from(self.operand(status)).unwrap_or(u8::MAX);
                self.store.end(self.machine.nanoseconds(), status);
            }
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
            Builtin::Probe => self.machine.probe(),
            Builtin::Cpu => self.machine.cpu() as u64,
            Builtin::Cpus => self.store.per_cpu.len() as u64,
            Builtin::Random => self.per_cpu.random(),
            Builtin::Task => self.machine.task(),
            Builtin::Nanoseconds => self.machine.nanoseconds(),
            Builtin::Elapsed => self.machine.nanoseconds().wrapping_sub(self.store.start),
        }
    }

    /// Returns whether two strings differ in their first `bytes`.
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

    /// Reads at most `most` bytes, or up to a zero if `is_text`. The loads are of aligned words, so that each lies in
    /// one page. Returns the number of bytes.
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

/// Returns the byte of a string at `index`; 0 beyond its end.
#[inline(always)]
fn byte(text: &Cells, index: usize) -> u8 {
    text.get(index / 8).map_or(0, |word| (word.load(Ordering::Relaxed) >> (8 * (index % 8))) as u8)
}

/// Returns the number of bytes of a string.
#[inline]
fn length(text: &Cells) -> usize {
    let most = text.len().wrapping_mul(8);
    let mut at = 0;
    while at < most && byte(text, at) != 0 {
        at += 1;
    }
    at
}

/// Returns the offset of the first `part` in `text`; -1 if there is none.
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

impl PerCpu {
    /// Returns a random number of 32 bits, by SplitMix64 from the state of this CPU.
    #[inline]
    fn random(&self) -> u64 {
        let state = self.random.load(Ordering::Relaxed).wrapping_add(MIX);
        self.random.store(state, Ordering::Relaxed);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) >> 32
    }
}
