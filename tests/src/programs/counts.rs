//! Counts of calls, of instructions, and of all functions at once: they agree with the probed code's own counters, and
//! values that could not be kept are counted, too.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use aarch64_kprobes::insn::{self, Op, Verdict};
use aarch64_kprobes::probe;
use kprobes_console::symbol;
use runtime::{smp, task, workload};

use super::{CALLS, call_on_all_cpus, collatz, map, printed, start};
use crate::everything::known_calls;
use crate::fixture;
use crate::test;

test!(
    depends(cpus),
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

test!(
    fn instructions_of_a_loop_are_executed_as_often_as_their_block() {
        const CALLS: u64 = 40;
        let function = fixture::range_of(collatz as *const () as usize);
        // The leaders of basic blocks: the entry, the targets of branches, and the instructions after branches.
        let mut leaders = Vec::from([function.start]);
        for address in function.clone().step_by(4) {
            let word = probe::instruction(address).expect("an instruction");
            let Verdict::Simulate(op) = insn::classify(word) else { continue };
            if let Some(offset) = op.control().branch_offset() {
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
        // Each instruction probed alone has the same count.
        for address in function.clone().step_by(4) {
            let text = format!("insn:tests::programs::collatz:{} {{ @ = count(); }}", address - function.start);
            let expected = counts.get(&address).map_or(String::new(), |count| format!("@: {count}\n"));
            assert_eq!(printed(&text, || _ = sum()), expected, "{address:#x}");
        }
    }
);

test!(
    depends(cpus, interrupts),
    fn every_function_at_once_counts_right_and_harms_nobody() {
        let program = start("kprobe:* { @[func] = count(); } interval:ms:30 { print(@, 3); }");
        assert!(program.probes() > 500 && program.refused().next().is_some());
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
            let report = workload::run(workload, iterations, 2 * smp::running().count() as u64, || false).unwrap();
            assert_eq!((report.right, report.wrong), (iterations, 0), "{name}");
            wanted.extend(known_calls(workload).map(|(function, calls)| (function, calls * iterations)));
        }
        let program = program.detach();
        shown.join();
        let mut out = String::new();
        program.finish(&mut out).expect("a string can be written to");
        let counts = map(&out, "");
        for (function, calls) in wanted {
            assert_eq!(counts.get(function), Some(&calls), "{function}: {out}");
        }
        // A busy host may cause missed ticks, but no missed hits.
        let misses_hits = out.lines().any(|line| line.starts_with("Missed") && !line.contains("interval"));
        assert!(!out.contains("values lost") && !misses_hits, "{out}");
    }
);

test!(
    depends(cpus),
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
    depends(cpus),
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
    fn what_is_left_out_of_a_function_is_counted_as_that() {
        let program = start("insn:fixture_exclusive:* { @ = count(); }");
        let size = symbol::find("fixture_exclusive").next().expect("a symbol").size as usize;
        assert_eq!(program.refused().next(), None);
        let left_out = program.refused_instructions();
        assert!(!left_out.is_empty() && left_out.is_sorted());
        assert_eq!(4 * (program.probes() + left_out.len()), size);
    }
);
