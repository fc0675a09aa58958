//! C4.1.90: the vector instructions that take one operand from a lane, Advanced SIMD vector x indexed element and
//! Advanced SIMD scalar x indexed element. The lane is in L, M and H, as many of them as the size leaves.

use crate::insn::classify::{bit, field};

pub(super) const fn vector(word: u32) -> bool {
    let (q, u, size) = (bit(word, 30), bit(word, 29), field(word, 23, 22));
    let (l, h) = (bit(word, 21), bit(word, 11));
    match (u, field(word, 15, 12)) {
        // SMLAL, SMLSL, SMULL; and unsigned.
        (_, 0b0010 | 0b0110 | 0b1010) => is_middle(size),
        // SQDMLAL, SQDMLSL, MUL, SQDMULL, SQDMULH, SQRDMULH.
        (false, 0b0011 | 0b0111 | 0b1000 | 0b1011 | 0b1100 | 0b1101) => is_middle(size),
        // FCMLA: a lane is a pair.
        (true, 0b0001 | 0b0011 | 0b0101 | 0b0111) => match size {
            1 => q || !h,
            2 => q && !l,
            _ => false,
        },
        // MLA, MLS; SQRDMLAH, SQRDMLSH.
        (true, 0b0000 | 0b0100 | 0b1101 | 0b1111) => is_middle(size),
        // SDOT; UDOT.
        (_, 0b1110) => size == 2,
        // SUDOT, BFDOT, USDOT, BFMLALB and BFMLALT.
        (false, 0b1111) => true,
        // FMLA, FMLS, FMUL; FMULX.
        (false, 0b0001 | 0b0101 | 0b1001) | (true, 0b1001) => is_float(size, l) && (size != 3 || q),
        // FMLAL, FMLSL; FMLAL2, FMLSL2.
        (false, 0b0000 | 0b0100) | (true, 0b1000 | 0b1100) => size == 2,
        _ => false,
    }
}

pub(super) const fn scalar(word: u32) -> bool {
    let size = field(word, 23, 22);
    match (bit(word, 29), field(word, 15, 12)) {
        // SQDMLAL, SQDMLSL, SQDMULL, SQDMULH, SQRDMULH; SQRDMLAH, SQRDMLSH.
        (false, 0b0011 | 0b0111 | 0b1011 | 0b1100 | 0b1101) | (true, 0b1101 | 0b1111) => is_middle(size),
        // FMLA, FMLS, FMUL; FMULX.
        (false, 0b0001 | 0b0101 | 0b1001) | (true, 0b1001) => is_float(size, bit(word, 21)),
        _ => false,
    }
}

/// Halfwords and words.
const fn is_middle(size: u32) -> bool {
    size == 1 || size == 2
}

/// Half, single and double precision: a doubleword's lane does not use L.
const fn is_float(size: u32, l: bool) -> bool {
    size == 0 || size == 2 || size == 3 && !l
}
