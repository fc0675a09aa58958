//! Probes on every instruction of programs that know nothing of probes: the programs compute the right answers, and
//! every instruction is counted as often as it is executed.
//!
//! The expected counts are determined in other ways, too: by the CPU's own software step, which needs no probe; by
//! probing half of the instructions at a time, so that no probe has a neighbour; and by the control flow, because all
//! instructions between two branches are executed equally often. Millions of steps take long, so a usual run does not
//! step through the larger program: there it does not see a wrong count that the other ways miss.
//!
//! Interrupts are masked during the counting, because interrupt handlers call functions of `core`, too.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::insn::{Control, Indirect, Op, Reason, Verdict, classify};
use aarch64_kprobes::{Hit, Kprobe, ProbeError, probe};
use kprobes_console::symbol;
use runtime::memory::layout;
use runtime::sync::{IrqLock, IrqMask};
use runtime::{println, workload};

use crate::{is_thorough, step, test};

/// Returns the functions of `crates`, and the functions of `core` and `alloc` that these call directly or indirectly.
fn functions_of(crates: &[&str]) -> Vec<Range<usize>> {
    let table = symbol::table().expect("the image has symbols");
    let range = |address: u64, size: u64| (address as usize, (address + size) as usize);
    let is_of = |name: &str, path: &str| {
        let name = name.trim_start_matches('<');
        name.strip_prefix(path).is_some_and(|rest| rest.starts_with("::"))
    };
    let mut found = BTreeSet::new();
    let mut pending: Vec<_> = table
        .iter()
        .filter(|symbol| crates.iter().any(|path| is_of(symbol.name, path)))
        .map(|symbol| range(symbol.address, symbol.size))
        .collect();
    while let Some((start, end)) = pending.pop() {
        if !found.insert((start, end)) {
            continue;
        }
        for address in (start..end).step_by(4) {
            if let Some(target) = target_of(address).filter(|target| !(start..end).contains(target)) {
                let called = symbol::lookup(target);
                let called = called.filter(|symbol| is_of(symbol.name, "core") || is_of(symbol.name, "alloc"));
                pending.extend(called.map(|symbol| range(symbol.address, symbol.size)));
            }
        }
    }
    found.into_iter().map(|(start, end)| start..end).collect()
}

fn word_at(address: usize) -> u32 {
    probe::instruction(address).expect("a function is in the text")
}

/// Returns the target of the branch at `address`, if the instruction contains it.
fn target_of(address: usize) -> Option<usize> {
    let word = word_at(address);
    match Control::after(word, classify(word)) {
        Control::Jump(offset) | Control::Either(offset) | Control::Call(offset) => {
            Some(address.wrapping_add_signed(offset as isize))
        }
        Control::Next | Control::Register { .. } => None,
    }
}

/// Returns whether control always continues with the next instruction after `address`, perhaps after a call.
fn goes_on(address: usize) -> bool {
    let word = word_at(address);
    let verdict = classify(word);
    if let Verdict::Reject(Reason::ExceptionGenerating | Reason::PermanentlyUndefined) = verdict {
        return false;
    }
    match Control::after(word, verdict) {
        Control::Next | Control::Call(_) => true,
        Control::Jump(_) | Control::Either(_) => false,
        Control::Register { kind, .. } => kind == Indirect::Call,
    }
}

static HITS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: &mut Hit<'_>) {
    HITS.fetch_add(1, Relaxed);
}

/// Runs `program` with probes on all `addresses` at once, and returns the number of hits of each.
fn hits_of(addresses: &[usize], program: fn() -> bool) -> Vec<u64> {
    let register = |&address: &usize| Kprobe::at(address).pre(count).register().expect("it has been checked");
    let probes: Vec<Kprobe> = addresses.iter().map(register).collect();
    // An allocation would hit probes in `alloc`. While hits are counted, this function does not allocate.
    let (mut before, mut hits) = (vec![0; probes.len()], vec![0; probes.len()]);
    let read = |counts: &mut [u64]| counts.iter_mut().zip(&probes).for_each(|(count, probe)| *count = probe.hits());
    let (right, total) = {
        let _mask = IrqMask::new();
        read(&mut before);
        let total = HITS.load(Relaxed);
        let right = program();
        let total = HITS.load(Relaxed) - total;
        read(&mut hits);
        (right, total)
    };
    assert!(right, "with probes the answer is wrong");
    hits.iter_mut().zip(before).for_each(|(hits, before)| *hits -= before);
    assert_eq!(hits.iter().sum::<u64>(), total, "the handler was called as often as the probes say");
    assert_eq!(probes.iter().map(|probe| probe.missed()).sum::<u64>(), 0);
    hits
}

/// The state of stepping through a program.
struct Steps {
    /// The number of executions of each word of the text.
    counts: Vec<u64>,
    /// The virtual address and the value of the last load-exclusive; `None` after a store-exclusive.
    monitor: Option<(u64, u64)>,
}

static STEPS: IrqLock<Steps> = IrqLock::new(Steps { counts: Vec::new(), monitor: None });

/// Counts the instruction that is about to be executed.
fn count_step(frame: &mut TrapFrame) {
    let mut steps = STEPS.lock();
    loop {
        steps.counts[(frame.pc as usize - layout::text().start) / 4] += 1;
        if !execute_exclusive(frame, &mut steps.monitor) {
            break;
        }
    }
}

/// Executes the instruction at `frame.pc` if it is a load-exclusive or a store-exclusive. An exception between the two
/// would make the store fail forever. The store succeeds if the memory still has the loaded value. It compares and
/// stores in one atomic step, because other CPUs may store meanwhile. A value that was changed and changed back goes
/// unnoticed, which is harmless for the atomic operations that the compiler generates.
fn execute_exclusive(frame: &mut TrapFrame, monitor: &mut Option<(u64, u64)>) -> bool {
    // SAFETY: the CPU is about to fetch the instruction from this address.
    let word = unsafe { (frame.pc as *const u32).read() };
    let register = |low: u32| (word >> low & 31) as u8;
    let (base, data, status) = (register(5), register(0), register(16));
    let address = if base == 31 { frame.sp } else { frame.register(base) };
    let is_load = word & 1 << 22 != 0;
    macro_rules! access {
        ($atomic:ty) => {{
            // SAFETY: the program is about to access this memory, and exclusive accesses are aligned.
            let memory = unsafe { &*(address as *const $atomic) };
            if is_load {
                let value = u64::from(memory.load(SeqCst));
                frame.set_register(data, value);
                *monitor = Some((address, value));
            } else {
                let new = frame.register(data) as _;
                let store = |(_, old)| memory.compare_exchange(old as _, new, SeqCst, SeqCst).is_ok();
                let is_stored = monitor.take().filter(|&(loaded, _)| loaded == address).is_some_and(store);
                frame.set_register(status, u64::from(!is_stored));
            }
        }};
    }
    // The masks select by size, and exclude pairs (C4.1.88).
    match word & 0xffa0_0000 {
        0x0800_0000 => access!(AtomicU8),
        0x4800_0000 => access!(AtomicU16),
        0x8800_0000 => access!(AtomicU32),
        0xc800_0000 => access!(AtomicU64),
        _ => return false,
    }
    frame.pc += 4;
    true
}

/// Returns how often `program` executes each of `addresses`, by stepping through it.
fn steps_of(addresses: &[usize], program: fn() -> bool) -> Vec<u64> {
    let text = layout::text();
    STEPS.lock().counts = vec![0; text.len() / 4];
    assert!(step::run(count_step, program), "step by step the answer is wrong");
    let steps = STEPS.lock();
    addresses.iter().map(|address| steps.counts[(address - text.start) / 4]).collect()
}

/// Checks that consecutive instructions are hit equally often, unless the first branches or the second is a branch
/// target. Returns the number of checked pairs.
pub fn check_flow(function: &Range<usize>, hits: impl Fn(usize) -> Option<u64>) -> usize {
    let instructions = || function.clone().step_by(4);
    let targets: BTreeSet<usize> = instructions().filter_map(target_of).collect();
    // The targets of such a branch are unknown.
    let has_jump = instructions().any(|address| {
        matches!(classify(word_at(address)), Verdict::Simulate(Op::BranchRegister { kind: Indirect::Jump, .. }))
    });
    let mut pairs = 0;
    for (address, next) in instructions().zip(instructions().skip(1)).filter(|&(address, _)| goes_on(address)) {
        let (Some(first), Some(second)) = (hits(address), hits(next)) else { continue };
        if targets.contains(&next) || has_jump {
            assert!(second >= first, "{} is hit {first} times, the next {second} times", symbol::Symbolic(address));
        } else {
            assert_eq!(first, second, "hits of {} and of the next", symbol::Symbolic(address));
            pairs += 1;
        }
    }
    pairs
}

/// Compares the counts of a workload, with those of stepping through it if `is_stepped`.
fn compare(name: &str, crates: &[&str], is_stepped: bool) {
    let program = workload::find(name).expect("there is such a workload").iterate;
    let functions = functions_of(crates);
    let mut addresses = Vec::new();
    let mut refused = 0;
    for address in functions.iter().flat_map(|function| function.clone().step_by(4)) {
        match probe::check(address) {
            Ok(_) => addresses.push(address),
            Err(ProbeError::Instruction { .. } | ProbeError::Exclusive { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    println!("{} functions, {} instructions, and {refused} that are refused", functions.len(), addresses.len());
    let all = hits_of(&addresses, program);
    println!("{} hits of {}", all.iter().sum::<u64>(), all.iter().filter(|&&hits| hits != 0).count());

    if is_stepped {
        let stepped = steps_of(&addresses, program);
        for ((&address, hits), steps) in addresses.iter().zip(&all).zip(&stepped) {
            assert_eq!(hits, steps, "hits and steps of {}", symbol::Symbolic(address));
        }
    }

    let half = |parity: usize| -> Vec<usize> { addresses.iter().copied().skip(parity).step_by(2).collect() };
    let sum: u64 = [0, 1].iter().flat_map(|&parity| hits_of(&half(parity), program)).sum();
    assert_eq!(sum, all.iter().sum::<u64>(), "the hits of the halves");

    let hits = |address: usize| addresses.binary_search(&address).ok().map(|index| all[index]);
    let pairs: usize = functions.iter().map(|function| check_flow(function, hits)).sum();
    println!("{pairs} pairs of instructions between branches");
    assert!(pairs > addresses.len() / 4);
}

test!(
    fn every_instruction_of_sha256() {
        compare("sha256", &["sha2", "digest", "block_buffer"], true);
    }
);

test!(
    fn every_instruction_of_deflate() {
        compare("deflate", &["miniz_oxide", "adler2"], is_thorough());
    }
);
