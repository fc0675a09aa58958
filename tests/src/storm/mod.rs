//! The storm: tasks on all CPUs run into probes while others register, unregister, arm and disarm probes on the same
//! instructions, at random.
//!
//! The functions that are probed count themselves how often each of their instructions is executed. So it can be told
//! exactly what probes have to count:
//!
//! - a probe that stays armed while it is run into has counted every execution, as a hit or as missed;
//! - one that stays disarmed, none;
//! - of one that comes and goes, its hits are the calls of its handler, and no handler is called when it has been
//!   disarmed, or unregistered.
//!
//! Tasks yield, are preempted, move to other CPUs and exit in the middle of return-probed calls, and probes are
//! unregistered meanwhile. All answers have to be right, no call may be taken for another, and in the end the memory is
//! what it was.
//!
//! The test command has a short storm. How long it is, is chosen when the image is built:
//!
//! ```text
//! STORM_HITS=10000000 STORM_PAIRS=100000 STORM_SEED=1 cargo xtask test --timeout 7200 storm
//! ```
//!
//! It lasts until there were so many hits, and so many probes were registered and unregistered again.

mod change;
mod functions;
mod probes;
mod watch;

use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::probe::{self, Mode};
use runtime::memory::{self, Usage};
use runtime::task::JoinHandle;
use runtime::{println, smp, task};

use crate::random::sequence::Sequence;
use crate::test;
use change::{CHANGERS, EACH, HITS, PAIRS};
use functions::{FUNCTIONS, Group, WORKERS, executed, places};
use probes::{Handlers, Order, Probe, Target};
use watch::OFFENCES;

/// Between two of them no CPU runs into probes, and all counts are compared.
const ROUNDS: u64 = 8;
/// One in so many calls is made by a task that exits in the middle of it.
const SELDOM: u64 = 64;

/// The tasks of this round are to end.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// Calls that gave a wrong answer.
static WRONG: AtomicU64 = AtomicU64::new(0);
/// Calls that ended on another CPU than they had begun on.
static MOVES: AtomicU64 = AtomicU64::new(0);
/// Tasks that exited in the middle of calls.
static EXITS: AtomicU64 = AtomicU64::new(0);

/// A number that was given to the build, or another.
fn parameter(text: Option<&str>, otherwise: u64) -> u64 {
    text.map_or(otherwise, |text| text.parse().expect("STORM_HITS, STORM_PAIRS and STORM_SEED are decimal numbers"))
}

/// What a task does that calls the functions.
fn work(worker: usize, seed: u64) {
    let mut sequence = Sequence::new(seed);
    while !IS_OVER.load(Relaxed) {
        let function = &FUNCTIONS[sequence.below(FUNCTIONS.len() as u64) as usize];
        if sequence.below(SELDOM) == 0 {
            // It counts for this worker, who waits for its end.
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

/// What a task does that exits in the middle of calls. What its functions own is not freed then, nor is the memory of a
/// closure that has captured something: so it is told by its name for which worker it counts, and the group.
fn exit_inside() {
    let task = task::current();
    let mut words = task.name().split(' ').map(|word| word.parse::<usize>().expect("the name is two numbers"));
    let (worker, group) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let cross = FUNCTIONS.iter().find(|function| function.name == "cross" && function.group as usize == group);
    cross.expect("there is such a function").exit_inside(worker);
}

/// What goes on each instruction, and each function, to stay.
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

/// As many probes as there are in a storm at the most.
fn most_orders() -> Vec<(usize, Order)> {
    let places: Vec<_> = places(Group::Loose).collect();
    let loose = (0..CHANGERS * EACH).map(|number| {
        let place = places[number % places.len()];
        let target = Target::Instruction { place, handlers: Handlers::ALL[number % 4], fastest: Mode::Stepped };
        (number, Order { target, is_armed: true })
    });
    steady_orders().into_iter().chain(loose).collect()
}

/// What a probe has counted, and how often what it is on was executed.
fn counts(probe: &Probe) -> (u64, u64) {
    let (group, counter) = probe.target().stretch();
    (probe.counted(), executed(group, counter))
}

/// Hits of all probes, those that there are not any more included.
fn hits(steady: &[Probe]) -> u64 {
    HITS.load(Relaxed) + steady.iter().map(|probe| probe.hits()).sum::<u64>()
}

/// Arms some of the probes at random and lets the tasks loose until there are so many hits and pairs, then compares.
fn round(steady: &[Probe], sequence: &mut Sequence, hits_goal: u64, pairs_goal: u64) {
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

/// A storm of so many rounds, hits and pairs more. Returns what memory is in use after it, and what probes take of it.
fn storm(sequence: &mut Sequence, rounds: u64, more_hits: u64, more_pairs: u64) -> (Usage, probe::Memory) {
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
    // What was left to others to free is freed with the next change.
    Probe::unregister(Probe::register(&steady_orders()[..1]));
    (memory::usage(), probe::memory())
}

test!(
    depends(cpus),
    fn probes_come_and_go_while_they_are_hit() {
        let hits = parameter(option_env!("STORM_HITS"), 100_000);
        let pairs = parameter(option_env!("STORM_PAIRS"), 500);
        let seed = parameter(option_env!("STORM_SEED"), 0x5eed);
        println!("seed {seed}, {hits} hits, {pairs} pairs, {} CPUs", smp::running().count());
        let mut sequence = Sequence::new(seed);
        // The first time, the engine takes memory that it keeps for later: some for each probe of the most that there have
        // been at a time, which is a matter of chance.
        Probe::unregister(Probe::register(&most_orders()));
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
