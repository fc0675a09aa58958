//! Nested programs: however deep a program is nested, reading it takes no more of the stack than is promised.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::asm;
use core::ops::Range;

use kprobes_generate::programs;
use kprobes_program::check::{Symbols, check};
use kprobes_program::checked::TUPLE_DEPTH_MAX;
use kprobes_program::error::Problem;
use kprobes_program::syntax::parse;
use kprobes_random::Random;
use runtime::sync::IrqMask;
use runtime::task;

use crate::test;

/// What the documentation of the language promises, in bytes.
const PROMISED: usize = 25 << 10;
/// The value of unused words of the stack.
const UNUSED: u64 = 0x5a5a_a5a5_dead_4ead;
/// The distance of the first unused word from the stack pointer, in bytes.
const MARGIN: usize = 256;

/// An image without functions.
struct Nothing;

impl Symbols for Nothing {
    fn address(&self, _: &str) -> Option<u64> {
        None
    }

    fn functions(&self, _: &str) -> Result<Vec<Range<u64>>, Problem> {
        Ok(Vec::new())
    }
}

/// Calls `act`, and returns the number of bytes of the stack that it takes.
#[inline(never)]
fn stack_taken(act: impl FnOnce()) -> usize {
    let _mask = IrqMask::new();
    let pointer: usize;
    // SAFETY: the instruction reads the stack pointer only.
    unsafe { asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    let unused = (task::current().stack().start..pointer - MARGIN).step_by(8);
    for word in unused.clone() {
        // SAFETY: the word is of the task's stack, which is mapped, and below the stack pointer: nothing is kept there
        // while interrupts are masked, because AArch64 code for bare metal has no red zone.
        unsafe { (word as *mut u64).write_volatile(UNUSED) };
    }
    act();
    // SAFETY: the word is of the task's stack, and has been written above.
    let lowest = unused.clone().find(|&word| unsafe { (word as *const u64).read_volatile() } != UNUSED);
    pointer - lowest.unwrap_or(pointer)
}

/// Returns programs of all kinds of nesting, `depth` deep.
fn nested(depth: usize) -> Vec<String> {
    let around = |before: &str, within: &str, after: &str| {
        let (before, after) = (before.repeat(depth), after.repeat(depth));
        format!("{before}{within}{after}")
    };
    let values = [
        around("(", "1", ")"),
        around("1 + (", "1", ")"),
        around("(1, ", "1", ")"),
        around("~", "1", ""),
        around("-(u8)", "1", ""),
        around("(typeof(", "1", "))1"),
        around("{ ", "1", " }"),
        around("{ $x = 1; ", "$x", " }"),
        around("1 ? ", "1", " : 1"),
        around("cpu ? 1 : ", "1", ""),
        around("cpu ? ", "1", " : 1"),
        around("@[", "1", "]"),
        around("strlen(", "\"a\"", ")"),
        around("strcontains(comm, ", "comm", ")"),
        around("sizeof(", "1", ")"),
        around("is_str(", "comm", ")"),
        around("", "cpu", " == cpu"),
        around("", "cpu", " == cpu && cpu"),
        around("(cpu == ", "cpu", ")"),
        around("cpu && (cpu || ", "cpu", ")"),
        around("", "$t", ".0"),
        around("", "args", ".field"),
        around("", "args", "[0]"),
        around("twice(", "1", ")"),
    ];
    let of_value = |value: &String| format!("macro twice(x) {{ x + x }} BEGIN {{ @ = {value}; print({value}); }}");
    let bodies = [
        around("if (cpu) { ", "", " }"),
        around("if (1) { ", "$x = 1; ", " }"),
        around("if (cpu) { } else ", "if (cpu) { }", ""),
        around("unroll (1) { ", "$x = 1; ", " }"),
        around("while (cpu) { ", "break; ", " }"),
        around("for ($i : 0..1) { ", "", " }"),
        around("{ ", "print(1); ", " }"),
        around("again({ ", "print(1); ", " });"),
    ];
    let of_body = |body: &String| format!("macro again(x) {{ x; }} BEGIN {{ {body} }}");
    // Two tuples whose common type has to be found at every level.
    let tuple = |name: &str, text: &str| {
        let next = |all: String, level: u8| format!("{all} ${name}{} = (${name}{level},);", level + 1);
        (0..TUPLE_DEPTH_MAX).fold(format!("${name}0 = \"{text}\";"), next)
    };
    let compared = format!("$a{TUPLE_DEPTH_MAX} == $b{TUPLE_DEPTH_MAX}");
    let compared = around("~(", &compared, ")");
    let tuples = format!("BEGIN {{ {} {} @ = {compared}; }}", tuple("a", "short"), tuple("b", "longer than a word"));
    values.iter().map(of_value).chain(bodies.iter().map(of_body)).chain([tuples]).collect()
}

test!(
    fn programs_take_the_promised_stack_however_deep_they_are_nested() {
        let read = |text: &str| {
            let mut is_accepted = false;
            let taken = stack_taken(|| {
                is_accepted = parse(text).and_then(|tree| check(&tree, &Nothing)).is_ok();
            });
            assert!(taken < PROMISED, "{taken} bytes: {text}");
            (taken, is_accepted)
        };
        let (mut most, mut accepted) = (0, 0);
        for depth in 1..40 {
            for text in nested(depth) {
                let (taken, is_accepted) = read(&text);
                accepted += usize::from(is_accepted);
                most = most.max(taken);
            }
        }
        // Most are accepted up to a depth, beyond which some of them would take more of the stack than there is.
        assert!(most > PROMISED / 2 && accepted > 100, "{most} bytes, {accepted} accepted");
        let mut random = Random::new(7);
        for _ in 0..200 {
            read(&format!("{}", programs::program(&mut random)));
        }
    }
);
