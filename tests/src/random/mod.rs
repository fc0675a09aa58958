//! Random words, executed in place and under a probe, with random registers: all observable results are the same,
//! namely the registers, the flags, the masks, the next address and the memory.
//!
//! Every word is executed in place, then with a probe that has only a pre-handler, then with one that has a
//! post-handler, too. The handlers check that they see the registers as they are before and after.
//!
//! Words that are independent of x9 to x17 and the flags are executed once more, each as the first instruction of a
//! function, with a handler that sees what a call passes. All other registers must be the same then.
//!
//! The test command runs a few thousand words of each kind. The seed and the number of words are chosen when the image
//! is built, and a test prints both:
//!
//! ```text
//! RANDOM_WORDS=100000 RANDOM_SEED=1 cargo xtask test --timeout 3600 random
//! ```
//!
//! Each word is executed with [`SETS`] sets of registers.

pub mod arena;
pub mod features;
mod words;

use alloc::vec::Vec;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::insn::Verdict;
use aarch64_kprobes::probe::{self, CallArguments, Mode};
use aarch64_kprobes::{Hit, Kprobe};
use runtime::println;

use crate::{parameter, test};
use arena::{Arena, CELLS, MEMORY, Outcome};
use features::Features;
use kprobes_random::Random;
use words::{Case, Class, Need, WordContext};

/// The number of sets of registers for every word.
const SETS: usize = 4;
/// The bits of PSTATE that are compared: N, Z, C, V, D, A, I and F.
const COMPARED: u64 = 0b1111 << 28 | TrapFrame::DAIF;

/// A word in its cell, with its inputs and its results in place.
struct Trial {
    class: &'static Class,
    address: usize,
    word: u32,
    cases: Vec<(Case, Outcome, u64)>,
}

/// The registers that the handlers saw last.
struct Seen(UnsafeCell<[TrapFrame; 2]>);

// SAFETY: a test has one task, which reads this when no handler runs.
unsafe impl Sync for Seen {}

static SEEN: Seen = Seen(UnsafeCell::new([TrapFrame::ZERO; 2]));
/// The numbers of calls of the pre-handler and of the post-handler.
static CALLS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn see(which: usize, hit: &Hit<'_>) {
    CALLS[which].fetch_add(1, Relaxed);
    // SAFETY: handlers do not interrupt each other, and the task is in a probe and so does not access it.
    unsafe { (*SEEN.0.get())[which] = *hit.frame() };
    lose_registers();
}

/// Overwrites the registers that a called function may change.
#[inline(always)]
pub fn lose_registers() {
    // A handler may use any of these registers, so a register that the exception does not restore stays overwritten.
    //
    // SAFETY: the assembly changes only registers that a call may change, and declares them.
    unsafe {
        asm!(
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18",
            "mov x\\n, #-77",
            ".endr",
            "msr nzcv, x0",
            clobber_abi("C"),
            options(nomem, nostack),
        );
    }
}

extern "C" fn before(hit: &mut Hit<'_>) {
    see(0, hit);
}

extern "C" fn after(hit: &mut Hit<'_>) {
    see(1, hit);
}

/// The first register, and the number of registers, that a called function may change and that a probe does not restore
/// if its handler sees only what a call passes.
const LOST: (usize, usize) = (9, 9);
/// The bits of PSTATE that are compared for such a probe.
const KEPT: u64 = COMPARED & !TrapFrame::FLAGS;

/// The registers that the handler saw last: x0 to x8, x29, x30, sp, pc.
struct Passed(UnsafeCell<[u64; 13]>);

// SAFETY: a test has one task, which reads this when no handler runs.
unsafe impl Sync for Passed {}

static PASSED: Passed = Passed(UnsafeCell::new([0; 13]));

extern "C" fn entered(call: &CallArguments) {
    CALLS[0].fetch_add(1, Relaxed);
    let [x0, x1, x2, x3, x4, x5, x6, x7] = *call.arguments();
    let (x8, x29, x30) = (call.indirect_result(), call.frame_pointer(), call.return_address());
    let seen = [x0, x1, x2, x3, x4, x5, x6, x7, x8, x29, x30, call.stack_pointer(), call.address() as u64];
    // SAFETY: handlers do not interrupt each other, and the task is in a probe and so does not access it.
    unsafe { *PASSED.0.get() = seen };
    lose_registers();
}

/// Returns the registers that are preserved; the others are cleared.
fn kept(frame: &TrapFrame) -> TrapFrame {
    let mut kept = *frame;
    kept.x[LOST.0..][..LOST.1].fill(0);
    kept.pstate &= KEPT;
    kept
}

/// Returns the index of the first word of memory that is compared.
fn counted(case: &Case, arena: &Arena) -> usize {
    let start = arena.memory().start as u64;
    (case.live.saturating_sub(start) as usize).div_ceil(8).min(MEMORY)
}

/// Executes words of `classes`, which are either all simulated or all not.
fn compare(classes: &'static [Class], simulated: bool) {
    let seed = parameter("RANDOM_SEED", option_env!("RANDOM_SEED"), 0x5eed);
    let count = parameter("RANDOM_WORDS", option_env!("RANDOM_WORDS"), 2048);
    println!("seed {seed}, {count} words, {SETS} sets of registers each");
    let mut sequence = Random::new(seed);
    let arena = Arena::new(&mut sequence);
    let features = Features::read();
    let classes: Vec<_> = Class::present(classes, &features).collect();
    let mut memory = [0; MEMORY];
    let mut done = 0;
    let mut entries = 0;
    while done < count {
        memory.fill_with(|| sequence.next());
        let cells = CELLS.min((count - done) as usize);
        let mut chosen: Vec<(&Class, u32, Need)> = Vec::with_capacity(cells);
        for cell in 0..cells {
            let address = arena.cell(cell);
            let mut context = WordContext { sequence: &mut sequence, arena: &arena, features: &features, address };
            let class = classes[(done as usize + cell) % classes.len()];
            let (word, need) = class.word(&mut context);
            chosen.push((class, word, need));
        }
        arena.lay_out(&chosen.iter().map(|&(_, word, _)| word).collect::<Vec<_>>());
        let trials: Vec<Trial> = chosen
            .into_iter()
            .enumerate()
            .map(|(cell, (class, word, need))| {
                let address = arena.cell(cell);
                let mut context = WordContext { sequence: &mut sequence, arena: &arena, features: &features, address };
                let cases = (0..SETS)
                    .map(|_| {
                        let case = context.case(need);
                        let outcome = arena.run(&case.before, &memory);
                        (case, outcome, features.processor_state())
                    })
                    .collect();
                Trial { class, address, word, cases }
            })
            .collect();
        for trial in &trials {
            let site = probe::check(trial.address).unwrap_or_else(|error| panic!("{}: {error}", trial.class.name));
            assert_eq!(matches!(site.verdict, Verdict::Simulate(_)), simulated, "{}", trial.name());
        }
        // A post-handler makes the instruction stepped or simulated.
        for (with_post, fastest) in [(true, Mode::Optimized), (false, Mode::Boosted), (false, Mode::Optimized)] {
            let probes: Vec<Kprobe> = trials
                .iter()
                .map(|trial| {
                    let builder = Kprobe::at(trial.address).pre(before).at_most(fastest);
                    let builder = if with_post { builder.post(after) } else { builder };
                    builder.register().expect("it has been checked")
                })
                .collect();
            for (trial, probe) in trials.iter().zip(&probes) {
                trial.run_again(&arena, &features, &memory, with_post, fastest);
                assert_eq!((probe.hits(), probe.missed()), (SETS as u64, 0), "{}", trial.name());
            }
        }
        let independent = trials.iter().filter(|trial| trial.is_independent(&arena, &memory));
        for trial in independent {
            let probe = Kprobe::at(trial.address).arguments(entered).register().expect("it has been checked");
            trial.run_as_entry(&arena, &memory);
            assert_eq!((probe.hits(), probe.missed()), (SETS as u64, 0), "{}", trial.name());
            entries += 1;
        }
        done += cells as u64;
    }
    println!("{} executions in place and {} under probes", count * SETS as u64, 3 * count * SETS as u64);
    println!("{} executions as the first instruction of a function", entries * SETS as u64);
    assert!(entries > 0);
}

impl Trial {
    fn name(&self) -> alloc::string::String {
        alloc::format!("{} {:#010x} at {:#x}", self.class.name, self.word, self.address)
    }

    /// Returns whether the word is independent of the registers that are lost and of the flags: none of its register
    /// fields names such a register, and its results are the same with all flags.
    fn is_independent(&self, arena: &Arena, memory: &[u64; MEMORY]) -> bool {
        let names = [0, 5, 10, 16].map(|shift| (self.word >> shift & 31) as usize);
        if names.iter().any(|name| (LOST.0..LOST.0 + LOST.1).contains(name)) {
            return false;
        }
        self.cases.iter().all(|(case, expected, _)| {
            let counted = counted(case, arena);
            (0..16).all(|flags| {
                let mut before = case.before;
                before.pstate = before.pstate & !TrapFrame::FLAGS | flags << 28;
                let outcome = arena.run(&before, memory);
                kept(&outcome.frame) == kept(&expected.frame) && outcome.memory[counted..] == expected.memory[counted..]
            })
        })
    }

    /// Executes the word with a probe that sees what a call passes, and compares the preserved results.
    fn run_as_entry(&self, arena: &Arena, memory: &[u64; MEMORY]) {
        for (case, expected, _) in &self.cases {
            let calls = CALLS[0].load(Relaxed);
            let outcome = arena.run(&case.before, memory);
            let (found, expected_frame) = (kept(&outcome.frame), kept(&expected.frame));
            assert_eq!(found, expected_frame, "{}: other registers, from {:#x?}", self.name(), case.before);
            let counted = counted(case, arena);
            assert_eq!(outcome.memory[counted..], expected.memory[counted..], "{}: other memory", self.name());
            assert_eq!(CALLS[0].load(Relaxed) - calls, 1, "{}", self.name());
            // SAFETY: no handler is running.
            let seen = unsafe { *PASSED.0.get() };
            let TrapFrame { x, sp, pc, .. } = case.before;
            assert_eq!(seen[..9], x[..9], "{}: the handler saw other arguments", self.name());
            assert_eq!(seen[9..], [x[29], x[30], sp, pc], "{}: the handler saw other registers", self.name());
        }
    }

    /// Executes the word with its probe, and compares the results.
    fn run_again(&self, arena: &Arena, features: &Features, memory: &[u64; MEMORY], with_post: bool, fastest: Mode) {
        for (case, expected, expected_state) in &self.cases {
            let calls = [CALLS[0].load(Relaxed), CALLS[1].load(Relaxed)];
            let outcome = arena.run(&case.before, memory);
            let state = features.processor_state();
            let describe = |what: &str| {
                println!("{}: {what} with a probe, {fastest} at most, post-handler: {with_post}", self.name());
                println!("before:   {:#x?}", case.before);
                println!("in place: {:#x?}", expected.frame);
                println!("probed:   {:#x?}", outcome.frame);
                panic!("{}: {what}", self.name());
            };
            if outcome.frame != expected.frame {
                describe("other registers");
            }
            if state != *expected_state {
                describe("another state of the processor");
            }
            let counted = counted(case, arena);
            if outcome.memory[counted..] != expected.memory[counted..] {
                describe("other memory");
            }
            assert_eq!(CALLS[0].load(Relaxed) - calls[0], 1, "{}", self.name());
            assert_eq!(CALLS[1].load(Relaxed) - calls[1], u64::from(with_post), "{}", self.name());
            // SAFETY: no handler is running.
            let [first, second] = unsafe { *SEEN.0.get() };
            if (first.x, first.sp, first.pc, first.pstate)
                != (case.before.x, case.before.sp, case.before.pc, case.before.pstate)
            {
                describe("the pre-handler saw other registers");
            }
            let expected = &expected.frame;
            if with_post
                && (second.x, second.sp, second.pc, second.pstate & COMPARED)
                    != (expected.x, expected.sp, expected.pc, expected.pstate)
            {
                describe("the post-handler saw other registers");
            }
        }
    }
}

test!(
    depends(core),
    fn simulated_instructions() {
        compare(words::SIMULATED, true);
    }
);

test!(
    depends(core, entry),
    fn data_processing() {
        compare(words::PROCESSING, false);
    }
);

test!(
    depends(core),
    fn loads_and_stores() {
        compare(words::MEMORY, false);
    }
);

test!(
    depends(core, entry),
    fn system_instructions() {
        compare(words::SYSTEM, false);
    }
);
