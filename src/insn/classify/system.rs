//! C4.1.87 Branches, Exception Generating and System instructions: the system instructions.
//!
//! Executed in a slot they have the same effect as in place, with three kinds of exceptions:
//!
//! - Instructions that depend on the interrupt masks, because a slot runs with all of them set. DAIF itself is
//!   simulated on the saved state. ESB is refused: with SError masked it would record in DISR_EL1 an error that it
//!   should have taken.
//! - Instructions that use state which exceptions overwrite. The breakpoint at the probe has already replaced ELR_EL1,
//!   SPSR_EL1, the syndrome and the fault address when the instruction would read them, and the breakpoint after the
//!   slot replaces what it writes. The other bits of PSTATE do live in SPSR_EL1 while a handler runs and come back from
//!   it, so PAN, UAO, DIT, SSBS, TCO and NZCV are written in a slot. That is also right for PAN if SCTLR_EL1.SPAN makes
//!   exceptions set it: they save it first.
//! - Instructions that change what the slot depends on: the stack of the next exception, the translation that maps the
//!   slot, the vectors, the register by which handlers find the current task, and the exceptions that are taken besides
//!   those that DAIF masks.
//!
//! `system_registers` lists the registers and operations that belong to none of these; all others are refused.
//!
//! The waiting instructions keep their meaning. The exception return that enters a slot sets the event register (C6.2,
//! WFE), so a WFE there never waits; as it may always complete early, WFE does nothing. WFET need not wait there
//! either, but it is undefined on a CPU without FEAT_WFxT, which only the CPU knows: it runs in the slot. WFI completes
//! when an interrupt is pending even if it is masked (C6.2, WFI), so WFI and WFIT sleep in the slot, and the interrupt
//! is taken when the probe's last exception returns.

use super::system_registers::{self, Name};
use super::{UNALLOCATED, bit, field, number, slot_if};
use crate::insn::op::Op;
use crate::insn::verdict::{Reason, Verdict};

/// Words with 1101_0101 in the upper byte.
pub(super) const fn classify(word: u32) -> Verdict {
    // Bit 22 is set for the 128-bit forms, bit 21 is L, bits 20 and 19 are op0.
    match field(word, 23, 19) {
        0b00000 => immediate(word),
        // System instructions: SYS; system instructions with result: SYSL.
        0b00001 | 0b00101 => operation(word),
        // System register move: MSR, MRS.
        0b00010 | 0b00011 => write(word),
        0b00110 | 0b00111 => read(word),
        // System with result: TSTART, TTEST.
        0b00100 if matches!(field(word, 18, 5), 0x1983 | 0x198b) => Verdict::Reject(Reason::Transaction),
        // System pair instructions: SYSP, the pairs TLBIP.
        0b01001 => pair_operation(word),
        // System register pair move: MSRR, MRRS.
        0b01010 | 0b01011 => pair(word, Verdict::Reject(Reason::Translation)),
        0b01110 | 0b01111 => pair(word, Verdict::Slot),
        _ => UNALLOCATED,
    }
}

/// op0 = 0: hints, barriers, PSTATE, and the instructions with a register argument.
const fn immediate(word: u32) -> Verdict {
    let (op1, crm, op2) = (field(word, 18, 16), field(word, 11, 8), field(word, 7, 5));
    match (field(word, 15, 12), op1, number(word, 0) == 31) {
        // System instructions with register argument: WFET, WFIT.
        (1, 3, _) => match (crm, op2) {
            (0, 0 | 1) => Verdict::Slot,
            _ => UNALLOCATED,
        },
        (2, 3, true) => hint(crm << 3 | op2),
        (3, 3, true) => match op2 {
            // DSB nXS.
            1 => slot_if(crm & 3 == 2),
            // CLREX: it ends an exclusive sequence, as does the exception return before it. DSB, DMB, ISB.
            2 | 4 | 5 | 6 => Verdict::Slot,
            // TCOMMIT.
            3 if crm == 0 => Verdict::Reject(Reason::Transaction),
            // SB.
            7 => slot_if(crm == 0),
            _ => UNALLOCATED,
        },
        (4, _, true) => pstate(op1, op2, crm),
        _ => UNALLOCATED,
    }
}

/// Hints, by CRm:op2.
const fn hint(number: u32) -> Verdict {
    match number {
        // NOP, YIELD, WFE; DGH, whose gathering any exception ends.
        0 | 1 | 2 | 6 => Verdict::Simulate(Op::Nop),
        // WFI, SEV, SEVL; XPACLRI.
        3..=5 | 7 => Verdict::Slot,
        // PACIA1716, PACIB1716, AUTIA1716, AUTIB1716.
        8 | 10 | 12 | 14 => Verdict::Slot,
        16 => Verdict::Reject(Reason::ErrorSynchronization),
        // PSB CSYNC, TSB CSYNC, GCSB DSYNC, CSDB, CLRBHB.
        17 | 18 | 19 | 20 | 22 => Verdict::Slot,
        // PACIAZ to AUTIBSP.
        24..=31 => Verdict::Slot,
        // BTI, BTI c, BTI j, BTI jc.
        32 | 34 | 36 | 38 => Verdict::Slot,
        // PACM.
        39 => Verdict::Reject(Reason::AuthenticatedAddress),
        // CHKFEAT; STSHH KEEP, STSHH STRM.
        40 | 48 | 49 => Verdict::Slot,
        _ => Verdict::Reject(Reason::UnknownHint),
    }
}

/// PSTATE: MSR (immediate), and the flag format instructions.
const fn pstate(op1: u32, op2: u32, crm: u32) -> Verdict {
    match (op1, op2) {
        // CFINV, XAFLAG, AXFLAG.
        (0, 0..=2) => slot_if(crm == 0),
        // UAO, PAN; SSBS, DIT, TCO.
        (0, 3 | 4) | (3, 1 | 2 | 4) => Verdict::Slot,
        (0, 5) => Verdict::Reject(Reason::StackSelection),
        // ALLINT, PM.
        (1, 0) if crm <= 3 => Verdict::Reject(Reason::ExceptionMasks),
        // SMSTART, SMSTOP.
        (3, 3) => Verdict::Reject(Reason::Scalable),
        (3, 6) => Verdict::Simulate(Op::SetDaif { mask: crm as u8 }),
        (3, 7) => Verdict::Simulate(Op::ClearDaif { mask: crm as u8 }),
        _ => UNALLOCATED,
    }
}

/// SYS and SYSL.
const fn operation(word: u32) -> Verdict {
    slot_unless(system_registers::operate(register(word), bit(word, 21)))
}

const fn read(word: u32) -> Verdict {
    match register(word) {
        DAIF => Verdict::Simulate(Op::ReadDaif { rt: number(word, 0) }),
        register => slot_unless(system_registers::read(register)),
    }
}

const fn write(word: u32) -> Verdict {
    match register(word) {
        DAIF => Verdict::Simulate(Op::WriteDaif { rt: number(word, 0) }),
        register => slot_unless(system_registers::write(register)),
    }
}

/// SYSP: the operations of SYS on TLBs that have an argument.
const fn pair_operation(word: u32) -> Verdict {
    match register(word) {
        _ if bit(word, 0) && number(word, 0) != 31 => UNALLOCATED,
        // TLBIP VAE1, VAAE1, VALE1, VAALE1; TLBIP RVAE1, RVAAE1, RVALE1, RVAALE1; all of them nXS as well.
        (_, 0, 8 | 9, 1..=3 | 5..=7, 1 | 3 | 5 | 7) => Verdict::Slot,
        (_, 4..=7, _, _, _) => Verdict::Reject(Reason::HigherLevel),
        _ => Verdict::Reject(Reason::UnlistedSystem),
    }
}

/// MSRR and MRRS, with the verdict on an access to a translation table base register.
const fn pair(word: u32, translation: Verdict) -> Verdict {
    match register(word) {
        _ if bit(word, 0) => UNALLOCATED,
        TTBR0_EL1 | TTBR1_EL1 => translation,
        PAR_EL1 | RCWMASK_EL1 | RCWSMASK_EL1 => Verdict::Slot,
        (_, 4..=7, _, _, _) => Verdict::Reject(Reason::HigherLevel),
        _ => Verdict::Reject(Reason::UnlistedSystem),
    }
}

/// Returns the system register or operation that `word` names.
pub(super) const fn register(word: u32) -> Name {
    (field(word, 20, 19), field(word, 18, 16), field(word, 15, 12), field(word, 11, 8), field(word, 7, 5))
}

/// Returns the verdict on an access: a refusal if there is a reason for one.
const fn slot_unless(reason: Option<Reason>) -> Verdict {
    match reason {
        None => Verdict::Slot,
        Some(reason) => Verdict::Reject(reason),
    }
}

// D17.2.
const TTBR0_EL1: Name = (3, 0, 2, 0, 0);
const TTBR1_EL1: Name = (3, 0, 2, 0, 1);
const PAR_EL1: Name = (3, 0, 7, 4, 0);
const RCWSMASK_EL1: Name = (3, 0, 13, 0, 3);
const RCWMASK_EL1: Name = (3, 0, 13, 0, 6);
const DAIF: Name = (3, 3, 4, 2, 1);
