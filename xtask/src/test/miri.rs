//! Runs the host tests in Miri, which finds undefined behaviour that compilers do not exploit yet: pointers that are
//! used after their origin has moved or was borrowed again, accesses out of bounds, data races.
//!
//! Rust has not decided yet which rules of aliasing hold, so there are two models of them, and the tests must pass in
//! both.

use std::time::Duration;

use super::{
    capture::{capture, capture_within},
    pool::{Job, Pool},
    report::{Finished, Outcome},
    wanted::Wanted,
};
use crate::workspace;

/// The packages whose library is tested.
const PACKAGES: [&str; 7] = [
    "aarch64-kprobes",
    "kprobes-fallible",
    "kprobes-trace",
    "kprobes-vm",
    "kprobes-program",
    "kprobes-symbols",
    "kprobes-loader-protocol",
];
/// The models of aliasing, with the flag of each.
const MODELS: [(&str, &str); 2] = [("tree_borrows", "-Zmiri-tree-borrows"), ("stacked_borrows", "")];
/// The engine converts addresses to pointers, and some of its memory is never freed.
const FLAGS: &str = "-Zmiri-permissive-provenance -Zmiri-ignore-leaks";
/// The time limit of a package, which takes an hour where tests share two cores.
const PATIENCE: Duration = Duration::from_secs(3 * 60 * 60);
/// The default test. Of all packages, the engine relies most on rules that the compiler does not check.
const USUAL: &str = "miri::tree_borrows::aarch64-kprobes";
/// The part of it that takes seconds: pools, lists and calls that return.
const SHORT: [&str; 3] = ["--", "probe::tests::returns", "probe::hit"];

/// Adds the tests that run in Miri.
pub fn add_tests<'a>(pool: &Pool<'a>, wanted: &'a Wanted, is_thorough: bool) {
    let tests = MODELS.iter().flat_map(|&(model, flag)| PACKAGES.map(|package| (model, flag, package)));
    let tests = tests.map(|(model, flag, package)| (format!("miri::{model}::{package}"), flag, package));
    let is_asked_for = |name: &str| wanted.has(name) && (is_thorough || wanted.is_filtered() || name == USUAL);
    let tests: Vec<_> = tests.filter(|(name, ..)| is_asked_for(name)).collect();
    let names = tests.iter().map(|(name, ..)| name.clone()).collect();
    pool.add_for(names, "miri", move |context| {
        let Some(host) = host_with_miri() else {
            let reason = "needs Miri: rustup toolchain install nightly --component miri --component rust-src";
            return tests
                .into_iter()
                .for_each(|(name, ..)| context.results.add(Finished::skipped(name, reason.into())));
        };
        for (name, flag, package) in tests {
            let (test, host) = (name.clone(), host.clone());
            let part: &[&str] = if is_thorough || wanted.is_filtered() { &[] } else { &SHORT };
            let job: Job<'a> = Box::new(move |results| results.time(test, || run(package, flag, &host, part)));
            // The one test of a usual run compiles for long, on one core. It starts while builds use the others, and
            // not after the last machine.
            match is_thorough {
                true => context.add(name, 1, job),
                false => context.add_first(name, 1, job),
            }
        }
    });
}

/// Returns the target of the host, if its nightly toolchain has Miri and the sources of the standard library, which
/// Miri needs.
fn host_with_miri() -> Option<String> {
    let mut list = workspace::command("rustup");
    list.args(["component", "list", "--installed", "--toolchain", "nightly"]).env("RUSTUP_AUTO_INSTALL", "0");
    let listed = capture(&mut list, |_| {});
    listed.result.ok()?;
    host_of(&listed.text)
}

/// Finds the target in the line of Miri in a list of installed components. `None` if the sources of the standard
/// library are not listed.
fn host_of(components: &str) -> Option<String> {
    let has_sources = components.lines().any(|component| component == "rust-src");
    let host = components.lines().find_map(|component| component.strip_prefix("miri-"));
    host.filter(|_| has_sources).map(String::from)
}

/// Runs the tests of a package on the target `host`. `part` has arguments that choose among the tests.
fn run(package: &str, flag: &str, host: &str, part: &[&str]) -> Result<Outcome, String> {
    // This is rustup's `cargo`, which chooses among toolchains, and not the one that runs this command.
    let mut cargo = workspace::command("cargo");
    cargo.args(["+nightly", "miri", "test", "--lib", "--package", package, "--target", host]).args(part);
    cargo.env("MIRIFLAGS", format!("{FLAGS} {flag}")).env_remove("CARGO");
    capture_within(PATIENCE, &mut cargo, |_| {}).output().map(|_| Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn miri_is_there_with_the_sources_only() {
        let host = "x86_64-unknown-linux-gnu";
        let list = |components: &[&str]| components.join("\n");
        let (miri, cargo) = (&*format!("miri-{host}"), &*format!("cargo-{host}"));
        assert_eq!(host_of(&list(&[cargo, miri, "rust-src"])).as_deref(), Some(host));
        assert_eq!(host_of(&list(&[cargo, miri])), None);
        assert_eq!(host_of(&list(&[cargo, "rust-src"])), None);
    }
}
