//! The values that a clause asks for are those of the probed code: its name, its caller and stack, its memory and its
//! registers.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hint::black_box;

use kprobes_console::program::RunningProgram;
use kprobes_console::symbol;

use super::{Start, caller_of_target, finished, map, printed, refused, start, started, target};
use crate::test;

/// A function of the source that is one function in the image for each type.
#[inline(never)]
fn generic<T: Copy + Into<u64>>(value: T) -> u64 {
    black_box(value).into() + size_of::<T>() as u64
}

/// The first of two functions with the same path, as two crates with the same name have them.
#[inline(never)]
#[unsafe(export_name = "_RNvCs1_5twins4call")]
extern "C" fn first_twin(number: u64) -> u64 {
    black_box(number) + 1
}

/// The second of two functions with the same path.
#[inline(never)]
#[unsafe(export_name = "_RNvCs2_5twins4call")]
extern "C" fn second_twin(number: u64) -> u64 {
    black_box(number) + 2
}

/// A text that programs read, with a 0 at its end.
static TEXT: [u8; 8] = *b"seven**\0";

test!(
    depends(core),
    fn memory_is_read_where_nothing_is_hit() {
        let address = TEXT.as_ptr().addr();
        let text = format!(
            "BEGIN {{ printf(\"%s %x %r\\n\", str({address}, 5), *(u16 *){address}, buf({address}, 2)); }} \
             interval:us:100 {{ @sum = sum(*(u8 *){address}); @wrong = *(u64 *)0xfff0000000000000; if (@n++ == 2) {{ exit(); }} }} \
             END {{ print(str({address} + 5)); }}"
        );
        let program = start(&text);
        while !program.is_over() {
            runtime::task::yield_now();
        }
        let sum = 3 * u64::from(TEXT[0]);
        let expected =
            format!("seven 6573 se\n**\n@n: 3\n@sum: {sum}\n@wrong: 0\n3 reads of memory failed, and gave 0\n");
        // The task of the interval may come late.
        let out = finished(program);
        let lines = out.lines().filter(|line| !line.starts_with("Missed ")).map(|line| format!("{line}\n"));
        assert_eq!(lines.collect::<String>(), expected);
    }
);

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
        let (small, large) = ("tests::programs::values::generic::<u32>", "tests::programs::values::generic::<u64>");
        let out = printed("kprobe:tests::programs::values::generic, kprobe:twins::* { @[func] = count(); }", call);
        let counts = BTreeMap::from([(small, 1), (large, 2), ("twins::call#1", first), ("twins::call#2", second)]);
        let counts: BTreeMap<String, u64> = counts.into_iter().map(|(name, count)| (name.into(), count)).collect();
        assert_eq!(map(&out, ""), counts);
        let out = printed("kprobe:tests::programs::values::generic, kprobe:twins::call { @[probe] = count(); }", call);
        let probes: BTreeMap<String, u64> =
            counts.iter().map(|(name, &count)| (format!("kprobe:{name}"), count)).collect();
        assert_eq!(map(&out, ""), probes);
        // Each probe in its printed form means exactly one function.
        for (probe, count) in probes {
            assert_eq!(printed(&format!("{probe} {{ @ = count(); }}"), call), format!("@: {count}\n"), "{probe}");
        }
        for (path, count) in [
            ("tests::programs::values::generic", 3),
            (small, 1),
            (large, 2),
            ("twins::call", 7),
            ("twins::call#1", first),
            ("twins::call#2", second),
            ("tests::programs::target", 0),
        ] {
            let text = format!(
                "kprobe:tests::programs::values::generic, kprobe:twins::* /func == \"{path}\"/ {{ @ = count(); }}"
            );
            let counted = if count > 0 { format!("@: {count}\n") } else { String::new() };
            for start in [RunningProgram::interpret as Start, RunningProgram::start] {
                let program = started(&text, start(&text));
                call();
                assert_eq!(finished(program), counted, "{path}");
            }
        }
        assert!(refused("kprobe:twins::call#3 { @ = count(); }").starts_with("error: no function matches this\n"));
    }
);

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
        // A call does not pass x9, so the clause needs all registers.
        let text = "kprobe:tests::programs::target { @[reg(\"x0\"), reg(\"pc\") == func, reg(\"sp\") % 16, reg(\"x9\") == \
                    reg(\"x9\")] = count(); } \
                    kprobe:tests::programs::target { @lean[arg0, reg(\"pc\") == func, reg(\"sp\") % 16] = count(); }";
        let out = printed(text, || _ = black_box(target(77, core::ptr::null())));
        assert_eq!(out, "@[77, 1, 0, 1]: 1\n@lean[77, 1, 0]: 1\n");
    }
);
