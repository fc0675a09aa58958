//! Compares the verdicts on all words with an independent decoder.
//!
//! The masks in `classify` and yaxpeax-arm were derived from the same manual by different people, so what they agree on
//! is unlikely to be wrong. A word that the decoder takes for PC-relative, a branch, a system instruction or an
//! exclusive must have exactly the verdict that follows from its operands. In the groups that hold those classes no
//! other word may have such a verdict, so there every word must agree exactly.
//!
//! The decoder is not asked about all words, but about one in eight of the offsets from the program counter (those
//! whose bits 7 to 5 of the word equal its bits 15 to 13, so that each bit takes both values); and in the other groups,
//! where only the destination register could hide an encoding that matters, about four registers of 32. With
//! `ORACLE_WORDS=all` it is asked about all words, which takes four times as long. The verdicts on all 2³² words are
//! counted.
//!
//! A decoder cannot tell which system registers are harmless. For a register that is refused for a known effect, the
//! verdict is compared exactly; for all others it must be one of the verdicts on system registers. `differences`
//! explains, class by class, where the two differ: a difference that is not listed fails the test, and so does a listed
//! one that no longer exists.

mod differences;
mod expected;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{println, string::String, thread, vec::Vec};

use differences::DIFFERENCES;
use expected::{Decoder, Expected};

use super::exclusive::may_be_load;
use super::{Reason, Verdict, classify, may_branch};

/// The number of words that a thread takes at a time.
const CHUNK: u32 = 1 << 20;

/// The destination registers with which the decoder is asked in groups where not all words are compared: two that no
/// instruction treats specially, and two that some do.
const DESTINATIONS: [u32; 4] = [0, 1, 30, 31];

/// The number of words that run in a slot, by bits 28 to 25: the sum of the lists of allocated encodings. If one of
/// these numbers changes, a list has changed, also in groups where the decoder is not asked what is allocated.
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
    /// Whether the decoder is asked about every word.
    is_exhaustive: bool,
    slots: [u64; 16],
    simulate: u64,
    /// The number of refused words, by reason.
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
        let branches = matches!(verdict, Verdict::Simulate(op) if op.branch_offset().is_some() || op.is_jump());
        assert!(!branches || may_branch(word), "{word:#010x}");
        if !self.is_exhaustive && !is_asked_about(word) {
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

/// Returns whether the verdict is the one that follows from the decoding.
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
        // In the other groups it does not matter what the decoder takes for allocated. It matters that neither finds
        // anything there that depends on the program counter or the exclusive monitor.
        Expected::Ordinary | Expected::Invalid => matches!(
            verdict,
            Verdict::Slot
                | Verdict::Reject(Reason::Unallocated | Reason::Newer | Reason::Scalable | Reason::MemorySequence)
        ),
    }
}

/// Returns whether `word` is in a group in which every word must agree exactly: PC-relative addressing, branches and
/// system instructions, literal loads, exclusives.
fn is_compared_exactly(word: u32) -> bool {
    word & 0x1f00_0000 == 0x1000_0000
        || word & 0x1c00_0000 == 0x1400_0000
        || word & 0x3b00_0000 == 0x1800_0000
        || word & 0x3f00_0000 == 0x0800_0000
}

/// Returns whether the decoder is asked about `word` if it is not asked about every word.
fn is_asked_about(word: u32) -> bool {
    if has_offset(word) {
        return word >> 5 & 7 == word >> 13 & 7;
    }
    is_compared_exactly(word) || DESTINATIONS.contains(&(word & 31))
}

/// Returns whether `word` is in a class of instructions that add an offset to the program counter. Bits 18 to 5 are in
/// the offset.
fn has_offset(word: u32) -> bool {
    // ADR and ADRP; B and BL; CBZ, CBNZ, TBZ and TBNZ; B.cond and BC.cond; literal loads.
    word & 0x1f00_0000 == 0x1000_0000
        || word & 0x7c00_0000 == 0x1400_0000
        || word & 0x7c00_0000 == 0x3400_0000
        || word & 0xff00_0000 == 0x5400_0000
        || word & 0x3b00_0000 == 0x1800_0000
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
        let of_one_word = !matches!(reason, Reason::AfterModifier | Reason::EventSite);
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
