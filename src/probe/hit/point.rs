//! A probe point: one probed instruction, how it is executed, and the probes that watch it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::{MaybeUninit, offset_of};
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use super::arguments::ArgumentHandler;
use super::counters::Counters;
use super::cpu::Cpu;
use super::origin::Cell;
use super::returns::ReturnProbe;
use super::stub::Form;
use super::{Hit, PostHandler, PreHandler};
use crate::insn::Op;
use crate::probe::Mode;
use crate::probe::aliasable::AliasableBox;
use crate::probe::registry::RegistryEntry;
use crate::probe::snippet::Inserted;

/// How a probed instruction is executed. Addresses are virtual. Begins with a word, so that it is copied in words.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Execution {
    /// On the trap frame, within the exception.
    Simulated(Op),
    /// From a copy at `slot`, followed by a `brk #0x6`.
    Stepped { slot: usize },
    /// From a copy at `slot`, followed by a branch to the next instruction.
    Boosted { slot: usize },
    /// From a copy at the end of `stub`. A branch that replaces the instruction leads to the stub; or, if `before` is
    /// not 0, to a snippet in the same `cell`, which begins `before` bytes before the stub.
    Optimized { stub: usize, form: Form, cell: Cell, before: u16 },
}

/// One probed instruction, and what a hit of it does.
///
/// The hit path finds it by address, without a lock. A point does not change while a CPU is in the hit path: a change
/// replaces it with another point. It is freed only after every CPU has been held outside the hit path since it was
/// replaced. `trampoline/hit.S` knows the layout of the first fields.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Point {
    /// The first armed probe, whose handler a breakpoint calls. Must be the first field.
    pub(crate) first: ArmedProbe,
    /// Handler for a full stub, and the counter to increment before the call.
    ///
    /// A CPU may have entered a stub when another point was here. So both are also valid if there is no stub, or if a
    /// stub cannot do everything that the point needs: they then serve the probes that a stub can serve. The other
    /// probes were enabled later, and get their first hit when the next CPU arrives.
    pub(crate) full: PreHandler,
    pub(crate) full_counters: Counters,
    /// Handler for a lean stub, and its counter, valid in the same cases as those for a full stub.
    pub(crate) lean: ArgumentHandler,
    pub(crate) lean_counters: Counters,
    /// How the assembly goes on after a handler that has changed no register: one of the constants below; 0 if Rust has
    /// to.
    pub(crate) shortcut: u64,
    /// For [`BOOSTED`](Self::BOOSTED) and [`STEPPED`](Self::STEPPED): the virtual address at which to go on. The other
    /// shortcuts say how they use it.
    pub(crate) slot: usize,
    /// The operands of the shortcuts: those below say how they use them.
    pub(crate) operands: [u64; 3],
    /// The [`shortcut`](Self::shortcut) after a breakpoint at the entry of a function, if no handler is called but the
    /// call is followed to its return for [`returns`](Self::returns); 0 otherwise. At most one of `entry` and
    /// `shortcut` is not 0.
    pub(crate) entry: u64,
    /// If the only armed probe is a return probe that does nothing at the entry but follow the call: the distance from
    /// the state of a CPU to the place of its spare of that probe. Otherwise 0.
    pub(crate) returns: u64,
    pub(crate) execution: Execution,
    /// Whether branch targets are checked in the instruction's page.
    pub(crate) guarded: bool,
    /// The original instruction.
    pub(crate) word: u32,
    /// The entry of the instruction, for the registry. Dangling until the point is published.
    pub(in crate::probe) registered: NonNull<RegistryEntry>,
    /// The enabled probes, in the order in which they run, if there are several; empty if there is only `first`.
    pub(crate) several: Vec<ArmedProbe>,
}

/// An enabled probe at a point, as the hit path sees it.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct ArmedProbe {
    /// Called before the instruction is executed.
    pub(crate) handler: PreHandler,
    /// Counts the hits, before the handler is called.
    pub(crate) counters: Counters,
    /// The virtual address of the instruction.
    pub(crate) address: usize,
    /// Called after the instruction has been executed.
    pub(crate) post: Option<PostHandler>,
    pub(crate) probe: ProbeRef,
}

/// Reference to a registered probe. The probe stays in place until it has been unregistered, no point refers to it,
/// every CPU has been held outside the hit path since then, and none of its calls is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeRef(NonNull<Probe>);

/// A registered probe.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) handlers: Handlers,
    /// The word that handlers get as `data`.
    pub(crate) data: usize,
    /// Whether the probe is enabled, or about to be. For the registry: a point has only enabled probes.
    pub(crate) enabled: AtomicBool,
    /// The fastest mode that the probe allows: the one it was registered for, or a slower one that its handlers need.
    /// For the registry.
    pub(crate) allows: Mode,
    pub(crate) counters: Counters,
    /// Counts the calls of its armed probe's handler: `counters` for a kprobe, a sink for a return probe, which counts
    /// its returns.
    pub(crate) entered: Counters,
    /// The snippet that its stub runs instead of calling the handler. For the registry.
    pub(crate) inserted: Option<Box<Inserted>>,
}

/// What a probe calls.
#[derive(Debug)]
pub(crate) enum Handlers {
    Kprobe {
        pre: Pre,
        post: Option<PostHandler>,
    },
    /// Boxed because it is many times larger than a kprobe's part, and most probes are kprobes.
    Return(AliasableBox<ReturnProbe>),
}

/// What a kprobe calls before the instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pre {
    Nothing,
    Hit(PreHandler),
    Arguments(ArgumentHandler),
}

impl Point {
    /// [`shortcut`](Self::shortcut): go on at [`slot`](Self::slot).
    pub(crate) const BOOSTED: u64 = 1;
    /// [`shortcut`](Self::shortcut): go on at the address in the frame at offset `operands[0]`, with `operands[1]` as
    /// PSTATE.BTYPE, after storing [`slot`](Self::slot) in the frame at offset `operands[2]`.
    pub(crate) const REGISTER: u64 = 2;
    /// [`shortcut`](Self::shortcut): step the instruction at [`slot`](Self::slot), which ends at `operands[0]`, then
    /// call the only post-handler.
    pub(crate) const STEPPED: u64 = 4;

    /// [`shortcut`](Self::shortcut): store `operands[0]` in the frame at offset `operands[1]`, and go on at
    /// [`slot`](Self::slot).
    pub(crate) const SET: u64 = 8;
    /// [`shortcut`](Self::shortcut): go on at [`slot`](Self::slot) if the bit of `operands[0]` is set whose number is
    /// the flags (N in bit 3 to V in bit 0); otherwise at `operands[1]`.
    pub(crate) const CONDITION: u64 = 16;
    /// [`shortcut`](Self::shortcut): go on at [`slot`](Self::slot) if any bit of `operands[0]` is set in the frame
    /// at offset `operands[2]`; otherwise at `operands[1]`.
    pub(crate) const TEST: u64 = 32;
    /// [`shortcut`](Self::shortcut): load the doubleword at the address `operands[0]`, which is known to be readable,
    /// store it in the frame at offset `operands[1]`, and go on at [`slot`](Self::slot).
    pub(crate) const LOAD_DOUBLEWORD: u64 = 64;
    /// [`shortcut`](Self::shortcut): load the word at the address `operands[0]`, which is known to be readable, store
    /// it zero extended in the frame at offset `operands[1]`, and go on at [`slot`](Self::slot).
    pub(crate) const LOAD_WORD: u64 = 128;

    /// Returns the virtual address of the instruction.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.first.address
    }

    /// Returns the enabled probes, in the order in which they run.
    #[inline]
    pub(super) fn armed_probes(&self) -> &[ArmedProbe] {
        if self.several.is_empty() { slice::from_ref(&self.first) } else { &self.several }
    }

    /// Replaces the point at `place` with this one, keeping that point's armed probes whose probes are enabled.
    ///
    /// Copied word by word, inline: `memcpy` may hit the probe whose point is half written.
    ///
    /// # Safety
    ///
    /// There is a point at `place`, no CPU is in the hit path, and this CPU cannot be interrupted. This point has no
    /// armed probes in `several`, and is not dropped.
    #[inline(never)]
    pub(crate) unsafe fn install_at(&mut self, place: NonNull<Self>) {
        // SAFETY: armed probes are moved as the words that they consist of. The vector keeps its buffer and gets no
        // more armed probes than it had. It moves to this point, and this point moves to `place`: the caller does not
        // drop this one (see # Safety).
        unsafe {
            let several = &raw mut (*place.as_ptr()).several;
            let (first, count) = ((*several).as_mut_ptr(), (*several).len());
            let mut kept = 0;
            for index in 0..count {
                if (&*first.add(index)).probe.enabled.load(Relaxed) {
                    copy_words(first.add(index), first.add(kept));
                    kept += 1;
                }
            }
            (*several).set_len(kept);
            copy_words(several, &raw mut self.several);
            self.registered = (*place.as_ptr()).registered;
            copy_words(self, place.as_ptr());
        }
    }

    /// Counts the hit as missed by every probe of the point.
    pub(super) fn miss(&self, cpu: &Cpu) {
        for armed in self.armed_probes() {
            armed.probe.counters.miss(cpu);
        }
    }

    /// Returns the point whose first armed probe is at `first`.
    ///
    /// # Safety
    ///
    /// The pointer was derived from a pointer to the point, or stored by the assembly. The caller is in the hit path,
    /// and uses the result only there.
    pub(super) unsafe fn beginning_with<'a>(first: *const ArmedProbe) -> &'a Self {
        // SAFETY: a point is freed only after every CPU has been held outside the hit path, in which the caller is.
        unsafe { &*first.cast() }
    }
}

/// Copies a value word by word, with loads and stores and no call.
///
/// # Safety
///
/// The contract of [`ptr::copy`] for one value; the two values may be the same, but do not overlap otherwise.
#[inline(always)]
unsafe fn copy_words<T>(from: *const T, to: *mut T) {
    const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() >= 8) };
    for word in 0..size_of::<T>() / 8 {
        // The value may contain pointers and padding, so its words are copied as `MaybeUninit`.
        let (from, to) = (from.cast::<MaybeUninit<u64>>(), to.cast::<MaybeUninit<u64>>());
        // SAFETY: the caller guarantees that both values are valid for the copy (see # Safety), and `word` is within
        // their size.
        unsafe { to.add(word).write_volatile(from.add(word).read_volatile()) };
    }
}

// The assembly loads each handler together with its counters, and uses the address of the point as that of its first
// armed probe.
const _: () = assert!(
    offset_of!(Point, first) == 0 && offset_of!(ArmedProbe, handler) == 0 && offset_of!(ArmedProbe, counters) == 8
);
const _: () = {
    assert!(offset_of!(Point, full_counters) == offset_of!(Point, full) + 8);
    assert!(offset_of!(Point, lean_counters) == offset_of!(Point, lean) + 8);
    assert!(offset_of!(Point, slot) == offset_of!(Point, shortcut) + 8);
    assert!(offset_of!(ArmedProbe, post) == offset_of!(ArmedProbe, address) + 8);
};

impl ArmedProbe {
    /// Returns the byte offsets that lead to the word that a probe was registered with, from a structure that has the
    /// address of its armed probe at `offset`.
    pub(super) const fn data_path(offset: usize) -> [u16; 3] {
        [offset as u16, offset_of!(Self, probe) as u16, offset_of!(Probe, data) as u16]
    }

    /// Returns the address of the armed probe whose handler runs with `hit`. Exposed, because the assembly also stores
    /// it in the frame.
    #[inline]
    pub(super) fn place(hit: &Hit<'_>) -> *const Self {
        ptr::with_exposed_provenance(hit.frame().called_for as usize)
    }

    /// Returns the armed probe whose handler runs with `hit`.
    #[inline]
    pub(super) fn of<'a>(hit: &'a Hit<'_>) -> &'a Self {
        // SAFETY: the routine that calls a handler stores the address of its armed probe there. Armed probes are freed
        // only after every CPU has been held outside the hit path, and the handler runs in the hit path.
        unsafe { &*Self::place(hit) }
    }

    /// Returns whether a hit is only reported after the instruction.
    #[inline]
    pub(super) fn has_only_post(&self) -> bool {
        self.post.is_some() && matches!(self.probe.handlers, Handlers::Kprobe { pre: Pre::Nothing, .. })
    }
}

// SAFETY: all fields but `registered` are `Send`, and only the holder of the registry's lock uses that one.
unsafe impl Send for Point {}

// SAFETY: it is a shared reference to a `Probe`, which is `Sync`, as the check below shows.
unsafe impl Send for ProbeRef {}
// SAFETY: it is a shared reference to a `Probe`, which is `Sync`, as the check below shows.
unsafe impl Sync for ProbeRef {}
const _: fn() = || {
    fn is_shared<T: Sync>() {}
    is_shared::<Probe>();
};

impl ProbeRef {
    /// Makes a reference to the probe at this address.
    ///
    /// # Safety
    ///
    /// The probe stays there for as long as the documentation of [`ProbeRef`] says, and no copy of the result is used
    /// after that.
    pub(crate) const unsafe fn new(probe: NonNull<Probe>) -> Self {
        Self(probe)
    }

    /// Returns the address of the probe.
    pub(crate) const fn place(self) -> NonNull<Probe> {
        self.0
    }
}

impl Deref for ProbeRef {
    type Target = Probe;

    #[inline]
    fn deref(&self) -> &Probe {
        // SAFETY: the caller of `new` guarantees that the probe stays in place as long as this reference is used.
        unsafe { self.0.as_ref() }
    }
}

impl Handlers {
    /// Returns the fastest mode that a probe with these handlers allows: `fastest`, or a slower mode that its handlers
    /// need. `has_snippet` says whether a stub can run a snippet for it.
    pub(crate) fn allows(&self, fastest: Mode, has_snippet: bool) -> Mode {
        match self {
            Self::Kprobe { post: Some(_), .. } => Mode::Stepped,
            Self::Kprobe { .. } if has_snippet => fastest,
            Self::Kprobe { pre: Pre::Arguments(_), .. } => fastest.min(Mode::Lean),
            Self::Kprobe { .. } | Self::Return(_) => fastest.min(Mode::Optimized),
        }
    }
}

impl Probe {
    /// Returns the number of calls in progress that a return probe follows; 0 for a kprobe.
    pub(crate) fn active(&self) -> u32 {
        match &self.handlers {
            Handlers::Return(return_probe) => return_probe.active(),
            Handlers::Kprobe { .. } => 0,
        }
    }

    /// Returns whether this is the return probe `other`.
    pub(super) fn is(&self, other: &ReturnProbe) -> bool {
        matches!(&self.handlers, Handlers::Return(return_probe) if ptr::eq(&**return_probe, other))
    }
}
