//! Measures cases.
//!
//! A hit is measured in rounds of a hundred calls, with interrupts masked, so that nothing else runs in a round. The
//! figure is the median round minus the median round without the probe. In an emulator that counts instructions, all
//! rounds are equal.

use aarch64_kprobes::probe::{self, Mode};
use runtime::println;
use runtime::sync::IrqMask;

use crate::case::{Armed, Case, Work};
use crate::clock::Clock;
use crate::stopwatch::{Stopwatch, median};
use crate::target::{self, Target};

/// The number of calls in a round.
const CALLS: usize = 100;
/// The number of measured rounds. A round before them, with cold caches, is not measured.
const ROUNDS: usize = 101;

/// Measures a case, and prints the result.
pub fn run(case: &Case, clock: Clock) {
    let (total, bare, count) = match case.work {
        Work::Hit { target, mode, arm } => {
            let bare = rounds(clock, target(), ROUNDS);
            let armed = arm_in_mode(target(), mode, arm);
            let total = rounds(clock, target(), ROUNDS);
            armed.check(CALLS * (ROUNDS + 1));
            (total, bare, CALLS)
        }
        Work::Change { count, times, change } => {
            let mut stopwatch = Stopwatch::new(clock);
            let total = median((0..times).map(|_| {
                change(&mut stopwatch);
                stopwatch.ticks()
            }));
            (total, 0, count())
        }
    };
    println!(r#"{{"name":"{}","total":{total},"bare":{bare},"count":{count},"unit":"{}"}}"#, case.name, clock.unit());
}

/// Does the work of a case once, without measuring it.
pub fn once(case: &Case) {
    trace(case, || (), || ());
    println!(r#"{{"name":"{}"}}"#, case.name);
}

/// Does the work of a case once: calls `ready` before it, and `over` after it. For a hit, the probes are registered
/// throughout, and have been hit before, as in a round. A change to probes happens between the two calls, between its
/// marks.
pub fn trace(case: &Case, ready: impl FnOnce(), over: impl FnOnce()) {
    match case.work {
        Work::Hit { target, mode, arm } => {
            let armed = arm_in_mode(target(), mode, arm);
            let call = || {
                let _mask = IrqMask::new();
                target::round(target(), 1);
            };
            call();
            ready();
            call();
            over();
            armed.check(2);
        }
        Work::Change { change, .. } => {
            ready();
            change(&mut Stopwatch::without_overhead(Clock::Instructions));
            over();
        }
    }
}

/// Returns the median of `rounds` rounds.
fn rounds(clock: Clock, target: Target, rounds: usize) -> u64 {
    let _mask = IrqMask::new();
    target::round(target, CALLS);
    median((0..rounds).map(|_| {
        let start = clock.now();
        target::round(target, CALLS);
        clock.now() - start
    }))
}

/// Registers the probes, and checks that the hits are executed in the case's mode.
pub fn arm_in_mode(target: Target, mode: Mode, arm: fn(usize, Mode) -> Armed) -> Armed {
    let armed = arm(target.probed(), mode);
    let probe =
        probe::list().expect("there is memory for the list").into_iter().find(|probe| probe.address == target.probed());
    assert_eq!(probe.and_then(|probe| probe.mode), Some(mode), "the mode of the probe");
    armed
}

impl Armed {
    /// Checks that the probes have counted `calls` calls: the figure of a probe that was not hit would be meaningless.
    pub fn check(&self, calls: usize) {
        for probe in &self.probes {
            let hits = calls as u64 * self.counted;
            assert_eq!((probe.hits(), probe.missed()), (hits, 0), "hits and missed of the probe");
        }
    }
}
