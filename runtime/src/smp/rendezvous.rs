//! The rendezvous: one CPU holds all others while it does something that they must not see half done.
//!
//! The initiator interrupts every other CPU. A CPU that takes the interrupt stores the interrupted pc, reports that it
//! is there, and waits, with interrupts and debug exceptions masked, until the round is over. Then it executes an ISB,
//! so that it fetches and translates anew (Arm ARM, B2.4.4: a context synchronization event). When all CPUs are there,
//! the action is called.
//!
//! **What holds during the action.** A CPU takes an interrupt only in code that has interrupts unmasked. So one pc
//! describes completely what a held CPU was doing. Between that code and the wait there are only calls: of the vectors,
//! the dispatcher and [`answer`]. The CPU is not handling a probe hit, and holds no [`IrqLock`](crate::sync::IrqLock).
//!
//! **Bounded time.** A CPU may have interrupts masked for long. The others must not wait for it with their interrupts
//! masked. So the first round gathers for [`PATIENCE_MIN`]. If a CPU is missing then, the others are released, and the
//! next round begins only after the missing ones have taken their interrupt. Until then no CPU is held, and the
//! initiator sleeps. Some CPUs take their interrupts but come late, for example under an emulator with fewer CPUs than
//! it emulates. So each round has twice the patience of the last, up to [`PATIENCE_MAX`]. No CPU has interrupts masked
//! for longer at a time than [`PATIENCE_MAX`] plus the time of the action. If all CPUs answer, the bound is the slowest
//! answer plus the action.
//!
//! **A waiting CPU sleeps** after a moment, by WFI, so that an emulated CPU leaves the host's CPU to one that is still
//! missing. A pending interrupt ends WFI although it is masked (Arm ARM, D1.6). The rendezvous interrupt is ended
//! before the wait, because otherwise the GIC would not signal another one of its priority. Each side has a
//! sequentially consistent fence: one between the store of "asleep" and the load of the round, the other between the
//! store of the round and the load of "asleep". So at least one side sees what the other has stored.
//!
//! The code here that runs while CPUs are held lies in the section that refuses probes.

use core::arch;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use aarch64_cpu::asm::{self, barrier};
use kprobes_smp::rendezvous::{Members, Round, Set};

use super::RUNNING;
use crate::interrupt::{self, Ipi};
use crate::per_cpu::MAX_CPUS;
use crate::sync::IrqMask;
use crate::{machine, task, time, uart};

/// How long the first round gathers, and the longest that any round does.
const PATIENCE_MIN: Duration = Duration::from_millis(10);
const PATIENCE_MAX: Duration = Duration::from_millis(160);
/// How often to report that a CPU does not answer.
const REMINDER: Duration = Duration::from_secs(1);
/// How often to check whether a missing CPU has answered.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether a task is in [`hold_cpus`].
static HOLDING: AtomicBool = AtomicBool::new(false);
/// The number of the last round. Only the task in [`hold_cpus`] accesses it.
static LAST_ROUND: AtomicU64 = AtomicU64::new(0);

static ROUND: Round<MAX_CPUS> = Round::new();

/// Calls `action` once, with interrupts masked on this CPU, while every other running CPU is held.
///
/// A held CPU has taken an interrupt in code that had interrupts unmasked. It waits, with all of PSTATE.DAIF masked, in
/// code that cannot be probed. It executes a context synchronization event before it goes on. If a CPU does not answer,
/// the others are released, the CPU is reported by its number, and the attempt is repeated until all CPUs come.
///
/// `action` must take no lock that a task may hold with interrupts unmasked, and must not call this function. Only
/// tasks may call this; several take turns.
///
/// # Panics
///
/// Panics if interrupts or preemption are masked: a CPU that does not answer could be waiting for the caller.
pub fn hold_cpus(action: &mut dyn FnMut()) {
    let depth = task::current_task().preempt_nesting.depth();
    assert_eq!(depth, 0, "a task called hold_cpus with preemption masked");
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

/// Holds one round. Returns the CPUs that are missing. If there are none, the action has been called.
fn attempt(patience: Duration, action: &mut dyn FnMut()) -> Set {
    let mask = IrqMask::new();
    assert!(mask.was_enabled(), "a task called hold_cpus with interrupts masked");
    let this = task::current_cpu();
    let others = RUNNING.load(Ordering::Acquire) & !(1 << this);
    let round = LAST_ROUND.load(Ordering::Relaxed) + 1;
    LAST_ROUND.store(round, Ordering::Relaxed);
    ROUND.begin(round, others);
    Members::of(others).for_each(|cpu| interrupt::send(cpu, Ipi::Rendezvous));
    let missing = gather(round, time::counter().saturating_add(time::ticks(patience)), action);
    // A CPU that has seen the end of the round itself is not asleep, or is awake again.
    Members::of(others).filter(|cpu| ROUND.is_asleep(*cpu)).for_each(|cpu| interrupt::send(cpu, Ipi::Rendezvous));
    missing
}

/// Waits for the other CPUs in the round `round`, at most until the counter reads `deadline`. Calls `action` if all
/// have come, and ends the round. Returns the missing CPUs.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.smp_gather")]
fn gather(round: u64, deadline: u64, action: &mut dyn FnMut()) -> Set {
    ROUND.gather(round, || time::counter() >= deadline, action)
}

/// Takes part in a round. This CPU, whose dense number is `cpu`, has taken the interrupt in the code at `pc`, and has
/// ended it at the interrupt controller.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.smp_answer")]
pub(crate) fn answer(cpu: usize, pc: usize) {
    // About 30 µs. Computed here, because the functions that convert times may be probed.
    let sleep_from = time::counter() + (time::frequency() >> 15);
    let may_sleep = || {
        machine::stop_if_requested(cpu);
        time::counter() >= sleep_from
    };
    let daif: u64;
    // A watchpoint on what is read here would call a handler, whose instructions may be half written.
    //
    // SAFETY: masking is always allowed. Without `nomem`, the accesses below cannot move out of the masked region.
    unsafe { arch::asm!("mrs {}, daif", "msr daifset, #0b1111", out(reg) daif, options(nostack, preserves_flags)) };
    ROUND.answer(cpu, pc, may_sleep, asm::wfi);
    barrier::isb(barrier::SY);
    // SAFETY: this restores the masks that were read above.
    unsafe { arch::asm!("msr daif, {}", in(reg) daif, options(nostack, preserves_flags)) };
}

/// Calls `each` with the pc of every interrupted context: of each held CPU, and of each task that an interrupt
/// preempted. Call it only within the action of [`hold_cpus`].
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.smp_interrupted")]
pub fn interrupted(each: &mut dyn FnMut(usize)) {
    ROUND.interrupted(each);
    task::preempted_pcs(each);
}

/// Waits until the CPUs `missing`, which missed the last round, take interrupts again. Reports those that do not.
fn wait_for(missing: Set) {
    let still_missing =
        || Members::of(missing).filter(|cpu| !ROUND.has_taken(*cpu)).fold(0, |set: Set, cpu| set | 1 << cpu);
    let since = time::now();
    let mut reminders = 0;
    let mut reported = 0;
    loop {
        let set = still_missing();
        Members::of(reported & !set).for_each(|cpu| uart::write_urgently(format_args!("CPU {cpu} answers again\n")));
        reported &= set;
        if set == 0 {
            return;
        }
        let elapsed = time::now() - since;
        if elapsed >= REMINDER * (reminders + 1) {
            reminders = (elapsed.as_nanos() / REMINDER.as_nanos()) as u32;
            Members::of(set).for_each(|cpu| {
                uart::write_urgently(format_args!(
                    "CPU {cpu} has not answered for {} s: it has interrupts masked\n",
                    elapsed.as_secs()
                ));
            });
            reported = set;
        }
        task::sleep(PAUSE);
    }
}
