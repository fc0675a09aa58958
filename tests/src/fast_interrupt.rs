//! Fast interrupts: they are taken where interrupts are masked; in slots and stubs they find the same state as without
//! probes; and their handler may hit probes, whatever the engine is doing.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hint::black_box;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use core::time::Duration;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe::{self, CallArguments};
use aarch64_kprobes::{Call, Hit, Kprobe, Kretprobe};
use kprobes_console::program::{Options, RunningProgram};
use kprobes_console::{symbol, tracing};
use kprobes_trace::engine::Probe;
use runtime::interrupt::{FastError, fast};
use runtime::memory::layout;
use runtime::sync::{IrqLock, IrqMask};
use runtime::task::JoinHandle;
use runtime::{backtrace, interrupt, println, smp, task, time};

use crate::events::define;
use crate::fixture::{self, Fixture};
use crate::programs::{finished, started};
use crate::smp::on_each_cpu;
use crate::unwind::{DEPTH, KINDS, PROGRAMS, trampoline};
use crate::{is_thorough, step, test};

/// Whether the handlers have stopped re-arming the timer.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// The number of handled fast interrupts.
static TAKEN: AtomicU64 = AtomicU64::new(0);

fn count(_: &TrapFrame) {
    TAKEN.fetch_add(1, Relaxed);
}

test!(
    depends(cpus, core, interrupts, entry, board),
    needs FAST_INTERRUPTS,
    fn they_come_where_interrupts_are_masked_and_pending() {
        // SAFETY: the handler only adds to an atomic.
        let owner = unsafe { fast::set_handler(count) }.unwrap();
        on_each_cpu(|| {
            let _mask = IrqMask::new();
            // The interrupt stays pending until the end.
            interrupt::send(task::current_cpu(), interrupt::Ipi::Reschedule);
            for round in 0..10 {
                let before = TAKEN.load(Relaxed);
                fast::arm(time::ticks(Duration::from_micros(50 * (round % 3)))).unwrap();
                while TAKEN.load(Relaxed) == before {
                    core::hint::spin_loop();
                }
                assert_eq!(TAKEN.load(Relaxed), before + 1);
            }
            // A fast interrupt that is disarmed or masked is not taken.
            let before = TAKEN.load(Relaxed);
            fast::arm(time::ticks(Duration::from_millis(20))).unwrap();
            fast::disarm();
            interrupt::without(|| {
                let start = time::now();
                fast::arm(0).unwrap();
                while time::now() - start < Duration::from_millis(40) {
                    core::hint::spin_loop();
                }
                assert_eq!(TAKEN.load(Relaxed), before);
            });
            while TAKEN.load(Relaxed) == before {
                core::hint::spin_loop();
            }
        });
        assert_eq!(TAKEN.load(Relaxed), 11 * smp::running().count() as u64);
        drop(owner);
    }
);

test!(
    depends(cpus, interrupts),
    needs FAST_INTERRUPTS,
    fn a_second_owner_is_refused_and_the_first_keeps_its_handler() {
        const SAMPLED: &str = "profile:hz:100 { @ = count(); }";
        // SAFETY: both handlers only use atomics, and the second one walks frames.
        let set = |handler| unsafe { fast::set_handler(handler) };
        let interrupt = || {
            let before = TAKEN.load(Relaxed);
            fast::arm(0).unwrap();
            while TAKEN.load(Relaxed) == before {
                core::hint::spin_loop();
            }
        };
        let owner = set(count).unwrap();
        assert_eq!(set(sample).unwrap_err(), FastError::Busy);
        let refusal = RunningProgram::start(SAMPLED).err().expect("the timers have an owner");
        assert_eq!(refusal.sentence(), "the CPUs cannot be sampled: fast interrupts have another handler");
        interrupt();
        drop(owner);
        assert_eq!(fast::arm(0), Err(FastError::NoHandler));
        let program = RunningProgram::start(SAMPLED).expect("the timers have no owner");
        assert_eq!(set(count).unwrap_err(), FastError::Busy);
        drop(program);
        let _owner = set(count).unwrap();
        interrupt();
    }
);

/// The interrupted state: the pc and the backtrace.
struct Sample {
    pc: AtomicUsize,
    addresses: [AtomicUsize; DEPTH],
}

/// Samples that the test has not checked yet.
static SAMPLES: [Sample; ROOM] =
    [const { Sample { pc: AtomicUsize::new(0), addresses: [const { AtomicUsize::new(0) }; DEPTH] } }; ROOM];
/// The number of samples. It keeps counting when there is no more room.
static SAMPLED: AtomicUsize = AtomicUsize::new(0);
const ROOM: usize = 256;

fn sample(frame: &TrapFrame) {
    let number = SAMPLED.fetch_add(1, Relaxed);
    if let Some(sample) = SAMPLES.get(number) {
        sample.pc.store(frame.pc as usize, Relaxed);
        let addresses = backtrace::of_frame(frame);
        let addresses = addresses.addresses().chain(core::iter::repeat(0));
        sample.addresses.iter().zip(addresses).for_each(|(place, address)| place.store(address, Relaxed));
    }
    arm_again(number as u64);
}

/// Arms the timer for an interval that varies from call to call.
fn arm_again(number: u64) {
    if !IS_OVER.load(Relaxed) {
        let _ = fast::arm(time::ticks(Duration::from_nanos(2000 + number * 1237 % 9973)));
    }
}

/// The common caller of all functions.
#[inline(never)]
fn call(function: Fixture, argument: u64) -> u64 {
    black_box(black_box(function).call(argument))
}

/// The caller of [`call`]. It is the innermost caller in the backtrace while a function keeps its return address in a
/// register other than x30.
#[inline(never)]
fn call_from_frame(function: Fixture, argument: u64) -> u64 {
    black_box(call(function, argument))
}

/// Returns the virtual address ranges of both callers, at which the compared backtraces end.
fn callers_of_all() -> [Range<usize>; 2] {
    [call, call_from_frame].map(|function| fixture::range_of(function as *const () as usize))
}

fn is_of_caller(address: &usize) -> bool {
    callers_of_all().iter().any(|caller| caller.contains(address))
}

/// A backtrace, from the innermost address to the first one in [`callers_of_all`].
type Trace = Vec<usize>;

fn to_the_call(mut addresses: Trace) -> Trace {
    let end = addresses.iter().position(is_of_caller).map_or(addresses.len(), |at| at + 1);
    addresses.truncate(end);
    addresses
}

static STEPS: IrqLock<Vec<[usize; DEPTH]>> = IrqLock::new(Vec::new());

/// Returns the backtraces at every instruction of the programs and of the functions that they call, without probes.
fn expected() -> BTreeSet<Trace> {
    fn each(frame: &mut TrapFrame) {
        let mut addresses = [0; DEPTH];
        addresses.iter_mut().zip(backtrace::of_frame(frame).addresses()).for_each(|(place, address)| *place = address);
        let mut steps = STEPS.lock();
        // The stepped code may hold the lock of the heap, so nothing may be allocated.
        assert!(steps.len() < steps.capacity());
        steps.push(addresses);
    }
    let [_, outermost] = callers_of_all();
    let mut expected = BTreeSet::new();
    for (function, argument) in PROGRAMS {
        *STEPS.lock() = Vec::with_capacity(4096);
        step::run(each, || call_from_frame(function, argument));
        let steps = core::mem::take(&mut *STEPS.lock());
        let is_outermost = |step: &[usize; DEPTH]| outermost.contains(&step[0]);
        let [Some(first), Some(last)] = [steps.iter().position(is_outermost), steps.iter().rposition(is_outermost)]
        else {
            panic!("it has not been stepped through")
        };
        for step in &steps[first..=last] {
            let trace = to_the_call(step.iter().copied().filter(|&address| address != 0).collect());
            assert!(trace.last().is_some_and(is_of_caller), "{trace:x?} leads elsewhere");
            expected.insert(trace);
        }
    }
    expected
}

/// Returns whether `pc` is in code that stubs call, or in a handler of the kinds of probes. Fast interrupts are masked
/// there.
fn is_of_hit_path(pc: usize) -> bool {
    let name = format!("{}", symbol::Symbolic(pc));
    name.starts_with("kprobes_")
        || name.starts_with("tests::unwind::")
        || name.starts_with("aarch64_kprobes::probe::hit::")
}

/// The number of samples by the place of the interrupted code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SampleCounts {
    /// Samples in the functions, in the text.
    text: usize,
    /// Samples in slots and stubs.
    outside: usize,
    trampoline: usize,
}

struct Checker {
    expected: BTreeSet<Trace>,
    /// The functions, their callees, and their callers.
    functions: Vec<Range<usize>>,
    trampoline: Range<usize>,
}

impl Checker {
    fn new() -> Self {
        let expected = expected();
        let mut functions: Vec<_> = expected.iter().map(|trace| fixture::range_of(trace[0])).collect();
        functions.dedup();
        Self { expected, functions, trampoline: trampoline() }
    }

    /// Checks the samples taken so far.
    fn look(&self, kind: &str, samples: &mut SampleCounts) {
        for sample in &SAMPLES[..SAMPLED.load(Relaxed).min(ROOM)] {
            let pc = sample.pc.load(Relaxed);
            let is_in_function = self.functions.iter().any(|function| function.contains(&pc));
            let is_in_trampoline = self.trampoline.contains(&pc);
            let is_outside = !layout::text().contains(&pc);
            if !is_in_function && !is_in_trampoline && !is_outside {
                assert!(!is_of_hit_path(pc), "{kind}: at {}", symbol::Symbolic(pc));
                // The sample is in the test itself.
                continue;
            }
            let addresses =
                sample.addresses.iter().map(|address| address.load(Relaxed)).filter(|&address| address != 0);
            let trace = to_the_call(addresses.collect());
            // At opt-level "z" the test shares outlined functions with the functions that it calls.
            let is_shared = format!("{}", symbol::Symbolic(pc)).starts_with("OUTLINED_FUNCTION_");
            if is_shared && !trace.last().is_some_and(is_of_caller) {
                continue;
            }
            if !self.expected.contains(&trace) {
                for &address in &trace {
                    println!("{address:#x} {}", symbol::Symbolic(address));
                }
                panic!("{kind}: at {pc:#x}");
            }
            samples.text += usize::from(is_in_function);
            samples.outside += usize::from(is_outside);
            samples.trampoline += usize::from(is_in_trampoline);
        }
    }
}

/// The kinds of probes whose copies run with all interrupts masked.
const MASKED: [&str; 2] = ["none", "stepped"];
/// The number of samples required in each place.
const ENOUGH: usize = 10;
/// The maximum time to wait for the samples.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the programs while the timer interrupts.
fn sample_all() {
    let checker = Checker::new();
    // SAFETY: the handler only adds to atomics, walks frames, and arms the timer.
    let _owner = unsafe { fast::set_handler(sample) }.unwrap();
    for (kind, register, _) in KINDS {
        let probes = register();
        // Results that depend on x30 differ where returns are probed.
        let results = PROGRAMS.map(|(function, argument)| call_from_frame(function, argument));
        let run = || {
            for (&(function, argument), &result) in PROGRAMS.iter().zip(&results) {
                assert_eq!(call_from_frame(function, argument), result, "{kind}");
            }
        };
        let counts = || -> Vec<(u64, u64)> { probes.iter().map(|probe| (probe.hits(), probe.missed())).collect() };
        let once = counts();
        assert!(once.iter().all(|&(_, missed)| missed == 0), "{kind}: {once:?}");
        let leaves_text = !MASKED.contains(&kind);
        let is_of_returns = kind.starts_with("returns") || kind == "calls";
        let (mut samples, mut runs, start) = (SampleCounts::default(), 1, time::now());
        let is_enough = |samples: &SampleCounts| {
            samples.text >= ENOUGH
                && (!leaves_text || samples.outside >= ENOUGH)
                && (!is_of_returns || samples.trampoline >= ENOUGH)
        };
        while !is_enough(&samples) && time::now() - start < PATIENCE {
            SAMPLED.store(0, Relaxed);
            IS_OVER.store(false, Relaxed);
            fast::arm(0).unwrap();
            while SAMPLED.load(Relaxed) < ROOM {
                run();
                runs += 1;
            }
            IS_OVER.store(true, Relaxed);
            fast::disarm();
            checker.look(kind, &mut samples);
        }
        println!(
            "{kind}: {} probes, {runs} runs, {samples:?} in {} ms",
            probes.len(),
            (time::now() - start).as_millis()
        );
        assert!(is_enough(&samples), "{kind}: {samples:?}");
        assert!(leaves_text || samples.outside == 0, "{kind}: {samples:?}");
        let expected: Vec<(u64, u64)> = once.iter().map(|&(hits, _)| (hits * runs, 0)).collect();
        assert_eq!(counts(), expected, "{kind}");
    }
}

test!(
    depends(interrupts, interruption),
    needs FAST_INTERRUPTS,
    fn what_they_find_in_slots_and_stubs_is_what_there_is_without_probes() {
        task::spawn_on(0, "sampled", sample_all).join();
    }
);

/// A function that tasks and the handler of fast interrupts call, with the number that it adds to its argument.
struct Target {
    function: extern "C" fn(u64) -> u64,
    addend: u64,
    /// The number of calls of the function.
    calls: &'static AtomicU64,
    /// The number of calls of its probe's handler, if it has one.
    handled: AtomicU64,
}

macro_rules! targets {
    ($($constant:ident, $name:ident = $number:literal;)*) => {
        $(
            const $constant: usize = $number;
            #[inline(never)]
            extern "C" fn $name(argument: u64) -> u64 {
                CALLS[$number].fetch_add(1, Relaxed);
                black_box(argument) + 1000 + $number
            }
        )*
        static CALLS: [AtomicU64; [$($number),*].len()] = [$({ let _ = $number; AtomicU64::new(0) }),*];
        /// All functions, by their numbers.
        static TARGETS: [Target; CALLS.len()] = [$(Target {
            function: $name,
            addend: 1000 + $number,
            calls: &CALLS[$number],
            handled: AtomicU64::new(0),
        }),*];
    };
}

targets! {
    ENTERED, entered = 0;
    PASSED, passed = 1;
    STEPPED, stepped = 2;
    RETURNED, returned = 3;
    FOLLOWED, followed = 4;
    COUNTED, counted = 5;
    RECORDED, recorded = 6;
}

impl Target {
    fn address(&self) -> usize {
        self.function as usize
    }

    fn handle(&self) {
        self.handled.fetch_add(1, Relaxed);
    }

    fn name(&self) -> String {
        format!("{}", symbol::Symbolic(self.address())).split('+').next().expect("a part").into()
    }
}

/// The number of wrong results and return addresses.
static WRONG: AtomicU64 = AtomicU64::new(0);
/// The beginning and the end of [`call_all`].
static CALLER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// The number of fast interrupts that were taken where interrupts were masked.
static CAME_MASKED: AtomicU64 = AtomicU64::new(0);

/// Calls each function. Nothing may panic in a fast interrupt.
#[inline(never)]
fn call_all(argument: u64) {
    for target in &TARGETS {
        if black_box(target.function)(black_box(argument)) != argument + target.addend {
            WRONG.fetch_add(1, Relaxed);
        }
    }
}

/// The handler of fast interrupts, which hits probes.
fn interrupt(frame: &TrapFrame) {
    let number = TAKEN.fetch_add(1, Relaxed);
    if frame.pstate & TrapFrame::IRQ_MASKED != 0 {
        CAME_MASKED.fetch_add(1, Relaxed);
    }
    call_all(number);
    if !IS_OVER.load(Relaxed) {
        let _ = fast::arm(time::ticks(Duration::from_nanos(30_000 + number * 1237 % 49_999)));
    }
}

extern "C" fn at_entry(_: &CallArguments) {
    TARGETS[ENTERED].handle();
}
extern "C" fn at_pass(_: &mut Hit<'_>) {
    TARGETS[PASSED].handle();
}
extern "C" fn before_step(_: &mut Hit<'_>) {
    TARGETS[STEPPED].handle();
}
extern "C" fn after_step(_: &mut Hit<'_>) {}
extern "C" fn at_return(call: &mut Call<'_>) {
    TARGETS[RETURNED].handle();
    let [start, end] = CALLER.each_ref().map(|bound| bound.load(Relaxed));
    if !(start..end).contains(&call.return_address()) {
        WRONG.fetch_add(1, Relaxed);
    }
}
extern "C" fn nothing(_: &mut Hit<'_>) {}

/// Starts tasks on each CPU that call the functions: one that yields its CPU, and one that is preempted.
fn callers() -> Vec<JoinHandle> {
    let is_on = || !IS_OVER.load(Relaxed);
    let mut tasks = Vec::new();
    for cpu in smp::running() {
        tasks.push(task::spawn_on(cpu, "yields", move || {
            fast::arm(0).unwrap();
            for number in (0..).take_while(|_| is_on()) {
                call_all(number);
                task::yield_now();
            }
        }));
        tasks.push(task::spawn_on(cpu, "is preempted", move || (0..).take_while(|_| is_on()).for_each(call_all)));
    }
    tasks
}

/// Registers, lists, disarms, arms and unregisters probes, on the functions and elsewhere; runs a program; and replaces
/// the rings.
fn change_probes(round: usize) {
    let target = &TARGETS[round % TARGETS.len()];
    let (here, there) = (target.address(), fixture::ORDINARY.address() + 4 * (round % 16));
    let others: [Result<Kprobe, _>; 3] =
        [Kprobe::at(here).pre(nothing), Kprobe::at(there).pre(nothing), Kprobe::at(there + 4).post(nothing)]
            .map(|probe| probe.register());
    let other = Kretprobe::at(here).register().unwrap();
    let listed = probe::list().expect("there is memory");
    assert!(listed.iter().filter(|probe| probe.address == here).count() >= 2);
    for probe in others.iter().flatten() {
        probe.disable().unwrap();
    }
    other.disable().unwrap();
    fixture::ORDINARY.call(5);
    for probe in others.iter().flatten() {
        probe.enable().unwrap();
    }
    other.enable().unwrap();
    call_all(round as u64);
    drop(other);
    drop(others);

    // Keys come and go in few buckets, which are locked while they are printed, and while the interval clears them.
    let name = TARGETS[COUNTED].name();
    let text = format!(
        "kprobe:{name} {{ @n[arg0 & 1] = count(); @all = count(); }} interval:ms:1 {{ print(@n); clear(@n); }}"
    );
    let options = Options { is_interpreted: round.is_multiple_of(2), keys: Some(2), ..Options::default() };
    let program = started(&text, RunningProgram::start_unless(&text, options, &|| false));
    let (start, mut out) = (time::now(), String::new());
    while time::now() - start < Duration::from_millis(30) {
        program.drain(&mut out).expect("a string can be written to");
        out.clear();
        task::yield_now();
    }
    let probe = program.registrations().next().expect("it has a probe");
    probe.disable().unwrap();
    let hits = probe.hits();
    let out = finished(program);
    assert!(out.contains(&format!("@all: {hits}\n")), "{hits}: {out}");

    tracing::resize_rings(8 << (10 + round % 3)).expect("there is memory");
}

/// The number of rounds of changes in a usual run: one for each target. A thorough run has two for each.
const ROUNDS: usize = TARGETS.len();

test!(
    depends(cpus, core, interrupts, interruption),
    needs FAST_INTERRUPTS,
    fn their_handler_may_run_into_probes() {
        let Range { start, end } = fixture::range_of(call_all as *const () as usize);
        CALLER.iter().zip([start, end]).for_each(|(bound, address)| bound.store(address, Relaxed));
        let at = |number: usize| Kprobe::at(TARGETS[number].address());
        let kprobes = [
            (ENTERED, at(ENTERED).arguments(at_entry).register().unwrap()),
            (PASSED, at(PASSED).pre(at_pass).register().unwrap()),
            (STEPPED, at(STEPPED).pre(before_step).post(after_step).register().unwrap()),
        ];
        let follow = |number: usize| Kretprobe::at(TARGETS[number].address());
        let kretprobes = [
            (RETURNED, follow(RETURNED).handler(at_return).register().unwrap()),
            (FOLLOWED, follow(FOLLOWED).register().unwrap()),
        ];
        let rings = tracing::rings();
        let mut events = tracing::events(rings).unwrap();
        define(&mut events, &format!("p:call {:#x} number=%x0", TARGETS[RECORDED].address()));
        events.set_enabled(None, None, true).expect("probes can be armed");
        // SAFETY: the handler only adds to atomics, arms the timer, and calls functions that do nothing else, except
        // for their probes.
        let _owner = unsafe { fast::set_handler(interrupt) }.unwrap();
        let tasks = callers();
        let rounds = if is_thorough() { 2 * ROUNDS } else { ROUNDS };
        (0..rounds).for_each(change_probes);
        IS_OVER.store(true, Relaxed);
        tasks.into_iter().for_each(JoinHandle::join);
        // No handler arms the timer any more, but it may still be armed.
        on_each_cpu(fast::disarm);

        let [taken, masked] = [&TAKEN, &CAME_MASKED].map(|count| count.load(Relaxed));
        println!("{taken} fast interrupts, {masked} of them with interrupts masked");
        assert_eq!(WRONG.load(Relaxed), 0);
        let check = |number: usize, (hits, missed): (u64, u64)| {
            let Target { calls, handled, .. } = &TARGETS[number];
            let (calls, handled) = (calls.load(Relaxed), handled.load(Relaxed));
            println!("{}: {calls} calls, {hits} hits, {missed} missed", TARGETS[number].name());
            assert_eq!(hits + missed, calls);
            // Other probes miss hits that arrive while their stub is replaced by one of another form.
            assert!(missed == 0 || ![PASSED, STEPPED].contains(&number));
            assert!(handled == hits || number == FOLLOWED, "{handled} handled");
        };
        kprobes.iter().for_each(|(number, probe)| check(*number, (probe.hits(), probe.missed())));
        for (number, probe) in &kretprobes {
            check(*number, (probe.hits(), probe.missed()));
            assert_eq!(probe.active(), 0);
        }
        for event in events.iter() {
            let Some(Probe::Kprobe(probe)) = event.probe() else { panic!("it is at an entry") };
            assert_eq!(probe.hits() + probe.missed(), TARGETS[RECORDED].calls.load(Relaxed));
        }
        assert!(taken >= 500 && masked >= 10, "{taken} taken, {masked} masked");
    }
);
