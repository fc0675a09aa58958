//! Executes an instruction on the trap frame, as the CPU would have executed it in place.
//!
//! It runs inside the breakpoint exception, in the closed region: it takes no lock, allocates nothing and has no
//! path that panics. Register numbers go through the frame's accessors, which know the zero register.

use super::frame::TrapFrame;
use crate::insn::op::{Indirect, Key, Literal, Modifier, Op};

/// What a simulated instruction needs besides the frame: memory, keys, and properties of the CPU.
pub trait Environment {
    /// Returns whether branch targets are checked at the virtual address `pc`.
    fn guard(&self, pc: u64) -> Guard;

    /// Returns whether the CPU implements BC.cond (FEAT_HBC).
    fn has_consistent_branches(&self) -> bool;

    /// Reads the 32-bit word at virtual address `address` with one access.
    ///
    /// # Errors
    ///
    /// The syndrome (ESR_EL1) of the exception that the access takes.
    fn read_u32(&self, address: u64) -> Result<u32, u64>;

    /// Reads the 64-bit doubleword at virtual address `address` with one access. The address is a multiple of four,
    /// not always of eight.
    ///
    /// # Errors
    ///
    /// The syndrome (ESR_EL1) of the exception that the access takes.
    fn read_u64(&self, address: u64) -> Result<u64, u64>;

    /// Authenticates `pointer`, as AUTIA and AUTIB do.
    ///
    /// # Errors
    ///
    /// The syndrome (ESR_EL1) of the exception that a failed authentication takes. On a CPU on which it takes none, the
    /// result is a pointer that cannot be used.
    fn authenticate(&self, key: Key, pointer: u64, modifier: u64) -> Result<u64, u64>;
}

/// How branch target identification (FEAT_BTI) applies at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The CPU does not implement it, and PSTATE.BTYPE does not exist.
    Absent,
    /// The page is not guarded.
    Unguarded,
    /// The page is guarded: the GP bit of its translation is set.
    Guarded,
}

/// An exception that the instruction would have raised at its own address. The frame is unchanged.
// The tag is as wide as the fields, so that a value is moved by loads and stores, not by a call of memcpy, which can
// be probed.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A Branch Target exception: the instruction was branched to in a guarded page and is not a landing pad.
    BranchTarget,
    /// A Data Abort on a read.
    Read {
        /// The virtual address that was read.
        address: u64,
        /// ESR_EL1 of the abort.
        syndrome: u64,
    },
    /// The instruction is undefined on this CPU.
    Undefined,
    /// The authentication of a branch target has failed, or is undefined on this CPU.
    Authentication {
        /// ESR_EL1 of the exception.
        syndrome: u64,
    },
}

/// PSTATE.N, Z, C and V in SPSR_EL1 (C5.2.19).
const N: u64 = 1 << 31;
const Z: u64 = 1 << 30;
const C: u64 = 1 << 29;
const V: u64 = 1 << 28;

/// PSTATE.BTYPE in SPSR_EL1 (C5.2.19), and its values.
const BTYPE: u64 = 0b11 << 10;
const BTYPE_JUMP_ANYWHERE: u64 = 0b01 << 10;
const BTYPE_CALL: u64 = 0b10 << 10;
const BTYPE_JUMP: u64 = 0b11 << 10;

/// The position of PSTATE.DAIF in SPSR_EL1, and in the register form of MRS and MSR.
const DAIF_SHIFT: u32 = 6;

impl Op {
    /// Executes the instruction at `frame.pc`, and sets `frame.pc` to the address of the next one.
    ///
    /// Like any instruction, it clears PSTATE.BTYPE; an indirect branch sets it instead (BTypeNext in C6.2, BR, BLR and
    /// RET), if the CPU has it.
    ///
    /// # Errors
    ///
    /// The exception that the instruction would have raised; the frame is then unchanged.
    #[doc(hidden)]
    pub fn simulate(self, frame: &mut TrapFrame, environment: &impl Environment) -> Result<(), Fault> {
        let pc = frame.pc;
        if frame.pstate & BTYPE != 0 && environment.guard(pc) == Guard::Guarded {
            return Err(Fault::BranchTarget);
        }
        let target = |offset: i32| pc.wrapping_add_signed(i64::from(offset));
        let mut next = pc.wrapping_add(4);
        let mut btype = 0;
        match self {
            Self::Nop => {}
            Self::Address { rd, offset } => frame.set_register(rd, target(offset)),
            Self::AddressOfPage { rd, offset } => {
                frame.set_register(rd, (pc & !0xfff).wrapping_add_signed(offset));
            }
            Self::Branch { offset } => next = target(offset),
            Self::BranchLink { offset } => {
                frame.set_register(30, next);
                next = target(offset);
            }
            Self::BranchConditional { consistent: true, .. } if !environment.has_consistent_branches() => {
                return Err(Fault::Undefined);
            }
            Self::BranchConditional { condition, offset, .. } => {
                if holds(condition, frame.pstate) {
                    next = target(offset);
                }
            }
            Self::CompareBranch { rt, wide, nonzero, offset } => {
                let value = frame.register(rt);
                let zero = if wide { value == 0 } else { value as u32 == 0 };
                if zero != nonzero {
                    next = target(offset);
                }
            }
            Self::TestBranch { rt, bit, nonzero, offset } => {
                let set = frame.register(rt).wrapping_shr(u32::from(bit)) & 1 != 0;
                if set == nonzero {
                    next = target(offset);
                }
            }
            Self::BranchRegister { kind, rn } => {
                // Read before the link is written: the two may be the same register.
                next = frame.register(rn);
                btype = branch_indirectly(kind, rn, frame, environment);
            }
            Self::BranchAuthenticated { kind, rn, key, modifier } => {
                let modifier = match modifier {
                    Modifier::Zero => 0,
                    Modifier::StackPointer => frame.sp,
                    Modifier::Register(rm) => frame.register(rm),
                };
                next = environment
                    .authenticate(key, frame.register(rn), modifier)
                    .map_err(|syndrome| Fault::Authentication { syndrome })?;
                btype = branch_indirectly(kind, rn, frame, environment);
            }
            Self::LoadLiteral { rt, kind, offset } => {
                let address = target(offset);
                let value = match kind {
                    Literal::Word => environment.read_u32(address).map(u64::from),
                    Literal::SignedWord => {
                        environment.read_u32(address).map(|word| i64::from(word.cast_signed()).cast_unsigned())
                    }
                    Literal::Doubleword => environment.read_u64(address),
                };
                frame.set_register(rt, value.map_err(|syndrome| Fault::Read { address, syndrome })?);
            }
            Self::ReadDaif { rt } => frame.set_register(rt, frame.pstate & TrapFrame::DAIF),
            Self::WriteDaif { rt } => {
                let masks = frame.register(rt) & TrapFrame::DAIF;
                frame.pstate = frame.pstate & !TrapFrame::DAIF | masks;
            }
            Self::SetDaif { mask } => frame.pstate |= masks(mask),
            Self::ClearDaif { mask } => frame.pstate &= !masks(mask),
        }
        frame.pstate = frame.pstate & !BTYPE | btype;
        frame.pc = next;
        Ok(())
    }
}

/// Writes the link of a call, and returns PSTATE.BTYPE at the target of an indirect branch by register `rn` (D8.4).
fn branch_indirectly(kind: Indirect, rn: u8, frame: &mut TrapFrame, environment: &impl Environment) -> u64 {
    let pc = frame.pc;
    match kind {
        Indirect::Jump => match environment.guard(pc) {
            Guard::Absent => 0,
            Guard::Guarded if rn != 16 && rn != 17 => BTYPE_JUMP,
            Guard::Guarded | Guard::Unguarded => BTYPE_JUMP_ANYWHERE,
        },
        Indirect::Call => {
            frame.set_register(30, pc.wrapping_add(4));
            if environment.guard(pc) == Guard::Absent { 0 } else { BTYPE_CALL }
        }
        Indirect::Return => 0,
    }
}

/// Converts the immediate of DAIFSet and DAIFClr to bits of PSTATE.
const fn masks(immediate: u8) -> u64 {
    ((immediate as u64) << DAIF_SHIFT) & TrapFrame::DAIF
}

/// Returns whether a condition holds (C1.2.4 and ConditionHolds) with the flags of `pstate`, in the layout of SPSR_EL1.
/// The last of the condition's four bits negates, except that 1111 holds like 1110.
#[must_use]
pub const fn holds(condition: u8, pstate: u64) -> bool {
    let n = pstate & N != 0;
    let z = pstate & Z != 0;
    let c = pstate & C != 0;
    let v = pstate & V != 0;
    let holds = match condition >> 1 {
        0b000 => z,
        0b001 => c,
        0b010 => n,
        0b011 => v,
        0b100 => c && !z,
        0b101 => n == v,
        0b110 => n == v && !z,
        _ => return true,
    };
    holds != (condition & 1 != 0)
}

#[cfg(test)]
mod tests;
