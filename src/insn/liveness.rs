//! Determines which registers hold a value that is still needed at an instruction.
//!
//! A register is dead if it is written before it is read on every path that execution can take. The paths are followed
//! one after the other, by [`Access`], through branches and into called functions. A walk looks at a bounded number of
//! instructions, uses a bounded amount of memory, and allocates nothing. When it reaches a bound, the registers for
//! which it has not found a writer count as needed.
//!
//! Paths leave the function by calls and returns, which cannot all be followed. There the procedure call standard says
//! that x9 to x17 and the flags hold nothing (AAPCS64, section 6.1). Two kinds of functions that do not follow the
//! standard are found:
//!
//! - A called function that reads one of these registers: by following the call.
//! - A function across whose calls the registers keep their values ([`ScratchPreservers`]): it does not change them, and has a
//!   caller that shows it, by an instruction after the call that reads them.
//!
//! LLVM's machine outliner makes functions of both kinds. Calls in inline assembly with clobbers of their own are of
//! the second kind.

use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::ops::Range;

use super::classify;
use super::op::{Indirect, Op};
use super::registers::{Access, Registers, StackPointer};
use super::verdict::{Reason, Verdict};

/// Why a register is not known to be dead. Addresses are virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// An instruction reads the register.
    Read {
        /// One of the registers.
        register: Registers,
        /// The address of the instruction.
        reader: u64,
    },
    /// After a call of the function, an instruction reads the value that the register had before the call.
    Kept {
        /// One of the registers.
        register: Registers,
        /// The address of the call.
        call: u64,
    },
    /// The paths could not be followed beyond an instruction.
    Lost {
        /// One of the registers.
        register: Registers,
        /// The address of that instruction.
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
    /// Writes the rest of a sentence that begins with "because".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { register, reader } => write!(f, "{register} is live there: it is read at {reader:#x}"),
            Self::Kept { register, call } => write!(f, "the call at {call:#x} relies on {register} being preserved"),
            Self::Lost { register, end } => {
                write!(f, "{register} may be live: the search for its next use ended at {end:#x}")
            }
        }
    }
}

/// Functions whose callers keep values in x9 to x17 or the flags across the call.
#[derive(Debug, Default)]
pub struct ScratchPreservers(Vec<Preserving>);

/// A function, and a call of it.
#[derive(Clone, Copy, Debug)]
struct Preserving {
    function: u64,
    call: u64,
    /// The registers that the function preserves.
    preserved: Registers,
    /// The preserved registers that are read after the call.
    kept: Registers,
}

/// The registers that a called function may change under the procedure call standard, and that hold no argument: x9 to
/// x17 and the flags.
pub const SCRATCH: Registers = Registers::from_to(9, 17).with(Registers::FLAGS);

/// The largest number of instructions that a walk looks at: in the function itself; and, from the first branch on, in a
/// called function with all that it calls. Outlined functions have no branches.
const STEPS_MAX: usize = 4096;
const CALLEE_STEPS_MAX: usize = 32;
/// The largest depth of calls that are followed.
const DEPTH: usize = 3;
/// The largest number of paths still to be followed, and of places that are remembered, at the same time: in the
/// function itself, and in called functions.
const PATHS_MAX: usize = 128;
const CALLEE_PATHS_MAX: usize = 16;

/// BRK #1 of LLVM and BRK #1000 of GCC. Compilers put these, and UDF, where execution must not get. A path ends
/// there.
const TRAPS: [u32; 2] = [0xd420_0020, 0xd420_7d00];

/// Returns the instruction at an address, as it is without probes; `None` outside the text.
pub(super) type Read<'a> = &'a dyn Fn(u64) -> Option<u32>;
/// Returns the bounds of the function around an address; `None` if none is known.
pub(super) type Bounds<'a> = &'a dyn Fn(u64) -> Option<Range<u64>>;

impl ScratchPreservers {
    /// Finds these functions among those that are called in the text at these virtual addresses; `None` if there is no
    /// memory for the list. `bounds` returns the bounds of the function around an address.
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
        let shared = Shared::new();
        for (call, function) in calls {
            let Some(&Preserving { preserved, kept: Registers::NONE, .. }) = called.by(function) else { continue };
            let mut walk = Walk::sharing(read, &called, &shared);
            let Err(live) = walk.follow::<PATHS_MAX>(call + 4, preserved, 0) else { continue };
            if let Some(preserving) = called.of(function) {
                (preserving.call, preserving.kept) = (call, live.register());
            }
        }
        let kept = called.0.iter().copied().filter(|preserving| !preserving.kept.is_empty());
        called.0 = fallible::boxed_slice(kept).ok()?.into_vec();
        // A function that goes on in another by a branch returns to the same callers, so the other preserves the same
        // registers.
        let mut index = 0;
        while let Some(&preserving) = called.0.get(index) {
            index += 1;
            if let Some(function) = tail_branch_target(preserving.function, read)
                && called.index(function).is_none()
            {
                called.add(Preserving { function, ..preserving })?;
                index = 0;
            }
        }
        Some(called)
    }

    /// Returns those of `registers` that the function at the virtual address `entry` preserves on all paths. A call
    /// that cannot be followed preserves none of them.
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

    /// Returns the entry of `function`, if there is one.
    fn by(&self, function: u64) -> Option<&Preserving> {
        self.0.get(self.index(function)?)
    }
}

/// Returns why not all of [`SCRATCH`] is dead at the first instruction of the function at the virtual address
/// `function`; `None` if all of it is.
#[must_use]
pub fn scratch_at_entry(function: u64, preservers: &ScratchPreservers, read: Read<'_>) -> Option<Live> {
    Walk::new(read, preservers).live(function, SCRATCH, function)
}

/// Returns the registers of [`SCRATCH`] in which the function at these virtual addresses may pass something to its
/// caller, as outlined functions do: those that it writes anywhere, or all if it makes a call.
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

/// Returns why not all of the `wanted` registers are dead before the instruction at the virtual address `at`; `None` if
/// they are. They are a part of [`SCRATCH`]. The instruction is in the function at the virtual address `function`,
/// which may have [`handed`] these registers to its caller.
///
/// At a return, a register is dead only if the function passes nothing in it to its caller.
#[must_use]
pub fn live_at(
    at: u64,
    wanted: Registers,
    function: u64,
    handed: Registers,
    preservers: &ScratchPreservers,
    read: Read<'_>,
) -> Option<Live> {
    Walk { begin: Begin::Inside(handed), ..Walk::new(read, preservers) }.live(at, wanted, function)
}

/// Returns the virtual address of an instruction that overwrites x30 before it is read, on every path from the first
/// instruction of the function at the virtual address `function`: then the function does not return to that address.
/// Returns `None` if x30 may be read, or if this cannot be determined.
#[must_use]
pub fn overwrites_link(function: u64, read: Read<'_>) -> Option<u64> {
    let preservers = ScratchPreservers::default();
    let mut walk = Walk::new(read, &preservers);
    let returned = walk.follow::<PATHS_MAX>(function, Registers::x(30), 0).ok()?;
    walk.writer.filter(|_| returned.is_empty())
}

/// Returns why not all of [`SCRATCH`] is dead at `at`, where a call has returned to; `None` if all of it is, up to
/// a return. `shared` is for calls in the same text.
pub(super) fn live_after_call(
    at: u64,
    preservers: &ScratchPreservers,
    read: Read<'_>,
    shared: &Shared,
) -> Option<Live> {
    let mut walk = Walk { begin: Begin::Caller, ..Walk::sharing(read, preservers, shared) };
    walk.follow::<PATHS_MAX>(at, SCRATCH, 0).err()
}

/// Returns the address that the instruction `word` at `at` calls, if it is a direct call.
pub(super) fn called_by(word: u32, at: u64) -> Option<u64> {
    // BL (C6.2), by a single test, because this is called for every word of a text.
    let is_call = word >> 26 == 0b10_0101;
    is_call.then(|| at.wrapping_add_signed(i64::from((word << 6).cast_signed() >> 4)))
}

/// Returns where the function at the virtual address `function` goes on by a branch, if only a few instructions without
/// a condition come before it.
fn tail_branch_target(function: u64, read: Read<'_>) -> Option<u64> {
    for at in (function..).step_by(4).take(CALLEE_STEPS_MAX) {
        match classify(read(at)?) {
            Verdict::Simulate(Op::Branch { offset }) => return Some(at.wrapping_add_signed(offset.into())),
            Verdict::Simulate(Op::BranchRegister { .. } | Op::BranchAuthenticated { .. }) => return None,
            _ => {}
        }
    }
    None
}

/// Where a walk begins. It decides what is assumed after the ends of paths.
#[derive(Clone, Copy)]
enum Begin {
    /// At the entry of a function: an indirect branch is a tail call, or a call, of a function that follows the
    /// standard.
    Entry,
    /// Inside a function, which may pass something to its caller in these registers. An indirect jump may lead on
    /// within the function, by a jump table.
    Inside(Registers),
    /// After a call, in the caller, in which indirect jumps may lead on as well.
    Caller,
}

/// What walks over the same text find out for each other: places from which these registers were not found to be read.
/// A place that shares its entry with another is forgotten when the other comes.
struct UnreadCache(Vec<Cell<(u64, Registers)>>);

impl UnreadCache {
    /// The number of entries, a power of two.
    const LEN: usize = 1024;

    /// Makes a table that is empty; and stays empty if there is no memory for it.
    fn new() -> Self {
        let mut entries = Vec::new();
        if entries.try_reserve_exact(Self::LEN).is_ok() {
            entries.resize(Self::LEN, Cell::default());
        }
        Self(entries)
    }

    fn entry(&self, at: u64, salt: usize) -> Option<&Cell<(u64, Registers)>> {
        self.0.get(((at as usize / 4) ^ salt) % Self::LEN)
    }
}

/// What walks over the same text have found out.
pub(super) struct Shared {
    /// Called functions. If a call could not be followed to its end, fewer registers may be followed farther, so a
    /// function is known only with the same registers.
    functions: UnreadCache,
    /// Targets of branches in walks that followed all paths to their ends.
    targets: UnreadCache,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self { functions: UnreadCache::new(), targets: UnreadCache::new() }
    }

    fn has_function(&self, function: u64, registers: Registers) -> bool {
        let entry = self.functions.entry(function, registers.hash());
        entry.is_some_and(|entry| entry.get() == (function, registers))
    }

    fn add_function(&self, function: u64, registers: Registers) {
        if let Some(entry) = self.functions.entry(function, registers.hash()) {
            entry.set((function, registers));
        }
    }

    fn has_target(&self, target: u64, registers: Registers) -> bool {
        let entry = self.targets.entry(target, 0).map(Cell::get);
        entry.is_some_and(|(at, unread)| at == target && (registers - unread).is_empty())
    }

    fn add_target(&self, target: u64, registers: Registers) {
        if let Some(entry) = self.targets.entry(target, 0) {
            let (at, unread) = entry.get();
            entry.set((target, if at == target { unread | registers } else { registers }));
        }
    }
}

/// A walk along the paths from an instruction.
pub(super) struct Walk<'a> {
    read: Read<'a>,
    /// The functions that preserve registers. All others are assumed to preserve none.
    preservers: &'a ScratchPreservers,
    /// The paths that other walks over the same text have followed, which this one skips.
    shared: Option<&'a Shared>,
    /// The number of instructions that may still be looked at; in called functions, it counts from the first branch on.
    steps: usize,
    /// The virtual address of the first instruction that has written the last of the registers on a path.
    writer: Option<u64>,
    begin: Begin,
}

/// Up to `N` places, each with the registers for which no writer was found on the path to it.
struct Places<const N: usize> {
    places: [(u64, Registers); N],
    count: usize,
}

impl<const N: usize> Places<N> {
    const NONE: Self = Self { places: [(0, Registers::NONE); N], count: 0 };

    /// Adds a place; `None` if there is no room.
    fn push(&mut self, at: u64, unwritten: Registers) -> Option<()> {
        *self.places.get_mut(self.count)? = (at, unwritten);
        self.count += 1;
        Some(())
    }

    fn all(&self) -> &[(u64, Registers)] {
        self.places.get(..self.count).unwrap_or_default()
    }

    fn pop(&mut self) -> Option<(u64, Registers)> {
        self.count = self.count.checked_sub(1)?;
        self.places.get(self.count).copied()
    }

    /// Records that a path has come to `at` with these registers. Returns the union with the registers of earlier paths
    /// to `at`; `None` if earlier paths came with all of them.
    fn visit(&mut self, at: u64, unwritten: Registers) -> Result<Option<Registers>, Live> {
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

/// What follows an instruction on a path.
enum Next {
    /// The next instruction, before which these registers have no writer yet.
    Instruction(Registers),
    /// A branch.
    Branch(Branch),
    /// The path has ended. At a return, these registers have no writer yet; elsewhere there are none.
    End(Registers),
}

/// A direct branch on a path.
struct Branch {
    target: u64,
    /// The next instruction, if the branch is conditional.
    next: Option<u64>,
    unwritten: Registers,
}

/// The paths that branches have opened, and the targets of the branches so far.
struct Paths<const N: usize> {
    pending: Places<N>,
    visited: Places<N>,
}

impl<const N: usize> Paths<N> {
    const NONE: Self = Self { pending: Places::NONE, visited: Places::NONE };

    /// Takes `branch`, and keeps the path past it for later. Returns `None` if a path has come to its target before with
    /// the same registers.
    fn take(&mut self, Branch { target, next, unwritten }: Branch) -> Result<Option<(u64, Registers)>, Live> {
        if let Some(next) = next {
            self.pending.push(next, unwritten).ok_or(Live::Lost { register: unwritten.first(), end: next })?;
        }
        Ok(self.visited.visit(target, unwritten)?.map(|unwritten| (target, unwritten)))
    }
}

impl<'a> Walk<'a> {
    const fn new(read: Read<'a>, preservers: &'a ScratchPreservers) -> Self {
        Self { read, preservers, shared: None, steps: STEPS_MAX, writer: None, begin: Begin::Entry }
    }

    /// Makes one of many walks over the same text. It looks for readers only: it does not follow again what another has
    /// followed, so what it returns of registers that have no writer up to a return is not all.
    const fn sharing(read: Read<'a>, preservers: &'a ScratchPreservers, shared: &'a Shared) -> Self {
        Self { shared: Some(shared), ..Self::new(read, preservers) }
    }

    /// Returns why not all of the `wanted` registers are dead at `at`, in the function at `function`; `None` if they
    /// are.
    fn live(&mut self, at: u64, wanted: Registers, function: u64) -> Option<Live> {
        let returned = match self.follow::<PATHS_MAX>(at, wanted, 0) {
            Ok(returned) => returned,
            Err(live) => return Some(live),
        };
        let &Preserving { call, preserved, kept, .. } = self.preservers.by(function)?;
        (!(returned & preserved).is_empty()).then_some(Live::Kept { register: kept, call })
    }

    /// Follows all paths from the instruction at `from`. Returns the registers of `wanted` for which no writer was
    /// found on some path up to a return.
    fn follow<const N: usize>(&mut self, from: u64, wanted: Registers, depth: usize) -> Result<Registers, Live> {
        let (mut at, mut unwritten) = (from, wanted);
        while !unwritten.is_empty() {
            match self.step(at, unwritten, depth, depth == 0)? {
                Next::Instruction(left) => (at, unwritten) = (at.wrapping_add(4), left),
                Next::Branch(branch) => return self.follow_paths::<N>(branch, depth),
                Next::End(returned) => return Ok(returned),
            }
        }
        Ok(Registers::NONE)
    }

    /// Does the same as [`follow`](Self::follow), from the first branch on. Other paths need memory only from there on;
    /// clearing that memory takes longer than most walks take to find all writers.
    #[inline(never)]
    fn follow_paths<const N: usize>(&mut self, first: Branch, depth: usize) -> Result<Registers, Live> {
        let shared = self.shared.filter(|_| depth == 0);
        let is_new = |&(at, unwritten): &_| !shared.is_some_and(|shared| shared.has_target(at, unwritten));
        let mut paths = Paths::<N>::NONE;
        let mut returned = Registers::NONE;
        let mut path = paths.take(first)?.filter(is_new);
        while let Some((at, unwritten)) = path.or_else(|| paths.pending.pop()) {
            path = match self.step(at, unwritten, depth, true)? {
                Next::Instruction(left) => Some((at.wrapping_add(4), left)).filter(|_| !left.is_empty()),
                Next::Branch(branch) => paths.take(branch)?.filter(is_new),
                Next::End(left) => {
                    returned = returned | left;
                    None
                }
            };
        }
        if let Some(shared) = shared {
            paths.visited.all().iter().for_each(|&(target, unwritten)| shared.add_target(target, unwritten));
        }
        Ok(returned)
    }

    /// Looks at the instruction at `at`, before which `unwritten` have no writer yet. If `counts`, it takes one of the steps.
    fn step(&mut self, at: u64, mut unwritten: Registers, depth: usize, counts: bool) -> Result<Next, Live> {
        const END: Next = Next::End(Registers::NONE);
        if self.steps == 0 {
            return Err(Live::Lost { register: unwritten.first(), end: at });
        }
        self.steps -= usize::from(counts);
        let Some(word) = (self.read)(at) else { return Ok(END) };
        let verdict = classify(word);
        if TRAPS.contains(&word) || verdict == Verdict::Reject(Reason::PermanentlyUndefined) {
            return Ok(END);
        }
        let Access { reads, writes } = Access::under(verdict, word);
        let read = unwritten & reads;
        if !read.is_empty() {
            return Err(Live::Read { register: read.first(), reader: at });
        }
        unwritten = unwritten - writes;
        if unwritten.is_empty() {
            self.writer.get_or_insert(at);
            return Ok(END);
        }
        let target = |offset: i32| at.wrapping_add_signed(offset.into());
        Ok(match verdict {
            Verdict::Simulate(Op::Branch { offset }) => {
                Next::Branch(Branch { target: target(offset), next: None, unwritten })
            }
            Verdict::Simulate(Op::BranchLink { offset }) => {
                Next::Instruction(self.call(target(offset), unwritten, depth)?)
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
                // A jump is a tail call. A function that is called by a register follows the standard, otherwise it
                // could not be called.
                Next::End(if kind == Indirect::Call { Registers::NONE } else { unwritten })
            }
            Verdict::Simulate(
                Op::BranchConditional { offset, .. } | Op::CompareBranch { offset, .. } | Op::TestBranch { offset, .. },
            ) => Next::Branch(Branch { target: target(offset), next: Some(at.wrapping_add(4)), unwritten }),
            _ => Next::Instruction(unwritten),
        })
    }

    /// Returns those of the registers that a call of `function` preserves. Fails if the function reads one.
    fn call(&mut self, function: u64, unwritten: Registers, depth: usize) -> Result<Registers, Live> {
        let shared = self.shared.filter(|_| depth == 0);
        if depth < DEPTH && !shared.is_some_and(|shared| shared.has_function(function, unwritten)) {
            let mut walk = Walk { steps: CALLEE_STEPS_MAX, ..*self };
            let walk = if depth == 0 { &mut walk } else { &mut *self };
            // A function that is not seen to break the standard is assumed to follow it.
            match walk.follow::<CALLEE_PATHS_MAX>(function, unwritten, depth + 1) {
                Err(live @ Live::Read { .. }) => return Err(live),
                Err(Live::Kept { .. } | Live::Lost { .. }) | Ok(_) => {}
            }
            if let Some(shared) = shared {
                shared.add_function(function, unwritten);
            }
        }
        Ok(self.preservers.by(function).map_or(Registers::NONE, |by| unwritten & by.preserved))
    }
}

/// Returns how many bytes higher than at its entry the stack pointer is when the function at these virtual addresses
/// returns; `None` if that cannot be determined, as in a function with conditional branches.
#[must_use]
pub fn stack_at_return(function: Range<u64>, read: Read<'_>) -> Option<i64> {
    moved(function.start, function.end, read, &mut { STEPS_MAX }, 0).ok()
}

/// Why the movement of the stack pointer by a function cannot be determined.
enum Undetermined {
    /// There are several paths, or no path to a return.
    Paths,
    /// An instruction sets it from a register.
    Moved,
}

fn moved(function: u64, end: u64, read: Read<'_>, steps: &mut usize, depth: usize) -> Result<i64, Undetermined> {
    let (mut at, mut height, mut frame) = (function, 0_i64, None);
    while at != end {
        *steps = steps.checked_sub(1).ok_or(Undetermined::Paths)?;
        let word = read(at).ok_or(Undetermined::Paths)?;
        let verdict = classify(word);
        height = match StackPointer::after(word) {
            StackPointer::Moved(distance) => height + distance,
            StackPointer::FromFrame(distance) => frame.ok_or(Undetermined::Moved)? + distance,
            StackPointer::Unknown => return Err(Undetermined::Moved),
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
                    // A function with several paths is assumed to restore it.
                    Err(Undetermined::Paths) => 0,
                    height => height?,
                };
            }
            Verdict::Simulate(
                Op::BranchRegister { kind: Indirect::Return, .. }
                | Op::BranchAuthenticated { kind: Indirect::Return, .. },
            ) => return Ok(height),
            Verdict::Simulate(op) if op.branch_offset().is_some() || op.is_jump() => return Err(Undetermined::Paths),
            _ => {}
        }
        at = at.wrapping_add(4);
    }
    Err(Undetermined::Paths)
}

#[cfg(test)]
mod tests;
