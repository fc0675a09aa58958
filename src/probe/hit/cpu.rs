//! What each CPU remembers between the two breakpoints of a hit, and while handlers run.
//!
//! The hit path runs with interrupts masked from its first instruction to its last, the instruction in the
//! slot included. So the state of a CPU is touched by that CPU alone, and a task cannot be moved to another
//! CPU in the middle of a hit. The fields are atomic because statics are shared in the eyes of the language;
//! no ordering is needed.
//!
//! | `handling` | `stepping` | `probes` | |
//! |---|---|---|---|
//! | no | – | – | no hit is being handled |
//! | yes | – | – | handlers are running |
//! | yes | P | of P | P has been hit, and its instruction is running in its slot |
//! | yes | Q | none | handlers are running and have hit Q, whose instruction is running in its slot |
//! | no | P | none | P was hit as its last probe was being disabled; its instruction is running in its slot |

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

use super::point::{Point, ProbeList};
use crate::exception::TrapFrame;
use crate::platform::{self, MAX_CPUS};

/// The state of one CPU; a cache line of its own.
#[repr(align(64))]
pub(crate) struct Cpu {
    /// Handlers are running, or may run after the instruction in the slot.
    handling: AtomicBool,
    /// The point whose instruction is in its slot.
    stepping: AtomicPtr<Point>,
    /// The probes whose post-handlers are then called: those whose pre-handlers were. Null where nobody is.
    probes: AtomicPtr<ProbeList>,
    /// PSTATE.DAIF of the probed code, while all of it is masked for the slot.
    interrupt_masks: AtomicU64,
}

static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        handling: AtomicBool::new(false),
        stepping: AtomicPtr::new(ptr::null_mut()),
        probes: AtomicPtr::new(ptr::null_mut()),
        interrupt_masks: AtomicU64::new(0),
    }
}; MAX_CPUS];

impl Cpu {
    /// The state of this CPU. To be called in the hit path.
    #[inline]
    pub(crate) fn current() -> &'static Self {
        &CPUS[platform::cpu() & (MAX_CPUS - 1)]
    }

    /// Whether a hit is being handled, so that another must not call handlers.
    #[inline]
    pub(crate) fn is_handling(&self) -> bool {
        self.handling.load(Relaxed)
    }

    /// Handlers are about to run.
    #[inline]
    pub(super) fn enter(&self) {
        self.handling.store(true, Relaxed);
    }

    /// The hit is over.
    #[inline]
    pub(crate) fn leave(&self) {
        self.handling.store(false, Relaxed);
    }

    /// No handler is to run on this CPU any more, whatever it was doing.
    pub(super) fn abandon(&self) {
        self.stepping.store(ptr::null_mut(), Relaxed);
        self.handling.store(true, Relaxed);
    }

    /// Directs `frame` to the copy of the instruction of `point` at `slot`, with all interrupts masked.
    /// `probes` are to be told when it has been executed.
    #[inline]
    pub(super) fn begin_step(&self, point: &Point, slot: usize, probes: Option<&ProbeList>, frame: &mut TrapFrame) {
        self.stepping.store(ptr::from_ref(point).cast_mut(), Relaxed);
        self.probes.store(probes.map_or(ptr::null_mut(), |list| ptr::from_ref(list).cast_mut()), Relaxed);
        self.interrupt_masks.store(frame.pstate & TrapFrame::DAIF, Relaxed);
        frame.pstate |= TrapFrame::DAIF;
        frame.pc = slot as u64;
    }

    /// The point whose instruction is in its slot on this CPU.
    #[inline]
    pub(super) fn stepping(&self) -> Option<&'static Point> {
        // SAFETY: points are freed only after every CPU has been seen with interrupts unmasked, and this one
        // has had them masked since `begin_step` stored the pointer.
        unsafe { self.stepping.load(Relaxed).as_ref() }
    }

    /// The instruction has left the slot, or has faulted there: gives `frame` its interrupt masks back.
    /// Returns the probes that `begin_step` was given.
    #[inline]
    pub(super) fn end_step(&self, frame: &mut TrapFrame) -> Option<&'static ProbeList> {
        self.stepping.store(ptr::null_mut(), Relaxed);
        frame.pstate = frame.pstate & !TrapFrame::DAIF | self.interrupt_masks.load(Relaxed);
        // SAFETY: lists are freed under the same condition as points, see `stepping`.
        unsafe { self.probes.load(Relaxed).as_ref() }
    }
}
