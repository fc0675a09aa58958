//! Whether an address can be probed, and how.

use core::ops::Range;

use super::ProbeError;
use super::hit::table;
use crate::insn::{self, Verdict};
use crate::{interrupts, platform, text};

/// An instruction that can be probed.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The instruction, whether or not a breakpoint stands in its place.
    pub word: u32,
    /// [`Verdict::Slot`] or [`Verdict::Simulate`].
    pub verdict: Verdict,
}

/// Tells how the instruction at the virtual address `address` would be probed.
///
/// # Errors
///
/// The [`ProbeError`] that registering a kprobe there would give.
pub fn check(address: usize) -> Result<Site, ProbeError> {
    if !address.is_multiple_of(4) {
        return Err(ProbeError::Misaligned { address });
    }
    if !platform::text().contains(&address) {
        return Err(ProbeError::NotText { address });
    }
    if blacklist().contains(&address) {
        return Err(ProbeError::Blacklisted { address });
    }
    let Some(function) = platform::function(address) else { return Err(ProbeError::NoFunction { address }) };
    let word = original_word(address);
    let verdict = insn::classify(word);
    if let Verdict::Reject(reason) = verdict {
        return Err(ProbeError::Instruction { address, word, reason });
    }
    let words = function.start as u64..function.end as u64;
    match insn::region_containing(words, address as u64, |address| original_word(address as usize)) {
        Some(load) => Err(ProbeError::Exclusive { address, load: load as usize }),
        None => Ok(Site { word, verdict }),
    }
}

/// The same as [`check`], for a return probe.
pub(super) fn check_entry(address: usize) -> Result<Site, ProbeError> {
    let site = check(address)?;
    let Some(function) = platform::function(address) else { return Err(ProbeError::NoFunction { address }) };
    if function.start != address {
        return Err(ProbeError::NotEntry { address, function });
    }
    let branches_here = |&branch: &usize| {
        let Verdict::Simulate(operation) = insn::classify(original_word(branch)) else { return false };
        operation.branch_offset().is_some_and(|offset| branch.wrapping_add_signed(offset as isize) == address)
    };
    match function.step_by(4).find(branches_here) {
        Some(branch) => Err(ProbeError::EntryIsLoop { address, branch }),
        None => Ok(site),
    }
}

/// The instruction at the virtual address `address`, also where a breakpoint stands in its place.
///
/// Returns nothing if the address is not that of a word in the text of the kernel.
#[must_use]
pub fn instruction(address: usize) -> Option<u32> {
    (address.is_multiple_of(4) && platform::text().contains(&address)).then(|| original_word(address))
}

/// The instruction at `address`, which has been checked to be a word in the text.
fn original_word(address: usize) -> u32 {
    let word = text::read(address);
    if word != insn::BRK_KPROBE {
        return word;
    }
    // Unless the registry is locked, a point can be freed at any time, but not while this CPU masks interrupts; and
    // one that is not there any more has left its instruction behind.
    // SAFETY: interrupts are masked for as long as the point is used.
    let original = interrupts::with_masked(|| unsafe { table::lookup(address) }.map(|point| point.word));
    original.unwrap_or_else(|| text::read(address))
}

/// The virtual addresses in which no probe is accepted: what runs while a probe is being handled.
#[cfg(target_os = "none")]
#[must_use]
pub fn blacklist() -> Range<usize> {
    unsafe extern "C" {
        safe static __kprobes_text_start: u8;
        safe static __kprobes_text_end: u8;
    }
    &raw const __kprobes_text_start as usize..&raw const __kprobes_text_end as usize
}

/// The host's tests probe text that the hit path is not part of.
#[cfg(not(target_os = "none"))]
#[must_use]
pub fn blacklist() -> Range<usize> {
    0..0
}
