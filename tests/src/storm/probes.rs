//! A probe of the storm, of either kind, with its watch and the checks of its counts.

use alloc::vec::Vec;
use core::ops::Deref;

use aarch64_kprobes::probe::{Mode, Registration};
use aarch64_kprobes::{Kprobe, Kretprobe, ProbeError};

use super::functions::{FUNCTIONS, Function, Group, ProbePlace};
use super::watch::{self, Watch};
use kprobes_random::Random;

/// The parameters of a probe to register.
#[derive(Clone, Copy)]
pub struct Order {
    pub target: Target,
    pub is_armed: bool,
}

/// The place of a probe, and its kind.
#[derive(Clone, Copy)]
pub enum Target {
    /// On an instruction.
    Instruction { place: ProbePlace, handlers: Handlers, fastest: Mode },
    /// On the returns of a function, for at most `maxactive` calls at a time.
    Returns { function: &'static Function, maxactive: u32 },
}

/// The handlers of a probe on an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Handlers {
    Before,
    BeforeWithCalls,
    BeforeAndAfter,
    Arguments,
}

impl Handlers {
    pub const ALL: [Self; 4] = [Self::Before, Self::BeforeWithCalls, Self::BeforeAndAfter, Self::Arguments];
}

impl Target {
    /// Returns a random target.
    pub fn random(sequence: &mut Random, places: &[ProbePlace]) -> Self {
        if sequence.below(4) == 0 {
            let function = &FUNCTIONS[sequence.below(FUNCTIONS.len() as u64) as usize];
            return Self::Returns { function, maxactive: 1 << sequence.below(6) };
        }
        let modes = [Mode::Lean, Mode::Optimized, Mode::Boosted, Mode::Stepped];
        let handlers = Handlers::ALL[sequence.below(4) as usize];
        let mut place = places[sequence.below(places.len() as u64) as usize];
        if handlers == Handlers::Arguments {
            // Handlers of arguments are mostly put on entries, where they make a difference: there are fewer entries
            // than other places.
            let is_entry = |place: &&ProbePlace| FUNCTIONS.iter().any(|function| function.address() == place.address);
            place =
                *places.iter().filter(is_entry).nth(sequence.below(FUNCTIONS.len() as u64) as usize).unwrap_or(&place);
        }
        Self::Instruction { place, handlers, fastest: modes[sequence.below(4) as usize] }
    }

    /// Returns the stretch that counts how often the probed code is executed.
    pub fn stretch(&self) -> (Group, usize) {
        match self {
            Self::Instruction { place, .. } => (place.group, place.counter),
            Self::Returns { function, .. } => (function.group, function.calls),
        }
    }
}

/// A registered probe.
pub struct Probe {
    handle: ProbeHandle,
    target: Target,
    watch: usize,
}

enum ProbeHandle {
    Instruction(Kprobe),
    Returns(Kretprobe),
}

impl Deref for Probe {
    type Target = Registration;

    fn deref(&self) -> &Registration {
        match &self.handle {
            ProbeHandle::Instruction(probe) => probe,
            ProbeHandle::Returns(probe) => probe,
        }
    }
}

impl Probe {
    /// Registers the probes of `orders`, each with the number of its watch. Several probes of a kind are registered at
    /// once.
    pub fn register(orders: &[(usize, Order)]) -> Vec<Self> {
        let mut instructions = Vec::new();
        let mut returns = Vec::new();
        for &(watch, Order { target, is_armed }) in orders {
            let data = Watch::begin(watch, is_armed);
            match target {
                Target::Instruction { place, handlers, fastest } => {
                    let builder = Kprobe::at(place.address).data(data).at_most(fastest);
                    let builder = match handlers {
                        Handlers::Before => builder.pre(watch::before),
                        Handlers::BeforeWithCalls => builder.pre(watch::before_with_calls),
                        Handlers::Arguments => builder.arguments(watch::at_entry),
                        Handlers::BeforeAndAfter => builder.pre(watch::before).post(watch::after),
                    };
                    instructions.push((watch, target, if is_armed { builder } else { builder.disabled() }));
                }
                Target::Returns { function, maxactive } => {
                    let builder = Kretprobe::at(function.address()).data(data).maxactive(maxactive);
                    let builder = builder.entry(watch::entry).handler(watch::returned).data_words(watch::DATA_WORDS);
                    returns.push((watch, target, if is_armed { builder } else { builder.disabled() }));
                }
            }
        }
        let mut probes = Vec::with_capacity(orders.len());
        let outcomes = match instructions.as_slice() {
            [(_, _, one)] => Vec::from([one.register()]),
            several => Kprobe::register_all(several.iter().map(|&(_, _, builder)| builder))
                .expect("there is memory for the lists"),
        };
        for ((watch, target, _), outcome) in instructions.into_iter().zip(outcomes) {
            probes.push(Self { handle: ProbeHandle::Instruction(registered(outcome)), target, watch });
        }
        let outcomes = match returns.as_slice() {
            [(_, _, one)] => Vec::from([one.register()]),
            several => Kretprobe::register_all(several.iter().map(|&(_, _, builder)| builder))
                .expect("there is memory for the lists"),
        };
        for ((watch, target, _), outcome) in returns.into_iter().zip(outcomes) {
            probes.push(Self { handle: ProbeHandle::Returns(registered(outcome)), target, watch });
        }
        probes
    }

    /// Unregisters probes, several of a kind at once. Returns the numbers of their watches.
    pub fn unregister(probes: Vec<Self>) -> Vec<usize> {
        let mut instructions = Vec::new();
        let mut returns = Vec::new();
        let mut watches = Vec::with_capacity(probes.len());
        for Self { handle, watch, .. } in probes {
            watches.push(watch);
            match handle {
                ProbeHandle::Instruction(probe) => instructions.push(probe),
                ProbeHandle::Returns(probe) => returns.push(probe),
            }
        }
        match (instructions.len(), instructions.pop()) {
            (1, Some(one)) => one.unregister(),
            (_, last) => {
                Kprobe::unregister_all(instructions.into_iter().chain(last));
            }
        }
        match (returns.len(), returns.pop()) {
            (1, Some(one)) => one.unregister(),
            (_, last) => {
                Kretprobe::unregister_all(returns.into_iter().chain(last));
            }
        }
        watches.iter().for_each(|&watch| Watch::of(watch).end());
        watches
    }

    /// Arms or disarms several probes at once.
    pub fn set_armed(probes: &[&Self], is_armed: bool) {
        if is_armed {
            probes.iter().for_each(|probe| Watch::of(probe.watch).set_armed(true));
        }
        Registration::set_all_enabled(probes.iter().map(|probe| &***probe), is_armed).expect("there is memory");
        if !is_armed {
            probes.iter().for_each(|probe| Watch::of(probe.watch).set_armed(false));
        }
    }

    /// Returns the place and the kind of the probe.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns the number of executions that the probe has counted, including missed ones.
    pub fn counted(&self) -> u64 {
        self.hits() + self.missed()
    }

    /// Checks that the handlers were called as often as the probe counts. The probe must be disarmed, or no CPU may hit
    /// it.
    pub fn check_calls(&self) {
        // A call in progress may return meanwhile. Once there is none, the counts are final.
        let is_over = self.active() == 0;
        let (before, after) = Watch::of(self.watch).calls();
        match self.target {
            Target::Instruction { place, handlers, .. } => {
                assert_eq!(before, self.hits(), "calls of the handler before {:#x}, and hits", place.address);
                let expected = if handlers == Handlers::BeforeAndAfter { before } else { 0 };
                assert_eq!(after, expected, "calls of the handler behind {:#x}", place.address);
            }
            // Calls in progress may still be reported.
            Target::Returns { function, .. } if is_over => {
                assert_eq!(after, self.hits(), "calls of the handler at the return of {}, and hits", function.name);
                assert!(before >= after, "{before} entries of {} and {after} returns", function.name);
            }
            Target::Returns { .. } => {}
        }
    }
}

fn registered<P>(outcome: Result<P, ProbeError>) -> P {
    outcome.unwrap_or_else(|error| panic!("{error}"))
}
