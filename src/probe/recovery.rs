//! The state that code interrupted in the engine's memory would have without probes: for unwinders, profilers and crash
//! dumps.
//!
//! `hit::unwind` describes the cases. Everything here may be called with interrupts masked, in the handler of an
//! interrupt or of a probe, and for any address. It takes no lock, allocates nothing, and reads only the text, memory
//! of the engine, and what its caller passes.

use super::hit::list::TaskCalls;
use super::hit::returns;
use super::hit::this_cpu::ThisCpu;
use super::hit::unwind::Restart;
use super::hit::{origin, trampoline, unwind};
use super::instruction;
use crate::exception::frame::TrapFrame;
use crate::insn::{Verdict, classify};
use crate::interrupts;

/// Returns the virtual address in the probed code that `address` stands for, if it is in a slot or a stub: the address
/// of the probed instruction; or, if its copy has only a branch left to do, the target of that branch.
///
/// A slot or a stub gives this answer until its memory is reused for another instruction.
///
/// It may be called anywhere, for any address: also with interrupts masked, and in handlers.
#[must_use]
pub fn origin(address: usize) -> Option<usize> {
    interrupts::with_masked(|| origin::of(address))
}

/// Changes `frame` to show the state without probes: pc, sp, x29 and x30. The frame holds the registers of code that
/// was interrupted, in the task that owns `calls`, in a slot, a stub or a trampoline of return probes. Returns false,
/// and changes nothing, if the code was interrupted elsewhere.
///
/// In a slot or a stub, the frame shows the state before the probed instruction. If the copy of the instruction has
/// only a branch left to do, or has begun to write x29 or x30, the frame shows the state after it. In a trampoline, the
/// frame shows the caller, after the return. The other registers are those of the probed code, at a point where it
/// could also be interrupted without probes. There are two exceptions: a register that the probed instruction is about
/// to write may be written already; and the registers that a [compiled](super::Mode::Compiled) or
/// [lean](super::Mode::Lean) probe, or code at a return, changes may have other values, which the probed code does not
/// need.
///
/// `read` returns the doubleword at a virtual address of the stack; `None` if it cannot be read.
///
/// It may be called anywhere, also with interrupts masked, in the handler of an interrupt or of a probe. It takes no
/// lock, and allocates nothing.
///
/// All other code of the engine runs with all of PSTATE.DAIF masked, and calls functions as any code does: see
/// [`has_trap_frame`](super::has_trap_frame) and [`arguments_at`](super::arguments_at).
///
/// # Safety
///
/// The task that owns `calls` runs on this CPU, or it runs on no CPU until this returns, as for
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
        // SAFETY: the caller guarantees where the task of `calls` runs (see # Safety).
        None => trampoline::kretprobe().contains(&pc) && unsafe { returned(frame, calls, read) }.is_some(),
    }
}

/// Executes the probed instruction at the pc, because its copy has already made a part of an address.
fn finish(frame: &mut TrapFrame) {
    if let Some(Verdict::Simulate(operation)) = instruction(frame.pc as usize).map(classify) {
        // No guard check is needed: a branch to a checked target is copied as one word, so its copy has no part that
        // can have begun.
        let _ = operation.simulate(frame, &ThisCpu { guarded: false });
        frame.record = [frame.x[29], frame.pc];
    }
}

/// Changes `frame`, which was interrupted in the trampoline, to show the caller. Returns `None` if the caller is not
/// known.
///
/// # Safety
///
/// The contract of [`recover`].
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
            // The trampoline stores x20, and has the masks in it before interrupts are masked.
            if pc > trampoline::kretprobe_address() as usize + 4 && trampoline::entering().contains(&pc) {
                const STORED_X20: u64 = 8 * 20;
                found.x[20] = read(frame.sp.wrapping_add(STORED_X20))?;
            }
            found.sp = unwind::entered_with(pc, frame.sp);
            trampoline::kretprobe_address()
        }
    };
    let target = if trampoline::is_kretprobe(target) {
        // SAFETY: the caller guarantees where the task of `calls` runs (see # Safety); `with_masked` masks interrupts.
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

/// Returns the address that a frame record would hold without probes instead of `address`: a return address; or, in a
/// record at the end of a trap frame, the pc. The record belongs to the task that runs on this CPU. Handlers may call
/// it.
///
/// `floor` is the virtual address just after the record; or the stack pointer, if `address` was found in x30 instead,
/// as a return address that is still there.
///
/// # Safety
///
/// `floor` has that meaning. If `address` is in a trampoline of return probes, a trap frame around `floor` is read.
#[inline(always)]
#[must_use]
pub unsafe fn address_here(address: usize, floor: usize) -> usize {
    // SAFETY: the caller guarantees the meaning of `floor` (see # Safety); `with_masked` masks interrupts.
    interrupts::with_masked(|| unsafe { unwind::address_here(address, floor as u64) })
}
