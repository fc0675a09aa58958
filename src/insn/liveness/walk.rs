//! Walks along the paths from an instruction, to the first reader or writer of registers.

use alloc::vec::Vec;
use core::cell::Cell;

use super::{Live, Preserving, Read, ScratchPreservers};
use crate::insn::classify;
use crate::insn::control::Control;
use crate::insn::op::Indirect;
use crate::insn::registers::{RegisterAccess, Registers};
use crate::insn::verdict::{Reason, Verdict};

/// The largest number of instructions that a walk looks at: in the function itself; and, from the first branch on, in a
/// called function with all that it calls. Outlined functions have no branches.
pub(super) const STEPS_MAX: usize = 4096;
const CALLEE_STEPS_MAX: usize = 32;
/// The largest depth of calls that are followed.
pub(super) const DEPTH: usize = 3;
/// The largest number of paths still to be followed, and of places that are remembered, at the same time: in the
/// function itself, and in called functions.
pub(super) const PATHS_MAX: usize = 128;
const CALLEE_PATHS_MAX: usize = 16;

/// BRK #1 of LLVM and BRK #1000 of GCC.
const TRAPS: [u32; 2] = [0xd420_0020, 0xd420_7d00];

/// Returns whether `word`, which has this verdict, is a trap: one of [`TRAPS`], or UDF. Compilers put traps where
/// execution must not get. A path ends there.
pub(super) fn is_trap(word: u32, verdict: Verdict) -> bool {
    TRAPS.contains(&word) || verdict == Verdict::Reject(Reason::PermanentlyUndefined)
}

/// Where a walk begins. It decides what is assumed after the ends of paths.
#[derive(Clone, Copy)]
pub(super) enum Begin {
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
pub(in crate::insn) struct Shared {
    /// Called functions. If a call could not be followed to its end, fewer registers may be followed farther, so a
    /// function is known only with the same registers.
    functions: UnreadCache,
    /// Targets of branches in walks that followed all paths to their ends.
    targets: UnreadCache,
}

impl Shared {
    pub(in crate::insn) fn new() -> Self {
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
    pub(super) writer: Option<u64>,
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

    /// Takes `branch`, and keeps the path past it for later. Returns `None` if a path has come to its target before
    /// with the same registers.
    fn take(&mut self, Branch { target, next, unwritten }: Branch) -> Result<Option<(u64, Registers)>, Live> {
        if let Some(next) = next {
            self.pending.push(next, unwritten).ok_or(Live::Lost { register: unwritten.first(), end: next })?;
        }
        Ok(self.visited.visit(target, unwritten)?.map(|unwritten| (target, unwritten)))
    }
}

/// Returns an instruction by which the called `function` reads one of the `wanted` registers before it writes it;
/// `None` if the beginning of the function has none.
pub(super) fn read_by_callee(function: u64, wanted: Registers, read: Read<'_>) -> Option<Live> {
    let preservers = ScratchPreservers::default();
    let mut walk = Walk { steps: CALLEE_STEPS_MAX, ..Walk::new(read, &preservers) };
    walk.follow::<CALLEE_PATHS_MAX>(function, wanted, 1).err().filter(|live| matches!(live, Live::Read { .. }))
}

impl<'a> Walk<'a> {
    pub(super) const fn new(read: Read<'a>, preservers: &'a ScratchPreservers) -> Self {
        Self { read, preservers, shared: None, steps: STEPS_MAX, writer: None, begin: Begin::Entry }
    }

    /// Makes one of many walks over the same text. It looks for readers only: it does not follow again what another has
    /// followed, so what it returns of registers that have no writer up to a return is not all.
    pub(super) const fn sharing(read: Read<'a>, preservers: &'a ScratchPreservers, shared: &'a Shared) -> Self {
        Self { shared: Some(shared), ..Self::new(read, preservers) }
    }

    /// Returns the walk, which begins there.
    pub(super) fn beginning(self, begin: Begin) -> Self {
        Self { begin, ..self }
    }

    /// Returns why not all of the `wanted` registers are dead at `at`, in the function at `function`; `None` if they
    /// are.
    pub(super) fn live(&mut self, at: u64, wanted: Registers, function: u64) -> Option<Live> {
        let returned = match self.follow::<PATHS_MAX>(at, wanted, 0) {
            Ok(returned) => returned,
            Err(live) => return Some(live),
        };
        let &Preserving { call, kept, .. } = self.preservers.by(function)?;
        let needed = returned & kept;
        (!needed.is_empty()).then_some(Live::Kept { register: needed.first(), call })
    }

    /// Follows all paths from the instruction at `from`. Returns the registers of `wanted` for which no writer was
    /// found on some path up to a return.
    pub(super) fn follow<const N: usize>(
        &mut self,
        from: u64,
        wanted: Registers,
        depth: usize,
    ) -> Result<Registers, Live> {
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

    /// Looks at the instruction at `at`, before which `unwritten` have no writer yet. If `counts`, it takes one of the
    /// steps.
    fn step(&mut self, at: u64, mut unwritten: Registers, depth: usize, counts: bool) -> Result<Next, Live> {
        const END: Next = Next::End(Registers::NONE);
        if self.steps == 0 {
            return Err(Live::Lost { register: unwritten.first(), end: at });
        }
        self.steps -= usize::from(counts);
        let Some(word) = (self.read)(at) else { return Ok(END) };
        let verdict = classify(word);
        if is_trap(word, verdict) {
            return Ok(END);
        }
        let RegisterAccess { reads, writes } = RegisterAccess::under(verdict, word);
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
        Ok(match Control::after(word, verdict) {
            Control::Next => Next::Instruction(unwritten),
            Control::Jump(offset) => Next::Branch(Branch { target: target(offset), next: None, unwritten }),
            Control::Either(offset) => {
                Next::Branch(Branch { target: target(offset), next: Some(at.wrapping_add(4)), unwritten })
            }
            Control::Call(offset) => Next::Instruction(self.call(target(offset), unwritten, depth)?),
            Control::Register { kind, .. } => {
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
