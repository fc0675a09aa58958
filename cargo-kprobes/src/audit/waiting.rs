//! Finds out whether a function may wait for another CPU, or take a lock.
//!
//! Locks cannot be recognized in instructions, but the ways to take one can. To take a lock, code needs an atomic
//! access that acquires what the last holder released; to wait for one, it needs a loop that looks at memory again and
//! again. So a function is suspected if it has
//!
//! - an atomic read-modify-write with acquire semantics: LDAXR and its kin, or an LSE atomic with A;
//! - one that compares: CAS, or a branch between a load-exclusive and its store;
//! - a loop, other than the retry of a failed store-exclusive, with a load-acquire in it, or an instruction that pauses
//!   (YIELD, WFE, WFI, WFET, WFIT, ISB), or an atomic access that a barrier in the function makes an acquire;
//! - a loop that only reads, and reads the same addresses in every turn.
//!
//! A counter (LDXR, ADD, STXR, and again if that failed) is none of these. A suspected function has to be declared: as
//! a lock, or as free of locks.
//!
//! In loops, and as a barrier, an instruction of an outlined function counts as if it stood at the call.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use aarch64_kprobes::insn::{
    MemoryAccess, Op, RegisterAccess, Registers, Synchronization, Verdict, classify, is_load_or_store, is_prefetch,
    synchronization,
};

use super::{
    executable::Executable,
    flow::{Flow, LINK, flow},
    register_values::{RegisterValues, Value},
};

/// `str x30, [sp, #-16]!` and `ldr x30, [sp], #16`, by which the outliner keeps the link register across the call of an
/// outlined function.
const KEEP_LINK: [u32; 2] = [0xf81f_0ffe, 0xf841_07fe];

/// The edges between the instructions of a function.
type Edges = BTreeMap<u64, Vec<u64>>;

/// The instructions that a function executes in outlined functions, each with its address and the values before it. The
/// key is the address of the call; or, if the function goes on in an outlined function, the address of that one.
pub type OutlinedWords = BTreeMap<u64, Vec<(u64, RegisterValues)>>;

/// Returns the first instruction, by address, that makes the function a suspect, and why. In outlined functions, only
/// instructions in loops of their caller count here, because outlined functions are searched by themselves, too.
pub fn find(
    executable: &Executable,
    successors: &Edges,
    states: &BTreeMap<u64, RegisterValues>,
    outlined: &OutlinedWords,
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
    acquiring.or_else(|| waiting_loop(executable, successors, states, &atomics, outlined))
}

/// Returns those of these instructions of outlined functions that take part in synchronization.
fn synchronizing(executable: &Executable, words: &[(u64, RegisterValues)]) -> Vec<(u64, Synchronization)> {
    words.iter().filter_map(|&(at, _)| Some((at, synchronization(executable.word(at)?)?))).collect()
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
    outlined: &OutlinedWords,
) -> Option<(u64, &'static str)> {
    let in_outlined: BTreeMap<u64, Vec<(u64, Synchronization)>> =
        outlined.iter().map(|(&at, words)| (at, synchronizing(executable, words))).collect();
    let mut all = atomics.values().chain(in_outlined.values().flatten().map(|(_, atomic)| atomic));
    let has_barrier = all.any(|atomic| *atomic == Synchronization::Barrier);
    let edges = without_retries(executable, successors, atomics, outlined);
    for members in cycles(&edges) {
        for at in &members {
            let own = atomics.get(at).map(|atomic| (*at, *atomic));
            for (at, atomic) in own.into_iter().chain(in_outlined.get(at).into_iter().flatten().copied()) {
                let why = match atomic {
                    Synchronization::LoadAcquire => "is a load-acquire in a loop",
                    Synchronization::Pause => "pauses in a loop",
                    Synchronization::LoadExclusive { .. } | Synchronization::Atomic { .. } if has_barrier => {
                        "is an atomic access in a loop, with a barrier in the function"
                    }
                    _ => continue,
                };
                return Some((at, why));
            }
        }
        if let Some(at) = rereads(executable, states, outlined, &members) {
            return Some((at, "reads the same address in each iteration of a loop that stores nothing"));
        }
    }
    None
}

/// Returns the edges without those that repeat an exclusive pair after a failed store: CBNZ of the status, directly
/// after the store, back to a load-exclusive before it. If an outlined function consists of the pair, its call is both.
fn without_retries(
    executable: &Executable,
    successors: &Edges,
    atomics: &BTreeMap<u64, Synchronization>,
    outlined: &OutlinedWords,
) -> Edges {
    let mut edges = successors.clone();
    let own = atomics.iter().filter_map(|(&store, atomic)| {
        let &Synchronization::StoreExclusive { status } = atomic else { return None };
        let loads: BTreeSet<u64> = atomics
            .iter()
            .filter(|(at, atomic)| **at < store && matches!(atomic, Synchronization::LoadExclusive { .. }))
            .map(|(at, _)| *at)
            .collect();
        Some((store, status, loads))
    });
    let called = outlined.iter().filter_map(|(&call, words)| {
        let part = |&(at, _): &(u64, RegisterValues)| synchronization(executable.word(at)?);
        match (part(words.first()?)?, part(words.last()?)?) {
            (Synchronization::LoadExclusive { .. }, Synchronization::StoreExclusive { status }) => {
                Some((call, status, BTreeSet::from([call])))
            }
            _ => None,
        }
    });
    for (store, status, loads) in own.chain(called) {
        let branch = store + 4;
        let is_retry = match executable.word(branch).map(classify) {
            Some(Verdict::Simulate(Op::CompareBranch { rt, wide: false, nonzero: true, .. })) => rt == status,
            _ => false,
        };
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
fn rereads(
    executable: &Executable,
    states: &BTreeMap<u64, RegisterValues>,
    outlined: &OutlinedWords,
    members: &BTreeSet<u64>,
) -> Option<u64> {
    let mut reads = LoopReads::default();
    for &member in members {
        match flow(executable.word(member)?) {
            Flow::Next => reads.add(executable, slice::from_ref(&(member, states[&member])))?,
            Flow::Jump(_) | Flow::Condition(_) | Flow::JumpRegister(_) => {}
            Flow::Call(_) => {
                reads.written = reads.written | Registers::x(LINK);
                reads.add(executable, outlined.get(&member)?)?;
            }
            _ => return None,
        }
    }
    let (first, _) = *reads.loads.first()?;
    let moves = |&(_, address): &(u64, Registers)| address.intersects(reads.written);
    (!reads.loads.iter().any(moves)).then_some(first)
}

/// The loads of a loop.
#[derive(Default)]
struct LoopReads {
    /// The loads, each with the registers that make up its address. A register with a known value is left out.
    loads: Vec<(u64, Registers)>,
    /// All registers that are written in the loop.
    written: Registers,
}

impl LoopReads {
    /// Adds instructions that follow each other, each with its address and the values before it. `None` if one of them
    /// may store, or is a branch.
    fn add(&mut self, executable: &Executable, words: &[(u64, RegisterValues)]) -> Option<()> {
        for (at, values) in words {
            let word = executable.word(*at)?;
            if flow(word) != Flow::Next {
                return None;
            }
            let RegisterAccess { reads, writes } = RegisterAccess::of(word);
            self.written = self.written | writes;
            if KEEP_LINK.contains(&word) {
                continue;
            }
            let address = Cell::new(Registers::NONE);
            let access = MemoryAccess::of(word, *at, 0, |number| {
                address.set(address.get() | Registers::x(number));
                0
            });
            let address = match (classify(word), access) {
                (Verdict::Simulate(Op::LoadLiteral { .. }), _) => Registers::NONE,
                (_, Some(access)) if access.stores => return None,
                (_, Some(_)) => address.get(),
                // An unknown instruction is a load if it writes a general register, as LDRAA does. Otherwise it may be
                // a store.
                (_, None) if is_load_or_store(word) && !is_prefetch(word) => match writes.is_empty() {
                    true => return None,
                    false => reads,
                },
                (_, None) => continue,
            };
            let is_unknown = |number: &u8| !matches!(values.get(*number), Value::Constant(_));
            let unknown = (0..=LINK).filter(is_unknown).map(Registers::x).fold(Registers::NONE, Registers::with);
            self.loads.push((*at, address & unknown));
        }
        Some(())
    }
}
