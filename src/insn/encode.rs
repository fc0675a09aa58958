//! Encodes the instructions that the engine writes itself, and sequences of them for the address at which they will
//! run.
//!
//! Register numbers are those of the encoding; each function says what 31 means where it is allowed. Addresses are
//! virtual.

pub mod compute;

use core::fmt;

use super::op::Literal;
use crate::exception::syndrome;

/// The breakpoint at a probe point.
pub const BRK_KPROBE: u32 = brk(syndrome::BRK_KPROBE);
/// The breakpoint after the instruction in an out-of-line slot.
pub const BRK_STEP: u32 = brk(syndrome::BRK_STEPPED);
/// `msr daifset, #15` (C6.2, MSR (immediate)).
pub const MASK_INTERRUPTS: u32 = 0xd503_4fdf;
/// `nop` (C6.2, NOP).
pub const NOP: u32 = 0xd503_201f;

/// Register number 31 as a base, and in [`add`] and [`subtract`].
pub const SP: u8 = 31;

/// `brk #comment` (C6.2, BRK).
#[must_use]
pub const fn brk(comment: u16) -> u32 {
    0xd420_0000 | (comment as u32) << 5
}

/// `b to`, to be written at `from` (C6.2, B).
///
/// # Errors
///
/// [`OutOfRange`] if `to` is further than a branch reaches (-128 MiB to +128 MiB - 4), or if the distance is not a
/// whole number of words.
pub const fn branch(from: u64, to: u64) -> Result<u32, OutOfRange> {
    match redirect::<26>(0x1400_0000, from, to) {
        Some(word) => Ok(word),
        None => Err(OutOfRange { from, to }),
    }
}

/// `bl to`, to be written at `from` (C6.2, BL).
///
/// # Errors
///
/// [`OutOfRange`] in the same cases as for [`branch`].
pub const fn branch_link(from: u64, to: u64) -> Result<u32, OutOfRange> {
    match branch(from, to) {
        Ok(word) => Ok(word | 1 << 31),
        Err(error) => Err(error),
    }
}

/// Returns the target of `word` at the virtual address `from`, if it is B.
#[inline(always)]
#[must_use]
pub const fn branch_target(word: u32, from: u64) -> Option<u64> {
    if word >> 26 != 0b00_0101 {
        return None;
    }
    let words = (word << 6).cast_signed() >> 6;
    Some(from.wrapping_add_signed((words as i64) << 2))
}

/// Returns `word` with the distance from `from` to `to`, in words, in its field of `BITS` bits; `None` if the field
/// cannot hold the distance. The field lies in the place that it has in all such instructions: from bit 5 on, or from
/// bit 0 if it has 26 bits.
#[must_use]
pub const fn redirect<const BITS: u32>(word: u32, from: u64, to: u64) -> Option<u32> {
    let distance = to.wrapping_sub(from).cast_signed();
    let reach = 1 << (BITS + 1);
    if distance % 4 != 0 || distance < -reach || distance >= reach {
        return None;
    }
    let low = if BITS == 26 { 0 } else { 5 };
    let field = u32::MAX >> (32 - BITS);
    Some(word & !(field << low) | ((distance >> 2) as u32 & field) << low)
}

/// `br xn`; 31 is the zero register (C6.2, BR).
#[must_use]
pub const fn branch_register(rn: u8) -> u32 {
    0xd61f_0000 | (rn as u32) << 5
}

/// `add xd, xn, #immediate`, of 12 bits; 31 is the stack pointer (C6.2, ADD (immediate)).
#[must_use]
pub const fn add(rd: u8, rn: u8, immediate: u16) -> u32 {
    0x9100_0000 | (immediate as u32 & 0xfff) << 10 | (rn as u32) << 5 | rd as u32
}

/// `sub xd, xn, #immediate`, of 12 bits; 31 is the stack pointer (C6.2, SUB (immediate)).
#[must_use]
pub const fn subtract(rd: u8, rn: u8, immediate: u16) -> u32 {
    add(rd, rn, immediate) | 1 << 30
}

/// `ldr wt, [xn, #offset]`, `ldrsw xt, …` or `ldr xt, …`, with an offset below 16,384 that is a multiple of the size of
/// the load (C6.2, LDR (immediate) and LDRSW (immediate), unsigned offset).
#[must_use]
pub const fn load(kind: Literal, rt: u8, rn: u8, offset: u16) -> u32 {
    let word = match kind {
        Literal::Word => 0xb940_0000,
        Literal::SignedWord => 0xb980_0000,
        Literal::Doubleword => 0xf940_0000,
    };
    let offset = offset as u32 / kind.size() as u32;
    word | (offset & 0xfff) << 10 | (rn as u32) << 5 | rt as u32
}

/// `ldrb wt, [xn, #offset]`, `ldrh wt, …`, `ldr wt, …` or `ldr xt, …`, which load `bytes` bytes: 1, 2, 4 or 8. The
/// offset is one of the first 4,096 multiples of that (C6.2, LDRB, LDRH and LDR (immediate), unsigned offset).
#[must_use]
pub const fn load_bytes(bytes: u8, rt: u8, rn: u8, offset: u16) -> u32 {
    let scale = bytes.trailing_zeros();
    0x3940_0000 | scale << 30 | (offset as u32 >> scale & 0xfff) << 10 | (rn as u32) << 5 | rt as u32
}

/// `ldp xt, xt2, [xn, #offset]`, with a multiple of 8 from -512 to 504 (C6.2, LDP, signed offset).
#[must_use]
pub const fn load_pair(rt: u8, rt2: u8, rn: u8, offset: i16) -> u32 {
    store_pair(rt, rt2, rn, offset) | 1 << 22
}

/// `stp xt, xt2, [xn, #offset]`, with a multiple of 8 from -512 to 504 (C6.2, STP, signed offset).
#[must_use]
pub const fn store_pair(rt: u8, rt2: u8, rn: u8, offset: i16) -> u32 {
    let offset = (offset / 8) as u32 & 0x7f;
    0xa900_0000 | offset << 15 | (rt2 as u32) << 10 | (rn as u32) << 5 | rt as u32
}

/// `stp xt, xt2, [xn, #offset]!`, with a multiple of 8 from -512 to 504 (C6.2, STP, pre-index).
#[must_use]
pub const fn store_pair_before(rt: u8, rt2: u8, rn: u8, offset: i16) -> u32 {
    store_pair(rt, rt2, rn, offset) | 0b11 << 23
}

/// `ldp xt, xt2, [xn], #offset`, with a multiple of 8 from -512 to 504 (C6.2, LDP, post-index).
#[must_use]
pub const fn load_pair_after(rt: u8, rt2: u8, rn: u8, offset: i16) -> u32 {
    load_pair(rt, rt2, rn, offset) & !(0b11 << 23) | 0b01 << 23
}

/// `ldr xt, [xn], #offset`, from -256 to 255 (C6.2, LDR (immediate), post-index).
#[must_use]
pub const fn load_after(rt: u8, rn: u8, offset: i16) -> u32 {
    0xf840_0400 | (offset as u32 & 0x1ff) << 12 | (rn as u32) << 5 | rt as u32
}

/// `str xt, [xn, #offset]`, with a multiple of 8 below 32,768 (C6.2, STR (immediate), unsigned offset).
#[must_use]
pub const fn store(rt: u8, rn: u8, offset: u16) -> u32 {
    load(Literal::Doubleword, rt, rn, offset) & !(1 << 22)
}

/// `ldr xt, [xn, xm]` (C6.2, LDR (register)).
#[must_use]
pub const fn load_at(rt: u8, rn: u8, rm: u8) -> u32 {
    load_bytes_at(8, rt, rn, rm)
}

/// `ldrb wt, [xn, xm]`, `ldrh wt, …`, `ldr wt, …` or `ldr xt, …`, which load `bytes` bytes: 1, 2, 4 or 8 (C6.2, LDRB,
/// LDRH and LDR (register)).
#[must_use]
pub const fn load_bytes_at(bytes: u8, rt: u8, rn: u8, rm: u8) -> u32 {
    0x3860_6800 | bytes.trailing_zeros() << 30 | (rm as u32) << 16 | (rn as u32) << 5 | rt as u32
}

/// `str xt, [xn, xm]` (C6.2, STR (register)).
#[must_use]
pub const fn store_at(rt: u8, rn: u8, rm: u8) -> u32 {
    load_at(rt, rn, rm) & !(1 << 22)
}

/// `stadd xs, [xn]` (C6.2, STADD, STADDL): only with FEAT_LSE.
#[must_use]
pub const fn add_to(rs: u8, rn: u8) -> u32 {
    0xf820_001f | (rs as u32) << 16 | (rn as u32) << 5
}

/// `mrs xt, daif` (C6.2, MRS; C5.2, DAIF).
#[must_use]
pub const fn read_daif(rt: u8) -> u32 {
    0xd53b_4220 | rt as u32
}

/// `msr daif, xt` (C6.2, MSR (register); C5.2, DAIF).
#[must_use]
pub const fn write_daif(rt: u8) -> u32 {
    0xd51b_4220 | rt as u32
}

/// A branch that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The virtual address of the branch.
    pub from: u64,
    /// The virtual address it should reach.
    pub to: u64,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a branch at {:#x} does not reach {:#x}: at most 128 MiB, in whole words", self.from, self.to)
    }
}

/// At most `N` words, in the order of their execution, for the virtual address at which they will run.
///
/// The methods that add words panic if there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code<const N: usize> {
    at: u64,
    words: [u32; N],
    length: u32,
}

impl<const N: usize> Code<N> {
    /// Makes an empty sequence for the virtual address `at`.
    #[must_use]
    pub const fn new(at: u64) -> Self {
        Self { at, words: [0; N], length: 0 }
    }

    /// Returns the words.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words[..self.length as usize]
    }

    /// Returns the words, followed by zeroes.
    #[must_use]
    pub const fn padded(&self) -> &[u32; N] {
        &self.words
    }

    /// Returns the virtual address of the next word.
    #[must_use]
    pub const fn here(&self) -> u64 {
        self.at.wrapping_add(4 * self.length as u64)
    }

    /// Adds `word`.
    pub const fn push(&mut self, word: u32) {
        self.words[self.length as usize] = word;
        self.length += 1;
    }

    /// Adds `b to`.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] in the same cases as for [`branch`](branch()); nothing is added then.
    pub fn branch(&mut self, to: u64) -> Result<(), OutOfRange> {
        self.push(branch(self.here(), to)?);
        Ok(())
    }

    /// Adds the words that load `value`, an address, into `rd`, which is not 31: one or two words if it is within 4 GiB
    /// of here, at most four otherwise. They change nothing else.
    pub fn address(&mut self, rd: u8, value: u64) {
        const REACH: i64 = 1 << 20;
        let here = self.here();
        let (bytes, page) = (value.wrapping_sub(here), (value & !0xfff).wrapping_sub(here & !0xfff));
        let (bytes, pages) = (bytes.cast_signed(), page.cast_signed() >> 12);
        let near = -REACH..REACH;
        if near.contains(&bytes) {
            self.push(relative(ADR, rd, bytes));
        } else if near.contains(&pages) {
            self.push(relative(ADRP, rd, pages));
            if value & 0xfff != 0 {
                self.push(add(rd, rd, (value & 0xfff) as u16));
            }
        } else {
            self.constant(rd, value);
        }
    }

    /// Adds the words of [`constant`], which load `value` into `rd`.
    pub fn constant(&mut self, rd: u8, value: u64) {
        constant(rd, value, |word| self.push(word));
    }
}

/// Calls `push` with the words that load `value` into `rd`: the smallest number of MOVZ, MOVN and MOVK, one to four
/// (C6.2).
pub fn constant(rd: u8, value: u64, mut push: impl FnMut(u32)) {
    const MOVN: u32 = 0x9280_0000;
    const MOVZ: u32 = 0xd280_0000;
    const MOVK: u32 = 0xf280_0000;
    let halves = [0, 1, 2, 3].map(|index| (index, (value >> (16 * index)) as u16));
    let count = |half| halves.iter().filter(|&&(_, other)| other == half).count();
    // The value that the first word leaves in the halves that it does not name.
    let (first, rest) = if count(0xffff) > count(0) { (MOVN, 0xffff) } else { (MOVZ, 0) };
    let mut operation = first;
    for (index, half) in halves.into_iter().filter(|&(_, half)| half != rest) {
        let immediate = if operation == MOVN { !half } else { half };
        push(operation | index << 21 | u32::from(immediate) << 5 | u32::from(rd));
        operation = MOVK;
    }
    if operation == first {
        push(first | u32::from(rd));
    }
}

/// C6.2, ADR and ADRP.
const ADR: u32 = 0x1000_0000;
const ADRP: u32 = 0x9000_0000;

/// Encodes ADR or ADRP with `distance`, which has 21 bits: the two low ones in bits 30 and 29, the others from bit 5
/// on.
const fn relative(operation: u32, rd: u8, distance: i64) -> u32 {
    let distance = distance as u32;
    operation | (distance & 0b11) << 29 | (distance >> 2 & 0x7_ffff) << 5 | rd as u32
}

#[cfg(test)]
mod tests;
