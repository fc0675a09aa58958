//! Programs that are compiled and linked for the target, from `planted/program.rs`.

use std::{env, fs, process::Command};

use super::audit;
use crate::audit::executable::Executable;

const ROOT: &str = "[roots]\nplanted_root = \"the hit path that something is planted in\"\n";
const PATH: &str = "planted_root → program::middle → program::culprit: ";

/// Builds the program in which `what` is planted.
fn executable(what: &str) -> Executable {
    // Beside the program of these tests, which Cargo has a place for.
    let out = env::current_exe().expect("a test is a program").with_file_name(format!("planted-{what}"));
    let arguments = [
        "--edition=2024",
        "--target=aarch64-unknown-none-softfloat",
        "-Copt-level=2",
        "-Cpanic=abort",
        "-Cforce-frame-pointers=yes",
        "-Csymbol-mangling-version=v0",
        "-Clink-arg=-Tplanted/layout.ld",
        "--check-cfg=cfg(planted, values(any()))",
    ];
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.current_dir(env!("CARGO_MANIFEST_DIR"));
    rustc.args(arguments).args(["--cfg", &format!("planted={what:?}"), "planted/program.rs", "-o"]).arg(&out);
    let done = rustc.output().expect("rustc can be started");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Executable::parse(&fs::read(&out).expect("it has been linked")).expect("it is a program for the target")
}

/// Audits the program in which `what` is planted. There must be exactly one violation, which is returned.
fn violation(what: &str) -> String {
    let found = audit(&executable(what), ROOT);
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0].clone()
}

/// Returns the only violation, without its path, which must be that from the root to the function at the end.
fn culprit(what: &str) -> String {
    let violation = violation(what);
    violation.strip_prefix(PATH).unwrap_or_else(|| panic!("not on the path: {violation}")).to_owned()
}

#[test]
fn nothing_wrong_is_nothing_found() {
    assert_eq!(audit(&executable("nothing"), ROOT), [""; 0]);
}

#[test]
fn an_allocation() {
    assert!(culprit("allocation").starts_with("uses the allocator: "));
}

#[test]
fn an_index_that_may_be_out_of_bounds() {
    assert_eq!(culprit("indexing"), "can panic: core::panicking::panic_bounds_check");
}

#[test]
fn a_panic_behind_a_function_that_is_named_otherwise() {
    assert_eq!(culprit("expectation"), "can panic: core::option::expect_failed");
}

#[test]
fn a_function_that_can_be_probed() {
    assert_eq!(culprit("probeable"), "calls a function that can be probed: core::str::converts::from_utf8");
}

#[test]
fn a_function_pointer() {
    let executable = executable("pointer");
    let found = audit(&executable, ROOT);
    assert!(found[0].starts_with(&format!("{PATH}has an indirect call at ")), "{found:#?}");
    assert!(found[0].ends_with("that is not declared in [[indirect]]"), "{found:#?}");
    // The function that only the pointer leads to is not on any known path.
    assert!(found[1].starts_with(": program::callee is in the region, but no root reaches it"), "{found:#?}");

    let declared = |sites: u32, callee: &str| {
        let declared = format!(
            "{ROOT}[[indirect]]\nin = \"program::culprit\"\nsites = {sites}\nreaches = [{callee:?}]\nreason = \"planted\"\n"
        );
        audit(&executable, &declared)
    };
    assert_eq!(declared(1, "program::callee"), [""; 0]);
    let found = declared(2, "program::callee");
    assert_eq!(found, [format!("{PATH}has 1 indirect call, but [[indirect]] in \"program::culprit\" declares 2")]);
    assert_eq!(
        declared(1, "program::callees")[0],
        format!("{PATH}is declared to call \"program::callees\" indirectly, but no function has this name")
    );
}

#[test]
fn a_call_of_a_trait_object() {
    assert!(culprit("vtable").starts_with("has an indirect call at "));
}

#[test]
fn a_floating_point_register() {
    let found = audit(&executable("floating"), ROOT);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|found| found.starts_with(&format!("{PATH}uses floating point or SIMD at "))));
    assert!(culprit("status").starts_with("uses floating point or SIMD at "));
}

#[test]
fn a_lock() {
    assert!(culprit("lock").starts_with("may take a lock or wait: "));
    assert!(culprit("waiting").starts_with("may take a lock or wait: "));
    let allowed = format!("{ROOT}[locks]\n\"program::culprit\" = \"planted\"\n");
    assert_eq!(audit(&executable("lock"), &allowed), [""; 0]);
}

#[test]
fn a_stack_too_deep() {
    let executable = executable("stack");
    let stack = |margin: u32| {
        audit(
            &executable,
            &format!(
                "{ROOT}[nesting]\nlevels = 2\nreason = \"planted\"\n[stack]\nsize = 16384\nmargin = {margin}\nreason = \"planted\"\n"
            ),
        )
    };
    // Two times the frame of 4096 bytes, and the registers that the functions save.
    assert_eq!(stack(9000), [""; 0]);
    let found = stack(8192);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with(&format!("{PATH}needs ")), "{found:#?}");
    assert!(found[0].ends_with("and tasks leave 8192"), "{found:#?}");
}

#[test]
fn a_recursion() {
    let again = "calls program::middle recursively, and [recursion] gives no bound";
    assert_eq!(violation("recursion"), format!("{PATH}{again}"));
    let bounded = format!("{ROOT}[recursion]\n\"program::middle\" = {{ depth = 3, reason = \"planted\" }}\n");
    assert_eq!(audit(&executable("recursion"), &bounded), [""; 0]);
}

#[test]
fn a_trap() {
    assert!(culprit("trap").starts_with("cannot be followed at "));
}

#[test]
fn a_function_of_the_region_that_no_root_reaches() {
    let what = "planted_forgotten is in the region, but no root reaches it: declare it in [roots] or [elsewhere]";
    assert_eq!(violation("forgotten"), format!(": {what}"));
}

#[test]
fn a_handler_is_a_root_by_its_place() {
    let found = audit(&executable("handler"), ROOT);
    assert_eq!(found, ["planted_handler: can panic: core::panicking::panic_bounds_check"]);
}
