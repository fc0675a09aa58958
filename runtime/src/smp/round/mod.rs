//! What the CPUs of a rendezvous tell each other, apart from the machine that they do it on.
//!
//! All of it runs while CPUs are held, and is inlined into functions that refuse probes.

use core::sync::atomic::Ordering;

use crate::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence, spin_loop};

/// Sets of CPUs, one bit for each by its dense number.
pub(super) type Set = usize;

/// The dense numbers of the CPUs of a [`Set`] that have not been looked at, in order.
pub(super) struct Members(Set);

impl Members {
    #[inline(always)]
    pub(super) fn of(set: Set) -> Self {
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

/// The round that is held, and what each of the CPUs says of itself.
pub(super) struct Round<const CPUS: usize> {
    /// The number of the round that CPUs are held for; 0 between rounds.
    current: AtomicU64,
    /// Who is to come to the round: a [`Set`]. The initiator's own.
    others: AtomicUsize,
    /// By dense number. Not [`PerCpu`](crate::per_cpu::PerCpu), whose access may panic.
    answers: [Answer; CPUS],
}

/// What a CPU says of itself, in a cache line of its own.
#[repr(align(64))]
struct Answer {
    /// The round that it is, or was last, held for.
    round: AtomicU64,
    /// What was interrupted for that round.
    pc: AtomicUsize,
    is_asleep: AtomicBool,
    /// How many interrupts to come to a rendezvous it has taken.
    taken: AtomicU64,
    /// How many it had taken when the last round that it was to come to began. The initiator's own.
    taken_before: AtomicU64,
}

impl<const CPUS: usize> Round<CPUS> {
    /// No round has been held.
    #[cfg(not(all(test, loom)))]
    pub(super) const fn new() -> Self {
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

    /// Begins the round with the number `round`, which is not 0 and has not been, for the CPUs `others`, which are then to be
    /// interrupted.
    #[inline(always)]
    pub(super) fn begin(&self, round: u64, others: Set) {
        self.others.store(others, Ordering::Relaxed);
        for answer in self.answers_of(others) {
            answer.taken_before.store(answer.taken.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // Who takes the interrupt sees it: the interrupt is sent after the stores before it.
        self.current.store(round, Ordering::Relaxed);
    }

    /// What the CPUs of a set say of themselves.
    #[inline(always)]
    fn answers_of(&self, set: Set) -> impl Iterator<Item = &Answer> {
        Members::of(set).filter_map(|cpu| self.answers.get(cpu))
    }

    /// Waits until the others are there for the round `round`, at most until it `is_late`, calls `action` if they are, and
    /// ends the round. Returns those that are missing. Those that are [`asleep`](Self::is_asleep) are then to be interrupted.
    #[inline(always)]
    pub(super) fn gather(&self, round: u64, is_late: impl Fn() -> bool, action: &mut dyn FnMut()) -> Set {
        let mut missing = self.others.load(Ordering::Relaxed);
        loop {
            for cpu in Members::of(missing) {
                // What it has stored before, the pc, is seen after this.
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
        // What the action has done is seen by those who see this.
        self.current.store(0, Ordering::Release);
        // The end of the round is stored before it is looked who is asleep, see `answer`.
        fence(Ordering::SeqCst);
        missing
    }

    /// Whether the CPU with the dense number `cpu` may not have seen the end of the round, as it sleeps.
    #[inline(always)]
    pub(super) fn is_asleep(&self, cpu: usize) -> bool {
        self.answers.get(cpu).is_some_and(|answer| answer.is_asleep.load(Ordering::Relaxed))
    }

    /// The other side: the CPU with the dense number `cpu` has taken the interrupt, from the code at `pc`. Waits for the end
    /// of the round, by calls of `sleep`, which returns when there is an interrupt, as soon as it `may_sleep`.
    #[inline(always)]
    pub(super) fn answer(&self, cpu: usize, pc: usize, may_sleep: impl Fn() -> bool, sleep: impl Fn()) {
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
                // The round is looked at once more after this: its end may not have seen it.
                fence(Ordering::SeqCst);
            }
        }
        answer.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Calls `each` with the pc of every CPU that is held. Only within the action of [`gather`](Self::gather).
    #[inline(always)]
    pub(super) fn interrupted(&self, each: &mut dyn FnMut(usize)) {
        for answer in self.answers_of(self.others.load(Ordering::Relaxed)) {
            each(answer.pc.load(Ordering::Relaxed));
        }
    }

    /// Whether the CPU with the dense number `cpu` has taken an interrupt to come to a rendezvous since the last round that
    /// it was to come to began.
    pub(super) fn has_taken(&self, cpu: usize) -> bool {
        self.answers
            .get(cpu)
            .is_some_and(|answer| answer.taken.load(Ordering::Relaxed) != answer.taken_before.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, loom))]
mod models;
