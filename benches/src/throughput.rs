//! Measures how many hits several CPUs take together in a second. It measures by wall clock, so results vary.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;

use aarch64_kprobes::probe::Mode;
use runtime::{println, smp, task, time};

use crate::case::{Armed, Case, Work};
use crate::measure::arm_in_mode;
use crate::target::{self, Target};

/// The time of a run, and the number of runs. The fastest run counts, because the host may have been busy during the
/// others.
const TIME: Duration = Duration::from_millis(200);
const TIMES: usize = 3;
/// The number of calls between checks for the end of a run.
const CALLS: usize = 100;

/// Makes `cpus` CPUs call `functions` functions, which are distributed over the CPUs, and prints the sum of their calls
/// in the fastest run with its time. Without a case, the functions have no probes.
pub fn run(case: Option<&Case>, cpus: usize, functions: usize) {
    let running: Vec<usize> = smp::running().take(cpus).collect();
    if running.len() < cpus {
        println!("error: {} CPUs run, not {cpus}", running.len());
        return;
    }
    let (target, probes): (Target, Vec<Armed>) = match case.map(|case| case.work) {
        Some(Work::Hit { target, mode, arm }) => (target(), arm_all(target(), mode, arm, functions)),
        _ => (target::add(), Vec::new()),
    };
    let (stop, ready) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let calls: Vec<Arc<AtomicUsize>> = running.iter().map(|_| Arc::default()).collect();
    let tasks: Vec<_> = (running.iter().zip(&calls).enumerate())
        .map(|(number, (&cpu, calls))| {
            let (stop, ready, calls) = (stop.clone(), ready.clone(), calls.clone());
            let target = target.copy(number % functions);
            task::spawn_on(cpu, "calls", move || {
                ready.fetch_add(1, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    target::round(target, CALLS);
                    // Only this CPU writes the counter; others read it.
                    calls.store(calls.load(Ordering::Relaxed) + CALLS, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while ready.load(Ordering::Relaxed) < cpus {
        task::yield_now();
    }
    let sum = || calls.iter().map(|calls| calls.load(Ordering::Relaxed)).sum::<usize>();
    let spells = (0..TIMES).map(|_| {
        let (start, before) = (time::now(), sum());
        task::sleep(TIME);
        (sum() - before, (time::now() - start).as_nanos())
    });
    let (made, taken) = spells.max_by_key(|(made, taken)| *made as u128 * 1_000_000_000 / taken).unwrap_or((0, 1));
    stop.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(task::JoinHandle::join);
    for (function, armed) in probes.iter().enumerate() {
        armed.check(calls.iter().skip(function).step_by(functions).map(|calls| calls.load(Ordering::Relaxed)).sum());
    }
    println!(
        r#"{{"name":"{}","cpus":{cpus},"functions":{functions},"calls":{made},"nanoseconds":{}}}"#,
        case.map_or("bare", |case| case.name),
        taken
    );
}

/// Registers the probes on `functions` functions.
fn arm_all(target: Target, mode: Mode, arm: fn(usize, Mode) -> Armed, functions: usize) -> Vec<Armed> {
    (0..functions).map(|number| arm_in_mode(target.copy(number), mode, arm)).collect()
}
