//! Words assembled by hand and the verdicts on them, class by class. The exhaustive comparison is in `oracle`.

mod words;

use super::classify;
use crate::insn::verdict::{Reason, Verdict};
use words::{REJECTED, SIMULATED, SLOT, UNALLOCATED};

#[test]
fn what_depends_on_its_place_is_simulated_with_its_operands() {
    for &(word, op) in SIMULATED {
        assert_eq!(classify(word), Verdict::Simulate(op), "{word:#010x}");
    }
}

#[test]
fn what_does_not_runs_in_a_slot() {
    for &word in SLOT {
        assert_eq!(classify(word), Verdict::Slot, "{word:#010x}");
    }
}

#[test]
fn what_is_not_sound_is_refused_with_its_reason() {
    for &(word, reason) in REJECTED {
        assert_eq!(classify(word), Verdict::Reject(reason), "{word:#010x}");
    }
}

#[test]
fn what_is_not_allocated_is_refused() {
    for &word in UNALLOCATED {
        assert_eq!(classify(word), Verdict::Reject(Reason::Unallocated), "{word:#010x}");
    }
}

#[test]
fn every_reason_is_refused_somewhere_and_reads_as_the_end_of_a_sentence() {
    for reason in Reason::ALL {
        let listed = REJECTED.iter().any(|&(_, listed)| listed == reason);
        assert!(listed || reason == Reason::Unallocated, "{reason:?} has no word");
        let text = std::format!("{reason}");
        assert!(text.starts_with(|first: char| first.is_ascii_lowercase()), "{text}");
        assert!(!text.ends_with('.'), "{text}");
    }
}

#[test]
fn verdicts_can_be_had_at_compile_time() {
    const NOP: Verdict = classify(0xd503_201f);
    assert!(matches!(NOP, Verdict::Simulate(_)));
}
