//! Probes on inlined copies of functions count the calls in the source.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kprobes_console::program::{self, ProgramRefusal, RunningProgram};
use runtime::task::JoinHandle;
use runtime::{smp, task};

use crate::programs::{finished, map, started};
use crate::test;

/// The number of calls of [`counted`].
static CALLS: AtomicU64 = AtomicU64::new(0);

/// A function that is inlined everywhere, except where it is called by a pointer.
#[inline(always)]
fn counted(number: u64) -> u64 {
    // Each copy begins with this instruction. The addition may begin with a loop of exclusives, whose first instruction
    // is executed again when a store fails.
    //
    // SAFETY: NOP has no effect.
    unsafe { core::arch::asm!("nop") };
    CALLS.fetch_add(1, Relaxed);
    let mut bits = 0;
    let mut rest = number;
    while rest > 0 {
        bits += black_box(rest & 1);
        rest >>= 1;
    }
    bits
}

/// Contains one copy, on every path.
#[inline(never)]
fn straight(number: u64) -> u64 {
    counted(number).wrapping_mul(3)
}

/// Contains two copies, each on one of two paths.
#[inline(never)]
fn either(number: u64) -> u64 {
    if number.is_multiple_of(2) { counted(number) + 5 } else { counted(black_box(number ^ 4)).wrapping_mul(7) }
}

/// Contains one copy, in a loop.
#[inline(never)]
fn repeated(count: u64) -> u64 {
    (0..count).map(|number| counted(number ^ 9)).sum()
}

/// A function that is inlined, and contains a copy.
#[inline(always)]
fn around(number: u64) -> u64 {
    counted(number) + black_box(1)
}

/// Contains two copies, each within a copy of another function.
#[inline(never)]
fn twice(number: u64) -> u64 {
    around(number) * around(number + 1)
}

/// Contains one copy, with which it returns early.
#[inline(never)]
fn early(number: u64) -> u64 {
    if number > 3 {
        return counted(number);
    }
    black_box(number) + 1
}

/// Calls all these functions, 1,000 times on each CPU, on all CPUs at once.
fn work() {
    let all = || {
        for number in 0..1000_u64 {
            let number = black_box(number);
            let by_pointer: fn(u64) -> u64 = black_box(counted);
            black_box(straight(number) + either(number) + repeated(number % 5) + twice(number) + early(number % 8));
            black_box(by_pointer(number));
        }
    };
    let workers = smp::running().map(|cpu| task::spawn_on(cpu, "worker", all));
    workers.collect::<alloc::vec::Vec<_>>().into_iter().for_each(JoinHandle::join);
}

/// Returns what `program` prints during [`work`], and the number of calls of [`counted`] meanwhile.
fn printed(program: Result<RunningProgram, ProgramRefusal>, text: &str) -> (String, u64) {
    let program = started(text, program);
    let before = CALLS.load(Relaxed);
    work();
    let calls = CALLS.load(Relaxed) - before;
    (finished(program), calls)
}

const BOTH: &str = "inline:tests::inlined::counted:entry { @entered[caller] = count(); @begun = count(); @who[func] = count(); } \
                    inline:tests::inlined::counted:return { @left[caller] = count(); @over = count(); @probe[probe] = count(); } \
                    kprobe:tests::inlined::counted { @alone = count(); @who[func] = count(); }";

test!(
    depends(cpus),
    fn copies_are_entered_and_left_as_often_as_the_function_is_called() {
        let listed = program::list("inline:tests::inlined::counted:entry", false).unwrap_or_default();
        assert!(listed.len() >= 7, "{listed:?}");
        // A copy in pieces, as in an unrolled loop, may have fewer entries than the source has calls.
        let is_unrolled = listed.iter().any(|copy| copy.contains("::repeated") && copy.ends_with(", in pieces"));
        for start in [RunningProgram::start, RunningProgram::interpret] {
            let (out, calls) = printed(start(BOTH), BOTH);
            let cpus = smp::running().count() as u64;
            let alone = 1000 * cpus;
            let about = format!("{calls} calls: {out}{listed:#?}");
            let entered = map(&out, "entered");
            // `repeated` makes its calls from a closure, which is itself inlined.
            let repeated: u64 = entered
                .iter()
                .filter(|(name, _)| name.starts_with("tests::inlined::repeated"))
                .map(|(_, count)| count)
                .sum();
            let unseen = if is_unrolled { 2000 * cpus - repeated } else { 0 };
            let inlined = calls - alone - unseen;
            assert!(out.contains(&format!("@alone: {alone}\n@begun: {inlined}\n")), "{about}");
            assert!(out.contains(&format!("@over: {inlined}\n")), "{about}");
            let callers = [("straight", 1000), ("either", 1000), ("repeated", 2000), ("around", 2000), ("early", 500)];
            let expected: BTreeMap<String, u64> =
                callers.iter().map(|(name, count)| (format!("tests::inlined::{name}"), count * cpus)).collect();
            assert_eq!(entered.values().sum::<u64>(), expected.values().sum::<u64>() - unseen, "{about}");
            for (name, count) in expected.iter().filter(|(name, _)| !name.ends_with("repeated")) {
                assert_eq!(entered.get(name), Some(count), "{name}: {about}");
            }
            assert_eq!(map(&out, "left"), entered, "{about}");
            assert_eq!(map(&out, "who"), [("tests::inlined::counted".to_string(), alone + inlined)].into(), "{about}");
            assert_eq!(
                map(&out, "probe"),
                [("inline:tests::inlined::counted:return".to_string(), inlined)].into(),
                "{about}"
            );
        }
    }
);

test!(
    depends(cpus),
    fn a_function_that_has_no_address_is_known_by_its_path() {
        let text = "inline:tests::inlined::around:entry /func == \"tests::inlined::around\"/ { @[func, caller] = count(); } \
                    inline:tests::inlined::around:entry /func == \"tests::inlined::early\"/ { @wrong = count(); }";
        let (out, _) = printed(RunningProgram::start(text), text);
        let expected = 2000 * smp::running().count();
        assert_eq!(out, format!("@[tests::inlined::around, tests::inlined::twice]: {expected}\n"));
    }
);
