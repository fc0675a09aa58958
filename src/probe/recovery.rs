//! What code that was interrupted in the engine's memory would be without probes: for unwinders, profilers and crash dumps.
//!
//! `hit::unwind` says what there is to be found. All of it may be called with interrupts masked, in a handler of an interrupt or of
//! a probe, and for any address: it takes no lock, allocates nothing, and reads only the text, memory of the engine, and what it is
//! lent.

use super::hit::machine::ThisCpu;
use super::hit::returns::{self, TaskCalls};
use super::hit::unwind::Restart;
use super::hit::{origin, trampoline, unwind};
use super::instruction;
use crate::exception::TrapFrame;
use crate::insn::{Verdict, classify};
use crate::interrupts;

/// The virtual address in the probed code that `address` stands for, if it is in a slot or a stub: that of the probed instruction,
/// or, where its copy has nothing left to do but to branch, where that leads to.
///
/// A slot or a stub tells this until another instruction needs its memory.
#[must_use]
pub fn origin(address: usize) -> Option<usize> {
    interrupts::with_masked(|| origin::of(address))
}

/// Has `frame`, the registers of code of the task of `calls` that was interrupted in a slot, a stub or the trampoline of return
/// probes, tell what they would be without probes: pc, sp, x29 and x30. Returns false, and changes nothing, where it was
/// interrupted elsewhere.
///
/// An instruction in a slot or a stub has not been executed then, or, where its copy has begun to write x29 or x30, has been. A
/// return into the trampoline has been executed. The other registers are those of the probed code where it could be interrupted
/// without probes; only what an instruction is about to write may be written already, and what a snippet changes, which nothing
/// needs.
///
/// `read` gives the doubleword at a virtual address of the stack, if one can be read there.
///
/// What else there is of the engine runs with all of PSTATE.DAIF masked, and calls as any code does: see
/// [`has_trap_frame`](super::has_trap_frame) and [`entry_at`](super::entry_at).
///
/// # Safety
///
/// The task of `calls` is the one that runs on this CPU, or it is on no CPU until this returns, as for
/// [`true_return_address`](super::true_return_address).
pub unsafe fn recover(frame: &mut TrapFrame, calls: &TaskCalls, read: impl Fn(usize) -> Option<u64>) -> bool {
    let read = |address: u64| read(address as usize);
    let pc = frame.pc as usize;
    match interrupts::with_masked(|| unwind::restart(frame, read)) {
        Some(Restart { address, has_begun }) => {
            if has_begun && frame.pc == address as u64 {
                finish(frame);
            }
            true
        }
        // SAFETY: by the caller.
        None => trampoline::kretprobe().contains(&pc) && unsafe { returned(frame, calls, read) }.is_some(),
    }
}

/// Executes the probed instruction at the pc, the copy of which has made part of an address.
fn finish(frame: &mut TrapFrame) {
    if let Some(Verdict::Simulate(operation)) = instruction(frame.pc as usize).map(classify) {
        // A branch to what is checked is copied in one word.
        let _ = operation.simulate(frame, &ThisCpu { guarded: false });
        frame.record = [frame.x[29], frame.pc];
    }
}

/// Has `frame`, which was interrupted in the trampoline, tell of the caller. Returns nothing if that is not known.
///
/// # Safety
///
/// That of [`recover`].
unsafe fn returned(frame: &mut TrapFrame, calls: &TaskCalls, read: impl Fn(u64) -> Option<u64>) -> Option<()> {
    const LINK: usize = 30;
    let pc = frame.pc as usize;
    let is_leaving = trampoline::leaving().contains(&pc);
    // The last instruction that stores the state sets x29.
    let is_framed = frame.x[29] == frame.sp.wrapping_add(TrapFrame::RECORD as u64);
    let has_frame = is_leaving || is_framed && !trampoline::entering().contains(&pc);
    let mut found = *frame;
    let target = match unwind::leaves_by(pc) {
        Some(register) => frame.x[register],
        None if has_frame => {
            let word = |offset: usize| read(frame.sp.wrapping_add(offset as u64));
            for (number, register) in found.x.iter_mut().enumerate() {
                *register = word(8 * number)?;
            }
            found.sp = word(TrapFrame::SP)?;
            word(TrapFrame::PC)?
        }
        None => {
            found.sp = unwind::entered_with(pc, frame.sp);
            trampoline::kretprobe_address()
        }
    };
    let target = if trampoline::is_kretprobe(target) {
        // SAFETY: by the caller; interrupts are masked.
        found.x[LINK] = interrupts::with_masked(|| unsafe { returns::true_return_address(calls, found.sp) })?;
        found.x[LINK]
    } else {
        target
    };
    found.record[0] = found.x[29];
    found.set_interrupted(target);
    *frame = found;
    Some(())
}

/// What would be in the place of `address` without probes, in a frame record of the task that runs on this CPU: a return address,
/// or the pc where the record is that of a trap frame, which ends with it. `floor` is the virtual address behind the record; or the
/// stack pointer, if the return address is still in x30, and was found there. Fit for handlers.
///
/// # Safety
///
/// `floor` is that. Where `address` is in the trampoline of return probes, a trap frame around it is read.
#[inline(always)]
#[must_use]
pub unsafe fn address_here(address: usize, floor: usize) -> usize {
    // SAFETY: by the caller.
    interrupts::with_masked(|| unsafe { unwind::address_here(address, floor as u64) })
}
