//! Maps code that was interrupted in a slot, a stub or a trampoline to the state that it would have without probes.
//!
//! The other routines of the hit path run with all of PSTATE.DAIF masked. So an interrupt, a fault or a software step
//! finds one of the cases below, and the contents of the registers are known at each instruction:
//!
//! | interrupted at | pc | sp | x29 and x30 |
//! |---|---|---|---|
//! | a slot, the first word of a stub, a copy | the probed instruction, or its copy's target | correct | correct |
//! | a stub that has room on the stack | the probed instruction | above the room | correct, or stored by the stub |
//! | the trampoline, before it has a frame | the call's true return address | above the room, if any | x30 is the pc |
//! | the trampoline, with its frame | in the frame | in the frame | in the frame |
//! | the returns of the trampoline | x30, or x16 if a handler has sent the call elsewhere | correct | correct |

use super::list::TaskCalls;
use super::origin;
use super::returns;
use super::trampoline;
use crate::exception::frame::TrapFrame;
use crate::exception::nofault;
use crate::text;

/// Reads the doubleword at a virtual address, with this CPU's translation; `None` if it cannot be read.
///
/// # Safety
///
/// The contract of [`nofault::read`]: the address is not that of a device register.
pub(super) unsafe fn read_here(address: u64) -> Option<u64> {
    // SAFETY: the caller guarantees that the address is not that of a device register (see # Safety).
    unsafe { nofault::read(address as usize) }.ok()
}

/// Reads a doubleword that a stub has stored on the stack before it was interrupted.
pub(super) fn read_own_stack(address: u64) -> Option<u64> {
    // SAFETY: the stub has stored to this address before, relative to the stack pointer with which it was interrupted.
    unsafe { read_here(address) }
}

/// An instruction whose copy was interrupted in a slot or a stub.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Restart {
    /// The virtual address of the instruction.
    pub(crate) address: usize,
    /// Whether its copy has executed a word.
    pub(crate) has_begun: bool,
}

/// Changes `frame`, if it was interrupted in the slot of a boosted instruction or in a stub, to show the probed code:
/// before the instruction, or, if the copy has only a branch left to do, at the target of that branch.
///
/// `read` returns the doubleword at a virtual address of the stack; `None` if it cannot be read.
#[inline(always)]
pub(crate) fn restart(frame: &mut TrapFrame, read: impl Fn(u64) -> Option<u64>) -> Option<Restart> {
    let pc = frame.pc as usize;
    let origin = origin::find(pc)?;
    if let Some((stub, form)) = origin.stub
        && (1..form.balanced()).contains(&((pc - stub) / 4))
    {
        let (first, second) = form.stored();
        for (register, address) in [(first, frame.sp), (second, frame.sp.wrapping_add(8))] {
            if let Some(value) = read(address) {
                frame.set_register(register, value);
            }
        }
        frame.sp = frame.sp.wrapping_add(form.room() as u64);
        frame.record[0] = frame.x[29];
    }
    frame.set_interrupted(origin.address(pc) as u64);
    Some(Restart { address: origin.instruction, has_begun: origin.has_begun(pc) })
}

/// Returns the stack pointer with which a function was entered that has just returned. `pc` is in the trampoline,
/// before it has a frame, or at the first store of the routine for results. `sp` is the current stack pointer.
#[inline]
pub(crate) fn entered_with(pc: usize, sp: u64) -> u64 {
    let has_room = pc as u64 > trampoline::kretprobe_address() && !trampoline::result().contains(&pc);
    sp.wrapping_add(if has_room { TrapFrame::SIZE as u64 } else { 0 })
}

/// Returns the register by which the trampoline returns at `address`, if one of its returns is there.
#[inline]
pub(crate) fn leaves_by(address: usize) -> Option<usize> {
    const RET: u32 = 0xd65f_03c0;
    const RET_X16: u32 = 0xd65f_0200;
    if !trampoline::kretprobe().contains(&address) {
        return None;
    }
    match text::read(address & !3) {
        RET => Some(30),
        RET_X16 => Some(16),
        _ => None,
    }
}

/// Returns the address that a frame record would hold without probes instead of `address`: a return address; or, in the
/// record at the end of a trap frame, the address at which the code was interrupted. The record belongs to the task
/// that runs on this CPU. To be called with interrupts masked.
///
/// `floor` is the virtual address just after the record, and the stack pointer of code that was interrupted.
///
/// # Safety
///
/// If `address` is in the trampoline, `floor` has that meaning: words of a trap frame around it are read.
#[inline(never)]
pub(crate) unsafe fn address_here(address: usize, floor: u64) -> usize {
    // SAFETY: these are the calls of the task that runs on this CPU, and the caller has masked interrupts.
    let true_return = |floor| unsafe { returns::true_return_address(TaskCalls::current(), floor) };
    let found = if let Some(register) = leaves_by(address) {
        // SAFETY: the caller guarantees that the record ends at `floor` (see # Safety). It is the record of a trap
        // frame, which ends with it.
        unsafe { read_here(floor.wrapping_sub((TrapFrame::SIZE - 8 * register) as u64)) }
    } else if trampoline::entering().contains(&address) {
        true_return(entered_with(address, floor))
    } else if trampoline::leaving().contains(&address) {
        // SAFETY: the caller guarantees that `floor` is the stack pointer (see # Safety), at which the trampoline has
        // its frame.
        unsafe { read_here(floor.wrapping_add(TrapFrame::PC as u64)) }
    } else {
        return origin::of(address).unwrap_or(address);
    };
    found.map_or(address, |found| found as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::insn::encode;
    use crate::probe::hit::origin::Cell;
    use crate::probe::hit::stub::{DISTANCE, Form};
    use crate::probe::tests::computer::Computer;

    fn read_stack(address: u64) -> Option<u64> {
        // SAFETY: a host process has no device registers.
        unsafe { read_here(address) }
    }

    /// Allocates memory for stubs. The first stub has this form, lies 256 bytes before its instruction, and its copy is
    /// a NOP.
    fn piece(form: Form) -> usize {
        const NOP: u32 = 0xd503_201f;
        // A piece is never freed, and neither is its description.
        let words = vec![0_u32; 3 * 1024].leak().as_mut_ptr();
        let start = words.expose_provenance().next_multiple_of(4096);
        let first = (start - words.addr()) / 4;
        let next = start as u64 + 256 + 4;
        let back = start as u64 + 4 * form.copy() as u64 + 4;
        for (word, instruction) in [
            (0, form.opening()),
            (form.copy(), NOP),
            (form.copy() + 1, encode::branch(back, next).unwrap()),
            (DISTANCE, 256),
        ] {
            // SAFETY: the allocation contains a whole page from `first` on, and the words of the stub lie in it.
            unsafe { words.add(first + word).write(instruction) };
        }
        origin::add(origin::prepare(Cell::Stub).unwrap(), start..start + 4096);
        start
    }

    #[test]
    fn every_word_of_a_stub_tells_of_the_instruction() {
        let _alone = Computer::new();
        for form in [Form::Full, Form::Lean, Form::Follow] {
            let stub = piece(form);
            let (first, second) = form.stored();
            let stack = [0x1111_u64, 0x2222];
            let sp = stack.as_ptr().expose_provenance() as u64;
            for word in 0..=form.copy() + 1 {
                let pc = (stub + 4 * word) as u64;
                let mut frame = TrapFrame { sp, pc, x: [7; 31], ..TrapFrame::ZERO };
                let expected = Restart { address: stub + 256, has_begun: word > form.copy() };
                assert_eq!(restart(&mut frame, read_stack), Some(expected), "{form:?} {word}");
                let has_room = (1..form.balanced()).contains(&word);
                let room = if has_room { form.room() as u64 } else { 0 };
                let is_over = word == form.copy() + 1;
                assert_eq!(frame.pc as usize, stub + 256 + if is_over { 4 } else { 0 }, "{form:?} {word}");
                assert_eq!((frame.sp, frame.record[1]), (sp + room, frame.pc), "{form:?} {word}");
                for number in 0..31 {
                    let stored = [(first, 0x1111), (second, 0x2222)].into_iter().find(|&(stored, _)| stored == number);
                    let expected = stored.filter(|_| has_room).map_or(7, |(_, value)| value);
                    assert_eq!(frame.register(number), expected, "{form:?} {word}: x{number}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_stub_and_no_slot_is_left_alone() {
        let _alone = Computer::new();
        let unused = piece(Form::Full) + 64;
        for pc in [0, 1, 4, usize::MAX, usize::MAX - 3, unused, unused + 5, unused + 60] {
            let mut frame = TrapFrame { pc: pc as u64, sp: 8, ..TrapFrame::ZERO };
            let before = frame;
            assert_eq!(restart(&mut frame, |_| unreachable!()), None, "{pc:#x}");
            assert_eq!(frame, before);
        }
    }

    #[test]
    fn a_stack_that_cannot_be_read_keeps_the_registers() {
        let _alone = Computer::new();
        let stub = piece(Form::Lean);
        let mut frame = TrapFrame { pc: stub as u64 + 4, sp: 0x1000, x: [7; 31], ..TrapFrame::ZERO };
        assert!(restart(&mut frame, |_| None).is_some());
        assert_eq!((frame.sp, frame.x), (0x1000 + Form::Lean.room() as u64, [7; 31]));
    }
}
