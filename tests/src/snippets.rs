//! Snippets in the stubs of probes: they count correctly while tasks are preempted in them and moved, and while their
//! probes come and go. A usual run makes half or a third of the rounds of a thorough one in the tests where probes come
//! and go.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::hint::black_box;
use core::ops::Deref;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};

use aarch64_kprobes::insn::encode::compute::{self, Binary};
use aarch64_kprobes::insn::{Literal, encode};
use aarch64_kprobes::probe::{self, CallArguments, CpuWords, Insertion, Mode, Registration, Snippet, Step};
use aarch64_kprobes::{Call, Kprobe, Kretprobe};
use kprobes_console::program::RunningProgram;
use runtime::sync::{IrqMask, WaitQueue};
use runtime::task;
use runtime::task::JoinHandle;

use crate::programs::finished;
use crate::{entry, fixture, is_thorough, test};

/// The number of calling tasks: more than there are CPUs, so that they are preempted and moved.
const CALLERS: u64 = 10;

static CALLED: AtomicU64 = AtomicU64::new(0);
/// Whether the tasks that call forever should end.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// Whether the tasks that call forever call now. Otherwise they wait.
static MAY_CALL: AtomicBool = AtomicBool::new(true);
/// Waits until [`MAY_CALL`] or [`IS_OVER`].
static WAITING: WaitQueue = WaitQueue::new();

#[inline(never)]
fn target(number: u64) -> u64 {
    CALLED.fetch_add(1, Relaxed);
    black_box(number)
}

/// Starts tasks that call `target` with 0 to `calls`, exclusive, on any CPU.
fn callers(calls: u64) -> Vec<JoinHandle> {
    let caller = move || (0..calls).for_each(|number| _ = black_box(target(black_box(number))));
    (0..CALLERS).map(|_| task::spawn("caller", caller)).collect()
}

/// Starts tasks that call `target` whenever they [may](MAY_CALL), until [`IS_OVER`].
fn endless_callers() -> Vec<JoinHandle> {
    IS_OVER.store(false, Relaxed);
    let caller = || {
        (0..).take_while(|_| !IS_OVER.load(Relaxed)).for_each(|number| match MAY_CALL.load(Relaxed) {
            true => _ = target(black_box(number)),
            false => WAITING.wait_until(|| (MAY_CALL.load(Relaxed) || IS_OVER.load(Relaxed)).then_some(())),
        })
    };
    (0..CALLERS).map(|_| task::spawn("caller", caller)).collect()
}

fn join(tasks: Vec<JoinHandle>) {
    tasks.into_iter().for_each(JoinHandle::join);
}

/// Returns the steps that add one to the word at the operand.
fn count() -> Vec<Step> {
    let mut steps = Vec::from([Step::Operand(12)]);
    if Snippet::has_atomics() {
        steps.extend([
            Step::Instruction(compute::compute(Binary::Add, 12, Snippet::CPU, 12)),
            Step::Instruction(encode::add_to(Snippet::ONE, 12)),
        ]);
    } else {
        steps.extend([
            Step::Instruction(encode::load_at(11, Snippet::CPU, 12)),
            Step::Instruction(encode::add(11, 11, 1)),
            Step::Instruction(encode::store_at(11, Snippet::CPU, 12)),
        ]);
    }
    steps
}

/// A probe with a snippet on a function, at its entry or at its return. It borrows its insertion.
type Counting<'a> = Box<dyn Deref<Target = Registration> + 'a>;

fn at_entry(function: usize, insertion: &Insertion) -> Counting<'_> {
    // SAFETY: the borrow keeps the insertion in place until the probe is dropped, and each test drops its snippets
    // after its probes.
    let probe = unsafe { Kprobe::at(function).arguments(handle).snippet(insertion) };
    Box::new(probe.register().unwrap())
}

fn at_return(function: usize, insertion: &Insertion) -> Counting<'_> {
    // SAFETY: the borrow keeps the insertion in place until the probe is dropped, and each test drops its snippets
    // after its probes.
    let probe = unsafe { Kretprobe::at(function).handler(handle_return).snippet(insertion) };
    Box::new(probe.register().unwrap())
}

/// Both positions.
const BOTH: [fn(usize, &Insertion) -> Counting<'_>; 2] = [at_entry, at_return];

fn mode_of(program: &RunningProgram) -> Mode {
    let probe = program.registrations().next().expect("it has a probe");
    entry::mode_at(probe.address()).0
}

test!(
    depends(cpus, core, interruption),
    fn tasks_that_are_moved_lose_no_count() {
        const CALLS: u64 = 4_000;
        for (probe, value) in [("kprobe", "arg0"), ("kretprobe", "retval")] {
            let text = format!(
                "{probe}:tests::snippets::target \
                 {{ @n = count(); @sum[func] = sum({value}); @h = lhist({value}, 0, 4000, 1000); }}"
            );
            let program = RunningProgram::start(&text).unwrap();
            assert_eq!(mode_of(&program), Mode::Compiled);
            join(callers(CALLS));
            let hits: u64 = program.registrations().map(|probe| probe.hits()).sum();
            let out = finished(program);
            let quarter = CALLERS * CALLS / 4;
            let (calls, sum) = (CALLERS * CALLS, CALLERS * (CALLS * (CALLS - 1) / 2));
            assert_eq!(hits, calls, "{out}");
            assert!(out.contains(&format!("@n: {calls}\n")), "{out}");
            assert!(out.contains(&format!("target]: {sum}\n")), "{out}");
            assert_eq!(out.matches(&format!(" {quarter} |")).count(), 4, "{out}");
        }
    }
);

test!(
    depends(cpus),
    fn hundreds_of_functions_collect_in_their_stubs() {
        // 402 words for each function.
        let program = RunningProgram::start("kprobe:core::* { @[func] = lhist(arg0, 0, 400, 1); }").unwrap();
        assert!(program.probes() >= 100, "{} probes", program.probes());
        let listed = probe::list().expect("there is memory");
        let compiled = listed.iter().filter(|listed| listed.mode == Some(Mode::Compiled)).count();
        assert!(compiled >= 50, "{compiled} of {} stubs collect", program.probes());
        drop(finished(program));
    }
);

test!(
    depends(cpus, core),
    fn values_of_maps_are_right_where_tasks_are_moved_between_entry_and_return() {
        const CALLS: u64 = 4_000;
        let (calls, sum) = (CALLERS * CALLS, CALLERS * (CALLS * (CALLS - 1) / 2));
        // All CPUs update the last ones at once.
        for (entry, back, expected) in [
            ("@in[tid] = arg0;", "@same = sum(@in[tid] == retval); delete(@in[tid]);", format!("@same: {calls}\n")),
            (
                "@in[tid, func] = arg0;",
                "@sum = sum(@in[tid, func] + 1); delete(@in[tid, func]);",
                format!("@sum: {}\n", sum + calls),
            ),
            ("@all += arg0;", "@back += retval;", format!("@all: {sum}\n@back: {sum}\n")),
        ] {
            let of = "probe:tests::snippets::target";
            let program = RunningProgram::start(&format!("k{of} {{ {entry} }} kret{of} {{ {back} }}")).unwrap();
            // A key that includes the function cannot be handled in a stub.
            let is_compiled = !entry.contains("func");
            let modes: Vec<_> = probe::list().unwrap().into_iter().filter_map(|listed| listed.mode).collect();
            assert_eq!(modes, [if is_compiled { Mode::Compiled } else { Mode::Optimized }; 2], "{entry}");
            join(callers(CALLS));
            let hits: Vec<u64> = program.registrations().map(|probe| probe.hits()).collect();
            let out = finished(program);
            assert_eq!((hits, out), (Vec::from([calls; 2]), expected), "{entry}");
        }
    }
);

test!(
    depends(cpus, core, interruption),
    fn a_probe_that_goes_leaves_nobody_in_its_snippet() {
        let rounds = if is_thorough() { 8 } else { 4 };
        let tasks = endless_callers();
        // A hit counts in both maps or in none.
        let texts = ["kprobe", "kretprobe"]
            .map(|probe| format!("{probe}:tests::snippets::target {{ @one = count(); @other = count(); }}"));
        for round in 0..rounds {
            // To read and compile a program takes far longer than to arm its probe, and ten times as long beside
            // callers.
            MAY_CALL.store(false, Relaxed);
            let program = RunningProgram::start(&texts[round as usize % 2]).unwrap();
            MAY_CALL.store(true, Relaxed);
            WAITING.wake_all();
            let probe = program.registrations().next().unwrap();
            for is_last in [false, true] {
                let before = probe.hits();
                while probe.hits() <= before + round {
                    task::yield_now();
                }
                probe.disable().unwrap();
                while probe.active() != 0 {
                    task::yield_now();
                }
                if !is_last {
                    probe.enable().unwrap();
                }
            }
            let hits = probe.hits();
            MAY_CALL.store(false, Relaxed);
            let out = finished(program);
            assert_eq!(out, format!("@one: {hits}\n@other: {hits}\n"));
        }
        IS_OVER.store(true, Relaxed);
        WAITING.wake_all();
        join(tasks);
    }
);

test!(
    depends(cpus),
    fn a_return_probe_that_goes_follows_no_call_any_more() {
        let rounds = if is_thorough() { 16 } else { 8 };
        let tasks = endless_callers();
        let function = target as *const () as usize;
        for round in 0..rounds {
            let probe = Kretprobe::at(function).register().unwrap();
            while probe.hits() <= round % 8 {
                task::yield_now();
            }
            probe.disable().unwrap();
            // Calls in progress will still return, and tasks that were interrupted in the stub will continue.
            let active = u64::from(probe.active());
            let most = probe.hits() + active;
            for _ in 0..3 {
                task::yield_now();
            }
            while probe.active() != 0 {
                task::yield_now();
            }
            assert!(probe.hits() <= most, "{} hits of {most}", probe.hits());
        }
        IS_OVER.store(true, Relaxed);
        join(tasks);
    }
);

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handle(_: &CallArguments) {
    HANDLED.fetch_add(1, Relaxed);
}

extern "C" fn handle_return(_: &mut Call<'_>) {
    HANDLED.fetch_add(1, Relaxed);
}

test!(
    depends(core),
    fn what_is_not_usual_is_left_to_the_handler() {
        let words = CpuWords::new().unwrap();
        let mut steps = Vec::from([
            // Odd numbers are left to the handler.
            Step::Instruction(compute::compute(Binary::And, 11, 0, 0)),
            Step::Instruction(compute::shift_left(11, 11, 63)),
            Step::Call(compute::Branch::NotZero(11)),
        ]);
        let counting = count();
        // No task passes 0.
        steps.push(Step::Branch(compute::Branch::Zero(0), steps.len() + 1 + counting.len()));
        steps.extend(counting);
        for (probe, is_masked) in BOTH.into_iter().flat_map(|probe| [(probe, false), (probe, true)]) {
            HANDLED.store(0, Relaxed);
            let before = words.sum(3);
            // SAFETY: the steps only add to words that outlive the snippet.
            let snippet = unsafe { Snippet::new(&steps, is_masked) }.unwrap();
            let insertion = Insertion::new(&snippet, words.distance(3));
            let probe = probe(target as *const () as usize, &insertion);
            for number in 0..=100 {
                assert_eq!(target(black_box(number)), number);
            }
            assert_eq!((words.sum(3) - before, HANDLED.load(Relaxed), probe.hits()), (50, 50, 101));
            // Another probe at the same address makes every hit call the handler.
            let other = Kprobe::at(probe.address()).register().unwrap();
            target(black_box(2));
            assert_eq!((words.sum(3) - before, HANDLED.load(Relaxed), probe.hits()), (50, 51, 102));
            drop(other);
            target(black_box(2));
            assert_eq!((words.sum(3) - before, HANDLED.load(Relaxed), probe.hits()), (51, 51, 103));
            assert_eq!((probe.missed(), probe.active()), (0, 0));
        }
    }
);

/// Checks a pair of snippets. Runs on one CPU: if an instance was returned on another CPU, the handler is used instead.
fn do_or_leave_both() {
    let words = CpuWords::new().unwrap();
    // If the snippet leaves the hit to the handler, or its load faults, the stub undoes what it did to follow the call.
    let good = (&raw const CALLED).addr() as u64;
    // A readable address, an odd one, and an unreadable one.
    let numbers = [good & !3, good | 1, 0xffff_ff7f_dead_bee0, good & !3];
    let load = [
        Step::Instruction(compute::shift_left(11, 0, 63)),
        Step::Call(compute::Branch::NotZero(11)),
        Step::Load(encode::load(Literal::Doubleword, 14, 0, 0)),
    ];
    // SAFETY: the steps only add to words that outlive the snippets, and load from no device.
    let [at, back] = [&load[..], &[]].map(|steps| unsafe { Snippet::new(&[steps, &count()].concat(), false) }.unwrap());
    let insertions = [Insertion::new(&at, words.distance(10)), Insertion::new(&back, words.distance(11))];
    let function = target as *const () as usize;
    HANDLED.store(0, Relaxed);
    let kprobe = Kprobe::at(function).arguments(handle);
    // SAFETY: the insertion and the snippet outlive the probe.
    let kprobe = unsafe { kprobe.snippet(&insertions[0]) }.register().unwrap();
    let kretprobe = Kretprobe::at(function).handler(handle_return).maxactive(1);
    // SAFETY: the insertion and the snippet outlive the probe.
    let kretprobe = unsafe { kretprobe.snippet(&insertions[1]) }.register().unwrap();
    let modes = || probe::list().unwrap().into_iter().map(|listed| listed.mode).collect::<Vec<_>>();
    assert_eq!(modes(), [Some(Mode::Compiled); 2]);
    let call = |number: u64| {
        assert_eq!(target(black_box(number)), number);
        assert!(IrqMask::new().was_enabled(), "the masks are as they were");
    };
    let found = || ([10, 11].map(|word| words.sum(word)), HANDLED.load(Relaxed), [kprobe.hits(), kretprobe.hits()]);
    let mut before = [words.sum(10), words.sum(11)];
    numbers.into_iter().for_each(call);
    // A call that is left is handled both at the entry and at the return.
    assert_eq!(found(), ([before[0] + 2, before[1] + 2], 4, [4, 4]));
    assert_eq!((kprobe.missed(), kretprobe.missed(), kretprobe.active()), (0, 0, 0));
    // With one probe disarmed, the other works alone. Afterwards both work as before.
    before = [10, 11].map(|word| words.sum(word));
    kprobe.disable().unwrap();
    numbers.into_iter().for_each(call);
    assert_eq!(found(), ([before[0], before[1] + 4], 4, [4, 8]));
    kprobe.enable().unwrap();
    kretprobe.disable().unwrap();
    numbers.into_iter().for_each(call);
    assert_eq!(found(), ([before[0] + 2, before[1] + 4], 6, [8, 8]));
    kretprobe.enable().unwrap();
    numbers.into_iter().for_each(call);
    assert_eq!(found(), ([before[0] + 4, before[1] + 6], 10, [12, 12]));
    // A third probe makes the stub call all handlers.
    let third = Kprobe::at(function).register().unwrap();
    assert_eq!(modes(), [Some(Mode::Optimized); 3]);
    numbers.into_iter().for_each(call);
    assert_eq!(found(), ([before[0] + 4, before[1] + 6], 18, [16, 16]));
    drop(third);
    assert_eq!(modes(), [Some(Mode::Compiled); 2]);
    numbers.into_iter().for_each(call);
    assert_eq!(found(), ([before[0] + 6, before[1] + 8], 22, [20, 20]));
    assert_eq!((kprobe.missed(), kretprobe.missed(), kretprobe.active()), (0, 0, 0));
}

test!(
    depends(core),
    fn a_snippet_and_a_return_probe_at_one_instruction_are_both_done_or_both_left() {
        task::spawn_on(0, "caller", do_or_leave_both).join();
    }
);

test!(
    depends(cpus, core),
    fn probes_of_a_pair_come_and_go_and_lose_nothing() {
        let rounds = if is_thorough() { 12 } else { 4 };
        let words = CpuWords::new().unwrap();
        // SAFETY: the steps only add to words that outlive the snippet.
        let snippet = unsafe { Snippet::new(&count(), false) }.unwrap();
        let insertions = [12, 13].map(|word| Insertion::new(&snippet, words.distance(word)));
        let function = target as *const () as usize;
        HANDLED.store(0, Relaxed);
        let tasks = endless_callers();
        // SAFETY: the insertion and the snippet outlive the probe.
        let kprobe = unsafe { Kprobe::at(function).arguments(handle).snippet(&insertions[0]) }.register().unwrap();
        // SAFETY: the insertion and the snippet outlive the probe.
        let kretprobe = unsafe { Kretprobe::at(function).handler(handle_return).snippet(&insertions[1]) };
        let kretprobe = kretprobe.maxactive(64).register().unwrap();
        let hits = || [kprobe.hits(), kretprobe.hits()];
        let wait = |grows: [bool; 2]| {
            let before = hits();
            while (0..2).any(|probe| grows[probe] && hits()[probe] <= before[probe]) {
                task::yield_now();
            }
        };
        for round in 0..rounds {
            wait([true, true]);
            let probe: &Registration = if round % 2 == 0 { &kprobe } else { &kretprobe };
            probe.disable().unwrap();
            while probe.active() != 0 {
                task::yield_now();
            }
            let gone = (round % 2) as usize;
            let stays = hits()[gone];
            wait([gone == 1, gone == 0]);
            assert_eq!(hits()[gone], stays, "a probe that is not armed is hit");
            probe.enable().unwrap();
        }
        kprobe.disable().unwrap();
        kretprobe.disable().unwrap();
        while kretprobe.active() != 0 {
            task::yield_now();
        }
        let dealt_with = words.sum(12) + words.sum(13) + HANDLED.load(Relaxed);
        assert_eq!(hits().iter().sum::<u64>(), dealt_with);
        assert_eq!(kretprobe.missed(), 0);
        // Only a hit that is interrupted on its way into the stub of the return probe alone, and then finds only the
        // other probe, is missed.
        assert!(kprobe.missed() <= rounds * CALLERS, "{}", kprobe.missed());
        IS_OVER.store(true, Relaxed);
        join(tasks);
    }
);

test!(
    depends(core),
    fn a_load_that_faults_leaves_all_to_the_handler() {
        let words = CpuWords::new().unwrap();
        let load = Step::Load(encode::load(Literal::Doubleword, 13, 0, 0));
        let plain = [&[load][..], &count()].concat();
        let masked = [&[Step::Mask], &plain[..], &[Step::Unmask]].concat();
        let good = (&raw const CALLED).addr() as u64;
        for (probe, (steps, is_masked)) in
            BOTH.into_iter().flat_map(|probe| [(&plain, false), (&plain, true), (&masked, false)].map(|of| (probe, of)))
        {
            HANDLED.store(0, Relaxed);
            let before = words.sum(5);
            // SAFETY: the steps only add to words that outlive the snippet, and load from no device.
            let snippet = unsafe { Snippet::new(steps, is_masked) }.unwrap();
            let insertion = Insertion::new(&snippet, words.distance(5));
            let probe = probe(target as *const () as usize, &insertion);
            for address in [good, 0xffff_ff7f_dead_bee0, good, 0, 1 << 60] {
                assert_eq!(target(black_box(address)), address);
                assert!(IrqMask::new().was_enabled(), "the masks are as they were");
            }
            assert_eq!((words.sum(5) - before, HANDLED.load(Relaxed), probe.hits()), (2, 3, 5));
        }
    }
);

test!(
    depends(core),
    fn calls_that_end_together_are_each_dealt_with_as_they_were_entered() {
        let words = CpuWords::new().unwrap();
        // SAFETY: the steps only add to words that outlive the snippet.
        let snippet = unsafe { Snippet::new(&count(), false) }.unwrap();
        let insertions = [6, 7].map(|word| Insertion::new(&snippet, words.distance(word)));
        // The first function ends with a tail call of the second, so both return with the same stack pointer.
        let functions = [fixture::TAIL_CALL, fixture::IDENTITY].map(|fixture| fixture.address());
        // If the function that is entered second has no code at its return, the first return is handled with it: both
        // handlers are called then.
        for (compiled, expected) in
            [([true, true], [1, 2]), ([true, false], [0, 0]), ([false, true], [0, 2]), ([false, false], [0, 0])]
        {
            let before = [6, 7].map(|word| words.sum(word));
            RETURN_ADDRESSES.store(0, Relaxed);
            let probes = [0, 1].map(|each| {
                let probe = Kretprobe::at(functions[each]).handler(note_return_address);
                if compiled[each] {
                    // SAFETY: the insertion and the snippet outlive the probe.
                    unsafe { probe.snippet(&insertions[each]) }.register().unwrap()
                } else {
                    probe.register().unwrap()
                }
            });
            assert_eq!(fixture::TAIL_CALL.call(black_box(5)), 6);
            assert_eq!(fixture::IDENTITY.call(black_box(5)), 5);
            for (probe, hits) in probes.iter().zip([1, 2]) {
                assert_eq!((probe.hits(), probe.missed(), probe.active()), (hits, 0, 0), "{compiled:?}");
            }
            let counted = [0, 1].map(|each| words.sum(6 + each) - before[each]);
            assert_eq!(counted, expected, "{compiled:?}");
            assert_eq!(RETURN_ADDRESSES.load(Relaxed), 3 - counted.iter().sum::<u64>(), "{compiled:?}");
        }
    }
);

#[inline(never)]
fn sum_to(number: u64) -> u64 {
    if number == 0 { 0 } else { number + black_box(sum_to(black_box(number - 1))) }
}

test!(
    depends(core),
    fn calls_in_each_other_are_all_dealt_with_and_followed_again() {
        const DEPTH: u64 = 4;
        let words = CpuWords::new().unwrap();
        // SAFETY: the steps only add to words that outlive the snippet.
        let snippet = unsafe { Snippet::new(&count(), false) }.unwrap();
        let insertion = Insertion::new(&snippet, words.distance(9));
        // The last followed call uses the last instance.
        let probe = Kretprobe::at(sum_to as *const () as usize).handler(handle_return).maxactive(DEPTH as u32);
        // SAFETY: the insertion and the snippet outlive the probe.
        let probe = unsafe { probe.snippet(&insertion) }.register().unwrap();
        HANDLED.store(0, Relaxed);
        for round in 1..=8 {
            assert_eq!(sum_to(black_box(DEPTH - 1)), 6);
            assert_eq!(
                (words.sum(9), probe.hits(), probe.missed(), probe.active()),
                (DEPTH * round, DEPTH * round, 0, 0)
            );
        }
        // The results are the same with another snippet at the entry.
        let other = Insertion::new(&snippet, words.distance(8));
        // SAFETY: the insertion and the snippet outlive the probe.
        let entered = unsafe { Kprobe::at(probe.address()).arguments(handle).snippet(&other) }.register().unwrap();
        for round in 9..=12 {
            assert_eq!(sum_to(black_box(DEPTH - 1)), 6);
            assert_eq!((probe.hits(), probe.missed(), probe.active()), (DEPTH * round, 0, 0));
            assert_eq!((entered.hits(), entered.missed()), (DEPTH * (round - 8), 0));
            let dealt_with = words.sum(8) + words.sum(9) + HANDLED.load(Relaxed);
            assert_eq!(dealt_with, probe.hits() + entered.hits());
        }
        drop(entered);
        let (returns, handled) = (words.sum(9), HANDLED.load(Relaxed));
        // A call that is not followed also returns correctly.
        assert_eq!(sum_to(black_box(DEPTH + 1)), 15);
        assert_eq!((words.sum(9) - returns, probe.missed(), HANDLED.load(Relaxed) - handled), (DEPTH, 2, 0));
    }
);

/// The number of calls whose handler saw a return address in the text outside of the trampoline.
static RETURN_ADDRESSES: AtomicU64 = AtomicU64::new(0);

extern "C" fn note_return_address(call: &mut Call<'_>) {
    if runtime::memory::layout::text().contains(&call.return_address()) && !probe::is_trampoline(call.return_address())
    {
        RETURN_ADDRESSES.fetch_add(1, Relaxed);
    }
}

test!(
    depends(cpus, core, interruption),
    fn a_probe_that_takes_the_place_of_another_loses_no_hit() {
        const TURNS: usize = 12;
        let words = CpuWords::new().unwrap();
        let steps = [Step::Operand(12)];
        // SAFETY: the steps only change registers.
        let snippets = [false, true].map(|is_masked| unsafe { Snippet::new(&steps, is_masked) }.unwrap());
        let insertions = snippets.each_ref().map(|snippet| Insertion::new(snippet, words.distance(0)));
        let probe = || Kprobe::at(target as *const () as usize).arguments(handle).disabled();
        // SAFETY: the insertions and the snippets outlive the probes.
        let compiled = insertions.each_ref().map(|insertion| unsafe { probe().snippet(insertion) }.register().unwrap());
        let [one, other] = compiled;
        let probes = [one, other, probe().register().unwrap()];
        let modes = [Mode::Compiled, Mode::Compiled, Mode::Lean];
        let before = CALLED.load(Relaxed);
        HANDLED.store(0, Relaxed);
        probes[0].enable().unwrap();
        let tasks = endless_callers();
        for turn in 0..TURNS {
            let (from, to) = (turn % 3, (turn + 1) % 3);
            let hits = probes[from].hits();
            while probes[from].hits() <= hits + turn as u64 {
                task::yield_now();
            }
            probes[from].exchange(&probes[to]).unwrap();
            assert_eq!(probes.each_ref().map(|probe| probe.is_enabled()), [0, 1, 2].map(|probe| probe == to));
            let listed = probe::list().unwrap();
            assert_eq!(listed.iter().find_map(|listed| listed.mode), Some(modes[to]));
        }
        IS_OVER.store(true, Relaxed);
        join(tasks);
        let hits = probes.each_ref().map(|probe| probe.hits());
        assert_eq!(hits.iter().sum::<u64>(), CALLED.load(Relaxed) - before, "{hits:?}");
        assert!(hits.iter().all(|&hits| hits > 0), "{hits:?}");
        // A task that was in the stub of the last probe when the next one replaced it calls the handler of that.
        assert!(HANDLED.load(Relaxed) >= hits[2]);
        assert!(probes.iter().all(|probe| probe.missed() == 0));
    }
);
