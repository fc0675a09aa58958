//! The debug registers of this CPU (Arm ARM, D24.3). To be used with debug exceptions masked: the exception return, or
//! the ISB of [`synchronize`], makes a change take effect.

use core::arch::asm;

/// MDSCR_EL1 (D24.3.20): MDE enables breakpoints and watchpoints, KDE has EL1 take debug exceptions of its own, SS is
/// software step.
const MDE: u64 = 1 << 15;
const KDE: u64 = 1 << 13;
const SS: u64 = 1;
/// OSLSR_EL1.OSLK (D24.3): the OS lock holds back debug exceptions.
const OSLK: u64 = 1 << 1;
/// DBGBCR_EL1 (D24.3.2): enabled, at EL1, for all bytes of an instruction.
const BREAKPOINT: u64 = 0xf << 5 | 0b01 << 1 | 1;
const ENABLED: u64 = 1;

macro_rules! read {
    ($register:expr) => {{
        let value: u64;
        // SAFETY: reading the register has no effect. The callers have checked a number against ID_AA64DFR0_EL1, so the
        // register exists.
        unsafe { asm!(concat!("mrs {}, ", $register), out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }};
}

macro_rules! write {
    ($register:expr, $value:expr) => {{
        // SAFETY: the register controls which debug exceptions this CPU takes. The engine takes those that it asks for,
        // and no memory changes. No `nomem`: accesses stay on their side of the change.
        unsafe { asm!(concat!("msr ", $register, ", {}"), in(reg) $value, options(nostack, preserves_flags)) };
    }};
}

/// Calls a macro with the name of the register of the given number.
macro_rules! numbered {
    ($number:expr, $operation:ident, $register:literal $(, $value:expr)?) => {
        match $number {
            0 => $operation!(concat!($register, "0_el1") $(, $value)?),
            1 => $operation!(concat!($register, "1_el1") $(, $value)?),
            2 => $operation!(concat!($register, "2_el1") $(, $value)?),
            3 => $operation!(concat!($register, "3_el1") $(, $value)?),
            4 => $operation!(concat!($register, "4_el1") $(, $value)?),
            5 => $operation!(concat!($register, "5_el1") $(, $value)?),
            6 => $operation!(concat!($register, "6_el1") $(, $value)?),
            7 => $operation!(concat!($register, "7_el1") $(, $value)?),
            8 => $operation!(concat!($register, "8_el1") $(, $value)?),
            9 => $operation!(concat!($register, "9_el1") $(, $value)?),
            10 => $operation!(concat!($register, "10_el1") $(, $value)?),
            11 => $operation!(concat!($register, "11_el1") $(, $value)?),
            12 => $operation!(concat!($register, "12_el1") $(, $value)?),
            13 => $operation!(concat!($register, "13_el1") $(, $value)?),
            14 => $operation!(concat!($register, "14_el1") $(, $value)?),
            _ => $operation!(concat!($register, "15_el1") $(, $value)?),
        }
    };
}

/// Returns the number of watchpoints of this CPU: ID_AA64DFR0_EL1.WRPs plus one.
#[inline(always)]
pub(in crate::probe) fn watchpoints() -> usize {
    (read!("id_aa64dfr0_el1") >> 20 & 0xf) as usize + 1
}

/// Returns the number of breakpoints of this CPU: ID_AA64DFR0_EL1.BRPs plus one.
#[inline(always)]
pub(super) fn breakpoints() -> usize {
    (read!("id_aa64dfr0_el1") >> 12 & 0xf) as usize + 1
}

/// Returns whether debug exceptions are masked on this CPU (PSTATE.D).
#[inline(always)]
pub(in crate::probe) fn are_masked() -> bool {
    read!("daif") & 1 << 9 != 0
}

/// Returns the number of bytes that DC ZVA zeroes; 0 if it is not allowed (DCZID_EL0, D24.2.39).
#[inline(always)]
pub(super) fn zeroed_bytes() -> u64 {
    let register = read!("dczid_el0");
    if register & 1 << 4 != 0 { 0 } else { 4 << (register & 0xf) }
}

/// Writes the registers of a watchpoint. The number is below [`watchpoints`].
#[inline(always)]
pub(super) fn set_watchpoint(number: usize, value: u64, control: u64) {
    // Disabled first, so that no access is compared with the old control and the new value.
    numbered!(number, write, "dbgwcr", 0_u64);
    if control & ENABLED != 0 {
        numbered!(number, write, "dbgwvr", value);
        numbered!(number, write, "dbgwcr", control);
    }
}

/// Returns the registers of a watchpoint. The number is below [`watchpoints`].
#[inline(always)]
pub(super) fn watchpoint(number: usize) -> (u64, u64) {
    (numbered!(number, read, "dbgwvr"), numbered!(number, read, "dbgwcr"))
}

/// Returns whether a watchpoint is in use. The number is below [`watchpoints`].
#[inline(always)]
pub(super) fn is_watchpoint_set(number: usize) -> bool {
    numbered!(number, read, "dbgwcr") & ENABLED != 0
}

/// Writes the registers of a watchpoint without enabling it, and clears them. Returns whether they have kept the
/// values. The number is below [`watchpoints`].
pub(super) fn try_watchpoint(number: usize, value: u64, control: u64) -> bool {
    numbered!(number, write, "dbgwcr", 0_u64);
    numbered!(number, write, "dbgwvr", value);
    numbered!(number, write, "dbgwcr", control & !ENABLED);
    let is_kept = watchpoint(number) == (value, control & !ENABLED);
    numbered!(number, write, "dbgwcr", 0_u64);
    is_kept
}

/// Returns whether breakpoints and watchpoints are enabled.
#[inline(always)]
pub(super) fn are_enabled() -> bool {
    read!("mdscr_el1") & MDE != 0
}

/// Returns TCR_EL1, which says what virtual addresses there are.
pub(in crate::probe) fn translation_control() -> u64 {
    read!("tcr_el1")
}

/// Returns whether a breakpoint is in use. The number is below [`breakpoints`].
#[inline(always)]
pub(super) fn is_breakpoint_set(number: usize) -> bool {
    numbered!(number, read, "dbgbcr") & ENABLED != 0
}

/// Sets a breakpoint at the virtual address `address`, or clears it. The number is below [`breakpoints`].
#[inline(always)]
pub(super) fn set_breakpoint(number: usize, address: Option<u64>) {
    numbered!(number, write, "dbgbcr", 0_u64);
    if let Some(address) = address {
        numbered!(number, write, "dbgbvr", address);
        numbered!(number, write, "dbgbcr", BREAKPOINT);
    }
}

/// Disables each breakpoint and each watchpoint by its own register. Their values may be unknown since a reset.
#[inline(never)]
pub(super) fn clear() {
    let mut number = 0;
    while number < breakpoints() {
        set_breakpoint(number, None);
        number += 1;
    }
    number = 0;
    while number < watchpoints() {
        set_watchpoint(number, 0, 0);
        number += 1;
    }
}

/// Enables breakpoints and watchpoints. Returns whether they were disabled.
#[inline(always)]
pub(super) fn enable() -> bool {
    if read!("oslsr_el1") & OSLK != 0 {
        write!("oslar_el1", 0_u64);
    }
    let control = read!("mdscr_el1");
    write!("mdscr_el1", control | MDE | KDE);
    control & MDE == 0
}

/// Disables breakpoints and watchpoints, unless one is in use.
#[inline(never)]
pub(super) fn disable() {
    let mut number = 0;
    while number < breakpoints() {
        if is_breakpoint_set(number) {
            return;
        }
        number += 1;
    }
    number = 0;
    while number < watchpoints() {
        if is_watchpoint_set(number) {
            return;
        }
        number += 1;
    }
    let control = read!("mdscr_el1");
    write!("mdscr_el1", control & !MDE);
}

/// Begins to step one instruction, without breakpoints and watchpoints.
#[inline(always)]
pub(super) fn begin_step() {
    let control = read!("mdscr_el1");
    write!("mdscr_el1", control & !MDE | KDE | SS);
}

/// Ends the step.
#[inline(always)]
pub(super) fn end_step() {
    let control = read!("mdscr_el1");
    write!("mdscr_el1", control & !SS | KDE | MDE);
}

/// Makes the changes take effect before the next instruction.
#[inline(always)]
pub(super) fn synchronize() {
    // SAFETY: a barrier.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}
