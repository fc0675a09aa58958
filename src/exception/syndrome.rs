//! The syndromes that the engine knows: classes of exceptions, and the immediates of its breakpoints.

/// The immediate of the breakpoint at a probe point: `brk #0x4`, as in Linux (`asm/brk-imm.h`).
pub const BRK_KPROBE: u16 = 0x4;
/// The immediate of the breakpoint that follows an instruction in its slot: `brk #0x6`.
pub const BRK_STEPPED: u16 = 0x6;
/// The immediate of the breakpoint with which a hit that took no exception resumes at another address or stack pointer:
/// `brk #0x5`.
pub const BRK_LEAVE: u16 = 0x5;

/// ESR_EL1 (Arm ARM, D24.2.40): the class of the exception is in bits 31 to 26, bit 25 is set for 32-bit instructions.
pub(super) const EC_SHIFT: u32 = 26;
pub(super) const EC_UNKNOWN: u64 = 0x00;
pub(super) const EC_BRANCH_TARGET: u64 = 0x0d;
pub(super) const EC_DATA_ABORT: u64 = 0x25;
pub(crate) const EC_BREAKPOINT: u64 = 0x31;
pub(crate) const EC_STEP: u64 = 0x33;
pub(crate) const EC_WATCHPOINT: u64 = 0x35;
pub(super) const EC_BRK64: u64 = 0x3c;
pub(super) const INSTRUCTION_32_BIT: u64 = 1 << 25;
/// The immediate of a BRK is in the low half of the syndrome.
pub(super) const ISS_BRK_COMMENT: u64 = 0xffff;
