//! C4.1.88 Loads and Stores. The literal loads read the program counter; an exclusive sequence cannot be interrupted.

use super::{UNALLOCATED, bit, field, number, signed, slot_if};
use crate::insn::op::{Literal, Op};
use crate::insn::verdict::{Reason, Verdict};

pub(super) const fn classify(word: u32) -> Verdict {
    let vector = bit(word, 26);
    let prefetch = !vector && field(word, 31, 30) == 0b11 && field(word, 23, 22) == 0b10;
    match (field(word, 29, 28), vector, bit(word, 24)) {
        (0b00, false, false) => ordered(word),
        (0b00, false, true) => unprivileged(word),
        (0b00, true, _) => slot_if(structure(word)),
        (0b01, _, false) => literal(word),
        (0b01, _, true) => miscellaneous(word),
        (0b10, _, _) => slot_if(pair(word)),
        (_, _, true) => slot_if(single(word)),
        _ => slot_if(match (bit(word, 21), field(word, 11, 10)) {
            // Load/store register (unscaled immediate).
            (false, 0b00) => single(word),
            // Load/store register (unprivileged).
            (false, 0b10) => single(word) && !vector && !prefetch,
            // Load/store register (immediate post-indexed), (immediate pre-indexed).
            (false, _) => single(word) && !prefetch,
            (true, 0b00) => atomic(word),
            // Load/store register (register offset): the index is a W, an X, or either sign-extended.
            (true, 0b10) => bit(word, 14) && single(word),
            // Load/store register (pac): LDRAA, LDRAB.
            (true, _) => !vector && field(word, 31, 30) == 0b11,
        }),
    }
}

/// Returns whether the word has the place of a load or store of one register, and is a prefetch: PRFM (immediate),
/// PRFUM; PRFM (register), RPRFM.
#[must_use]
pub const fn is_prefetch(word: u32) -> bool {
    let has_offset = bit(word, 24) || matches!((bit(word, 21), field(word, 11, 10)), (false, 0b00) | (true, 0b10));
    field(word, 31, 27) == 0b1_1111 && !bit(word, 26) && field(word, 23, 22) == 0b10 && has_offset
}

/// Load/store exclusive, ordered, compare and swap: by o2, o1 and size.
const fn ordered(word: u32) -> Verdict {
    let no_pair = number(word, 10) == 31;
    match (bit(word, 23), bit(word, 21), bit(word, 31)) {
        (false, false, _) | (false, true, true) => exclusive(word),
        // CASP: its register numbers are even.
        (false, true, false) => slot_if(no_pair && !bit(word, 16) && !bit(word, 0)),
        // STLLR, STLR, LDLAR, LDAR.
        (true, false, _) => Verdict::Slot,
        // CAS.
        (true, true, _) => slot_if(no_pair),
    }
}

/// FEAT_LSUI: unprivileged exclusives and compare and swap.
const fn unprivileged(word: u32) -> Verdict {
    let no_pair = number(word, 10) == 31;
    match (bit(word, 23), bit(word, 21), bit(word, 31)) {
        (false, false, true) if no_pair => exclusive(word),
        // CASPT; CAST.
        (true, false, false) => slot_if(bit(word, 30) && no_pair && !bit(word, 16) && !bit(word, 0)),
        (true, false, true) => slot_if(bit(word, 30) && no_pair),
        _ => UNALLOCATED,
    }
}

const fn exclusive(word: u32) -> Verdict {
    Verdict::Reject(if bit(word, 22) { Reason::LoadExclusive } else { Reason::StoreExclusive })
}

/// Load register (literal).
const fn literal(word: u32) -> Verdict {
    let rt = number(word, 0);
    let offset = signed(word, 23, 5) << 2;
    let kind = match (field(word, 31, 30), bit(word, 26)) {
        (0b00, false) => Literal::Word,
        (0b01, false) => Literal::Doubleword,
        (0b10, false) => Literal::SignedWord,
        // PRFM.
        (0b11, false) => return Verdict::Simulate(Op::Nop),
        (0b11, true) => return UNALLOCATED,
        (_, true) => return Verdict::Reject(Reason::SimdLiteral),
        _ => return UNALLOCATED,
    };
    Verdict::Simulate(Op::LoadLiteral { rt, kind, offset })
}

/// The classes with bits 29, 28 and 24 at 011: by bits 21, 11 and 10.
const fn miscellaneous(word: u32) -> Verdict {
    let (size, opc) = (field(word, 31, 30), field(word, 23, 22));
    if bit(word, 26) {
        return match (bit(word, 21), field(word, 11, 10)) {
            // LDAPUR, STLUR (SIMD&FP).
            (false, 0b10) => slot_if(size == 0 || opc <= 1),
            // Memory copy and set: CPYP, CPYM, CPYE; SETGP, SETGM, SETGE.
            (false, 0b01) if size == 0 => Verdict::Reject(Reason::MemorySequence),
            _ => UNALLOCATED,
        };
    }
    let no_offset = field(word, 20, 12) == 0;
    match (bit(word, 21), field(word, 11, 10)) {
        // LDAPR/STLR (unscaled immediate).
        (false, 0b00) => slot_if(opc <= 1 || size <= 1 || size == 2 && opc == 2),
        // Memory copy and set: CPYFP, CPYFM, CPYFE; SETP, SETM, SETE.
        (false, 0b01) if size == 0 => Verdict::Reject(Reason::MemorySequence),
        (false, 0b10) if bit(word, 31) => slot_if(if bit(word, 23) {
            // LDAPR (post-indexed), STLR (pre-indexed).
            no_offset
        } else {
            // LDIAPP, STILP.
            field(word, 15, 13) == 0
        }),
        // GCSSTR, GCSSTTR.
        (false, 0b11) => slot_if(size == 3 && opc == 0 && matches!(field(word, 20, 12), 0b1_1111_0000 | 0b1_1111_0001)),
        // Load/store memory tags; STZGM, STGM and LDGM take no offset.
        (true, op2) if size == 3 => slot_if(op2 != 0 || opc == 0b01 || no_offset),
        // 128-bit atomic memory operations: LDCLRP, LDSETP, SWPP; RCWCLRP, RCWSWPP, RCWSETP and their S forms.
        // Neither half is the zero register.
        (true, 0b00) if !bit(word, 31) && number(word, 0) != 31 && number(word, 16) != 31 => {
            slot_if(match field(word, 15, 12) {
                0b0001 | 0b0011 | 0b1000 => size == 0,
                0b1001..=0b1011 => true,
                _ => false,
            })
        }
        // LDTADD, LDTCLR, LDTSET, SWPT.
        (true, 0b01) if !bit(word, 31) => slot_if(matches!(field(word, 15, 12), 0b0000 | 0b0001 | 0b0011 | 0b1000)),
        // RCWCAS; RCWCASP, whose register numbers are even.
        (true, 0b10) if !bit(word, 31) => slot_if(field(word, 15, 12) == 0),
        (true, 0b11) if !bit(word, 31) => slot_if(field(word, 15, 12) == 0 && !bit(word, 16) && !bit(word, 0)),
        _ => UNALLOCATED,
    }
}

/// Advanced SIMD load/store multiple structures and single structure, with and without post-index.
const fn structure(word: u32) -> bool {
    let (opcode, size, load) = (field(word, 15, 12), field(word, 11, 10), bit(word, 22));
    // Without post-index, Rm is 0; or it is 1 for LDAP1 and STL1, which have one doubleword.
    let ordered = field(word, 24, 23) == 0b10 && field(word, 21, 16) == 1 && field(word, 15, 10) == 0b10_0001;
    if bit(word, 31) || !bit(word, 23) && field(word, 20, 16) != 0 && !ordered {
        return false;
    }
    if !bit(word, 24) {
        // LD4, LD1 of four, LD3, LD1 of three, of one, LD2, LD1 of two, and their stores. Only LD1 has vectors
        // of one doubleword.
        return !bit(word, 21)
            && match opcode {
                0b0010 | 0b0110 | 0b0111 | 0b1010 => true,
                0b0000 | 0b0100 | 0b1000 => size != 3 || bit(word, 30),
                _ => false,
            };
    }
    let (scale, s) = (opcode >> 1, bit(word, 12));
    match scale {
        // Bytes, halfwords.
        0b000 | 0b001 => true,
        0b010 | 0b011 => size & 1 == 0,
        // Words, doublewords.
        0b100 | 0b101 => size == 0 || size == 1 && !s,
        // LD1R to LD4R.
        _ => load && !s,
    }
}

/// Load/store register pair: no-allocate, post-indexed, offset, pre-indexed.
const fn pair(word: u32) -> bool {
    match (field(word, 31, 30), bit(word, 26)) {
        // LDPSW, STGP.
        (0b01, false) => field(word, 24, 23) != 0,
        // LDP, STP; with opc 11 those of FEAT_LSUI.
        _ => true,
    }
}

/// The sizes and operations of the single-register classes, by V, size and opc. Size 11 with opc 10 is PRFM.
const fn single(word: u32) -> bool {
    let (size, opc) = (field(word, 31, 30), field(word, 23, 22));
    if bit(word, 26) { size == 0 || opc <= 1 } else { size <= 1 || opc <= 2 }
}

/// Atomic memory operations: by o3:opc.
const fn atomic(word: u32) -> bool {
    let (size, acquire, release) = (field(word, 31, 30), bit(word, 23), bit(word, 22));
    let unused = number(word, 16) == 31;
    let has_eight = field(word, 4, 3) != 0b11 && !bit(word, 0);
    let opcode = field(word, 15, 12);
    if bit(word, 26) {
        // FEAT_LSFE: LDFADD, LDFMAX, LDFMIN, LDFMAXNM, LDFMINNM, their BF16 forms with size 00, and their stores.
        return match opcode {
            0b0000 | 0b0100..=0b0111 => true,
            0b1000 | 0b1100..=0b1111 => !acquire && number(word, 0) == 31,
            _ => false,
        };
    }
    match opcode {
        // LDADD, LDCLR, LDEOR, LDSET, LDSMAX, LDSMIN, LDUMAX, LDUMIN; SWP.
        0b0000..=0b1000 => true,
        // ST64B, LD64B; ST64BV0, ST64BV: of eight registers, from an even one up to x22 on. RCWCLR, RCWSWP, RCWSET and
        // their S forms.
        0b1001 | 0b1101 if size == 3 => unused && !acquire && !release && has_eight,
        0b1010 | 0b1011 if size == 3 => !acquire && !release && has_eight,
        0b1001..=0b1011 => size <= 1,
        // LDAPR.
        0b1100 => unused && acquire && !release,
        _ => false,
    }
}
