//! Finding the load-exclusive/store-exclusive sequence that an address lies in.
//!
//! A breakpoint inside such a sequence makes it fail for ever: the exception return clears the exclusive
//! monitor, the store fails, and the loop around the two comes back to the breakpoint. Looking back a number of
//! words for a load-exclusive does not find it out. The load may be further away, or reach the address by a
//! branch from below; and an address behind an early exit of the sequence, or behind another function's last
//! words, is innocent.
//!
//! So the check follows control flow. An address is inside a sequence if some path through the function leads from
//! a load-exclusive to it, and on from it to a store-exclusive, without another load-exclusive or a CLREX.
//! Calls are taken to return. Everything else that leaves the function, or enters an exception, ends a path: no
//! sequence survives an exception return, and none is known to span functions.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use super::classify;
use super::op::{Indirect, Op};
use super::verdict::{Reason, Verdict};

/// The load-exclusive whose sequence contains `address`, itself and the store-exclusive included.
///
/// `function` is the range of virtual addresses of the function around `address`, in whole words, and `read`
/// gives the word at an address in it, as it is without probes. Where several sequences contain the address,
/// the first load is given. A function without a load-exclusive is read once and costs nothing more.
pub fn region_containing(function: Range<u64>, address: u64, read: impl Fn(u64) -> u32) -> Option<u64> {
    if !function.contains(&address) {
        return None;
    }
    let walk = Walk { function, read };
    let mut loads = walk.addresses().filter(|&at| walk.step(at) == Step::Load).peekable();
    loads.peek()?;
    if walk.step(address) == Step::Load {
        return Some(address);
    }
    if !walk.reaches(address, |_, step| step == Step::Store) {
        return None;
    }
    loads.find(|&load| walk.successors(load).any(|next| walk.reaches(next, |at, _| at == address)))
}

/// What an instruction means to an exclusive sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It begins one.
    Load,
    /// It ends the one there is.
    Store,
    /// It leaves none, or leaves the function.
    End,
    /// It continues with the next instruction, or at an offset, or both.
    Continue { next: bool, offset: Option<i32> },
}

/// A function, and the means to read it.
struct Walk<R> {
    function: Range<u64>,
    read: R,
}

impl<R: Fn(u64) -> u32> Walk<R> {
    fn addresses(&self) -> impl Iterator<Item = u64> + use<'_, R> {
        self.function.clone().step_by(4)
    }

    fn step(&self, address: u64) -> Step {
        /// CLREX (C6.2), without its operand in bits 11 to 8.
        const CLREX: u32 = 0xd503_305f;
        let word = (self.read)(address);
        let (next, offset) = match classify(word) {
            Verdict::Reject(Reason::LoadExclusive) => return Step::Load,
            Verdict::Reject(Reason::StoreExclusive) => return Step::Store,
            Verdict::Reject(Reason::ExceptionGenerating | Reason::PermanentlyUndefined | Reason::ExceptionReturn)
            | Verdict::Simulate(
                Op::BranchRegister { kind: Indirect::Jump | Indirect::Return, .. }
                | Op::BranchAuthenticated { kind: Indirect::Jump | Indirect::Return, .. },
            ) => return Step::End,
            Verdict::Slot if word & !0xf00 == CLREX => return Step::End,
            Verdict::Simulate(Op::Branch { offset }) => (false, Some(offset)),
            Verdict::Simulate(
                Op::BranchConditional { offset, .. } | Op::CompareBranch { offset, .. } | Op::TestBranch { offset, .. },
            ) => (true, Some(offset)),
            // The offset is in bits 13 to 5 (C6.2, CB).
            Verdict::Reject(Reason::CompareAndBranch) => (true, Some((word << 18).cast_signed() >> 23 << 2)),
            _ => (true, None),
        };
        Step::Continue { next, offset }
    }

    /// The addresses in the function to which control may go from the instruction at `address`.
    fn successors(&self, address: u64) -> impl Iterator<Item = u64> + use<'_, R> {
        let (next, offset) = match self.step(address) {
            Step::Load => (true, None),
            Step::Store | Step::End => (false, None),
            Step::Continue { next, offset } => (next, offset),
        };
        let next = next.then(|| address.wrapping_add(4));
        let target = offset.map(|offset| address.wrapping_add_signed(i64::from(offset)));
        next.into_iter().chain(target).filter(|successor| self.function.contains(successor))
    }

    /// Whether a path leads from `start` to an instruction that is `wanted`, before anything that begins or ends
    /// a sequence. `start` counts.
    fn reaches(&self, start: u64, wanted: impl Fn(u64, Step) -> bool) -> bool {
        let length = self.function.end - self.function.start;
        let mut visited = vec![false; usize::try_from(length.div_ceil(4)).unwrap_or(0)];
        let mut pending: Vec<u64> = vec![start];
        while let Some(address) = pending.pop() {
            let index = usize::try_from((address - self.function.start) / 4).unwrap_or(usize::MAX);
            match visited.get_mut(index) {
                Some(visited) if !*visited => *visited = true,
                _ => continue,
            }
            let step = self.step(address);
            if wanted(address, step) {
                return true;
            }
            if matches!(step, Step::Continue { .. }) {
                pending.extend(self.successors(address));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
