//! The functions of `targets.S`.

use alloc::vec::Vec;

use aarch64_kprobes::event::Event;
use aarch64_kprobes::probe::Checker;
use kprobes_console::symbol;

core::arch::global_asm!(include_str!("targets.S"));

/// A function to be probed.
#[derive(Clone, Copy)]
pub struct Target {
    function: usize,
    /// The offset of the probed instruction from the first, in bytes. It wraps around for an instruction that precedes
    /// it.
    offset: usize,
    /// The number of functions like this one, including itself.
    pub copies: usize,
}

/// The distance between functions that are alike, in bytes.
const STRIDE: usize = 64;

impl Target {
    /// Returns the virtual address of the instruction to be probed.
    pub fn probed(self) -> usize {
        self.function.wrapping_add(self.offset)
    }

    /// Returns a function like this one, which has number 0. Numbers wrap around at the number of copies.
    pub fn copy(self, number: usize) -> Self {
        Self { function: self.function + number % self.copies * STRIDE, ..self }
    }
}

macro_rules! targets {
    ($($name:ident = $symbol:ident + $offset:literal, $copies:literal;)*) => {
        $(
            unsafe extern "C" {
                fn $symbol();
            }
            /// Returns the function of this name in `targets.S`.
            pub fn $name() -> Target {
                Target { function: $symbol as *const () as usize, offset: $offset, copies: $copies }
            }
        )*
    };
}

targets! {
    add = bench_target_add + 0, 4;
    middle = bench_target_middle + 4, 1;
    adr = bench_target_adr + 0, 1;
    adrp = bench_target_adrp + 0, 4;
    b = bench_target_b + 0, 1;
    b_cond = bench_target_b_cond + 0, 1;
    cbz = bench_target_cbz + 0, 1;
    tbz = bench_target_tbz + 0, 1;
    ldr_literal = bench_target_ldr_literal + 0, 1;
    bl = bench_target_bl + 4, 1;
    blr = bench_target_blr + 8, 1;
    ret = bench_target_ret + 0, 1;
}

aarch64_kprobes::event! {
    /// An event with the fields of `sched:sched_switch`.
    pub struct Switch = bench:switch {
        prev_comm: [u8; 16],
        prev_pid: i32,
        prev_prio: i32,
        prev_state: i64,
        next_comm: [u8; 16],
        next_pid: i32,
        next_prio: i32,
    }
}

aarch64_kprobes::event! {
    /// An event with the fields of `irq:irq_handler_entry`.
    pub struct Named<'a> = bench:named {
        irq: i32,
        name: aarch64_kprobes::event::Text<'a>,
    }
}

extern "C" fn switch(argument: u64) {
    let (number, name) = (argument as i32, [argument as u8; 16]);
    aarch64_kprobes::emit!(Switch {
        prev_comm: name,
        prev_pid: number,
        prev_prio: 120,
        prev_state: 1,
        next_comm: name,
        next_pid: number,
        next_prio: 120,
    });
}

extern "C" fn named(argument: u64) {
    aarch64_kprobes::emit!(Named { irq: argument as i32, name: "virtio-blk".into() });
}

/// Returns a function that emits an event; the function of the event is probed.
fn emitting(function: extern "C" fn(u64), event: &Event) -> Target {
    let function = function as *const () as usize;
    Target { function, offset: event.address().wrapping_sub(function), copies: 1 }
}

/// Returns the function that emits [`Switch`].
pub fn static_event() -> Target {
    emitting(switch, Switch::EVENT)
}

/// Returns the function that emits [`Named`].
pub fn static_event_with_text() -> Target {
    emitting(named, Named::EVENT)
}

unsafe extern "C" {
    safe static bench_small: u8;
    safe static bench_large: u8;
    fn bench_round(function: usize, argument: u64, calls: usize);
    fn bench_calibrate(times: u64);
    safe fn bench_begin();
    safe fn bench_end();
}

/// The number of functions of each of these sizes.
const FUNCTIONS: usize = 1000;
/// The size of a large function, in bytes.
const LARGE: usize = 404;

/// Returns the virtual addresses of a thousand functions of two instructions each.
pub fn small_functions() -> impl ExactSizeIterator<Item = usize> {
    (0..FUNCTIONS).map(|number| &raw const bench_small as usize + 8 * number)
}

/// Returns the virtual addresses of a hundred thousand instructions, in a thousand functions.
pub fn instructions() -> impl Iterator<Item = usize> {
    let function = |number| &raw const bench_large as usize + LARGE * number;
    (0..FUNCTIONS).flat_map(move |number| (function(number)..function(number) + LARGE - 4).step_by(4))
}

/// Returns the last of [`instructions`] in the middle function. A call enters there, so that only this instruction and
/// the return are executed.
pub fn among_instructions() -> Target {
    Target { function: &raw const bench_large as usize + LARGE * (FUNCTIONS / 2) - 8, offset: 0, copies: 1 }
}

/// Returns the virtual addresses of all instructions of the image that can be probed.
pub fn everything() -> Vec<usize> {
    let mut checker = Checker::new();
    let all =
        symbol::functions("*").flat_map(|function| (function.address..function.address + function.size).step_by(4));
    all.map(|address| address as usize).filter(|&address| checker.check(address).is_ok()).collect()
}

/// Calls the function of `target` `calls` times.
pub fn round(target: Target, calls: usize) {
    // SAFETY: every target takes a word. It is a function of `targets.S`, which accesses no memory, or one that emits
    // an event.
    unsafe { bench_round(target.function, 1, calls) };
}

/// Does `work` between two marks that can be found in a log of instructions.
#[inline(always)]
pub fn between_marks<R>(work: impl FnOnce() -> R) -> R {
    bench_begin();
    let result = work();
    bench_end();
    result
}

/// Executes `2 * times` instructions, and a few more.
pub fn calibrate(times: u64) {
    // SAFETY: the function only counts a register down to 0, starting from 1 or more.
    unsafe { bench_calibrate(times.max(1)) };
}
