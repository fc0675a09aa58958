//! Declarations: each has the effect that `docs/audit.md` describes, and one without effect is an error.

use std::path::Path;

use super::{
    audit,
    stacks::{RET, call, jump},
};
use crate::audit::{Findings, declarations::Declarations, executable::Executable};

const ROOT: &str = "[roots]\nroot = \"test\"\n";
const BRK: u32 = 0xd420_0020;
const BLR: u32 = 0xd63f_0100;

fn error(text: &str) -> String {
    let error = Declarations::default().add(Path::new("test.toml"), text, true).expect_err("it is wrong");
    error.to_string()
}

#[test]
fn the_declarations_of_the_engine_can_be_read() {
    Declarations::with_engine([]).unwrap();
}

#[test]
fn every_declaration_has_a_reason() {
    assert_eq!(error("[roots]\nroot = \"\"\n"), "[roots] \"root\" has no reason");
    assert_eq!(error("[locks]\nlock = \" \"\n"), "[locks] \"lock\" has no reason");
    let generated = "[[generated]]\ngroup = \"g\"\nbytes = 8\nreaches = [\"f\"]\nreason = \"\"\n";
    assert_eq!(error(generated), "[generated] \"f\" has no reason");
    assert!(error("[frames]\nlock = { bytes = 3 }\n").contains("missing field `reason`"));
    assert!(error("[lock]\nlock = \"x\"\n").contains("unknown field `lock`"));
    assert_eq!(error("[stack]\nsize = 4096\nmargin = 1\nreason = \"\"\n"), "[stack] has no reason");
}

#[test]
fn a_declaration_cannot_hide_the_use_of_the_stack() {
    for depth in [0, -1] {
        let recursion = format!("[recursion]\nwalk = {{ depth = {depth}, reason = \"test\" }}\n");
        assert_eq!(error(&recursion), "[recursion] \"walk\" needs a depth of 1 or more");
    }
    let frames = "[frames]\nswitch = { bytes = -1, reason = \"test\" }\n";
    assert_eq!(error(frames), "[frames] \"switch\" needs bytes of 0 or more");
    let generated = "[[generated]]\ngroup = \"g\"\nbytes = -1\nreaches = []\nreason = \"test\"\n";
    assert_eq!(error(generated), "[[generated]] of \"g\" needs bytes of 0 or more");
}

#[test]
fn what_applies_to_nothing_is_reported() {
    let executable = Executable::of(&[("root", 0, &[RET])]);
    let declared = "[abandons]\na = \"test\"\n[ends]\nb = \"test\"\n[locks]\nroot = \"test\"\n[lock-free]\nroot = \"test\"\n\
                    [elsewhere]\nroot = \"test\"\n[groups.g]\nd = \"test\"\n[frames]\nroot = { bytes = 1, reason = \"test\" }\n\
                    [recursion]\nroot = { depth = 1, reason = \"test\" }\n\
                    [[indirect]]\nin = \"root\"\nsites = 1\nreaches = []\nreason = \"test\"\n";
    let found = audit(&executable, &format!("[roots]\nroot = \"test\"\nc = \"test\"\n{declared}"));
    let stale = |what: &str| format!(": test.toml: {what} applies to nothing");
    let expected = [
        "[roots] \"c\"",
        "[abandons] \"a\"",
        "[ends] \"b\"",
        "[locks] \"root\"",
        "[lock-free] \"root\"",
        "[elsewhere] \"root\"",
        "[groups] \"d\"",
        "[frames] \"root\"",
        "[recursion] \"root\"",
    ];
    for what in expected {
        assert!(found.contains(&stale(what)), "{what}: {found:#?}");
    }
    assert!(found.iter().any(|found| found.ends_with("has 0 indirect calls, but [[indirect]] in \"root\" declares 1")));
    assert_eq!(audit(&executable, "[roots]\nroot = \"test\"\n[inlined]\ngone = \"test\"\n"), [""; 0]);
    let executable = Executable::of(&[("root", 0, &[RET]), ("new", 0x100, &[RET])]);
    assert_eq!(audit(&executable, "[roots]\nroot = \"test\"\n[inlined]\nnew = \"test\"\n"), [""; 0]);
    let executable = Executable::of(&[("root", 0, &[RET])]);
    assert_eq!(
        audit(&executable, ""),
        [
            ": root is in the region, but no root reaches it: declare it in [roots] or [elsewhere]",
            ": no root is declared",
        ]
    );
}

#[test]
fn a_function_at_which_paths_end_is_reached() {
    let executable = Executable::of(&[("root", 0, &[jump(0x100)]), ("end", 0x100, &[RET])]);
    assert_eq!(audit(&executable, "[roots]\nroot = \"test\"\n[ends]\nend = \"test\"\n"), [""; 0]);
    let executable = Executable::of(&[("root", 0, &[RET]), ("end", 0x100, &[RET])]);
    let found = audit(&executable, "[roots]\nroot = \"test\"\n[ends]\nend = \"test\"\n");
    assert!(
        found.iter().any(|found| found.starts_with(": end is in the region, but no root reaches it")),
        "{found:#?}"
    );
}

#[test]
fn a_path_ends_where_it_is_declared_to() {
    // The instruction after the call of `stop` is a trap, and so is `stop` itself.
    let root = [call(0x100), BRK];
    let functions: [(&str, u64, &[u32]); 2] = [("root", 0, &root), ("stop", 0x100, &[BRK])];
    let executable = Executable::of(&functions);
    assert_eq!(
        audit(&executable, ROOT),
        ["root → stop: cannot be followed at 0x100 (stop): it generates an exception"]
    );
    assert_eq!(audit(&executable, &format!("{ROOT}[ends]\nstop = \"test\"\n[elsewhere]\nstop = \"test\"\n")), [""; 0]);
    // A path ends after a function that leaves it, but the function itself is on it.
    let executable = Executable::of(&[("root", 0, &root), ("leave", 0x100, &[RET])]);
    assert_eq!(audit(&executable, ROOT), ["root: cannot be followed at 0x4 (root+0x4): it generates an exception"]);
    assert_eq!(audit(&executable, &format!("{ROOT}[abandons]\nleave = \"test\"\n")), [""; 0]);
    let executable = Executable::of(&functions);
    let found = audit(&executable, &format!("{ROOT}[abandons]\nstop = \"test\"\n"));
    assert_eq!(found, ["root → stop: cannot be followed at 0x100 (stop): it generates an exception"]);
    // Also if that is the last that another function does.
    let functions: [(&str, u64, &[u32]); 3] =
        [("root", 0, &root), ("last", 0x100, &[jump(0x100)]), ("leave", 0x200, &[RET])];
    let found = audit(&Executable::of(&functions), &format!("{ROOT}[abandons]\nleave = \"test\"\n"));
    assert_eq!(found, [""; 0]);
}

#[test]
fn groups_grow_with_every_file() {
    let executable = Executable::of(&[("root", 0, &[BLR, RET]), ("one", 0x100, &[RET]), ("other", 0x200, &[BRK])]);
    let indirect = "[[indirect]]\nin = \"root\"\nsites = 1\nreaches = [\"@callees\"]\nreason = \"test\"\n";
    let one = "[groups.callees]\none = \"test\"\n[elsewhere]\nother = \"test\"\n";
    assert_eq!(audit(&executable, &format!("{ROOT}{indirect}{one}")), [""; 0]);
    let both = "[groups.callees]\none = \"test\"\nother = \"test\"\n";
    let found = audit(&executable, &format!("{ROOT}{indirect}{both}"));
    assert_eq!(found, ["root → other: cannot be followed at 0x200 (other): it generates an exception"]);
}

#[test]
fn an_image_is_not_held_to_what_the_engine_declares_of_others() {
    let executable = Executable::of(&[("root", 0, &[BLR, RET]), ("callee", 0x100, &[RET])]);
    let indirect = "[[indirect]]\nin = \"root\"\nsites = 2\nreaches = [\"callee\", \"gone\"]\nreason = \"test\"\n";
    let audit = |is_checked| {
        let mut declarations = Declarations::default();
        declarations.add(Path::new("test.toml"), &format!("{ROOT}{indirect}"), is_checked).unwrap();
        Findings::new(&executable, &declarations)
            .violations
            .into_iter()
            .map(|violation| violation.what)
            .collect::<Vec<_>>()
    };
    assert_eq!(audit(false), [""; 0]);
    let held = [
        "is declared to call \"gone\" indirectly, but no function has this name",
        "has 1 indirect call, but [[indirect]] in \"root\" declares 2",
    ];
    assert_eq!(audit(true), held);
}

#[test]
fn the_engine_declares_its_own_frames() {
    // mov x9, sp; mov sp, x9: as a routine that moves its frame.
    let executable = Executable::of(&[("kretprobe_trampoline", 0, &[0x9100_03e9, 0x9100_013f, RET])]);
    let mut declarations = Declarations::default();
    declarations.add(Path::new("engine.toml"), crate::audit::ENGINE, false).unwrap();
    assert_eq!(Findings::new(&executable, &declarations).violations, []);
}

#[test]
fn the_margin_is_a_part_of_a_stack() {
    let executable = Executable::of(&[("root", 0, &[RET])]);
    let stack =
        |size: &str| audit(&executable, &format!("{ROOT}[stack]\nsize = {size}\nmargin = 64\nreason = \"test\"\n"));
    assert_eq!(stack("65"), [""; 0]);
    assert_eq!(stack("64"), [": a margin of 64 bytes does not fit stacks of 64"]);
    assert_eq!(stack("\"stack_size\""), [": a margin of 64 bytes does not fit stacks of stack_size = ?"]);
}

#[test]
fn the_first_file_says_how_deep_exceptions_nest_and_what_stacks_there_are() {
    let mut declarations = Declarations::default();
    for (levels, margin) in [(7, 64), (2, 32)] {
        let text = format!(
            "[nesting]\nlevels = {levels}\nreason = \"test\"\n\
             [stack]\nsize = 4096\nmargin = {margin}\nreason = \"test\"\n"
        );
        declarations.add(Path::new("test.toml"), &text, true).unwrap();
    }
    let margin = declarations.stack.map(|stack| stack.margin);
    assert_eq!((declarations.nesting, margin), (Some(7), Some(64)));
}
