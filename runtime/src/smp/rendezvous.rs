//! The rendezvous: all CPUs but one are held while that one does what none of them may see half done.
//!
//! The initiator asks every other CPU by an interrupt. Who takes it leaves the pc that was interrupted, says that it is
//! there, and waits, with interrupts masked, until the round is over; then it executes an ISB, so that it fetches and
//! translates anew (Arm ARM, B2.4.4: a context synchronization event). When all are there the action is called.
//!
//! **What holds during the action.** An interrupt is taken only from code that has interrupts unmasked. So what a held CPU
//! was doing is described whole by one pc, and between that and the wait there are only calls: of the vectors, the
//! dispatcher and [`answer`]. No hit of a probe is under way on it, and no [`IrqLock`](crate::sync::IrqLock) is held by it.
//!
//! **Bounded time.** A CPU may have interrupts masked for long, and then the others must not wait for it with theirs
//! masked. A round gathers for [`PATIENCE_MIN`] at first. If a CPU is missing then, the others are let go, and the next
//! round begins only when the missing ones have taken their interrupt: until then no CPU is held, and the initiator
//! sleeps. Where CPUs come late though they take interrupts, as under an emulator that has fewer than it emulates, each
//! round has twice the patience of the last, up to [`PATIENCE_MAX`]. So no CPU has interrupts masked for longer at a time
//! than [`PATIENCE_MAX`] and what the action takes; and where all answer, no longer than the slowest answer and the action.
//!
//! **Who waits sleeps**, after a moment, by WFI: an emulated CPU leaves the host's to one that is awaited. A pending
//! interrupt ends WFI though it is masked (Arm ARM, D1.6), and the interrupt that asked is ended before the wait, or the
//! GIC would not signal another of its priority. Between the store that says "asleep" and the load of the round, and on
//! the other side between the store of the round and the load of "asleep", is a sequentially consistent fence: one side sees
//! what the other has stored.
//!
//! What runs while CPUs are held, here, lies with the code that refuses probes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use aarch64_cpu::asm::{self, barrier};

use super::RUNNING;
use super::round::{Members, Round, Set};
use crate::interrupt::{self, Ipi};
use crate::per_cpu::MAX_CPUS;
use crate::sync::IrqMask;
use crate::{machine, task, time, uart};

/// How long the first round gathers, and how long any round does.
const PATIENCE_MIN: Duration = Duration::from_millis(10);
const PATIENCE_MAX: Duration = Duration::from_millis(160);
/// How often it is said that a CPU does not answer.
const REMINDER: Duration = Duration::from_secs(1);
/// How often it is looked whether it does.
const PAUSE: Duration = Duration::from_millis(1);

/// A task is in [`hold_cpus`].
static HOLDING: AtomicBool = AtomicBool::new(false);
/// The number of the last round. That of the holder.
static LAST_ROUND: AtomicU64 = AtomicU64::new(0);

static ROUND: Round<MAX_CPUS> = Round::new();

/// Calls `action` once, with interrupts masked on this CPU, while every other CPU that runs is held: it has taken an
/// interrupt from code that had interrupts unmasked, and waits, with interrupts masked, in code that cannot be probed. Each
/// executes a context synchronization event before it goes on. Where a CPU does not answer, the others are let go, it is
/// reported by its number, and it is tried again until all come.
///
/// `action` must take no lock that a task holds with interrupts unmasked, and must not call this. Only tasks call it; several
/// take turns.
///
/// # Panics
///
/// Where interrupts or preemption are masked: a CPU that is waited for could be waiting for the caller.
pub fn hold_cpus(action: &mut dyn FnMut()) {
    let depth = task::current_task().preempt_nesting.depth();
    assert_eq!(depth, 0, "a task called for a rendezvous with preemption masked");
    while HOLDING.swap(true, Ordering::Acquire) {
        task::yield_now();
    }
    let mut patience = PATIENCE_MIN;
    loop {
        let missing = attempt(patience, action);
        if missing == 0 {
            break;
        }
        wait_for(missing);
        patience = (2 * patience).min(PATIENCE_MAX);
    }
    HOLDING.store(false, Ordering::Release);
}

/// A round. Returns the CPUs that are missing; if none is, the action has been called.
fn attempt(patience: Duration, action: &mut dyn FnMut()) -> Set {
    let mask = IrqMask::new();
    assert!(mask.was_enabled(), "a task called for a rendezvous with interrupts masked");
    let this = task::current_cpu();
    let others = RUNNING.load(Ordering::Acquire) & !(1 << this);
    let round = LAST_ROUND.load(Ordering::Relaxed) + 1;
    LAST_ROUND.store(round, Ordering::Relaxed);
    ROUND.begin(round, others);
    Members::of(others).for_each(|cpu| interrupt::send(cpu, Ipi::Rendezvous));
    let missing = gather(round, time::counter().saturating_add(time::ticks(patience)), action);
    // A CPU that has seen the end of the round by itself has not fallen asleep, or is awake again.
    Members::of(others).filter(|cpu| ROUND.is_asleep(*cpu)).for_each(|cpu| interrupt::send(cpu, Ipi::Rendezvous));
    missing
}

/// Waits until the others are there for the round `round`, at most until the counter reads `deadline`, calls `action` if they
/// are, and ends the round. Returns those that are missing.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.smp_gather")]
fn gather(round: u64, deadline: u64, action: &mut dyn FnMut()) -> Set {
    ROUND.gather(round, || time::counter() >= deadline, action)
}

/// The other side: this CPU, with the dense number `cpu`, has taken the interrupt, from the code at `pc`, and has ended it
/// at the interrupt controller.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.smp_answer")]
pub(crate) fn answer(cpu: usize, pc: usize) {
    // 30 µs. The functions that convert times may be probed.
    let sleep_from = time::counter() + (time::frequency() >> 15);
    let may_sleep = || {
        machine::stop_if_told(cpu);
        time::counter() >= sleep_from
    };
    ROUND.answer(cpu, pc, may_sleep, asm::wfi);
    barrier::isb(barrier::SY);
}

/// Calls `each` with the pc of every context that is interrupted: of each CPU that is held, and of each task that was
/// preempted by an interrupt. Only within the action of [`hold_cpus`].
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.smp_interrupted")]
pub fn interrupted(each: &mut dyn FnMut(usize)) {
    ROUND.interrupted(each);
    task::preempted_pcs(each);
}

/// Waits until the CPUs `missing` take interrupts again, which the last round has not seen; and says which do not.
fn wait_for(missing: Set) {
    let still_missing =
        || Members::of(missing).filter(|cpu| !ROUND.has_taken(*cpu)).fold(0, |set: Set, cpu| set | 1 << cpu);
    let since = time::now();
    let mut reminders = 0;
    let mut reported = 0;
    loop {
        let set = still_missing();
        Members::of(reported & !set).for_each(|cpu| uart::urge(format_args!("CPU {cpu} answers again\n")));
        reported &= set;
        if set == 0 {
            return;
        }
        let elapsed = time::now() - since;
        if elapsed >= REMINDER * (reminders + 1) {
            reminders = (elapsed.as_nanos() / REMINDER.as_nanos()) as u32;
            Members::of(set).for_each(|cpu| {
                uart::urge(format_args!(
                    "CPU {cpu} has not answered for {} s: it has interrupts masked\n",
                    elapsed.as_secs()
                ));
            });
            reported = set;
        }
        task::sleep(PAUSE);
    }
}
