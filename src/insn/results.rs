//! Functions that have results in the registers in which the procedure call standard has none: x9 to x17, and the flags.
//!
//! What runs at a return, in the place of the return address, may change these registers only if the callers need nothing of them
//! (AAPCS64, section 6.1). LLVM's machine outliner makes functions that do not keep to it, and so may assembly. Their callers show
//! it: an instruction after the call reads what the call has left.
//!
//! A function goes on in others, and ends with what these leave. So where one is seen to have such results, those that it calls, or
//! ends in, may have them, too. Callers by a register, or by a branch with a return address that they made themselves, cannot be
//! seen, and are taken to keep to the standard; so is what ends in a function whose callers cannot all be judged.

use alloc::vec::Vec;
use core::ops::Range;

use super::classify;
use super::liveness::{Bounds, Kept, Live, Read, Walk, called_by};
use super::verdict::Verdict;

/// The functions of a text that have such results, or of which it cannot be told that they have none.
#[derive(Debug, Default)]
pub struct ScratchResults(Vec<(u64, Live)>);

impl ScratchResults {
    /// Those that are called in the text at these virtual addresses, if there is memory for a list of them. `bounds` gives those of
    /// the function around an address.
    pub fn in_text(text: Range<u64>, kept: &Kept, read: Read<'_>, bounds: Bounds<'_>) -> Option<Self> {
        let mut found = Self::default();
        for call in text.step_by(4) {
            let Some(function) = read(call).and_then(|word| called_by(word, call)) else { continue };
            if found.has_some(function) {
                continue;
            }
            if let Some(live) = Walk::new(read, kept).live_behind_call(call + 4) {
                found.add(function, live)?;
            }
        }
        // Each may add others, in front of it or behind it.
        let mut index = 0;
        while let Some(&(function, live)) = found.0.get(index) {
            index += 1;
            let Some(function) = bounds(function).filter(|_| found.has_some(function)) else { continue };
            for at in function.clone().step_by(4) {
                let Some(word) = read(at) else { break };
                let target = called_by(word, at).or_else(|| match classify(word) {
                    Verdict::Simulate(op) => op.branch_offset().map(|offset| at.wrapping_add_signed(offset.into())),
                    _ => None,
                });
                let other = target.filter(|target| !function.contains(target) && !found.has_some(*target));
                if let Some(other) = other {
                    found.add(other, live)?;
                    index = 0;
                }
            }
        }
        Some(found)
    }

    /// Why something that the function at the virtual address `function` leaves in x9 to x17 or the flags is not known to be of no
    /// use to its callers; nothing if it is.
    #[must_use]
    pub fn by(&self, function: u64) -> Option<Live> {
        let index = self.0.binary_search_by_key(&function, |&(function, _)| function).ok()?;
        self.0.get(index).map(|&(_, live)| live)
    }

    /// Whether a caller of `function` is seen to read one.
    fn has_some(&self, function: u64) -> bool {
        matches!(self.by(function), Some(live) if !matches!(live, Live::Lost { .. }))
    }

    /// Says this of `function`, whatever was said of it.
    fn add(&mut self, function: u64, live: Live) -> Option<()> {
        match self.0.binary_search_by_key(&function, |&(function, _)| function) {
            Ok(index) => self.0.get_mut(index)?.1 = live,
            Err(index) => {
                self.0.try_reserve(1).ok()?;
                self.0.insert(index, (function, live));
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
