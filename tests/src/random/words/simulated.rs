//! Instructions that read the program counter, leave the slot, or access the interrupt masks.

use super::{Class, Need, WordContext, field, rn};

pub(super) const CLASSES: &[Class] = &[
    Class::plain("ADR", 0x1000_0000, 0x60ff_ffff),
    Class::plain("ADRP", 0x9000_0000, 0x60ff_ffff),
    Class::plain("B", 0x1400_0000, 0).filled(branch::<26, 0>),
    Class::plain("BL", 0x9400_0000, 0).filled(branch::<26, 0>),
    Class::plain("B.cond", 0x5400_0000, 0xf).filled(branch::<19, 5>),
    Class::plain("BC.cond", 0x5400_0010, 0xf).filled(branch::<19, 5>).only_if(|features| features.hinted_branches()),
    Class::plain("CBZ, CBNZ", 0x3400_0000, 0x8100_001f).filled(branch::<19, 5>),
    Class::plain("TBZ, TBNZ", 0x3600_0000, 0x81f8_001f).filled(branch::<14, 5>),
    Class::plain("LDR (literal), W", 0x1800_0000, 0x1f).filled(literal),
    Class::plain("LDR (literal), X", 0x5800_0000, 0x1f).filled(literal),
    Class::plain("LDRSW (literal)", 0x9800_0000, 0x1f).filled(literal),
    Class::plain("PRFM (literal)", 0xd800_0000, 0x00ff_ffff),
    Class::plain("BR", 0xd61f_0000, 0x3e0).filled(register),
    Class::plain("BLR", 0xd63f_0000, 0x3e0).filled(register),
    Class::plain("RET", 0xd65f_0000, 0x3e0).filled(register),
    // The keys are not enabled here; the signed fixtures test them. BRAA is left out, because QEMU 10.0 fails an
    // assertion on it.
    Class::plain("BLRAAZ, BLRABZ", 0xd63f_081f, 0x7e0)
        .filled(register)
        .only_if(|features| features.pointer_authentication()),
    Class::plain("BLRAA, BLRAB", 0xd73f_0800, 0x7ff)
        .filled(register)
        .only_if(|features| features.pointer_authentication()),
    Class::plain("RETAA, RETAB", 0xd65f_0bff, 0x400)
        .filled(|_, word| Some((word, Need::Pad { rn: 30 })))
        .only_if(|features| features.pointer_authentication()),
    // NOP, YIELD, WFE, DGH. The word is entered by an exception return, which sets the event register, so WFE does not
    // wait.
    Class::plain("hints that do nothing", 0xd503_201f, 0xe0)
        .filled(|_, word| matches!(field(word, 7, 5), 0 | 1 | 2 | 6).then_some((word, Need::Nothing))),
    Class::plain("MRS DAIF", 0xd53b_4220, 0x1f),
    Class::plain("MSR DAIF", 0xd51b_4220, 0x1f),
    Class::plain("MSR DAIFSet", 0xd503_40df, 0xf00),
    Class::plain("MSR DAIFClr", 0xd503_40ff, 0xf00),
];

/// Makes a branch to a pad, whose offset in words has `BITS` bits from bit `LOW` on.
fn branch<const BITS: u32, const LOW: u32>(context: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let reach = (1 << (BITS + 1)) - 4;
    let pad = context.arena.pad(context.sequence, context.address, reach);
    Some((word | offset::<BITS, LOW>(context, pad), Need::Nothing))
}

fn literal(context: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    let literal = context.arena.literal(context.sequence);
    Some((word | offset::<19, 5>(context, literal), Need::Nothing))
}

fn offset<const BITS: u32, const LOW: u32>(context: &WordContext<'_>, target: usize) -> u32 {
    let words = target.wrapping_sub(context.address) as u32 >> 2;
    (words & ((1 << BITS) - 1)) << LOW
}

/// Makes a branch to a register. The zero register holds no address.
fn register(_: &mut WordContext<'_>, word: u32) -> Option<(u32, Need)> {
    (rn(word) != 31).then_some((word, Need::Pad { rn: rn(word) }))
}
