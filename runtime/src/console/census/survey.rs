//! What the engine's check says of every instruction of a function, at once.
//!
//! Asked about one address, the check reads the whole function to find exclusive sequences. Asked about each, it
//! would take a time that grows with the square of a function's length, and most functions have none.

use core::ops::Range;

use aarch64_kprobes::ProbeError;
use aarch64_kprobes::insn::{self, Reason, Verdict};
use aarch64_kprobes::probe::Site;

/// The answers of [`check`](aarch64_kprobes::probe::check) for the instructions of a function in the text, which
/// begins at the virtual address `start` and consists of `words`, as they are without probes.
pub fn survey(start: usize, words: &[u32], blacklist: &Range<usize>) -> impl Iterator<Item = Result<Site, ProbeError>> {
    let function = start as u64..(start + 4 * words.len()) as u64;
    let read = move |address: u64| words[(address as usize - start) / 4];
    let sequences = words.iter().any(|&word| insn::classify(word) == Verdict::Reject(Reason::LoadExclusive));
    words.iter().enumerate().map(move |(index, &word)| {
        let address = start + 4 * index;
        if blacklist.contains(&address) {
            return Err(ProbeError::Blacklisted { address });
        }
        let verdict = insn::classify(word);
        if let Verdict::Reject(reason) = verdict {
            return Err(ProbeError::Instruction { address, word, reason });
        }
        let load = if sequences { insn::region_containing(function.clone(), address as u64, read) } else { None };
        match load {
            Some(load) => Err(ProbeError::Exclusive { address, load: load as usize }),
            None => Ok(Site { word, verdict }),
        }
    })
}
