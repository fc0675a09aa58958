//! Probes on copies of functions that the compiler has put into others: that they count what the source calls.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kprobes_console::program::{self, Program, Refusal};
use runtime::task::JoinHandle;
use runtime::{smp, task};

use crate::test;

/// How often [`counted`] was called.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// What is inlined, and is also a function by itself, for who calls it by a pointer.
#[inline(always)]
fn counted(number: u64) -> u64 {
    // Each copy begins here: the addition may begin with a loop of exclusives, the first instruction of which is executed again
    // where it fails.
    // SAFETY: it does nothing.
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

/// One copy, on every way.
#[inline(never)]
fn straight(number: u64) -> u64 {
    counted(number).wrapping_mul(3)
}

/// Two copies, of which one is on each way.
#[inline(never)]
fn either(number: u64) -> u64 {
    if number.is_multiple_of(2) { counted(number) + 5 } else { counted(black_box(number ^ 4)).wrapping_mul(7) }
}

/// One copy, in a loop.
#[inline(never)]
fn repeated(count: u64) -> u64 {
    (0..count).map(|number| counted(number ^ 9)).sum()
}

/// What is inlined with a copy in it.
#[inline(always)]
fn around(number: u64) -> u64 {
    counted(number) + black_box(1)
}

/// Two copies, each in another one.
#[inline(never)]
fn twice(number: u64) -> u64 {
    around(number) * around(number + 1)
}

/// One copy, by which the function is left before its end.
#[inline(never)]
fn early(number: u64) -> u64 {
    if number > 3 {
        return counted(number);
    }
    black_box(number) + 1
}

/// Calls all of them, 1,000 times for each CPU, on all at a time.
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

/// What `program` prints of [`work`], and how often [`counted`] is called by it.
fn printed(program: Result<Program, Refusal>, text: &str) -> (String, u64) {
    let program = program.unwrap_or_else(|refusal| {
        let mut why = String::new();
        let _ = refusal.write(text, &mut why);
        panic!("{why}")
    });
    let before = CALLS.load(Relaxed);
    work();
    let calls = CALLS.load(Relaxed) - before;
    let mut out = String::new();
    program.finish(&mut out).expect("a string can be written to");
    (out, calls)
}

/// The numbers of the map `name`, by their keys.
fn map(printed: &str, name: &str) -> BTreeMap<String, u64> {
    let start = format!("@{name}[");
    let entries = printed.lines().filter_map(|line| line.strip_prefix(&start)?.rsplit_once("]: "));
    entries.map(|(key, value)| (key.to_string(), value.parse().expect("a number"))).collect()
}

const BOTH: &str = "inline:tests::inlined::counted:entry { @entered[caller] = count(); @begun = count(); @who[func] = count(); } \
                    inline:tests::inlined::counted:return { @left[caller] = count(); @over = count(); @probe[probe] = count(); } \
                    kprobe:tests::inlined::counted { @alone = count(); @who[func] = count(); }";

test!(
    depends(cpus),
    fn copies_are_entered_and_left_as_often_as_the_function_is_called() {
        let listed = program::list("inline:tests::inlined::counted:entry", false).unwrap_or_default();
        assert!(listed.len() >= 7, "{listed:?}");
        // Of a copy in pieces, as in a loop that is unrolled, entries may be fewer than the calls of the source.
        let is_unrolled = listed.iter().any(|copy| copy.contains("::repeated") && copy.ends_with(", in pieces"));
        for start in [Program::start, Program::interpret] {
            let (out, calls) = printed(start(BOTH), BOTH);
            let cpus = smp::running().count() as u64;
            let alone = 1000 * cpus;
            let about = format!("{calls} calls: {out}{listed:#?}");
            let entered = map(&out, "entered");
            // `repeated` calls from a closure, which is inlined itself.
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
        let (out, _) = printed(Program::start(text), text);
        let expected = 2000 * smp::running().count();
        assert_eq!(out, format!("@[tests::inlined::around, tests::inlined::twice]: {expected}\n"));
    }
);
