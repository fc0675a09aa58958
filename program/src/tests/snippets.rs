//! The steps that clauses compile to for stubs. The tests on the target execute the steps.

use std::boxed::Box;
use std::string::{String, ToString};
use std::vec::Vec;

use aarch64_kprobes::probe::Step;
use kprobes_vm::jit::{At, in_stub};
use kprobes_vm::maps::Words;

use super::compiled::{KERNEL, disassembled};
use super::machine::Bed;
use super::tried;

/// Words at no real address: the first is 256 bytes from the state of the CPU.
#[derive(Debug)]
struct Nowhere;

impl Words for Nowhere {
    fn distance(&self, index: usize) -> u64 {
        256 + 8 * index as u64
    }

    fn sum(&self, _: usize) -> u64 {
        0
    }
}

/// Returns the steps of a program's first clause, one on each line; `None` if the clause has no snippet.
fn steps(program: &str, atomics: bool) -> Option<Vec<String>> {
    steps_at(program, At::Instruction, atomics)
}

fn steps_at(program: &str, at: At, atomics: bool) -> Option<Vec<String>> {
    let mut bed = Bed::new(program);
    let found = in_stub(&bed.program.code, 0, at, &bed.store, &KERNEL, atomics).unwrap()?;
    let steps = found.steps(&bed.program.code, &mut bed.store, &mut || Ok(Box::new(Nowhere))).unwrap();
    let text = |step: &Step| match *step {
        Step::Instruction(word) => disassembled(word),
        step => std::format!("{step:?}"),
    };
    Some(steps.iter().map(text).collect())
}

#[test]
fn what_is_not_known_at_a_return_is_left_to_the_handler() {
    let at_return = |program: &str| steps_at(program, At::Return, true);
    assert_eq!(at_return("kretprobe:f { @ = hist(retval); }").unwrap()[..2], ["clz x11, x0", "Number(12, 256)"]);
    assert_eq!(at_return("kretprobe:f { @[func] = count(); }").unwrap().len(), 3);
    for register in ["pc", "lr"] {
        let program = |probe| std::format!("{probe} {{ @[reg(\"{register}\")] = count(); }}");
        let returned = program("kretprobe:f");
        assert_eq!(at_return(&returned), None);
        assert!(steps(&program("insn:f:4"), true).is_some());
    }
}

#[test]
fn what_collects_for_known_keys_is_a_few_steps() {
    let lines = |program| steps(program, true).unwrap();
    assert_eq!(lines("kprobe:f { @ = count(); }"), ["Number(12, 256)", "add x12, x9, x12", "stadd x10, [x12]"]);
    assert_eq!(lines("kprobe:f { @[func] = count(); }"), ["Operand(12)", "add x12, x9, x12", "stadd x10, [x12]"]);
    assert_eq!(
        lines("insn:f:4 { @[reg(\"pc\")] = sum(reg(\"x19\")); }")[3..],
        ["add x12, x12, #0x8", "stadd x19, [x12]"]
    );
    assert_eq!(
        lines("kprobe:f { @ = hist(arg3); }"),
        ["clz x11, x3", "Number(12, 256)", "add x12, x12, x11, lsl #3", "add x12, x9, x12", "stadd x10, [x12]"]
    );
    assert_eq!(
        lines("kprobe:f /arg0 == 7/ { @ = count(); }")[..2],
        ["cmp x0, #0x7".to_string(), "Branch(If(Ne), 5)".into()]
    );
    assert_eq!(
        lines("kprobe:f { @[func, 3] = sum(arg1 - arg0); @n = count(); }"),
        [
            "sub x14, x1, x0",
            "Operand(12)",
            "add x12, x9, x12",
            "stadd x10, [x12]",
            "add x12, x12, #0x8",
            "stadd x14, [x12]",
            "Number(12, 256)",
            "add x12, x9, x12",
            "stadd x10, [x12]"
        ]
    );
}

#[test]
fn without_atomics_a_word_is_loaded_and_stored() {
    assert_eq!(
        steps("kprobe:f { @ = count(); }", false).unwrap(),
        ["Number(12, 256)", "ldr x11, [x9, x12]", "add x11, x11, #0x1", "str x11, [x9, x12]"]
    );
}

#[test]
fn a_key_of_one_word_is_looked_for_in_its_slot() {
    let is_number = |line: &String| line.starts_with("Number(");
    let lines = |program, atomics| -> Vec<String> {
        steps(program, atomics).unwrap().into_iter().filter(|line| !is_number(line)).collect()
    };
    let found = [
        "mrs x12, s3_0_c13_c0_4",
        "ldr x12, [x12, #0x18]",
        "add x12, x11, x12, lsl #3",
        "ldr x12, [x12]",
        "mul x11, x0, x11",
        SLOT,
        "add x12, x12, x11, lsl #4",
        "ldr x11, [x12]",
        "cmp x11, x0",
        "Call(If(Ne))",
    ];
    let counted = ["add x12, x12, #0x8", "stadd x10, [x12]"];
    assert_eq!(lines("kprobe:f { @[arg0] = count(); }", true), [&found[..], &counted].concat());
    let counted = ["ldr x11, [x12, #0x8]", "add x11, x11, #0x1", "str x11, [x12, #0x8]"];
    assert_eq!(lines("kprobe:f { @[arg0] = count(); }", false), [&found[..], &counted].concat());
    let sum = lines("kprobe:f { @[arg0] = sum(arg1); }", true);
    assert_eq!(sum[6], "add x12, x12, x11, lsl #5");
    assert_eq!(sum[10..], ["add x12, x12, #0x8", "stadd x10, [x12]", "add x12, x12, #0x8", "stadd x1, [x12]"]);
}

#[test]
fn what_takes_a_call_or_a_table_has_no_snippet() {
    for program in tried([
        "kprobe:f { printf(\"x\"); }",
        "kprobe:f { @[arg0, arg1] = count(); }",
        "kprobe:f { @[arg0] = hist(arg1); }",
        "kprobe:f { @a[arg0] = count(); @b[arg0] = count(); }",
        "kprobe:f { @ = count(); @b[arg0] = count(); }",
        "kprobe:f { @[arg0] = count(); delete(@[arg1]); }",
        "kprobe:f { @ = avg(arg0); }",
        "insn:f:4 { @ = sum(reg(\"x9\")); }",
        "kprobe:f { $x = *(u64 *)arg0; @ = sum($x); }",
        "kprobe:f { @ = count(); if (@ > 5) { @b = count(); } }",
        "kprobe:f { @a[func] = count(); @b[probe] = count(); }",
        "kprobe:f { $a = arg0; }",
        // A step that may fall back to the handler would come after steps with effects.
        "kprobe:f { @x[arg0] = 1; @y[arg0] = 2; }",
        "kprobe:f { @ = count(); @y[arg0] = 2; }",
        "kprobe:f { $n = @x[arg0]; delete(@x[arg1]); delete(@x[arg0]); @ = sum($n); } kprobe:g { @x[0] = 1; }",
        "kprobe:f { $n = @x[tid]; @[arg0] = count(); delete(@x[tid]); @s = sum($n); } kprobe:g { @x[0] = 1; }",
        "kprobe:f { @x[arg0] = 1; } kprobe:g { print(len(@x)); }",
        "kprobe:f { @x[comm] = 1; }",
        "kprobe:f { @x[arg0] = comm; }",
    ]) {
        assert_eq!(steps(program, true), None, "{program}");
    }
}

/// The start and the end of the most common measurement.
const LATENCY: &str =
    "kprobe:f { @start[tid] = nsecs; } kretprobe:f { @ = hist(nsecs - @start[tid]); delete(@start[tid]); }";

/// Shifts a hash right to give the number of a slot. There are fewer slots in Miri, and fewer buckets.
const SLOT: &str = if cfg!(miri) { "lsr x11, x11, #0x3d" } else { "lsr x11, x11, #0x38" };

/// Finds the home bucket of the key in x13, locks it, and loads which of its slots are in use.
const HOLD: [&str; 7] = [
    "mul x12, x13, x11",
    "eor x12, x12, x12, lsr #32",
    "mul x12, x12, x11",
    if cfg!(miri) { "lsr x12, x12, #0x3d" } else { "lsr x12, x12, #0x38" },
    "madd x15, x12, x11, x15",
    "Hold(15, 12)",
    "ldr x12, [x15, #0x8]",
];

#[test]
fn a_value_is_put_into_the_table_by_a_stub() {
    let lines: Vec<String> =
        steps(LATENCY, true).unwrap().into_iter().filter(|line| !line.starts_with("Number(")).collect();
    assert_eq!(lines[..2], ["mrs x13, s3_0_c13_c0_4", "ldr x13, [x13, #0x10]"]);
    assert_eq!(lines[2..5], ["mrs x14, cntvct_el0", "sub x14, x14, x11", "lsl x14, x14, #0x4"]);
    assert_eq!(lines[5..12], HOLD);
    let empty = ["str x10, [x15, #0x8]", "stp x13, x14, [x15, #0x18]"];
    assert!(lines[12].starts_with("Branch(NotZero(12)"));
    assert_eq!(lines[13], "ldr x11, [x15, #0x10]");
    assert!(lines[14].starts_with("Branch(NotZero(11)"));
    assert_eq!(lines[15..17], empty);
    assert_eq!(lines.last().unwrap(), "stlr xzr, [x15]");
}

#[test]
fn what_is_read_and_deleted_is_held_once() {
    let bed = LATENCY.replace("kprobe:f { @start[tid] = nsecs; } ", "") + " kprobe:f { @start[tid] = nsecs; }";
    let lines = steps_at(&bed, At::Return, true).unwrap();
    let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!((count("Hold("), count("stlr"), count("Call(Always)"), count("Turn(")), (1, 2, 1, 1), "{lines:?}");
    assert_eq!(
        lines[lines.len() - 6..],
        [
            "sub x11, x16, x15",
            "lsr x11, x11, #0x4",
            "lsl x12, x10, x11",
            "ldr x11, [x15, #0x8]",
            "eor x11, x11, x12, lsr #1",
            "str x11, [x15, #0x8]",
            "stlr xzr, [x15]",
        ][1..]
    );
}

#[test]
fn a_value_of_two_ways_is_in_a_register() {
    let lines = steps("kprobe:f { $x = arg0; if (arg1 > 3) { $x = 5; } @ = sum($x); }", true).unwrap();
    assert!(lines.iter().any(|line| line.starts_with("mov x1") && line.ends_with(", x0")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains(", 5)")), "{lines:?}");
}
