//! Tasks that register, unregister, arm and disarm probes at random, one at a time and in batches.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::IS_OVER;
use super::functions::{COUNTERS, Group, ProbePlace, executed, places};
use super::probes::{Order, Probe, Target};
use kprobes_random::Random;

/// The number of tasks that change probes.
pub const CHANGERS: usize = 3;
/// The maximum number of probes of each task.
pub const EACH: usize = 24;
/// The maximum number of probes that are changed at once.
const BATCH: u64 = 16;

/// The number of probes that have been registered and unregistered again.
pub static PAIRS: AtomicU64 = AtomicU64::new(0);
/// The number of hits of these probes.
pub static HITS: AtomicU64 = AtomicU64::new(0);
/// The maximum count of one of these probes in each stretch.
static MOST: [[AtomicU64; COUNTERS]; 2] = [const { [const { AtomicU64::new(0) }; COUNTERS] }; 2];

/// Runs the task whose watches begin with number `first`.
pub fn change(first: usize, seed: u64) {
    let places: Vec<ProbePlace> = places(Group::Steady).chain(places(Group::Loose)).collect();
    let mut changer = Changer {
        sequence: Random::new(seed),
        places,
        free: (first..first + EACH).collect(),
        probes: Vec::with_capacity(EACH),
    };
    while !IS_OVER.load(Relaxed) {
        match changer.sequence.below(4) {
            0 => changer.arm(),
            1 => changer.unregister(),
            // More frequent than `unregister`, so that the number of probes reaches the maximum.
            _ => changer.register(),
        }
    }
    while !changer.probes.is_empty() {
        changer.unregister();
    }
}

struct Changer {
    sequence: Random,
    places: Vec<ProbePlace>,
    /// The numbers of unused watches.
    free: Vec<usize>,
    probes: Vec<Probe>,
}

impl Changer {
    /// Returns the number of probes to change next: one as often as several.
    fn batch(&mut self) -> usize {
        if self.sequence.below(2) == 0 { 1 } else { 1 + self.sequence.below(BATCH) as usize }
    }

    fn register(&mut self) {
        let count = self.batch().min(self.free.len());
        let watches = self.free.drain(..count);
        let order = |watch| {
            let target = Target::random(&mut self.sequence, &self.places);
            (watch, Order { target, is_armed: self.sequence.below(8) != 0 })
        };
        let orders: Vec<_> = watches.map(order).collect();
        self.probes.extend(Probe::register(&orders));
    }

    /// Takes random probes.
    fn choose(&mut self) -> Vec<Probe> {
        let count = self.batch().min(self.probes.len());
        (0..count)
            .map(|_| {
                let index = self.sequence.below(self.probes.len() as u64) as usize;
                self.probes.swap_remove(index)
            })
            .collect()
    }

    fn arm(&mut self) {
        let chosen = self.choose();
        Probe::set_armed(&chosen.iter().collect::<Vec<_>>(), self.sequence.below(2) == 0);
        self.probes.extend(chosen);
    }

    /// Unregisters some probes: half of the time after disarming them, which makes their counts final.
    fn unregister(&mut self) {
        let chosen = self.choose();
        if self.sequence.below(2) == 0 {
            Probe::set_armed(&chosen.iter().collect::<Vec<_>>(), false);
            chosen.iter().for_each(Probe::check_calls);
        }
        for probe in &chosen {
            let (group, counter) = probe.target().stretch();
            MOST[group as usize][counter].fetch_max(probe.counted(), Relaxed);
            HITS.fetch_add(probe.hits(), Relaxed);
        }
        PAIRS.fetch_add(chosen.len() as u64, Relaxed);
        self.free.extend(Probe::unregister(chosen));
    }
}

/// Checks that no probe has counted more than the number of executions. No CPU hits a probe meanwhile.
pub fn check_most() {
    for group in [Group::Steady, Group::Loose] {
        for (counter, most) in MOST[group as usize].iter().enumerate() {
            let (most, all) = (most.load(Relaxed), executed(group, counter));
            assert!(most <= all, "a probe in stretch {counter} ({group:?}) has counted {most} of {all}");
        }
    }
}
