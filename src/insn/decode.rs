//! Reads the operands of the instructions whose results a check computes: those that `encode` writes, and a few more by
//! which compilers move the stack pointer and read jump tables.
//!
//! A program that was compiled for probes is verified from its words alone, and the audit follows addresses through
//! functions of others. Both must not take an instruction for another one. What is not known here is unknown to them:
//! [`RegisterAccess`](super::RegisterAccess) says what it may write. Branches, literals and what else depends on the
//! address of the instruction are operands of an [`Op`](super::Op) instead.

use super::classify::{bit, field, number, signed};
use super::encode::compute::Binary;

/// An instruction with its operands. Registers have 64 bits, and number 31 is the zero register, unless stated
/// otherwise. Section numbers are those of the groups in the encoding index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the operands of the instruction that each variant names")]
pub enum Instruction {
    /// ADD and SUB (immediate) (C4.1.86). Number 31 is the stack pointer.
    AddImmediate { rd: u8, rn: u8, addend: i64 },
    /// CMP (immediate). Number 31 is the stack pointer.
    CompareImmediate { rn: u8 },
    /// AND (immediate), if the mask is all ones from some bit on. Number 31 is the stack pointer in `rd`.
    Align { rd: u8, rn: u8, alignment: u64 },
    /// MOVZ and MOVN.
    MoveWide { rd: u8, value: u64 },
    /// MOVK: replaces the 16 bits of `mask` by those of `value`.
    MoveKeep { rd: u8, value: u64, mask: u64 },
    /// UBFM and SBFM that end with bit 63: LSR and ASR (immediate).
    ShiftRight { rd: u8, rn: u8, signed: bool, right: u8 },
    /// All other UBFM and SBFM: a field of bits.
    Extract { rd: u8, rn: u8 },
    /// A computation with two registers, of which the second is shifted (C4.1.89).
    Binary { how: Binary, rd: u8, rn: u8, rm: u8, shift: Shift },
    /// MADD and MSUB.
    MultiplyAdd { rd: u8, rn: u8, rm: u8, ra: u8, subtracts: bool },
    /// CLZ.
    LeadingZeros { rd: u8, rn: u8 },
    /// CSEL and CSINC, by the number of the condition.
    Select { rd: u8, rn: u8, rm: u8, condition: u8, increments: bool },
    /// CCMP (register) that clears the flags if its condition does not hold.
    CompareIf { rn: u8, rm: u8 },
    /// LDR, LDRB, LDRH, LDRSW and their kin, with an unsigned offset in bytes (C4.1.88). Number 31 is the stack pointer
    /// in `rn`, as in all loads and stores.
    Load { rt: u8, rn: u8, offset: u64, size: LoadSize },
    /// The same with a register for the offset, shifted or extended.
    LoadIndexed { rt: u8, rn: u8, size: LoadSize },
    /// STR, with an unsigned offset in bytes.
    Store { rt: u8, rn: u8, offset: u64 },
    /// LDP, with a signed offset in bytes.
    LoadPair { rt: u8, rt2: u8, rn: u8, offset: i64 },
    /// STP, with a signed offset in bytes.
    StorePair { rt: u8, rt2: u8, rn: u8, offset: i64 },
    /// LDAXR.
    LoadExclusive { rt: u8, rn: u8 },
    /// STXR, which writes its status to `rs`.
    StoreExclusive { rs: u8, rt: u8, rn: u8 },
    /// STLR.
    StoreRelease { rt: u8, rn: u8 },
}

/// How the second operand of a computation is shifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// To the left, by this number of bits; by 0, not at all.
    Left(u8),
    /// To the right, or rotated.
    Other,
}

/// What a load reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSize {
    /// The number of bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether the register gets the number sign-extended.
    pub signed: bool,
}

impl Instruction {
    /// Returns the instruction `word`; `None` if it is none of these.
    #[must_use]
    pub fn decode(word: u32) -> Option<Self> {
        // C4.1, bits 28 to 25. In loads and stores, bit 26 is set for vectors.
        match field(word, 28, 25) {
            0b1000 | 0b1001 if bit(word, 31) => immediate(word),
            0b0101 if bit(word, 31) => shifted(word),
            0b1101 if bit(word, 31) => computed(word),
            0b0100 | 0b1100 => memory(word),
            _ => None,
        }
    }
}

/// C4.1.86, Data processing -- immediate, 64 bits.
fn immediate(word: u32) -> Option<Instruction> {
    let (rd, rn, sets_flags) = (number(word, 0), number(word, 5), bit(word, 29));
    Some(match (field(word, 25, 23), field(word, 30, 29)) {
        (0b010, _) if sets_flags => {
            // SUBS without a result.
            if rd != 31 || !bit(word, 30) {
                return None;
            }
            Instruction::CompareImmediate { rn }
        }
        (0b010, subtracts) => {
            let immediate = (field(word, 21, 10) as i64) << (12 * field(word, 22, 22));
            Instruction::AddImmediate { rd, rn, addend: if subtracts == 0 { immediate } else { -immediate } }
        }
        // With N, the mask has imms + 1 ones, rotated to the right by immr (C3.4.2). With as many, they are at the top.
        (0b100, 0b00) if bit(word, 22) && field(word, 21, 16) == field(word, 15, 10) + 1 => {
            Instruction::Align { rd, rn, alignment: 1 << (64 - field(word, 21, 16)) }
        }
        (0b101, opc) if opc != 0b01 => {
            let left = 16 * field(word, 22, 21);
            let value = (field(word, 20, 5) as u64) << left;
            match opc {
                0b00 => Instruction::MoveWide { rd, value: !value },
                0b10 => Instruction::MoveWide { rd, value },
                _ => Instruction::MoveKeep { rd, value, mask: 0xffff << left },
            }
        }
        (0b110, opc @ (0b00 | 0b10)) if bit(word, 22) => {
            if field(word, 15, 10) == 63 {
                Instruction::ShiftRight { rd, rn, signed: opc == 0b00, right: field(word, 21, 16) as u8 }
            } else {
                Instruction::Extract { rd, rn }
            }
        }
        _ => return None,
    })
}

/// C4.1.89, Data processing -- register, 64 bits: logical, add and subtract (shifted register).
fn shifted(word: u32) -> Option<Instruction> {
    let how = match (bit(word, 24), bit(word, 21), field(word, 30, 29)) {
        (false, false, 0b00) => Binary::And,
        (false, false, 0b01) => Binary::Or,
        (false, false, 0b10) => Binary::Xor,
        (true, false, 0b00) => Binary::Add,
        (true, false, 0b10) => Binary::Subtract,
        (true, false, 0b11) => Binary::SubtractFlags,
        _ => return None,
    };
    let shift = match field(word, 23, 22) {
        0b00 => Shift::Left(field(word, 15, 10) as u8),
        // ROR, which only the logical instructions have.
        0b11 if bit(word, 24) => return None,
        _ => Shift::Other,
    };
    Some(Instruction::Binary { how, rd: number(word, 0), rn: number(word, 5), rm: number(word, 16), shift })
}

/// C4.1.89, Data processing -- register, 64 bits: those with bit 28 set.
fn computed(word: u32) -> Option<Instruction> {
    let (rd, rn, ra, rm) = (number(word, 0), number(word, 5), number(word, 10), number(word, 16));
    let binary = |how| Some(Instruction::Binary { how, rd, rn, rm, shift: Shift::Left(0) });
    // S, bit 29, is 0 in all but CCMP.
    match (field(word, 30, 29), field(word, 24, 21), field(word, 15, 10)) {
        (0b11, 0b0010, _) if field(word, 11, 10) == 0 && field(word, 4, 0) == 0 => {
            Some(Instruction::CompareIf { rn, rm })
        }
        (0b00, 0b0100, _) if !bit(word, 11) => {
            let condition = field(word, 15, 12) as u8;
            Some(Instruction::Select { rd, rn, rm, condition, increments: bit(word, 10) })
        }
        (0b00, 0b0110, 0b00_0010) => binary(Binary::Divide),
        (0b00, 0b0110, 0b00_0011) => binary(Binary::DivideSigned),
        (0b00, 0b0110, 0b00_1000) => binary(Binary::Left),
        (0b00, 0b0110, 0b00_1001) => binary(Binary::Right),
        (0b00, 0b0110, 0b00_1010) => binary(Binary::RightSigned),
        (0b10, 0b0110, 0b00_0100) if rm == 0 => Some(Instruction::LeadingZeros { rd, rn }),
        (0b00, 0b1000, _) => Some(Instruction::MultiplyAdd { rd, rn, rm, ra, subtracts: bit(word, 15) }),
        (0b00, 0b1110, 0b01_1111) => binary(Binary::MultiplyHigh),
        _ => None,
    }
}

/// C4.1.88, Loads and stores of general registers.
fn memory(word: u32) -> Option<Instruction> {
    let (rt, rn, rt2) = (number(word, 0), number(word, 5), number(word, 10));
    let size = field(word, 31, 30);
    match (field(word, 29, 28), bit(word, 24)) {
        // Unsigned offset.
        (0b11, true) => {
            let offset = (field(word, 21, 10) as u64) << size;
            match loaded(word) {
                Some(size) => Some(Instruction::Load { rt, rn, offset, size }),
                None if size == 0b11 && field(word, 23, 22) == 0 => Some(Instruction::Store { rt, rn, offset }),
                None => None,
            }
        }
        // Register offset, extended in one of the ways that bit 14 stands for.
        (0b11, false) if bit(word, 21) && field(word, 11, 10) == 0b10 && bit(word, 14) => {
            loaded(word).map(|size| Instruction::LoadIndexed { rt, rn, size })
        }
        // Pairs of 64 bits, signed offset.
        (0b10, true) if size == 0b10 && !bit(word, 23) => {
            let offset = (signed(word, 21, 15) as i64) << 3;
            Some(if bit(word, 22) {
                Instruction::LoadPair { rt, rt2, rn, offset }
            } else {
                Instruction::StorePair { rt, rt2, rn, offset }
            })
        }
        (0b00, false) if size == 0b11 => match (field(word, 23, 21), number(word, 16), bit(word, 15), rt2) {
            (0b010, 31, true, 31) => Some(Instruction::LoadExclusive { rt, rn }),
            (0b000, rs, false, 31) => Some(Instruction::StoreExclusive { rs, rt, rn }),
            (0b100, 31, true, 31) => Some(Instruction::StoreRelease { rt, rn }),
            _ => None,
        },
        _ => None,
    }
}

/// Returns what a load of one register reads; `None` for stores, prefetches and what is not allocated.
const fn loaded(word: u32) -> Option<LoadSize> {
    let bytes = 1 << field(word, 31, 30);
    match (field(word, 31, 30), field(word, 23, 22)) {
        (_, 0b01) => Some(LoadSize { bytes, signed: false }),
        (0b00..=0b10, 0b10) | (0b00 | 0b01, 0b11) => Some(LoadSize { bytes, signed: true }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
