//! Builds the stubs of optimized probes. `hit::stub` describes what they do.

use super::hit::arguments::CallArguments;
use super::hit::point::Point;
use super::hit::returns::FOLLOW_SIZE;
use super::hit::stub::{CELL, DISTANCE, Form, WORDS};
use super::hit::trampoline;
use crate::atomic::AtomicPtr;
use crate::exception::frame::TrapFrame;
use crate::insn::encode::{self, SP};
use crate::insn::{self, Guard, Literal, NotRelocatable, Relocation};
use crate::kernel;

use super::check::CheckedInstruction;

/// Fills in the words, which are zero, of a stub of this form at the virtual address `stub`, for the instruction of
/// `checked` at the virtual address `address`. `guard` applies to both places. Hits find the point in `cell`.
pub(super) fn build(
    form: Form,
    stub: usize,
    address: usize,
    checked: &CheckedInstruction,
    guard: Guard,
    cell: &'static AtomicPtr<Point>,
    words: &mut [u32; WORDS],
) -> Result<(), NotRelocatable> {
    let (stub, from) = (stub as u64, address as u64);
    let to = |word: usize| stub + 4 * word as u64;
    let text = kernel::text();
    let relocation = Relocation { from, to: to(form.copy()), guard, text: text.start as u64..text.end as u64 };
    let call = |word| encode::branch_link(to(word), trampoline::stub_routine(form) as u64);
    // Copied with constant lengths, so that the words are stored one by one in place.
    let place = match form {
        Form::Full => {
            const SIZE: i16 = TrapFrame::SIZE as i16;
            const X30: i16 = 8 * 30;
            words[..Form::Full.copy()].copy_from_slice(&[
                form.opening(),
                encode::add(0, SP, SIZE as u16),
                encode::store_pair(30, 0, SP, X30),
                encode::read_daif(0),
                encode::MASK_INTERRUPTS,
                call(5)?,
                encode::write_daif(0),
                encode::load_pair_after(0, 1, SP, SIZE),
            ]);
            Form::Full.copy()
        }
        // x30 is restored before interrupts are unmasked, so that interrupted code has its own link again.
        Form::Lean => {
            const SIZE: i16 = CallArguments::SIZE as i16;
            words[..Form::Lean.copy()].copy_from_slice(&[
                form.opening(),
                encode::read_daif(9),
                encode::MASK_INTERRUPTS,
                call(3)?,
                encode::load_pair_after(29, 30, SP, SIZE),
                encode::write_daif(9),
            ]);
            Form::Lean.copy()
        }
        Form::Follow => {
            const SIZE: i16 = FOLLOW_SIZE as i16;
            words[..Form::Follow.copy()].copy_from_slice(&[
                form.opening(),
                encode::read_daif(9),
                encode::MASK_INTERRUPTS,
                call(3)?,
                encode::load(Literal::Doubleword, 30, SP, 8),
                encode::write_daif(9),
                encode::load_after(9, SP, SIZE),
            ]);
            Form::Follow.copy()
        }
    };
    // Matched in place, because `?` would copy the words once more.
    match &insn::relocate(checked.word, checked.verdict, &relocation) {
        Ok(copy) => {
            // Copied in two parts: copying five words at once would call `memcpy` where loads have to be aligned.
            let [first @ .., last] = copy.padded();
            words[place..][..first.len()].copy_from_slice(first);
            words[place + first.len()] = *last;
        }
        Err(reason) => return Err(*reason),
    }
    // The distance fits: both are within the reach of a branch, otherwise the stub could not lead back.
    words[DISTANCE] = from.wrapping_sub(stub) as u32;
    let cell = (&raw const *cell).expose_provenance() as u64;
    words[CELL] = cell as u32;
    words[CELL + 1] = (cell >> 32) as u32;
    // The branch to the stub must be within reach as well.
    insn::branch(from, stub)?;
    Ok(())
}
