//! Which functions are suspected of a lock, and which are not.

use super::{
    audit,
    stacks::{RET, jump},
};
use crate::audit::executable::Executable;

const NOP: u32 = 0xd503_201f;
/// `ldxr x8, [x9]`, `ldaxr w8, [x9]`, `add x8, x8, #1`, `stxr w10, x8, [x9]`.
const LDXR: u32 = 0xc85f_7d28;
const LDAXR: u32 = 0x885f_fd28;
const ADD: u32 = 0x9100_0508;
const STXR: u32 = 0xc80a_7d28;
/// `ldr x8, [x0]`, `ldar w8, [x0]`.
const LOAD: u32 = 0xf940_0008;
const LOAD_ACQUIRE: u32 = 0x88df_fc08;

/// Returns a `cbnz` of a 32-bit register, over this many bytes.
fn branch_if_not(register: u32, offset: i32) -> u32 {
    0x3500_0000 | ((offset >> 2).cast_unsigned() & 0x7_ffff) << 5 | register
}

/// Returns why the function is suspected. `None` if it is not.
fn suspected(words: &[u32]) -> Option<String> {
    let found = audit(&Executable::of(&[("root", 0, words)]), "[roots]\nroot = \"test\"\n");
    assert!(found.len() < 2, "{found:#?}");
    let found = found.first()?.strip_prefix("root: may take a lock or wait: the instruction at ").expect("a suspect");
    found.strip_suffix("; declare it in [locks] or [lock-free]").map(str::to_owned)
}

#[test]
fn a_counter_is_no_lock() {
    assert_eq!(suspected(&[LDXR, ADD, STXR, branch_if_not(10, -12), RET]), None);
    // Counters in a loop are not suspected.
    assert_eq!(suspected(&[LDXR, ADD, STXR, branch_if_not(10, -12), branch_if_not(1, -16), RET]), None);
    // A counter before a barrier is not suspected: dmb ishld.
    assert_eq!(suspected(&[LDXR, ADD, STXR, branch_if_not(10, -12), 0xd503_39bf, RET]), None);
    // A load-acquire alone takes no lock.
    assert_eq!(suspected(&[LOAD_ACQUIRE, RET]), None);
}

#[test]
fn an_atomic_access_that_acquires_may_be_a_lock() {
    let found = suspected(&[LDAXR, 0x880a_7d2b, branch_if_not(10, -8), RET]);
    assert_eq!(found.as_deref(), Some("0x0 (root) acquires"));
    // SWPA, CAS.
    assert_eq!(suspected(&[NOP, 0xf8a0_8041, RET]).as_deref(), Some("0x4 (root+0x4) acquires or compares"));
    assert_eq!(suspected(&[NOP, 0xc8a0_7c41, RET]).as_deref(), Some("0x4 (root+0x4) acquires or compares"));
    // SWP without acquire, once.
    assert_eq!(suspected(&[NOP, 0xf820_8041, RET]), None);
}

#[test]
fn an_exclusive_pair_that_compares_may_be_a_lock() {
    let found = suspected(&[LDXR, branch_if_not(8, 12), STXR, branch_if_not(10, -12), RET]);
    assert_eq!(found.as_deref(), Some("0x0 (root) compares"));
}

#[test]
fn an_atomic_access_that_a_barrier_makes_an_acquire_may_be_a_lock() {
    // swp x0, x1, [x2]; cbnz w1; dmb ishld.
    let found = suspected(&[0xf820_8041, branch_if_not(1, -4), 0xd503_39bf, RET]);
    assert_eq!(found.as_deref(), Some("0x0 (root) is an atomic access in a loop, with a barrier in the function"));
    assert_eq!(suspected(&[0xf820_8041, branch_if_not(1, -4), RET]), None);
}

#[test]
fn a_loop_that_looks_at_memory_again_and_again_waits() {
    let acquire = "0x0 (root) is a load-acquire in a loop";
    assert_eq!(suspected(&[LOAD_ACQUIRE, branch_if_not(8, -4), RET]).as_deref(), Some(acquire));
    let rereads = "0x0 (root) reads the same address in each iteration of a loop that stores nothing";
    assert_eq!(suspected(&[LOAD, branch_if_not(8, -4), RET]).as_deref(), Some(rereads));
    // Also with a limit to the turns: sub w1, w1, #1.
    assert_eq!(suspected(&[LOAD, 0x5100_0421, branch_if_not(1, -8), RET]).as_deref(), Some(rereads));
    // Also with the address computed anew in every turn: adr x0, .+4096.
    let found = suspected(&[0x1000_8000, LOAD, branch_if_not(8, -8), RET]);
    assert_eq!(
        found.as_deref(),
        Some("0x4 (root+0x4) reads the same address in each iteration of a loop that stores nothing")
    );
    // Also from the stack, beside a comparison: ldr x8, [sp]; cmp x9, #0. Also authenticated: ldrab x8, [x0].
    assert_eq!(suspected(&[0xf940_03e8, 0xf100_013f, branch_if_not(8, -8), RET]).as_deref(), Some(rereads));
    assert_eq!(suspected(&[0xf8a0_0408, branch_if_not(8, -4), RET]).as_deref(), Some(rereads));
    // Also beside what nothing is known about: a hint, paciasppc; and beside prfm pldl1keep, [x0].
    for unknown in [0xd503_253f, 0xdac1_a3fe, 0xf980_0000] {
        let found = suspected(&[LOAD, unknown, branch_if_not(8, -8), RET]);
        assert_eq!(found.as_deref(), Some(rereads), "{unknown:#010x}");
    }
    // Also by a load-exclusive without a store.
    assert_eq!(suspected(&[LDXR, NOP, branch_if_not(8, -8), RET]).as_deref(), Some("0x0 (root) compares"));
    // wfe; isb; also in an endless loop.
    for pause in [0xd503_205f, 0xd503_3fdf] {
        assert_eq!(suspected(&[pause, jump(-4)]).as_deref(), Some("0x0 (root) pauses in a loop"));
    }
}

#[test]
fn a_loop_that_goes_through_memory_does_not_wait() {
    // ldr w8, [x0, #4]!.
    assert_eq!(suspected(&[0xb840_4c08, branch_if_not(8, -4), RET]), None);
    // ldr x0, [x0]: a list.
    assert_eq!(suspected(&[0xf940_0000, branch_if_not(0, -4), RET]), None);
    // ldrb w11, [x9, x8]; add x8, x8, #1.
    assert_eq!(suspected(&[0x3868_692b, ADD, branch_if_not(11, -8), RET]), None);
    // str x8, [x1]: the stored value may be the one that is read.
    assert_eq!(suspected(&[LOAD, 0xf900_0028, branch_if_not(8, -8), RET]), None);
    // stgp x1, x2, [x3].
    assert_eq!(suspected(&[LOAD, 0x6900_0861, branch_if_not(8, -8), RET]), None);
}
