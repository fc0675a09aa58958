//! The CPUs: all run, one can hold the others, and a failure stops them all.
//!
//! The tests also run with one CPU, where they check less, and are skipped if they would check nothing.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use core::time::Duration;

use aarch64_kprobes::{Hit, Kprobe};
use kprobes_console::symbol;
use runtime::per_cpu::MAX_CPUS;
use runtime::sync::IrqMask;
use runtime::task::JoinHandle;
use runtime::{machine, smp, task, time};

use crate::machine::grow;
use crate::{fixture, test};

static TURNS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Computes until the end of the test, and counts its turns.
#[inline(never)]
fn spin(turns: &AtomicU64) {
    while !IS_OVER.load(Relaxed) {
        turns.fetch_add(1, Relaxed);
    }
}

/// Starts a spinning task on each CPU. Returns when all have begun.
fn spin_everywhere() -> Vec<JoinHandle> {
    let before = turns();
    let spinners = smp::running().map(|cpu| task::spawn_on(cpu, "spinner", move || spin(&TURNS[cpu]))).collect();
    wait_for_turns(&before);
    spinners
}

fn turns() -> [u64; MAX_CPUS] {
    TURNS.each_ref().map(|turns| turns.load(SeqCst))
}

/// Waits until every spinner has made progress.
fn wait_for_turns(before: &[u64; MAX_CPUS]) {
    while smp::running().any(|cpu| TURNS[cpu].load(Relaxed) == before[cpu]) {
        task::yield_now();
    }
}

fn end(spinners: Vec<JoinHandle>) {
    IS_OVER.store(true, Relaxed);
    spinners.into_iter().for_each(JoinHandle::join);
}

/// Gives other CPUs time to do what they must not do.
fn pass_time(duration: Duration) {
    let until = time::now() + duration;
    while time::now() < until {
        core::hint::spin_loop();
    }
}

/// Calls `f` on each CPU, one after the other.
pub fn on_each_cpu(f: impl FnOnce() + Copy + Send + 'static) {
    for cpu in smp::running() {
        task::spawn_on(cpu, "visitor", f).join();
    }
}

/// Starts a task on each CPU that calls `f`.
pub fn start_on_each_cpu(name: &str, f: impl FnOnce() + Copy + Send + 'static) -> Vec<JoinHandle> {
    smp::running().map(|cpu| task::spawn_on(cpu, name, f)).collect()
}

/// Returns the sum of what `f` returns on each CPU.
pub fn sum_over_cpus(f: fn() -> u64) -> u64 {
    static SUM: AtomicU64 = AtomicU64::new(0);
    SUM.store(0, Relaxed);
    on_each_cpu(move || _ = SUM.fetch_add(f(), Relaxed));
    SUM.load(Relaxed)
}

test!(
    depends(cpus, core, interrupts, entry, board),
    fn every_cpu_of_the_tree_runs_under_its_number() {
        let all: Vec<usize> = smp::running().collect();
        assert_eq!(all, (0..smp::list().len()).collect::<Vec<_>>());
        assert!(smp::list().iter().all(|cpu| cpu.error.is_none()));
        assert_eq!(smp::surplus(), 0);
        let mut idle: Vec<usize> =
            task::list().unwrap().iter().filter(|task| task.name == "idle").map(|task| task.cpu).collect();
        idle.sort_unstable();
        assert_eq!(idle, all, "each has its idle task");
        on_each_cpu(|| {
            let mpidr: u64;
            // SAFETY: reads an identification register, and has no other effect.
            unsafe { core::arch::asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack)) };
            let affinity = mpidr & device_tree::AFFINITY;
            assert_eq!(smp::list()[task::current_cpu()].affinity, affinity);
        });
    }
);

test!(
    depends(cpus, core, interrupts, entry, board),
    fn every_cpu_takes_its_timer_interrupts() {
        on_each_cpu(|| task::sleep(Duration::from_millis(1)));
    }
);

/// Returns how often each CPU repeats its work: `most` times with up to four CPUs, and with more CPUs as often in all
/// as four CPUs. A CPU that is held spins, so a rendezvous takes longer the more CPUs share the cores of a host.
fn times(most: u64) -> u64 {
    most.min((4 * most).div_ceil(smp::running().count() as u64))
}

test!(
    depends(cpus, interrupts),
    fn a_rendezvous_holds_all_others_whoever_calls() {
        let spinners = spin_everywhere();
        on_each_cpu(|| {
            for _ in 0..times(20) {
                let mut calls = 0;
                smp::hold_cpus(&mut || {
                    calls += 1;
                    let before = turns();
                    pass_time(Duration::from_millis(2));
                    assert_eq!(turns(), before, "a CPU that is held goes on");
                });
                assert_eq!(calls, 1);
                wait_for_turns(&turns());
            }
        });
        end(spinners);
    }
);

test!(
    depends(cpus, interrupts),
    fn several_tasks_call_for_rendezvous_in_turn() {
        static IS_HELD: AtomicBool = AtomicBool::new(false);
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let callers = start_on_each_cpu("caller", || {
            for _ in 0..times(50) {
                smp::hold_cpus(&mut || {
                    assert!(!IS_HELD.swap(true, Relaxed));
                    CALLS.fetch_add(1, Relaxed);
                    IS_HELD.store(false, Relaxed);
                });
            }
        });
        let count = callers.len() as u64;
        callers.into_iter().for_each(JoinHandle::join);
        assert_eq!(CALLS.load(Relaxed), times(50) * count);
    }
);

test!(
    depends(cpus, interrupts),
    fn interrupted_code_is_found_on_held_cpus_and_in_preempted_tasks() {
        let here = spin as *const () as usize;
        let size = symbol::lookup(here).unwrap().size as usize;
        // There are two tasks on each CPU: one is preempted, and the other is interrupted or preempted.
        let mut spinners = spin_everywhere();
        spinners.extend(smp::running().map(|cpu| {
            task::spawn_on(cpu, "spinner", move || {
                spin(&TURNS[cpu]);
            })
        }));
        let mut found = 0;
        // The second tasks may not have begun yet.
        while found != spinners.len() {
            smp::hold_cpus(&mut || {
                found = 0;
                smp::interrupted(&mut |pc| found += usize::from((here..here + size).contains(&pc)));
                assert!(found <= spinners.len());
            });
            task::yield_now();
        }
        end(spinners);
        smp::hold_cpus(&mut || {
            smp::interrupted(&mut |pc| assert!(!(here..here + size).contains(&pc)));
        });
    }
);

/// The text written to the UART, as far as there is room. On a busy host, many CPUs may be reported.
static WRITTEN: [AtomicU8; 8192] = [const { AtomicU8::new(0) }; 8192];
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// A handler on `Output::write_str`, whose x1 and x2 are the text.
extern "C" fn note_text(hit: &mut Hit<'_>) {
    let (text, length) = (hit.frame().x[1], hit.frame().x[2] as usize);
    let start = LENGTH.fetch_add(length, Relaxed);
    for (index, place) in WRITTEN.iter().skip(start).take(length).enumerate() {
        // SAFETY: the bytes are the text of the function, which is about to read it.
        place.store(unsafe { (text as *const u8).add(index).read() }, Relaxed);
    }
    LENGTH.load(SeqCst);
}

/// Returns the bytes written so far.
fn bytes_written() -> &'static [AtomicU8] {
    &WRITTEN[..LENGTH.load(SeqCst).min(WRITTEN.len())]
}

fn written() -> String {
    bytes_written().iter().map(|byte| byte.load(Relaxed) as char).collect()
}

/// Returns whether `text` was written. Neither writes nor formats.
fn is_written(text: &str) -> bool {
    let is_text = |found: &[AtomicU8]| found.iter().map(|byte| byte.load(Relaxed)).eq(text.bytes());
    bytes_written().windows(text.len()).any(is_text)
}

test!(
    depends(cpus, interrupts),
    needs SECOND_CPU,
    fn a_cpu_with_interrupts_masked_is_reported_and_awaited_while_the_others_go_on() {
        // A busy host may let other CPUs be late as well, and the report come after more than the first second.
        const MISSING: &str = "CPU 1 has not answered for ";
        const REASON: &str = " s: it has interrupts masked\n";
        const BACK: &str = "CPU 1 answers again\n";
        static IS_MASKED: AtomicBool = AtomicBool::new(false);
        let writes = fixture::address_of("<runtime::uart::Output as core::fmt::Write>::write_str");
        let probe = Kprobe::at(writes).pre(note_text).register().unwrap();
        // The spinner on CPU 1 does not run while the other task there has interrupts masked.
        let spinners = spin_everywhere();
        let masked = task::spawn_on(1, "masked", || {
            let mask = IrqMask::new();
            IS_MASKED.store(true, Release);
            // The following code must not use the console or format text, because only the report may be written.
            while !is_written(MISSING) {
                core::hint::spin_loop();
            }
            // If CPUs were held now, they would not continue before this one does.
            let before = turns();
            while smp::running().any(|cpu| cpu > 1 && TURNS[cpu].load(Relaxed) < before[cpu] + 1_000_000) {
                core::hint::spin_loop();
            }
            drop(mask);
        });
        while !IS_MASKED.load(Acquire) {
            task::yield_now();
        }
        let mut calls = 0;
        smp::hold_cpus(&mut || calls += 1);
        assert_eq!(calls, 1);
        drop(probe);
        masked.join();
        end(spinners);
        let written = written();
        let (_, rest) = written.split_once(MISSING).expect("it was awaited");
        let (seconds, rest) = rest.split_once(REASON).unwrap_or_else(|| panic!("no reason: {written:?}"));
        assert!(seconds.parse::<u64>().is_ok() && rest.contains(BACK), "{written:?}");
    }
);

/// Displays whether exactly these CPUs, among the running ones, make progress while this CPU reports. Waits for them.
struct GoOn(&'static [usize]);

impl fmt::Display for GoOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected: usize = self.0.iter().filter(|cpu| smp::is_running(**cpu)).map(|cpu| 1 << cpu).sum();
        let before = turns();
        pass_time(Duration::from_millis(20));
        while smp::running().any(|cpu| expected >> cpu & 1 == 1 && TURNS[cpu].load(SeqCst) == before[cpu]) {
            core::hint::spin_loop();
        }
        let after = turns();
        let go_on: usize = smp::running().filter(|cpu| before[*cpu] != after[*cpu]).map(|cpu| 1 << cpu).sum();
        let told: usize = machine::still_running().map(|cpu| 1 << cpu).sum();
        match go_on == expected && told == expected {
            true => f.write_str("as expected"),
            false => write!(f, "CPUs {go_on:#b} go on, and {told:#b} by their own words, not {expected:#b}"),
        }
    }
}

test!(
    depends(cpus, interrupts),
    stops ": on purpose, as expected",
    fn a_panic_stops_the_other_cpus() {
        let _spinners = spin_everywhere();
        panic!("on purpose, {}", GoOn(&[]));
    }
);

test!(
    depends(cpus, interrupts),
    stops ": on purpose, as expected",
    fn a_panic_on_another_cpu_stops_all() {
        let _spinners = spin_everywhere();
        let last = smp::running().last().unwrap();
        task::spawn_on(last, "panics", || panic!("on purpose, {}", GoOn(&[]))).join();
    }
);

test!(
    depends(cpus, interrupts),
    stops ": on purpose, as expected",
    fn a_panic_while_others_are_held_stops_them() {
        let _spinners = spin_everywhere();
        smp::hold_cpus(&mut || panic!("on purpose, {}", GoOn(&[])));
    }
);

test!(
    depends(cpus, interrupts),
    stops ": on purpose, as expected",
    fn a_panic_is_reported_though_a_cpu_does_not_stop() {
        static IS_MASKED: AtomicBool = AtomicBool::new(false);
        let cpus = smp::list().len();
        if cpus == 1 {
            panic!("on purpose, {}", GoOn(&[]));
        }
        let _masked = task::spawn_on(1, "masked", || {
            let _mask = IrqMask::new();
            IS_MASKED.store(true, Release);
            spin(&TURNS[1]);
        });
        while !IS_MASKED.load(Acquire) {
            task::yield_now();
        }
        task::spawn_on(0, "panics", || panic!("on purpose, {}", GoOn(&[1]))).join();
    }
);

test!(
    depends(cpus, interrupts),
    stops ": on purpose, all at once",
    fn of_several_panics_one_is_reported() {
        static ARRIVED: AtomicUsize = AtomicUsize::new(0);
        let tasks: Vec<_> = smp::running()
            .map(|cpu| {
                task::spawn_on(cpu, "panics", || {
                    let _mask = IrqMask::new();
                    ARRIVED.fetch_add(1, Relaxed);
                    while ARRIVED.load(Relaxed) < smp::list().len() {
                        core::hint::spin_loop();
                    }
                    panic!("on purpose, all at once");
                })
            })
            .collect();
        tasks.into_iter().for_each(JoinHandle::join);
    }
);

test!(
    depends(cpus, interrupts),
    stops ": on purpose, among writers as expected",
    fn a_report_is_not_written_into() {
        fn write() {
            loop {
                runtime::println!("a line of a task that writes without end");
            }
        }
        for cpu in smp::running() {
            task::spawn_on(cpu, "writer", write);
        }
        // Interrupts do not stop these tasks.
        for cpu in smp::running().filter(|cpu| *cpu > 1) {
            task::spawn_on(cpu, "masked", || {
                let _mask = IrqMask::new();
                write();
            });
        }
        task::spawn_on(0, "panics", || {
            task::sleep(Duration::from_millis(20));
            panic!("on purpose, among writers {}", GoOn(&[]));
        })
        .join();
    }
);

test!(
    depends(cpus),
    stops "stack overflow at tests::machine::grow+",
    fn every_cpu_has_its_emergency_stack() {
        let last = smp::running().last().unwrap();
        task::spawn_on(last, "grows", || _ = black_box(grow(0))).join();
    }
);
