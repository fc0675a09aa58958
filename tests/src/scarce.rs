//! The kernel's allocator fails at the first allocation of an operation, then at its second, and so on. Each time the
//! operation returns an error, and the probes and the allocated bytes are the same as before.
//!
//! In a thorough run, each allocation fails in turn. In a usual run, each of the first 32 does, and ever fewer of the
//! later ones: after allocation `n`, the next to fail is `n / 16` further. A usual run misses a defect that shows only
//! if one of the others fails.

use alloc::string::String;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::fmt::Debug;
use core::hint::black_box;
use core::iter;
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use aarch64_kprobes::probe::{CallArguments, CpuWords, Insertion, Mode, Snippet, Step};
use aarch64_kprobes::{Hit, Kprobe, Kretprobe, ProbeError, probe};
use fallible::OutOfMemory;
use kprobes_console::program::{ProgramRefusal, RunningProgram, list};
use kprobes_console::tracing;
use kprobes_trace::definition::{Command, Problem, parse};
use kprobes_trace::engine::Probe;
use kprobes_trace::errno::Errno;
use kprobes_trace::events::Events;
use runtime::{memory, println, task, workload};

use crate::programs::finished;
use crate::{is_thorough, test};

/// The heap of the kernel, with a limit on the allocations of one task.
pub struct Heap;

/// The number of the limited task, plus 1; or 0 for none.
static LIMITED: AtomicUsize = AtomicUsize::new(0);
/// The number of further allocations of that task that succeed.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Counts an allocation of the limited task, and returns whether it fails.
fn fails() -> bool {
    let limited = LIMITED.load(Relaxed);
    limited != 0
        && limited == task::current_task_number() as usize + 1
        && LEFT.try_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
}

// SAFETY: all calls are forwarded to the kernel's heap, which fulfils the contract. A failure returns null, which the
// contract allows.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails() {
            return ptr::null_mut();
        }
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::alloc`.
        unsafe { memory::Heap.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::dealloc`, and all memory comes from the kernel's
        // heap.
        unsafe { memory::Heap.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if fails() {
            return ptr::null_mut();
        }
        // SAFETY: the caller fulfils the contract of `GlobalAlloc::realloc`, and all memory comes from the kernel's
        // heap.
        unsafe { memory::Heap.realloc(pointer, layout, size) }
    }
}

fn with_memory<T>(allocations: usize, action: impl FnOnce() -> T) -> T {
    LEFT.store(allocations, Relaxed);
    LIMITED.store(task::current_task_number() as usize + 1, Relaxed);
    let result = action();
    LIMITED.store(0, Relaxed);
    result
}

/// Runs `operation` with its allocations failing in turn, as this module says, and then with none failing. A failed
/// attempt may leave memory to the next attempt, which may free it. Each is therefore repeated until the number of
/// allocated bytes is one that occurred before.
fn each_allocation<T, E: Debug>(
    what: &str,
    mut operation: impl FnMut() -> Result<T, E>,
    is_failure: impl Fn(&E) -> bool,
) -> T {
    const TIMES: usize = 16;
    let probes = || probe::list().expect("there is memory").len();
    let registered = probes();
    let after = |allocations: &usize| {
        let step = if is_thorough() { 1 } else { (allocations / 16).max(1) };
        Some(allocations + step)
    };
    for allocations in iter::successors(Some(0), after) {
        let mut found = [memory::statistics().heap_used; TIMES + 1];
        for time in 1.. {
            match with_memory(allocations, &mut operation) {
                Ok(result) => {
                    assert!(allocations > 0, "{what} allocates nothing");
                    println!("{what}: no more than {allocations} allocations");
                    return result;
                }
                Err(error) => assert!(is_failure(&error), "{what}, with {allocations} allocations: {error:?}"),
            }
            assert_eq!(probes(), registered, "{what}, with {allocations} allocations");
            let now = memory::statistics().heap_used;
            if found[..time].contains(&now) {
                break;
            }
            assert!(time < TIMES, "{what} leaves memory behind, with {allocations} allocations: {found:?}, {now}");
            found[time] = now;
        }
    }
    unreachable!("an operation has an end")
}

#[inline(never)]
extern "C" fn target(number: u64, complement: u64) -> u64 {
    black_box(number ^ complement).wrapping_add(number)
}

extern "C" fn nothing(_: &mut Hit<'_>) {}

test!(
    fn a_probe_is_registered_or_the_error_says_that_there_is_no_memory() {
        let address = target as *const () as usize;
        let is_memory = |error: &ProbeError| *error == ProbeError::OutOfMemory { address };
        let first = each_allocation("a probe", || Kprobe::at(address).pre(nothing).register(), is_memory);
        let second =
            each_allocation("another at the instruction", || Kprobe::at(address).post(nothing).register(), is_memory);
        let returns = each_allocation("a return probe", || Kretprobe::at(address).maxactive(9).register(), is_memory);
        black_box(target(1, 2));
        assert_eq!((first.hits(), second.hits(), returns.hits()), (1, 1, 1));
    }
);

extern "C" fn enter(_: &CallArguments) {}

test!(
    fn one_of_two_that_share_code_goes_where_there_is_no_memory() {
        let address = target as *const () as usize;
        let words = CpuWords::new().unwrap();
        // SAFETY: the snippet only changes a register that it may use.
        let snippet = unsafe { Snippet::new(&[Step::Operand(12)], false) }.unwrap();
        let insertion = Insertion::new(&snippet, words.distance(0));
        // SAFETY: the insertion and the snippet outlive the probe.
        let probe = unsafe { Kprobe::at(address).arguments(enter).snippet(&insertion) }.register().unwrap();
        let returns = Kretprobe::at(address).register().unwrap();
        let modes = || probe::list().expect("there is memory").iter().map(|listed| listed.mode).collect::<Vec<_>>();
        let hits = || {
            black_box(target(1, 2));
            [probe.hits(), returns.hits()]
        };
        assert_eq!((modes(), hits()), (alloc::vec![Some(Mode::Compiled); 2], [1, 1]));
        with_memory(0, || probe.disable()).unwrap();
        assert_eq!((modes(), hits()), (alloc::vec![Some(Mode::Optimized); 2], [1, 2]));
        probe.enable().unwrap();
        assert_eq!((modes(), hits()), (alloc::vec![Some(Mode::Compiled); 2], [2, 3]));
        with_memory(0, || returns.disable()).unwrap();
        assert_eq!((modes(), hits()), (alloc::vec![Some(Mode::Optimized); 2], [3, 3]));
        returns.enable().unwrap();
        assert_eq!((modes(), hits()), (alloc::vec![Some(Mode::Compiled); 2], [4, 4]));
        assert_eq!([probe.missed(), returns.missed()], [0, 0]);
    }
);

test!(
    fn an_event_is_defined_and_counted_or_the_error_says_that_there_is_no_memory() {
        let address = target as *const () as usize;
        let mut events: Events<Probe> = tracing::events(tracing::rings()).unwrap();
        let line = alloc::format!("p:g/called {address:#x} number=%x0 other=%x1 name=%x1:symstr text=+0(%x0):string");
        let define = || match parse(&line).map_err(|error| error.problem)? {
            Some(Command::Define(definition)) => {
                events.define(definition, &tracing::Names).map_err(|error| error.problem)
            }
            _ => panic!("{line} is no definition"),
        };
        // A probe for which the engine has no memory is refused with its reason.
        each_allocation("an event", define, |problem| matches!(problem, Problem::OutOfMemory | Problem::Refused));
        for (what, text) in [
            ("a filter", "number > 2 && (other < 9 || cpu != 1)"),
            ("a histogram", "hist:keys=number.log2:vals=other if number > 2"),
        ] {
            let set = || match what {
                "a filter" => events.set_filter(("g", "called"), text),
                _ => events.set_trigger(("g", "called"), text),
            };
            each_allocation(what, set, |error| *error == Errno::NoMemory);
        }
        each_allocation(
            "an event that is enabled",
            || events.set_enabled(Some("g"), None, true),
            |error| *error == Errno::NoMemory,
        );
        black_box(target(3, 4));
        assert_eq!(events.iter().map(|event| event.hits()).sum::<u64>(), 1);
    }
);

test!(
    fn a_task_is_started_or_the_error_says_that_there_is_no_memory() {
        static RUN: AtomicUsize = AtomicUsize::new(0);
        let listed = || task::list().expect("there is memory").len();
        let before = listed();
        let body = || _ = RUN.fetch_add(1, Relaxed);
        let failed = |_: &OutOfMemory| listed() == before && RUN.load(Relaxed) == 0;
        each_allocation("a task", || task::try_spawn("scarce", body), failed).join();
        assert_eq!(RUN.load(Relaxed), 1);
        each_allocation("a list of tasks", task::list, |&OutOfMemory| true);
        let workload = workload::find("sha256").expect("it is there");
        let (iterations, tasks) = (8, 4);
        let run = || workload::run(workload, iterations, tasks, || false);
        let report = each_allocation("a workload", run, |&OutOfMemory| listed() == before);
        assert_eq!((report.right, report.wrong), (iterations, 0));
    }
);

fn is_memory(refusal: &ProgramRefusal) -> bool {
    let mut why = String::new();
    refusal.write("", &mut why).expect("there is memory");
    why.contains("memory")
}

#[inline(never)]
extern "C" fn called(number: u64) -> u64 {
    black_box(number)
}

test!(
    fn a_program_is_started_or_the_error_says_that_there_is_no_memory() {
        let text = "BEGIN { @begun = 1; } kprobe:tests::scarce::called /arg0 > 1/ { @[func, arg0] = count(); @h = hist(arg0); } \
            kretprobe:tests::scarce::called { printf(\"%d %s\\n\", retval, func); }";
        // A clause that cannot be compiled for lack of memory is interpreted.
        let says_so = |refusal: &Option<ProgramRefusal>| refusal.as_ref().is_none_or(is_memory);
        let start = || match RunningProgram::start(text) {
            Ok(program) if program.interpreted().is_empty() => Ok(program),
            outcome => Err(outcome.err()),
        };
        let program = each_allocation("a program", start, says_so);
        black_box(called(black_box(7)));
        let out = finished(program);
        assert!(
            out.contains("@begun: 1") && out.contains(", 7]: 1") && out.contains("7 tests::scarce::called"),
            "{out}"
        );
    }
);

test!(
    fn inlined_copies_are_found_or_the_error_says_that_there_is_no_memory() {
        const PROBE: &str = "inline:tests::inlined::counted:entry";
        let listed = each_allocation("a list of copies", || list(PROBE, false), is_memory);
        assert!(listed.len() >= 7, "{listed:?}");
        let text = alloc::format!("{PROBE} {{ @[caller] = count(); }}");
        let program = each_allocation("a program on copies", || RunningProgram::interpret(&text), is_memory);
        assert!(program.probes() >= 7);
    }
);

/// Starts a program of three probes, some of which are samples.
fn start_samples(what: &str, text: &str) {
    let program = each_allocation(what, || RunningProgram::start(text), is_memory);
    assert_eq!(program.probes(), 3);
    drop(program);
    // Nothing is left of the attempts.
    drop(RunningProgram::start(text).expect("there is memory, and nothing is sampled"));
}

test!(
    needs FAST_INTERRUPTS,
    fn samples_are_started_or_the_error_says_that_there_is_no_memory() {
        let text = "profile:s:100 { @ = count(); } software:cpu-clock:1e9 { @clock = count(); } END { printf(\"end\\n\"); }";
        start_samples("samples", text);
    }
);

test!(
    needs COUNTER_INTERRUPTS,
    fn samples_of_events_are_started_or_the_error_says_that_there_is_no_memory() {
        let text = "h:cycles:1e9 { @ = count(); } profile:s:100 { @s = count(); } h:cycles:2e9 { @c = count(); }";
        start_samples("samples of events", text);
    }
);
