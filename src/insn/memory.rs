//! Which memory a load or store accesses, for watchpoints: the address that a CPU reports for one may lie below the
//! watched bytes (Arm ARM, D2.10.5), and a pair or an unaligned access may touch several watched places.
//!
//! Inlined into its callers, which run while a hit is handled.

use super::classify::{bit, field, signed};

/// The bytes that a load or store accesses. They lie at consecutive addresses. A handler of a watchpoint gets it from
/// [`WatchHit::access`](crate::probe::WatchHit::access).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// The virtual address of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// Whether the instruction loads.
    pub loads: bool,
    /// Whether the instruction stores. A store-exclusive may turn out not to.
    pub stores: bool,
}

/// An exclusive access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusive {
    /// A load-exclusive.
    Load,
    /// A store-exclusive, which writes 0 to register `status` if it has stored, and 1 if it has not.
    Store {
        /// The number of the register; 31 is the zero register.
        status: u8,
    },
}

/// Returns whether the word is an exclusive access, and which (C4.1.88, load/store exclusive), with the unprivileged
/// ones of FEAT_LSUI.
#[inline(always)]
#[must_use]
pub const fn exclusive(word: u32) -> Option<Exclusive> {
    let is_group = word & 0x3f80_0000 == 0x0800_0000;
    let is_unprivileged = word & 0xbfa0_7c00 == 0x8900_7c00;
    // With o1 set and a size below 32 bits, the word is a CASP.
    if !is_unprivileged && (!is_group || bit(word, 21) && !bit(word, 31)) {
        return None;
    }
    Some(if bit(word, 22) { Exclusive::Load } else { Exclusive::Store { status: field(word, 20, 16) as u8 } })
}

impl MemoryAccess {
    /// Returns the access of the instruction `word` at the virtual address `pc`; `None` if the word is no load or store
    /// that is known here. Not known are the single and multiple structures of vectors, tags, memory copies, 64-byte
    /// accesses, LDRAA and LDRAB, whose base is signed, cache maintenance other than DC ZVA, SVE and SME, and what
    /// FEAT_LSE128, FEAT_LSFE, FEAT_THE and FEAT_LRCPC3 add.
    ///
    /// `register` returns the general register with a number from 0 to 30, and the stack pointer for 31. `zeroed` is
    /// the number of bytes that DC ZVA zeroes.
    #[inline(always)]
    #[must_use]
    pub fn of(word: u32, pc: u64, zeroed: u64, register: impl Fn(u8) -> u64) -> Option<Self> {
        let size = field(word, 31, 30);
        let base = register(field(word, 9, 5) as u8);
        let at = |address: u64, bytes: u64, loads: bool, stores: bool| Some(Self { address, bytes, loads, stores });
        // Exclusive and ordered accesses, compare and swap.
        if word & 0x3f00_0000 == 0x0800_0000 {
            let (is_load, is_ordered, is_other) = (bit(word, 22), bit(word, 23), bit(word, 21));
            return match (is_ordered, is_other) {
                (false, false) | (true, false) => at(base, 1 << size, is_load, !is_load),
                (false, true) if bit(word, 31) => at(base, 8 << (size & 1), is_load, !is_load),
                (false, true) => at(base, 8 << (size & 1), true, true),
                (true, true) => at(base, 1 << size, true, true),
            };
        }
        // The unprivileged ones of FEAT_LSUI: exclusives, CAST, CASPT.
        if word & 0x3f20_7c00 == 0x0900_7c00 {
            let is_load = bit(word, 22);
            return match (bit(word, 23), size) {
                (false, 0b10 | 0b11) => at(base, 1 << size, is_load, !is_load),
                (true, 0b11) => at(base, 8, true, true),
                (true, 0b01) => at(base, 16, true, true),
                _ => None,
            };
        }
        let is_vector = bit(word, 26);
        let displaced = base.wrapping_add_signed(i64::from(signed(word, 20, 12)));
        if word & 0x3b00_0000 == 0x3900_0000 {
            let scale = if is_vector && bit(word, 23) { 4 } else { size };
            return Self::one(word, base.wrapping_add(u64::from(field(word, 21, 10)) << scale));
        }
        if word & 0x3b20_0000 == 0x3800_0000 {
            // Bits 11 and 10: 01 is post-indexed.
            return Self::one(word, if field(word, 11, 10) == 1 { base } else { displaced });
        }
        if word & 0x3b20_0c00 == 0x3820_0800 {
            let index = register(field(word, 20, 16) as u8);
            // Register 31 is the zero register here.
            let index = if field(word, 20, 16) == 31 { 0 } else { index };
            let index = match field(word, 15, 13) {
                0b010 => index & 0xffff_ffff,
                0b110 => i64::from((index as u32).cast_signed()).cast_unsigned(),
                _ => index,
            };
            let scale = if is_vector && bit(word, 23) { 4 } else { size };
            return Self::one(word, base.wrapping_add(index << if bit(word, 12) { scale } else { 0 }));
        }
        // Atomic memory operations, and LDAPR.
        if word & 0x3f20_0c00 == 0x3820_0000 {
            return match (bit(word, 15), field(word, 14, 12)) {
                (false, _) | (true, 0b000) => at(base, 1 << size, true, true),
                (true, 0b100) => at(base, 1 << size, true, false),
                _ => None,
            };
        }
        // LDAPUR, STLUR.
        if word & 0x3f20_0c00 == 0x1900_0000 {
            return Self::one(word, displaced);
        }
        // Pairs. With opc 01 and no load the word is STGP, which also stores a tag. With opc 11 it is an unprivileged
        // one of FEAT_LSUI, with registers of 128 or 64 bits.
        if word & 0x3a00_0000 == 0x2800_0000 {
            let scale = match (is_vector, size) {
                (true, 0b11) => 4,
                (true, _) => 2 + size,
                (false, 0b10 | 0b11) => 3,
                (false, 0b00) => 2,
                (false, _) if bit(word, 22) => 2,
                (false, _) => return None,
            };
            let is_load = bit(word, 22);
            let offset = if field(word, 24, 23) == 1 { 0 } else { i64::from(signed(word, 21, 15)) << scale };
            return at(base.wrapping_add_signed(offset), 2 << scale, is_load, !is_load);
        }
        // Literals. Not PRFM.
        if word & 0x3b00_0000 == 0x1800_0000 && (is_vector || size != 3) {
            let bytes = if is_vector {
                4 << size
            } else if size == 1 {
                8
            } else {
                4
            };
            return at(pc.wrapping_add_signed(i64::from(signed(word, 23, 5)) << 2), bytes, true, false);
        }
        // DC ZVA: its register is in the lowest bits, and 31 is the zero register.
        if word & 0xffff_ffe0 == 0xd50b_7420 && zeroed > 0 {
            let number = field(word, 4, 0) as u8;
            let address = if number == 31 { 0 } else { register(number) };
            return at(address & !(zeroed - 1), zeroed, false, true);
        }
        None
    }

    /// Returns the access of a load or store of one register at `address`.
    #[inline(always)]
    const fn one(word: u32, address: u64) -> Option<Self> {
        let (size, is_vector, operation) = (field(word, 31, 30), bit(word, 26), field(word, 23, 22));
        let is_prefetch = !is_vector && size == 3 && operation == 2;
        let bytes = if is_vector && bit(word, 23) { 16 } else { 1 << size };
        let loads = if is_vector { bit(word, 22) } else { operation != 0 };
        if is_prefetch { None } else { Some(Self { address, bytes, loads, stores: !loads }) }
    }

    /// Returns whether the access touches one of the `bytes` bytes from `address` on.
    #[inline(always)]
    #[must_use]
    pub const fn overlaps(&self, address: u64, bytes: u64) -> bool {
        // The distance from the start of one to the start of the other, whichever is lower.
        address.wrapping_sub(self.address) < self.bytes || self.address.wrapping_sub(address) < bytes
    }
}

#[cfg(test)]
mod tests {
    use kprobes_random::Random;

    use super::*;
    use crate::insn::{Reason, Verdict, classify};

    const PC: u64 = 0x4_0000;

    /// x0 is 0x1000, x1 is 0x2000, and so on; sp is 0x2_0000. x9 is -8 in 32 bits.
    fn register(number: u8) -> u64 {
        if number == 9 { 0xffff_fff8 } else { 0x1000 * (u64::from(number) + 1) }
    }

    fn of(word: u32) -> Option<(u64, u64, &'static str)> {
        let found = MemoryAccess::of(word, PC, 64, register)?;
        let kind = match (found.loads, found.stores) {
            (true, false) => "r",
            (false, true) => "w",
            (true, true) => "rw",
            (false, false) => "",
        };
        Some((found.address, found.bytes, kind))
    }

    #[test]
    fn each_form_says_which_bytes_it_accesses() {
        for (word, expected) in [
            (0xf900_0422, (0x2008, 8, "w")),                   // str x2, [x1, #8]
            (0xb940_0422, (0x2004, 4, "r")),                   // ldr w2, [x1, #4]
            (0x3900_0c22, (0x2003, 1, "w")),                   // strb w2, [x1, #3]
            (0x79c0_0422, (0x2002, 2, "r")),                   // ldrsh w2, [x1, #2]
            (0xb980_0422, (0x2004, 4, "r")),                   // ldrsw x2, [x1, #4]
            (0xf81f_8022, (0x1ff8, 8, "w")),                   // stur x2, [x1, #-8]
            (0xf81f_8c22, (0x1ff8, 8, "w")),                   // str x2, [x1, #-8]!
            (0xf81f_8422, (0x2000, 8, "w")),                   // str x2, [x1], #-8
            (0xf840_8822, (0x2008, 8, "r")),                   // ldtr x2, [x1, #8]
            (0xf863_7822, (0x2000 + 8 * 0x4000, 8, "r")),      // ldr x2, [x1, x3, lsl #3]
            (0xb829_c822, (0x1ff8, 4, "w")),                   // str w2, [x1, w9, sxtw]
            (0xb829_5822, (0x2000 + 4 * 0xffff_fff8, 4, "w")), // str w2, [x1, w9, uxtw #2]
            (0xa901_0c22, (0x2010, 16, "w")),                  // stp x2, x3, [x1, #16]
            (0xa8c1_7bfd, (0x2_0000, 16, "r")),                // ldp x29, x30, [sp], #16
            (0xa9bf_7bfd, (0x1_fff0, 16, "w")),                // stp x29, x30, [sp, #-16]!
            (0x2940_0c22, (0x2000, 8, "r")),                   // ldp w2, w3, [x1]
            (0x6940_8c22, (0x2004, 8, "r")),                   // ldpsw x2, x3, [x1, #4]
            (0xa800_0c22, (0x2000, 16, "w")),                  // stnp x2, x3, [x1]
            (0xad00_0420, (0x2000, 32, "w")),                  // stp q0, q1, [x1]
            (0x3d80_0420, (0x2010, 16, "w")),                  // str q0, [x1, #16]
            (0x3dc0_0420, (0x2010, 16, "r")),                  // ldr q0, [x1, #16]
            (0xc85f_7c22, (0x2000, 8, "r")),                   // ldxr x2, [x1]
            (0x885f_fc22, (0x2000, 4, "r")),                   // ldaxr w2, [x1]
            (0x8803_fc22, (0x2000, 4, "w")),                   // stlxr w3, w2, [x1]
            (0x0803_7c22, (0x2000, 1, "w")),                   // stxrb w3, w2, [x1]
            (0xc87f_0c22, (0x2000, 16, "r")),                  // ldxp x2, x3, [x1]
            (0x8824_0c22, (0x2000, 8, "w")),                   // stxp w4, w2, w3, [x1]
            (0x88df_fc22, (0x2000, 4, "r")),                   // ldar w2, [x1]
            (0x089f_fc22, (0x2000, 1, "w")),                   // stlrb w2, [x1]
            (0xc8a2_7c23, (0x2000, 8, "rw")),                  // cas x2, x3, [x1]
            (0x4822_7c24, (0x2000, 16, "rw")),                 // casp x2, x3, x4, x5, [x1]
            (0x0822_7c24, (0x2000, 8, "rw")),                  // casp w2, w3, w4, w5, [x1]
            (0xb823_0022, (0x2000, 4, "rw")),                  // ldadd w3, w2, [x1]
            (0xf8e3_8022, (0x2000, 8, "rw")),                  // swpal x3, x2, [x1]
            (0xb8bf_c022, (0x2000, 4, "r")),                   // ldapr w2, [x1]
            (0x9900_8022, (0x2008, 4, "w")),                   // stlur w2, [x1, #8]
            (0x5800_0042, (PC + 8, 8, "r")),                   // ldr x2, .+8
            (0x98ff_ffe2, (PC - 4, 4, "r")),                   // ldrsw x2, .-4
            (0xd50b_7421, (0x2000, 64, "w")),                  // dc zva, x1
            (0xc95f_7c20, (0x2000, 8, "r")),                   // ldtxr x0, [x1]
            (0x895f_fc20, (0x2000, 4, "r")),                   // ldatxr w0, [x1]
            (0xc902_7c20, (0x2000, 8, "w")),                   // sttxr w2, x0, [x1]
            (0xc982_7c23, (0x2000, 8, "rw")),                  // cast x2, x3, [x1]
            (0x4982_7c24, (0x2000, 16, "rw")),                 // caspt x2, x3, x4, x5, [x1]
            (0xe941_0c22, (0x2010, 16, "r")),                  // ldtp x2, x3, [x1, #16]
            (0xe900_8c22, (0x2008, 16, "w")),                  // sttp x2, x3, [x1, #8]
            (0xe800_0c22, (0x2000, 16, "w")),                  // sttnp x2, x3, [x1]
            (0xed41_0420, (0x2020, 32, "r")),                  // ldtp q0, q1, [x1, #32]
        ] {
            assert_eq!(of(word), Some(expected), "{word:#010x}");
        }
    }

    #[test]
    fn other_words_access_nothing_that_is_known() {
        for word in [
            0xd503_201f, // nop
            0xf9800020,  // prfm pldl1keep, [x1]
            0xd800_0040, // prfm pldl1keep, .+8
            0x9100_0421, // add x1, x1, #1
            0x9400_0001, // bl
            0xd50b_7521, // ic ivau, x1
            0x4c40_7020, // ld1 {v0.16b}, [x1]
            0x6900_0c22, // stgp x2, x3, [x1]
            0xf83f_d022, // ld64b
            0xf820_0420, // ldraa x0, [x1]
            0x1920_1041, // ldclrp x1, x0, [x2]
            0xfca0_0041, // ldfadda d0, d1, [x2]
            0x1920_0841, // rcwcas x0, x1, [x2]
            0xd9c0_0820, // ldapr x0, [x1], #8
            0x0980_7c24, // like caspt, without a size
        ] {
            assert_eq!(of(word), None, "{word:#010x}");
        }
    }

    #[test]
    fn exclusives_are_told_from_their_neighbours() {
        assert_eq!(exclusive(0xc85f_7c22), Some(Exclusive::Load));
        assert_eq!(exclusive(0xc87f_0c22), Some(Exclusive::Load));
        assert_eq!(exclusive(0x8803_fc22), Some(Exclusive::Store { status: 3 }));
        assert_eq!(exclusive(0x8824_0c22), Some(Exclusive::Store { status: 4 }));
        // LDTXR, LDATXR; STTXR, STLTXR.
        assert_eq!(exclusive(0xc95f_7c20), Some(Exclusive::Load));
        assert_eq!(exclusive(0x895f_fc20), Some(Exclusive::Load));
        assert_eq!(exclusive(0xc902_7c20), Some(Exclusive::Store { status: 2 }));
        assert_eq!(exclusive(0x8902_fc20), Some(Exclusive::Store { status: 2 }));
        // LDAR, CAS, CASP, LDR; CAST, CASPT.
        for word in [0x88df_fc22, 0xc8a2_7c23, 0x4822_7c24, 0x0822_7c24, 0xb940_0422, 0xc982_7c23, 0x4982_7c24] {
            assert_eq!(exclusive(word), None, "{word:#010x}");
        }
    }

    /// The two agree on every word of the group, because one is part of the code that handles hits and the other is
    /// not.
    #[test]
    fn exclusives_are_those_of_the_verdict() {
        let (mut random, mut found) = (Random::new(0x0c95_f7c2), 0);
        for _ in 0..if cfg!(miri) { 2_000 } else { 1_000_000 } {
            let word = random.next() as u32 & !0x3600_0000 | 0x0800_0000;
            // Half of them have the register of a pair that other exclusives do not have.
            for word in [word, word | 0x7c00] {
                let expected = match classify(word) {
                    Verdict::Reject(Reason::LoadExclusive) => Some(Exclusive::Load),
                    Verdict::Reject(Reason::StoreExclusive) => {
                        Some(Exclusive::Store { status: field(word, 20, 16) as u8 })
                    }
                    _ => None,
                };
                assert_eq!(exclusive(word), expected, "{word:#010x}");
                found += u32::from(expected.is_some());
            }
        }
        assert!(found > 500, "{found}");
    }

    #[test]
    fn an_access_overlaps_by_one_byte() {
        let access = |address, bytes| MemoryAccess { address, bytes, loads: true, stores: false };
        assert!(access(0xfff, 2).overlaps(0x1000, 4));
        assert!(!access(0xffe, 2).overlaps(0x1000, 4));
        assert!(access(0x1003, 1).overlaps(0x1000, 4));
        assert!(!access(0x1004, 1).overlaps(0x1000, 4));
        assert!(access(0x1000, 16).overlaps(0x1008, 4));
        assert!(access(u64::MAX, 2).overlaps(0, 1));
    }
}
