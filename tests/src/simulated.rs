//! Every instruction of a function is probed and has the same effect as before: instructions of each kind, simulated or
//! stepped, one at a time and all at once.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::insn::{Op, Verdict, classify};
use aarch64_kprobes::probe::Mode;
use aarch64_kprobes::{Hit, Kprobe, probe};

use crate::fixture::{self, Fixture};
use crate::test;

/// Arguments that distinguish the halves, the signs and the comparisons in the fixtures.
const ARGUMENTS: [u64; 14] = [
    0,
    1,
    6,
    7,
    8,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x1_0000_0001,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0x8000_0000_0000_0007,
    0xffff_ffff_0000_0000,
    u64::MAX,
];

static HITS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: &mut Hit<'_>) {
    HITS.fetch_add(1, Relaxed);
}

/// Calls `fixture` with all arguments, from one call site, because some fixtures return where they were called.
#[inline(never)]
fn call_all(fixture: Fixture) -> [u64; ARGUMENTS.len()] {
    ARGUMENTS.map(
        #[inline(never)]
        |argument| fixture.call(argument),
    )
}

/// Compares the results of `fixture` without probes, with a probe on each instruction in turn, and with probes on all
/// instructions at once, in every mode.
pub fn compare(fixture: Fixture) {
    extern "C" fn after(_: &mut Hit<'_>) {}
    let expected = call_all(fixture);
    let mut hits = 0;
    for mode in [Mode::Stepped, Mode::Boosted, Mode::Optimized] {
        let start = HITS.load(Relaxed);
        hits = 0;
        for address in fixture.instructions() {
            let builder = Kprobe::at(address).pre(count).at_most(mode);
            let builder = if mode == Mode::Stepped { builder.post(after) } else { builder };
            let probe = builder.register().expect("the instruction can be probed");
            assert_eq!(call_all(fixture), expected, "with a probe at {address:#x}, {mode} at most");
            assert_eq!(probe.missed(), 0);
            hits += probe.hits();
        }
        assert_eq!(call_all(fixture), expected, "after the probes have gone");
        assert_eq!(HITS.load(Relaxed) - start, hits, "the handlers were called as often as the probes say");
    }
    for mode in [Mode::Boosted, Mode::Optimized] {
        let before = HITS.load(Relaxed);
        let probes = fixture.instructions().map(|address| Kprobe::at(address).pre(count).at_most(mode));
        let probes = Kprobe::register_all(probes).expect("there is memory for the lists");
        assert!(probes.iter().all(Result::is_ok));
        assert_eq!(call_all(fixture), expected, "with probes on all instructions, {mode} at most");
        assert_eq!(HITS.load(Relaxed) - before, hits, "every instruction is hit as often as alone");
    }
}

test!(
    fn addresses() {
        compare(fixture::ADDRESSES);
    }
);

test!(
    fn addresses_of_other_pages() {
        compare(fixture::FAR);
    }
);

test!(
    fn what_the_linker_leads_elsewhere_for_the_sake_of_an_erratum() {
        /// The index of the load from the page.
        const LOAD: usize = 4;
        let address = fixture::END_OF_PAGE.instructions().nth(LOAD).expect("an instruction");
        let word = probe::instruction(address).expect("it is in the text");
        let Verdict::Simulate(Op::Branch { offset }) = classify(word) else {
            panic!("the linker has left {word:#010x} at {address:#x}");
        };
        let moved = address.wrapping_add_signed(offset as isize);
        let expected = fixture::END_OF_PAGE.call(5);
        for mode in [Mode::Boosted, Mode::Optimized] {
            let placed =
                Kprobe::at(moved).pre(count).at_most(mode).register().expect("it is an instruction as others are");
            assert_eq!(fixture::END_OF_PAGE.call(5), expected);
            assert_eq!((placed.hits(), placed.missed()), (1, 0));
        }
        compare(fixture::END_OF_PAGE);
    }
);

test!(
    fn literals() {
        compare(fixture::LITERALS);
    }
);

test!(
    fn conditional_branches() {
        compare(fixture::BRANCHES);
    }
);

test!(
    fn calls() {
        compare(fixture::CALLS);
    }
);

test!(
    fn returns_by_another_register() {
        compare(fixture::CALLEE);
    }
);

test!(
    depends(core),
    fn hints_and_landing_pads() {
        compare(fixture::HINTS);
    }
);

test!(
    fn ordinary_instructions() {
        compare(fixture::ORDINARY);
    }
);

test!(
    depends(entry),
    fn interrupt_masks() {
        compare(fixture::INTERRUPT_MASKS);
    }
);

test!(
    fn stack_pointer() {
        compare(fixture::STACK_POINTER);
    }
);

test!(
    fn registers_and_flags() {
        assert_eq!(fixture::CHECK_REGISTERS.call(0), 0, "without probes");
        compare(fixture::REGISTERS);
        let _probes: Vec<_> =
            fixture::REGISTERS.instructions().map(|address| Kprobe::at(address).pre(count).register()).collect();
        assert_eq!(fixture::CHECK_REGISTERS.call(0), 0, "with probes");
    }
);
