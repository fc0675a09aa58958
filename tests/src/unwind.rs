//! Backtraces of code that is interrupted at each instruction of it, of slots, of stubs and of the trampoline: they are those
//! without probes.
//!
//! The CPU steps through functions of the fixtures. What it executes with debug exceptions masked no interrupt can find either.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::insn::encode::compute::Branch;
use aarch64_kprobes::probe::{self, Entry, Insertion, Mode, Snippet, Step};
use aarch64_kprobes::{Call, Decision, Hit, Kprobe, Kretprobe};
use kprobes_console::symbol;
use runtime::memory::layout;
use runtime::sync::IrqLock;
use runtime::{backtrace, println};

use crate::fixture::{self, Fixture};
use crate::{step, test};

/// What is stepped through, and its argument.
pub const PROGRAMS: [(Fixture, u64); 15] = [
    (fixture::ADDRESSES, 5),
    (fixture::FAR, 5),
    (fixture::END_OF_PAGE, 5),
    (fixture::LITERALS, 5),
    (fixture::BRANCHES, 0),
    (fixture::BRANCHES, !0),
    (fixture::CALLS, 5),
    (fixture::CALLEE, 5),
    (fixture::ORDINARY, 5),
    (fixture::STACK_POINTER, 5),
    (fixture::IDENTITY, 5),
    (fixture::TAIL_CALL, 5),
    (fixture::CONDITIONAL_TAIL_CALL, 0),
    (fixture::COUNT_DOWN, 3),
    (fixture::LAST_CALL, 5),
];

/// Addresses of a backtrace that are compared.
pub const DEPTH: usize = 24;

/// The backtrace before an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sample([usize; DEPTH]);

struct Samples {
    all: Vec<Sample>,
    /// Where the CPU was.
    places: Vec<usize>,
}

/// More than there are instructions in any program with its probes.
const ROOM: usize = 4096;

static SAMPLES: IrqLock<Samples> = IrqLock::new(Samples { all: Vec::new(), places: Vec::new() });

fn sample(frame: &mut TrapFrame) {
    let mut addresses = [0; DEPTH];
    for (place, address) in addresses.iter_mut().zip(backtrace::of_frame(frame).addresses()) {
        *place = address;
    }
    let mut samples = SAMPLES.lock();
    // The code that is stepped through may hold the lock of the heap.
    assert!(samples.all.len() < ROOM);
    samples.all.push(Sample(addresses));
    samples.places.push(frame.pc as usize);
}

fn step_through((function, argument): (Fixture, u64)) -> Samples {
    *SAMPLES.lock() = Samples { all: Vec::with_capacity(ROOM), places: Vec::with_capacity(ROOM) };
    step::run(sample, || function.call(argument));
    mem::replace(&mut SAMPLES.lock(), Samples { all: Vec::new(), places: Vec::new() })
}

/// A probe of whatever kind.
pub trait Counted: Send {
    /// Its hits, and those that it has missed.
    fn counts(&self) -> (u64, u64);
}

impl Counted for Kprobe {
    fn counts(&self) -> (u64, u64) {
        (self.hits(), self.missed())
    }
}

impl Counted for Kretprobe {
    fn counts(&self) -> (u64, u64) {
        (self.hits(), self.missed())
    }
}

type Probe = Box<dyn Counted>;

extern "C" fn before(_: &mut Hit<'_>) {}
extern "C" fn after(_: &mut Hit<'_>) {}
extern "C" fn entered(_: &Entry) {}

/// Changes nothing, but says that it may have.
extern "C" fn write(hit: &mut Hit<'_>) {
    // SAFETY: nothing is written.
    unsafe { hit.frame_mut() };
}

extern "C" fn follow(_: &mut Call<'_>) -> Decision {
    Decision::Follow
}

extern "C" fn write_at_return(call: &mut Call<'_>) {
    // SAFETY: nothing is written.
    unsafe { call.frame_mut() };
}

/// Has the trampoline go where x30 does not lead.
extern "C" fn divert(call: &mut Call<'_>) {
    // SAFETY: a caller expects nothing in x30.
    unsafe { call.frame_mut().x[30] = 0 };
}

/// A probe that does something in its stub, and nothing else; or, with interrupts masked, leaves all to its handler.
fn compiled(at: usize, is_masked: bool) -> Kprobe {
    let steps = [Step::Number(11, 1 << 40), Step::Branch(Branch::Zero(11), 3), Step::Number(12, 2)];
    let steps = if is_masked { &[Step::Call(Branch::Always)] } else { &steps[..] };
    // SAFETY: it computes a number.
    let snippet = Box::leak(Box::new(unsafe { Snippet::new(steps, is_masked) }.unwrap()));
    let insertion = Box::leak(Box::new(Insertion::new(snippet, 0)));
    // SAFETY: both stay.
    let probe = unsafe { Kprobe::at(at).entry(entered).snippet(insertion) }.register().unwrap();
    assert_eq!(probe.hits(), 0);
    probe
}

/// A return probe that does something in code at the return; or leaves all to its handler.
fn compiled_at_return(at: usize, is_left: bool) -> Kretprobe {
    let steps = if is_left { [Step::Call(Branch::Always)] } else { [Step::Number(12, 2)] };
    // SAFETY: it computes a number.
    let snippet = Box::leak(Box::new(unsafe { Snippet::new(&steps, false) }.unwrap()));
    let insertion = Box::leak(Box::new(Insertion::new(snippet, 0)));
    // SAFETY: both stay.
    unsafe { Kretprobe::at(at).snippet(insertion) }.register().unwrap()
}

fn on_each_instruction(probe: impl Fn(usize) -> Kprobe) -> Vec<Probe> {
    let addresses: BTreeSet<usize> = PROGRAMS.iter().flat_map(|(function, _)| function.instructions()).collect();
    addresses.into_iter().filter(|&address| probe::check(address).is_ok()).map(|at| Box::new(probe(at)) as _).collect()
}

fn on_each_function<P: Counted + 'static>(probe: impl Fn(usize) -> P) -> Vec<Probe> {
    let functions: BTreeSet<usize> = PROGRAMS.iter().map(|(function, _)| function.address()).collect();
    functions.into_iter().map(|at| Box::new(probe(at)) as _).collect()
}

/// A kind of probes, and the words of their stubs that an interrupt can find before the copy.
pub type Kind = (&'static str, fn() -> Vec<Probe>, &'static [usize]);

const FULL: &[usize] = &[0, 1, 2, 3, 4, 7];
const LEAN: &[usize] = &[0, 1, 2];
const FOLLOW: &[usize] = &[0, 1, 2, 6];

/// All kinds, without probes first.
pub const KINDS: [Kind; 18] = [
    ("none", Vec::new, &[]),
    ("optimized", || on_each_instruction(|at| Kprobe::at(at).pre(before).register().unwrap()), FULL),
    ("optimized, written", || on_each_instruction(|at| Kprobe::at(at).pre(write).register().unwrap()), FULL),
    ("boosted", || on_each_instruction(|at| Kprobe::at(at).at_most(Mode::Boosted).register().unwrap()), &[]),
    ("stepped", || on_each_instruction(|at| Kprobe::at(at).pre(before).post(after).register().unwrap()), &[]),
    ("lean", || on_each_function(|at| Kprobe::at(at).entry(entered).register().unwrap()), LEAN),
    ("compiled", || on_each_function(|at| compiled(at, false)), &[]),
    ("compiled, masked", || on_each_function(|at| compiled(at, true)), &[]),
    ("returns", || on_each_function(|at| Kretprobe::at(at).register().unwrap()), FOLLOW),
    (
        "returns by breakpoints",
        || on_each_function(|at| Kretprobe::at(at).at_most(Mode::Boosted).register().unwrap()),
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

/// The first backtrace in `found` that there is not in `expected`, after the one before it.
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

/// The virtual addresses of the trampoline of return probes: of both entries.
pub fn trampoline() -> Range<usize> {
    let range = |name| fixture::range_of(symbol::find(name).next().expect("it is in the image").address as usize);
    range("kretprobe_lean").start..range("kretprobe_trampoline").end
}

/// The instructions of the trampoline that run with interrupts unmasked.
fn interruptible() -> Vec<usize> {
    const MASK: u32 = 0xd503_4fdf;
    // What lies behind it is led to from elsewhere.
    let ends = |word: u32| word & 0xffff_fc1f == 0xd65f_0000 || word >> 26 == 0b000101;
    let writes_masks = |word: u32| word & 0xffff_ffe0 == 0xd51b_4220;
    let mut is_masked = false;
    let mut all = Vec::new();
    let entry = symbol::find("kretprobe_trampoline").next().expect("it is in the image").address as usize;
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
        // Without probes, by program. All are called from one place.
        let mut without: Vec<Vec<Sample>> = Vec::new();
        let mut places = BTreeSet::new();
        for (kind, register, words) in KINDS {
            let probes = register();
            let mut stub_words = BTreeSet::new();
            for (number, program) in PROGRAMS.into_iter().enumerate() {
                let Samples { all, places: at } = step_through(program);
                let Some(expected) = without.get(number) else {
                    without.push(all);
                    continue;
                };
                if let Some((number, Sample(addresses))) = first_difference(expected, &all) {
                    let end = addresses.iter().position(|&address| address == 0).unwrap_or(DEPTH);
                    for &address in &addresses[..end] {
                        println!("{address:#x} {}", symbol::Symbolic(address));
                    }
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
