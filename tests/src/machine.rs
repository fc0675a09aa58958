//! What must stop the machine does, and says why.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runtime::memory;

use crate::fixture;
use crate::test;

test!(
    stops "write to read-only memory",
    fn text_cannot_be_written() {
        let text = fixture::IDENTITY.address() as *mut u32;
        // SAFETY: that this faults is what the test shows.
        unsafe { text.write_volatile(0) };
    }
);

test!(
    stops "write to read-only memory",
    fn read_only_data_cannot_be_written() {
        static CONSTANT: u64 = 7;
        let constant = (&raw const CONSTANT).cast_mut();
        // SAFETY: that this faults is what the test shows.
        unsafe { constant.write_volatile(8) };
    }
);

test!(
    stops "write to",
    fn text_cannot_be_written_through_the_linear_map() {
        let physical = memory::translate(fixture::IDENTITY.address()).expect("the text is mapped");
        let alias = (memory::layout::LINEAR_BASE + physical as usize) as *mut u32;
        // SAFETY: that this faults is what the test shows.
        unsafe { alias.write_volatile(0) };
    }
);

test!(
    stops "execute",
    fn data_cannot_be_executed() {
        // A static that is written to is in .data or .bss; `ret` in little-endian words.
        static CODE: AtomicU64 = AtomicU64::new(0);
        CODE.store(0xd65f_03c0, Relaxed);
        // SAFETY: that this faults is what the test shows.
        let function: extern "C" fn() = unsafe { core::mem::transmute(&raw const CODE) };
        black_box(function)();
    }
);

test!(
    stops "execute",
    fn stacks_cannot_be_executed() {
        let code = black_box(0xd65f_03c0u64);
        // SAFETY: that this faults is what the test shows.
        let function: extern "C" fn() = unsafe { core::mem::transmute(&raw const code) };
        black_box(function)();
    }
);

test!(
    stops "null",
    fn null_pointers_are_reported() {
        // SAFETY: that this faults is what the test shows.
        unsafe { black_box(core::ptr::null::<u64>()).read_volatile() };
    }
);

test!(
    stops "stack",
    fn stack_overflow_is_reported() {
        #[inline(never)]
        #[expect(unconditional_recursion, reason = "that it does not end well is what the test shows")]
        fn grow(depth: u64) -> u64 {
            let room = black_box([depth; 64]);
            black_box(grow(depth + 1)) + room[depth as usize % 64]
        }
        black_box(grow(0));
    }
);

test!(
    stops "breakpoint instruction: immediate 0x4",
    fn a_breakpoint_that_nobody_has_set_is_reported() {
        // SAFETY: that this stops the machine is what the test shows.
        unsafe { core::arch::asm!("brk #0x4") };
    }
);

test!(
    stops "panic",
    fn panics_are_reported() {
        panic!("on purpose");
    }
);
