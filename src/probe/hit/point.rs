//! A probe point: one instruction that a breakpoint has replaced, and the probes that watch it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::returns::ReturnProbe;
use super::{PostHandler, PreHandler};
use crate::insn::Op;

/// How the replaced instruction is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Execution {
    /// On the trap frame, within the exception.
    Simulated(Op),
    /// From a copy at this virtual address, with a `brk #0x6` behind it.
    Stepped { slot: usize },
}

/// One instruction that is probed.
///
/// The hit path finds it by address, without a lock; it is freed only after every CPU has been seen outside
/// the hit path since it was taken out of the table.
#[derive(Debug)]
pub(crate) struct Point {
    /// The virtual address of the instruction.
    pub(crate) address: usize,
    /// The instruction.
    pub(crate) word: u32,
    pub(crate) execution: Execution,
    /// Whether branch targets are checked in its page.
    pub(crate) guarded: bool,
    /// The enabled probes; replaced as a whole, never changed in place.
    probes: AtomicPtr<ProbeList>,
}

/// The enabled probes of a point, in the order in which they run.
pub(crate) type ProbeList = Vec<Arc<Probe>>;

/// A registered probe, as the hit path sees it.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) kind: Kind,
    /// The word that its handlers are given.
    pub(crate) data: usize,
    /// It is armed, or about to be. For the registry: the list of a point has only those that are.
    pub(crate) enabled: AtomicBool,
    pub(crate) hits: AtomicU64,
    pub(crate) missed: AtomicU64,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Kprobe { pre: Option<PreHandler>, post: Option<PostHandler> },
    Return(ReturnProbe),
}

impl Point {
    pub(crate) fn new(address: usize, word: u32, execution: Execution, guarded: bool) -> Self {
        let probes = AtomicPtr::new(core::ptr::null_mut());
        Self { address, word, execution, guarded, probes }
    }

    /// The virtual address of the copy of the instruction, if it is executed from one.
    #[inline]
    pub(crate) fn slot(&self) -> Option<usize> {
        match self.execution {
            Execution::Stepped { slot } => Some(slot),
            Execution::Simulated(_) => None,
        }
    }

    /// The enabled probes, if there are any. To be called, and the result used, only in the hit path.
    #[inline]
    pub(super) fn probes(&self) -> Option<&'static ProbeList> {
        // SAFETY: a list that has been published is freed only after every CPU has been seen outside the hit
        // path since it was replaced, and the caller is inside it.
        unsafe { self.probes.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes `list` and returns the one it replaces, which is freed after quiescence.
    pub(crate) fn replace_probes(&self, list: ProbeList) -> Option<Retired> {
        let list = if list.is_empty() {
            core::ptr::null_mut()
        } else {
            alloc::boxed::Box::into_raw(alloc::boxed::Box::new(list))
        };
        Retired::new(self.probes.swap(list, Ordering::AcqRel))
    }

    /// Counts a hit that none of the probes here has been told of.
    pub(super) fn count_missed(&self) {
        for probe in self.probes().into_iter().flatten() {
            probe.count_missed();
        }
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        drop(Retired::new(*self.probes.get_mut()));
    }
}

/// A list that has been replaced. Dropping it frees it: only after quiescence.
#[derive(Debug)]
pub(crate) struct Retired(core::ptr::NonNull<ProbeList>);

impl Retired {
    fn new(list: *mut ProbeList) -> Option<Self> {
        core::ptr::NonNull::new(list).map(Self)
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: the pointer came out of `Box::into_raw` in `replace_probes`, and the swap there gave it to
        // this value alone.
        drop(unsafe { alloc::boxed::Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: it owns a list of `Arc<Probe>`, which may be dropped by any task.
unsafe impl Send for Retired {}

impl Probe {
    pub(crate) fn new(kind: Kind, data: usize, enabled: bool) -> Self {
        Self { kind, data, enabled: AtomicBool::new(enabled), hits: AtomicU64::new(0), missed: AtomicU64::new(0) }
    }

    /// How many calls of a return-probed function are being followed.
    pub(crate) fn active(&self) -> u32 {
        match &self.kind {
            Kind::Return(return_probe) => return_probe.pool.taken(),
            Kind::Kprobe { .. } => 0,
        }
    }

    #[inline]
    pub(super) fn count_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn count_missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }
}
