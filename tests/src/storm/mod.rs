//! The storm: tasks on all CPUs hit probes while other tasks register, unregister, arm and disarm probes on the same
//! instructions, at random.
//!
//! The probed functions count for themselves how often each of their instructions is executed. The counts of probes can
//! therefore be checked exactly:
//!
//! - a probe that stays armed during the hits has counted every execution, as a hit or as missed;
//! - a probe that stays disarmed has counted none;
//! - for a probe that comes and goes, its hits equal the calls of its handler, and no handler is called after the probe
//!   was disarmed or unregistered.
//!
//! Tasks yield, are preempted, move to other CPUs and exit in the middle of return-probed calls, and probes are
//! unregistered meanwhile. All answers must be right, no call may be mistaken for another, and at the end the memory in
//! use is the same as before.
//!
//! The test command runs a short storm. Its length is chosen when the image is built:
//!
//! ```text
//! STORM_HITS=10000000 STORM_PAIRS=100000 STORM_SEED=1 cargo xtask test --timeout 7200 storm
//! ```
//!
//! It lasts until that many hits have occurred, and that many probes have been registered and unregistered.

mod change;
mod functions;
mod probes;
mod watch;

use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::probe::{self, Kprobe, Mode};
use runtime::memory::{self, Usage};
use runtime::task::JoinHandle;
use runtime::{println, smp, task};

use crate::{parameter, test};
use change::{CHANGERS, EACH, HITS, PAIRS};
use functions::{FUNCTIONS, Group, WORKERS, executed, places};
use kprobes_random::Random;
use probes::{Handlers, Order, Probe, Target};
use watch::OFFENCES;

/// The number of rounds. Between rounds no CPU hits a probe, and all counts are compared.
const ROUNDS: u64 = 8;
/// One call of this many is made by a task that exits in the middle of it.
const SELDOM: u64 = 64;

/// Whether the tasks of this round should end.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// The number of calls with a wrong answer.
static WRONG: AtomicU64 = AtomicU64::new(0);
/// The number of calls that ended on another CPU than they began on.
static MOVES: AtomicU64 = AtomicU64::new(0);
/// The number of tasks that exited in the middle of calls.
static EXITS: AtomicU64 = AtomicU64::new(0);

/// Runs a task that calls the functions.
fn work(worker: usize, seed: u64) {
    let mut sequence = Random::new(seed);
    while !IS_OVER.load(Relaxed) {
        let function = &FUNCTIONS[sequence.below(FUNCTIONS.len() as u64) as usize];
        if sequence.below(SELDOM) == 0 {
            // The call counts for this worker, which waits for the end of the task.
            task::spawn(&format!("{worker} {}", function.group as usize), exit_inside).join();
            EXITS.fetch_add(1, Relaxed);
        } else {
            let cpu = task::current_cpu();
            let is_right = function.is_right(&mut sequence, worker);
            WRONG.fetch_add(u64::from(!is_right), Relaxed);
            MOVES.fetch_add(u64::from(cpu != task::current_cpu()), Relaxed);
        }
    }
}

/// Runs a task that exits in the middle of a call. Values owned by its functions are not freed then, nor is the memory
/// of a closure with captures. The task therefore gets its worker and its group through its name.
fn exit_inside() {
    let task = task::current();
    let mut words = task.name().split(' ').map(|word| word.parse::<usize>().expect("the name is two numbers"));
    let (worker, group) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let cross = FUNCTIONS.iter().find(|function| function.name == "cross" && function.group as usize == group);
    cross.expect("there is such a function").exit_inside(worker);
}

/// Returns the probes that stay: one on each instruction, and one on the returns of each function.
fn steady_orders() -> Vec<(usize, Order)> {
    let instructions = places(Group::Steady).zip((0..4).cycle()).map(|(place, which)| Target::Instruction {
        place,
        handlers: Handlers::ALL[which],
        fastest: [Mode::Boosted, Mode::Stepped, Mode::Optimized, Mode::Lean][place.address >> 2 & 3],
    });
    let steady = || FUNCTIONS.iter().filter(|function| function.group == Group::Steady);
    let returns =
        [64, 1].into_iter().flat_map(|maxactive| steady().map(move |function| Target::Returns { function, maxactive }));
    let order = |(number, target)| (CHANGERS * EACH + number, Order { target, is_armed: true });
    instructions.chain(returns).enumerate().map(order).collect()
}

/// Returns the maximum number of probes in a storm.
fn most_orders() -> Vec<(usize, Order)> {
    let places: Vec<_> = places(Group::Loose).collect();
    let loose = (0..CHANGERS * EACH).map(|number| {
        let place = places[number % places.len()];
        let target = Target::Instruction { place, handlers: Handlers::ALL[number % 4], fastest: Mode::Stepped };
        (number, Order { target, is_armed: true })
    });
    steady_orders().into_iter().chain(loose).collect()
}

/// Returns the count of a probe, and the number of executions of the code that it is on.
fn counts(probe: &Probe) -> (u64, u64) {
    let (group, counter) = probe.target().stretch();
    (probe.counted(), executed(group, counter))
}

/// Returns the hits of all probes, including those that were unregistered.
fn hits(steady: &[Probe]) -> u64 {
    HITS.load(Relaxed) + steady.iter().map(|probe| probe.hits()).sum::<u64>()
}

/// Arms a random part of the probes, runs the tasks until the numbers of hits and pairs are reached, and compares the
/// counts.
fn round(steady: &[Probe], sequence: &mut Random, hits_goal: u64, pairs_goal: u64) {
    let (armed, disarmed): (Vec<&Probe>, Vec<&Probe>) = steady.iter().partition(|_| sequence.below(4) != 0);
    Probe::set_armed(&armed, true);
    Probe::set_armed(&disarmed, false);
    let before: Vec<_> = steady.iter().map(counts).collect();

    IS_OVER.store(false, Relaxed);
    let workers = (0..WORKERS).map(|worker| {
        let seed = sequence.next();
        task::spawn("worker", move || work(worker, seed))
    });
    let mut tasks: Vec<JoinHandle> = workers.collect();
    tasks.extend((0..CHANGERS).map(|changer| {
        let seed = sequence.next();
        task::spawn("changer", move || change::change(changer * EACH, seed))
    }));
    while hits(steady) < hits_goal || PAIRS.load(Relaxed) < pairs_goal {
        task::yield_now();
    }
    IS_OVER.store(true, Relaxed);
    tasks.into_iter().for_each(JoinHandle::join);

    for (probe, (counted_before, executed_before)) in steady.iter().zip(before) {
        let (counted, executed) = counts(probe);
        let expected = if probe.is_enabled() { executed - executed_before } else { 0 };
        let (group, counter) = probe.target().stretch();
        assert_eq!(
            counted - counted_before,
            expected,
            "hits and missed hits of the probe at {:#x}, armed: {}, and executions of stretch {counter} ({group:?})",
            probe.address(),
            probe.is_enabled(),
        );
        probe.check_calls();
    }
    change::check_most();
    OFFENCES.check();
    assert_eq!(WRONG.load(Relaxed), 0, "answers were wrong");
}

/// Runs a storm of `rounds` rounds, with additional hits and pairs. Returns the memory in use after it, and the part
/// that probes use.
fn storm(sequence: &mut Random, rounds: u64, more_hits: u64, more_pairs: u64) -> (Usage, probe::Memory) {
    let steady = Probe::register(&steady_orders());
    let (hits_before, pairs_before) = (hits(&steady), PAIRS.load(Relaxed));
    for number in 1..=rounds {
        round(
            &steady,
            sequence,
            hits_before + more_hits * number / rounds,
            pairs_before + more_pairs * number / rounds,
        );
    }
    HITS.fetch_add(steady.iter().map(|probe| probe.hits()).sum(), Relaxed);
    Probe::unregister(steady);
    // Memory that other CPUs were still using is freed by the next change.
    Probe::unregister(Probe::register(&steady_orders()[..1]));
    (memory::usage(), probe::memory())
}

test!(
    depends(cpus),
    fn probes_come_and_go_while_they_are_hit() {
        let hits = parameter("STORM_HITS", option_env!("STORM_HITS"), 100_000);
        let pairs = parameter("STORM_PAIRS", option_env!("STORM_PAIRS"), 500);
        let seed = parameter("STORM_SEED", option_env!("STORM_SEED"), 0x5eed);
        println!("seed {seed}, {hits} hits, {pairs} pairs, {} CPUs", smp::running().count());
        let mut sequence = Random::new(seed);
        // The engine allocates memory that it keeps for later: some for each probe of the largest number at a time,
        // which is random. The first registration allocates the maximum. Further return probes may wait for their last
        // call: other probes stand for these.
        let address = places(Group::Steady).next().expect("there are places").address;
        let register = |_| Kprobe::at(address).disabled().register().expect("it can be probed");
        let waiting: Vec<Kprobe> = (0..steady_orders().len()).map(register).collect();
        Probe::unregister(Probe::register(&most_orders()));
        drop(waiting);
        let before = storm(&mut sequence, 1, 1000, 100);
        let after = storm(&mut sequence, ROUNDS, hits, pairs);
        println!("{} hits, {} probes registered and unregistered", HITS.load(Relaxed), PAIRS.load(Relaxed));
        println!("{} tasks exited within calls, {} calls moved", EXITS.load(Relaxed), MOVES.load(Relaxed));
        println!("{before:?}");
        assert_eq!(after, before, "memory in use");
        assert!(probe::list().expect("there is memory for the list").is_empty());
        assert!(EXITS.load(Relaxed) > 0);
        assert_eq!(MOVES.load(Relaxed) > 0, smp::running().count() > 1, "calls that moved to another CPU");
    }
);
