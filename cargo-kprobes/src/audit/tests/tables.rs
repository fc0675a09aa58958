//! Jump tables: their targets are read, and a branch by a register without a table is an indirect call.

use super::{
    audit,
    stacks::{RET, call, jump},
};
use crate::audit::executable::Executable;

const BRK: u32 = 0xd420_0020;
/// `adr x9, .+0x1000` and `adr x10, .+16`, at 0 and at 4.
const TABLE: u32 = 0x1000_8009;
const BASE: u32 = 0x1000_008a;
/// `br x10`.
const BRANCH: u32 = 0xd61f_0140;
const ROOT: &str = "[roots]\nroot = \"test\"\n";

/// Returns the violations in a function with a jump table of these bytes at 0x1000. Only its last instructions are
/// traps.
fn found(load: u32, add: u32, table: &[u8]) -> Vec<String> {
    let words = [TABLE, BASE, load, add, BRANCH, RET, RET, BRK, BRK];
    audit(&Executable::of(&[("root", 0, &words)]).with_data(0x1000, table), ROOT)
}

const TRAP: &str = "root: cannot be followed at 0x1c (root+0x1c): it generates an exception";

const LOOP: &str = "root: may take a lock or wait: the instruction at 0x8 (root+0x8) reads the same address in each iteration of a loop that stores nothing; declare it in [locks] or [lock-free]";

#[test]
fn tables_of_every_width_are_read() {
    // ldrb w11, [x9, x8]; add x10, x10, x11, lsl #2.
    assert_eq!(found(0x3868_692b, 0x8b0b_094a, &[0, 1, 200]), [""; 0]);
    assert_eq!(found(0x3868_692b, 0x8b0b_094a, &[0, 1, 2, 200]), [TRAP]);
    // ldrh w11, [x9, x8, lsl #1].
    assert_eq!(found(0x7868_792b, 0x8b0b_094a, &[0, 0, 1, 0, 200, 0]), [""; 0]);
    assert_eq!(found(0x7868_792b, 0x8b0b_094a, &[0, 0, 2, 0, 200, 0]), [TRAP]);
    // ldrsw x11, [x9, x8, lsl #2]; add x10, x10, x11: the entries are bytes, and may be negative.
    let table = |entries: [i32; 3]| entries.map(i32::to_le_bytes).concat();
    assert_eq!(found(0xb8a8_792b, 0x8b0b_014a, &table([0, 4, 4000])), [""; 0]);
    assert_eq!(found(0xb8a8_792b, 0x8b0b_014a, &table([0, 8, 4000])), [TRAP]);
    assert_eq!(found(0xb8a8_792b, 0x8b0b_014a, &table([-20, 4, 4000])), [LOOP]);
    // An entry does not lead into the code before the branch.
    assert_eq!(found(0xb8a8_792b, 0x8b0b_014a, &table([4, -4, 8])), [""; 0]);
    assert_eq!(found(0xb8a8_792b, 0x8b0b_014a, &table([4, -12, 8])), [""; 0]);
    assert_eq!(found(0xb8a8_792b, 0x8b0b_014a, &table([4, -16, 8])), [TRAP, LOOP]);
    // An entry does not lead to `adr x10, .`, if entries are relative to it.
    let words = [TABLE, 0x1000_000a, 0xb8a8_792b, 0x8b0b_014a, BRANCH, RET, RET, BRK, BRK];
    let found = |last| {
        let entries = table([16, last, 24]);
        audit(&Executable::of(&[("root", 0, &words)]).with_data(0x1000, &entries), ROOT)
    };
    assert_eq!((found(0), found(20)), (Vec::new(), Vec::from([TRAP.to_owned()])));
}

#[test]
fn a_table_ends_where_something_else_begins() {
    let words = [TABLE, BASE, 0x3868_692b, 0x8b0b_094a, BRANCH, RET, RET, BRK, BRK];
    let executable = || Executable::of(&[("root", 0, &words)]).with_data(0x1000, &[0, 1, 2, 200]);
    assert_eq!(audit(&executable().with_object(0x1003), ROOT), [TRAP]);
    assert_eq!(audit(&executable().with_object(0x1002), ROOT), [""; 0]);
    assert_eq!(audit(&executable().with_object(0x1000), ROOT), [TRAP]);
}

#[test]
fn an_object_begins_at_an_address_that_is_computed() {
    /// `adrp x8, 0x1000` at 0x2000, `add x8, x8, #2`.
    const PAGE: u32 = 0xf0ff_ffe8;
    const ADD: u32 = 0x9100_0908;
    const NOP: u32 = 0xd503_201f;
    let root = [TABLE, BASE, 0x3868_692b, 0x8b0b_094a, BRANCH, RET, RET, BRK, BRK];
    let found = |words: &[u32]| {
        let executable = Executable::of(&[("root", 0, &root), ("other", 0x2000, words)]);
        audit(&executable.with_data(0x1000, &[0, 1, 2, 200]), &format!("{ROOT}[elsewhere]\nother = \"test\"\n"))
    };
    assert_eq!(found(&[PAGE, ADD, RET]), [""; 0]);
    assert_eq!(found(&[PAGE, NOP, NOP, NOP, ADD, RET]), [""; 0]);
    // cbz x0, .+8: the addition is executed if the branch is not taken.
    assert_eq!(found(&[PAGE, 0xb400_0040, ADD, RET]), [""; 0]);
    // ldr x8, [x8]; mov x8, xzr; bl .+4, which may change x8; b .+8; ret.
    for between in [0xf940_0108, 0xaa1f_03e8, call(4), jump(8), RET] {
        assert_eq!(found(&[PAGE, between, ADD, RET]), [TRAP], "{between:#010x}");
    }
    // adrp x19, 0x1000; bl .+4; add x19, x19, #2.
    assert_eq!(found(&[0xf0ff_fff3, call(4), 0x9100_0a73, RET]), [""; 0]);
}

#[test]
fn a_branch_by_anything_else_is_an_indirect_call() {
    let undeclared = "root: has an indirect call at 0x10 (root+0x10) that is not declared in [[indirect]]";
    // ldr x10, [x9]: a pointer from memory.
    assert_eq!(found(0xd503_201f, 0xf940_012a, &[0; 8]), [undeclared]);
    // If its first entry leads elsewhere, it is not a jump table.
    assert_eq!(found(0x3868_692b, 0x8b0b_094a, &[200]), [undeclared]);
}

#[test]
fn a_call_of_an_address_that_is_known_is_no_indirect_call() {
    // adr x8, .+0x100; blr x8.
    let root = [0x1000_0808, 0xd63f_0100, RET];
    assert_eq!(audit(&Executable::of(&[("root", 0, &root), ("callee", 0x100, &[RET])]), ROOT), [""; 0]);
    let found = audit(&Executable::of(&[("root", 0, &root), ("callee", 0x100, &[BRK])]), ROOT);
    assert_eq!(found, ["root → callee: cannot be followed at 0x100 (callee): it generates an exception"]);
    let found = audit(&Executable::of(&[("root", 0, &root)]), ROOT);
    let what = "which is not a function of the symbol table: assembly makes it one by `.type` and `.size`";
    assert_eq!(found, [format!("root: branches to 0x100, {what}")]);
}

#[test]
fn a_return_to_an_address_that_is_known_is_a_call() {
    /// `adr x8, .+0x100`, `adr x30, .+0x100`.
    const ADDRESS: u32 = 0x1000_0808;
    const LINK: u32 = 0x1000_081e;
    /// `ret x8`, `retaa`, `eret`.
    const RET_X8: u32 = 0xd65f_0100;
    const RETAA: u32 = 0xd65f_0bff;
    const ERET: u32 = 0xd69f_03e0;
    let followed = ["root → callee: cannot be followed at 0x100 (callee): it generates an exception"];
    for root in [[ADDRESS, RET_X8], [LINK, RET], [LINK, RETAA]] {
        let executable = Executable::of(&[("root", 0, &root), ("callee", 0x100, &[BRK])]);
        assert_eq!(audit(&executable, ROOT), followed, "{:#010x}", root[1]);
    }
    let found = audit(&Executable::of(&[("root", 0, &[RET_X8])]), ROOT);
    assert_eq!(found, ["root: has an indirect call at 0x0 (root) that is not declared in [[indirect]]"]);
    assert_eq!(audit(&Executable::of(&[("root", 0, &[LINK, ERET])]), ROOT), [""; 0]);
    // In an outlined function, unless the call of it overwrites the link register.
    let outlined = ("OUTLINED_FUNCTION_0", 0x200, &[RET][..]);
    let executable = Executable::of(&[("root", 0, &[LINK, jump(0x200 - 4)]), outlined, ("callee", 0x100, &[BRK])]);
    assert_eq!(audit(&executable, ROOT), followed);
    assert_eq!(audit(&Executable::of(&[("root", 0, &[LINK, call(0x200 - 4), RET]), outlined]), ROOT), [""; 0]);
}
