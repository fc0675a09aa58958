//! Translates a simulated instruction to one of the shortcuts of the hit path's assembly.

use core::mem::offset_of;

use crate::exception::frame::TrapFrame;
use crate::insn::{self, Literal, Resolved};
use crate::kernel;
use crate::probe::hit::point::Point;

/// Returns how the rest of an instruction is done, in the form of the fields of `Point`: the number of the shortcut,
/// which is 0 if there is none, the address of the slot, and the operands.
pub(super) fn to(resolved: Resolved) -> (u64, usize, [u64; 3]) {
    match resolved {
        Resolved::Jump { to } => (Point::SET, to as usize, [0, place(31), 0]),
        Resolved::Set { register, value, to } => (Point::SET, to as usize, [value, place(register), 0]),
        Resolved::Condition { condition, taken, not_taken } => {
            let holds = (0..16).filter(|flags| insn::holds(condition, flags << 28));
            (Point::CONDITION, taken as usize, [holds.fold(0, |set, flags| set | 1 << flags), not_taken, 0])
        }
        Resolved::Test { register, nonzero, mask, taken, not_taken } if register != 31 => {
            let (nonzero, zero) = if nonzero { (taken, not_taken) } else { (not_taken, taken) };
            (Point::TEST, nonzero as usize, [mask, zero, place(register)])
        }
        Resolved::Register { register, branch_type, link } if register != 31 => {
            let (link, to) = link.map_or((0, 31), |link| (link, 30));
            (Point::REGISTER, link as usize, [place(register), branch_type, place(to)])
        }
        Resolved::Load { register, kind, address, to } if is_readable(address, kind.size()) => {
            let shortcut = match kind {
                Literal::Word => Point::LOAD_WORD,
                Literal::Doubleword => Point::LOAD_DOUBLEWORD,
                Literal::SignedWord => return (0, 0, [0; 3]),
            };
            (shortcut, to as usize, [address, place(register), 0])
        }
        // The load may fault.
        Resolved::Load { .. } => (0, 0, [0; 3]),
        // The frame has no readable word for the zero register.
        Resolved::Test { .. } | Resolved::Register { .. } => (0, 0, [0; 3]),
    }
}

/// Returns whether `size` bytes at the virtual address `address` can be read by one load that cannot fault: they are in
/// the text, and aligned.
fn is_readable(address: u64, size: u64) -> bool {
    let text = kernel::text();
    address.is_multiple_of(size) && (text.start as u64..=text.end as u64 - size).contains(&address)
}

/// Returns the offset of register `number` in the frame. The zero register has the offset of a word that nothing reads
/// afterwards.
fn place(number: u8) -> u64 {
    match number {
        31 => offset_of!(TrapFrame, called_for) as u64,
        _ => 8 * u64::from(number),
    }
}
