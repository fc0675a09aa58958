//! The depth of the stack, in functions that are written here as words.

use super::audit;
use crate::audit::{declarations::Declarations, executable::Executable, stack::Depths, walk::walk};

pub const RET: u32 = 0xd65f_03c0;
/// `stp x29, x30, [sp, #-32]!`, `mov x29, sp`, `ldp x29, x30, [sp], #32`.
const PUSH: u32 = 0xa9be_7bfd;
const SET_FRAME: u32 = 0x9100_03fd;
const POP: u32 = 0xa8c2_7bfd;
/// `sub sp, sp, #64`, `add sp, sp, #64`.
const DOWN: u32 = 0xd101_03ff;
const UP: u32 = 0x9101_03ff;

/// `blr x8`.
const BLR: u32 = 0xd63f_0100;

/// Returns a `bl` over this many bytes.
pub fn call(offset: i32) -> u32 {
    0x9400_0000 | (offset >> 2).cast_unsigned() & 0x03ff_ffff
}

/// Returns a `b` over this many bytes.
pub fn jump(offset: i32) -> u32 {
    0x1400_0000 | (offset >> 2).cast_unsigned() & 0x03ff_ffff
}

/// Returns a `cbz x0` over this many bytes.
fn branch_if_zero(offset: i32) -> u32 {
    0xb400_0000 | ((offset >> 2).cast_unsigned() & 0x7_ffff) << 5
}

const ROOT: &str = "[roots]\nroot = \"test\"\n";

/// Returns the deepest stack from `root` on.
fn deepest(functions: &[(&str, u64, &[u32])], declared: &str) -> i64 {
    let executable = Executable::of(functions);
    assert_eq!(audit(&executable, &format!("{ROOT}{declared}")), [""; 0]);
    let mut declarations = Declarations::default();
    declarations.add("test.toml".as_ref(), &format!("{ROOT}{declared}"), true).unwrap();
    let graph = walk(&executable, &declarations);
    Depths::of(&executable, &declarations, &graph).get(graph.roots[0]).bytes
}

#[test]
fn frames_add_up_along_the_calls() {
    let root = [PUSH, call(0x100 - 4), DOWN, call(0x200 - 12), UP, POP, RET];
    let deep = [DOWN, DOWN, UP, UP, RET];
    let shallow = [DOWN, UP, RET];
    // 32 + 128 at the first call, 96 + 64 at the second. If either is one more, it is the deepest.
    assert_eq!(deepest(&[("root", 0, &root), ("one", 0x100, &deep), ("other", 0x200, &shallow)], ""), 160);
    let deeper = [DOWN, DOWN, DOWN, UP, UP, UP, RET];
    assert_eq!(deepest(&[("root", 0, &root), ("one", 0x100, &deeper), ("other", 0x200, &shallow)], ""), 224);
    assert_eq!(deepest(&[("root", 0, &root), ("one", 0x100, &shallow), ("other", 0x200, &deep)], ""), 224);
}

#[test]
fn an_outlined_function_is_a_part_of_its_caller() {
    // It leaves the stack pointer elsewhere, which its caller relies on. Its calls by a register are its caller's.
    let root = [call(0x100), DOWN, call(0x200 - 8), UP, call(0x300 - 16), RET];
    let push = ("OUTLINED_FUNCTION_0", 0x100, &[PUSH, RET][..]);
    let pop = ("OUTLINED_FUNCTION_1", 0x300, &[POP, RET][..]);
    let [deep, by_register] = [[DOWN, UP, RET], [BLR, RET, RET]];
    assert_eq!(deepest(&[("root", 0, &root), push, ("callee", 0x200, &deep), pop], ""), 160);
    let functions = [("root", 0, &root[..]), push, ("OUTLINED_FUNCTION_2", 0x200, &by_register[..]), pop];
    assert_eq!(
        audit(&Executable::of(&functions), ROOT),
        ["root: has an indirect call at 0x200 (OUTLINED_FUNCTION_2) that is not declared in [[indirect]]"]
    );
    let declared = "[[indirect]]\nin = \"root\"\nsites = 1\nreaches = []\nreason = \"test\"\n";
    assert_eq!(deepest(&functions, declared), 96);
    // No root has to reach it.
    let unreached = [("root", 0, &[RET][..]), push];
    assert_eq!(audit(&Executable::of(&unreached), ROOT), [""; 0]);
}

#[test]
fn an_outlined_function_calls_what_its_caller_knows() {
    /// `adr x8, .+0x300`, `adr x8, .+0x100`.
    const FAR: u32 = 0x1000_1808;
    const NEAR: u32 = 0x1000_0808;
    const BR: u32 = 0xd61f_0100;
    const BRK: u32 = 0xd420_0020;
    let root = [PUSH, FAR, call(0x200 - 8), POP, RET];
    for words in [[BLR, RET], [BR, RET]] {
        let outlined = ("OUTLINED_FUNCTION_2", 0x200, &words[..]);
        assert_eq!(deepest(&[("root", 0, &root), outlined, ("callee", 0x304, &[DOWN, UP, RET])], ""), 96);
        let executable = Executable::of(&[("root", 0, &root), outlined, ("callee", 0x304, &[BRK])]);
        let found = audit(&executable, ROOT);
        assert_eq!(found, ["root → callee: cannot be followed at 0x304 (callee): it generates an exception"]);
    }
    // If it goes on in the outlined function, too.
    let executable = Executable::of(&[
        ("root", 0, &[FAR, jump(0x200 - 4)]),
        ("OUTLINED_FUNCTION_2", 0x200, &[BR]),
        ("callee", 0x300, &[BRK]),
    ]);
    let found = audit(&executable, ROOT);
    assert_eq!(found, ["root → callee: cannot be followed at 0x300 (callee): it generates an exception"]);
    // A call whose target the outlined function computes itself is not reported for its caller.
    let executable = Executable::of(&[
        ("root", 0, &root),
        ("OUTLINED_FUNCTION_2", 0x200, &[NEAR, BLR, RET]),
        ("core::panicking::panic", 0x300, &[BRK]),
    ]);
    let found = audit(&executable, &format!("{ROOT}[elsewhere]\n\"core::panicking::panic\" = \"test\"\n"));
    assert_eq!(found, ["root → OUTLINED_FUNCTION_2: can panic: core::panicking::panic"]);
    // Nothing comes back from it.
    let executable = Executable::of(&[("root", 0, &[call(0x200)]), ("OUTLINED_FUNCTION_2", 0x200, &[BLR, BRK])]);
    let expected = [
        "root: has an indirect call at 0x200 (OUTLINED_FUNCTION_2) that is not declared in [[indirect]]",
        "root → OUTLINED_FUNCTION_2: cannot be followed at 0x204 (OUTLINED_FUNCTION_2+0x4): it generates an exception",
    ];
    assert_eq!(audit(&executable, ROOT), expected);
}

#[test]
fn outlined_functions_that_execute_too_much_are_not_followed_to_their_end() {
    // Each but the last calls the next one twice, so the last would be executed 2^14 times.
    let names: Vec<String> = (1..=15).map(|number| format!("OUTLINED_FUNCTION_{number}")).collect();
    let (root, twice) = ([call(0x100), RET], [call(0x100), call(0x100 - 4), RET]);
    let mut functions: Vec<(&str, u64, &[u32])> = vec![("root", 0, &root[..])];
    functions.extend((1..15).zip(&names).map(|(number, name)| (name.as_str(), 0x100 * number, &twice[..])));
    functions.push((names[14].as_str(), 0xf00, &[RET][..]));
    let found = audit(&Executable::of(&functions), ROOT);
    assert_eq!(found[0], "root: makes the stack pointer unknown before 0x4 (root+0x4): declare it in [frames]");
    assert!(found[1..].iter().all(|found| found.starts_with("root: has an indirect call at ")), "{found:#?}");
    assert!(found.len() > 1, "{found:#?}");
}

#[test]
fn a_tail_call_has_the_stack_that_is_left() {
    let root = [PUSH, POP, jump(0x100 - 8)];
    assert_eq!(deepest(&[("root", 0, &root), ("callee", 0x100, &[DOWN, UP, RET])], ""), 64);
    let kept = [PUSH, jump(0x100 - 4)];
    assert_eq!(deepest(&[("root", 0, &kept), ("callee", 0x100, &[DOWN, UP, UP, RET])], ""), 96);
    // A function that ends without a branch goes on in the next one.
    assert_eq!(deepest(&[("root", 0, &[PUSH]), ("next", 4, &[DOWN, UP, POP, RET])], ""), 96);
}

#[test]
fn every_way_to_move_the_stack_pointer_is_followed() {
    for (words, expected, text) in [
        (&[0xf81f_0ffe, 0xf841_07fe, RET][..], 16, "str x30, [sp, #-16]! and ldr x30, [sp], #16"),
        (&[0xd140_07ff, 0x9140_07ff, RET], 4096, "sub sp, sp, #1, lsl #12 and back"),
        (&[PUSH, SET_FRAME, DOWN, 0x9100_03bf, POP, RET], 96, "mov sp, x29"),
        (&[PUSH, SET_FRAME, 0xd100_c3bf, 0x9100_03bf, POP, RET], 80, "sub sp, x29, #48"),
        // sub x9, sp, #256; and sp, x9, #-64: at most 63 more.
        (&[PUSH, SET_FRAME, 0xd104_03e9, 0x927a_e53f, 0x9100_03bf, POP, RET], 32 + 256 + 63, "and sp, x9, #-64"),
    ] {
        assert_eq!(deepest(&[("root", 0, words)], ""), expected, "{text}");
    }
    // Restored from a frame pointer that a call has preserved.
    let root = [PUSH, SET_FRAME, DOWN, call(0x100 - 12), 0x9100_03bf, POP, RET];
    assert_eq!(deepest(&[("root", 0, &root), ("leaf", 0x100, &[RET])], ""), 96);
}

#[test]
fn what_sets_the_stack_pointer_otherwise_is_declared() {
    // sub sp, sp, x9; mov sp, x9.
    for word in [0xcb29_63ff, 0x9100_013f] {
        let executable = Executable::of(&[("root", 0, &[PUSH, word, POP, RET])]);
        let found = audit(&executable, ROOT);
        assert_eq!(found, ["root: makes the stack pointer unknown before 0x8 (root+0x8): declare it in [frames]"]);
    }
    // sub x9, sp, #256; and sp, x9, #1 << 63: up to 2^63 - 1 more.
    let executable = Executable::of(&[("root", 0, &[PUSH, 0xd104_03e9, 0x9241_013f, RET])]);
    let found = audit(&executable, ROOT);
    assert_eq!(found, ["root: makes the stack pointer unknown before 0xc (root+0xc): declare it in [frames]"]);
    let frames = "[frames]\nroot = { bytes = 512, reason = \"test\" }\n";
    let root = [PUSH, 0x9100_013f, call(0x100 - 8), RET];
    assert_eq!(deepest(&[("root", 0, &root), ("callee", 0x100, &[DOWN, UP, RET])], frames), 576);
}

#[test]
fn where_ways_with_different_depths_meet_the_depth_is_unknown() {
    // cbz x0, past the sub.
    let executable = Executable::of(&[("root", 0, &[branch_if_zero(8), DOWN, RET])]);
    assert_eq!(
        audit(&executable, ROOT),
        ["root: makes the stack pointer unknown before 0x8 (root+0x8): declare it in [frames]"]
    );
}

#[test]
fn a_call_that_does_not_return_ends_a_function() {
    // The code after the call belongs to another function, and is not fallen into.
    let root = [PUSH, call(0x100 - 4)];
    let never = [DOWN, jump(0)];
    let next = [0xd420_0020];
    assert_eq!(deepest(&[("root", 0, &root), ("never", 0x100, &never)], ""), 96);
    let executable = Executable::of(&[("root", 0, &root), ("next", 8, &next), ("never", 0x100, &never)]);
    let found = audit(&executable, ROOT);
    assert_eq!(found, [": next is in the region, but no root reaches it: declare it in [roots] or [elsewhere]"]);
}

#[test]
fn recursion_is_counted_as_often_as_it_is_declared() {
    // root calls one, one calls other, other calls one.
    let root = [PUSH, call(0x100 - 4), POP, RET];
    let one = [DOWN, call(0x200 - 0x104), UP, RET];
    let other = [PUSH, call(0x100 - 0x204), POP, RET];
    let functions: [(&str, u64, &[u32]); 3] = [("root", 0, &root), ("one", 0x100, &one), ("other", 0x200, &other)];
    let found = audit(&Executable::of(&functions), ROOT);
    assert_eq!(found, ["root → one → other: calls one recursively, and [recursion] gives no bound"]);
    let bounded = "[recursion]\none = { depth = 5, reason = \"test\" }\n";
    assert_eq!(deepest(&functions, bounded), 32 + 5 * (64 + 32));
    let endless = format!("[recursion]\none = {{ depth = {}, reason = \"test\" }}\n", i64::MAX);
    assert_eq!(deepest(&functions, &endless), i64::MAX);
    let stack = "[nesting]\nlevels = 2\nreason = \"test\"\n[stack]\nsize = 128\nmargin = 64\nreason = \"test\"\n";
    let found = audit(&Executable::of(&functions), &format!("{ROOT}{endless}{stack}"));
    let needed = format!("needs {0} bytes of stack, 2 times {0}, and tasks leave 64", i64::MAX);
    assert!(found.len() == 1 && found[0].ends_with(&needed), "{found:#?}");
}

#[test]
fn every_entry_of_a_table_of_vectors_is_a_root() {
    let nop = 0xd503_201f;
    let table = [DOWN, RET, nop, nop, DOWN, DOWN, RET, nop, RET, nop, nop, 0xd420_0020];
    let executable = Executable::of(&[("root", 0, &table)]);
    let declared = "[roots]\nroot = { every = 16, reason = \"test\" }\n";
    // Code that no entry leads to is not looked at.
    assert_eq!(audit(&executable, declared), [""; 0]);
    let mut declarations = Declarations::default();
    declarations.add("test.toml".as_ref(), declared, true).unwrap();
    let graph = walk(&executable, &declarations);
    assert_eq!(graph.roots, [0, 16, 32]);
    let depths = Depths::of(&executable, &declarations, &graph);
    assert_eq!(graph.roots.iter().map(|&root| depths.get(root).bytes).collect::<Vec<_>>(), [64, 128, 0]);
}

#[test]
fn what_generated_code_calls_is_followed_with_its_stack() {
    /// `blr x0`.
    const BLR: u32 = 0xd63f_0000;
    let root = [PUSH, BLR, POP, RET];
    let functions: [(&str, u64, &[u32]); 3] =
        [("root", 0, &root), ("one", 0x100, &[RET]), ("other", 0x200, &[DOWN, UP, RET])];
    let declared = "[[indirect]]\nin = \"root\"\nsites = 1\nreaches = [\"@callees\"]\nreason = \"test\"\n\
                    [groups.callees]\none = \"test\"\n";
    let generated = |group: &str| {
        format!("{declared}[[generated]]\ngroup = {group:?}\nbytes = 48\nreaches = [\"other\"]\nreason = \"test\"\n")
    };
    assert_eq!(deepest(&functions, &generated("callees")), 32 + 48 + 64);
    let found = audit(&Executable::of(&functions), &format!("{ROOT}{}", generated("others")));
    assert_eq!(
        found,
        [
            ": other is in the region, but no root reaches it: declare it in [roots] or [elsewhere]",
            ": test.toml: [generated] \"other\" applies to nothing"
        ]
    );
}
