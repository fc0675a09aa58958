//! Backtraces of code that is interrupted at any of its instructions, in slots, in stubs and in the trampoline are the
//! same as without probes, and so are the registers that functions preserve.
//!
//! The CPU steps through functions of the fixtures. Code that it executes with debug exceptions masked cannot be
//! interrupted either.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::{Deref, Range};
use core::{array, mem};

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::insn::encode::compute::Branch;
use aarch64_kprobes::probe::{self, CallArguments, CallResult, Insertion, Mode, Registration, Snippet, Step};
use aarch64_kprobes::{Call, Decision, Hit, Kprobe, Kretprobe};
use kprobes_console::symbol;
use runtime::memory::layout;
use runtime::sync::IrqLock;
use runtime::{backtrace, println, sampling};

use crate::fixture::{self, Fixture};
use crate::{step, test};

/// The functions to step through, with their arguments.
pub const PROGRAMS: [(Fixture, u64); 15] = [
    (fixture::ADDRESSES, 5),
    (fixture::FAR, 5),
    (fixture::END_OF_PAGE, 5),
    (fixture::LITERALS, 5),
    (fixture::BRANCHES, 0),
    (fixture::BRANCHES, !0),
    (fixture::CALLS, 5),
    (fixture::CALLEE, 5),
    // It moves the argument to x19, and no caller has this number there.
    (fixture::ORDINARY, 0x0123_4567_89ab_cdef),
    (fixture::STACK_POINTER, 5),
    (fixture::IDENTITY, 5),
    (fixture::TAIL_CALL, 5),
    (fixture::CONDITIONAL_TAIL_CALL, 0),
    (fixture::COUNT_DOWN, 3),
    (fixture::LAST_CALL, 5),
];

/// The number of addresses of a backtrace that are compared.
pub const DEPTH: usize = 24;

/// The state before an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sample {
    backtrace: [usize; DEPTH],
    /// Which of x19 to x28 are as before the first instruction.
    are_preserved: [bool; 10],
}

struct Samples {
    all: Vec<Sample>,
    /// x19 to x28 before the first instruction.
    before: Option<[u64; 10]>,
    /// The addresses of the instructions.
    places: Vec<usize>,
}

impl Samples {
    const NONE: Self = Self { all: Vec::new(), before: None, places: Vec::new() };
}

/// The maximum number of samples: more than the instructions of any program with its probes.
const ROOM: usize = 4096;

static SAMPLES: IrqLock<Samples> = IrqLock::new(Samples::NONE);

fn sample(frame: &mut TrapFrame) {
    let mut backtrace = [0; DEPTH];
    for (place, address) in backtrace.iter_mut().zip(backtrace::of_frame(frame).addresses()) {
        *place = address;
    }
    // SAFETY: the frame is that of the exception that this is called in.
    let recovered = unsafe { sampling::recovered(frame) };
    let preserved: [u64; 10] = array::from_fn(|number| recovered.x[19 + number]);
    let mut samples = SAMPLES.lock();
    let before = *samples.before.get_or_insert(preserved);
    let are_preserved = array::from_fn(|number| preserved[number] == before[number]);
    // The stepped code may hold the lock of the heap, so nothing may be allocated.
    assert!(samples.all.len() < ROOM);
    samples.all.push(Sample { backtrace, are_preserved });
    samples.places.push(frame.pc as usize);
}

fn step_through((function, argument): (Fixture, u64)) -> Samples {
    *SAMPLES.lock() = Samples { all: Vec::with_capacity(ROOM), before: None, places: Vec::with_capacity(ROOM) };
    step::run(sample, || function.call(argument));
    mem::replace(&mut SAMPLES.lock(), Samples::NONE)
}

/// A probe of any kind.
type Probe = Box<dyn Deref<Target = Registration>>;

extern "C" fn before(_: &mut Hit<'_>) {}
extern "C" fn after(_: &mut Hit<'_>) {}
extern "C" fn entered(_: &CallArguments) {}
extern "C" fn see_result(_: &CallResult) {}

/// Changes nothing, but takes mutable access to the registers.
extern "C" fn write(hit: &mut Hit<'_>) {
    // SAFETY: no register is changed.
    unsafe { hit.frame_mut() };
}

extern "C" fn follow(_: &mut Call<'_>) -> Decision {
    Decision::Follow
}

extern "C" fn write_at_return(call: &mut Call<'_>) {
    // SAFETY: no register is changed.
    unsafe { call.frame_mut() };
}

/// Makes the trampoline return to an address other than x30.
extern "C" fn divert(call: &mut Call<'_>) {
    // SAFETY: a caller expects no particular value in x30.
    unsafe { call.frame_mut().x[30] = 0 };
}

/// Registers a probe whose snippet has an effect in its stub only; or, if `is_masked`, a probe whose snippet masks
/// interrupts and leaves everything to the handler.
fn compiled(at: usize, is_masked: bool) -> Kprobe {
    let steps = [Step::Number(11, 1 << 40), Step::Branch(Branch::Zero(11), 3), Step::Number(12, 2)];
    let steps = if is_masked { &[Step::Call(Branch::Always)] } else { &steps[..] };
    // SAFETY: the steps only compute a number.
    let snippet = Box::leak(Box::new(unsafe { Snippet::new(steps, is_masked) }.unwrap()));
    let insertion = Box::leak(Box::new(Insertion::new(snippet, 0)));
    // SAFETY: both are leaked, so they outlive the probe.
    let probe = unsafe { Kprobe::at(at).arguments(entered).snippet(insertion) }.register().unwrap();
    assert_eq!(probe.hits(), 0);
    probe
}

/// Registers a return probe with a snippet in the code at the return; or, if `is_left`, one whose snippet leaves
/// everything to the handler.
fn compiled_at_return(at: usize, is_left: bool) -> Kretprobe {
    // x30 may be in use when a return is left to the handler, with interrupts unmasked again.
    let steps = if is_left { &[Step::Number(30, 2), Step::Call(Branch::Always)][..] } else { &[Step::Number(12, 2)] };
    // SAFETY: the steps only compute a number.
    let snippet = Box::leak(Box::new(unsafe { Snippet::of_returns(steps) }.unwrap()));
    let insertion = Box::leak(Box::new(Insertion::new(snippet, 0)));
    // SAFETY: both are leaked, so they outlive the probe.
    unsafe { Kretprobe::at(at).snippet(insertion) }.register().unwrap()
}

fn on_each_instruction(probe: impl Fn(usize) -> Kprobe) -> Vec<Probe> {
    let addresses: BTreeSet<usize> = PROGRAMS.iter().flat_map(|(function, _)| function.instructions()).collect();
    addresses.into_iter().filter(|&address| probe::check(address).is_ok()).map(|at| Box::new(probe(at)) as _).collect()
}

fn on_each_function<P: Deref<Target = Registration> + 'static>(probe: impl Fn(usize) -> P) -> Vec<Probe> {
    let functions: BTreeSet<usize> = PROGRAMS.iter().map(|(function, _)| function.address()).collect();
    functions.into_iter().map(|at| Box::new(probe(at)) as _).collect()
}

/// A kind of probes: its name, its registration, and the words of its stubs before the copy at which an interrupt can
/// occur.
pub type ProbeKind = (&'static str, fn() -> Vec<Probe>, &'static [usize]);

const FULL: &[usize] = &[0, 1, 2, 3, 4, 7];
const LEAN: &[usize] = &[0, 1, 2];
const FOLLOW: &[usize] = &[0, 1, 2, 6];

/// All kinds of probes; the first is without probes.
pub const KINDS: [ProbeKind; 20] = [
    ("none", Vec::new, &[]),
    ("optimized", || on_each_instruction(|at| Kprobe::at(at).pre(before).register().unwrap()), FULL),
    ("optimized, written", || on_each_instruction(|at| Kprobe::at(at).pre(write).register().unwrap()), FULL),
    ("boosted", || on_each_instruction(|at| Kprobe::at(at).at_most(Mode::Boosted).register().unwrap()), &[]),
    ("stepped", || on_each_instruction(|at| Kprobe::at(at).pre(before).post(after).register().unwrap()), &[]),
    ("lean", || on_each_function(|at| Kprobe::at(at).arguments(entered).register().unwrap()), LEAN),
    ("compiled", || on_each_function(|at| compiled(at, false)), &[]),
    ("compiled, masked", || on_each_function(|at| compiled(at, true)), &[]),
    ("returns", || on_each_function(|at| Kretprobe::at(at).register().unwrap()), FOLLOW),
    (
        "returns by breakpoints",
        || on_each_function(|at| Kretprobe::at(at).at_most(Mode::Boosted).register().unwrap()),
        &[],
    ),
    ("results", || on_each_function(|at| Kretprobe::at(at).result(see_result).register().unwrap()), FOLLOW),
    (
        "results by breakpoints",
        || on_each_function(|at| Kretprobe::at(at).result(see_result).at_most(Mode::Boosted).register().unwrap()),
        &[],
    ),
    ("returns, compiled", || on_each_function(|at| compiled_at_return(at, false)), &[]),
    ("returns, left", || on_each_function(|at| compiled_at_return(at, true)), &[]),
    (
        "snippets and returns, compiled",
        || {
            let mut all = on_each_function(|at| compiled(at, false));
            all.extend(on_each_function(|at| compiled_at_return(at, false)));
            all
        },
        &[],
    ),
    (
        "snippets and returns, left",
        || {
            let mut all = on_each_function(|at| compiled(at, true));
            all.extend(on_each_function(|at| compiled_at_return(at, true)));
            all
        },
        &[],
    ),
    ("calls", || on_each_function(|at| Kretprobe::at(at).entry(follow).register().unwrap()), FULL),
    (
        "returns, written",
        || on_each_function(|at| Kretprobe::at(at).handler(write_at_return).register().unwrap()),
        FOLLOW,
    ),
    ("returns, diverted", || on_each_function(|at| Kretprobe::at(at).handler(divert).register().unwrap()), FOLLOW),
    (
        "returns, twice",
        || {
            let mut all = on_each_function(|at| Kretprobe::at(at).register().unwrap());
            all.extend(on_each_function(|at| Kretprobe::at(at).register().unwrap()));
            all
        },
        FULL,
    ),
];

/// Returns the first sample in `found` that does not follow its predecessor in `expected`.
fn first_difference<'a>(expected: &[Sample], found: &'a [Sample]) -> Option<(usize, &'a Sample)> {
    let mut rest = expected;
    found.iter().enumerate().find(|&(_, sample)| match rest.iter().position(|expected| expected == sample) {
        Some(at) => {
            rest = &rest[at..];
            false
        }
        None => true,
    })
}

/// Returns the virtual address range of the trampoline of return probes, with both of its entries, and of the routine
/// that calls handlers of results.
pub fn trampoline() -> Range<usize> {
    let range = |name| fixture::range_of(fixture::address_of(name));
    range("kretprobe_lean").start..range("kretprobe_result").end
}

/// Returns the instructions of the trampoline that run with interrupts unmasked.
fn interruptible() -> Vec<usize> {
    const MASK: u32 = 0xd503_4fdf;
    // The code after such an instruction is reached from elsewhere.
    let ends = |word: u32| word & 0xffff_fc1f == 0xd65f_0000 || word >> 26 == 0b000101;
    let writes_masks = |word: u32| word & 0xffff_ffe0 == 0xd51b_4220;
    let mut is_masked = false;
    let mut all = Vec::new();
    let entry = fixture::address_of("kretprobe_trampoline");
    for address in trampoline().step_by(4) {
        let word = probe::instruction(address).expect("it is in the text");
        is_masked &= address != entry;
        if !is_masked {
            all.push(address);
        }
        is_masked = (is_masked || word == MASK || ends(word)) && !writes_masks(word);
    }
    all
}

test!(
    depends(core),
    fn backtraces_at_every_instruction_are_those_without_probes() {
        // The samples without probes, for each program. All programs are called from one call site.
        let mut without: Vec<Vec<Sample>> = Vec::new();
        let mut places = BTreeSet::new();
        for (kind, register, words) in KINDS {
            let probes = register();
            let mut stub_words = BTreeSet::new();
            for (number, program) in PROGRAMS.into_iter().enumerate() {
                let Samples { all, places: at, .. } = step_through(program);
                let Some(expected) = without.get(number) else {
                    without.push(all);
                    continue;
                };
                if let Some((number, Sample { backtrace, are_preserved })) = first_difference(expected, &all) {
                    let end = backtrace.iter().position(|&address| address == 0).unwrap_or(DEPTH);
                    for &address in &backtrace[..end] {
                        println!("{address:#x} {}", symbol::Symbolic(address));
                    }
                    println!("{are_preserved:?}");
                    panic!("{kind}: at {:#x}, {}", at[number], symbol::Symbolic(program.0.address()));
                }
                stub_words.extend(at.iter().filter(|at| !layout::text().contains(at)).map(|at| at / 4 % 16));
                places.extend(at);
            }
            assert!(words.iter().all(|word| stub_words.contains(word)), "{kind}: {stub_words:?}");
            println!("{kind}: {} probes", probes.len());
        }
        let unseen: Vec<usize> = interruptible().into_iter().filter(|at| !places.contains(at)).collect();
        assert!(unseen.is_empty(), "{unseen:x?} of {:x?}", trampoline());
    }
);
