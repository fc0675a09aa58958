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

use std::collections::{BTreeMap, BTreeSet};

use aarch64_kprobes::insn::{Op, Verdict, classify};

use super::{
    executable::Executable,
    instruction::{Flow, Synchronization, flow},
    registers::{Registers, Value},
    scan::kind,
};

/// The edges between the instructions of a function.
type Edges = BTreeMap<u64, Vec<u64>>;

/// Returns the first instruction, by address, that makes the function a suspect, and why.
pub fn find(
    executable: &Executable,
    successors: &Edges,
    states: &BTreeMap<u64, Registers>,
) -> Option<(u64, &'static str)> {
    let atomics: BTreeMap<u64, Synchronization> =
        states.keys().filter_map(|&at| Some((at, kind(executable, at)?))).collect();
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
    states: &BTreeMap<u64, Registers>,
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
fn rereads(executable: &Executable, states: &BTreeMap<u64, Registers>, members: &BTreeSet<u64>) -> Option<u64> {
    let mut loads = Vec::new();
    let mut written = BTreeSet::new();
    for &at in members {
        let word = executable.word(at)?;
        match flow(word) {
            Flow::Next => {}
            Flow::Jump(_) | Flow::Condition(_) | Flow::JumpRegister(_) => continue,
            _ => return None,
        }
        // Loads and stores are the group x1x0 in bits 28 to 25 (C4.1).
        if word >> 25 & 0b0101 == 0b0100 {
            if !is_plain_load(word) {
                return None;
            }
            loads.push((at, word));
        }
        written.insert(word & 0x1f);
        if word & 0x3a40_0000 == 0x2840_0000 {
            written.insert(word >> 10 & 0x1f);
        }
    }
    let changes = |at: u64, number: u32| {
        let is_constant = matches!(states[&at].get(number as u8), Value::Constant(_));
        written.contains(&number) && !is_constant
    };
    let moves = |&(at, word): &(u64, u32)| {
        let by_register = word & 0x3b20_0c00 == 0x3820_0800;
        changes(at, word >> 5 & 0x1f) || by_register && changes(at, word >> 16 & 0x1f)
    };
    let (first, _) = *loads.first()?;
    loads.iter().all(|load| !moves(load)).then_some(first)
}

/// Whether the word, of the group of loads and stores, only loads, without writing its base back.
fn is_plain_load(word: u32) -> bool {
    let literal = word & 0x3b00_0000 == 0x1800_0000;
    let pair = word & 0x3a40_0000 == 0x2840_0000 && word >> 23 & 1 == 0;
    let one = word & 0x3800_0000 == 0x3800_0000 && word >> 22 & 0b11 != 0;
    // LDRAA and LDRAB are pre-indexed if bit 11 is set.
    let writes_back = word & 0x3b20_0400 == 0x3800_0400 || word & 0xff20_0c00 == 0xf820_0c00;
    let atomic = word & 0x3b20_0c00 == 0x3820_0000;
    literal || pair || one && !writes_back && !atomic
}

#[cfg(test)]
mod tests {
    use super::is_plain_load;

    #[test]
    fn a_plain_load_leaves_its_base_as_it_is() {
        // LDR, LDP and LDRAB at an offset.
        for word in [0xf940_0001, 0xa940_0801, 0xf8a0_0401] {
            assert!(is_plain_load(word), "{word:#x}");
        }
        // STR; LDR, LDP, LDRAA and LDRAB that are pre- or post-indexed; LDADD.
        for word in [0xf900_0001, 0xf840_8c01, 0xf840_8401, 0xa8c1_0801, 0xf860_0c20, 0xf8a0_0c01, 0xf8e2_0001] {
            assert!(!is_plain_load(word), "{word:#x}");
        }
    }
}
