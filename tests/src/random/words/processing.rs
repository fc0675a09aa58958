//! Data processing: C4.1.86 immediate, C4.1.89 register.

use super::{Class, Index, Need, WordContext, bit, field, rd, rm, rn};

pub(super) const CLASSES: &[Class] = &[
    Class::plain("ADD, SUB (immediate)", 0x1100_0000, 0xe07f_ffff).filled(add_immediate),
    Class::plain("ADDG, SUBG", 0x9180_0000, 0x403f_3fff)
        .filled(|_, word| (rd(word) != 31).then_some((word, Need::Nothing)))
        .only_if(|features| features.tags()),
    Class::plain("minimum and maximum (immediate)", 0x11c0_0000, 0x800f_ffff)
        .only_if(|features| features.short_sequences()),
    Class::plain("logical (immediate)", 0x1200_0000, 0xe07f_ffff).filled(logical_immediate),
    Class::plain("AND (immediate) to sp", 0x9240_001f, 0x003f_ffe0).filled(align_stack),
    Class::plain("move wide", 0x1280_0000, 0xe07f_ffff).filled(|_, word| {
        (field(word, 30, 29) != 0b01 && (bit(word, 31) || !bit(word, 22))).then_some((word, Need::Nothing))
    }),
    Class::plain("bitfield", 0x1300_0000, 0xe03f_ffff).filled(|context, word| {
        (field(word, 30, 29) != 0b11)
            .then_some(())
            .and_then(|()| six_bits(context, word))
            .filter(|_| bit(word, 31) || !bit(word, 21))
    }),
    Class::plain("EXTR", 0x1380_0000, 0x801f_ffff).filled(six_bits),
    Class::plain("logical (shifted register)", 0x0a00_0000, 0xe0ff_ffff).filled(shifted),
    Class::plain("ADD, SUB (shifted register)", 0x0b00_0000, 0xe0df_ffff)
        .filled(|context, word| (field(word, 23, 22) != 0b11).then_some(()).and_then(|()| shifted(context, word))),
    Class::plain("ADD, SUB (extended register)", 0x0b20_0000, 0xe01f_ffff).filled(add_extended),
    Class::plain("ADC, SBC", 0x1a00_0000, 0xe01f_03ff),
    Class::plain("RMIF", 0xba00_0400, 0x001f_83ef).only_if(|features| features.flags()),
    Class::plain("SETF8, SETF16", 0x3a00_080d, 0x0000_43e0).only_if(|features| features.flags()),
    Class::plain("CCMN, CCMP", 0x3a40_0000, 0xc01f_fbef),
    Class::plain("CSEL and its kin", 0x1a80_0000, 0xc01f_f7ff),
    Class::plain("UDIV, SDIV", 0x1ac0_0800, 0x801f_07ff),
    Class::plain("shift (register)", 0x1ac0_2000, 0x801f_0fff),
    Class::plain("minimum and maximum (register)", 0x1ac0_6000, 0x801f_0fff)
        .only_if(|features| features.short_sequences()),
    Class::plain("CRC32, CRC32C", 0x1ac0_4000, 0x001f_1fff)
        .filled(|_, word| Some((word | u32::from(field(word, 11, 10) == 3) << 31, Need::Nothing)))
        .only_if(|features| features.crc()),
    Class::plain("SUBP, SUBPS", 0x9ac0_0000, 0x201f_03ff).only_if(|features| features.tags()),
    Class::plain("GMI", 0x9ac0_1400, 0x001f_03ff).only_if(|features| features.tags()),
    Class::plain("PACGA", 0x9ac0_3000, 0x001f_03ff).only_if(|features| features.generic_authentication()),
    // RBIT, REV16, REV32, REV, CLZ, CLS; CTZ, CNT and ABS with FEAT_CSSC.
    Class::plain("1 source", 0x5ac0_0000, 0x8000_3fff).filled(|context, word| {
        let last = if context.features.short_sequences() { 8 } else { 5 };
        let opcode = field(word, 15, 10);
        (opcode <= last && (opcode != 3 || bit(word, 31))).then_some((word, Need::Nothing))
    }),
    Class::plain("PACIA to AUTDB", 0xdac1_0000, 0x1fff).only_if(|features| features.pointer_authentication()),
    Class::plain("PACIZA to AUTDZB", 0xdac1_23e0, 0x1c1f).only_if(|features| features.pointer_authentication()),
    Class::plain("XPACI, XPACD", 0xdac1_43e0, 0x041f).only_if(|features| features.pointer_authentication()),
    Class::plain("MADD, MSUB", 0x1b00_0000, 0x801f_ffff),
    Class::plain("SMADDL and its kin", 0x9b20_0000, 0x009f_ffff),
    Class::plain("SMULH, UMULH", 0x9b40_7c00, 0x009f_03ff),
];

/// Makes a shifted-register instruction. A W register has no bit 32, so bit 5 of the amount must be clear.
fn shifted(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    (bit(word, 31) || !bit(word, 15)).then_some((word, Need::Nothing))
}

/// Makes an instruction whose amount has six bits, and whose N bit equals sf.
fn six_bits(context: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    shifted(context, word | field(word, 31, 31) << 22)
}

/// Makes an ADD or SUB (immediate). Rd 31 is sp, unless the flags are set.
fn add_immediate(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    if rd(word) != 31 || bit(word, 29) {
        return Some((word, Need::Nothing));
    }
    let magnitude = i64::from(field(word, 21, 10)) << if bit(word, 22) { 12 } else { 0 };
    let offset = if bit(word, 30) { -magnitude } else { magnitude };
    let near = magnitude < 4096 && magnitude % 16 == 0;
    (bit(word, 31) && (rn(word) != 31 || near)).then_some((word, Need::Stack { rn: rn(word), offset, index: None }))
}

fn add_extended(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let shift = field(word, 12, 10);
    if shift > 4 {
        return None;
    }
    if rd(word) != 31 || bit(word, 29) {
        return Some((word, Need::Nothing));
    }
    let index = Index { rm: rm(word), option: field(word, 15, 13), shift };
    let possible = bit(word, 31) && !bit(word, 30) && rm(word) != 31 && rm(word) != rn(word);
    possible.then_some((word, Need::Stack { rn: rn(word), offset: 0, index: Some(index) }))
}

/// Makes a logical (immediate) instruction. N, immr and imms encode a mask (DecodeBitMasks): an element of 2 to 64 bits
/// that is not all ones.
fn logical_immediate(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let selector = field(word, 22, 22) << 6 | !field(word, 15, 10) & 0x3f;
    let is_mask = selector >= 2 && {
        let ones = (1 << selector.ilog2()) - 1;
        field(word, 15, 10) & ones != ones
    };
    let fits = bit(word, 31) || !bit(word, 22);
    let is_stack = rd(word) == 31 && field(word, 30, 29) != 0b11;
    (is_mask && fits && !is_stack).then_some((word, Need::Nothing))
}

/// Makes `and sp, xn, #-2^k`, for 2^k from 16 to 512: the mask has ones in the upper 64 - k bits.
fn align_stack(context: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let k = 4 + context.sequence.below(6) as u32;
    let word = word & !(0x3f << 16 | 0x3f << 10) | (64 - k) << 16 | (63 - k) << 10;
    (rn(word) != 31).then_some((word, Need::Stack { rn: rn(word), offset: 0, index: None }))
}
