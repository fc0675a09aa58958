//! Every word there is, against a decoder that was written independently.
//!
//! The masks in `classify` and yaxpeax-arm were derived from the same manual by different people, so what they
//! agree on is unlikely to be wrong. What the decoder says is PC-relative, a branch, a system instruction or an
//! exclusive must have exactly the verdict that follows from its operands, and in the groups that hold those classes
//! nothing else may: there all words are compared. Elsewhere, where an encoding that matters can only be hidden by its
//! destination register, the decoder is asked about four registers of 32; about all of them with `ORACLE_WORDS=all`,
//! which takes three times as long. The verdicts of all 2³² words are counted. A decoder cannot tell which system registers are
//! harmless: for those that are refused for what they are known to do, the verdict is exact, and for the rest it is one of
//! the verdicts of system registers. Where the two differ, `differences` says why, class by class: a difference that is not
//! listed fails, and so does a listed one that no longer exists.

mod differences;
mod expected;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{println, string::String, thread, vec::Vec};

use differences::DIFFERENCES;
use expected::{Decoder, Expected};

use super::exclusive::may_be_load;
use super::{Reason, Verdict, classify};

/// A thread takes this many words at a time.
const CHUNK: u32 = 1 << 20;

/// The destination registers with which the decoder is asked in the groups where not all words are compared: two that no
/// instruction treats as others, and two that some do.
const DESTINATIONS: [u32; 4] = [0, 1, 30, 31];

/// How many words run in a slot, by bits 28 to 25: what the lists of allocated encodings add up to. A number
/// that changes says that a list did, also in the groups where the decoder is not asked what is allocated.
const SLOTS: [u64; 16] = [
    0,
    0,
    0,
    0,
    143_360_000,
    148_897_792,
    146_995_200,
    49_626_112,
    71_303_168,
    103_022_592,
    96_100,
    0,
    116_334_720,
    20_800_896,
    68_198_400,
    26_162_176,
];

#[derive(Default)]
struct Findings {
    /// The decoder is asked about every word.
    is_exhaustive: bool,
    slots: [u64; 16],
    simulate: u64,
    /// By reason.
    reject: [u64; Reason::ALL.len()],
    differences: Vec<u64>,
    unlisted: u64,
    /// The first unlisted differences of each group of words.
    examples: BTreeMap<u32, (u32, Verdict, Expected)>,
}

impl Findings {
    fn new() -> Self {
        let is_exhaustive = std::env::var("ORACLE_WORDS").is_ok_and(|words| words == "all");
        Self { is_exhaustive, differences: std::vec![0; DIFFERENCES.len()], ..Self::default() }
    }

    fn look_at(&mut self, word: u32, decoder: &mut Decoder) {
        let verdict = classify(word);
        match verdict {
            Verdict::Slot => self.slots[(word >> 25 & 15) as usize] += 1,
            Verdict::Simulate(_) => self.simulate += 1,
            Verdict::Reject(reason) => self.reject[reason as usize] += 1,
        }
        assert!(verdict != Verdict::Reject(Reason::LoadExclusive) || may_be_load(word), "{word:#010x}");
        if !self.is_exhaustive && !is_compared_exactly(word) && !DESTINATIONS.contains(&(word & 31)) {
            return;
        }
        let expected = decoder.expect(word);
        if agree(word, verdict, expected) {
            return;
        }
        let listed = DIFFERENCES.iter().position(|difference| difference.explains(word, verdict));
        match listed.and_then(|index| self.differences.get_mut(index)) {
            Some(count) => *count += 1,
            None => {
                self.unlisted += 1;
                self.examples.entry(word >> 12).or_insert((word, verdict, expected));
            }
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, count) in self.slots.iter_mut().zip(&other.slots) {
            *sum += count;
        }
        self.simulate += other.simulate;
        for (sum, count) in self.reject.iter_mut().zip(&other.reject) {
            *sum += count;
        }
        for (sum, count) in self.differences.iter_mut().zip(&other.differences) {
            *sum += count;
        }
        self.unlisted += other.unlisted;
        for (&group, &example) in &other.examples {
            self.examples.entry(group).or_insert(example);
        }
    }
}

/// Whether the verdict is the one that follows from what the decoder says.
fn agree(word: u32, verdict: Verdict, expected: Expected) -> bool {
    match expected {
        Expected::Simulate(op) => verdict == Verdict::Simulate(op),
        Expected::Reject(reason) => verdict == Verdict::Reject(reason),
        Expected::System => matches!(
            verdict,
            Verdict::Slot
                | Verdict::Reject(
                    Reason::ExceptionState
                        | Reason::Translation
                        | Reason::DebugState
                        | Reason::CacheDiscard
                        | Reason::HigherLevel
                        | Reason::ImplementationDefined
                        | Reason::UnlistedSystem
                )
        ),
        Expected::Ordinary if is_compared_exactly(word) => verdict == Verdict::Slot,
        Expected::Invalid if is_compared_exactly(word) => verdict == Verdict::Reject(Reason::Unallocated),
        // Elsewhere the decoder's idea of what is allocated is not the question; what matters is that neither finds
        // there anything that depends on the program counter or the exclusive monitor.
        Expected::Ordinary | Expected::Invalid => matches!(
            verdict,
            Verdict::Slot
                | Verdict::Reject(Reason::Unallocated | Reason::Newer | Reason::Scalable | Reason::MemorySequence)
        ),
    }
}

/// The groups in which every word is compared: PC-relative addressing, branches and system instructions, literal
/// loads, exclusives.
fn is_compared_exactly(word: u32) -> bool {
    word & 0x1f00_0000 == 0x1000_0000
        || word & 0x1c00_0000 == 0x1400_0000
        || word & 0x3b00_0000 == 0x1800_0000
        || word & 0x3f00_0000 == 0x0800_0000
}

fn look_at_every_word() -> Findings {
    let next = AtomicU32::new(0);
    let worker = || {
        let mut findings = Findings::new();
        let mut decoder = Decoder::new();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            let Some(first) = chunk.checked_mul(CHUNK) else {
                return findings;
            };
            for word in first..=first + (CHUNK - 1) {
                findings.look_at(word, &mut decoder);
            }
        }
    };
    let mut findings = Findings::new();
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            findings.add(&worker.join().expect("no word makes classify panic"));
        }
    });
    findings
}

#[test]
#[cfg_attr(miri, ignore = "there are 2^32 words")]
fn every_word_has_the_verdict_that_its_decoding_asks_for() {
    let findings = look_at_every_word();
    let slot: u64 = findings.slots.iter().sum();
    println!("{slot:>12} slot\n{:>12} simulate", findings.simulate);
    for reason in Reason::ALL {
        println!("{:>12} reject: {reason:?}", findings.reject[reason as usize]);
    }
    for (difference, count) in DIFFERENCES.iter().zip(&findings.differences) {
        println!("{count:>12} differ: {}", difference.why);
    }
    let rejected: u64 = findings.reject.iter().sum();
    assert_eq!(slot + findings.simulate + rejected, 1 << 32);
    for reason in Reason::ALL {
        let of_one_word = reason != Reason::AfterModifier;
        assert_eq!(findings.reject[reason as usize] != 0, of_one_word, "{reason:?}");
    }
    assert_eq!(findings.slots, SLOTS);
    let unused: Vec<&str> = DIFFERENCES
        .iter()
        .zip(&findings.differences)
        .filter(|&(_, &count)| count == 0)
        .map(|(difference, _)| difference.why)
        .collect();
    assert!(unused.is_empty(), "listed, but not found: {unused:#?}");
    let examples: Vec<String> = findings
        .examples
        .values()
        .take(64)
        .map(|(word, verdict, expected)| std::format!("{word:08x}: {verdict:?}, expected {expected:?}"))
        .collect();
    assert!(examples.is_empty(), "{} unlisted, such as {examples:#?}", findings.unlisted);
}
