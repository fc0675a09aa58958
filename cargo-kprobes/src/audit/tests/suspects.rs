//! Which functions are suspected of a lock, and which are not.

use super::{
    audit,
    stacks::{RET, call, jump},
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
    suspected_with(words, &[])
}

/// Returns why the function is suspected if there are also these functions. `None` if it is not.
fn suspected_with(words: &[u32], others: &[(&str, u64, &[u32])]) -> Option<String> {
    let mut functions = vec![("root", 0_u64, words)];
    functions.extend(others);
    let found = audit(&Executable::of(&functions), "[roots]\nroot = \"test\"\n");
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

/// Returns why the function is suspected if an outlined function at 0x100 has these words. `None` if it is not.
fn suspected_by_outlined(words: &[u32], outlined: &[u32]) -> Option<String> {
    suspected_with(words, &[("OUTLINED_FUNCTION_7", 0x100, outlined)])
}

const OUTLINED_REREADS: &str =
    "0x100 (OUTLINED_FUNCTION_7) reads the same address in each iteration of a loop that stores nothing";

#[test]
fn a_loop_waits_with_instructions_of_an_outlined_function() {
    let root = [call(0x100), branch_if_not(8, -4), RET];
    let found = suspected_by_outlined(&root, &[LOAD_ACQUIRE, RET]);
    assert_eq!(found.as_deref(), Some("0x100 (OUTLINED_FUNCTION_7) is a load-acquire in a loop"));
    // ldarb w8, [x19]; and w8, w8, #1; and before tbnz w8, #0.
    let found = suspected_by_outlined(&[call(0x100), 0x3707_ffe8, RET], &[0x08df_fe68, 0x1200_0108, RET]);
    assert_eq!(found.as_deref(), Some("0x100 (OUTLINED_FUNCTION_7) is a load-acquire in a loop"));
    assert_eq!(suspected_by_outlined(&root, &[LOAD, RET]).as_deref(), Some(OUTLINED_REREADS));
    // yield; wfe.
    for pause in [0xd503_203f, 0xd503_205f] {
        let found = suspected_by_outlined(&root, &[pause, RET]);
        assert_eq!(found.as_deref(), Some("0x100 (OUTLINED_FUNCTION_7) pauses in a loop"));
    }
    // The address is computed anew in every turn: adr x0, .+4096.
    let computed = [0x1000_8000, call(0x100 - 4), branch_if_not(8, -8), RET];
    assert_eq!(suspected_by_outlined(&computed, &[LOAD, RET]).as_deref(), Some(OUTLINED_REREADS));
    // The link register is kept across the call: str x30, [sp, #-16]!; ldr x30, [sp], #16.
    let (keep, restore) = (0xf81f_0ffe, 0xf841_07fe);
    let keeping = [keep, call(0x100 - 4), restore, branch_if_not(8, -12), RET];
    assert_eq!(suspected_by_outlined(&keeping, &[LOAD, RET]).as_deref(), Some(OUTLINED_REREADS));
    // The outlined function calls another one, or goes on in it.
    for inner in [&[keep, call(0x200 - 0x104), restore, RET][..], &[jump(0x200 - 0x100)]] {
        let others = [("OUTLINED_FUNCTION_7", 0x100, inner), ("OUTLINED_FUNCTION_8", 0x200, &[LOAD, RET][..])];
        let found = suspected_with(&root, &others);
        let expected =
            "0x200 (OUTLINED_FUNCTION_8) reads the same address in each iteration of a loop that stores nothing";
        assert_eq!(found.as_deref(), Some(expected));
    }
}

#[test]
fn a_barrier_in_an_outlined_function_is_one_of_its_caller() {
    // swp x0, x1, [x2]; dmb ishld.
    let (swap, barrier) = (0xf820_8041, 0xd503_39bf);
    let expected = "is an atomic access in a loop, with a barrier in the function";
    for root in [
        [swap, branch_if_not(1, -4), call(0x100 - 8), RET],
        [swap, branch_if_not(1, -4), jump(0x100 - 8), RET],
        [swap, call(0x100 - 4), branch_if_not(1, -8), RET],
    ] {
        let found = suspected_by_outlined(&root, &[barrier, RET]);
        assert_eq!(found, Some(format!("0x0 (root) {expected}")));
    }
    let found = suspected_by_outlined(&[call(0x100), branch_if_not(1, -4), barrier, RET], &[swap, RET]);
    assert_eq!(found, Some(format!("0x100 (OUTLINED_FUNCTION_7) {expected}")));
}

#[test]
fn a_loop_with_an_outlined_function_that_goes_through_memory_does_not_wait() {
    let root = [call(0x100), branch_if_not(8, -4), RET];
    // ldr w8, [x0, #4]!; str x8, [x1].
    assert_eq!(suspected_by_outlined(&root, &[0xb840_4c08, RET]), None);
    assert_eq!(suspected_by_outlined(&root, &[LOAD, 0xf900_0028, RET]), None);
    // The address changes in the caller: add x0, x0, #8.
    let moving = [call(0x100), 0x9100_2000, branch_if_not(8, -8), RET];
    assert_eq!(suspected_by_outlined(&moving, &[LOAD, RET]), None);
    // Without a loop, these are not suspected. Neither are they after the loop.
    assert_eq!(suspected_by_outlined(&[call(0x100), RET], &[LOAD_ACQUIRE, LOAD, RET]), None);
    assert_eq!(suspected_by_outlined(&[ADD, branch_if_not(8, -4), jump(0x100 - 8)], &[LOAD_ACQUIRE, RET]), None);
    // A counter before a barrier: dmb ishld.
    let counter = [call(0x100), branch_if_not(10, -4), 0xd503_39bf, RET];
    assert_eq!(suspected_by_outlined(&counter, &[LDXR, ADD, STXR, RET]), None);
    let repeated = [call(0x100), branch_if_not(10, -4), branch_if_not(1, -8), RET];
    assert_eq!(suspected_by_outlined(&repeated, &[LDXR, ADD, STXR, RET]), None);
}

#[test]
fn a_loop_of_reads_that_may_fault_waits_if_the_address_is_always_the_same() {
    // ldr x0, [x0]; mov x1, #0.
    let read = ("kprobes_nofault_load8", 0x100, &[0xf940_0000, 0xd280_0001, RET][..]);
    // The address is in another register: mov x0, x8; add x8, x8, #1.
    let moving = [0xaa08_03e0, call(0x100 - 4), ADD, branch_if_not(0, -12), RET];
    assert_eq!(suspected_with(&moving, &[read]), None);
    // adr x0, .+4096.
    let found = suspected_with(&[0x1000_8000, call(0x100 - 4), branch_if_not(0, -8), RET], &[read]);
    let expected =
        "0x100 (kprobes_nofault_load8) reads the same address in each iteration of a loop that stores nothing";
    assert_eq!(found.as_deref(), Some(expected));
}
