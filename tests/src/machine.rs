//! Errors that must stop the machine do so, and report the reason.
//!
//! The reasons end with places in the code, which include the names of these tests. The text that a test waits for
//! contains more than the name.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::hint::black_box;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use aarch64_kprobes::probe::Mode;
use aarch64_kprobes::{Call, Hit, Kprobe, Kretprobe, ProbeError};
use kprobes_console::symbol;
use runtime::{backtrace, machine, memory, task};

use crate::fixture;
use crate::test;

core::arch::global_asm!(
    // Moves the stack pointer down by the size of a stack, so into the guard from anywhere in the stack, and up again.
    // Only an exception between the two accesses the guard.
    ".text",
    ".balign 16",
    ".global fixture_large_frame",
    ".type fixture_large_frame, %function",
    "fixture_large_frame:",
    "    sub sp, sp, #{UNIT}, lsl #12",
    "    add sp, sp, #{UNIT}, lsl #12",
    "    ret",
    ".size fixture_large_frame, . - fixture_large_frame",
    UNIT = const memory::layout::STACK_SIZE >> 12,
);

unsafe extern "C" {
    fn fixture_large_frame();
}

/// Overflows the stack by an instruction that is executed in its slot.
fn overflow_in_the_slot() {
    let _probe = Kprobe::at(fixture_large_frame as *const () as usize).at_most(Mode::Stepped).register().unwrap();
    // SAFETY: the test checks that this call overflows the stack and stops the machine.
    unsafe { fixture_large_frame() };
}

#[inline(never)]
fn read_null() -> u64 {
    // SAFETY: the test checks that this access faults and stops the machine.
    unsafe { black_box(core::ptr::null::<u64>()).read_volatile() }
}

/// Registers probes with handlers on the functions that a report calls, and leaves them there.
fn probe_what_prints() {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    extern "C" fn before(_: &mut Hit<'_>) {
        SEEN.fetch_add(1, Relaxed);
    }
    extern "C" fn after(_: &mut Hit<'_>) {
        SEEN.fetch_add(1, Relaxed);
    }
    extern "C" fn returned(_: &mut Call<'_>) {
        SEEN.fetch_add(1, Relaxed);
    }
    let is_of_the_report = |name: &str| {
        [
            "runtime::uart",
            "runtime::machine",
            "runtime::exception",
            "runtime::backtrace",
            "kprobes_console::symbol",
            "core::fmt",
        ]
        .iter()
        .any(|path| name.contains(path))
            || ["runtime::task::current", "memcpy"].contains(&name)
    };
    let functions: Vec<usize> = symbol::table()
        .unwrap()
        .iter()
        .filter(|symbol| is_of_the_report(symbol.name))
        .map(|symbol| symbol.address as usize)
        .collect();
    let mut probes: Vec<Box<dyn Send>> = Vec::new();
    let mut count = |probe: Result<Box<dyn Send>, ProbeError>| probe.map(|probe| probes.push(probe)).is_ok();
    for &function in &functions {
        count(Kprobe::at(function).pre(before).post(after).register().map(|probe| Box::new(probe) as _));
        count(Kretprobe::at(function).handler(returned).register().map(|probe| Box::new(probe) as _));
    }
    let writes = fixture::address_of("runtime::uart::write");
    assert!(
        aarch64_kprobes::probe::list()
            .expect("there is memory for the list")
            .iter()
            .filter(|probe| probe.address == writes)
            .count()
            == 2
    );
    assert!(probes.len() > 40, "{} probes", probes.len());
    core::mem::forget(probes);
    runtime::println!("probed");
    assert!(SEEN.load(Relaxed) > 3);
}

test!(
    depends(board),
    stops "write to read-only memory at 0xffffffc0",
    fn text_cannot_be_written() {
        let text = fixture::IDENTITY.address() as *mut u32;
        // SAFETY: the test checks that this access faults and stops the machine.
        unsafe { text.write_volatile(0) };
    }
);

test!(
    stops "the kernel has been started before",
    fn a_handler_cannot_start_the_kernel() {
        extern "C" fn start(_: &mut Hit<'_>) {
            task::start("again", || {});
        }
        let _probe = Kprobe::at(read_null as *const () as usize).pre(start).register().unwrap();
        read_null();
    }
);

test!(
    stops "write to read-only memory at 0xffffffc0",
    fn read_only_data_cannot_be_written() {
        static CONSTANT: u64 = 7;
        let constant = (&raw const CONSTANT).cast_mut();
        // SAFETY: the test checks that this access faults and stops the machine.
        unsafe { constant.write_volatile(8) };
    }
);

test!(
    depends(board),
    stops "write to unmapped memory at 0xffffff80",
    fn text_cannot_be_written_through_the_linear_map() {
        let physical = memory::translate(fixture::IDENTITY.address()).expect("the text is mapped");
        let alias = (memory::layout::LINEAR_BASE + physical as usize) as *mut u32;
        // SAFETY: the test checks that this access faults and stops the machine.
        unsafe { alias.write_volatile(0) };
    }
);

test!(
    depends(board),
    stops "attempt to execute memory that is not executable at 0xffffffc0",
    fn data_cannot_be_executed() {
        // A static that is written is in .data or .bss. The value is the encoding of `ret`.
        static CODE: AtomicU64 = AtomicU64::new(0);
        CODE.store(0xd65f_03c0, Relaxed);
        // SAFETY: the test checks that a call of this function faults and stops the machine.
        let function: extern "C" fn() = unsafe { core::mem::transmute(&raw const CODE) };
        black_box(function)();
    }
);

test!(
    stops "attempt to execute memory that is not executable at 0xffffffd0",
    fn stacks_cannot_be_executed() {
        let code = black_box(0xd65f_03c0u64);
        // SAFETY: the test checks that a call of this function faults and stops the machine.
        let function: extern "C" fn() = unsafe { core::mem::transmute(&raw const code) };
        black_box(function)();
    }
);

test!(
    stops "read from unmapped memory at 0x0000000000000000 (a null pointer) by tests::machine::read_null+",
    fn null_pointers_are_reported() {
        read_null();
    }
);

/// Calls itself until the stack is full.
#[inline(never)]
#[expect(unconditional_recursion, reason = "the test shows how the recursion is reported")]
pub fn grow(depth: u64) -> u64 {
    // The array is not copied, because a copy may be a call of another function, which would overflow the stack instead
    // of this one.
    let room = MaybeUninit::<[u64; 64]>::uninit();
    let room = black_box(&room);
    black_box(grow(depth + 1)) + black_box(depth) + room.as_ptr().addr() as u64
}

test!(
    depends(board),
    stops "stack overflow at tests::machine::grow+",
    fn stack_overflow_is_reported() {
        black_box(grow(0));
    }
);

test!(
    depends(entry),
    stops "stack overflow at fixture_large_frame+0x4/0xc (task ",
    fn stack_overflow_in_the_slot_is_reported_where_the_probe_is() {
        overflow_in_the_slot();
    }
);

test!(
    stops "stack overflow at fixture_large_frame+0x4/0xc (task ",
    fn a_report_of_an_overflow_in_the_slot_gets_through_probes() {
        probe_what_prints();
        overflow_in_the_slot();
    }
);

test!(
    stops "stack overflow at tests::machine::grow+",
    fn a_report_of_an_overflow_gets_through_probes() {
        probe_what_prints();
        black_box(grow(0));
    }
);

test!(
    stops "read from unmapped memory at 0x0000000000000000 (a null pointer) by tests::machine::read_null+",
    fn a_report_of_a_fault_gets_through_probes() {
        probe_what_prints();
        read_null();
    }
);

test!(
    stops ": on purpose, with probes",
    fn a_report_of_a_panic_gets_through_probes() {
        probe_what_prints();
        panic!("on purpose, with probes");
    }
);

test!(
    stops "breakpoint instruction: immediate 0x4 at tests::machine::a_breakpoint",
    fn a_breakpoint_that_nobody_has_set_is_reported() {
        // SAFETY: the test checks that this instruction stops the machine.
        unsafe { core::arch::asm!("brk #0x4") };
    }
);

test!(
    depends(cpus, board),
    stops ": on purpose",
    fn panics_are_reported() {
        panic!("on purpose");
    }
);

test!(
    fn reports_have_source_lines() {
        let report = format!("{}", backtrace::current().with_lines());
        let first = report.lines().next().unwrap_or_default();
        assert!(
            first.contains("::reports_have_source_lines+") && first.contains(" at tests/src/machine.rs:"),
            "{report}"
        );
    }
);

/// A value whose `Display` faults.
struct Faulty;

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        read_null().fmt(f)
    }
}

test!(
    stops "an exception during a report: read from unmapped memory at 0x0000000000000000 (a null pointer) by ",
    fn a_report_that_faults_is_a_short_one() {
        panic!("on purpose: {Faulty}");
    }
);

test!(
    stops " while a failure was reported",
    fn a_report_that_panics_is_a_short_one() {
        struct Panics;
        impl fmt::Display for Panics {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                panic!("on purpose")
            }
        }
        panic!("{Panics}");
    }
);

test!(
    stops "read from unmapped memory at 0x0000000000000000 (a null pointer) by tests::machine::read_null+",
    fn a_reason_to_stop_that_faults_is_reported() {
        machine::stop(format_args!("{Faulty}"));
    }
);

test!(
    depends(interrupts),
    stops ": on purpose, in an interrupt",
    fn a_failure_in_an_interrupt_handler_is_reported() {
        extern "C" fn fail(_: &mut Hit<'_>) {
            panic!("on purpose, in an interrupt")
        }
        let handler = runtime::task::timer_interrupt as *const () as usize;
        let _probe = Kprobe::at(handler).pre(fail).register().unwrap();
        task::sleep(Duration::from_millis(1));
    }
);

test!(
    stops "a write through an alias began inside another one",
    fn an_alias_is_not_replaced() {
        let address = fixture::IDENTITY.address();
        memory::with_writable(address, 4, &mut |_| {
            memory::with_writable(address, 4, &mut |_| {});
        });
    }
);
