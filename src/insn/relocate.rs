//! Executes an instruction from a copy that is entered and left by branches, without an exception.
//!
//! The probe point then holds a branch. The code that it leads to calls the handlers, restores every register, and goes
//! on to the copy, which ends with a branch back to the probed code. No register is free in a copy: it changes only
//! registers that its instruction writes. Three things decide what a copy looks like, and whether one is possible:
//!
//! - **The place.** A field that depends on the program counter is encoded anew for the place of the copy, if it
//!   reaches that far. Otherwise an address is made in the register that the instruction writes in the end, and a
//!   conditional branch goes around an unconditional one. B reaches 128 MiB, and ADRP 4 GiB: if a copy can return by B,
//!   ADRP in it can reach what it needs.
//! - **Faults.** The copy may fault, and may be interrupted between any two words. [`origin`] tells for each of them
//!   where the probed code then is. A register may have been changed by then that the instruction does not read, and is
//!   about to write: executing the instruction at that address finishes its work. But an instruction that faults has
//!   written nothing, so one whose copy would write first and might fault after that is not relocated.
//! - **Landing pads.** A branch in the place of a landing pad is not a landing pad: in a guarded page, the indirect
//!   branch that leads there would fault. In the place of any other instruction the branch changes nothing: the
//!   indirect branch would have faulted there without a probe, with the same syndrome. An indirect branch sets
//!   PSTATE.BTYPE by the page that it is in, and so does its copy, in memory that is guarded if that page is. A call
//!   cannot be copied, because x30 has to hold the address after the original. For landing pads, BR in its stead is a
//!   jump, so it replaces a call only where there are none.
//!
//! The word before a copy may be a load, and the Cortex-A53 may compute a 64-bit multiply-accumulate incorrectly right
//! after a load or store (erratum 835769). So a NOP comes before a multiply-accumulate.
//!
//! Copies run with the interrupt masks of the probed code. Instructions that read and write these masks are copied
//! unchanged, unlike in a slot that is left by a breakpoint. The hints that [`Op::Nop`] stands for are left out here
//! too.

use core::fmt;
use core::ops::Range;

use super::encode::{self, Code, OutOfRange};
use super::op::{Indirect, Op};
use super::verdict::{Reason, Verdict};
use crate::exception::simulate::Guard;

/// The largest number of words of a copy: four for an address, and a branch.
pub const MAX_WORDS: usize = 5;

/// The place of an instruction and of its copy. Addresses are virtual, and multiples of four.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The address of the instruction.
    pub from: u64,
    /// The address of the first word of the copy.
    pub to: u64,
    /// How branch targets are checked in the page of the instruction, and in the memory of the copy.
    pub guard: Guard,
    /// Addresses that are known to be mapped as normal, untagged, readable memory for as long as the copy is used: the
    /// text.
    pub text: Range<u64>,
}

/// Makes the words that do, at `relocation.to`, what `word`, whose verdict is `verdict`, does at `relocation.from`.
/// They always leave the copy: the last word is a branch.
///
/// # Errors
///
/// The reason why no copy is possible.
#[inline]
pub fn relocate(word: u32, verdict: Verdict, relocation: &Relocation) -> Result<Code<MAX_WORDS>, NotRelocatable> {
    if relocation.guard == Guard::Guarded && is_landing_pad(word) {
        return Err(NotRelocatable::LandingPad);
    }
    match verdict {
        Verdict::Slot if is_multiply_accumulate(word) => relocate_unchanged([encode::NOP, word], relocation),
        Verdict::Slot => relocate_unchanged([word], relocation),
        Verdict::Simulate(op) => relocate_simulated(word, op, relocation),
        Verdict::Reject(reason) => Err(NotRelocatable::Refused(reason)),
    }
}

/// Makes a copy of `words` that goes on to the next instruction.
#[inline(always)]
fn relocate_unchanged<const N: usize>(
    words: [u32; N],
    relocation: &Relocation,
) -> Result<Code<MAX_WORDS>, NotRelocatable> {
    let mut code = Code::new(relocation.to);
    words.into_iter().for_each(|word| code.push(word));
    code.branch(relocation.from.wrapping_add(4))?;
    Ok(code)
}

/// Does what [`relocate`] does for an instruction that is otherwise simulated.
#[inline(never)]
fn relocate_simulated(word: u32, op: Op, relocation: &Relocation) -> Result<Code<MAX_WORDS>, NotRelocatable> {
    let mut code = Code::new(relocation.to);
    if relocate_op(word, op, relocation, &mut code)? {
        code.branch(relocation.from.wrapping_add(4))?;
    }
    Ok(code)
}

/// Makes the words of a slot at the virtual address `slot` that is entered by an exception return, with the PSTATE in
/// which the instruction at the virtual address `from` would run, and left by a branch.
///
/// The verdict on `word` is [`Verdict::Slot`]. A landing pad makes its check in the slot, if the slot is guarded like
/// the original.
///
/// # Errors
///
/// [`OutOfRange`] if the branch does not reach the next instruction.
pub const fn boost(word: u32, from: u64, slot: u64) -> Result<[u32; 2], OutOfRange> {
    match encode::branch(slot.wrapping_add(4), from.wrapping_add(4)) {
        Ok(branch) => Ok([word, branch]),
        Err(error) => Err(error),
    }
}

/// Returns where the probed code is when a CPU is at the virtual address `pc`, at `word`, in the words that
/// [`relocate`] or [`boost`] made of the instruction at the virtual address `from`: at the instruction, or already at
/// the target of the branch that leads on.
///
/// This is right because a B in such words has nothing left to do but to go on in the probed code, and all other words
/// have.
#[inline(always)]
#[must_use]
pub const fn origin(pc: u64, word: u32, from: u64) -> u64 {
    match encode::branch_target(word, pc) {
        Some(target) => target,
        None => from,
    }
}

/// Adds the words that do the work of `op`. Returns whether they may go on to the next instruction by running off the
/// end.
fn relocate_op(word: u32, op: Op, relocation: &Relocation, code: &mut Code<MAX_WORDS>) -> Result<bool, NotRelocatable> {
    let from = relocation.from;
    let next = from.wrapping_add(4);
    let target = |offset: i32| from.wrapping_add_signed(i64::from(offset));
    match op {
        Op::Nop | Op::Address { rd: 31, .. } | Op::AddressOfPage { rd: 31, .. } => Ok(true),
        Op::Address { rd, offset } => {
            code.address(rd, target(offset));
            Ok(true)
        }
        Op::AddressOfPage { rd, offset } => {
            code.address(rd, (from & !0xfff).wrapping_add_signed(offset));
            Ok(true)
        }
        Op::Branch { offset } => {
            code.branch(target(offset))?;
            Ok(false)
        }
        Op::BranchLink { offset } => {
            code.address(30, next);
            code.branch(target(offset))?;
            Ok(false)
        }
        Op::BranchConditional { offset, .. } | Op::CompareBranch { offset, .. } => {
            conditional::<19>(word, target(offset), next, code)
        }
        Op::TestBranch { offset, .. } => conditional::<14>(word, target(offset), next, code),
        Op::BranchRegister { kind: Indirect::Call, rn: 30 } => Err(NotRelocatable::CallOfLink),
        Op::BranchRegister { kind: Indirect::Call, .. } if relocation.guard != Guard::Absent => {
            Err(NotRelocatable::CheckedCall)
        }
        Op::BranchRegister { kind: Indirect::Call, rn } => {
            code.address(30, next);
            code.push(encode::branch_register(rn));
            Ok(false)
        }
        Op::BranchAuthenticated { kind: Indirect::Call, .. } => Err(NotRelocatable::AuthenticatedCall),
        Op::BranchRegister { .. } | Op::BranchAuthenticated { .. } => {
            code.push(word);
            Ok(false)
        }
        Op::LoadLiteral { rt, kind, offset } => {
            let address = target(offset);
            if let Some(word) = encode::redirect::<19>(word, code.here(), address) {
                code.push(word);
                return Ok(true);
            }
            if rt == 31 {
                return Err(NotRelocatable::LoadOfZeroRegister);
            }
            let known = relocation.text.contains(&address) && relocation.text.end - address >= kind.size();
            if !known || !address.is_multiple_of(kind.size()) {
                return Err(NotRelocatable::Literal { address });
            }
            code.address(rt, address & !0xfff);
            code.push(encode::load(kind, rt, rt, (address & 0xfff) as u16));
            Ok(true)
        }
        Op::ReadDaif { .. } | Op::WriteDaif { .. } | Op::SetDaif { .. } | Op::ClearDaif { .. } => {
            code.push(word);
            Ok(true)
        }
    }
}

/// Adds the conditional branch `word`, whose distance has `BITS` bits, to `target`, otherwise on to `next`. If it does
/// not reach `target`, it goes around a branch to `next`.
fn conditional<const BITS: u32>(
    word: u32,
    target: u64,
    next: u64,
    code: &mut Code<MAX_WORDS>,
) -> Result<bool, NotRelocatable> {
    let here = code.here();
    if let Some(word) = encode::redirect::<BITS>(word, here, target) {
        code.push(word);
        return Ok(true);
    }
    code.push(encode::redirect::<BITS>(word, here, here.wrapping_add(8)).expect("every field holds two words"));
    code.branch(next)?;
    code.branch(target)?;
    Ok(false)
}

/// Returns whether `word` is one of the 64-bit MADD, MSUB, SMADDL, SMSUBL, UMADDL and UMSUBL (C6.2) that adds to a
/// register. With the zero register, it is a multiplication.
const fn is_multiply_accumulate(word: u32) -> bool {
    const ZERO_REGISTER: u32 = 31;
    word >> 24 == 0x9b && matches!(word >> 21 & 0b111, 0b000 | 0b001 | 0b101) && word >> 10 & 31 != ZERO_REGISTER
}

/// Returns whether indirect branches of some kind may lead to `word` in a guarded page (D8.4): PACIASP, PACIBSP, BTI
/// c, BTI j and BTI jc. BTI without a target allows none.
const fn is_landing_pad(word: u32) -> bool {
    matches!(word, 0xd503_233f | 0xd503_237f | 0xd503_245f | 0xd503_249f | 0xd503_24df)
}

/// Why an instruction has no copy that does its work. The text of its [`Display`](fmt::Display) continues a sentence
/// after "because".
// The discriminant is as wide as the widest field, as in `Op`, so that the value is moved word by word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum NotRelocatable {
    /// The instruction cannot be probed at all.
    Refused(Reason),
    /// The copy is too far from the address that it goes on at.
    OutOfRange(OutOfRange),
    /// PACIASP, PACIBSP, BTI c, BTI j or BTI jc, in a guarded page.
    LandingPad,
    /// BLR x30.
    CallOfLink,
    /// BLR, on a CPU with branch target identification (FEAT_BTI).
    CheckedCall,
    /// BLRAA, BLRAB, BLRAAZ, BLRABZ.
    AuthenticatedCall,
    /// A literal load into the zero register, from further than it reaches.
    LoadOfZeroRegister,
    /// A literal load from further than it reaches, of a literal that is not in the text or not aligned.
    Literal {
        /// The virtual address of the literal.
        address: u64,
    },
    /// Between a load-exclusive and a WFE or WFET, a handler may clear the monitor whose event they wait for. The return
    /// from an exception is an event as well, so only a breakpoint can probe the instruction.
    BeforeWait,
}

impl From<OutOfRange> for NotRelocatable {
    fn from(error: OutOfRange) -> Self {
        Self::OutOfRange(error)
    }
}

impl fmt::Display for NotRelocatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused(reason) => return write!(f, "it {reason}"),
            Self::OutOfRange(error) => return error.fmt(f),
            Self::LandingPad => "it is a landing pad in a guarded page, and the branch that replaces it would not be one",
            Self::CallOfLink => "it calls the address in x30, and no other register is free to hold that address",
            Self::CheckedCall => "the landing pad of its callee would see a jump instead of a call if a copy called it",
            Self::AuthenticatedCall => "x30 would be lost if the address that it calls failed to authenticate",
            Self::LoadOfZeroRegister => "it loads nothing, so it has no register that could hold the address of its literal",
            Self::BeforeWait => "a WFE after it waits for an event that a handler may prevent, unless an exception returns",
            Self::Literal { address } => {
                return write!(
                    f,
                    "the literal at {address:#x} is too far from a copy to be loaded in one step, and may fault in the second"
                );
            }
        })
    }
}

#[cfg(test)]
mod tests;
