//! Finds out whether a function may wait for another CPU, or take a lock.
//!
//! Locks cannot be recognized in instructions, but the ways to take one can. To take a lock, code needs an atomic
//! access that acquires what the last holder released; to wait for one, it needs a loop that looks at memory again and
//! again. So a function is suspected if it has
//!
//! - an atomic read-modify-write with acquire semantics: LDAXR and its kin, or an LSE atomic with A;
//! - one that compares: CAS, or a branch between a load-exclusive and its store;
//! - a loop, other than the retry of a failed store-exclusive, with a load-acquire in it, or an instruction that pauses
//!   (YIELD, WFE, ISB), or an atomic access that a barrier in the function makes an acquire;
//! - a loop that only reads, and reads the same addresses in every turn.
//!
//! A counter (LDXR, ADD, STXR, and again if that failed) is none of these. A suspected function has to be declared: as
//! a lock, or as free of locks.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use aarch64_kprobes::insn::{
    MemoryAccess, Op, RegisterAccess, Registers, Synchronization, Verdict, classify, is_load_or_store, is_prefetch,
    synchronization,
};

use super::{
    executable::Executable,
    flow::{Flow, flow},
    register_values::{RegisterValues, Value},
};

/// The edges between the instructions of a function.
type Edges = BTreeMap<u64, Vec<u64>>;

/// Returns the first instruction, by address, that makes the function a suspect, and why.
pub fn find(
    executable: &Executable,
    successors: &Edges,
    states: &BTreeMap<u64, RegisterValues>,
) -> Option<(u64, &'static str)> {
    let atomics: BTreeMap<u64, Synchronization> =
        states.keys().filter_map(|&at| Some((at, synchronization(executable.word(at)?)?))).collect();
    let acquiring = atomics.iter().find_map(|(&at, atomic)| match atomic {
        Synchronization::LoadExclusive { acquire: true } => Some((at, "acquires")),
        Synchronization::LoadExclusive { acquire: false } if compares(executable, &atomics, at) => {
            Some((at, "compares"))
        }
        Synchronization::Atomic { acquires: true } => Some((at, "acquires or compares")),
        _ => None,
    });
    acquiring.or_else(|| waiting_loop(executable, successors, states, &atomics))
}

/// Whether there is a branch between the load-exclusive at `load` and its store.
fn compares(executable: &Executable, atomics: &BTreeMap<u64, Synchronization>, load: u64) -> bool {
    let mut at = load + 4;
    loop {
        match executable.word(at).map(flow) {
            Some(Flow::Next) if matches!(atomics.get(&at), Some(Synchronization::StoreExclusive { .. })) => {
                return false;
            }
            Some(Flow::Next) => at += 4,
            _ => return true,
        }
    }
}

fn waiting_loop(
    executable: &Executable,
    successors: &Edges,
    states: &BTreeMap<u64, RegisterValues>,
    atomics: &BTreeMap<u64, Synchronization>,
) -> Option<(u64, &'static str)> {
    let has_barrier = atomics.values().any(|atomic| *atomic == Synchronization::Barrier);
    let edges = without_retries(executable, successors, atomics);
    for members in cycles(&edges) {
        for at in &members {
            let why = match atomics.get(at) {
                Some(Synchronization::LoadAcquire) => "is a load-acquire in a loop",
                Some(Synchronization::Pause) => "pauses in a loop",
                Some(Synchronization::LoadExclusive { .. } | Synchronization::Atomic { .. }) if has_barrier => {
                    "is an atomic access in a loop, with a barrier in the function"
                }
                _ => continue,
            };
            return Some((*at, why));
        }
        if let Some(at) = rereads(executable, states, &members) {
            return Some((at, "reads the same address in each iteration of a loop that stores nothing"));
        }
    }
    None
}

/// Returns the edges without those that repeat an exclusive pair after a failed store: CBNZ of the status, directly
/// after the store, back to the load or to the instructions before it that compute nothing but the address.
fn without_retries(executable: &Executable, successors: &Edges, atomics: &BTreeMap<u64, Synchronization>) -> Edges {
    let mut edges = successors.clone();
    for (&store, atomic) in atomics {
        let Synchronization::StoreExclusive { status } = atomic else { continue };
        let branch = store + 4;
        let is_retry = match executable.word(branch).map(classify) {
            Some(Verdict::Simulate(Op::CompareBranch { rt, wide: false, nonzero: true, .. })) => rt == *status,
            _ => false,
        };
        let loads: BTreeSet<u64> = atomics
            .iter()
            .filter(|(at, atomic)| **at < store && matches!(atomic, Synchronization::LoadExclusive { .. }))
            .map(|(at, _)| *at)
            .collect();
        if is_retry && let Some(targets) = edges.get_mut(&branch) {
            targets.retain(|target| !loads.contains(target));
        }
    }
    edges
}

/// Returns the loops: the largest sets of instructions each of which leads to every other.
fn cycles(edges: &Edges) -> Vec<BTreeSet<u64>> {
    // Kosaraju's algorithm: the instructions are taken in the reverse order in which the search finishes with them, and
    // each finds its component along the reversed edges.
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for &start in edges.keys() {
        let mut stack = vec![(start, false)];
        while let Some((at, finished)) = stack.pop() {
            if finished {
                order.push(at);
            } else if seen.insert(at) {
                stack.push((at, true));
                stack.extend(edges.get(&at).into_iter().flatten().map(|&next| (next, false)));
            }
        }
    }
    let mut back = Edges::new();
    for (&from, targets) in edges {
        targets.iter().for_each(|&to| back.entry(to).or_default().push(from));
    }
    let mut components = Vec::new();
    let mut placed = BTreeSet::new();
    for &start in order.iter().rev() {
        let mut members = BTreeSet::new();
        let mut stack = vec![start];
        while let Some(at) = stack.pop() {
            if placed.insert(at) {
                members.insert(at);
                stack.extend(back.get(&at).into_iter().flatten());
            }
        }
        let is_loop = members.len() > 1 || edges.get(&start).is_some_and(|targets| targets.contains(&start));
        if is_loop && !members.is_empty() {
            components.push(members);
        }
    }
    components
}

/// Returns the first load of a loop that only reads addresses that do not change in it. `None` for other loops.
fn rereads(executable: &Executable, states: &BTreeMap<u64, RegisterValues>, members: &BTreeSet<u64>) -> Option<u64> {
    let mut loads = Vec::new();
    let mut written = Registers::NONE;
    for &at in members {
        let word = executable.word(at)?;
        match flow(word) {
            Flow::Next => {}
            Flow::Jump(_) | Flow::Condition(_) | Flow::JumpRegister(_) => continue,
            _ => return None,
        }
        let address = Cell::new(Registers::NONE);
        let access = MemoryAccess::of(word, at, 0, |number| {
            address.set(address.get() | Registers::x(number));
            0
        });
        let RegisterAccess { reads, writes } = RegisterAccess::of(word);
        match (classify(word), access) {
            (Verdict::Simulate(Op::LoadLiteral { .. }), _) => loads.push((at, Registers::NONE)),
            (_, Some(access)) if access.stores => return None,
            (_, Some(_)) => loads.push((at, address.get())),
            // An unknown instruction is a load if it writes a general register, as LDRAA does. Otherwise it may be a
            // store.
            (_, None) if is_load_or_store(word) && !is_prefetch(word) => match writes.is_empty() {
                true => return None,
                false => loads.push((at, reads)),
            },
            (_, None) => {}
        }
        written = written | writes;
    }
    let moves = |&(at, address): &(u64, Registers)| {
        let changes = |number: u8| {
            let is_constant = matches!(states[&at].get(number), Value::Constant(_));
            (address & written).intersects(Registers::x(number)) && !is_constant
        };
        (0..31).any(changes)
    };
    let (first, _) = *loads.first()?;
    loads.iter().all(|load| !moves(load)).then_some(first)
}
