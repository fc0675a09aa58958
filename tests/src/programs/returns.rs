//! Returns are seen at any depth and through tail calls, in each way to probe them, with the caller that they return
//! to.

use alloc::format;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use aarch64_kprobes::probe::Registration;
use kprobes_console::program::RunningProgram;
use runtime::task::{self, JoinHandle};

use super::{Start, collatz, finished, map, printed, recurse, start, started, target};
use crate::fixture;
use crate::test;

test!(
    fn returns_are_seen_at_any_depth() {
        let text = "kretprobe:tests::programs::recurse { @back[retval] = count(); } \
                    return:tests::programs::recurse { @left[retval] = count(); @n = count(); }";
        let out = printed(text, || assert_eq!(recurse(black_box(30)), 30));
        let (back, left) = (map(&out, "back"), map(&out, "left"));
        assert_eq!((back.len(), &back), (31, &left), "{out}");
        assert!(!out.contains("Missed"), "{out}");
        // The recursion is deeper than calls can be followed: the others are missed, and reported as missed.
        let out = printed(text, || assert_eq!(recurse(black_box(150)), 150));
        let (back, left) = (map(&out, "back"), map(&out, "left"));
        assert_eq!(left.len(), 151, "{out}");
        let missed = 151 - back.len();
        assert!(missed > 0 && out.ends_with(&format!("Missed {missed} hits: {MISSED}\n")), "{out}");
    }
);

/// Why hits of a program with return probes are missed.
const MISSED: &str = "another hit was being handled on the same CPU, too many calls of the function were in progress, \
                      or a call did not return";

#[inline(never)]
fn end_within(_: u64) {
    // SAFETY: the functions of the task own no values.
    unsafe { task::exit() };
}

test!(
    fn calls_in_which_their_task_ended_are_missed() {
        let program = start("kretprobe:tests::programs::returns::end_within { @ = count(); }");
        task::spawn("ending", || end_within(black_box(1))).join();
        while program.registrations().map(Registration::missed).sum::<u64>() == 0 {
            task::yield_now();
        }
        assert_eq!(finished(program), format!("Missed 1 hit: {MISSED}\n"));
    }
);

/// Whether [`wait`] may return.
static MAY_RETURN: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn wait() {
    while !MAY_RETURN.load(Relaxed) {
        task::yield_now();
    }
}

test!(
    fn calls_that_have_not_returned_at_the_end_are_told_of() {
        let program = start(
            "kprobe:tests::programs::returns::wait { @in = count(); } kretprobe:tests::programs::returns::wait { @out = count(); }",
        );
        let tasks = [(); 2].map(|()| task::spawn("waiter", wait));
        while program.registrations().map(Registration::active).sum::<u32>() < 2 {
            task::yield_now();
        }
        let out = finished(program);
        MAY_RETURN.store(true, Relaxed);
        tasks.into_iter().for_each(JoinHandle::join);
        assert_eq!(out, "@in: 2\nMissed 2 returns: the call was in progress when the program ended\n");
    }
);

test!(
    fn a_tail_call_leaves_its_function() {
        let text = "kretprobe:fixture_tail_call { @back = count(); } return:fixture_tail_call { @left = count(); } \
                    return:fixture_identity { @value[retval] = count(); }";
        let out = printed(text, || (0..5).for_each(|number| _ = fixture::TAIL_CALL.call(number)));
        assert_eq!(out, "@back: 5\n@left: 5\n@value[1]: 1\n@value[2]: 1\n@value[3]: 1\n@value[4]: 1\n@value[5]: 1\n");
    }
);

test!(
    fn returns_by_each_way_to_see_them_have_the_same_values() {
        // The tail-called functions return their argument, so the value that is passed on is the value that is
        // returned.
        let functions =
            ["fixture_tail_call", "fixture_conditional_tail_call", "fixture_identity", "tests::programs::recurse"];
        let of = |kind: &str| functions.map(|function| format!("{kind}:{function}")).join(", ");
        let text = format!(
            "{} {{ @back[func, retval] = count(); }} {} {{ @left[func, retval] = count(); }}",
            of("kretprobe"),
            of("return")
        );
        let out = printed(&text, || {
            for number in 0..5 {
                assert_eq!(fixture::TAIL_CALL.call(number), number + 1);
                assert_eq!(fixture::CONDITIONAL_TAIL_CALL.call(number), if number == 0 { 0 } else { number + 7 });
            }
            assert_eq!(recurse(black_box(20)), 20);
        });
        let (back, left) = (map(&out, "back"), map(&out, "left"));
        assert_eq!(back, left, "{out}");
        let count =
            |function: &str| left.iter().filter(|(key, _)| key.starts_with(function)).map(|(_, count)| count).sum();
        let counts: [u64; 4] = functions.map(count);
        assert_eq!(counts, [5, 5, 6, 21], "{out}");
        assert!(!out.contains("Missed"), "{out}");
    }
);

test!(
    fn tail_calls_are_seen_at_any_depth() {
        let text = "return:fixture_count_down, return:fixture_count_further_down { @left[retval] = count(); @n = count(); } \
                    kprobe:fixture_count_down, kprobe:fixture_count_further_down { @entered = count(); }";
        let out = printed(text, || assert_eq!(fixture::COUNT_DOWN.call(1_000), 0));
        assert!(out.contains("@entered: 1001\n") && out.contains("@n: 1001\n") && !out.contains("Missed"), "{out}");
        let mut left = map(&out, "left");
        assert_eq!(left.remove("0"), Some(2), "the last branch passes it on, and then it is returned: {out}");
        assert_eq!(left.len(), 999, "{out}");
        assert!(left.values().all(|&count| count == 1), "{out}");
        let text = "kretprobe:fixture_count_down, kretprobe:fixture_count_further_down { @back[retval] = count(); }";
        let out = printed(text, || assert_eq!(fixture::COUNT_DOWN.call(40), 0));
        assert_eq!(out, "@back[0]: 41\n");
    }
);

test!(
    fn a_call_that_does_not_return_is_of_the_function_that_it_is_in() {
        let text = "kprobe:fixture_leave { @[caller] = count(); @is[caller == \"fixture_last_call\", \
                    caller == \"fixture_leave\", kaddr(\"fixture_leave\") - (u64)caller] = count(); }";
        for start in [RunningProgram::interpret as Start, RunningProgram::start] {
            let program = started(text, start(text));
            assert_eq!(fixture::LAST_CALL.call(3), 3);
            assert_eq!(finished(program), "@[fixture_last_call]: 1\n@is[1, 0, 4]: 1\n");
        }
    }
);

/// Has a frame, and ends with a branch to `next`, which is in a register.
#[inline(never)]
fn pass_on(next: extern "C" fn(u64) -> u64, number: u64) -> u64 {
    let number = target(number, core::ptr::null());
    next(number)
}

#[inline(never)]
fn caller_of_pass_on(number: u64) -> u64 {
    black_box(pass_on(black_box(collatz), number))
}

test!(
    fn the_caller_is_known_where_a_jump_leaves_a_function() {
        let text = "return:tests::programs::returns::pass_on { @[caller] = count(); }";
        let out = printed(text, || (1..=5).for_each(|number| _ = black_box(caller_of_pass_on(black_box(number)))));
        assert_eq!(out, "@[tests::programs::returns::caller_of_pass_on]: 5\n");
    }
);
