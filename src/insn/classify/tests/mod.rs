//! Words assembled by hand and the verdicts on them, class by class. The exhaustive comparison is in `oracle`.

mod floating;
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
        let is_elsewhere = matches!(reason, Reason::Unallocated | Reason::AfterModifier | Reason::EventSite);
        assert!(listed || is_elsewhere, "{reason:?} has no word");
        let text = std::format!("{reason}");
        assert!(text.starts_with(|first: char| first.is_ascii_lowercase()), "{text}");
        assert!(!text.ends_with('.'), "{text}");
    }
}

/// The number of all system registers and operations that run in a slot is the sum of the lists of harmless ones.
#[test]
#[cfg_attr(miri, ignore = "there are 114 688 registers and operations")]
fn a_system_register_or_operation_is_harmless_only_if_it_is_listed() {
    let harmless =
        |first: u32, names: u32| (0..names).filter(|name| classify(first | name << 5) == Verdict::Slot).count();
    let [mrs, msr] = [0xd530_0000, 0xd510_0000].map(|first| harmless(first, 1 << 15));
    assert_eq!((mrs, msr), (1605, 1249));
    let [sys, sysl, sysp] = [0xd508_0000, 0xd528_0000, 0xd548_0000].map(|first| harmless(first, 1 << 14));
    assert_eq!((sys, sysl, sysp), (110, 2, 48));
}

#[test]
fn verdicts_can_be_had_at_compile_time() {
    const NOP: Verdict = classify(0xd503_201f);
    assert!(matches!(NOP, Verdict::Simulate(_)));
}
