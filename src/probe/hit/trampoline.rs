//! The assembly of the engine, and the layouts of the structures that it uses.

use core::ops::Range;

use super::stub::Form;
use crate::insn::Registers;

#[cfg(target_os = "none")]
mod routines {
    use core::mem::offset_of;

    use crate::exception::frame::TrapFrame;
    use crate::exception::syndrome::BRK_LEAVE;
    use crate::probe::hit::arguments::CallArguments;
    use crate::probe::hit::cpu::Cpu;
    use crate::probe::hit::instance::Instance;
    use crate::probe::hit::point::Point;
    use crate::probe::hit::result::CallResult;
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
        FRAME_CALLED_FOR = const offset_of!(TrapFrame, called_for),
        FRAME_RECORD = const TrapFrame::RECORD,
        ARGUMENTS_X0 = const CallArguments::X0,
        ARGUMENTS_CPU = const CallArguments::CPU,
        ARGUMENTS_LINK = const CallArguments::LINK,
        POINT_ADDRESS = const offset_of!(Point, first.address),
        POINT_FULL = const offset_of!(Point, full),
        POINT_LEAN = const offset_of!(Point, lean),
        POINT_SHORTCUT = const offset_of!(Point, shortcut),
        POINT_OPERANDS = const offset_of!(Point, operands),
        POINT_ENTRY = const offset_of!(Point, entry),
        POINT_RETURNS = const offset_of!(Point, returns),
        INSTANCE_STACK_POINTER = const Instance::STACK_POINTER,
        INSTANCE_NEXT = const Instance::NEXT,
        INSTANCE_CODE = const Instance::CODE,
        INSTANCE_SPARE = const Instance::SPARE,
        INSTANCE_OWNER = const Instance::OWNER,
        RETURNS_HANDLER = const ReturnProbe::HANDLER,
        RETURNS_COUNTERS = const ReturnProbe::COUNTERS,
        RESULT_SIZE = const CallResult::SIZE,
        RESULT_X0 = const CallResult::X0,
        RESULT_CPU = const CallResult::CPU,
        LEAN_DISTANCE = const super::LEAN_DISTANCE,
        TRAMPOLINES_SIZE = const 1 << super::SHIFT,
        FOLLOW_SIZE = const FOLLOW_SIZE,
        TABLE = sym TABLE,
        TABLE_BASE = const offset_of!(Table, base),
        TABLE_PAGES = const offset_of!(Table, pages),
        PAGE_SHIFT = const PAGE_SHIFT,
        CPU_STEP = const Cpu::STEP,
        CPU_STEPPING = const Cpu::STEPPING,
        FULL_CELL = const 4 * (CELL - Form::Full.way_out()),
        FULL_COPY = const 4 * (Form::Full.copy() - Form::Full.way_out()),
        LEAN_CELL = const 4 * (CELL - Form::Lean.way_out()),
        BRK_LEAVE = const BRK_LEAVE,
    );

    unsafe extern "C" {
        pub safe static kretprobe_lean_unusual: u8;
        pub safe static kretprobe_lean_leave: u8;
        pub safe static kretprobe_lean_leave_call: u8;
        pub safe static kretprobe_lean_leave_kept: u8;
        pub safe static kretprobe_result: u8;
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

/// Stand-ins for the labels of the assembly: the host's tests cannot execute it, and do what it does by hand.
#[cfg(not(target_os = "none"))]
#[expect(non_upper_case_globals, reason = "named like the labels of the assembly")]
mod routines {
    pub static kretprobe_lean_unusual: u8 = 0;
    pub static kretprobe_lean_leave: u8 = 0;
    pub static kretprobe_lean_leave_call: u8 = 0;
    pub static kretprobe_lean_leave_kept: u8 = 0;
    pub static kretprobe_result: u8 = 0;
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
const LEAN_DISTANCE: u64 = 256;
/// log2 of twice [`LEAN_DISTANCE`]. The addresses of the two trampolines are equal in the bits from this one up. Any
/// other address that a probed function returns to differs from them in one of these bits.
pub(crate) const SHIFT: u8 = 9;
const _: () = assert!(1 << SHIFT == 2 * LEAN_DISTANCE);

/// Returns the virtual address that return-probed functions return to.
#[inline]
pub(crate) fn kretprobe_address() -> u64 {
    &raw const routines::kretprobe_trampoline as u64
}

/// Returns the virtual address of `kretprobe_lean`, the trampoline of functions whose return is handled in registers
/// that are dead there: by code of the probe, or by a handler that sees only results.
#[inline]
pub(crate) fn kretprobe_lean_address() -> u64 {
    kretprobe_address().wrapping_sub(LEAN_DISTANCE)
}

/// Returns whether `address` is that of one of the two trampolines.
#[inline]
pub(crate) fn is_kretprobe(address: u64) -> bool {
    (kretprobe_address().wrapping_sub(address)) & !LEAN_DISTANCE == 0
}

/// Returns the virtual address at which code of a return leaves the call to [`kretprobe_address`].
#[inline]
pub(crate) fn lean_unusual_address() -> u64 {
    &raw const routines::kretprobe_lean_unusual as u64
}

/// Returns the virtual address at which code of a return goes on when it has handled the call, if it may have changed
/// the registers `changed`.
#[inline]
pub(crate) fn lean_leave_address(changed: Registers) -> u64 {
    if changed.intersects(Registers::from_to(15, 16)) {
        &raw const routines::kretprobe_lean_leave as u64
    } else if changed.intersects(Registers::x(14)) {
        &raw const routines::kretprobe_lean_leave_call as u64
    } else {
        &raw const routines::kretprobe_lean_leave_kept as u64
    }
}

/// Returns the virtual address at which `kretprobe_lean` goes on for a handler that sees a
/// [`CallResult`](super::result::CallResult).
#[inline]
pub(crate) fn result_address() -> u64 {
    &raw const routines::kretprobe_result as u64
}

/// Returns the virtual addresses of both trampolines, and of the routine that calls handlers of results.
#[inline]
pub(crate) fn kretprobe() -> Range<usize> {
    kretprobe_lean_address() as usize..&raw const routines::kretprobe_end as usize
}

/// Returns the virtual addresses of the routine that calls handlers of results.
#[inline]
pub(crate) fn result() -> Range<usize> {
    result_address() as usize..&raw const routines::kretprobe_end as usize
}

/// Returns the virtual addresses at which the trampolines have no frame. There, interrupts may be unmasked; or they are
/// masked, and no handler returns there.
#[inline]
pub(crate) fn entering() -> Range<usize> {
    kretprobe_lean_address() as usize..&raw const routines::kretprobe_entered as usize
}

/// Returns the virtual addresses at which the trampoline leaves: it has a complete frame at the stack pointer, or is at
/// a return.
#[inline]
pub(crate) fn leaving() -> Range<usize> {
    &raw const routines::kretprobe_leaving as usize..&raw const routines::kretprobe_left as usize
}

/// Returns an address that no stub can reach, wherever the memory of the host is.
#[cfg(not(target_os = "none"))]
pub(crate) fn stub_routine(_form: Form) -> usize {
    1 << 60
}

/// Returns the virtual address of the common routine of all stubs of a form.
#[cfg(target_os = "none")]
#[inline]
pub(crate) fn stub_routine(form: Form) -> usize {
    match form {
        Form::Full => &raw const routines::kprobes_optimized as usize,
        Form::Lean => &raw const routines::kprobes_lean as usize,
        Form::Follow => &raw const routines::kprobes_follow as usize,
    }
}

/// Returns the virtual addresses of the routines that call handlers with x29 at the record of a trap frame.
#[inline]
pub(crate) fn with_trap_frame() -> Range<usize> {
    &raw const routines::kprobes_exception as usize..&raw const routines::kprobes_optimized_end as usize
}

/// Returns the virtual addresses of the routine that calls handlers with x29 at the
/// [`CallArguments`](super::arguments::CallArguments).
#[inline]
pub(crate) fn with_arguments() -> Range<usize> {
    &raw const routines::kprobes_lean as usize..&raw const routines::kprobes_lean_end as usize
}

/// Returns the virtual address of the breakpoint with which the common routine of stubs resumes at another address or
/// stack pointer.
#[inline]
pub(crate) fn leave_address() -> u64 {
    &raw const routines::kprobes_leave as u64
}
