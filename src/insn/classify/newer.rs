//! Encodings that editions of the manual after issue I.a allocate, so that a refusal does not call them data.
//!
//! They are refused until each class has been examined for words that depend on their address, and has been added to
//! the lists. A word that is missing here is refused as well, as not allocated.

/// Returns whether `word`, which is in no list of allocated encodings, is an instruction of a newer architecture.
pub(super) const fn is_newer(word: u32) -> bool {
    // C4.1: bits 28 to 25.
    match word >> 25 & 0b1111 {
        0b0111 => is_any(word, VECTORS),
        0b1010 | 0b1011 => is_any(word, SYSTEM),
        0b1100 | 0b1110 => is_any(word, MEMORY),
        0b1111 => is_conversion(word),
        _ => false,
    }
}

/// The words that have a value under a mask.
struct Words {
    mask: u32,
    value: u32,
}

const fn words(mask: u32, value: u32) -> Words {
    Words { mask, value }
}

const fn is_any(word: u32, mut classes: &[Words]) -> bool {
    while let [Words { mask, value }, rest @ ..] = classes {
        if word & *mask == *value {
            return true;
        }
        classes = rest;
    }
    false
}

const VECTORS: &[Words] = &[
    // FEAT_FP8: F1CVTL, F2CVTL, BF1CVTL, BF2CVTL; FCVTN.
    words(0xbf3f_fc00, 0x2e21_7800),
    words(0xbfa0_fc00, 0x0e00_f400),
    // FEAT_FP8: FSCALE.
    words(0xbfa0_fc00, 0x2ea0_fc00),
    words(0xbfe0_fc00, 0x2ec0_3c00),
    // FEAT_FAMINMAX: FAMAX, FAMIN.
    words(0x9fa0_fc00, 0x0ea0_dc00),
    words(0x9fe0_fc00, 0x0ec0_1c00),
    // FEAT_FP8DOT4, FEAT_FP8DOT2, FEAT_F16F32DOT, FEAT_FP8FMA: FDOT, FMLALB, FMLALT.
    words(0xbf20_fc00, 0x0e00_fc00),
    words(0xbf80_f400, 0x0f00_0000),
    words(0xbfc0_f400, 0x0fc0_0000),
    words(0xbfc0_f400, 0x0f40_9000),
    // FEAT_FP8FMA: FMLALLBB to FMLALLTT.
    words(0xbfa0_fc00, 0x0e00_c400),
    words(0xbf80_f400, 0x2f00_8000),
    // FEAT_F8F16MM, FEAT_F8F32MM, FEAT_F16MM, FEAT_F16F32MM: FMMLA.
    words(0xff60_fc00, 0x4e40_ec00),
    words(0xff60_fc00, 0x6e00_ec00),
    // FEAT_LUT: LUTI2, LUTI4.
    words(0xffe0_9c00, 0x4e80_1000),
    words(0xffe0_8c00, 0x4ec0_0000),
    words(0xffe0_bc00, 0x4e40_2000),
    words(0xffe0_9c00, 0x4e40_1000),
];

const SYSTEM: &[Words] = &[
    // FEAT_TEV: TENTER, TEXIT, TCHANGEF, TCHANGEB.
    words(0xfffd_f01f, 0xd4e0_0000),
    words(0xffff_fbff, 0xd6ff_03e0),
    words(0xffe9_f000, 0xd580_0000),
];

const MEMORY: &[Words] = &[
    // FEAT_MOPS_GO: SETGOP, SETGOM, SETGOE.
    words(0xffff_8c00, 0x1ddf_0000),
    words(0xffff_cc00, 0x1ddf_8000),
    // FEAT_LSCP: LDAP, LDAPP, STLP.
    words(0xffe0_dc00, 0xd940_5800),
    words(0xffe0_fc00, 0xd900_5800),
];

/// FEAT_FPRCVT: conversions to and from integers in the vector registers, with another size than the floating-point
/// number.
const fn is_conversion(word: u32) -> bool {
    let sizes = matches!((word >> 31, word >> 22 & 0b11), (0, 0b01 | 0b11) | (1, 0b00 | 0b11));
    // FCVTNS, FCVTNU; FCVTPS, FCVTPU; FCVTMS, FCVTMU; FCVTZS, FCVTZU; FCVTAS, FCVTAU; SCVTF, UCVTF.
    let operation = matches!(
        word >> 16 & 0b11111,
        0b01_010 | 0b01_011 | 0b10_010..=0b10_111 | 0b11_010..=0b11_101
    );
    word & 0x7f20_fc00 == 0x1e20_0000 && sizes && operation
}

#[cfg(test)]
mod tests {
    use kprobes_random::Random;

    use super::*;
    use crate::insn::classify::{UNALLOCATED, listed};

    #[test]
    fn every_row_has_words_that_are_in_no_list() {
        let mut random = Random::new(0x2e3e4);
        for Words { mask, value } in [VECTORS, SYSTEM, MEMORY].into_iter().flatten() {
            let is_needed = (0..1_000).any(|_| listed(value | random.next() as u32 & !mask) == UNALLOCATED);
            assert!(is_needed, "{mask:#x}, {value:#x}");
        }
    }
}
