//! Compares the verdicts on all words with an independent decoder.
//!
//! The masks in `classify` and yaxpeax-arm were derived from the same manual by different people, so what they agree on
//! is unlikely to be wrong. A word that the decoder takes for PC-relative, a branch, a system instruction or an
//! exclusive must have exactly the verdict that follows from its operands. In the groups that hold those classes no
//! other word may have such a verdict, so there every word must agree exactly.
//!
//! | run | words with a verdict | words about which the decoder is asked |
//! |---|---|---|
//! | usual | a sample | the same sample |
//! | `--thorough` | all 2³² | a quarter |
//! | `ORACLE_WORDS=all` | all 2³² | all 2³², which takes four times as long |
//!
//! The sample has the words with [`SAMPLED`] in bits 4 to 0 and [`SOURCES`] in bits 9 to 5. In nearly all classes
//! these are numbers of registers. Where they select the instruction, the sample has all values: bits 4 to 0 of what
//! generates exceptions, and bits 9 to 5 of system instructions. A usual run does not see a verdict that is wrong only
//! for other numbers of registers, nor an offset that is wrong only with other values there.
//!
//! The quarter has one in eight of the offsets from the program counter (those whose bits 7 to 5 of the word equal its
//! bits 15 to 13, so that each bit takes both values); and in the other groups, where only the destination register
//! could hide an encoding that matters, four registers of 32. The verdicts on the words are counted.
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
use kprobes_random::tried::is_thorough;

use super::control::Control;
use super::exclusive::may_be_load;
use super::{Reason, Verdict, classify, may_branch};

/// The number of words that a thread takes at a time.
const CHUNK: u32 = 1 << 20;

/// The destination registers with which the decoder is asked in groups where not all words are compared: two that no
/// instruction treats specially, and two that some do.
const DESTINATIONS: [u32; 4] = [0, 1, 30, 31];

/// Bits 4 to 0 of the sample: [`DESTINATIONS`], and values that select an instruction in the classes that have no
/// destination there (FCMP, SETF8).
const SAMPLED: [u32; 8] = [0, 1, 8, 13, 16, 24, 30, 31];

/// Bits 9 to 5 of the sample: each bit is set in one, and clear in another.
const SOURCES: [u32; 5] = [0, 5, 10, 16, 31];

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
    116_292_480,
    20_800_964,
    68_198_400,
    26_162_176,
];

/// The part of [`SLOTS`] that is in the sample.
const SLOTS_OF_SAMPLE: [u64; 16] = [
    0, 0, 0, 0, 5_600_960, 5_816_320, 5_742_000, 1_938_520, 2_785_280, 4_024_320, 24_252, 0, 4_539_130, 812_624,
    2_668_800, 1_028_584,
];

/// The words that are looked at.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Scope {
    /// A sample, about which the decoder is asked.
    #[default]
    Sample,
    /// Every word. The decoder is asked about a quarter.
    Every,
    /// Every word. The decoder is asked about all.
    EveryWithDecoder,
}

impl Scope {
    /// Returns the scope that the environment asks for.
    fn wanted() -> Self {
        if std::env::var("ORACLE_WORDS").is_ok_and(|words| words == "all") {
            return Self::EveryWithDecoder;
        }
        if is_thorough() { Self::Every } else { Self::Sample }
    }

    fn has(self, word: u32) -> bool {
        if self != Self::Sample {
            return true;
        }
        let has_destination = SAMPLED.contains(&(word & 31)) || word >> 24 == 0xd4;
        let has_source = SOURCES.contains(&(word >> 5 & 31)) || word >> 24 == 0xd5;
        has_destination && has_source
    }

    fn asks_about(self, word: u32) -> bool {
        self != Self::Every || is_asked_about(word)
    }
}

#[derive(Default)]
struct Findings {
    scope: Scope,
    words: u64,
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
        Self { scope: Scope::wanted(), differences: std::vec![0; DIFFERENCES.len()], ..Self::default() }
    }

    fn look_at(&mut self, word: u32, decoder: &mut Decoder) {
        self.words += 1;
        let verdict = classify(word);
        match verdict {
            Verdict::Slot => self.slots[(word >> 25 & 15) as usize] += 1,
            Verdict::Simulate(_) => self.simulate += 1,
            Verdict::Reject(reason) => self.reject[reason as usize] += 1,
        }
        assert!(verdict != Verdict::Reject(Reason::LoadExclusive) || may_be_load(word), "{word:#010x}");
        assert!(Control::after(word, verdict) == Control::Next || may_branch(word), "{word:#010x}");
        if !self.scope.asks_about(word) {
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
        self.words += other.words;
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

/// Returns whether the decoder is asked about `word` if it is asked about a quarter of the words.
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

fn look_at_words() -> Findings {
    let next = AtomicU32::new(0);
    let worker = || {
        let mut findings = Findings::new();
        let mut decoder = Decoder::new();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            let Some(first) = chunk.checked_mul(CHUNK) else {
                return findings;
            };
            // What is looked at does not depend on bits 23 to 10.
            let ends: Vec<u32> = (0..1 << 10).filter(|end| findings.scope.has(first | end)).collect();
            for start in (first..=first + (CHUNK - 1)).step_by(1 << 10) {
                ends.iter().for_each(|end| findings.look_at(start | end, &mut decoder));
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
    let findings = look_at_words();
    let is_sample = findings.scope == Scope::Sample;
    let slot: u64 = findings.slots.iter().sum();
    println!("{slot:>12} slot\n{:>12} simulate", findings.simulate);
    for reason in Reason::ALL {
        println!("{:>12} reject: {reason:?}", findings.reject[reason as usize]);
    }
    for (difference, count) in DIFFERENCES.iter().zip(&findings.differences) {
        println!("{count:>12} differ: {}", difference.why);
    }
    let rejected: u64 = findings.reject.iter().sum();
    assert_eq!(slot + findings.simulate + rejected, findings.words);
    assert!(is_sample || findings.words == 1 << 32);
    for reason in Reason::ALL {
        let of_one_word = !matches!(reason, Reason::AfterModifier | Reason::EventSite);
        assert_eq!(findings.reject[reason as usize] != 0, of_one_word, "{reason:?}");
    }
    assert_eq!(findings.slots, if is_sample { SLOTS_OF_SAMPLE } else { SLOTS });
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
