//! Samples: they come at exact times on every CPU, show the code that the CPU executes, and end with their program.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::asm;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use runtime::interrupt::counters::{self, Event};
use runtime::interrupt::{self, FastError, fast};
use runtime::sync::IrqMask;
use runtime::task::JoinHandle;
use runtime::{smp, task, time};

use super::{finished, map, number, refused, start, target};
use crate::smp::sum_over_cpus;
use crate::test;

/// Defines functions that do nothing else until the counter reads their argument.
macro_rules! spinners {
    ($($name:ident = $number:literal;)*) => {
        $(
            #[inline(never)]
            fn $name(end: u64) {
                while time::counter() < end {
                    // Without different numbers, the functions could be merged.
                    black_box($number);
                }
            }
        )*
    };
}

spinners! {
    first = 1;
    second = 2;
    third = 3;
    masked = 4;
}

/// Runs `spin` for `duration`, and returns the ticks of the counter that it took.
fn spin(spin: fn(u64), duration: Duration) -> u64 {
    let begin = time::counter();
    black_box(spin)(begin + time::ticks(duration));
    time::counter() - begin
}

fn milliseconds(ticks: u64) -> u64 {
    time::duration(ticks).as_millis() as u64
}

/// Sleeps three times for `part`. A busy host may stall the machine for one of these times.
fn sleep_in_parts(part: Duration) {
    (0..3).for_each(|_| task::sleep(part));
}

/// The ticks that the functions have taken.
static TICKS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

test!(
    depends(interrupts, board),
    needs FAST_INTERRUPTS,
    fn functions_have_their_shares_of_the_samples() {
        const MIX: [(fn(u64), u64); 3] = [(first, 6), (second, 30), (third, 24)];
        let program = start("profile:hz:1000 /comm == \"mixed\"/ { @[func] = count(); @all = count(); }");
        let mix = || {
            for _ in 0..25 {
                for ((function, milliseconds), ticks) in MIX.iter().zip(&TICKS) {
                    ticks.fetch_add(spin(*function, Duration::from_millis(*milliseconds)), Relaxed);
                }
            }
        };
        task::spawn_on(0, "mixed", mix).join();
        let out = finished(program);
        let counts = map(&out, "");
        let (all, missed) = (number(&out, "@all: "), number(&out, "Missed "));
        let ticks: u64 = TICKS.iter().map(|ticks| ticks.load(Relaxed)).sum();
        // Each sample stands for a millisecond. Missed samples stand for an unknown function.
        let real = milliseconds(ticks);
        assert!(all <= real + 15 && all + missed + 15 >= real, "{all} in {real} ms: {out}");
        for (name, part) in ["first", "second", "third"].iter().zip(&TICKS) {
            let count = counts.get(&format!("tests::programs::samples::{name}")).copied().unwrap_or(0);
            let (found, real) = (1000 * count / all, 1000 * part.load(Relaxed) / ticks);
            assert!(found.abs_diff(real) <= 20 + 1000 * missed / all, "{name}: {found} instead of {real}: {out}");
        }
    }
);

test!(
    depends(cpus, interrupts, entry, board),
    needs FAST_INTERRUPTS,
    fn every_cpu_is_sampled_at_exact_times() {
        let begin = time::counter();
        let program = start(
            "profile:hz:500 { @fast[cpu] = count(); } software:cpu-clock:10000000 { @slow[cpu] = count(); } \
             p:ms:70 { @rare = count(); }",
        );
        let inner = time::counter();
        sleep_in_parts(Duration::from_millis(300));
        let inner = milliseconds(time::counter() - inner);
        let out = finished(program);
        let outer = milliseconds(time::counter() - begin) + 1;
        let cpus = smp::running().count() as u64;
        let missed = number(&out, "Missed ");
        for (name, period) in [("fast", 2), ("slow", 10)] {
            let counts = map(&out, name);
            assert_eq!(counts.len() as u64, cpus, "{out}");
            for count in counts.values() {
                // A stalled emulator misses some.
                assert!((10..=outer / period).contains(count), "{name}, {outer} ms: {out}");
                assert!(count + missed >= inner / period, "{name}, {inner} ms: {out}");
            }
        }
        let rare = number(&out, "@rare: ");
        assert!(rare <= outer / 70 * cpus && rare + missed >= inner / 70 * cpus, "{inner} ms: {out}");
    }
);

test!(
    depends(cpus, interrupts, entry, board),
    needs FAST_INTERRUPTS,
    fn code_that_has_interrupts_masked_is_sampled() {
        const LENGTH: Duration = Duration::from_millis(60);
        // A busy host may stall the machine for one of the rounds.
        const ROUNDS: u64 = 3;
        let program = start("p:hz:1000 { @[cpu, func, reg(\"pstate\") >> 7 & 1] = count(); }");
        for cpu in smp::running() {
            let busy = || {
                for _ in 0..ROUNDS {
                    let _mask = IrqMask::new();
                    spin(masked, LENGTH);
                }
            };
            task::spawn_on(cpu, "masked", busy).join();
        }
        let out = finished(program);
        let counts = map(&out, "");
        let missed = number(&out, "Missed ");
        for cpu in smp::running() {
            let count = |bit: u8| {
                let key = format!("{cpu}, tests::programs::samples::masked, {bit}");
                counts.get(&key).copied().unwrap_or(0)
            };
            let due = ROUNDS * (LENGTH.as_millis() as u64 - 1);
            assert!(count(0) == 0 && count(1) + missed >= due, "CPU {cpu}: {out}");
            // A stalled emulator misses most.
            assert!(count(1) >= 3, "CPU {cpu}: {out}");
        }
    }
);

/// The length of the work of which cycles are counted.
const BUSY: Duration = Duration::from_millis(60);

test!(
    depends(cpus, core, interrupts, entry, board),
    needs COUNTER_INTERRUPTS,
    fn every_cpu_is_sampled_by_its_own_cycles() {
        const FAST: u64 = 100_000;
        const SLOW: u64 = 1_000_000;
        let text = format!("h:cycles:{FAST} {{ @fast[cpu] = count(); }} hardware:cpu-cycles:{SLOW} {{ @slow[cpu] = count(); }}");
        let program = start(&text);
        for cpu in smp::running() {
            task::spawn_on(cpu, "busy", || _ = spin(first, BUSY)).join();
        }
        let out = finished(program);
        let (fast, slow, missed) = (map(&out, "fast"), map(&out, "slow"), number(&out, "Missed "));
        let cpus = smp::running().count() as u64;
        // A stalled emulator misses most.
        assert_eq!((fast.len() as u64, slow.len() as u64), (cpus, cpus), "{out}");
        let (fast, slow) = (fast.values().sum::<u64>(), slow.values().sum::<u64>());
        assert!(slow + missed >= 3 * cpus, "{out}");
        // Both count the same cycles. Those after the last sample are no full period.
        assert!(fast <= (slow + missed + cpus) * SLOW / FAST, "{out}");
        assert!(fast + missed + cpus >= slow * SLOW / FAST, "{out}");
    }
);

test!(
    depends(cpus, core, interrupts, entry, board),
    needs COUNTER_INTERRUPTS,
    fn cycles_are_sampled_where_interrupts_are_masked() {
        let program = start("h:cycles:1e5 /comm == \"masks\"/ { @[func, reg(\"pstate\") >> 7 & 1] = count(); }");
        for cpu in smp::running() {
            let busy = || {
                let mask = IrqMask::new();
                spin(masked, BUSY);
                drop(mask);
                spin(first, BUSY);
            };
            task::spawn_on(cpu, "masks", busy).join();
        }
        let is_ordinary = program.unmasked_only().is_some();
        let out = finished(program);
        let counts = map(&out, "");
        let count = |name: &str| counts.get(&format!("tests::programs::samples::{name}")).copied().unwrap_or(0);
        let least = 3 * smp::running().count() as u64;
        assert!(count("first, 0") >= least && count("first, 1") == 0 && count("masked, 0") == 0, "{out}");
        assert!(if is_ordinary { count("masked, 1") == 0 } else { count("masked, 1") >= least }, "{out}");
    }
);

/// Returns which event counters of this CPU count.
fn counting() -> u64 {
    let counting: u64;
    // SAFETY: the CPU has performance monitors, as its cycles can be sampled. Reading the register has no effect.
    unsafe { asm!("mrs {}, pmcntenset_el0", out(reg) counting, options(nomem, nostack, preserves_flags)) };
    counting & 0x7fff_ffff
}

/// Returns the sum of [`counting`] over the CPUs.
fn counting_anywhere() -> u64 {
    sum_over_cpus(counting)
}

test!(
    depends(cpus, core, interrupts, board),
    needs COUNTER_INTERRUPTS,
    fn counting_ends_with_the_program() {
        let cpus = smp::running().count() as u64;
        for _ in 0..3 {
            let program = start("h:cycles:2147483647 { @ = count(); } h:cycles:2e9 { @n = count(); }");
            assert_eq!((program.probes(), counting_anywhere()), (2, 0b11 * cpus));
            drop(program);
            assert_eq!(counting_anywhere(), 0);
            // The samples of another program do not resume the counting.
            let program = start("profile:us:100 { @ = count(); if (@n++ > 20) { exit(); } }");
            while {
                assert_eq!(counting_anywhere(), 0);
                !program.is_over()
            } {}
            drop(program);
        }
        let program = start("h:cycles:50000 { @ = count(); if (nsecs) { exit(); } }");
        while !program.is_over() {
            task::yield_now();
        }
        let out = finished(program);
        assert!((1..=cpus).contains(&number(&out, "@: ")), "{out}");
        assert_eq!(counting_anywhere(), 0);
    }
);

test!(
    depends(cpus, core, interrupts, board),
    fn what_no_cpu_counts_is_refused() {
        let clauses = "h:cycles { @ = count(); } ".repeat(32);
        let sentence = |text: &str| refused(text).lines().next().map(String::from).unwrap_or_default();
        let has_counters = (crate::need::COUNTER_INTERRUPTS.is_met)();
        let too_many = sentence(&clauses);
        if has_counters {
            let most = too_many.strip_prefix("error: this machine counts at most ");
            let most = most.and_then(|rest| rest.strip_suffix(" events of hardware at once"));
            let most: usize = most.and_then(|most| most.parse().ok()).expect(&too_many);
            drop(start(&"h:cycles { @ = count(); } ".repeat(most)));
            let text = format!("p:hz:1 {{ }} {}", "h:cycles { } ".repeat(most + 1));
            let (place, length) = (text.rfind("h:cycles").unwrap_or(0), "h:cycles".len());
            let marks = format!("\n  {}{}\n", " ".repeat(place), "^".repeat(length));
            assert!(refused(&text).ends_with(&marks), "{}", refused(&text));
        } else {
            assert!(too_many.starts_with("error: the CPUs cannot be sampled by events of hardware: "), "{too_many}");
        }
        let text = "profile:hz:1 { @ = count(); } h:cache-misses { @ = count(); } BEGIN { print(1); }";
        // Hardware counts it, and QEMU does not.
        if has_counters && !smp::running().all(|cpu| counters::counts(cpu, Event::L1D_CACHE_REFILL)) {
            let caret = format!("\n  {}{}\n", " ".repeat(30), "^".repeat("h:cache-misses".len()));
            let expected = "error: this machine does not count cache-misses; use profile:hz:N";
            assert_eq!(refused(text), format!("{expected}\n  {text}{caret}"));
        }
    }
);

/// Whether the callers of [`target`] are to end.
static IS_OVER: AtomicBool = AtomicBool::new(false);

test!(
    depends(cpus, core, interrupts),
    needs FAST_INTERRUPTS,
    fn samples_among_hits_show_the_probed_code() {
        // One of the probes is on the handler of samples.
        let program = start(
            "profile:us:200 /comm == \"caller\"/ { @[func] = count(); @caller[caller, kstack(2)] = count(); } \
             kprobe:tests::programs::target { @calls = count(); @args[arg0 & 3]++; } \
             kretprobe:tests::programs::target { @returns = count(); } \
             insn:tests::programs::samples::call:* { @steps = count(); } \
             kprobe:runtime::sampling::take { @taken = count(); }",
        );
        let tasks: Vec<JoinHandle> =
            smp::running().map(|cpu| task::spawn_on(cpu, "caller", || while !IS_OVER.load(Relaxed) { call() })).collect();
        sleep_in_parts(Duration::from_millis(200));
        IS_OVER.store(true, Relaxed);
        tasks.into_iter().for_each(JoinHandle::join);
        let out = finished(program);
        let counts = map(&out, "");
        let all: u64 = counts.values().sum();
        assert!(all >= 100, "{out}");
        assert!(counts.keys().all(|name| !name.starts_with("0x")), "{out}");
        let sampled = |name: &str| counts.get(&format!("tests::programs::{name}")).copied().unwrap_or(0);
        assert!(sampled("target") > 0 && sampled("samples::call") > 0, "{out}");
        let taken = number(&out, "@taken: ");
        assert!(taken >= all, "{taken}: {out}");
        assert_eq!(number(&out, "@calls: "), number(&out, "@returns: "), "{out}");
        let args: u64 = map(&out, "args").values().sum();
        assert_eq!(args, number(&out, "@calls: "), "{out}");
    }
);

#[inline(never)]
fn call() {
    for number in 0..100 {
        black_box(target(black_box(number), core::ptr::null()));
    }
}

/// Returns whether the physical timer of this CPU is armed.
fn is_armed() -> bool {
    let control: u64;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("mrs {}, cntp_ctl_el0", out(reg) control, options(nomem, nostack, preserves_flags)) };
    control & 1 != 0
}

/// Returns the number of CPUs whose timers are armed.
fn armed() -> usize {
    sum_over_cpus(|| is_armed().into()) as usize
}

test!(
    depends(cpus, interrupts, board),
    needs FAST_INTERRUPTS,
    fn samples_end_with_their_program() {
        let cpus = smp::running().count();
        assert_eq!(armed(), 0);
        for _ in 0..10 {
            let text = "BEGIN { printf(\"begin\\n\"); } profile:s:100 { @ = count(); } END { printf(\"end\\n\"); }";
            let program = start(text);
            assert_eq!((program.probes(), armed()), (3, cpus));
            assert_eq!(
                refused("BEGIN { print(1); } p:us:10 { @ = count(); }"),
                // The `BEGIN` of the refused program has not run.
                "error: the CPUs are sampled already: end the other program first\n  \
                 BEGIN { print(1); } p:us:10 { @ = count(); }\n                      ^^^^^^^\n"
            );
            assert_eq!(finished(program), "begin\nend\n");
            assert_eq!(armed(), 0);
            drop(start("software:cpu-clock:10000 { @[kstack] = count(); }"));
            assert_eq!(armed(), 0);
        }
        let program = start("profile:us:500 { @ = count(); if (nsecs) { exit(); } }");
        while !program.is_over() {
            task::yield_now();
        }
        let out = finished(program);
        let count = number(&out, "@: ");
        assert!((1..=cpus as u64).contains(&count), "{out}");
    }
);

test!(
    depends(cpus),
    needs FAST_INTERRUPTS,
    fn samples_that_take_longer_than_their_period_leave_time_for_others() {
        let text = "software:cpu-clock:10000 { for ($i : 0..2000) { @n++; } @samples = count(); }";
        let program = start(text);
        let begin = time::now();
        while time::now() - begin < Duration::from_millis(200) {
            task::yield_now();
        }
        let out = finished(program);
        assert!(number(&out, "@samples: ") >= 2 && number(&out, "Missed ") >= 100, "{out}");
    }
);

test!(
    depends(cpus, core),
    needs COUNTER_INTERRUPTS,
    fn samples_of_events_leave_time_for_others() {
        /// Returns how often this task yields in a fixed time.
        fn turns() -> u64 {
            let begin = time::now();
            let mut turns = 0;
            while time::now() - begin < Duration::from_millis(200) {
                turns += 1;
                task::yield_now();
            }
            turns
        }
        let alone = turns();
        let clause = "h:cycles:10000 { for ($i : 0..2000) { @n++; } @samples = count(); } ";
        let program = start(&clause.repeat(4));
        // A busy host may stall the machine for one of these times.
        let beside = turns().max(turns()).max(turns());
        let out = finished(program);
        // Half of the time is left, and not only the time of 10,000 cycles after each sample.
        assert!(number(&out, "@samples: ") >= 8 && beside >= alone / 10, "{beside} instead of {alone}: {out}");
    }
);

/// The counter when a CPU had masked all interrupts; 0 before that.
static MASKED_SINCE: AtomicU64 = AtomicU64::new(0);

test!(
    depends(cpus, interrupts, board),
    needs SECOND_CPU,
    fn samples_that_are_due_when_the_program_ends_are_missed() {
        const DUE: u64 = 60;
        let last = smp::running().last().unwrap_or(0);
        let begin = time::counter();
        let program = start("p:hz:1000 { @[cpu] = count(); }");
        let masked = task::spawn_on(last, "masked", || {
            interrupt::without(|| {
                MASKED_SINCE.store(time::counter(), Relaxed);
                spin(masked, Duration::from_millis(3 * DUE));
            });
        });
        let end = move || {
            while MASKED_SINCE.load(Relaxed) == 0 {
                task::yield_now();
            }
            while milliseconds(time::counter() - MASKED_SINCE.load(Relaxed)) <= DUE {
                core::hint::spin_loop();
            }
            let out = finished(program);
            let (taken, missed) = (map(&out, "").values().sum::<u64>(), number(&out, "Missed "));
            let outer = milliseconds(time::counter() - begin) + 1;
            assert!(missed >= DUE, "{out}");
            assert!(taken + missed <= outer * smp::running().count() as u64, "{outer} ms: {out}");
        };
        task::spawn_on(0, "end", end).join();
        masked.join();
    }
);

test!(
    depends(cpus, core, interrupts, board),
    needs COUNTER_INTERRUPTS,
    fn cycles_that_nothing_could_be_sampled_for_are_missed() {
        // The program goes on, or ends while interrupts are masked.
        for is_ended in [false, true] {
            MASKED_SINCE.store(0, Relaxed);
            let program = start("h:cycles:1e5 /comm == \"masked\"/ { @[func] = count(); }");
            let last = smp::running().last().unwrap_or(0);
            let masked = task::spawn_on(last, "masked", || {
                interrupt::without(|| {
                    MASKED_SINCE.store(time::counter(), Relaxed);
                    spin(masked, BUSY);
                });
                spin(first, BUSY);
            });
            let (out, masked) = match is_ended {
                false => {
                    masked.join();
                    (finished(program), None)
                }
                true => {
                    while MASKED_SINCE.load(Relaxed) == 0 {
                        task::yield_now();
                    }
                    (finished(program), Some(masked))
                }
            };
            masked.into_iter().for_each(JoinHandle::join);
            let missed = number(&out, "Missed ");
            assert!(missed >= 60, "{is_ended}: {out}");
            assert_eq!(map(&out, "").get("tests::programs::samples::masked"), None, "{out}");
        }
    }
);

test!(
    depends(cpus, core, interrupts, board),
    needs COUNTER_INTERRUPTS,
    fn cycles_after_long_samples_are_missed() {
        // Each sample takes longer than its cycles, so the counters do not interrupt most of the time.
        let loops = "for ($i : 0..200) { for ($j : 0..200) { @n++; } }";
        let program = start(&format!("h:cycles:10000 {{ {loops} @samples = count(); }}"));
        let busy = || {
            for _ in 0..5 {
                spin(first, Duration::from_millis(50));
                interrupt::without(|| spin(masked, Duration::from_millis(20)));
            }
        };
        task::spawn_on(0, "masked", busy).join();
        let out = finished(program);
        assert!(number(&out, "Missed ") >= 5 * 1000, "{out}");
    }
);

test!(
    depends(cpus, interrupts, board),
    fn code_that_has_interrupts_masked_is_sampled_by_fast_interrupts_only() {
        const LENGTH: Duration = Duration::from_millis(60);
        // A busy host may stall the machine for several rounds.
        const ROUNDS: u64 = 5;
        let program = start("p:hz:1000 /comm == \"masks\"/ { @[func] = count(); }");
        let is_ordinary = program.unmasked_only().is_some();
        assert_eq!(is_ordinary, fast::check() == Err(FastError::Secure));
        let last = smp::running().last().unwrap_or(0);
        let busy = || {
            for _ in 0..ROUNDS {
                let mask = IrqMask::new();
                spin(masked, LENGTH);
                drop(mask);
                spin(first, LENGTH);
            }
        };
        task::spawn_on(last, "masks", busy).join();
        let out = finished(program);
        let (counts, missed) = (map(&out, ""), number(&out, "Missed "));
        let count = |name: &str| counts.get(&format!("tests::programs::samples::{name}")).copied().unwrap_or(0);
        let due = ROUNDS * (LENGTH.as_millis() as u64 - 1);
        assert!(count("first") >= 10 && count("first") + missed >= due, "{out}");
        if is_ordinary {
            assert!(count("masked") == 0 && missed >= due - ROUNDS, "{out}");
        } else {
            assert!(count("masked") >= 10 && count("masked") + missed >= due, "{out}");
        }
    }
);
