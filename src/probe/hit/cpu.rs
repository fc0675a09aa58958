//! What each CPU remembers between the two breakpoints of a hit, and while handlers run.
//!
//! The hit path runs with interrupts masked from its first instruction to its last, and so does an instruction that is
//! stepped in its slot. So the state of a CPU is touched by that CPU alone, and a task cannot be moved to another
//! CPU in the middle of a hit. The fields are atomic because statics are shared in the eyes of the language;
//! no ordering is needed.
//!
//! | `busy` | `stepping` | `told` | |
//! |---|---|---|---|
//! | 0 | – | – | no hit is being handled |
//! | handling | – | – | handlers are running |
//! | handling, stepping | P | P | P has been hit, and its instruction is being stepped in its slot |
//! | handling, stepping | Q | none | handlers are running and have hit Q, whose instruction is being stepped |

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use super::counters::{Counts, STRIDE};
use super::point::Point;
use crate::exception::TrapFrame;
use crate::platform;

/// What the engine keeps for one CPU. `trampoline/hit.S` knows some of it.
///
/// The states of two CPUs are as far apart as their counts of a probe, so that all that belongs to a CPU is found from one
/// address. It is that of the state, which the kernel keeps where a hit finds it: see
/// [`Platform::CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET).
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Cpu {
    /// What it is doing. The assembly stores the address of a point there while a handler runs.
    busy: AtomicU64,
    /// Its number: dense from 0. It is stored when somebody asks for the state.
    number: AtomicUsize,
    /// The point whose instruction is being stepped.
    stepping: AtomicPtr<Point>,
    /// The virtual address of its slot.
    slot: AtomicUsize,
    /// The point whose post-handlers are then called. Null if no handler is.
    told: AtomicPtr<Point>,
    /// PSTATE.DAIF of the probed code, while all of it is masked for the slot.
    interrupt_masks: AtomicU64,
    /// Counts hits that are no probe's.
    nobody: Counts,
}

/// In `busy`: an instruction is being stepped.
const STEPPING: u64 = 1;
/// In `busy`: handlers are running, or will after the instruction in the slot. Any other bit says so too.
const HANDLING: u64 = 2;

/// The states of `N` CPUs, in the order of their numbers. `platform!` makes one of as many as the platform says.
#[derive(Debug)]
#[repr(transparent)]
pub struct CpuStates<const N: usize>([Cpu; N]);

impl<const N: usize> CpuStates<N> {
    /// Those of CPUs that do nothing yet.
    #[doc(hidden)]
    #[must_use]
    pub const fn new() -> Self {
        Self([const { Cpu::new() }; N])
    }
}

impl<const N: usize> Default for CpuStates<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_os = "none")]
unsafe extern "Rust" {
    /// In the same image, with at least as many states as there are CPUs.
    static kprobes_platform_states: CpuStates<0>;
}
#[cfg(not(target_os = "none"))]
#[expect(non_upper_case_globals, reason = "it stands for the one above")]
static kprobes_platform_states: CpuStates<{ platform::HOST_CPUS }> = CpuStates::new();

const _: () = {
    assert!(size_of::<Cpu>() == STRIDE && offset_of!(Cpu, busy) == 0 && Cpu::NUMBER == 8);
    assert!(offset_of!(Cpu, slot) == Cpu::STEP + 8 && offset_of!(Cpu, told) == Cpu::STEP + 16);
    assert!(offset_of!(Cpu, interrupt_masks) == Cpu::STEP + 24);
};

impl Cpu {
    // For the assembly: the offsets of the state of a step and of the sink of counts, and `busy` during a step that is followed by
    // post-handlers.
    pub(super) const STEP: usize = offset_of!(Self, stepping);
    pub(in crate::probe) const NUMBER: usize = offset_of!(Self, number);
    pub(super) const NOBODY: usize = offset_of!(Self, nobody);
    #[cfg(target_os = "none")]
    pub(super) const STEPPING: u64 = STEPPING | HANDLING;

    const fn new() -> Self {
        Self {
            busy: AtomicU64::new(0),
            number: AtomicUsize::new(0),
            stepping: AtomicPtr::new(ptr::null_mut()),
            slot: AtomicUsize::new(0),
            told: AtomicPtr::new(ptr::null_mut()),
            interrupt_masks: AtomicU64::new(0),
            nobody: Counts::new(),
        }
    }

    /// The state of this CPU. To be called in the hit path.
    #[inline]
    pub(crate) fn current() -> &'static Self {
        platform::cpu()
    }

    /// The state of CPU 0, behind which those of the others are.
    #[inline]
    pub(crate) fn first() -> *const Self {
        (&raw const kprobes_platform_states).cast()
    }

    /// What the engine keeps for the CPU with the number `number`, dense from 0 and below what
    /// [`Platform::cpus`](crate::platform::Platform::cpus) says; that of CPU 0 for any other.
    #[inline]
    #[must_use]
    pub fn of(number: usize) -> &'static Self {
        let number = if number < platform::cpus() { number } else { 0 };
        // SAFETY: there are as many of these as `cpus` says at the most, by the contract of `Platform`, and they are never written
        // to but by their atomic fields.
        let state = unsafe { &*Self::first().add(number) };
        state.number.store(number, Relaxed);
        state
    }

    /// The number of the CPU.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.number.load(Relaxed)
    }

    /// Whether a hit is being handled, so that another must not call handlers.
    #[inline]
    pub(crate) fn is_handling(&self) -> bool {
        self.busy.load(Relaxed) > STEPPING
    }

    /// Handlers are about to run.
    #[inline]
    pub(super) fn enter(&self) {
        self.busy.store(HANDLING, Relaxed);
    }

    /// The hit is over.
    #[inline]
    pub(crate) fn leave(&self) {
        self.busy.store(0, Relaxed);
    }

    /// No handler is to run on this CPU any more, whatever it was doing.
    pub(super) fn abandon(&self) {
        self.busy.store(HANDLING, Relaxed);
    }

    /// Directs `frame` to the copy of the instruction of `point` at `slot`, with all interrupts masked. If it `is_told`, its
    /// post-handlers are to be called when it has been executed.
    #[inline]
    pub(super) fn begin_step(&self, point: &Point, slot: usize, is_told: bool, frame: &mut TrapFrame) {
        let pointer = ptr::from_ref(point).cast_mut();
        self.stepping.store(pointer, Relaxed);
        self.slot.store(slot, Relaxed);
        self.told.store(if is_told { pointer } else { ptr::null_mut() }, Relaxed);
        self.interrupt_masks.store(frame.pstate & TrapFrame::DAIF, Relaxed);
        self.busy.store(self.busy.load(Relaxed) | STEPPING, Relaxed);
        frame.pstate |= TrapFrame::DAIF;
        frame.pc = slot as u64;
    }

    /// The point whose instruction is being stepped on this CPU, and the virtual address of the slot.
    ///
    /// # Safety
    ///
    /// The caller is in the hit path, and uses the result only there.
    #[inline]
    pub(super) unsafe fn stepping<'a>(&self) -> Option<(&'a Point, u64)> {
        if self.busy.load(Relaxed) & STEPPING == 0 {
            return None;
        }
        // SAFETY: points are freed only after every CPU has been held with interrupts unmasked, and this one has had
        // them masked since `begin_step` stored the pointer.
        let point = unsafe { self.stepping.load(Relaxed).as_ref() }?;
        Some((point, self.slot.load(Relaxed) as u64))
    }

    /// The instruction has left the slot, or has faulted there: gives `frame` its interrupt masks back. Returns the point, if
    /// it is told.
    ///
    /// # Safety
    ///
    /// The caller is in the hit path, and uses the result only there.
    #[inline]
    pub(super) unsafe fn end_step<'a>(&self, frame: &mut TrapFrame) -> Option<&'a Point> {
        self.busy.store(self.busy.load(Relaxed) & !STEPPING, Relaxed);
        frame.pstate = frame.pstate & !TrapFrame::DAIF | self.interrupt_masks.load(Relaxed);
        // SAFETY: as in `stepping`.
        unsafe { self.told.load(Relaxed).as_ref() }
    }
}
