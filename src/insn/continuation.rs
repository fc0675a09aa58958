//! Where control goes from an instruction that may be part of an exclusive sequence.
//!
//! Inlined into its caller, which runs while a hit is handled: [`classify`](super::classify) is not part of that code.

use super::classify::{may_branch, signed};
use super::memory::{Exclusive, exclusive};

/// What an instruction is to an exclusive sequence.
#[derive(Clone, Copy, Debug)]
pub enum Continuation {
    /// A store-exclusive.
    Store,
    /// The sequence ends before the instruction.
    End,
    /// The sequence goes on.
    Next {
        /// Whether the next instruction may follow.
        falls_through: bool,
        /// The distance to the other instruction that may follow, in bytes.
        offset: Option<i64>,
    },
}

impl Continuation {
    /// Returns what the instruction `word` is to an exclusive sequence.
    #[inline(always)]
    #[must_use]
    pub const fn of(word: u32) -> Self {
        const NEXT: Continuation = Continuation::Next { falls_through: true, offset: None };
        match exclusive(word) {
            Some(Exclusive::Store { .. }) => return Self::Store,
            // It begins a sequence of its own.
            Some(Exclusive::Load) => return Self::End,
            None => {}
        }
        if !may_branch(word) {
            return NEXT;
        }
        if word & 0xfc00_0000 == 0x1400_0000 {
            return Self::Next { falls_through: false, offset: Some((signed(word, 25, 0) as i64) << 2) };
        }
        // B.cond and BC.cond; CBZ and CBNZ; TBZ and TBNZ.
        if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
            return Self::Next { falls_through: true, offset: Some((signed(word, 23, 5) as i64) << 2) };
        }
        if word & 0x7e00_0000 == 0x3600_0000 {
            return Self::Next { falls_through: true, offset: Some((signed(word, 18, 5) as i64) << 2) };
        }
        // NOP, DSB, DMB and ISB. Not CLREX, and not WFE, which would wait with interrupts masked.
        if word == 0xd503_201f || word & 0xffff_f09f == 0xd503_309f && word & 0x60 != 0x60 {
            return NEXT;
        }
        Self::End
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::{Control, Verdict, classify};
    use kprobes_random::Random;

    /// The verdict names the branch and its distance, too.
    #[test]
    fn branches_go_where_the_verdict_says() {
        let (mut random, mut compared) = (Random::new(0xb4a_0c4e5), 0);
        for _ in 0..if cfg!(miri) { 2_000 } else { 1_000_000 } {
            let word = random.next() as u32;
            let Verdict::Simulate(op) = classify(word) else { continue };
            let (expected, falls_through) = match op.control() {
                Control::Jump(offset) => (offset, false),
                Control::Either(offset) => (offset, true),
                Control::Next | Control::Call(_) | Control::Register { .. } => continue,
            };
            let found = Continuation::of(word);
            let is_same = matches!(found, Continuation::Next { falls_through: falls, offset: Some(offset) }
                if offset == i64::from(expected) && falls == falls_through);
            assert!(is_same, "{word:#010x}: {found:?}");
            compared += 1;
        }
        assert!(compared > if cfg!(miri) { 20 } else { 20_000 }, "{compared}");
    }
}
