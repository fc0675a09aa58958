//! Which registers hold something that is still needed, at an instruction.
//!
//! A register is dead where every way that execution can take writes it before anything reads it. The ways are followed, one
//! after the other, through branches and into the functions that are called, by [`Access`]. A walk is bounded in the instructions
//! that it looks at and in the memory that it takes, and allocates nothing: where it comes to its end, the registers that it
//! has still found no writer of count as needed.
//!
//! Ways leave the function by calls and returns, and not all of these can be followed. There the procedure call standard says
//! that x9 to x17 and the flags hold nothing (AAPCS64, section 6.1). Functions that do not keep to it are found:
//!
//! - A called function that reads one of them is found by following the call.
//! - A function across whose calls they keep their values ([`Kept`]) does not change them, and has a caller that shows it: an
//!   instruction after the call reads them.
//!
//! LLVM's machine outliner makes functions of both kinds; calls in inline assembly with clobbers of their own are of the second.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::classify;
use super::op::{Indirect, Op};
use super::registers::{Access, Registers, StackPointer};
use super::verdict::{Reason, Verdict};

/// Why a register is not known to be dead. Addresses are virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// The instruction at `reader` reads it.
    Read {
        /// One of the registers.
        register: Registers,
        /// It.
        reader: u64,
    },
    /// The call at `call` of the function is followed by a reader of what was there before.
    Kept {
        /// One of the registers.
        register: Registers,
        /// It.
        call: u64,
    },
    /// The ways could be followed no further than to `end`.
    Lost {
        /// One of the registers.
        register: Registers,
        /// The next instruction.
        end: u64,
    },
}

impl Live {
    const fn register(self) -> Registers {
        match self {
            Self::Read { register, .. } | Self::Kept { register, .. } | Self::Lost { register, .. } => register,
        }
    }
}

impl fmt::Display for Live {
    /// The rest of a sentence that begins with "because".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { register, reader } => write!(f, "what is in {register} there is read at {reader:#x}"),
            Self::Kept { register, call } => write!(f, "the call at {call:#x} relies on {register} being preserved"),
            Self::Lost { register, end } => {
                write!(f, "where {register} is read cannot be told: the search ended at {end:#x}")
            }
        }
    }
}

/// Functions whose callers keep values in x9 to x17 or the flags across the call.
#[derive(Debug, Default)]
pub struct Kept(Vec<Preserving>);

/// A function, and a call of it.
#[derive(Clone, Copy, Debug)]
struct Preserving {
    function: u64,
    call: u64,
    /// What the function leaves as it is.
    preserved: Registers,
    /// What of that is read after the call.
    kept: Registers,
}

/// What a call may change although the called function keeps to the standard, and that no argument is in: x9 to x17, the
/// flags.
pub const SCRATCH: Registers = Registers::from_to(9, 17).with(Registers::FLAGS);

/// Instructions that are looked at of a function; and of one that is called, with all that it calls, from the first branch on:
/// what the outliner makes has none.
const STEPS: usize = 4096;
const STEPS_BEYOND: usize = 32;
/// Functions that are looked at in each other.
const DEPTH: usize = 3;
/// Ways that are still to be followed, and places that ways have come to, at a time: in the function, and in others.
const WAYS: usize = 128;
const WAYS_BEYOND: usize = 16;

/// BRK #1 of LLVM and BRK #1000 of GCC: with UDF, what compilers put where execution must not come. Nothing goes on from there.
const TRAPS: [u32; 2] = [0xd420_0020, 0xd420_7d00];

/// Instructions as they are without probes; nothing outside the text.
pub(super) type Read<'a> = &'a dyn Fn(u64) -> Option<u32>;
/// The bounds of the function around an address, if one is known.
pub(super) type Bounds<'a> = &'a dyn Fn(u64) -> Option<Range<u64>>;

impl Kept {
    /// Those among the functions that are called in the text at these virtual addresses, if there is memory for a list of them.
    /// `bounds` gives those of the function around an address.
    pub fn in_text(text: Range<u64>, read: Read<'_>, bounds: Bounds<'_>) -> Option<Self> {
        let (mut called, mut calls) = (Self::default(), Vec::new());
        for call in text.step_by(4) {
            let Some(function) = read(call).and_then(|word| called_by(word, call)) else { continue };
            let preserved = match called.by(function) {
                Some(known) => known.preserved,
                None => {
                    let preserved = called.preserved(function, SCRATCH, read, bounds, 0);
                    called.add(Preserving { function, call, preserved, kept: Registers::NONE })?;
                    preserved
                }
            };
            if !preserved.is_empty() {
                calls.try_reserve(1).ok()?;
                calls.push((call, function));
            }
        }
        for (call, function) in calls {
            let Some(&Preserving { preserved, kept: Registers::NONE, .. }) = called.by(function) else { continue };
            let mut walk = Walk::new(read, &called);
            let Err(live) = walk.follow::<WAYS>(call + 4, preserved, 0) else { continue };
            if let Some(preserving) = called.of(function) {
                (preserving.call, preserving.kept) = (call, live.register());
            }
        }
        let kept = called.0.iter().copied().filter(|preserving| !preserving.kept.is_empty());
        called.0 = fallible::boxed_slice(kept).ok()?.into_vec();
        // A function goes on in another by a branch: that returns to the same callers.
        let mut index = 0;
        while let Some(&preserving) = called.0.get(index) {
            index += 1;
            if let Some(function) = goes_on_at(preserving.function, read)
                && called.index(function).is_none()
            {
                called.add(Preserving { function, ..preserving })?;
                index = 0;
            }
        }
        Some(called)
    }

    /// Those of `registers` that the function at the virtual address `entry` leaves as they are, on all ways. None of them are left
    /// by a call that is not seen through.
    fn preserved(
        &self,
        entry: u64,
        mut registers: Registers,
        read: Read<'_>,
        function: Bounds<'_>,
        depth: usize,
    ) -> Registers {
        if let Some(known) = self.by(entry) {
            return registers & known.preserved;
        }
        let Some(bounds) = function(entry).filter(|_| depth < DEPTH) else { return Registers::NONE };
        for at in bounds.clone().step_by(4) {
            let Some(word) = read(at) else { return Registers::NONE };
            let verdict = classify(word);
            registers = registers - Access::under(verdict, word).writes;
            let other = match verdict {
                Verdict::Simulate(Op::BranchLink { offset }) => Some(offset),
                Verdict::Simulate(
                    Op::BranchRegister { kind: Indirect::Jump | Indirect::Call, .. }
                    | Op::BranchAuthenticated { kind: Indirect::Jump | Indirect::Call, .. },
                ) => return Registers::NONE,
                Verdict::Simulate(op) => op.branch_offset(),
                _ => None,
            };
            let other = other.map(|offset| at.wrapping_add_signed(offset.into()));
            if let Some(other) = other.filter(|other| !bounds.contains(other)) {
                registers = self.preserved(other, registers, read, function, depth + 1);
            }
            if registers.is_empty() {
                break;
            }
        }
        registers
    }

    fn add(&mut self, preserving: Preserving) -> Option<&mut Preserving> {
        self.0.try_reserve(1).ok()?;
        let index = self.0.partition_point(|other| other.function < preserving.function);
        self.0.insert(index, preserving);
        self.0.get_mut(index)
    }

    fn index(&self, function: u64) -> Option<usize> {
        self.0.binary_search_by_key(&function, |preserving| preserving.function).ok()
    }

    fn of(&mut self, function: u64) -> Option<&mut Preserving> {
        let index = self.index(function)?;
        self.0.get_mut(index)
    }

    /// What is said of `function`.
    fn by(&self, function: u64) -> Option<&Preserving> {
        self.0.get(self.index(function)?)
    }
}

/// Tells why not all of [`SCRATCH`] is dead at the first instruction of the function at the virtual address `function`; nothing
/// if it is.
#[must_use]
pub fn scratch_at_entry(function: u64, kept: &Kept, read: Read<'_>) -> Option<Live> {
    Walk::new(read, kept).live(function, SCRATCH, function)
}

/// What of [`SCRATCH`] the function at these virtual addresses may hand to its caller, as those do that the outliner makes: what it
/// writes somewhere; all, if it calls.
#[must_use]
pub fn handed(function: Range<u64>, read: Read<'_>) -> Registers {
    let mut handed = Registers::NONE;
    for word in function.step_by(4).filter_map(read) {
        let verdict = classify(word);
        if let Verdict::Simulate(
            Op::BranchLink { .. }
            | Op::BranchRegister { kind: Indirect::Call, .. }
            | Op::BranchAuthenticated { kind: Indirect::Call, .. },
        ) = verdict
        {
            return SCRATCH;
        }
        handed = handed | Access::under(verdict, word).writes & SCRATCH;
    }
    handed
}

/// Tells why not all of `wanted`, which are of [`SCRATCH`], are dead before the instruction at the virtual address `at`, in the
/// function at the virtual address `function`, which may have [`handed`] these to its caller; nothing if they are.
///
/// At a return they are dead only if the function hands nothing in them to its caller.
#[must_use]
pub fn live_at(
    at: u64,
    wanted: Registers,
    function: u64,
    handed: Registers,
    kept: &Kept,
    read: Read<'_>,
) -> Option<Live> {
    Walk { begin: Begin::Inside(handed), ..Walk::new(read, kept) }.live(at, wanted, function)
}

/// The virtual address of an instruction that writes x30, where what is in it at the first instruction of the function at the
/// virtual address `function` is read on no way: it is not where the function returns to. Nothing if it is read, or that cannot be
/// told.
#[must_use]
pub fn overwrites_link(function: u64, read: Read<'_>) -> Option<u64> {
    let kept = Kept::default();
    let mut walk = Walk::new(read, &kept);
    let returned = walk.follow::<WAYS>(function, Registers::x(30), 0).ok()?;
    walk.writer.filter(|_| returned.is_empty())
}

/// The address that the instruction `word` at `at` calls, if it says one.
pub(super) fn called_by(word: u32, at: u64) -> Option<u64> {
    // BL (C6.2), by one test, as this is asked of every word of a text.
    let is_call = word >> 26 == 0b10_0101;
    is_call.then(|| at.wrapping_add_signed(i64::from((word << 6).cast_signed() >> 4)))
}

/// Where the function at the virtual address `function`, which has only few instructions without a condition, goes on by a branch.
fn goes_on_at(function: u64, read: Read<'_>) -> Option<u64> {
    for at in (function..).step_by(4).take(STEPS_BEYOND) {
        match classify(read(at)?) {
            Verdict::Simulate(Op::Branch { offset }) => return Some(at.wrapping_add_signed(offset.into())),
            Verdict::Simulate(Op::BranchRegister { .. } | Op::BranchAuthenticated { .. }) => return None,
            _ => {}
        }
    }
    None
}

/// Where a walk begins: what is behind the end of its ways depends on it.
#[derive(Clone, Copy)]
enum Begin {
    /// At an entry: branches by registers are calls at the end, of what keeps to the standard.
    Entry,
    /// Inside of a function, which may hand these to its caller. Branches by registers may lead on in it, as where cases are told
    /// by a table.
    Inside(Registers),
    /// Behind a call, in the caller, in which branches by registers may lead on, too.
    Caller,
}

/// A walk along the ways from an instruction.
pub(super) struct Walk<'a> {
    read: Read<'a>,
    /// Of other functions, nothing is taken to be preserved.
    kept: &'a Kept,
    /// How many more instructions may be looked at; in functions that are called, from the first branch on.
    steps: usize,
    /// The virtual address of the first instruction that has written the last of the registers on a way.
    writer: Option<u64>,
    begin: Begin,
}

/// Up to `N` places, each with the registers of which no writer was found on the way there.
struct Places<const N: usize> {
    places: [(u64, Registers); N],
    count: usize,
}

impl<const N: usize> Places<N> {
    const NONE: Self = Self { places: [(0, Registers::NONE); N], count: 0 };

    /// Adds one, if there is room.
    fn push(&mut self, at: u64, unwritten: Registers) -> Option<()> {
        *self.places.get_mut(self.count)? = (at, unwritten);
        self.count += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<(u64, Registers)> {
        self.count = self.count.checked_sub(1)?;
        self.places.get(self.count).copied()
    }

    /// The registers that a way has come here with before, and takes along again; nothing if that adds none. Remembers them.
    fn come_to(&mut self, at: u64, unwritten: Registers) -> Result<Option<Registers>, Live> {
        let known = self.places.get_mut(..self.count).unwrap_or_default().iter_mut().find(|place| place.0 == at);
        match known {
            Some((_, seen)) if (unwritten - *seen).is_empty() => Ok(None),
            Some((_, seen)) => {
                *seen = *seen | unwritten;
                Ok(Some(*seen))
            }
            None => match self.push(at, unwritten) {
                Some(()) => Ok(Some(unwritten)),
                None => Err(Live::Lost { register: unwritten.first(), end: at }),
            },
        }
    }
}

impl<'a> Walk<'a> {
    pub(super) const fn new(read: Read<'a>, kept: &'a Kept) -> Self {
        Self { read, kept, steps: STEPS, writer: None, begin: Begin::Entry }
    }

    /// Why not all of [`SCRATCH`] is dead at `at`, where a call has returned to; nothing if it is, up to a return.
    pub(super) fn live_behind_call(&mut self, at: u64) -> Option<Live> {
        self.begin = Begin::Caller;
        self.follow::<WAYS>(at, SCRATCH, 0).err()
    }

    /// Why not all of `wanted` are dead at `at`, in the function at `function`.
    fn live(&mut self, at: u64, wanted: Registers, function: u64) -> Option<Live> {
        let returned = match self.follow::<WAYS>(at, wanted, 0) {
            Ok(returned) => returned,
            Err(live) => return Some(live),
        };
        let &Preserving { call, preserved, kept, .. } = self.kept.by(function)?;
        (!(returned & preserved).is_empty()).then_some(Live::Kept { register: kept, call })
    }

    /// Follows all ways from the instruction at `from`. Returns those of `wanted` that no writer was found of on some way up to
    /// a return.
    fn follow<const N: usize>(&mut self, from: u64, wanted: Registers, depth: usize) -> Result<Registers, Live> {
        let (mut pending, mut passed) = (Places::<N>::NONE, Places::<N>::NONE);
        let mut returned = Registers::NONE;
        let mut way = Some((from, wanted)).filter(|_| !wanted.is_empty());
        while let Some((mut at, mut unwritten)) = way.or_else(|| pending.pop()) {
            way = None;
            if self.steps == 0 {
                return Err(Live::Lost { register: unwritten.first(), end: at });
            }
            self.steps -= usize::from(depth == 0 || passed.count > 0);
            let Some(word) = (self.read)(at) else { continue };
            let verdict = classify(word);
            if TRAPS.contains(&word) || verdict == Verdict::Reject(Reason::PermanentlyUndefined) {
                continue;
            }
            let Access { reads, writes } = Access::under(verdict, word);
            let read = unwritten & reads;
            if !read.is_empty() {
                return Err(Live::Read { register: read.first(), reader: at });
            }
            unwritten = unwritten - writes;
            if unwritten.is_empty() {
                self.writer.get_or_insert(at);
                continue;
            }
            let next = at.wrapping_add(4);
            let target = |offset: i32| at.wrapping_add_signed(offset.into());
            match verdict {
                Verdict::Simulate(Op::Branch { offset }) => at = target(offset),
                Verdict::Simulate(Op::BranchLink { offset }) => {
                    let unwritten = self.call(target(offset), unwritten, depth)?;
                    way = Some((next, unwritten)).filter(|_| !unwritten.is_empty());
                    continue;
                }
                Verdict::Simulate(Op::BranchRegister { kind, .. } | Op::BranchAuthenticated { kind, .. }) => {
                    let may_be_needed = match (self.begin, kind) {
                        _ if depth > 0 => Registers::NONE,
                        (Begin::Entry, _) | (_, Indirect::Call) | (Begin::Caller, Indirect::Return) => Registers::NONE,
                        (Begin::Inside(_) | Begin::Caller, Indirect::Jump) => unwritten,
                        (Begin::Inside(handed), Indirect::Return) => unwritten & handed,
                    };
                    if !may_be_needed.is_empty() {
                        return Err(Live::Lost { register: may_be_needed.first(), end: at });
                    }
                    // A jump is a tail call; what is called by a register keeps to the standard, or it could not be.
                    if kind != Indirect::Call {
                        returned = returned | unwritten;
                    }
                    continue;
                }
                Verdict::Simulate(
                    Op::BranchConditional { offset, .. }
                    | Op::CompareBranch { offset, .. }
                    | Op::TestBranch { offset, .. },
                ) => {
                    pending.push(next, unwritten).ok_or(Live::Lost { register: unwritten.first(), end: next })?;
                    at = target(offset);
                }
                _ => {
                    way = Some((next, unwritten));
                    continue;
                }
            }
            way = passed.come_to(at, unwritten)?.map(|unwritten| (at, unwritten));
        }
        Ok(returned)
    }

    /// Those of the registers which a call of `function` leaves as they are. It does not read them.
    fn call(&mut self, function: u64, unwritten: Registers, depth: usize) -> Result<Registers, Live> {
        let mut walk = Walk { steps: STEPS_BEYOND, ..*self };
        let walk = if depth == 0 { &mut walk } else { &mut *self };
        if depth < DEPTH {
            // What is not seen to break the standard is taken to keep to it.
            match walk.follow::<WAYS_BEYOND>(function, unwritten, depth + 1) {
                Err(live @ Live::Read { .. }) => return Err(live),
                Err(Live::Kept { .. } | Live::Lost { .. }) | Ok(_) => {}
            }
        }
        Ok(self.kept.by(function).map_or(Registers::NONE, |by| unwritten & by.preserved))
    }
}

/// How many bytes higher than at its entry the stack pointer is when the function at these virtual addresses returns, as far as
/// that can be told: of a function without conditions.
#[must_use]
pub fn stack_at_return(function: Range<u64>, read: Read<'_>) -> Option<i64> {
    moved(function.start, function.end, read, &mut { STEPS }, 0).ok()
}

/// Why it cannot be told how a function moves the stack pointer.
enum Untold {
    /// There are several ways, or none to a return.
    Ways,
    /// An instruction moves it to where a register says.
    Moved,
}

fn moved(function: u64, end: u64, read: Read<'_>, steps: &mut usize, depth: usize) -> Result<i64, Untold> {
    let (mut at, mut height, mut frame) = (function, 0_i64, None);
    while at != end {
        *steps = steps.checked_sub(1).ok_or(Untold::Ways)?;
        let word = read(at).ok_or(Untold::Ways)?;
        let verdict = classify(word);
        height = match StackPointer::after(word) {
            StackPointer::Moved(distance) => height + distance,
            StackPointer::FromFrame(distance) => frame.ok_or(Untold::Moved)? + distance,
            StackPointer::Unknown => return Err(Untold::Moved),
        };
        /// ADD x29, sp, without its immediate.
        const SET_FRAME: u32 = 0x9100_03fd;
        if word & !(0xfff << 10) == SET_FRAME {
            frame = Some(height + i64::from(word >> 10 & 0xfff));
        } else if !(Access::under(verdict, word).writes & Registers::x(29)).is_empty() {
            frame = None;
        }
        match verdict {
            Verdict::Simulate(Op::Branch { offset }) => {
                at = at.wrapping_add_signed(offset.into());
                continue;
            }
            Verdict::Simulate(Op::BranchLink { offset }) if depth < DEPTH => {
                let function = at.wrapping_add_signed(offset.into());
                height += match moved(function, end, read, steps, depth + 1) {
                    // One with several ways is taken to restore it.
                    Err(Untold::Ways) => 0,
                    height => height?,
                };
            }
            Verdict::Simulate(
                Op::BranchRegister { kind: Indirect::Return, .. }
                | Op::BranchAuthenticated { kind: Indirect::Return, .. },
            ) => return Ok(height),
            Verdict::Simulate(op) if op.branch_offset().is_some() || op.is_jump() => return Err(Untold::Ways),
            _ => {}
        }
        at = at.wrapping_add(4);
    }
    Err(Untold::Ways)
}

#[cfg(test)]
mod tests;
