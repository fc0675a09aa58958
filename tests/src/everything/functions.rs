//! The entry and the return of every function.
//!
//! A hit at an entry is a call that has returned, has not returned yet, or was missed. The hits and misses of the entry
//! probe therefore equal the hits, misses and calls in progress of the return probe. Both probes are armed and disarmed
//! by the same word of the text, and so see the same calls.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use aarch64_kprobes::probe::{self, Registration};
use aarch64_kprobes::{Call, Decision, Hit, Kprobe, Kretprobe, ProbeError};
use kprobes_console::symbol::Symbolic;
use runtime::task::JoinHandle;
use runtime::{memory, println, smp, task, time};

use super::{Count, functions, known_calls, run, workload_named};
use crate::{fixture, parameter, test};

static ENTRIES: Count = Count::new();
static FOLLOWED: Count = Count::new();
static RETURNS: Count = Count::new();

#[unsafe(link_section = ".kprobes.text.handlers.everything_entered")]
extern "C" fn entered(_: &mut Hit<'_>) {
    ENTRIES.add();
}

#[unsafe(link_section = ".kprobes.text.handlers.everything_followed")]
extern "C" fn followed(_: &mut Call<'_>) -> Decision {
    FOLLOWED.add();
    Decision::Follow
}

#[unsafe(link_section = ".kprobes.text.handlers.everything_returned")]
extern "C" fn returned(_: &mut Call<'_>) {
    RETURNS.add();
}

/// The number of calls that a return probe follows at a time: every task may be in one, and interrupts in others.
const MAX_ACTIVE: u32 = 32;

/// The probes of a function. Some functions have no return probe: those that branch back to their entry, that move the
/// stack pointer, or that do not return to the address in x30.
struct Function {
    entry: Kprobe,
    returns: Option<Kretprobe>,
}

/// Registers the probes of all functions, disarmed.
fn register() -> Vec<Function> {
    let addresses: Vec<usize> = functions().iter().map(|function| function.start).collect();
    let entries = addresses.iter().map(|&address| Kprobe::at(address).pre(entered).disabled());
    let returns = addresses
        .iter()
        .map(|&address| Kretprobe::at(address).entry(followed).handler(returned).maxactive(MAX_ACTIVE).disabled());
    let (entries, returns) = (
        Kprobe::register_all(entries).expect("there is memory for the lists"),
        Kretprobe::register_all(returns).expect("there is memory for the lists"),
    );
    let mut all = Vec::new();
    let (mut blacklisted, mut refused, mut loops) = (0, 0, 0);
    for (entry, returns) in entries.into_iter().zip(returns) {
        match (entry, returns) {
            (Ok(entry), Ok(returns)) => all.push(Function { entry, returns: Some(returns) }),
            (
                Ok(entry),
                Err(
                    ProbeError::ChangesTask { .. }
                    | ProbeError::EntryIsLoop { .. }
                    | ProbeError::MovesStack { .. }
                    | ProbeError::NotReturnAddress { .. },
                ),
            ) => {
                all.push(Function { entry, returns: None });
                loops += 1;
            }
            (Err(ProbeError::Blacklisted { .. }), Err(_)) => blacklisted += 1,
            (Err(ProbeError::Instruction { .. } | ProbeError::Exclusive { .. }), Err(_)) => refused += 1,
            (entry, returns) => panic!("{:?} {:?}", entry.map(drop), returns.map(drop)),
        }
    }
    println!(
        "{} functions: {} are probed, {loops} of them at the entry only; {blacklisted} are closed, {refused} begin with \
         what cannot be probed",
        addresses.len(),
        all.len(),
    );
    all
}

fn registrations(all: &[Function]) -> impl Iterator<Item = &Registration> {
    all.iter().flat_map(|Function { entry, returns }| {
        let (entry, returns): (&Registration, Option<&Registration>) = (entry, returns.as_deref());
        [Some(entry), returns].into_iter().flatten()
    })
}

/// Runs tasks that start, yield, sleep and end.
fn exercise_scheduler() {
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            task::spawn("short", || {
                task::yield_now();
                task::sleep(Duration::from_millis(1));
            })
        })
        .collect();
    tasks.into_iter().for_each(JoinHandle::join);
}

/// Returns a function with a call that has neither returned, nor is in progress, nor was missed. No probe is armed, but
/// calls may be returning.
fn find_difference(all: &[Function]) -> Option<&Function> {
    all.iter().find(|Function { entry, returns }| {
        returns.as_ref().is_some_and(|returns| {
            let calls = entry.hits() + entry.missed();
            calls != returns.hits() + returns.missed() + u64::from(returns.active())
        })
    })
}

test!(
    depends(cpus, interrupts, entry, board),
    fn every_function_at_once() {
        let duration = Duration::from_secs(parameter("EVERYTHING_SECONDS", option_env!("EVERYTHING_SECONDS"), 0));
        let probed = register();
        Registration::set_all_enabled(registrations(&probed), true).expect("there is memory");
        let start = time::now();
        println!("{} probes are armed on {} CPUs", registrations(&probed).count(), smp::running().count());
        let mut iterations = BTreeMap::new();
        let mut rounds = 0;
        loop {
            for name in ["sha256", "deflate"] {
                let report = run(workload_named(name), 8);
                *iterations.entry(name).or_insert(0) += report.right;
            }
            exercise_scheduler();
            rounds += 1;
            if time::now() - start >= duration {
                break;
            }
        }
        let elapsed = time::now() - start;
        Registration::set_all_enabled(registrations(&probed), false).expect("there is memory");

        // Only calls that were in progress can still return.
        let mut difference = find_difference(&probed);
        let deadline = time::now() + Duration::from_secs(60);
        while difference.is_some() && time::now() < deadline {
            task::sleep(Duration::from_millis(1));
            difference = find_difference(&probed);
        }
        if let Some(Function { entry, returns: Some(returns) }) = difference {
            panic!(
                "{}: {} + {} entries, {} + {} returns and {} calls in progress",
                Symbolic(entry.address()),
                entry.hits(),
                entry.missed(),
                returns.hits(),
                returns.missed(),
                returns.active(),
            );
        }
        let hits = |of: fn(&Function) -> u64| probed.iter().map(of).sum::<u64>();
        let entries = hits(|function| function.entry.hits());
        let returns = hits(|function| function.returns.as_ref().map_or(0, |returns| returns.hits()));
        let missed = hits(|function| function.returns.as_ref().map_or(0, |returns| returns.missed()));
        let active = hits(|function| function.returns.as_ref().map_or(0, |returns| returns.active().into()));
        println!(
            "{rounds} rounds in {} ms: {entries} entries, {returns} returns, {missed} missed, {active} in progress",
            elapsed.as_millis()
        );
        assert_eq!((ENTRIES.sum(), hits(|function| function.entry.missed())), (entries, 0));
        assert!(RETURNS.sum() == returns && FOLLOWED.sum() >= returns);
        println!("{}", memory::statistics());
        for (name, iterations) in iterations {
            for (function, calls) in known_calls(workload_named(name)) {
                let address = fixture::address_of(function);
                let probe = probed.iter().find(|probe| probe.entry.address() == address);
                let probe = probe.expect("it is probed");
                assert_eq!(probe.entry.hits(), calls * iterations, "calls of {function}");
            }
        }
        let (entries, returns): (Vec<_>, Vec<_>) =
            probed.into_iter().map(|function| (function.entry, function.returns)).unzip();
        Kprobe::unregister_all(entries);
        Kretprobe::unregister_all(returns.into_iter().flatten());
        assert!(probe::list().expect("there is memory for the list").is_empty());
    }
);
