//! The protocol of a rendezvous, in which one CPU holds all others while it does something that they must not see half
//! done.
//!
//! Code that runs while CPUs are held is inlined into functions that refuse probes.

#[cfg(all(test, loom))]
mod models;

use core::sync::atomic::Ordering;

use crate::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence, spin_loop};

/// A set of CPUs: a bit for each, by dense number.
pub type Set = usize;

/// An iterator over the dense numbers in a [`Set`], in ascending order.
pub struct Members(Set);

impl Members {
    /// Iterates over the members of `set`.
    #[inline(always)]
    #[must_use]
    pub fn of(set: Set) -> Self {
        Self(set)
    }
}

impl Iterator for Members {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let next = (self.0 != 0).then_some(self.0.trailing_zeros() as usize);
        self.0 &= self.0.wrapping_sub(1);
        next
    }
}

/// The state of the current round, and of each CPU in it.
pub struct Round<const CPUS: usize> {
    /// The number of the round that CPUs are held for; 0 between rounds.
    current: AtomicU64,
    /// The CPUs that are to come to the round. Only the initiator accesses it.
    others: AtomicUsize,
    /// The states of the CPUs by dense number.
    answers: [Answer; CPUS],
}

/// The state that a CPU publishes, in its own cache line.
#[repr(align(64))]
struct Answer {
    /// The round that the CPU is held for, or was held for last.
    round: AtomicU64,
    /// The pc that was interrupted for that round.
    pc: AtomicUsize,
    is_asleep: AtomicBool,
    /// The number of rendezvous interrupts that the CPU has taken.
    taken: AtomicU64,
    /// The value of `taken` at the start of the last round that the CPU was to come to. Only the initiator accesses it.
    taken_before: AtomicU64,
}

#[cfg(not(all(test, loom)))]
impl<const CPUS: usize> Default for Round<CPUS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const CPUS: usize> Round<CPUS> {
    /// Creates the state before the first round.
    #[cfg(not(all(test, loom)))]
    #[must_use]
    pub const fn new() -> Self {
        const fn answer() -> Answer {
            Answer {
                round: AtomicU64::new(0),
                pc: AtomicUsize::new(0),
                is_asleep: AtomicBool::new(false),
                taken: AtomicU64::new(0),
                taken_before: AtomicU64::new(0),
            }
        }
        Self { current: AtomicU64::new(0), others: AtomicUsize::new(0), answers: [const { answer() }; CPUS] }
    }

    /// Begins the round with the number `round` for the CPUs `others`. The number is neither 0 nor used before. The
    /// caller interrupts the CPUs afterwards.
    #[inline(always)]
    pub fn begin(&self, round: u64, others: Set) {
        self.others.store(others, Ordering::Relaxed);
        for cpu in Members::of(others) {
            if let Some(answer) = self.answers.get(cpu) {
                answer.taken_before.store(answer.taken.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        // A CPU that takes the interrupt sees this store, because the interrupt is sent after it.
        self.current.store(round, Ordering::Relaxed);
    }

    /// Waits for the other CPUs in the round `round`, at most until `is_late` returns true. Calls `action` if all have
    /// come, and ends the round. Returns the missing CPUs. The caller then interrupts the CPUs that are
    /// [`asleep`](Self::is_asleep).
    #[inline(always)]
    #[must_use]
    pub fn gather(&self, round: u64, is_late: impl Fn() -> bool, action: &mut dyn FnMut()) -> Set {
        let mut missing = self.others.load(Ordering::Relaxed);
        loop {
            for cpu in Members::of(missing) {
                // Acquire: after this, the pc that the CPU stored before is visible.
                if self.answers.get(cpu).is_some_and(|answer| answer.round.load(Ordering::Acquire) == round) {
                    missing &= !(1 << cpu);
                }
            }
            if missing == 0 {
                action();
                break;
            }
            if is_late() {
                break;
            }
            spin_loop();
        }
        // Release: a CPU that sees the end of the round also sees the effects of the action.
        self.current.store(0, Ordering::Release);
        // The end of the round is stored before the sleeping CPUs are read: see `answer`.
        fence(Ordering::SeqCst);
        missing
    }

    /// Returns whether the CPU with the dense number `cpu` may sleep and not have seen the end of the round.
    #[inline(always)]
    #[must_use]
    pub fn is_asleep(&self, cpu: usize) -> bool {
        self.answers.get(cpu).is_some_and(|answer| answer.is_asleep.load(Ordering::Relaxed))
    }

    /// Takes part in a round. The CPU with the dense number `cpu` has taken the interrupt in the code at `pc`. Waits
    /// for the end of the round. Once `may_sleep` returns true, it waits by calls of `sleep`, which returns when there
    /// is an interrupt.
    #[inline(always)]
    pub fn answer(&self, cpu: usize, pc: usize, may_sleep: impl Fn() -> bool, sleep: impl Fn()) {
        let Some(answer) = self.answers.get(cpu) else { return };
        answer.taken.fetch_add(1, Ordering::Relaxed);
        let round = self.current.load(Ordering::Relaxed);
        if round == 0 {
            return;
        }
        answer.pc.store(pc, Ordering::Relaxed);
        answer.round.store(round, Ordering::Release);
        while self.current.load(Ordering::Acquire) == round {
            if !may_sleep() {
                spin_loop();
            } else if answer.is_asleep.load(Ordering::Relaxed) {
                sleep();
            } else {
                answer.is_asleep.store(true, Ordering::Relaxed);
                // The loop reads the round once more after this: the end of the round may have missed `is_asleep`.
                fence(Ordering::SeqCst);
            }
        }
        answer.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Calls `each` with the pc of every held CPU. Call it only within the action of [`gather`](Self::gather).
    #[inline(always)]
    pub fn interrupted(&self, each: &mut dyn FnMut(usize)) {
        // The adapters of iterators are functions of `core`: outside of the closed region, unless they are inlined.
        for cpu in Members::of(self.others.load(Ordering::Relaxed)) {
            if let Some(answer) = self.answers.get(cpu) {
                each(answer.pc.load(Ordering::Relaxed));
            }
        }
    }

    /// Returns whether the CPU with the dense number `cpu` has taken a rendezvous interrupt since the start of the last
    /// round that it was to come to.
    #[must_use]
    pub fn has_taken(&self, cpu: usize) -> bool {
        self.answers
            .get(cpu)
            .is_some_and(|answer| answer.taken.load(Ordering::Relaxed) != answer.taken_before.load(Ordering::Relaxed))
    }
}
