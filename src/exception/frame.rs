//! The trap frame: everything that a handler may see or change of the interrupted code.
//!
//! It holds *all* general registers. Other systems leave out x19 to x28, which is cheaper. But then the result that a
//! simulated instruction writes to one of those registers would be lost, and a handler could not show what the probed
//! code had in them.

use core::mem::{offset_of, size_of};

/// The registers of interrupted code, in the order in which `trampoline/frame.S` stores them.
///
/// The frame lies on the stack of the interrupted code, directly below its stack pointer. A change to any register
/// takes effect when the exception returns. If [`sp`](Self::sp) changes, the frame is first moved to lie below the new
/// stack pointer.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrapFrame {
    /// x0 to x30.
    pub x: [u64; 31],
    /// The stack pointer: SP_EL1, or SP_EL2 if the kernel runs at EL2.
    pub sp: u64,
    /// The address of the interrupted instruction, at which execution resumes (ELR_EL1).
    pub pc: u64,
    /// The processor state in the layout of SPSR_EL1 (Arm ARM, C5.2.19). Where a branch led to the probe's stub, or a
    /// function has returned to the trampoline, it holds only the condition flags, the interrupt masks and a mode,
    /// which is EL1h also at EL2.
    pub pstate: u64,
    /// Not 0 if a handler may have changed any of the fields above. For the engine. It follows `pstate`, because the
    /// assembly loads both together.
    pub(crate) written: u64,
    /// The address of the `ArmedProbe` whose handler runs, or of the `Instance` in a handler of a return probe. For the
    /// engine.
    pub(crate) called_for: u64,
    /// A frame record (AAPCS64, section 6.4.6): the interrupted x29 and pc. While a handler runs, x29 points
    /// here, so that a backtrace continues in the interrupted code.
    pub record: [u64; 2],
}

impl TrapFrame {
    /// Size in bytes: a multiple of 16, because the stack pointer must stay aligned.
    pub const SIZE: usize = size_of::<Self>();
    /// Byte offset of [`sp`](Self::sp).
    pub const SP: usize = offset_of!(Self, sp);
    /// Byte offset of [`pc`](Self::pc); [`pstate`](Self::pstate) follows it.
    pub const PC: usize = offset_of!(Self, pc);
    /// Byte offset of [`pstate`](Self::pstate); `written` and `called_for` follow it.
    pub(crate) const PSTATE: usize = offset_of!(Self, pstate);
    /// Byte offset of the frame record.
    pub const RECORD: usize = offset_of!(Self, record);

    /// The D, A, I and F masks in [`pstate`](Self::pstate) (Arm ARM, C5.2.19, bits 9 to 6).
    pub const DAIF: u64 = 0b1111 << 6;
    /// The condition flags in [`pstate`](Self::pstate) (bits 31 to 28).
    pub const FLAGS: u64 = 0b1111 << 28;
    /// The IRQ mask in [`pstate`](Self::pstate) (bit 7).
    pub const IRQ_MASKED: u64 = 1 << 7;

    /// The type of the branch that led to [`pc`](Self::pc) (PSTATE.BTYPE, bits 11 and 10). In a guarded page the CPU
    /// checks the instruction there against it (Arm ARM, D8.4, PSTATE.BTYPE).
    pub const BRANCH_TYPE: u64 = 0b11 << 10;

    /// A frame in which every field is zero.
    pub const ZERO: Self = Self { x: [0; 31], sp: 0, pc: 0, pstate: 0, written: 0, called_for: 0, record: [0; 2] };

    /// Shows the code as interrupted at `pc`, both in the frame and in its frame record.
    #[inline]
    pub(crate) fn set_interrupted(&mut self, pc: u64) {
        self.pc = pc;
        self.record[1] = pc;
    }

    /// Returns the value of register `number` as an instruction reads it: 31 is the zero register.
    #[inline]
    #[must_use]
    pub fn register(&self, number: u8) -> u64 {
        self.x.get(usize::from(number)).copied().unwrap_or(0)
    }

    /// Writes register `number` as an instruction does: a write to 31, the zero register, has no effect.
    #[inline]
    pub fn set_register(&mut self, number: u8, value: u64) {
        if let Some(register) = self.x.get_mut(usize::from(number)) {
            *register = value;
        }
    }
}

const _: () = {
    assert!(TrapFrame::SIZE == 304);
    assert!(TrapFrame::SP == 31 * 8);
    assert!(TrapFrame::PC == 32 * 8);
    assert!(TrapFrame::PSTATE == 33 * 8 && offset_of!(TrapFrame, written) == 34 * 8);
    assert!(TrapFrame::RECORD == 36 * 8);
};
