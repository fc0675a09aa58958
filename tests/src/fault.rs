//! Instructions that fault under a probe do so as without one: with the same exception, address and registers. After
//! the fault is repaired, they also continue as without a probe.

use alloc::vec::Vec;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe::Mode;
use aarch64_kprobes::{Hit, Kprobe};
use runtime::{exception, memory, sync::IrqLock};

use crate::fixture::{self, Fixture};
use crate::protected::enable_keys;
use crate::random::features::Features;
use crate::test;

/// An unmapped address.
const WILD: u64 = 0xffff_ffd0_0000_0010;
/// The value that a fixture returns when its fault was handled by a return to its caller.
const REPAIRED: u64 = 0x4e50;

/// The state that the kernel sees at a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    esr: u64,
    /// FAR_EL1, for an abort; other exceptions do not set it.
    far: Option<u64>,
    x: [u64; 31],
    sp: u64,
    pc: u64,
    pstate: u64,
}

static FAULTS: IrqLock<Vec<Fault>> = IrqLock::new(Vec::new());

/// Records the fault, and returns to the caller of the fixture.
fn note_and_return(frame: &mut TrapFrame, esr: u64, far: u64) -> bool {
    let is_abort = matches!(esr >> 26, 0x21 | 0x25);
    let TrapFrame { x, sp, pc, pstate, .. } = *frame;
    // ALLINT (FEAT_NMI) is set by every exception, and has no meaning while SCTLR_EL1.NMI is clear. It is no part of a
    // task's context, so its value depends on what ran before on this CPU.
    let pstate = pstate & !(1 << 13);
    FAULTS.lock().push(Fault { esr, far: is_abort.then_some(far), x, sp, pc, pstate });
    frame.pc = frame.x[9];
    frame.x[30] = frame.x[9];
    frame.x[0] = REPAIRED;
    // The next instruction is no landing pad, so PSTATE.BTYPE must be as after a return.
    frame.pstate &= !(0b11 << 10);
    true
}

/// Calls `fixture` with the same registers each time, and returns its faults and its result.
#[inline(never)]
fn faults_of(fixture: Fixture, argument: u64) -> (Vec<Fault>, u64) {
    FAULTS.lock().clear();
    let result = fixture.call_from_pattern(argument);
    (core::mem::take(&mut *FAULTS.lock()), result)
}

static HITS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: &mut Hit<'_>) {
    HITS.fetch_add(1, Relaxed);
}

extern "C" fn never(_: &mut Hit<'_>) {
    panic!("the instruction has not been executed");
}

/// Compares the faults of `fixture` with and without a probe on the instruction at index `faulting`.
fn compare(fixture: Fixture, argument: u64, faulting: usize) {
    // SAFETY: the handler returns to the caller of a fixture, which accepts any word.
    unsafe { exception::set_fault_handler(note_and_return) };
    let expected = faults_of(fixture, argument);
    let address = fixture.address() + 4 * faulting;
    for (round, mode) in (1..).zip([Mode::Stepped, Mode::Stepped, Mode::Boosted, Mode::Optimized]) {
        let builder = Kprobe::at(address).pre(count).at_most(mode);
        let builder = if mode == Mode::Stepped { builder.post(never) } else { builder };
        let probe = builder.register().unwrap();
        assert_eq!(faults_of(fixture, argument), expected, "{mode} at most");
        assert_eq!((probe.hits(), probe.missed(), HITS.load(Relaxed)), (1, 0, round));
        // The CPU has left the hit, so another probe is hit normally.
        let other = Kprobe::at(fixture::IDENTITY.address()).pre(count).register().unwrap();
        HITS.fetch_sub(1, Relaxed);
        assert_eq!(fixture::IDENTITY.call(3), 3);
        assert_eq!((other.hits(), other.missed()), (1, 0));
    }
}

core::arch::global_asm!(include_str!("vector.S"));

unsafe extern "C" {
    safe fn vector_table();
}

test!(
    depends(core),
    fn a_kernel_with_vectors_of_its_own_sees_them_as_they_are() {
        // SAFETY: these vectors pass exceptions that are not the engine's to the original vectors.
        unsafe { asm!("msr vbar_el1, {}", "isb", in(reg) vector_table as *const ()) };
        compare(fixture::BAD_LOAD, WILD, 1);
        HITS.store(0, Relaxed);
        compare(fixture::BAD_STORE, WILD, 1);
        HITS.store(0, Relaxed);
        compare(fixture::BAD_LITERAL, 0, 1);
        HITS.store(0, Relaxed);
        // Where the instruction is undefined, the engine synthesizes the exception: the CPU has never taken it.
        if Features::read().pointer_authentication() {
            enable_keys();
        }
        compare(fixture::FORGED_CALL, 0, 1);
    }
);

test!(
    fn loads() {
        compare(fixture::BAD_LOAD, WILD, 1);
    }
);

test!(
    fn stores() {
        compare(fixture::BAD_STORE, WILD, 1);
    }
);

test!(
    fn literals() {
        compare(fixture::BAD_LITERAL, 0, 1);
    }
);

test!(
    depends(entry),
    // Without the extension RETAA is undefined, but QEMU 10.0 executes it as a RET.
    needs POINTER_AUTHENTICATION,
    fn forged_returns() {
        enable_keys();
        compare(fixture::FORGED_RETURN, 0, 1);
    }
);

test!(
    depends(core, entry),
    fn forged_calls() {
        // Without the extension BLRAA is undefined, both with and without a probe.
        if Features::read().pointer_authentication() {
            enable_keys();
        }
        compare(fixture::FORGED_CALL, 0, 1);
    }
);

/// Calls the first instruction of `fixture`, in a guarded page, as `blr` does. After a fault, control returns from the
/// fixture only by the handler.
fn compare_branch_target(fixture: Fixture) {
    fn note_and_return_by_link(frame: &mut TrapFrame, esr: u64, far: u64) -> bool {
        frame.x[9] = frame.x[30];
        note_and_return(frame, esr, far)
    }
    // SAFETY: the handler returns to the caller of a fixture, which accepts any word.
    unsafe { exception::set_fault_handler(note_and_return_by_link) };
    // SAFETY: no probe is on the page of the fixture yet.
    assert!(unsafe { memory::set_guarded(fixture.address(), true) });
    let expected = faults_of(fixture, 1);
    // The branch that replaces an optimized instruction faults as the instruction would, before the probe is hit.
    for mode in [Mode::Optimized, Mode::Boosted] {
        for address in [fixture.address(), fixture.address() + 4] {
            let _probe = Kprobe::at(address).pre(count).at_most(mode).register().unwrap();
            assert_eq!(faults_of(fixture, 1), expected, "with a probe at {address:#x}, {mode}");
        }
    }
    assert!(HITS.load(Relaxed) > 0);
}

test!(
    depends(core),
    fn calls_of_a_jump_pad() {
        compare_branch_target(fixture::JUMP_PAD);
    }
);

test!(
    depends(core),
    fn calls_of_no_pad() {
        compare_branch_target(fixture::NO_PAD);
    }
);

test!(
    depends(core),
    fn calls_of_no_pad_but_a_simulated_instruction() {
        compare_branch_target(fixture::NO_PAD_SIMULATED);
    }
);

test!(
    fn a_repaired_fault_is_retried_and_hit_again() {
        static GOOD: AtomicU64 = AtomicU64::new(77);
        fn repair(frame: &mut TrapFrame, _: u64, far: u64) -> bool {
            assert_eq!((far, frame.pc), (WILD, fixture::BAD_LOAD.address() as u64 + 4));
            frame.x[0] = GOOD.as_ptr() as u64;
            true
        }
        // SAFETY: the handler gives the load a readable address.
        unsafe { exception::set_fault_handler(repair) };
        let probe = Kprobe::at(fixture::BAD_LOAD.address() + 4).pre(count).register().unwrap();
        assert_eq!(fixture::BAD_LOAD.call(WILD), 77);
        assert_eq!((probe.hits(), probe.missed()), (2, 0));
    }
);

test!(
    stops "read from unmapped memory at 0xffffffd000000010 by fixture_bad_load+0x4",
    fn an_unrepaired_fault_is_reported_at_the_probe() {
        let _probe = Kprobe::at(fixture::BAD_LOAD.address() + 4).pre(count).register().unwrap();
        fixture::BAD_LOAD.call(WILD);
    }
);
