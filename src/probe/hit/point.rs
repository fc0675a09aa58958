//! A probe point: one instruction that is probed, and the probes that watch it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::counters::Counters;
use super::cpu::Cpu;
use super::returns::ReturnProbe;
use super::{PostHandler, PreHandler};
use crate::insn::Op;
use crate::probe::Mode;

/// How the probed instruction is executed. Addresses are virtual.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Execution {
    /// On the trap frame, within the exception.
    Simulated(Op),
    /// From a copy at `slot`, with a `brk #0x6` behind it.
    Stepped { slot: usize },
    /// From a copy at `slot`, with a branch to the next instruction behind it.
    Boosted { slot: usize },
}

/// One instruction that is probed.
///
/// The hit path finds it by address, without a lock. It is freed only after every CPU has been held outside the hit path
/// since its breakpoint was taken away.
#[derive(Debug)]
pub(crate) struct Point {
    /// The virtual address of the instruction.
    pub(crate) address: usize,
    /// Whether branch targets are checked in its page.
    pub(crate) guarded: bool,
    /// What a hit does; replaced as a whole, never changed in place. Not null while the breakpoint is in place.
    plan: AtomicPtr<Plan>,
}

/// What a hit of a point does.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) execution: Execution,
    /// The enabled probes, in the order in which they run.
    pub(crate) probes: Box<[Arc<Probe>]>,
}

/// A registered probe, as the hit path sees it.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) kind: Kind,
    /// The word that its handlers are given.
    pub(crate) data: usize,
    /// It is armed, or about to be. For the registry: the plan of a point has only those that are.
    pub(crate) enabled: AtomicBool,
    /// The fastest mode that it allows. For the registry.
    pub(crate) fastest: Mode,
    pub(crate) counters: Counters,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Kprobe {
        pre: Option<PreHandler>,
        post: Option<PostHandler>,
    },
    /// Boxed, as it is many times as large, and most probes are of the other kind.
    Return(Box<ReturnProbe>),
}

impl Point {
    pub(crate) fn new(address: usize, guarded: bool) -> Self {
        Self { address, guarded, plan: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// What a hit does. To be called, and the result used, only in the hit path.
    #[inline]
    pub(super) fn plan(&self) -> Option<&'static Plan> {
        // SAFETY: a plan that has been published is freed only after every CPU has been held outside the hit path since
        // it was replaced, and the caller is inside it.
        unsafe { self.plan.load(Ordering::Acquire).as_ref() }
    }

    /// Makes `plan` what a hit does from now on, and returns what it was, which hits that have begun still use.
    pub(crate) fn publish(&self, plan: *mut Plan) -> *mut Plan {
        self.plan.swap(plan, Ordering::AcqRel)
    }
}

impl Plan {
    /// Counts a hit that none of the probes has been told of.
    pub(super) fn miss(&self, cpu: &Cpu) {
        for probe in &self.probes {
            probe.counters.miss(cpu);
        }
    }
}

impl Execution {
    /// The virtual address of the copy of the instruction, if it is executed from one.
    #[inline]
    pub(crate) fn slot(&self) -> Option<usize> {
        match *self {
            Self::Stepped { slot } | Self::Boosted { slot } => Some(slot),
            Self::Simulated(_) => None,
        }
    }
}

impl Probe {
    /// How many calls of a return-probed function are being followed.
    pub(crate) fn active(&self) -> u32 {
        match &self.kind {
            Kind::Return(return_probe) => return_probe.pool.taken(),
            Kind::Kprobe { .. } => 0,
        }
    }
}
