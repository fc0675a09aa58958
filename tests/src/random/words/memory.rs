//! Loads and stores (C4.1.88) in every addressing mode. Unprivileged ones are left out because they fault on the
//! kernel's memory, and those of floating-point registers because they are undefined in a kernel that does not enable
//! them.

use super::{Access, Class, Index, Need, WordContext, bit, field, rd, rm, rn, signed};

pub(super) const CLASSES: &[Class] = &[
    Class::plain("unsigned offset", 0x3900_0000, 0xc0ff_ffff).filled(unsigned_offset),
    Class::plain("unscaled, post-indexed, pre-indexed", 0x3800_0000, 0xc0df_ffff).filled(signed_offset),
    Class::plain("register offset", 0x3820_4800, 0xc0df_b3ff).filled(register_offset),
    Class::plain("pair", 0x2800_0000, 0xc1ff_ffff).filled(pair),
    Class::plain("PRFM (immediate)", 0xf980_0000, 0x003f_ffff),
    Class::plain("PRFUM", 0xf880_0000, 0x001f_f3ff),
    Class::plain("PRFM (register)", 0xf8a0_4800, 0x001f_b3ff),
    Class::plain("LDAR, STLR", 0x089f_fc00, 0xc040_03ff).filled(ordered),
    Class::plain("LDLAR, STLLR", 0x089f_7c00, 0xc040_03ff)
        .filled(ordered)
        .only_if(|features| features.limited_ordering()),
    Class::plain("LDAPR", 0x38bf_c000, 0xc000_03ff).filled(ordered).only_if(|features| features.acquire_pc()),
    Class::plain("LDAPUR, STLUR", 0x1900_0000, 0xc0df_f3ff)
        .filled(ordered_offset)
        .only_if(|features| features.acquire_pc_unscaled()),
    Class::plain("CAS", 0x08a0_7c00, 0xc05f_83ff).filled(ordered).only_if(|features| features.atomics()),
    Class::plain("CASP", 0x0820_7c00, 0x405e_83fe).filled(ordered_pair).only_if(|features| features.atomics()),
    Class::plain("LDADD and its kin, SWP", 0x3820_0000, 0xc0df_f3ff)
        .filled(|context, word| (field(word, 15, 12) <= 8).then_some(()).and_then(|()| ordered(context, word)))
        .only_if(|features| features.atomics()),
    Class::plain("DC ZVA", 0xd50b_7420, 0x1f).filled(zero).only_if(|features| {
        // The block must fit into the memory.
        features.zero_block.is_some_and(|log2_words| log2_words <= 6)
    }),
];

/// Returns whether the combination of size and opc is allocated: opc 0 stores, 1 loads, 2 and 3 load signed.
const fn is_allocated(word: u32) -> bool {
    let (size, opc) = (field(word, 31, 30), field(word, 23, 22));
    opc < 2 || size + opc < 5 && size < 3
}

const fn size(word: u32) -> u64 {
    1 << field(word, 31, 30)
}

/// Makes an access without an index. There is nothing to load below sp, and no stack above the memory.
fn access(word: u32, offset: i64, writeback: i64, size: u64, alignment: u64) -> Option<(u32, Need)> {
    if rn(word) == 31 && (!(0..8192).contains(&offset) || writeback % 16 != 0 || writeback - offset > 256) {
        return None;
    }
    let access = Access { rn: rn(word), offset, writeback, index: None, size, alignment };
    Some((word, Need::Access(access)))
}

fn unsigned_offset(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let offset = i64::from(field(word, 21, 10)) << field(word, 31, 30);
    is_allocated(word).then_some(()).and_then(|()| access(word, offset, 0, size(word), 1))
}

fn signed_offset(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let distance = signed(word, 20, 12);
    let (offset, writeback) = match field(word, 11, 10) {
        0b00 => (distance, 0),
        0b01 => (0, distance),
        0b11 => (distance, distance),
        _ => return None,
    };
    // The base register with writeback and the transferred register must differ.
    let possible = field(word, 11, 10) == 0 || rd(word) != rn(word) || rn(word) == 31;
    (possible && is_allocated(word)).then_some(()).and_then(|()| access(word, offset, writeback, size(word), 1))
}

fn register_offset(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let shift = if bit(word, 12) { field(word, 31, 30) } else { 0 };
    let index = Index { rm: rm(word), option: field(word, 15, 13), shift };
    if !is_allocated(word) || rm(word) == rn(word) {
        return None;
    }
    let access = Access { rn: rn(word), offset: 0, writeback: 0, index: Some(index), size: size(word), alignment: 1 };
    Some((word, Need::Access(access)))
}

/// Makes LDP, STP, LDPSW, LDNP or STNP.
fn pair(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let (opc, mode, load) = (field(word, 31, 30), field(word, 24, 23), bit(word, 22));
    let (first, second) = (rd(word), field(word, 14, 10) as u8);
    let size = match opc {
        0b00 => 4,
        0b01 if load && mode != 0 => 4,
        0b10 => 8,
        _ => return None,
    };
    let distance = signed(word, 21, 15) * size;
    let (offset, writeback) = match mode {
        0b01 => (0, distance),
        0b11 => (distance, distance),
        _ => (distance, 0),
    };
    let base_is_written_twice = mode & 1 != 0 && rn(word) != 31 && (rn(word) == first || rn(word) == second);
    if base_is_written_twice || load && first == second {
        return None;
    }
    access(word, offset, writeback, 2 * size.cast_unsigned(), 1)
}

fn ordered(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    access(word, 0, 0, size(word), size(word))
}

fn ordered_offset(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    // sp is a multiple of 16, so the offset must preserve the alignment.
    let distance = signed(word, 20, 12);
    let aligned = rn(word) != 31 || distance % 8 == 0;
    (aligned && is_allocated(word)).then_some(()).and_then(|()| access(word, distance, 0, size(word), size(word)))
}

fn ordered_pair(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let size = if bit(word, 30) { 16 } else { 8 };
    access(word, 0, 0, size, size)
}

/// Makes a DC ZVA of a block of the memory, by an address anywhere in the block. The zero register holds no such
/// address.
fn zero(context: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let block: u64 = 4 << context.features.zero_block?;
    let offset = context.sequence.below(block).cast_signed();
    let access = Access { rn: rd(word), offset: -offset, writeback: 0, index: None, size: block, alignment: block };
    (rd(word) != 31).then_some((word, Need::Access(access)))
}
