//! The assembly of the engine, and what it is told of the structures that it works on.

use core::ops::Range;

use super::stub::Form;

#[cfg(target_os = "none")]
mod routines {
    use core::mem::offset_of;

    use crate::exception::{self, TrapFrame};
    use crate::probe::hit::cpu::Cpu;
    use crate::probe::hit::entry::Entry;
    use crate::probe::hit::instance::{Instance, Pool};
    use crate::probe::hit::point::Point;
    use crate::probe::hit::returns::{FOLLOW_SIZE, ReturnProbe};
    use crate::probe::hit::stub::{CELL, Form};
    use crate::probe::hit::table::{PAGE_SHIFT, TABLE, Table};

    core::arch::global_asm!(
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/trampoline/frame.S")),
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/trampoline/hit.S")),
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/trampoline/kretprobe.S")),
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/trampoline/vector.S")),
        FRAME_SIZE = const TrapFrame::SIZE,
        FRAME_SP = const TrapFrame::SP,
        FRAME_PC = const TrapFrame::PC,
        FRAME_PSTATE = const TrapFrame::PSTATE,
        FRAME_WRITTEN = const offset_of!(TrapFrame, written),
        FRAME_WATCHER = const offset_of!(TrapFrame, watcher),
        FRAME_RECORD = const TrapFrame::RECORD,
        ENTRY_ARGUMENTS = const Entry::ARGUMENTS,
        ENTRY_CPU = const Entry::CPU,
        ENTRY_LINK = const Entry::LINK,
        POINT_ADDRESS = const offset_of!(Point, first.address),
        POINT_FULL = const offset_of!(Point, full),
        POINT_LEAN = const offset_of!(Point, lean),
        POINT_SHORTCUT = const offset_of!(Point, shortcut),
        POINT_OPERANDS = const offset_of!(Point, operands),
        POINT_ENTRY = const offset_of!(Point, entry),
        POINT_RETURNS = const offset_of!(Point, returns),
        INSTANCE_STACK_POINTER = const Instance::STACK_POINTER,
        INSTANCE_NEXT = const Instance::NEXT,
        INSTANCE_OWNER = const Instance::OWNER,
        RETURNS_HANDLER = const ReturnProbe::HANDLER,
        RETURNS_COUNTERS = const ReturnProbe::COUNTERS,
        RETURNS_CODE = const ReturnProbe::CODE,
        LEAN_DISTANCE = const super::LEAN_DISTANCE,
        SLOT_SHIFT = const Pool::SLOT_SHIFT,
        FOLLOW_SIZE = const FOLLOW_SIZE,
        CPU_NUMBER = const Cpu::NUMBER,
        TABLE = sym TABLE,
        TABLE_BASE = const offset_of!(Table, base),
        TABLE_PAGES = const offset_of!(Table, pages),
        PAGE_SHIFT = const PAGE_SHIFT,
        CPU_STEP = const Cpu::STEP,
        CPU_STEPPING = const Cpu::STEPPING,
        FULL_CELL = const 4 * (CELL - Form::Full.way_out()),
        FULL_COPY = const 4 * (Form::Full.copy() - Form::Full.way_out()),
        LEAN_CELL = const 4 * (CELL - Form::Lean.way_out()),
        BRK_LEAVE = const exception::BRK_LEAVE,
    );

    unsafe extern "C" {
        pub safe static kretprobe_lean_unusual: u8;
        pub safe static kretprobe_lean_leave: u8;
        pub safe static kretprobe_lean_leave_kept: u8;
        pub safe static kretprobe_trampoline: u8;
        pub safe static kretprobe_entered: u8;
        pub safe static kretprobe_leaving: u8;
        pub safe static kretprobe_left: u8;
        pub safe static kretprobe_end: u8;
        pub safe static kprobes_exception: u8;
        pub safe static kprobes_optimized: u8;
        pub safe static kprobes_optimized_end: u8;
        pub safe static kprobes_leave: u8;
        pub safe static kprobes_lean: u8;
        pub safe static kprobes_lean_end: u8;
        pub safe static kprobes_follow: u8;
    }
}

/// The host's tests cannot execute the assembly: they do what it does by hand.
#[cfg(not(target_os = "none"))]
#[expect(non_upper_case_globals, reason = "they stand for labels")]
mod routines {
    pub static kretprobe_lean_unusual: u8 = 0;
    pub static kretprobe_lean_leave: u8 = 0;
    pub static kretprobe_lean_leave_kept: u8 = 0;
    pub static kretprobe_trampoline: u8 = 0;
    pub static kretprobe_entered: u8 = 0;
    pub static kretprobe_leaving: u8 = 0;
    pub static kretprobe_left: u8 = 0;
    pub static kretprobe_end: u8 = 0;
    pub static kprobes_exception: u8 = 0;
    pub static kprobes_optimized_end: u8 = 0;
    pub static kprobes_leave: u8 = 0;
    pub static kprobes_lean: u8 = 0;
    pub static kprobes_lean_end: u8 = 0;
}

/// Bytes from [`kretprobe_lean_address`] to [`kretprobe_address`].
pub(crate) const LEAN_DISTANCE: u64 = 256;

/// Where return-probed functions return to: a virtual address, as all of these.
#[inline]
pub(crate) fn kretprobe_address() -> u64 {
    &raw const routines::kretprobe_trampoline as u64
}

/// Where those return to whose return is dealt with by code of the probe, in registers that are dead there.
#[inline]
pub(crate) fn kretprobe_lean_address() -> u64 {
    kretprobe_address().wrapping_sub(LEAN_DISTANCE)
}

/// Whether `address` is one of these two.
#[inline]
pub(crate) fn is_kretprobe(address: u64) -> bool {
    (kretprobe_address().wrapping_sub(address)) & !LEAN_DISTANCE == 0
}

/// Where such code leaves a call to the trampoline.
#[inline]
pub(crate) fn lean_unusual_address() -> u64 {
    &raw const routines::kretprobe_lean_unusual as u64
}

/// Where such code goes on when it has dealt with a call.
#[inline]
pub(crate) fn lean_leave_address() -> u64 {
    &raw const routines::kretprobe_lean_leave as u64
}

/// Where it goes on if it has kept what the trampoline gave it in x14 to x16.
#[inline]
pub(crate) fn lean_leave_kept_address() -> u64 {
    &raw const routines::kretprobe_lean_leave_kept as u64
}

/// The virtual addresses of the trampoline.
#[inline]
pub(crate) fn kretprobe() -> Range<usize> {
    kretprobe_lean_address() as usize..&raw const routines::kretprobe_end as usize
}

/// Where it has no frame. Interrupts may be unmasked there; or are masked, and no handler returns there.
#[inline]
pub(crate) fn entering() -> Range<usize> {
    kretprobe_lean_address() as usize..&raw const routines::kretprobe_entered as usize
}

/// Where it leaves: with a complete frame at the stack pointer, or by a return.
#[inline]
pub(crate) fn leaving() -> Range<usize> {
    &raw const routines::kretprobe_leaving as usize..&raw const routines::kretprobe_left as usize
}

/// The common routine of all stubs of a form: out of their reach, wherever the host's memory is.
#[cfg(not(target_os = "none"))]
pub(crate) fn stub_routine(_form: Form) -> usize {
    1 << 60
}

/// The common routine of all stubs of a form.
#[cfg(target_os = "none")]
#[inline]
pub(crate) fn stub_routine(form: Form) -> usize {
    match form {
        Form::Full => &raw const routines::kprobes_optimized as usize,
        Form::Lean => &raw const routines::kprobes_lean as usize,
        Form::Follow => &raw const routines::kprobes_follow as usize,
    }
}

/// The routines that call handlers with x29 at the record of a trap frame.
#[inline]
pub(crate) fn with_trap_frame() -> Range<usize> {
    &raw const routines::kprobes_exception as usize..&raw const routines::kprobes_optimized_end as usize
}

/// The routine that calls handlers with x29 at an [`Entry`](super::entry::Entry).
#[inline]
pub(crate) fn with_entry() -> Range<usize> {
    &raw const routines::kprobes_lean as usize..&raw const routines::kprobes_lean_end as usize
}

/// The breakpoint with which the common routine of stubs goes on elsewhere.
#[inline]
pub(crate) fn leave_address() -> u64 {
    &raw const routines::kprobes_leave as u64
}
