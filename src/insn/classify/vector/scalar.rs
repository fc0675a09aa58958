//! Advanced SIMD scalar: the vector instructions on one element, each of which has its own set of sizes. Only
//! the lower half of a set is used.

use super::{ANY, BYTES, DOUBLEWORDS, HALFWORDS, MIDDLE, NARROW, WORDS, half_two_registers, has, indexed};
use crate::insn::classify::{bit, field};

/// The scalar classes: bits 31 and 30 are 01, and bit 28 is set.
pub(in crate::insn::classify) const fn scalar(word: u32) -> bool {
    let u = bit(word, 29);
    if bit(word, 24) {
        return match (bit(word, 10), bit(word, 23)) {
            (false, _) => indexed::scalar(word),
            (true, false) => scalar_shift(u, field(word, 22, 19), field(word, 15, 11)),
            (true, true) => false,
        };
    }
    let size = field(word, 23, 22);
    if bit(word, 21) {
        return match field(word, 11, 10) {
            // Advanced SIMD scalar three different: SQDMLAL, SQDMLSL, SQDMULL.
            0b00 => !u && matches!(field(word, 15, 12), 0b1001 | 0b1011 | 0b1101) && has(MIDDLE, word, false),
            0b01 | 0b11 => has(scalar_three_same(u, field(word, 15, 11)), word, false),
            _ => match field(word, 20, 17) {
                0b0000 => has(scalar_two_registers(u, field(word, 16, 12)), word, false),
                0b1000 => has(scalar_pairwise(u, field(word, 16, 12)), word, false),
                0b1100 => half_two_registers(u, bit(word, 23), field(word, 16, 12), false) && bit(word, 22),
                // Cryptographic two-register SHA: SHA1H, SHA1SU1, SHA256SU0.
                0b0100 => !u && size == 0 && field(word, 16, 12) <= 2,
                _ => false,
            },
        };
    }
    match (bit(word, 15), field(word, 11, 10)) {
        // Cryptographic three-register SHA.
        (false, 0b00) => !u && size == 0 && field(word, 14, 12) <= 6,
        // Advanced SIMD scalar copy: DUP (element).
        (false, 0b01 | 0b11) if size == 0 => !u && field(word, 14, 11) == 0 && field(word, 19, 16) != 0,
        // Advanced SIMD scalar three same FP16.
        (false, 0b01 | 0b11) => {
            size & 1 == 1
                && !bit(word, 14)
                && match (u, bit(word, 23), field(word, 13, 11)) {
                    // FMULX, FCMEQ, FRECPS; FRSQRTS.
                    (false, false, 0b011 | 0b100 | 0b111) | (false, true, 0b111) => true,
                    // FCMGE, FACGE; FABD, FCMGT, FACGT.
                    (true, false, 0b100 | 0b101) | (true, true, 0b010 | 0b100 | 0b101) => true,
                    _ => false,
                }
        }
        // Advanced SIMD scalar three same extra: SQRDMLAH, SQRDMLSH.
        (true, 0b01 | 0b11) => u && field(word, 14, 11) <= 1 && has(MIDDLE, word, false),
        _ => false,
    }
}

/// Advanced SIMD scalar three same.
const fn scalar_three_same(u: bool, opcode: u32) -> u8 {
    match (u, opcode) {
        // SQADD, SQSUB, SQSHL, SQRSHL; and unsigned.
        (_, 0b00001 | 0b00101 | 0b01001 | 0b01011) => ANY,
        // CMGT, CMGE, SSHL, SRSHL, ADD, CMTST; and unsigned, with SUB, CMEQ.
        (_, 0b00110 | 0b00111 | 0b01000 | 0b01010 | 0b10000 | 0b10001) => DOUBLEWORDS,
        // SQDMULH; SQRDMULH.
        (_, 0b10110) => MIDDLE,
        // FMULX; FCMEQ; FRECPS with FRSQRTS. FCMGE with FCMGT, FACGE with FACGT; FABD.
        (false, 0b11011 | 0b11100) => BYTES | HALFWORDS,
        (false, 0b11111) | (true, 0b11100 | 0b11101) => ANY,
        (true, 0b11010) => WORDS | DOUBLEWORDS,
        _ => 0,
    }
}

/// Advanced SIMD scalar two-register miscellaneous.
const fn scalar_two_registers(u: bool, opcode: u32) -> u8 {
    match (u, opcode) {
        // SUQADD, SQABS; USQADD, SQNEG.
        (_, 0b00011 | 0b00111) => ANY,
        // CMGT, CMEQ, ABS with zero; CMGE, CMLE, NEG; CMLT.
        (_, 0b01000 | 0b01001 | 0b01011) | (false, 0b01010) => DOUBLEWORDS,
        // SQXTN; UQXTN, SQXTUN.
        (_, 0b10100) | (true, 0b10010) => NARROW,
        // FCMGT, FCMEQ with zero; FCMGE, FCMLE; FCMLT; FRECPX.
        (_, 0b01100 | 0b01101) | (false, 0b01110 | 0b11111) => WORDS | DOUBLEWORDS,
        // FCVTXN.
        (true, 0b10110) => HALFWORDS,
        // FCVTNS with FCVTPS, FCVTMS with FCVTZS, SCVTF with FRECPE; and unsigned, with FRSQRTE.
        (_, 0b11010 | 0b11011 | 0b11101) => ANY,
        // FCVTAS; FCVTAU.
        (_, 0b11100) => BYTES | HALFWORDS,
        _ => 0,
    }
}

/// Advanced SIMD scalar pairwise.
const fn scalar_pairwise(u: bool, opcode: u32) -> u8 {
    match (u, opcode) {
        // ADDP.
        (false, 0b11011) => DOUBLEWORDS,
        // FMAXNMP with FMINNMP, FMAXP with FMINP; FADDP: of half precision, and of single and double.
        (false, 0b01100 | 0b01111) => BYTES | WORDS,
        (false, 0b01101) => BYTES,
        (true, 0b01100 | 0b01111) => ANY,
        (true, 0b01101) => BYTES | HALFWORDS,
        _ => 0,
    }
}

/// Advanced SIMD scalar shift by immediate.
const fn scalar_shift(u: bool, immh: u32, opcode: u32) -> bool {
    match (u, opcode) {
        // SSHR, SSRA, SRSHR, SRSRA, SHL; and unsigned, with SLI; SRI.
        (_, 0b00000 | 0b00010 | 0b00100 | 0b00110 | 0b01010) | (true, 0b01000) => immh >= 0b1000,
        // SQSHL; UQSHL, SQSHLU.
        (_, 0b01110) | (true, 0b01100) => immh != 0,
        // SQSHRN, SQRSHRN; UQSHRN, UQRSHRN, SQSHRUN, SQRSHRUN.
        (_, 0b10010 | 0b10011) | (true, 0b10000 | 0b10001) => immh != 0 && immh < 0b1000,
        // SCVTF, FCVTZS; UCVTF, FCVTZU.
        (_, 0b11100 | 0b11111) => immh >= 0b0010,
        _ => false,
    }
}
