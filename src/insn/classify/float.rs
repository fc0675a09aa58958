//! C4.1.90 Data Processing -- Scalar Floating-Point and Advanced SIMD: the scalar floating-point half, and
//! cryptography.
//!
//! Nothing here reads the program counter. The engine's own code uses no floating-point registers, so a slot finds
//! them as the interrupted code left them.

use super::{bit, field, slot_if, system, vector};
use crate::insn::verdict::{Reason, Verdict};

pub(super) const fn classify(word: u32) -> Verdict {
    slot_if(match (bit(word, 31), bit(word, 30), bit(word, 28)) {
        (_, false, true) => scalar(word),
        (false, true, true) => vector::scalar(word),
        (false, _, false) => vector::classify(word),
        (true, true, false) => cryptography(word),
        _ => false,
    })
}

/// Returns whether the instruction `word` reads or writes the registers for floating point and vectors, their status or
/// their control.
///
/// By the encoding index (C4.1): data processing of scalar floating point and SIMD is the group x111 in bits 28 to 25;
/// loads and stores of its registers are those with V, bit 26, set in the group x1x0; SVE and SME are 0010 and, with
/// bit 31, 0000. The others are the system registers: FPCR, FPSR and FPMR (S3_3_C4_C4_0 to 2), SVCR (S3_3_C4_C2_2, also
/// written by MSR with an immediate, that is SMSTART and SMSTOP), and FPEXC32_EL2 (S3_4_C5_C3_0).
#[must_use]
pub const fn is_floating(word: u32) -> bool {
    match field(word, 28, 25) {
        0b0111 | 0b1111 | 0b0110 | 0b1110 | 0b0010 => true,
        0b0000 => bit(word, 31),
        0b1010 if field(word, 31, 24) == 0xd5 => match field(word, 23, 19) {
            // SMSTART and SMSTOP.
            0b00000 => matches!(system::classify(word), Verdict::Reject(Reason::Scalable)),
            // MSR (register); MRS.
            0b00011 | 0b00111 => {
                matches!(system::register(word), (_, 3, 4, 4, 0..=2) | (_, 3, 4, 2, 2) | (_, 4, 5, 3, 0))
            }
            _ => false,
        },
        _ => false,
    }
}

/// Half, single and double precision; ptype 10 is a vector's upper half, in FMOV only.
const fn scalar(word: u32) -> bool {
    let ptype = field(word, 23, 22);
    // S is 0 throughout, and M, in the place of sf, outside of the conversions.
    if bit(word, 29) {
        return false;
    }
    if bit(word, 24) {
        // Floating-point data-processing (3 source).
        return !bit(word, 31) && ptype != 0b10;
    }
    if !bit(word, 21) {
        // Conversion between floating-point and fixed-point: SCVTF, UCVTF; FCVTZS, FCVTZU.
        return ptype != 0b10
            && (bit(word, 31) || bit(word, 15))
            && matches!(field(word, 20, 16), 0b00_010 | 0b00_011 | 0b11_000 | 0b11_001);
    }
    if field(word, 15, 10) == 0 {
        return convert(word, ptype);
    }
    if bit(word, 31) || ptype == 0b10 {
        return false;
    }
    match field(word, 11, 10) {
        // Floating-point conditional compare; conditional select.
        0b01 | 0b11 => true,
        // Floating-point data-processing (2 source): FMUL to FNMUL.
        0b10 => field(word, 15, 12) <= 0b1000,
        // Floating-point immediate.
        _ if bit(word, 12) => field(word, 9, 5) == 0,
        // Floating-point compare.
        _ if bit(word, 13) => field(word, 15, 14) == 0 && field(word, 2, 0) == 0,
        // Floating-point data-processing (1 source).
        _ if bit(word, 14) => one_source(field(word, 20, 15), ptype),
        _ => false,
    }
}

/// Conversion between floating-point and integer, by rmode:opcode.
const fn convert(word: u32, ptype: u32) -> bool {
    let wide = bit(word, 31);
    match field(word, 20, 16) {
        // FCVTNS, FCVTNU, SCVTF, UCVTF, FCVTAS, FCVTAU; FCVTPS, FCVTPU; FCVTMS, FCVTMU; FCVTZS, FCVTZU.
        0b00_000..=0b00_101 | 0b01_000 | 0b01_001 | 0b10_000 | 0b10_001 | 0b11_000 | 0b11_001 => ptype != 0b10,
        // FMOV between registers of one size; or with a half.
        0b00_110 | 0b00_111 => ptype == 0b11 || ptype == wide as u32,
        // FMOV of the upper half of a vector.
        0b01_110 | 0b01_111 => wide && ptype == 0b10,
        // FJCVTZS.
        0b11_110 => !wide && ptype == 0b01,
        _ => false,
    }
}

const fn one_source(opcode: u32, ptype: u32) -> bool {
    match opcode {
        // FMOV, FABS, FNEG, FSQRT; FRINTN, FRINTP, FRINTM, FRINTZ, FRINTA, FRINTX, FRINTI.
        0b000000..=0b000011 | 0b001000..=0b001100 | 0b001110 | 0b001111 => true,
        // FCVT to single, double and half, from another. BFCVT is in between.
        0b000100 => ptype != 0b00,
        0b000101 => ptype != 0b01,
        0b000110 => ptype == 0b01,
        0b000111 => ptype != 0b11,
        // FRINT32Z, FRINT32X, FRINT64Z, FRINT64X.
        0b010000..=0b010011 => ptype != 0b11,
        _ => false,
    }
}

/// The cryptographic classes with 1100_1110 in the upper byte; the older ones are among the vectors.
const fn cryptography(word: u32) -> bool {
    if field(word, 29, 24) != 0b00_1110 {
        return false;
    }
    match field(word, 23, 21) {
        // Cryptographic four-register: EOR3, BCAX, SM3SS1. Cryptographic three-register, imm2: SM3TT1A to SM3TT2B.
        0b000 | 0b001 => !bit(word, 15),
        0b010 => !bit(word, 15) || field(word, 15, 14) == 0b10,
        // Cryptographic three-register SHA 512: SHA512H, SHA512H2, SHA512SU1, RAX1; SM3PARTW1, SM3PARTW2, SM4EKEY.
        0b011 => matches!(field(word, 15, 10), 0b10_0000..=0b10_0011 | 0b11_0000..=0b11_0010),
        // XAR.
        0b100 => true,
        // Cryptographic two-register SHA 512: SHA512SU0, SM4E.
        0b110 => matches!(field(word, 20, 10), 0b00000_100000 | 0b00000_100001),
        _ => false,
    }
}
