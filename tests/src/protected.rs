//! Pointer authentication and branch target identification protect control flow under probes, too.

use core::arch::asm;

use aarch64_kprobes::{Hit, Kprobe};

use crate::fixture::{self, Fixture};
use crate::simulated::compare;
use crate::test;

/// Sets keys, and enables their use: SCTLR_EL1.EnIA and EnIB.
pub fn enable_keys() {
    // SAFETY: only the fixtures use the keys, because the compiler signs nothing. APIAKeyLo_EL1 and the following
    // registers are given by number, because the target is Armv8.0.
    unsafe {
        asm!(
            "msr s3_0_c2_c1_0, {a}",
            "msr s3_0_c2_c1_1, {b}",
            "msr s3_0_c2_c1_2, {c}",
            "msr s3_0_c2_c1_3, {d}",
            "mrs {scratch}, sctlr_el1",
            "orr {scratch}, {scratch}, #0xc0000000",
            "msr sctlr_el1, {scratch}",
            "isb",
            a = in(reg) 0x0123_4567_89ab_cdefu64,
            b = in(reg) 0xfedc_ba98_7654_3210u64,
            c = in(reg) 0x0f1e_2d3c_4b5a_6978u64,
            d = in(reg) 0x8796_a5b4_c3d2_e1f0u64,
            scratch = out(reg) _,
            options(nostack),
        );
    }
}

/// Compares a fixture with and without probes, both without and with keys.
fn compare_signed(fixture: Fixture) {
    compare(fixture);
    enable_keys();
    compare(fixture);
}

test!(
    depends(entry),
    needs POINTER_AUTHENTICATION,
    fn signed_returns() {
        compare_signed(fixture::SIGNED_RETURN);
    }
);

test!(
    depends(entry),
    needs POINTER_AUTHENTICATION,
    fn signed_returns_by_the_other_key() {
        compare_signed(fixture::SIGNED_RETURN_BY_KEY_B);
    }
);

test!(
    depends(entry),
    needs POINTER_AUTHENTICATION,
    fn signed_calls() {
        compare_signed(fixture::SIGNED_CALLS);
    }
);

test!(
    depends(core),
    fn landing_pads_in_guarded_pages() {
        // SAFETY: no probe is on the page of the fixture yet.
        assert!(unsafe { runtime::memory::set_guarded(fixture::CALL_PAD.address(), true) });
        compare(fixture::CALL_PAD);
        compare(fixture::SIGNING_PAD);
    }
);

/// Skips a landing pad.
extern "C" fn skip(hit: &mut Hit<'_>) {
    // SAFETY: a landing pad has no effect but its check.
    unsafe { hit.skip() };
}

extern "C" fn ignore(_: &mut Hit<'_>) {}

test!(
    depends(core),
    fn a_landing_pad_can_be_skipped() {
        // SAFETY: no probe is on the page of the fixture yet.
        assert!(unsafe { runtime::memory::set_guarded(fixture::CALL_PAD.address(), true) });
        // By BLR, which sets PSTATE.BTYPE.
        let probe = Kprobe::at(fixture::CALL_PAD.address()).pre(skip).register().unwrap();
        assert_eq!(fixture::CALL_PAD.call_from_pattern(1), 2);
        assert_eq!(probe.hits(), 1);
        // A post-handler of a second probe has the hit handled in Rust.
        let second = Kprobe::at(fixture::CALL_PAD.address()).post(ignore).register().unwrap();
        assert_eq!(fixture::CALL_PAD.call_from_pattern(1), 2);
        assert_eq!([probe.hits(), second.missed()], [2, 1]);
    }
);

test!(
    depends(core),
    fn a_call_can_be_sent_past_a_landing_pad() {
        extern "C" fn to_return(hit: &mut Hit<'_>) {
            // SAFETY: the callee that the call was sent to is a leaf, which ends in this return.
            unsafe { hit.frame_mut() }.pc = fixture::CALL_PAD.address() as u64 + 8;
        }
        // SAFETY: no probe is on the page of the fixture yet.
        assert!(unsafe { runtime::memory::set_guarded(fixture::CALL_PAD.address(), true) });
        assert_eq!(fixture::PAD_CALLER.call(1), 2);
        let probe = Kprobe::at(fixture::call_of_pad()).post(to_return).register().unwrap();
        assert_eq!(fixture::PAD_CALLER.call(1), 1);
        assert_eq!(probe.hits(), 1);
    }
);
