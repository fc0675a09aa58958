//! What each CPU remembers between the two breakpoints of a hit, and while handlers run.
//!
//! The hit path runs with interrupts masked from its first instruction to its last, and so does an instruction that is
//! stepped in its slot. So the state of a CPU is touched by that CPU alone, and a task cannot be moved to another
//! CPU in the middle of a hit. The fields are atomic because statics are shared in the eyes of the language;
//! no ordering is needed.
//!
//! | `handling` | `stepping` | `plan` | |
//! |---|---|---|---|
//! | no | – | – | no hit is being handled |
//! | yes | – | – | handlers are running |
//! | yes | P | of P | P has been hit, and its instruction is being stepped in its slot |
//! | yes | Q | none | handlers are running and have hit Q, whose instruction is being stepped |

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

use super::point::{Plan, Point};
use crate::exception::TrapFrame;
use crate::platform::{self, MAX_CPUS};

/// The state of one CPU; a cache line of its own.
#[repr(align(64))]
pub(crate) struct Cpu {
    number: usize,
    /// Handlers are running, or may run after the instruction in the slot.
    handling: AtomicBool,
    /// The point whose instruction is being stepped.
    stepping: AtomicPtr<Point>,
    /// The virtual address of its slot.
    slot: AtomicUsize,
    /// The plan whose post-handlers are then called. Null where nobody is.
    plan: AtomicPtr<Plan>,
    /// PSTATE.DAIF of the probed code, while all of it is masked for the slot.
    interrupt_masks: AtomicU64,
}

static CPUS: [Cpu; MAX_CPUS] = {
    let mut cpus = [const { Cpu::new(0) }; MAX_CPUS];
    let mut number = 1;
    while number < MAX_CPUS {
        cpus[number] = Cpu::new(number);
        number += 1;
    }
    cpus
};

impl Cpu {
    const fn new(number: usize) -> Self {
        Self {
            number,
            handling: AtomicBool::new(false),
            stepping: AtomicPtr::new(ptr::null_mut()),
            slot: AtomicUsize::new(0),
            plan: AtomicPtr::new(ptr::null_mut()),
            interrupt_masks: AtomicU64::new(0),
        }
    }

    /// The state of this CPU. To be called in the hit path.
    #[inline]
    pub(crate) fn current() -> &'static Self {
        Self::of(platform::cpu())
    }

    /// The state of the CPU with this dense number.
    #[inline]
    pub(super) fn of(number: usize) -> &'static Self {
        &CPUS[number & (MAX_CPUS - 1)]
    }

    /// The dense number of the CPU.
    #[inline]
    pub(super) fn number(&self) -> usize {
        self.number
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
    /// The probes of `plan` are to be told when it has been executed.
    #[inline]
    pub(super) fn begin_step(&self, point: &Point, slot: usize, plan: Option<&Plan>, frame: &mut TrapFrame) {
        self.stepping.store(ptr::from_ref(point).cast_mut(), Relaxed);
        self.slot.store(slot, Relaxed);
        self.plan.store(plan.map_or(ptr::null_mut(), |plan| ptr::from_ref(plan).cast_mut()), Relaxed);
        self.interrupt_masks.store(frame.pstate & TrapFrame::DAIF, Relaxed);
        frame.pstate |= TrapFrame::DAIF;
        frame.pc = slot as u64;
    }

    /// The point whose instruction is being stepped on this CPU, and the virtual address of the slot.
    #[inline]
    pub(super) fn stepping(&self) -> Option<(&'static Point, u64)> {
        // SAFETY: points are freed only after every CPU has been held with interrupts unmasked, and this one has had
        // them masked since `begin_step` stored the pointer.
        let point = unsafe { self.stepping.load(Relaxed).as_ref() }?;
        Some((point, self.slot.load(Relaxed) as u64))
    }

    /// The instruction has left the slot, or has faulted there: gives `frame` its interrupt masks back.
    /// Returns the plan that `begin_step` was given.
    #[inline]
    pub(super) fn end_step(&self, frame: &mut TrapFrame) -> Option<&'static Plan> {
        self.stepping.store(ptr::null_mut(), Relaxed);
        frame.pstate = frame.pstate & !TrapFrame::DAIF | self.interrupt_masks.load(Relaxed);
        // SAFETY: plans are freed under the same condition as points, see `stepping`.
        unsafe { self.plan.load(Relaxed).as_ref() }
    }
}
