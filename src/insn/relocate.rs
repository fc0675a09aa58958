//! Executing an instruction from a copy that is entered and left by branches, without an exception.
//!
//! The probe point then holds a branch. What it leads to calls the handlers, puts back every register, and goes on to the
//! copy, which ends with a branch to where the probed code goes on. No register is free there: a copy changes none that
//! its instruction does not write. Three things decide what it looks like, and whether there is one:
//!
//! - **The place.** What depends on the program counter is encoded anew for the place of the copy if its field reaches
//!   as far; if not, an address is made in the register that is written in the end, and a branch is led over another
//!   one. B reaches 128 MiB, and ADRP 4 GiB: what the first can return from, the second can reach.
//! - **Faults.** The copy may fault, and may be interrupted between any two words. [`origin`] tells for each of them
//!   where the probed code then is. A register may have been changed there that the instruction would not read, and is
//!   about to write: to execute the instruction at that address finishes its work. But an instruction that faults has
//!   written nothing, so what must write first and may fault then is not relocated.
//! - **Landing pads.** A branch at the place of a landing pad is none: in a guarded page, the indirect branch that leads
//!   there would fault. Any other instruction would have made it fault as well, with the same syndrome. An indirect
//!   branch sets PSTATE.BTYPE by the page that it is in, and so does its copy in memory that is guarded alike. A call
//!   cannot be copied, as x30 has to hold the address behind the original; BR in its stead is a jump to the landing pads,
//!   so it takes its place only where there are none.
//!
//! What is before a copy may be a load, and right behind a load or store the Cortex-A53 may get a 64-bit
//! multiply-accumulate wrong (erratum 835769); so a NOP is in front of one.
//!
//! Copies run with the interrupt masks of the probed code. What reads and writes them is copied as it is, unlike in a
//! slot that is left by a breakpoint; the hints that [`Op::Nop`] stands for are left out here too.

use core::fmt;
use core::ops::Range;

use super::Guard;
use super::encode::{self, Code, OutOfRange};
use super::op::{Indirect, Op};
use super::verdict::{Reason, Verdict};

/// The largest number of words of a copy: four for an address, and a branch.
pub const MAX_WORDS: usize = 5;

/// Where an instruction is, and where its copy is to be. Addresses are virtual, and multiples of four.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of the instruction.
    pub from: u64,
    /// The address of the first word of the copy.
    pub to: u64,
    /// Whether branch targets are checked in the page of the instruction; the memory of the copy is guarded alike.
    pub guard: Guard,
    /// Addresses that are known to be mapped as normal memory, untagged, readable, for as long as the copy is used: the
    /// text.
    pub text: Range<u64>,
}

/// The words that, at `place.to`, do what `word`, whose verdict is `verdict`, does at `place.from`. They always leave the
/// copy: the last of them is a branch.
///
/// # Errors
///
/// Why there are none.
pub fn relocate(word: u32, verdict: Verdict, place: &Place) -> Result<Code<MAX_WORDS>, NotRelocatable> {
    if place.guard == Guard::Guarded && is_landing_pad(word) {
        return Err(NotRelocatable::LandingPad);
    }
    let mut code = Code::new(place.to);
    let falls_through = match verdict {
        Verdict::Slot => {
            if is_multiply_accumulate(word) {
                code.push(NOP);
            }
            code.push(word);
            true
        }
        Verdict::Simulate(op) => relocate_op(word, op, place, &mut code)?,
        Verdict::Reject(reason) => return Err(NotRelocatable::Refused(reason)),
    };
    if falls_through {
        code.branch(place.from.wrapping_add(4))?;
    }
    Ok(code)
}

/// The words of a slot at the virtual address `slot` that is entered by an exception return, with PSTATE as the
/// instruction at the virtual address `from` finds it, and left by a branch.
///
/// `word` is an instruction whose verdict is [`Verdict::Slot`]. A landing pad makes its check in the slot, if that is
/// guarded as the original is.
///
/// # Errors
///
/// If the branch does not reach the next instruction.
pub const fn boost(word: u32, from: u64, slot: u64) -> Result<[u32; 2], OutOfRange> {
    match encode::branch(slot.wrapping_add(4), from.wrapping_add(4)) {
        Ok(branch) => Ok([word, branch]),
        Err(error) => Err(error),
    }
}

/// Where the probed code is when this CPU is at the virtual address `pc`, at `word`, in what [`relocate`] or [`boost`] made
/// of the instruction at the virtual address `from`: at the instruction, or already where it leads to.
///
/// It holds for all words of which B is the only one that has nothing left to do but to go on in the probed code.
#[inline(always)]
#[must_use]
pub const fn origin(pc: u64, word: u32, from: u64) -> u64 {
    match encode::branch_target(word, pc) {
        Some(target) => target,
        None => from,
    }
}

/// Adds what does the work of `op`, and tells whether it may go on to the next instruction by running off the end.
fn relocate_op(word: u32, op: Op, place: &Place, code: &mut Code<MAX_WORDS>) -> Result<bool, NotRelocatable> {
    let from = place.from;
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
        Op::BranchRegister { kind: Indirect::Call, .. } if place.guard != Guard::Absent => {
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
            let known = place.text.contains(&address) && place.text.end - address >= kind.size();
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

/// Adds the conditional branch `word`, whose distance has `BITS` bits, to `target` or `next`: over a branch to `next`
/// if it does not reach `target`.
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

/// C6.2, NOP.
const NOP: u32 = 0xd503_201f;

/// Whether `word` is one of the 64-bit MADD, MSUB, SMADDL, SMSUBL, UMADDL and UMSUBL (C6.2) that adds to a register: without
/// one, it is a multiplication.
const fn is_multiply_accumulate(word: u32) -> bool {
    const ZERO_REGISTER: u32 = 31;
    word >> 24 == 0x9b && matches!(word >> 21 & 0b111, 0b000 | 0b001 | 0b101) && word >> 10 & 31 != ZERO_REGISTER
}

/// Whether indirect branches of some kind may lead to `word` in a guarded page (D8.4.1): PACIASP, PACIBSP, BTI c, BTI j
/// and BTI jc. BTI without a target admits none.
const fn is_landing_pad(word: u32) -> bool {
    matches!(word, 0xd503_233f | 0xd503_237f | 0xd503_245f | 0xd503_249f | 0xd503_24df)
}

/// Why an instruction has no copy that does its work. The text of its [`Display`](fmt::Display) continues a sentence after
/// "because".
// As for `Op`: it is moved by words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum NotRelocatable {
    /// It cannot carry a probe at all.
    Refused(Reason),
    /// The copy is too far from where it is to go on.
    OutOfRange(OutOfRange),
    /// PACIASP, PACIBSP, BTI c, BTI j or BTI jc, in a guarded page.
    LandingPad,
    /// BLR x30.
    CallOfLink,
    /// BLR, on a processor with branch target identification (FEAT_BTI).
    CheckedCall,
    /// BLRAA, BLRAB, BLRAAZ, BLRABZ.
    AuthenticatedCall,
    /// A literal load into the zero register, from further than it reaches.
    LoadOfZeroRegister,
    /// A literal load from further than it reaches, of what is not in the text or not aligned.
    Literal {
        /// The virtual address of the literal.
        address: u64,
    },
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
            Self::LandingPad => "it is a landing pad in a guarded page, and the branch in its place would be none",
            Self::CallOfLink => "it calls the address in x30, and there is no other register to keep it in",
            Self::CheckedCall => "a landing pad would take the call for a jump when it comes from a copy",
            Self::AuthenticatedCall => "x30 would be lost when the address that it calls fails to authenticate",
            Self::LoadOfZeroRegister => "it loads nothing, which leaves no register for the address of its literal",
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
