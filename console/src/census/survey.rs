//! Does the engine's check for all instructions of a function at once.

use core::ops::Range;

use aarch64_kprobes::ProbeError;
use aarch64_kprobes::insn::{self, Data, Reason, Sequences, Verdict};
use aarch64_kprobes::probe::CheckedInstruction;
use fallible::OutOfMemory;

/// Facts about virtual addresses that the words there do not tell.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Whether the kernel says that there is data in a range.
    pub has_data: fn(Range<usize>) -> bool,
    /// Whether a static event happens at an address.
    pub is_event: fn(usize) -> bool,
}

/// Returns the results of [`check`](aarch64_kprobes::probe::check) for the instructions of a function in the text. The
/// function begins at the virtual address `start` and consists of `words`, as they are without probes. `at` answers
/// questions about addresses.
///
/// # Errors
///
/// There is no memory to analyze the function.
pub fn survey(
    start: usize,
    words: &[u32],
    blacklist: &Range<usize>,
    at: At,
) -> Result<impl Iterator<Item = Result<CheckedInstruction, ProbeError>>, OutOfMemory> {
    let function = start as u64..(start + 4 * words.len()) as u64;
    let word_at = |address: u64| words[(address as usize - start) / 4];
    let (sequences, data) = (Sequences::of(function.clone(), word_at)?, Data::of(function, word_at)?);
    Ok(words.iter().enumerate().map(move |(index, &word)| {
        let address = start + 4 * index;
        if blacklist.contains(&address) {
            return Err(ProbeError::Blacklisted { address });
        }
        if let Some(reader) = data.reader(address as u64) {
            return Err(ProbeError::Data { address, reader: Some(reader as usize) });
        }
        if (at.has_data)(address..address + 4) {
            return Err(ProbeError::Data { address, reader: None });
        }
        if (at.is_event)(address) {
            return Err(ProbeError::Instruction { address, word, reason: Reason::EventSite });
        }
        let verdict = insn::classify(word);
        if let Verdict::Reject(reason) = verdict {
            return Err(ProbeError::Instruction { address, word, reason });
        }
        if index > 0 && insn::modifies_next(words[index - 1]) {
            return Err(ProbeError::Instruction { address, word, reason: Reason::AfterModifier });
        }
        match sequences.containing(address as u64) {
            Ok(Some(load)) => Err(ProbeError::Exclusive { address, load: load as usize }),
            Ok(None) => Ok(CheckedInstruction { word, verdict }),
            Err(OutOfMemory) => Err(ProbeError::OutOfMemory { address }),
        }
    }))
}
