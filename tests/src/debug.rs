//! Hardware breakpoints and watchpoints on probed instructions (Arm ARM, D2.9 and D2.10), as a debugger in the kernel
//! sets them.

use alloc::vec::Vec;
use core::arch::asm;
use core::mem;

use aarch64_kprobes::exception::{TrapFrame, nofault};
use aarch64_kprobes::probe::{self, Mode};
use aarch64_kprobes::{Hit, Kprobe};
use runtime::exception;
use runtime::sync::{IrqLock, IrqMask};

use crate::test;

core::arch::global_asm!(
    // Returns the word at its argument, plus one.
    ".text",
    ".balign 16",
    ".global debug_load",
    ".type debug_load, %function",
    "debug_load:",
    "    ldr x0, [x0]",
    "    add x0, x0, #1",
    "    ret",
    ".size debug_load, . - debug_load",
);

unsafe extern "C" {
    fn debug_load(word: *const u64) -> u64;
}

/// ESR_EL1.EC of exceptions from the same level (Arm ARM, D24.2.40).
const EC_BREAKPOINT: u64 = 0x31;
const EC_WATCHPOINT: u64 = 0x35;
/// MDSCR_EL1.MDE and KDE (D24.3.20) enable breakpoints and watchpoints, also at EL1.
const ENABLED: u64 = 1 << 15 | 1 << 13;
/// DBGBCR_EL1 and DBGWCR_EL1 (D24.3.2, D24.3.11): enabled, at EL1, for all bytes, for loads and stores.
const BREAKPOINT: u64 = 0xf << 5 | 0b01 << 1 | 1;
const WATCHPOINT: u64 = 0xff << 5 | 0b11 << 3 | 0b01 << 1 | 1;

/// A debug exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    class: u64,
    /// The virtual address of the instruction that would run without a probe.
    instruction: usize,
    /// FAR_EL1, for a watchpoint.
    data: Option<usize>,
}

static EVENTS: IrqLock<Vec<Event>> = IrqLock::new(Vec::new());

fn set_debug(control: u64) {
    // SAFETY: nothing else uses the register.
    unsafe { asm!("msr mdscr_el1, {}", "isb", in(reg) control, options(nomem, nostack)) };
}

/// Records the exception, and disables breakpoints and watchpoints.
fn handle(frame: &mut TrapFrame, esr: u64, far: u64) -> bool {
    let class = esr >> 26 & 0x3f;
    if !matches!(class, EC_BREAKPOINT | EC_WATCHPOINT) {
        return false;
    }
    set_debug(0);
    let pc = frame.pc as usize;
    let data = (class == EC_WATCHPOINT).then_some(far as usize);
    EVENTS.lock().push(Event { class, instruction: probe::origin(pc).unwrap_or(pc), data });
    true
}

/// Calls `load` with debug exceptions unmasked, and returns its result and the exceptions.
fn events_of<T>(load: impl FnOnce() -> T) -> (T, Vec<Event>) {
    EVENTS.lock().reserve(1);
    let _mask = IrqMask::new();
    set_debug(ENABLED);
    // SAFETY: the vectors handle debug exceptions here, which are masked again below.
    unsafe { asm!("msr daifclr, #0b1000", options(nostack)) };
    let result = load();
    // SAFETY: masking is always allowed.
    unsafe { asm!("msr daifset, #0b1000", options(nostack)) };
    set_debug(0);
    (result, mem::take(&mut EVENTS.lock()))
}

/// Calls `debug_load` with debug exceptions unmasked, and returns the exceptions.
fn events(word: &u64) -> Vec<Event> {
    // SAFETY: the function only loads the word.
    let (result, events) = events_of(|| unsafe { debug_load(word) });
    assert_eq!(result, word + 1);
    events
}

/// Sets the first watchpoint on the word at the virtual address `data`.
fn watch(data: usize) {
    // SAFETY: nothing else uses these registers.
    unsafe {
        asm!("msr dbgwvr0_el1, {}", "msr dbgwcr0_el1, {}", in(reg) data, in(reg) WATCHPOINT, options(nomem, nostack));
    }
}

extern "C" fn before(_: &mut Hit<'_>) {}
extern "C" fn after(_: &mut Hit<'_>) {}

static WORD: u64 = 41;

/// Compares the exceptions with probes of each mode on the load with those without a probe.
fn compare(expected: Event, is_masked_in: impl Fn(Mode) -> bool) {
    // SAFETY: the handler continues at the interrupted instruction with all registers unchanged.
    unsafe { exception::set_fault_handler(handle) };
    assert_eq!(events(&WORD), [expected]);
    for mode in [Mode::Stepped, Mode::Boosted, Mode::Optimized] {
        let builder = Kprobe::at(debug_load as *const () as usize).pre(before).at_most(mode);
        let builder = if mode == Mode::Stepped { builder.post(after) } else { builder };
        let probe = builder.register().unwrap();
        let expected = Some(expected).filter(|_| !is_masked_in(mode));
        assert_eq!(events(&WORD), expected.as_slice(), "{mode}");
        assert_eq!((probe.hits(), probe.missed()), (1, 0), "{mode}");
    }
}

test!(
    depends(core),
    fn a_breakpoint_on_a_probed_instruction_is_hit_once() {
        let instruction = debug_load as *const () as usize;
        // SAFETY: nothing else uses these registers.
        unsafe {
            asm!("msr dbgbvr0_el1, {}", "msr dbgbcr0_el1, {}", in(reg) instruction, in(reg) BREAKPOINT, options(nomem, nostack));
        }
        compare(Event { class: EC_BREAKPOINT, instruction, data: None }, |_| false);
    }
);

test!(
    depends(core),
    fn a_watchpoint_is_hit_by_a_probed_instruction_that_is_not_stepped() {
        let (instruction, data) = (debug_load as *const () as usize, (&raw const WORD).addr());
        watch(data);
        // Debug exceptions are masked while an instruction is stepped.
        compare(Event { class: EC_WATCHPOINT, instruction, data: Some(data) }, |mode| mode == Mode::Stepped);
    }
);

test!(
    depends(core),
    fn a_watchpoint_on_memory_that_may_fault_is_no_fault() {
        // SAFETY: the handler continues at the interrupted instruction with all registers unchanged.
        unsafe { exception::set_fault_handler(handle) };
        let data = (&raw const WORD).addr();
        watch(data);
        // SAFETY: the address is that of a static.
        let (result, events) = events_of(|| unsafe { nofault::read::<u64>(data) });
        assert_eq!(result, Ok(WORD));
        let found: Vec<_> = events.iter().map(|event| (event.class, event.data)).collect();
        assert_eq!(found, [(EC_WATCHPOINT, Some(data))]);
    }
);
