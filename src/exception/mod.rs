//! The engine's end of the exception vector.
//!
//! A kernel's handler of synchronous exceptions from EL1 begins with the two lines
//!
//! ```ignore
//! if aarch64_kprobes::exception::handle_sync(frame, esr, far) {
//!     return;
//! }
//! ```
//!
//! Everything else the engine needs from an exception is in the [`TrapFrame`].

pub mod frame;
pub mod nofault;

pub use frame::TrapFrame;

use crate::probe::hit;

/// The immediate of the breakpoint at a probe point: `brk #0x4`, the one Linux uses (`asm/brk-imm.h`).
pub const BRK_KPROBE: u16 = 0x4;
/// The immediate of the breakpoint behind an instruction in its slot: `brk #0x6`.
pub const BRK_STEPPED: u16 = 0x6;

/// ESR_EL1.EC, bits 31 to 26 (Arm ARM, D24.2.40).
const EC_SHIFT: u32 = 26;
const EC_BRK64: u64 = 0x3c;
const EC_DATA_ABORT_SAME_EL: u64 = 0x25;
/// The immediate of a BRK is in the low half of the syndrome.
const ISS_BRK_COMMENT: u64 = 0xffff;

/// Handles a synchronous exception from EL1, if it belongs to a probe.
///
/// Called first of all, with all of PSTATE.DAIF masked, on the stack of the interrupted code; `esr` is
/// ESR_EL1. Returns true when it has been dealt with, and `frame` is to be returned to. Otherwise the
/// exception is the kernel's own affair; `frame` then tells the truth about it: an instruction that faulted
/// in its slot appears at the address that it was probed at, and this CPU's probe state is clean.
#[must_use]
pub fn handle_sync(frame: &mut TrapFrame, esr: u64) -> bool {
    match esr >> EC_SHIFT & 0x3f {
        EC_BRK64 => match (esr & ISS_BRK_COMMENT) as u16 {
            BRK_KPROBE => hit::breakpoint(frame),
            BRK_STEPPED => hit::stepped(frame),
            _ => false,
        },
        EC_DATA_ABORT_SAME_EL if nofault::fix_up(frame) => true,
        _ => {
            hit::faulted(frame);
            false
        }
    }
}
