//! The verdict on a word, by the encoding index of the A64 instruction set (C4.1).
//!
//! The index groups the words by bits 28 to 25. There is a file for each group, which lists the allocated encodings and
//! refuses the rest of its group.

mod branch;
mod float;
mod immediate;
mod memory;
mod newer;
mod register;
mod system;
mod system_registers;
mod vector;

pub use float::is_floating;
pub use memory::is_prefetch;

use super::verdict::{Reason, Verdict};

/// Returns how the instruction `word` is executed under a probe. Total: every word has a verdict.
///
/// The verdict holds for code that runs at EL1 on SP_EL1, or at EL2 on SP_EL2 with HCR_EL2.E2H set. It does not depend
/// on the CPU, but the effect of the instruction does. An instruction of an extension that the CPU lacks is undefined
/// in the slot as it is in place; if it is simulated, the simulation asks whether the CPU has the extension. An
/// instruction that its operands make CONSTRAINED UNPREDICTABLE is so in both places, but its effect need not be the
/// same in both.
///
/// Two extensions have a state that changes the meaning of words for which the verdict is right otherwise. With GCS
/// enabled, BL, BLR and RET also use the guarded control stack, which their simulation does not. After PACM
/// (FEAT_PAuth_LR), the next PACIASP or AUTIASP also uses its own address: [`Reason::AfterModifier`].
#[must_use]
pub const fn classify(word: u32) -> Verdict {
    match listed(word) {
        UNALLOCATED if newer::is_newer(word) => Verdict::Reject(Reason::Newer),
        verdict => verdict,
    }
}

/// Returns the verdict that follows from the lists of allocated encodings.
const fn listed(word: u32) -> Verdict {
    // C4.1: bits 28 to 25.
    match field(word, 28, 25) {
        // C4.1.1 Reserved: UDF is the only allocation with bit 31 clear; C4.1.2 SME has it set.
        0b0000 if field(word, 31, 16) == 0 => Verdict::Reject(Reason::PermanentlyUndefined),
        0b0000 if bit(word, 31) => Verdict::Reject(Reason::Scalable),
        // C4.1.2 SVE.
        0b0010 => Verdict::Reject(Reason::Scalable),
        0b1000 | 0b1001 => immediate::classify(word),
        0b1010 | 0b1011 => branch::classify(word),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory::classify(word),
        0b0101 | 0b1101 => register::classify(word),
        0b0111 | 0b1111 => float::classify(word),
        _ => UNALLOCATED,
    }
}

/// Returns whether `word` is PACM (C6.2), which may make the word after it depend on its address. That word cannot be
/// probed either, for [`Reason::AfterModifier`].
#[must_use]
pub const fn modifies_next(word: u32) -> bool {
    word == 0xd503_24ff
}

/// Returns false for most words that do not branch, by one test: all branches are in the group of branches, exception
/// generating and system instructions (C4.1). The oracle calls it for every word.
#[inline(always)]
#[must_use]
pub const fn may_branch(word: u32) -> bool {
    word & 0x1c00_0000 == 0x1400_0000
}

/// Returns whether the word is an instruction that generates an exception, a hint, or another system instruction
/// (C4.1.87): BRK and NOP are.
#[inline(always)]
#[must_use]
pub const fn is_exception_or_system(word: u32) -> bool {
    word >> 25 == 0b110_1010
}

/// Returns whether the word is in the group of loads and stores (C4.1).
#[must_use]
pub const fn is_load_or_store(word: u32) -> bool {
    word >> 25 & 0b0101 == 0b0100
}

const UNALLOCATED: Verdict = Verdict::Reject(Reason::Unallocated);

/// Returns bits `high` to `low` of `word`, both included.
#[inline(always)]
pub(super) const fn field(word: u32, high: u32, low: u32) -> u32 {
    (word >> low) & (u32::MAX >> (31 - (high - low)))
}

/// Returns bit `number` of `word`.
#[inline(always)]
pub(super) const fn bit(word: u32, number: u32) -> bool {
    (word >> number) & 1 != 0
}

/// Returns the signed number in bits `high` to `low` of `word`, both included.
#[inline(always)]
pub(super) const fn signed(word: u32, high: u32, low: u32) -> i32 {
    (word << (31 - high)).cast_signed() >> (31 - high + low)
}

/// Returns the register number in bits `low + 4` to `low`.
pub(super) const fn number(word: u32, low: u32) -> u8 {
    field(word, low + 4, low) as u8
}

/// Returns the verdict on a word whose work does not depend on its address, if it is allocated.
const fn slot_if(allocated: bool) -> Verdict {
    if allocated { Verdict::Slot } else { UNALLOCATED }
}

#[cfg(test)]
mod tests;
