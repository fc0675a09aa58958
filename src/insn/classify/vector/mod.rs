//! C4.1.90 Data Processing -- Scalar Floating-Point and Advanced SIMD: the vector half.
//!
//! Most classes are an opcode, a U bit, a size of two bits and a Q bit for the length of the vector, and what is
//! allocated is a set of sizes for each opcode. A set has bit `size` for the short vectors and bit `4 + size` for
//! the long ones; the scalar classes use the lower half only.

mod indexed;
mod scalar;

pub(super) use scalar::scalar;

use super::{bit, field};

/// Every size and length.
const ANY: u8 = 0b1111_1111;
/// Every size, but no vector of one doubleword.
const INTEGER: u8 = 0b1111_0111;
/// Bytes, halfwords and words.
const NARROW: u8 = 0b0111_0111;
/// Halfwords and words.
const MIDDLE: u8 = 0b0110_0110;
const BYTES: u8 = 0b0001_0001;
const HALFWORDS: u8 = 0b0010_0010;
const WORDS: u8 = 0b0100_0100;
const DOUBLEWORDS: u8 = 0b1000_1000;
/// Single and double precision, where size is 0x; where size is 1x.
const FLOAT: u8 = 0b0011_0001;
const FLOAT_HIGH: u8 = 0b1100_0100;

/// Returns whether `set` contains the size of `word`: for short vectors and scalars, or for long vectors.
const fn has(set: u8, word: u32, long: bool) -> bool {
    (set >> (field(word, 23, 22) + 4 * long as u32)) & 1 != 0
}

/// The classes with bits 31 and 28 clear: vectors of 64 bits, or 128 if Q.
pub(super) const fn classify(word: u32) -> bool {
    let q = bit(word, 30);
    let u = bit(word, 29);
    let size = field(word, 23, 22);
    if bit(word, 24) {
        return match (bit(word, 10), bit(word, 23)) {
            (false, _) => indexed::vector(word),
            (true, false) if field(word, 22, 19) == 0 => modified_immediate(word),
            (true, false) => shift(word),
            (true, true) => false,
        };
    }
    if bit(word, 21) {
        return match field(word, 11, 10) {
            0b00 => has(three_different(u, field(word, 15, 12)), word, q),
            0b01 | 0b11 => has(three_same(u, field(word, 15, 11)), word, q),
            _ => match field(word, 20, 17) {
                0b0000 => has(two_registers(u, field(word, 16, 12)), word, q),
                0b1000 => has(across_lanes(u, field(word, 16, 12)), word, q),
                0b1100 => half_two_registers(u, bit(word, 23), field(word, 16, 12), true) && bit(word, 22),
                // Cryptographic AES: AESE, AESD, AESMC, AESIMC.
                0b0100 => q && !u && size == 0 && matches!(field(word, 16, 12), 0b00100..=0b00111),
                _ => false,
            },
        };
    }
    match (bit(word, 15), field(word, 11, 10)) {
        // Advanced SIMD table lookup: TBL, TBX.
        (false, 0b00) if !u => size == 0,
        // Advanced SIMD extract: the position is within the vector.
        (false, 0b00 | 0b10) if u => size == 0 && !bit(word, 10) && (q || !bit(word, 14)),
        // Advanced SIMD permute: UZP1, TRN1, ZIP1, UZP2, TRN2, ZIP2.
        (false, 0b10) => field(word, 13, 12) != 0 && has(INTEGER, word, q),
        // Advanced SIMD copy.
        (false, 0b01 | 0b11) if size == 0 => copy(word),
        // Advanced SIMD three same (FP16).
        (false, 0b01 | 0b11) => {
            size & 1 == 1 && !bit(word, 14) && half_three_same(u, bit(word, 23), field(word, 13, 11))
        }
        // Advanced SIMD three-register extension.
        (true, 0b01 | 0b11) => has(extension(u, field(word, 14, 11)), word, q),
        _ => false,
    }
}

/// Advanced SIMD three same.
const fn three_same(u: bool, opcode: u32) -> u8 {
    match (u, opcode) {
        // SHADD, SRHADD, SHSUB; SMAX, SMIN, SABD, SABA; MLA; SMAXP, SMINP; and unsigned, with MLS.
        (_, 0b00000 | 0b00010 | 0b00100 | 0b01100..=0b01111 | 0b10010 | 0b10100 | 0b10101) => NARROW,
        // AND, BIC, ORR, ORN; EOR, BSL, BIT, BIF.
        (_, 0b00011) => ANY,
        // SQADD, SQSUB, CMGT, CMGE, SSHL, SQSHL, SRSHL, SQRSHL, ADD, CMTST; and unsigned, with SUB, CMEQ.
        (_, 0b00001 | 0b00101..=0b01011 | 0b10000 | 0b10001) => INTEGER,
        // MUL; PMUL.
        (false, 0b10011) => NARROW,
        (true, 0b10011) => BYTES,
        // SQDMULH; SQRDMULH.
        (_, 0b10110) => MIDDLE,
        // ADDP.
        (false, 0b10111) => INTEGER,
        // FMAXNM, FADD, FMAX, FRECPS with FMINNM, FSUB, FMIN, FRSQRTS; FMLA with FMLS.
        (false, 0b11000 | 0b11001 | 0b11010 | 0b11110 | 0b11111) => FLOAT | FLOAT_HIGH,
        // FMULX, FCMEQ.
        (false, 0b11011 | 0b11100) => FLOAT,
        // FMLAL with FMLSL; FMLAL2 with FMLSL2.
        (false, 0b11101) | (true, 0b11001) => BYTES | WORDS,
        // FMAXNMP, FADDP, FCMGE, FACGE, FMAXP with FMINNMP, FABD, FCMGT, FACGT, FMINP.
        (true, 0b11000 | 0b11010 | 0b11100 | 0b11101 | 0b11110) => FLOAT | FLOAT_HIGH,
        // FMUL, FDIV.
        (true, 0b11011 | 0b11111) => FLOAT,
        _ => 0,
    }
}

/// Advanced SIMD three different.
const fn three_different(u: bool, opcode: u32) -> u8 {
    match (u, opcode) {
        // SADDL to SMLAL, SMLSL, SMULL; and unsigned.
        (_, 0b0000..=0b1000 | 0b1010 | 0b1100) => NARROW,
        // SQDMLAL, SQDMLSL, SQDMULL.
        (false, 0b1001 | 0b1011 | 0b1101) => MIDDLE,
        // PMULL.
        (false, 0b1110) => BYTES | DOUBLEWORDS,
        _ => 0,
    }
}

/// Advanced SIMD two-register miscellaneous.
const fn two_registers(u: bool, opcode: u32) -> u8 {
    match (u, opcode) {
        // REV64; REV32; REV16.
        (false, 0b00000) => NARROW,
        (true, 0b00000) => BYTES | HALFWORDS,
        (false, 0b00001) => BYTES,
        // SADDLP, CLS, SADALP; and unsigned, with CLZ.
        (_, 0b00010 | 0b00100 | 0b00110) => NARROW,
        // CNT; NOT, RBIT.
        (false, 0b00101) => BYTES,
        (true, 0b00101) => BYTES | HALFWORDS,
        // SUQADD, SQABS, CMGT, CMEQ, ABS with zero; USQADD, SQNEG, CMGE, CMLE, NEG; CMLT.
        (_, 0b00011 | 0b00111 | 0b01000 | 0b01001 | 0b01011) | (false, 0b01010) => INTEGER,
        // FCMGT, FCMEQ, FABS with zero; FCMGE, FCMLE, FNEG; FCMLT.
        (_, 0b01100 | 0b01101 | 0b01111) | (false, 0b01110) => FLOAT_HIGH,
        // XTN, SQXTN; SQXTUN, UQXTN, SHLL.
        (_, 0b10010 | 0b10100) | (true, 0b10011) => NARROW,
        // FCVTN, BFCVTN; FCVTXN; FCVTL.
        (false, 0b10110) => BYTES | HALFWORDS | WORDS,
        (true, 0b10110) => HALFWORDS,
        (false, 0b10111) => BYTES | HALFWORDS,
        // FRINTN with FRINTP; FRINTA. FRINTM with FRINTZ; FRINTX with FRINTI.
        (false, 0b11000) => FLOAT | FLOAT_HIGH,
        (true, 0b11000) => FLOAT,
        // and FCVTNS with FCVTPS, FCVTMS with FCVTZS, SCVTF with FRECPE; and unsigned, with FRSQRTE.
        (_, 0b11001 | 0b11010 | 0b11011 | 0b11101) => FLOAT | FLOAT_HIGH,
        // FCVTAS with URECPE; FCVTAU with URSQRTE.
        (_, 0b11100) => FLOAT | WORDS,
        // FRINT32Z, FRINT64Z; FRINT32X, FRINT64X with FSQRT.
        (_, 0b11110) | (false, 0b11111) => FLOAT,
        (true, 0b11111) => FLOAT | FLOAT_HIGH,
        _ => 0,
    }
}

/// Advanced SIMD across lanes.
const fn across_lanes(u: bool, opcode: u32) -> u8 {
    /// Not over two words.
    const LANES: u8 = NARROW & !0b0100;
    match (u, opcode) {
        // SADDLV, SMAXV, SMINV; and unsigned. ADDV.
        (_, 0b00011 | 0b01010 | 0b11010) | (false, 0b11011) => LANES,
        // FMAXNMV with FMINNMV, FMAXV with FMINV: half precision; single precision.
        (false, 0b01100 | 0b01111) => BYTES | WORDS,
        (true, 0b01100 | 0b01111) => (BYTES | WORDS) & 0xf0,
        _ => 0,
    }
}

/// Advanced SIMD three-register extension.
const fn extension(u: bool, opcode: u32) -> u8 {
    match (u, opcode) {
        // SQRDMLAH, SQRDMLSH.
        (true, 0b0000 | 0b0001) => MIDDLE,
        // SDOT, USDOT; UDOT.
        (_, 0b0010) | (false, 0b0011) => WORDS,
        // SMMLA, USMMLA; UMMLA. BFMMLA.
        (_, 0b0100) | (false, 0b0101) => WORDS & 0xf0,
        (true, 0b1101) => HALFWORDS & 0xf0,
        // FCMLA; FCADD.
        (true, 0b1000..=0b1011 | 0b1100 | 0b1110) => INTEGER & !BYTES,
        // BFDOT with BFMLALB and BFMLALT.
        (true, 0b1111) => HALFWORDS | DOUBLEWORDS,
        _ => 0,
    }
}

/// Advanced SIMD three same (FP16), by U, a and opcode.
const fn half_three_same(u: bool, a: bool, opcode: u32) -> bool {
    match (u, a) {
        (false, false) => opcode != 0b101,
        (false, true) => !matches!(opcode, 0b011..=0b101),
        (true, false) => opcode != 0b001,
        (true, true) => !matches!(opcode, 0b001 | 0b011 | 0b111),
    }
}

/// Advanced SIMD two-register miscellaneous (FP16), vector or scalar, by U, a and opcode.
const fn half_two_registers(u: bool, a: bool, opcode: u32, vector: bool) -> bool {
    match (a, opcode) {
        // FCVTNS with FCVTPS, FCVTMS with FCVTZS, SCVTF with FRECPE; FCVTAS; and unsigned, with FRSQRTE.
        (_, 0b11010 | 0b11011 | 0b11101) | (false, 0b11100) => true,
        // FCMGT, FCMEQ with zero; FCMGE, FCMLE; FCMLT.
        (true, 0b01100 | 0b01101) => true,
        (true, 0b01110) => !u,
        // FABS; FNEG. FRINTN with FRINTP, FRINTM with FRINTZ; FRINTA, FRINTX with FRINTI.
        (true, 0b01111) | (_, 0b11001) | (false, 0b11000) => vector,
        (true, 0b11000) => vector && !u,
        // FSQRT; FRECPX.
        (true, 0b11111) => vector == u,
        _ => false,
    }
}

/// Advanced SIMD copy: the lowest set bit of imm5 is the size, and the bits above it are the lane.
const fn copy(word: u32) -> bool {
    let (q, imm5, imm4) = (bit(word, 30), field(word, 20, 16), field(word, 14, 11));
    // 0 for bytes to 3 for doublewords.
    let size = imm5.trailing_zeros();
    if size > 3 {
        return false;
    }
    if bit(word, 29) {
        // INS (element).
        return q;
    }
    match imm4 {
        // DUP (element), DUP (general).
        0b0000 | 0b0001 => q || size < 3,
        // INS (general).
        0b0011 => q,
        // SMOV; UMOV.
        0b0101 => size < 2 || q && size == 2,
        0b0111 => q == (size == 3),
        _ => false,
    }
}

/// Advanced SIMD modified immediate.
const fn modified_immediate(word: u32) -> bool {
    let (q, op, cmode) = (bit(word, 30), bit(word, 29), field(word, 15, 12));
    if field(word, 22, 19) != 0 {
        return false;
    }
    // o2 is for FMOV of half precision only.
    if bit(word, 11) { cmode == 0b1111 && !op } else { cmode != 0b1111 || !op || q }
}

/// Advanced SIMD shift by immediate: the highest set bit of immh is the size.
const fn shift(word: u32) -> bool {
    let (q, u, immh) = (bit(word, 30), bit(word, 29), field(word, 22, 19));
    let doubleword = immh >= 0b1000;
    match (u, field(word, 15, 11)) {
        // SSHR, SSRA, SRSHR, SRSRA, SHL, SQSHL; and unsigned, with SLI; SRI, SQSHLU.
        (_, 0b00000 | 0b00010 | 0b00100 | 0b00110 | 0b01010 | 0b01110) | (true, 0b01000 | 0b01100) => q || !doubleword,
        // SHRN, RSHRN, SQSHRN, SQRSHRN, SSHLL; SQSHRUN, SQRSHRUN, UQSHRN, UQRSHRN, USHLL.
        (_, 0b10000..=0b10100) => !doubleword,
        // SCVTF, FCVTZS; UCVTF, FCVTZU.
        (_, 0b11100 | 0b11111) => immh >= 0b0010 && (q || !doubleword),
        _ => false,
    }
}
