//! Programs: that what they find out of a real machine is right, whatever they probe, and that all of it is accounted for.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use aarch64_kprobes::insn::{self, Op, Verdict};
use aarch64_kprobes::probe;
use kprobes_program::compile::Refused;
use runtime::memory::{self, layout};
use runtime::program::{Program, Reason, Refusal, list};
use runtime::task::JoinHandle;
use runtime::{smp, symbol, task, workload};

use crate::fixture;
use crate::test;

/// Starts a program that is right.
fn start(text: &str) -> Program {
    started(text, Program::start)
}

/// The same, that is begun with by `start`.
fn started(text: &str, start: Start) -> Program {
    start(text).unwrap_or_else(|refusal| {
        let mut why = String::new();
        let _ = refusal.write(text, &mut why);
        panic!("{why}")
    })
}

type Start = fn(&str) -> Result<Program, Refusal>;

/// What a program prints that runs while `act` does.
fn printed(text: &str, act: impl FnOnce()) -> String {
    let program = start(text);
    act();
    finished(program)
}

fn finished(program: Program) -> String {
    let mut out = String::new();
    program.finish(&mut out).expect("a string can be written to");
    out
}

/// Why a program is refused.
fn refused(text: &str) -> String {
    let mut out = String::new();
    match Program::start(text) {
        Ok(_) => panic!("{text} is not refused"),
        Err(refusal) => refusal.write(text, &mut out).expect("a string can be written to"),
    }
    out
}

/// The numbers of the map `name` in what a program has printed, by their keys.
fn map(printed: &str, name: &str) -> BTreeMap<String, u64> {
    let start = format!("@{name}[");
    let entries = printed.lines().filter_map(|line| line.strip_prefix(&start)?.rsplit_once("]: "));
    entries.map(|(key, value)| (key.to_string(), value.parse().expect("a number"))).collect()
}

/// How often [`target`] was called.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// What is probed.
#[inline(never)]
extern "C" fn target(number: u64, pointer: *const u8) -> u64 {
    CALLS.fetch_add(1, Relaxed);
    black_box(pointer);
    number.wrapping_mul(3)
}

/// Calls [`target`] with the numbers from 0 on, on every CPU at a time; returns how many CPUs there are.
fn call_on_all_cpus(calls: u64) -> u64 {
    let callers: Vec<JoinHandle> = smp::running()
        .map(|cpu| {
            task::spawn_on(cpu, "caller", move || {
                (0..calls).for_each(|number| _ = black_box(target(black_box(number), core::ptr::null())));
            })
        })
        .collect();
    let cpus = callers.len() as u64;
    callers.into_iter().for_each(JoinHandle::join);
    cpus
}

test!(
    fn counts_are_those_that_a_function_counts_itself() {
        let text = "kprobe:tests::programs::target { @n = count(); @sum = sum(arg0); @last = max(arg0); @all++; @by[arg0 & \
                    1, comm] = count(); } \
                    kretprobe:tests::programs::target { @back = count(); @values = sum(retval); } \
                    return:tests::programs::target /retval == 3/ { @threes = count(); }";
        let before = CALLS.load(Relaxed);
        let mut cpus = 0;
        let out = printed(text, || cpus = call_on_all_cpus(10_000));
        let calls = CALLS.load(Relaxed) - before;
        assert_eq!(calls, cpus * 10_000);
        let sum = cpus * (10_000 * 9_999 / 2);
        let half = calls / 2;
        let expected = format!(
            "@all: {calls}\n@back: {calls}\n@by[0, caller]: {half}\n@by[1, caller]: {half}\n@last: 9999\n@n: {calls}\n@sum: \
             {sum}\n@threes: {cpus}\n@values: {}\n",
            3 * sum
        );
        assert_eq!(out, expected);
    }
);

/// As many steps as Collatz's sequence has from `number` to 1.
#[inline(never)]
fn collatz(mut number: u64) -> u64 {
    let mut steps = 0;
    while number > 1 {
        number = if number.is_multiple_of(2) { number / 2 } else { black_box(3 * number) + 1 };
        steps += 1;
    }
    steps
}

test!(
    fn instructions_of_a_loop_are_executed_as_often_as_their_block() {
        const CALLS: u64 = 40;
        let function = fixture::range_of(collatz as *const () as usize);
        // What begins a block: the entry, where a branch leads, and what follows one.
        let mut leaders = Vec::from([function.start]);
        for address in function.clone().step_by(4) {
            let word = probe::instruction(address).expect("an instruction");
            let Verdict::Simulate(op) = insn::classify(word) else { continue };
            if let Some(offset) = op.branch_offset() {
                leaders.push(address.wrapping_add_signed(offset as isize));
                leaders.push(address + 4);
            }
            if matches!(op, Op::BranchRegister { .. }) {
                leaders.push(address + 4);
            }
        }
        let sum = || (1..=CALLS).map(|number| black_box(collatz(black_box(number)))).sum::<u64>();
        let steps = sum();
        let out = printed("insn:tests::programs::collatz:* { @at[reg(\"pc\")] = count(); }", || _ = sum());
        let counts: BTreeMap<usize, u64> =
            map(&out, "at").iter().map(|(key, &count)| (key.parse().expect("an address"), count)).collect();
        assert_eq!(counts[&function.start], CALLS, "{out}");
        assert!(counts.values().any(|&count| count == steps), "an instruction for each step, {steps}: {out}");
        for address in function.clone().step_by(4).skip(1).filter(|address| !leaders.contains(address)) {
            assert_eq!(counts.get(&address), counts.get(&(address - 4)), "{address:#x}: {out}");
        }
        let is_return = |address: &usize| {
            let word = probe::instruction(*address).expect("an instruction");
            matches!(insn::classify(word), Verdict::Simulate(Op::BranchRegister { .. }))
        };
        let returns: u64 =
            function.clone().step_by(4).filter(is_return).filter_map(|address| counts.get(&address)).sum();
        assert_eq!(returns, CALLS, "it is left as often as it is called: {out}");
        // Each by itself, and the same.
        for address in function.clone().step_by(4) {
            let text = format!("insn:tests::programs::collatz:{} {{ @ = count(); }}", address - function.start);
            let expected = counts.get(&address).map_or(String::new(), |count| format!("@: {count}\n"));
            assert_eq!(printed(&text, || _ = sum()), expected, "{address:#x}");
        }
    }
);

/// Calls itself `depth` times; returns `depth`.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == 0 { 0 } else { black_box(recurse(black_box(depth - 1))) + 1 }
}

test!(
    fn returns_are_seen_at_any_depth() {
        let text = "kretprobe:tests::programs::recurse { @back[retval] = count(); } \
                    return:tests::programs::recurse { @left[retval] = count(); @n = count(); }";
        let out = printed(text, || assert_eq!(recurse(black_box(30)), 30));
        let (back, left) = (map(&out, "back"), map(&out, "left"));
        assert_eq!((back.len(), &back), (31, &left), "{out}");
        assert!(!out.contains("Missed"), "{out}");
        // Deeper than calls can be followed: those are missed, and said to be.
        let out = printed(text, || assert_eq!(recurse(black_box(150)), 150));
        let (back, left) = (map(&out, "back"), map(&out, "left"));
        assert_eq!(left.len(), 151, "{out}");
        let missed = 151 - back.len();
        let sentence =
            "as another was being handled on the same CPU, or too many calls of the function were in progress";
        assert!(missed > 0 && out.ends_with(&format!("Missed {missed} hits, {sentence}\n")), "{out}");
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
        // What is called at the end returns what it is given, so that what is passed on is what comes back.
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
        for start in [Program::interpret as Start, Program::start] {
            let program = started(text, start);
            assert_eq!(fixture::LAST_CALL.call(3), 3);
            assert_eq!(finished(program), "@[fixture_last_call]: 1\n@is[1, 0, 4]: 1\n");
        }
    }
);

/// One function of the source, and one in the image for each type.
#[inline(never)]
fn generic<T: Copy + Into<u64>>(value: T) -> u64 {
    black_box(value).into() + size_of::<T>() as u64
}

/// Two functions of one path, as there are where two crates have the same name.
#[inline(never)]
#[unsafe(export_name = "_RNvCs1_5twins4call")]
extern "C" fn first_twin(number: u64) -> u64 {
    black_box(number) + 1
}

/// See above.
#[inline(never)]
#[unsafe(export_name = "_RNvCs2_5twins4call")]
extern "C" fn second_twin(number: u64) -> u64 {
    black_box(number) + 2
}

test!(
    fn functions_of_one_path_match_together_and_are_told_apart() {
        let call = || {
            black_box(generic(black_box(1_u32)));
            (0..2).for_each(|_| _ = black_box(generic(black_box(1_u64))));
            (0..3).for_each(|number| _ = black_box(first_twin(black_box(number))));
            (0..4).for_each(|number| _ = black_box(second_twin(black_box(number))));
        };
        let first = if (first_twin as *const ()) < second_twin as *const () { 3 } else { 4 };
        let second = 7 - first;
        let (small, large) = ("tests::programs::generic::<u32>", "tests::programs::generic::<u64>");
        let out = printed("kprobe:tests::programs::generic, kprobe:twins::* { @[func] = count(); }", call);
        let counts = BTreeMap::from([(small, 1), (large, 2), ("twins::call#1", first), ("twins::call#2", second)]);
        let counts: BTreeMap<String, u64> = counts.into_iter().map(|(name, count)| (name.into(), count)).collect();
        assert_eq!(map(&out, ""), counts);
        let out = printed("kprobe:tests::programs::generic, kprobe:twins::call { @[probe] = count(); }", call);
        let probes: BTreeMap<String, u64> =
            counts.iter().map(|(name, &count)| (format!("kprobe:{name}"), count)).collect();
        assert_eq!(map(&out, ""), probes);
        // As it is printed, each means the one.
        for (probe, count) in probes {
            assert_eq!(printed(&format!("{probe} {{ @ = count(); }}"), call), format!("@: {count}\n"), "{probe}");
        }
        for (path, count) in [
            ("tests::programs::generic", 3),
            (small, 1),
            (large, 2),
            ("twins::call", 7),
            ("twins::call#1", first),
            ("twins::call#2", second),
            ("tests::programs::target", 0),
        ] {
            let text =
                format!("kprobe:tests::programs::generic, kprobe:twins::* /func == \"{path}\"/ {{ @ = count(); }}");
            let counted = if count > 0 { format!("@: {count}\n") } else { String::new() };
            for start in [Program::interpret as Start, Program::start] {
                let program = started(&text, start);
                call();
                assert_eq!(finished(program), counted, "{path}");
            }
        }
        assert!(refused("kprobe:twins::call#3 { @ = count(); }").starts_with("error: no function matches this\n"));
    }
);

test!(
    fn a_program_can_be_stopped_while_it_arms_its_probes() {
        let text = "BEGIN { printf(\"begin\\n\"); } kprobe:* /0/ { @ = count(); } END { printf(\"end\\n\"); }";
        let armed = |program: &Program| program.registrations().filter(|probe| probe.is_enabled()).count();
        let looks = Cell::new(0);
        let start = |most: usize| {
            looks.set(0);
            Program::start_unless(text, false, &|| looks.replace(looks.get() + 1) >= most)
        };
        let program = start(usize::MAX).expect("nobody stops it");
        let (all, whole) = (looks.get(), armed(&program));
        assert!(all >= 4 && whole == program.probes() - 2, "{whole} probes are armed after {all} looks");
        drop(program);
        let mut begun = 0;
        for most in 0..all {
            match start(most) {
                Ok(program) => {
                    begun += 1;
                    assert!(armed(&program) < whole, "{most}");
                    assert_eq!(finished(program), "begin\nend\n");
                }
                Err(refusal) => assert!(refusal.is_stopped() && begun == 0, "{most}"),
            }
            assert!(probe::list().is_empty());
        }
        assert_eq!(begun, all / 2, "as often while they are armed as while they are registered");
    }
);

test!(
    fn what_is_left_out_of_a_function_is_counted_as_that() {
        let program = start("insn:fixture_exclusive:* { @ = count(); }");
        let size = symbol::find("fixture_exclusive").next().expect("a symbol").size as usize;
        assert_eq!(program.refused(), Vec::<&str>::new());
        let left_out = program.refused_instructions();
        assert!(!left_out.is_empty() && left_out.is_sorted());
        assert_eq!(4 * (program.probes() + left_out.len()), size);
    }
);

/// Needs a frame, and ends with a jump to `next`, which is in a register.
#[inline(never)]
fn pass_on(next: fn(u64) -> u64, number: u64) -> u64 {
    let number = target(number, core::ptr::null());
    next(number)
}

#[inline(never)]
fn caller_of_pass_on(number: u64) -> u64 {
    black_box(pass_on(black_box(collatz), number))
}

test!(
    fn the_caller_is_known_where_a_jump_leaves_a_function() {
        let text = "return:tests::programs::pass_on { @[caller] = count(); }";
        let out = printed(text, || (1..=5).for_each(|number| _ = black_box(caller_of_pass_on(black_box(number)))));
        assert_eq!(out, "@[tests::programs::caller_of_pass_on]: 5\n");
    }
);

test!(
    fn what_has_no_place_in_a_map_is_counted() {
        let before = CALLS.load(Relaxed);
        let out = printed("kprobe:tests::programs::target { @[arg0] = count(); }", || _ = call_on_all_cpus(20_000));
        let calls = CALLS.load(Relaxed) - before;
        let kept: u64 = map(&out, "").values().sum();
        let lost = out.lines().find_map(|line| line.strip_prefix("@: ")?.split_once(" values lost")?.0.parse().ok());
        assert!(kept >= 1024, "{kept} are kept");
        assert_eq!(lost, Some(calls - kept), "of {calls} calls, {kept} are kept");
    }
);

test!(
    fn what_has_no_room_in_the_output_is_counted() {
        let before = CALLS.load(Relaxed);
        let text = "kprobe:tests::programs::target { printf(\"%d %s\\n\", arg0, comm); }";
        let out = printed(text, || _ = call_on_all_cpus(5_000));
        let calls = CALLS.load(Relaxed) - before;
        let shown = out.lines().filter(|line| line.ends_with(" caller")).count() as u64;
        assert!(shown > 0);
        assert!(out.ends_with(&format!("Lost {} events\n", calls - shown)), "{calls} calls, {shown} shown");
    }
);

test!(
    fn every_function_at_once_counts_right_and_harms_nobody() {
        let program = start("kprobe:* { @[func] = count(); } interval:ms:30 { print(@, 3); }");
        assert!(program.probes() > 500 && !program.refused().is_empty());
        let reader = program.reader();
        let shown = task::spawn("reader", move || {
            let mut out = String::new();
            while !reader.is_ending() {
                reader.drain(&mut out).expect("a string can be written to");
                out.clear();
                task::sleep(Duration::from_millis(5));
            }
        });
        let mut wanted = Vec::new();
        for (name, iterations) in [("sha256", 200), ("deflate", 12)] {
            let workload = workload::find(name).expect("the workload");
            let report = workload::run(workload, iterations, 2 * smp::running().count() as u64, || false);
            assert_eq!((report.right, report.wrong), (iterations, 0), "{name}");
            wanted.extend(workload.calls.iter().map(|&(function, calls)| (function, calls * iterations)));
        }
        let program = program.detach();
        shown.join();
        let mut out = String::new();
        program.finish(&mut out).expect("a string can be written to");
        let counts = map(&out, "");
        for (function, calls) in wanted {
            assert_eq!(counts.get(function), Some(&calls), "{function}: {out}");
        }
        assert!(!out.contains("values lost") && !out.contains("Missed"), "{out}");
    }
);

#[inline(never)]
fn caller_of_target(number: u64) -> u64 {
    black_box(target(number, core::ptr::null())) + 1
}

test!(
    fn callers_and_stacks_are_found_wherever_the_probe_is() {
        let size = symbol::lookup(caller_of_target as *const () as usize).expect("a symbol").size;
        let places = (0..size).step_by(4).map(|at| format!("insn:tests::programs::caller_of_target:{at}"));
        let text = format!(
            "kprobe:tests::programs::target, kretprobe:tests::programs::target, return:tests::programs::target {{ \
             @callers[caller == kaddr(\"tests::programs::target\"), ksym(caller)] = count(); @[kstack(3)] = count(); }} {} {{ \
             @outer[ksym(caller)] = count(); }}",
            places.collect::<Vec<_>>().join(", ")
        );
        let out = printed(&text, || _ = black_box(caller_of_target(black_box(1))));
        let callers = map(&out, "callers");
        let callers: Vec<(&str, u64)> = callers.iter().map(|(key, &count)| (key.as_str(), count)).collect();
        assert_eq!(callers, [("0, tests::programs::caller_of_target", 3)], "{out}");
        let outer = map(&out, "outer");
        assert_eq!(outer.len(), 1, "{out}");
        assert!(outer.keys().all(|name| !name.starts_with("tests::programs::caller_of_target")), "{out}");
        let stacks: Vec<&str> = out.lines().filter(|line| line.starts_with("    ")).map(str::trim).collect();
        assert!(
            stacks.iter().filter(|frame| frame.starts_with("tests::programs::caller_of_target+")).count() == 3,
            "{out}"
        );
    }
);

test!(
    fn memory_is_read_where_there_is_some() {
        static TEXT: &[u8; 16] = b"read by program\0";
        let text =
            "kprobe:tests::programs::target { printf(\"%s %d %x\\n\", str(arg1), *(u8 *)arg1, *(u32 *)(arg1 + 4)); }";
        let out = printed(text, || {
            black_box(target(0, TEXT.as_ptr()));
            black_box(target(0, 0xffff_ff7f_dead_bee0 as *const u8));
        });
        assert_eq!(out, "read by program 114 20796220\n 0 0\n3 reads of memory failed, and gave 0\n");
    }
);

test!(
    fn registers_are_those_of_the_probed_code() {
        // x9 is not passed by a call, so that all registers are asked for.
        let text = "kprobe:tests::programs::target { @[reg(\"x0\"), reg(\"pc\") == func, reg(\"sp\") % 16, reg(\"x9\") == \
                    reg(\"x9\")] = count(); } \
                    kprobe:tests::programs::target { @lean[arg0, reg(\"pc\") == func, reg(\"sp\") % 16] = count(); }";
        let out = printed(text, || _ = black_box(target(77, core::ptr::null())));
        assert_eq!(out, "@[77, 1, 0, 1]: 1\n@lean[77, 1, 0]: 1\n");
    }
);

test!(
    fn clauses_that_nothing_is_hit_for_run_in_their_order() {
        let text = "BEGIN { @n = 3; printf(\"begin\\n\"); } interval:ms:1 { @n--; if (@n == 0) { exit(); } } \
                    END { printf(\"end %d\\n\", @n); delete(@n); }";
        let program = start(text);
        assert_eq!(program.probes(), 3);
        let mut out = String::new();
        while !program.drain(&mut out).expect("a string can be written to") {
            task::yield_now();
        }
        assert!(program.is_over());
        program.finish(&mut out).expect("a string can be written to");
        assert_eq!(out, "begin\nend 0\n");
    }
);

test!(
    fn after_exit_nothing_runs_but_the_end() {
        let text =
            "kprobe:tests::programs::target { @ = count(); if (arg0 == 4) { exit(); } } END { printf(\"done\\n\"); }";
        let out = printed(text, || (0..100).for_each(|number| _ = black_box(target(number, core::ptr::null()))));
        assert_eq!(out, "done\n@: 5\n");
    }
);

test!(
    fn what_cannot_be_probed_is_refused_with_the_place_or_counted() {
        assert_eq!(
            refused("kprobe:tests::programs::nothing { @ = count(); }"),
            "error: no function matches this\n  kprobe:tests::programs::nothing { @ = count(); }\n  \
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        );
        let why = refused("BEGIN { } inline:f:entry { @ = count(); }");
        assert!(why.contains("is inlined anywhere\n"), "{why}");
        for before in ["", "BEGIN { } kprobe:tests::programs::target, "] {
            let text = format!("{before}kprobe:aarch64_kprobes::exception::handle_sync {{ @ = count(); }}");
            let why = refused(&text);
            assert!(why.contains("runs while probes are being handled"), "{why}");
            let caret = format!("\n  {:1$}{2}\n", "", before.len(), "^".repeat(46));
            assert!(why.ends_with(&caret), "{why}{caret}");
        }
        let program = start("kprobe:* /0/ { @ = count(); }");
        let refused = program.refused();
        assert!(
            refused.contains(&"aarch64_kprobes::exception::handle_sync") && program.refused_instructions().is_empty()
        );
        assert_eq!(program.probes() + refused.len(), list("kprobe:*").expect("there are some").len());
    }
);

/// What is probed while it runs, by one program after the other: the same each time.
#[inline(never)]
fn work() {
    static TEXT: &[u8; 8] = b"a text\xff\0";
    call_on_all_cpus(1_000);
    for number in 0..30 {
        black_box(collatz(black_box(number)));
        black_box(caller_of_target(black_box(number)));
        black_box(target(number, TEXT.as_ptr().wrapping_add(number as usize % 8)));
    }
    black_box(recurse(black_box(20)));
    fixture::TAIL_CALL.call(7);
}

/// Programs, and how many handlers they become, whose maps and output are the same whenever [`work`] is done.
const PROGRAMS: [(&str, usize); 7] = [
    (
        "kprobe:tests::programs::target { @n = count(); @s = sum(arg0); @a = avg(arg0); @least = min(arg0); @most = max(arg0); \
         @both = stats((s64)arg0 - 5); @h = hist(arg0); @l = lhist(arg0, 10, 900, 90); @all++; @odd += arg0 % 2; }",
        1,
    ),
    (
        "kprobe:tests::programs::target /arg0 % 3 == 1/ { @by[arg0 & 7, comm] = count(); if (comm == \"caller\") { \
         @cpus[cpu] = count(); } @f[func] = count(); @p[probe, arg0 % 2] = count(); if (arg0 > 100 && comm == \"caller\") { @big++; } else { @small += arg0; } \
         @c[ksym(caller)] = count(); @t[tid > 0, nsecs > 0, elapsed < nsecs] = count(); }",
        1,
    ),
    (
        "insn:tests::programs::collatz:* { @at[reg(\"pc\")] = count(); @x[reg(\"x0\") % 5, func] = hist(reg(\"sp\") % 16); \
         @of[probe] = sum(reg(\"x0\")); }",
        1,
    ),
    (
        "return:tests::programs::recurse, return:fixture_tail_call { @left[func, retval] = count(); } \
         kprobe:tests::programs::recurse { @in[arg0] = sum(arg0 * 3); @depth = max(arg0); } \
         kretprobe:tests::programs::recurse { @back[retval] = count(); }",
        2,
    ),
    (
        "kprobe:tests::programs::target /comm != \"caller\"/ { printf(\"%d %s %d %s\\n\", arg0, str(arg1), *(u8 *)arg1, probe); \
         @t[str(arg1, 5)] = count(); @[kstack(2)] = count(); $x = arg0 * 7; unroll (3) { $x = $x / 2 + arg0 % 5; } @x = sum($x); \
         @g[arg0 / 2] = arg0; delete(@g[arg0]); if (arg0 == 9) { clear(@t); } }",
        1,
    ),
    (
        "kprobe:tests::programs::collatz { @ = count(); @sp[reg(\"sp\") % 16, reg(\"pc\") == func] = count(); if (arg0 == 4) { \
         exit(); } } kprobe:tests::programs::recurse { @after = count(); } END { printf(\"done\\n\"); }",
        2,
    ),
    // One clause in two views.
    ("kprobe:tests::programs::target, insn:tests::programs::target:4 { @[func, comm] = count(); }", 2),
];

test!(
    fn compiled_programs_find_what_interpreted_ones_do() {
        for (text, handlers) in PROGRAMS {
            let [interpreted, compiled] = [Program::interpret as Start, Program::start].map(|start| {
                let program = started(text, start);
                assert_eq!(program.interpreted(), [], "{text}");
                let handlers = program.handlers();
                work();
                (handlers, finished(program))
            });
            assert_eq!((interpreted.0, compiled.0), (0, handlers), "{text}");
            assert!(interpreted.1 == compiled.1, "{text}\n{}but instructions find\n{}", interpreted.1, compiled.1);
            assert!(!compiled.1.is_empty() && !compiled.1.contains("Missed"), "{text}\n{}", compiled.1);
        }
    }
);

test!(
    fn what_is_not_compiled_is_interpreted_and_said_to_be() {
        let text = "kprobe:tests::programs::recurse { @n = count(); } \
                    kprobe:tests::programs::recurse { unroll (100) { unroll (5) { @[arg0] = count(); } } } \
                    kretprobe:tests::programs::recurse { @back = count(); }";
        let program = start(text);
        assert_eq!((program.handlers(), program.interpreted()), (1, &[(1, Reason::Refused(Refused::Long))][..]));
        assert_eq!(program.interpreted()[0].1.to_string(), "the clause has more than 8191 words as instructions");
        black_box(recurse(black_box(2)));
        assert_eq!(finished(program), "@[0]: 500\n@[1]: 500\n@[2]: 500\n@back: 3\n@n: 3\n");
    }
);

test!(
    fn instructions_are_where_those_of_others_were() {
        let text = "kprobe:tests::programs::recurse, insn:tests::programs::recurse:4 { @[reg(\"x0\")] = hist(cpu); print(nsecs); }";
        let run = |number: usize| {
            let programs: Vec<Program> = (0..number).map(|_| start(text)).collect();
            black_box(recurse(black_box(2)));
            drop(programs);
        };
        run(20);
        let before = memory::usage().executable;
        (0..20).rev().for_each(run);
        run(20);
        assert_eq!(memory::usage().executable, before);
    }
);

test!(
    fn programs_come_and_go_while_all_cpus_are_in_their_instructions() {
        // The instructions of each lie where those of the other were. Each run of them adds 1 to every map.
        const TEXTS: [&str; 2] = [
            "kprobe:tests::programs::target { @a = count(); @b[arg0 & 3] = count(); @c++; @d[arg0 & 1, cpu] = sum(1); }",
            "kprobe:tests::programs::target { @d[cpu, arg0 & 1]++; if (arg0 % 3 == 1) { @c++; @a++; } else { @a++; @c++; } \
             @b[arg0 & 7] = sum(1); }",
        ];
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let caller = || {
            for number in (0..).take_while(|_| !IS_OVER.load(Relaxed)) {
                black_box(target(black_box(number), core::ptr::null()));
                if number % 256 == 0 {
                    task::yield_now();
                }
            }
        };
        let callers: Vec<JoinHandle> = smp::running().map(|cpu| task::spawn_on(cpu, "caller", caller)).collect();
        let mut all = 0;
        for text in TEXTS.into_iter().cycle().take(20) {
            let out = printed(text, || {
                let before = CALLS.load(Relaxed);
                while CALLS.load(Relaxed) < before + 500 {
                    task::yield_now();
                }
            });
            let total = |name: &str| -> u64 {
                let of = |line: &str| {
                    line.split_once(": ").filter(|(key, _)| key.starts_with(name)).map(|(_, value)| value.to_string())
                };
                out.lines().filter_map(of).map(|value| value.parse::<u64>().expect("a number")).sum()
            };
            let totals = ["@a", "@b", "@c", "@d"].map(total);
            assert!(totals[0] > 0 && totals == [totals[0]; 4], "{text}\n{out}");
            all += totals[0];
        }
        IS_OVER.store(true, Relaxed);
        callers.into_iter().for_each(JoinHandle::join);
        assert!(all <= CALLS.load(Relaxed));
    }
);

test!(
    fn memory_is_back_where_it_was_before_a_program() {
        let run = |text: &str| {
            let program = start(text);
            work();
            drop(finished(program));
        };
        for text in PROGRAMS.map(|(text, _)| text).into_iter().chain(["kprobe:sha2::* { @[func, kstack] = count(); }"])
        {
            // What is kept for the next one is there from the first on.
            run(text);
            let before = memory::usage();
            run(text);
            drop(start(text));
            assert_eq!(memory::usage(), before, "{text}");
            refused(&format!("{text} kprobe:tests::programs::nothing {{ @after = count(); }}"));
            assert_eq!(memory::usage(), before, "{text}");
        }
    }
);

test!(
    fn without_executable_memory_a_program_is_interpreted_and_said_to_be() {
        // The engine has room for stubs from here on.
        drop(started("kprobe:tests::programs::target { @ = count(); }", Program::interpret));
        for bytes in [1 << 20, layout::PAGE_SIZE] {
            while memory::allocate_executable(bytes, false).is_ok() {}
        }
        let program = start("kprobe:tests::programs::target { @[arg0] = count(); }");
        assert_eq!((program.handlers(), program.interpreted()), (0, &[(0, Reason::NoMemory)][..]));
        assert_eq!(program.interpreted()[0].1.to_string(), "there is no executable memory for its instructions");
        black_box(target(black_box(5), core::ptr::null()));
        assert_eq!(finished(program), "@[5]: 1\n");
    }
);
