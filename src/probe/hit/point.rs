//! A probe point: one instruction that is probed, how it is executed, and the probes that watch it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::{MaybeUninit, offset_of};
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use super::counters::Counters;
use super::cpu::Cpu;
use super::entry::ArgumentHandler;
use super::instance::Slot;
use super::origin::Cell;
use super::returns::ReturnProbe;
use super::stub::Form;
use super::{Hit, PostHandler, PreHandler};
use crate::insn::Op;
use crate::probe::Mode;
use crate::probe::aliasable::AliasableBox;
use crate::probe::snippet::Inserted;

/// How the probed instruction is executed. Addresses are virtual.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Execution {
    /// On the trap frame, within the exception.
    Simulated(Op),
    /// From a copy at `slot`, with a `brk #0x6` behind it.
    Stepped { slot: usize },
    /// From a copy at `slot`, with a branch to the next instruction behind it.
    Boosted { slot: usize },
    /// From a copy at the end of `stub`, to which a branch leads from where the instruction was; or to a snippet in the same
    /// `cell`, that begins `before` bytes before the stub, if that is not 0.
    Optimized { stub: usize, form: Form, cell: Cell, before: u16 },
}

/// One instruction that is probed, and what a hit of it does.
///
/// The hit path finds it by address, without a lock, and nothing in it changes while a CPU is in there: another takes its place.
/// It is freed only after every CPU has been held outside the hit path since. `trampoline/hit.S` knows the beginning.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Point {
    /// What is called first.
    pub(crate) first: Watcher,
    /// Handler for a full stub, and the counter to increment before it. A CPU may have entered a stub when another point was here,
    /// so both are valid also where there is no stub, or where stubs cannot do all that is to be done: they then serve those probes
    /// that a stub can serve. The others have been armed since, and are hit from the next time on.
    pub(crate) full: PreHandler,
    pub(crate) full_counters: Counters,
    /// Handler for a lean stub, and its counter, valid in the same cases.
    pub(crate) lean: ArgumentHandler,
    pub(crate) lean_counters: Counters,
    /// What is left to do when that has been done, and has changed no register: 0 if more than is said here.
    pub(crate) shortcut: u64,
    /// Of [`BOOSTED`](Self::BOOSTED) and [`STEPPED`](Self::STEPPED): the virtual address at which to go on.
    pub(crate) slot: usize,
    /// Of the others: what they say.
    pub(crate) operands: [u64; 3],
    /// The [`shortcut`](Self::shortcut) of a breakpoint at the entry of a function that calls no handler, but follows the call to
    /// its return for [`returns`](Self::returns); 0 elsewhere. At most one of the two is not 0.
    pub(crate) entry: u64,
    /// The slots of the return probe, that of the first watcher, if it alone watches, and wants nothing of the entry; null
    /// otherwise.
    pub(crate) returns: *const Slot,
    pub(crate) execution: Execution,
    /// Whether branch targets are checked in its page.
    pub(crate) guarded: bool,
    /// The enabled probes, in the order in which they run, if there are several. There is seldom more than the first.
    pub(crate) several: Vec<Watcher>,
}

/// An enabled probe at a point, as the hit path sees it.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Watcher {
    /// Called before the instruction.
    pub(crate) handler: PreHandler,
    /// Its hits are counted before that.
    pub(crate) counters: Counters,
    /// The virtual address of the instruction.
    pub(crate) address: usize,
    /// Called after the instruction.
    pub(crate) post: Option<PostHandler>,
    pub(crate) probe: ProbeRef,
}

/// Reference to a registered probe. The probe stays in place until it has been unregistered, no point refers to it, every CPU has
/// been held outside the hit path since, and no call of it is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeRef(NonNull<Probe>);

/// A registered probe.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) kind: Kind,
    /// The word that its handlers are given.
    pub(crate) data: usize,
    /// It is armed, or about to be. For the registry: a point has only those that are.
    pub(crate) enabled: AtomicBool,
    /// The fastest mode that it allows, by what it was asked to do and what its handlers need. For the registry.
    pub(crate) allows: Mode,
    pub(crate) counters: Counters,
    /// Counts the calls of its watcher's handler: the same, but for a return probe, which is hit by returns.
    pub(crate) entered: Counters,
    /// What its stub does instead of calling the handler. For the registry.
    pub(crate) inserted: Option<Box<Inserted>>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Kprobe {
        pre: Pre,
        post: Option<PostHandler>,
    },
    /// Boxed, as it is many times as large, and most probes are of the other kind.
    Return(AliasableBox<ReturnProbe>),
}

/// What a kprobe does before the instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pre {
    Nothing,
    Hit(PreHandler),
    Entry(ArgumentHandler),
}

impl Point {
    /// [`shortcut`](Self::shortcut): to go on at [`slot`](Self::slot).
    pub(crate) const BOOSTED: u64 = 1;
    /// [`shortcut`](Self::shortcut): to go on where the frame says at the first operand, an offset, with the second as
    /// PSTATE.BTYPE, and [`slot`](Self::slot) stored at the third, an offset.
    pub(crate) const REGISTER: u64 = 2;
    /// [`shortcut`](Self::shortcut): to step the instruction at [`slot`](Self::slot), and to call the one post-handler.
    pub(crate) const STEPPED: u64 = 4;

    /// [`shortcut`](Self::shortcut): to store the first operand at the second, an offset in the frame, and to go on at
    /// [`slot`](Self::slot).
    pub(crate) const SET: u64 = 8;
    /// [`shortcut`](Self::shortcut): to go on at [`slot`](Self::slot) if, in the first operand, the bit is set whose number
    /// the flags are (N in bit 3 to V in bit 0), else at the second.
    pub(crate) const CONDITION: u64 = 16;
    /// [`shortcut`](Self::shortcut): to go on at [`slot`](Self::slot) if a bit of the first operand is set at the third, an
    /// offset in the frame, else at the second.
    pub(crate) const TEST: u64 = 32;
    /// [`shortcut`](Self::shortcut): to load the doubleword at the first operand, an address that is known to be readable, to
    /// store it at the second, an offset in the frame, and to go on at [`slot`](Self::slot).
    pub(crate) const LOAD_DOUBLEWORD: u64 = 64;
    /// [`shortcut`](Self::shortcut): the same for a word.
    pub(crate) const LOAD_WORD: u64 = 128;

    /// The virtual address of the instruction.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.first.address
    }

    /// The enabled probes, in the order in which they run.
    #[inline]
    pub(super) fn watchers(&self) -> &[Watcher] {
        if self.several.is_empty() { slice::from_ref(&self.first) } else { &self.several }
    }

    /// Makes this the point at `place`, with those of its watchers whose probes are enabled.
    ///
    /// Copied word by word, inline: `memcpy` may hit the probe whose point is half written.
    ///
    /// # Safety
    ///
    /// A point is there, no CPU is in the hit path, and this one is not interrupted; this one has no watchers of its own, and is
    /// not dropped.
    #[inline(never)]
    pub(crate) unsafe fn take_place(&mut self, place: NonNull<Self>) {
        // SAFETY: the watchers are moved as the words that they consist of; the vector has no more of them than it had, and goes
        // over to this point, as this point does to the place.
        unsafe {
            let several = &raw mut (*place.as_ptr()).several;
            let (first, count) = ((*several).as_mut_ptr(), (*several).len());
            let mut kept = 0;
            for watcher in 0..count {
                if (&*first.add(watcher)).probe.enabled.load(Relaxed) {
                    copy_words(first.add(watcher), first.add(kept));
                    kept += 1;
                }
            }
            (*several).set_len(kept);
            copy_words(several, &raw mut self.several);
            copy_words(self, place.as_ptr());
        }
    }

    /// Counts a hit that none of the probes has been told of.
    pub(super) fn miss(&self, cpu: &Cpu) {
        for watcher in self.watchers() {
            watcher.probe.counters.miss(cpu);
        }
    }

    /// The point that begins with its first watcher at `first`.
    ///
    /// # Safety
    ///
    /// The pointer was made from one to the point, or by the assembly. The caller is in the hit path, and uses the result only
    /// there.
    pub(super) unsafe fn beginning_with<'a>(first: *const Watcher) -> &'a Self {
        // SAFETY: a point is freed only after every CPU has been held outside the hit path, in which the caller is.
        unsafe { &*first.cast() }
    }
}

/// Copies a value of whole words by loads and stores of these, and no call.
///
/// # Safety
///
/// As of [`ptr::copy`].
#[inline(always)]
unsafe fn copy_words<T>(from: *const T, to: *mut T) {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() >= 8) };
    for word in 0..size_of::<T>() / 8 {
        // What is copied has pointers in it, and padding.
        let (from, to) = (from.cast::<MaybeUninit<u64>>(), to.cast::<MaybeUninit<u64>>());
        // SAFETY: by the caller.
        unsafe { to.add(word).write_volatile(from.add(word).read_volatile()) };
    }
}

// The assembly loads the handlers together with the counts, and takes the address of the point for that of its first watcher.
const _: () =
    assert!(offset_of!(Point, first) == 0 && offset_of!(Watcher, handler) == 0 && offset_of!(Watcher, counters) == 8);
const _: () = {
    assert!(offset_of!(Point, full_counters) == offset_of!(Point, full) + 8);
    assert!(offset_of!(Point, lean_counters) == offset_of!(Point, lean) + 8);
    assert!(offset_of!(Point, slot) == offset_of!(Point, shortcut) + 8);
    assert!(offset_of!(Watcher, post) == offset_of!(Watcher, address) + 8);
};

impl Watcher {
    /// From what has the address of a watcher at `offset` to the word that its probe was registered with.
    pub(super) const fn data_behind(offset: usize) -> [u16; 3] {
        [offset as u16, offset_of!(Self, probe) as u16, offset_of!(Probe, data) as u16]
    }

    /// Where the one is whose handler runs with `hit`. An address, as the assembly stores it in the frame, too.
    #[inline]
    pub(super) fn place(hit: &Hit<'_>) -> *const Self {
        ptr::with_exposed_provenance(hit.frame().watcher as usize)
    }

    /// The one whose handler runs with `hit`.
    #[inline]
    pub(super) fn of<'a>(hit: &'a Hit<'_>) -> &'a Self {
        // SAFETY: the routine that calls a handler stores the address there. Watchers are freed only after every CPU has been held
        // outside the hit path, and the handler runs in the hit path.
        unsafe { &*Self::place(hit) }
    }
}

// SAFETY: `returns` leads to a part of what the first watcher has.
unsafe impl Send for Point {}

// SAFETY: it is a reference to what can be shared.
unsafe impl Send for ProbeRef {}
// SAFETY: a shared `Probe` is `Sync`, as the check below shows.
unsafe impl Sync for ProbeRef {}
const _: fn() = || {
    fn is_shared<T: Sync>() {}
    is_shared::<Probe>();
};

impl ProbeRef {
    /// The probe at this place.
    ///
    /// # Safety
    ///
    /// The probe stays there for as long as the documentation of [`ProbeRef`] says, and no holder of the result uses it for longer.
    pub(crate) const unsafe fn new(probe: NonNull<Probe>) -> Self {
        Self(probe)
    }

    /// Its place.
    pub(crate) const fn place(self) -> NonNull<Probe> {
        self.0
    }
}

impl Deref for ProbeRef {
    type Target = Probe;

    #[inline]
    fn deref(&self) -> &Probe {
        // SAFETY: as `new` was promised.
        unsafe { self.0.as_ref() }
    }
}

impl Kind {
    /// The fastest mode that a probe allows which is asked for in this one, or a slower one, by what its handlers need; it has a
    /// snippet or has not.
    pub(crate) fn allows(&self, fastest: Mode, has_snippet: bool) -> Mode {
        match self {
            Self::Kprobe { post: Some(_), .. } => Mode::Stepped,
            Self::Kprobe { .. } if has_snippet => fastest,
            Self::Kprobe { pre: Pre::Entry(_), .. } => fastest.min(Mode::Lean),
            Self::Kprobe { .. } | Self::Return(_) => fastest.min(Mode::Optimized),
        }
    }
}

impl Probe {
    /// How many calls of a return-probed function are being followed.
    pub(crate) fn active(&self) -> u32 {
        match &self.kind {
            Kind::Return(return_probe) => return_probe.active(),
            Kind::Kprobe { .. } => 0,
        }
    }

    /// Whether it is this return probe.
    pub(super) fn is(&self, other: &ReturnProbe) -> bool {
        matches!(&self.kind, Kind::Return(return_probe) if ptr::eq(&**return_probe, other))
    }
}
