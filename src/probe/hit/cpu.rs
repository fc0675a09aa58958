//! The state that each CPU keeps between the two breakpoints of a hit, and while handlers run.
//!
//! The hit path runs with interrupts masked from its first instruction to its last, and so does an instruction that is
//! stepped in its slot. So only the CPU itself uses its state, except for its affinity, which any CPU compares, and the
//! counts and spare instances of probes at the end; and a task cannot migrate to another CPU in the middle of a hit.
//! The fields are atomic because the language considers statics shared; no ordering is needed.
//!
//! | `busy` | `stepping` | `post_point` | |
//! |---|---|---|---|
//! | 0 | – | – | no hit is being handled |
//! | handling | – | – | handlers are running |
//! | handling, stepping | P | P | P was hit, and its instruction is being stepped in its slot; post-handlers follow |
//! | handling, stepping | Q | null | a handler has hit Q, whose instruction is being stepped in its slot |

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use super::counters::{Counts, STRIDE};
use super::point::Point;
#[cfg(feature = "watchpoints")]
use super::watch::WatchpointState;
use crate::exception::frame::TrapFrame;
use crate::kernel;

/// The engine's state of one CPU. `trampoline/hit.S` knows a part of it.
///
/// The states of two CPUs are as far apart as the counts of one probe on the two CPUs. So all data of a CPU is found
/// from one address, that of its state, which the kernel keeps where a hit finds it: see
/// [`Platform::CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET).
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Cpu {
    /// What the CPU is doing. While a handler runs, the assembly stores the address of a point here.
    busy: AtomicU64,
    /// The point whose instruction is being stepped.
    stepping: AtomicPtr<Point>,
    /// The virtual address of the end of its slot: of the breakpoint after the instruction.
    slot_end: AtomicUsize,
    /// The point whose post-handlers are called after the step; null if none is called.
    post_point: AtomicPtr<Point>,
    /// PSTATE.DAIF of the probed code, while all interrupts are masked for the step.
    interrupt_masks: AtomicU64,
    /// The CPU that has this state: the affinity fields of its MPIDR_EL1, with [`CLAIMED`]; 0 if no CPU was checked
    /// yet.
    affinity: AtomicU64,
    /// Sink for hits that belong to no probe.
    sink: Counts,
    /// Zero: no spare instance.
    no_spare: Counts,
    /// What the CPU knows of its watchpoints.
    #[cfg(feature = "watchpoints")]
    pub(in crate::probe) watchpoints: WatchpointState,
    /// The counts and spares of the first probes, in the rest of the memory of the state.
    counts: [Counts; Cpu::COUNTS],
}

/// Bytes of the state in front of `counts`: six words, the sink, the absent spare, and what the CPU knows of its
/// watchpoints.
const END: usize = {
    #[cfg(feature = "watchpoints")]
    const WATCHPOINTS: usize = size_of::<WatchpointState>();
    #[cfg(not(feature = "watchpoints"))]
    const WATCHPOINTS: usize = 0;
    let words = (6 * size_of::<u64>()).next_multiple_of(align_of::<Counts>());
    (words + 2 * size_of::<Counts>() + WATCHPOINTS).next_multiple_of(align_of::<Counts>())
};

/// In `busy`: an instruction is being stepped.
const STEPPING: u64 = 1;
/// In `busy`: handlers are running, or will run after the instruction in the slot. Any other bit has the same meaning.
const HANDLING: u64 = 2;

/// The affinity fields of MPIDR_EL1 (Arm ARM, D24.2): Aff3, and Aff2 to Aff0.
const AFFINITY: u64 = 0xff << 32 | 0x00ff_ffff;
/// In `affinity`: a CPU has this state. It is the bit of MPIDR_EL1 that is always 1.
const CLAIMED: u64 = 1 << 31;

/// The states of `N` CPUs, in the order of their numbers. `platform!` makes one for the platform's number of CPUs.
#[derive(Debug)]
#[repr(transparent)]
pub struct CpuStates<const N: usize>([Cpu; N]);

impl<const N: usize> CpuStates<N> {
    /// Makes the states of CPUs that have not done anything yet.
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
    /// Defined by `platform!` in the same image, with at least as many states as there are CPUs.
    static kprobes_platform_states: CpuStates<0>;
}
#[cfg(not(target_os = "none"))]
#[expect(non_upper_case_globals, reason = "named like the symbol that `platform!` defines")]
static kprobes_platform_states: CpuStates<{ kernel::HOST_CPUS }> = CpuStates::new();

#[cfg(all(test, loom))]
kprobes_models::loom::thread_local! {
    /// The number of the CPU that a thread of a model is.
    pub(crate) static NUMBER: core::cell::Cell<usize> = core::cell::Cell::new(0);
}

const _: () = {
    assert!(size_of::<Cpu>() == STRIDE && offset_of!(Cpu, counts) == END && Cpu::COUNTS >= 3);
    assert!(offset_of!(Cpu, busy) == 0);
    assert!(offset_of!(Cpu, slot_end) == Cpu::STEP + 8 && offset_of!(Cpu, post_point) == Cpu::STEP + 16);
    assert!(offset_of!(Cpu, interrupt_masks) == Cpu::STEP + 24);
};

impl Cpu {
    // For the assembly: the offsets of the state of a step and of the sink of counts, and the value of `busy` during a
    // step after which post-handlers are called.
    pub(super) const STEP: usize = offset_of!(Self, stepping);
    pub(super) const SINK: usize = offset_of!(Self, sink);
    pub(super) const NO_SPARE: usize = offset_of!(Self, no_spare);
    /// The number of probes whose counts are a part of the state, and the offset of the first of them.
    pub(in crate::probe) const COUNTS: usize = (STRIDE - END) / size_of::<Counts>();
    pub(super) const COUNTS_OFFSET: usize = offset_of!(Self, counts);
    #[cfg(target_os = "none")]
    pub(super) const STEPPING: u64 = STEPPING | HANDLING;

    const fn new() -> Self {
        Self {
            busy: AtomicU64::new(0),
            stepping: AtomicPtr::new(ptr::null_mut()),
            slot_end: AtomicUsize::new(0),
            post_point: AtomicPtr::new(ptr::null_mut()),
            interrupt_masks: AtomicU64::new(0),
            affinity: AtomicU64::new(0),
            sink: Counts::new(),
            no_spare: Counts::new(),
            #[cfg(feature = "watchpoints")]
            watchpoints: WatchpointState::new(),
            counts: [const { Counts::new() }; Self::COUNTS],
        }
    }

    /// Returns the state of this CPU. To be called in the hit path.
    #[cfg(target_os = "none")]
    #[inline(always)]
    pub(crate) fn current() -> &'static Self {
        let state: *const Self;
        // SAFETY: `Platform::CPU_OFFSET` guarantees that the address of the state is stored at that offset from
        // TPIDR_EL1.
        unsafe {
            core::arch::asm!(
                "mrs {0}, tpidr_el1",
                "ldr {0}, [{0}, #:lo12:kprobes_cpu_offset]",
                out(reg) state,
                options(readonly, nostack, preserves_flags)
            );
        }
        // SAFETY: `Platform::CPU_OFFSET` guarantees that it is the address of this CPU's state, which is in a static.
        unsafe { &*state }
    }

    /// Returns the state of this CPU. The tests on the host have one CPU; in models, each thread is a CPU.
    #[cfg(not(target_os = "none"))]
    pub(crate) fn current() -> &'static Self {
        #[cfg(all(test, loom))]
        return Self::of(NUMBER.with(core::cell::Cell::get));
        #[cfg(not(all(test, loom)))]
        Self::of(0)
    }

    /// Returns the state of CPU 0. The states of the other CPUs follow it.
    #[inline]
    pub(crate) fn first() -> *const Self {
        (&raw const kprobes_platform_states).cast()
    }

    /// Returns the engine's state of the CPU with the number `number`, dense from 0 and below
    /// [`Platform::cpus`](crate::platform::Platform::cpus); the state of CPU 0 for any other number. No two CPUs ever
    /// have the same number: [`embedding::check`](crate::embedding::check) refuses the second one.
    #[inline]
    #[must_use]
    pub fn of(number: usize) -> &'static Self {
        let number = if number < kernel::cpus() { number } else { 0 };
        // SAFETY: `platform!` makes at least as many states as `cpus` may return, by the contract of `Platform`, and
        // only their atomic fields are ever written.
        unsafe { &*Self::first().add(number) }
    }

    /// Records that the CPU whose MPIDR_EL1 is `mpidr` has this state, forever.
    ///
    /// # Errors
    ///
    /// The affinity fields of MPIDR_EL1 of another CPU that has it, and of this CPU.
    #[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "used by `embedding`"))]
    #[inline(always)] // It is not part of the closed region that this module is in.
    pub(crate) fn claim(&self, mpidr: u64) -> Result<(), [u64; 2]> {
        let this = mpidr & AFFINITY | CLAIMED;
        match self.affinity.compare_exchange(0, this, Relaxed, Relaxed) {
            Err(other) if other != this => Err([other, this].map(|mpidr| mpidr & AFFINITY)),
            _ => Ok(()),
        }
    }

    /// Returns whether a hit is being handled, so that another hit must not call handlers.
    #[inline]
    pub(crate) fn is_handling(&self) -> bool {
        self.busy.load(Relaxed) > STEPPING
    }

    /// Records that handlers are about to run.
    #[inline]
    pub(super) fn enter(&self) {
        self.busy.store(HANDLING, Relaxed);
    }

    /// Records that the hit is over.
    #[inline]
    pub(crate) fn leave(&self) {
        self.busy.store(0, Relaxed);
    }

    /// Prevents any handler from running on this CPU from now on, whatever the CPU was doing.
    pub(super) fn abandon(&self) {
        self.busy.store(HANDLING, Relaxed);
    }

    /// Directs `frame` to the copy of the instruction of `point` at `slot`, with all interrupts masked. If
    /// `has_post_handlers`, the post-handlers are called after the step.
    #[inline]
    pub(super) fn begin_step(&self, point: &Point, slot: usize, has_post_handlers: bool, frame: &mut TrapFrame) {
        let pointer = ptr::from_ref(point).cast_mut();
        self.stepping.store(pointer, Relaxed);
        self.slot_end.store(slot + 4, Relaxed);
        self.post_point.store(if has_post_handlers { pointer } else { ptr::null_mut() }, Relaxed);
        self.interrupt_masks.store(frame.pstate & TrapFrame::DAIF, Relaxed);
        self.busy.store(self.busy.load(Relaxed) | STEPPING, Relaxed);
        frame.pstate |= TrapFrame::DAIF;
        frame.pc = slot as u64;
    }

    /// Returns the point whose instruction is being stepped on this CPU, and the virtual address of the end of the
    /// slot, which is 4 bytes after the copy of the instruction.
    ///
    /// # Safety
    ///
    /// The caller is in the hit path, and uses the result only there.
    #[inline]
    pub(super) unsafe fn stepping<'a>(&self) -> Option<(&'a Point, u64)> {
        if self.busy.load(Relaxed) & STEPPING == 0 {
            return None;
        }
        // SAFETY: points are freed only after every CPU has been held with interrupts unmasked, and this CPU has had
        // them masked since `begin_step` stored the pointer.
        let point = unsafe { self.stepping.load(Relaxed).as_ref() }?;
        Some((point, self.slot_end.load(Relaxed) as u64))
    }

    /// Ends the step, because the instruction has left the slot, or has faulted there: restores the interrupt masks in
    /// `frame`. Returns the point whose post-handlers are to be called, if any.
    ///
    /// # Safety
    ///
    /// The caller is in the hit path, and uses the result only there.
    #[inline]
    pub(super) unsafe fn end_step<'a>(&self, frame: &mut TrapFrame) -> Option<&'a Point> {
        self.busy.store(self.busy.load(Relaxed) & !STEPPING, Relaxed);
        frame.pstate = frame.pstate & !TrapFrame::DAIF | self.interrupt_masks.load(Relaxed);
        // SAFETY: as in `stepping`, this CPU has had interrupts masked since `begin_step` stored the pointer.
        unsafe { self.post_point.load(Relaxed).as_ref() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Two CPUs would count, step and call handlers in one state.
    #[test]
    fn a_state_belongs_to_the_first_cpu_that_claims_it() {
        // With MPIDR_EL1.U, and RES1.
        const ALONE: u64 = 0b11 << 30;
        let [first, second] = [Cpu::new(), Cpu::new()];
        assert_eq!([first.claim(ALONE), first.claim(1 << 31)], [Ok(()); 2]);
        assert_eq!(first.claim(1 << 31 | 0x100), Err([0, 0x100]));
        assert_eq!(second.claim(1 << 31 | 1 << 32 | 1 << 24 | 0x3), Ok(()));
        assert_eq!(second.claim(1 << 31 | 0x3), Err([1 << 32 | 0x3, 0x3]));
    }
}
