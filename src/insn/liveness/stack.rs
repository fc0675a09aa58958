//! How a function leaves the stack pointer.

use core::ops::Range;

use super::Read;
use super::walk::{DEPTH, STEPS_MAX};
use crate::insn::classify;
use crate::insn::control::Control;
use crate::insn::decode::Instruction;
use crate::insn::op::Indirect;
use crate::insn::registers::{RegisterAccess, Registers, StackPointer};

/// Returns how many bytes higher than at its entry the stack pointer is when the function at these virtual addresses
/// returns; `None` if that cannot be determined, as in a function with conditional branches.
#[must_use]
pub fn stack_at_return(function: Range<u64>, read: Read<'_>) -> Option<i64> {
    moved(function.start, function.end, read, &mut { STEPS_MAX }, 0).ok()
}

/// Returns the virtual address of an instruction by which the function at these virtual addresses goes on in another
/// task, on the stack of the one in which it was entered: it writes TPIDR_EL1, and sets the stack pointer from no
/// register but x29. Returns `None` if there is none, or if the function may switch the stack as well.
#[must_use]
pub fn changes_task(function: Range<u64>, read: Read<'_>) -> Option<u64> {
    /// MSR TPIDR_EL1, x0.
    const SET_TASK: u32 = 0xd518_d080;
    let has = |at: u64, is_it: &dyn Fn(u32) -> bool| read(at).is_some_and(is_it);
    let writer = function.clone().step_by(4).find(|&at| has(at, &|word| word & !0x1f == SET_TASK))?;
    /// ADD sp, x0, without its immediate: MOV sp, xN is one. AND, which aligns the stack pointer, switches no stack.
    const SET_STACK: u32 = 0x9100_001f;
    let sets = |word: u32| {
        word & !(0x1fff << 10 | 0x1f << 5) == SET_STACK && matches!(StackPointer::after(word), StackPointer::Unknown)
    };
    let mut all = function.step_by(4);
    (!all.any(|at| has(at, &sets))).then_some(writer)
}

/// Why the movement of the stack pointer by a function cannot be determined.
enum Undetermined {
    /// There are several paths, or no path to a return.
    Paths,
    /// An instruction sets it from a register.
    Moved,
}

fn moved(function: u64, end: u64, read: Read<'_>, steps: &mut usize, depth: usize) -> Result<i64, Undetermined> {
    let (mut at, mut height, mut frame) = (function, 0_i64, None);
    while at != end {
        *steps = steps.checked_sub(1).ok_or(Undetermined::Paths)?;
        let word = read(at).ok_or(Undetermined::Paths)?;
        let verdict = classify(word);
        height = match StackPointer::after(word) {
            StackPointer::Moved(distance) => height + distance,
            StackPointer::FromFrame(distance) => frame.ok_or(Undetermined::Moved)? + distance,
            StackPointer::Unknown => return Err(Undetermined::Moved),
        };
        if let Some(Instruction::AddImmediate { rd: 29, rn: 31, addend }) = Instruction::decode(word) {
            frame = Some(height + addend);
        } else if RegisterAccess::under(verdict, word).writes.intersects(Registers::x(29)) {
            frame = None;
        }
        match Control::after(word, verdict) {
            Control::Jump(offset) => {
                at = at.wrapping_add_signed(offset.into());
                continue;
            }
            Control::Call(offset) if depth < DEPTH => {
                let function = at.wrapping_add_signed(offset.into());
                height += match moved(function, end, read, steps, depth + 1) {
                    // A function with several paths is assumed to restore it.
                    Err(Undetermined::Paths) => 0,
                    height => height?,
                };
            }
            Control::Next | Control::Call(_) | Control::Register { kind: Indirect::Call, .. } => {}
            Control::Either(_) | Control::Register { kind: Indirect::Jump, .. } => return Err(Undetermined::Paths),
            Control::Register { kind: Indirect::Return, .. } => return Ok(height),
        }
        at = at.wrapping_add(4);
    }
    Err(Undetermined::Paths)
}
