//! The checks that need no machine: the style of the sources, and the tests of the pure parts.

use std::{collections::BTreeSet, time::Instant};

use super::{
    capture::capture,
    documentation,
    libtest::{self, Verdict},
    packages,
    pool::{Pool, Results},
    report::{Finished, Outcome},
    wanted::Wanted,
};
use crate::{
    setup,
    workspace::{self, Executable},
};

/// All packages that build for the host, at least in part. They are always selected together, so that the crates that
/// they use have the features of all, and are compiled once.
const OF_HOST: [&str; 18] = [
    "xtask",
    "aarch64-kprobes",
    "kprobes-fallible",
    "kprobes-trace",
    "kprobes-vm",
    "kprobes-program",
    "kprobes-symbols",
    "kprobes-types",
    "kprobes-loader-protocol",
    "kprobes-pl011",
    "kprobes-device-tree",
    "kprobes-random",
    "kprobes-wire",
    "kprobes-console",
    "cargo-kprobes",
    "kprobes-servers",
    "kprobes-smp",
    "kprobes-syndrome",
];
/// The packages that are published for the target, each after those that it depends on.
const PUBLISHED: [&str; 9] = [
    "kprobes-fallible",
    "aarch64-kprobes",
    "kprobes-symbols",
    "kprobes-types",
    "kprobes-vm",
    "kprobes-trace",
    "kprobes-program",
    "kprobes-wire",
    "kprobes-console",
];
/// The published command, which runs on the host, with the packages that it is made of.
const OF_COMMAND: [&str; 5] =
    ["cargo-kprobes", "aarch64-kprobes", "kprobes-fallible", "kprobes-symbols", "kprobes-types"];
/// Packages that are not compiled for the target.
const HOST_ONLY: [&str; 6] = ["--exclude", "xtask", "--exclude", "cargo-kprobes", "--exclude", "kprobes-no-libtest"];
const HOST: [&str; 2] = ["--target", "host-tuple"];
/// The programs and libraries of these packages. The kernel is a program that does not build for the host.
const PROGRAMS: [&str; 5] = ["--lib", "--bin", "xtask", "--bin", "cargo-kprobes"];
/// The packages with model-checked tests, and the flags to build these: see `models/`.
const MODELS: [&str; 4] = ["aarch64-kprobes", "kprobes-trace", "kprobes-vm", "kprobes-smp"];
const LOOM: [&str; 2] = ["--config", r#"target."cfg(all())".rustflags=["--cfg=loom"]"#];
/// Optimizes only what the models repeat, and the crate whose models would need a larger stack without it.
const REPEATED: [&str; 12] = [
    "--config",
    "profile.host.opt-level=0",
    "--config",
    "profile.host.package.aarch64-kprobes.opt-level=0",
    "--config",
    "profile.host.package.loom.opt-level=1",
    "--config",
    "profile.host.package.generator.opt-level=1",
    "--config",
    "profile.host.package.kprobes-models.opt-level=1",
    "--config",
    "profile.host.package.kprobes-trace.opt-level=1",
];
/// The profile of what runs on the host (`Cargo.toml`).
const PURE: [&str; 2] = ["--profile", "host"];
/// A separate profile, so that the images of the release profile stay unchanged. Its program is linked, and not run.
const WHOLE: [&str; 10] = [
    "--profile",
    "whole",
    "--config",
    r#"profile.whole.inherits="release""#,
    "--config",
    "profile.whole.lto=true",
    "--config",
    "profile.whole.opt-level=0",
    "--config",
    "profile.whole.debug=false",
];
const DENY: [&str; 3] = ["--", "-D", "warnings"];
/// Checks that run only in thorough runs, or if a filter asks for them. Each compiles whole packages anew.
/// `super::assembly` finds most of the names that assembly defines twice.
const THOROUGH: [&str; 8] = [LTO, CLIPPY_OF_MODELS, EXAMPLE, HABIT, PACKAGES, PACKAGES_OF_HOST, INSTALL, DOCUMENTATION];
const LTO: &str = "check::lto";
const CLIPPY_OF_MODELS: &str = "check::clippy::models";
const EXAMPLE: &str = "check::console_example";
const HABIT: &str = "check::cargo_test";
const PACKAGES: &str = "check::packages";
const PACKAGES_OF_HOST: &str = "check::packages_of_the_host";
const INSTALL: &str = "check::install";
const DOCUMENTATION: &str = "check::documentation";

/// The environment variable that makes the tests of the pure parts take their long forms.
const THOROUGH_FORMS: &str = "THOROUGH";

/// Returns the arguments that select these packages.
fn selected(packages: &[&'static str]) -> Vec<&'static str> {
    packages.iter().flat_map(|package| ["-p", package]).collect()
}

/// Adds the checks of the sources, which run no program of the repository.
pub fn add_checks(pool: &Pool<'_>, wanted: &Wanted, is_thorough: bool) {
    let checks: [(&str, Vec<&str>); 12] = [
        // With LTO, the assembly of all crates is one file, in which every name may be defined only once. Linking takes
        // one core for long, so it is not left to the end.
        (LTO, [&["build", "-p", "kprobes-tests"], &WHOLE[..]].concat()),
        ("check::format", vec!["fmt", "--all", "--check", "--", "--color", "never"]),
        (
            "check::clippy::target",
            [&["clippy", "--release", "--workspace"], &HOST_ONLY[..], &["--exclude", "kprobes-loader"], &DENY].concat(),
        ),
        // The loader has no heap. Checked together with the others, it would need one.
        ("check::clippy::loader", [&["clippy", "--release", "-p", "kprobes-loader"], &DENY[..]].concat()),
        (
            "check::clippy::host",
            [&["clippy", "--tests"], &PROGRAMS[..], &PURE, &HOST, &selected(&OF_HOST), &DENY].concat(),
        ),
        (
            CLIPPY_OF_MODELS,
            [&["clippy", "--tests"], &PURE[..], &HOST, &selected(&MODELS), &["-p", "kprobes-models"], &LOOM, &DENY]
                .concat(),
        ),
        // Alone, without the features that other packages ask for.
        (EXAMPLE, vec!["check", "--release", "-p", "kprobes-console-example"]),
        // What `cargo test` compiles before it runs this command.
        (HABIT, vec!["check", "--tests"]),
        // Compiles each published crate from what its package contains.
        (PACKAGES, vec!["publish", "--workspace", "--exclude", "cargo-kprobes", "--dry-run", "--allow-dirty"]),
        (PACKAGES_OF_HOST, [&["publish", "--dry-run", "--allow-dirty"], &selected(&OF_COMMAND)[..], &HOST].concat()),
        // As the pages say it, except for the profile and the place of the result.
        (INSTALL, vec!["install", "--path", "cargo-kprobes", "--debug", "--force", "--root", "target/installed"]),
        ("check::examples_of_the_documentation", [&["test", "--doc"], &PURE[..], &HOST, &selected(&OF_HOST)].concat()),
    ];
    let is_asked_for =
        |name: &str| wanted.has(name) && (is_thorough || wanted.is_filtered() || !THOROUGH.contains(&name));
    for (name, arguments) in checks.into_iter().filter(|(name, _)| is_asked_for(name)) {
        pool.add_check(name, move || {
            if [PACKAGES, PACKAGES_OF_HOST].contains(&name) {
                return packages::check(name, &arguments);
            }
            capture(&mut workspace::cargo(&arguments), |_| {}).output().map(|_| Outcome::Passed)
        });
    }
    if is_asked_for(DOCUMENTATION) {
        pool.add_check(DOCUMENTATION, || documentation::check(&PUBLISHED));
    }
}

/// Adds the tests of the pure parts, in their long forms if `is_thorough`.
pub fn add_tests<'a>(pool: &Pool<'a>, wanted: &'a Wanted, is_thorough: bool) {
    let build = ["test", "--no-run"];
    for (what, arguments, part) in [
        ("host::libraries", [&build, &PROGRAMS[..], &PURE, &HOST, &selected(&OF_HOST)].concat(), ""),
        // The other tests are in these programs, too, but they would use the atomics of the models outside a model.
        (
            "host::models",
            [&build, &PURE[..], &REPEATED, &HOST, &["--lib"], &selected(&MODELS), &LOOM].concat(),
            "::models::",
        ),
    ] {
        pool.add(what, move |context| {
            if context.results.step("host::setup", setup::device_trees()).is_none() {
                return;
            }
            for executable in context.results.step(what, workspace::build(&arguments)).into_iter().flatten() {
                if context.is_listing() {
                    list(context.results, wanted, &executable, part);
                } else {
                    let name = full_name(&executable, "end");
                    let run = move |results: &Results| run(results, wanted, &executable, part, is_thorough);
                    context.add(name, 1, Box::new(run));
                }
            }
        });
    }
}

/// Returns the full name of a test of a program.
fn full_name(executable: &Executable, name: &str) -> String {
    format!("host::{}::{name}", executable.target)
}

/// Returns the tests of a program that have `part` in their names. The error is the program's output instead.
fn tests(executable: &Executable, part: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let listing = capture(executable.command().args(["--list", "--format", "terse"]), |line| {
        all.extend(libtest::listed(line).map(String::from));
    });
    listing.output()?;
    all.retain(|name| name.contains(part));
    if all.is_empty() { Err(format!("no test has {part:?} in its name")) } else { Ok(all) }
}

/// Lists the wanted tests of one program.
fn list(results: &Results, wanted: &Wanted, executable: &Executable, part: &str) {
    let tests = results.step(full_name(executable, "list"), tests(executable, part)).unwrap_or_default();
    let names = tests.iter().map(|name| full_name(executable, name));
    wanted.among(names).into_iter().for_each(|name| results.list(name, 1));
}

/// Runs the wanted tests of one program, one at a time. A listed test without a result is an error.
fn run(results: &Results, wanted: &Wanted, executable: &Executable, part: &str, is_thorough: bool) {
    let full = |name: &str| full_name(executable, name);
    let mut tests = results.step(full("list"), tests(executable, part)).unwrap_or_default();
    tests.retain(|name| wanted.has(&full(name)));
    if tests.is_empty() {
        return;
    }
    let mut command = executable.command();
    command.args(["--test-threads", "1", "--exact"]).args(&tests);
    if is_thorough {
        command.env(THOROUGH_FORMS, "1");
    }
    let mut missing: BTreeSet<_> = tests.iter().map(String::as_str).collect();
    let mut failed = Vec::new();
    let mut last = Instant::now();
    let captured = capture(&mut command, |line| match libtest::verdict(line) {
        Some((name, verdict)) if missing.remove(name) => {
            let duration = last.elapsed();
            last = Instant::now();
            let outcome = match verdict {
                Verdict::Passed => Ok(Outcome::Passed),
                Verdict::Ignored => Ok(Outcome::Skipped(String::new())),
                Verdict::Failed => return failed.push((name.to_string(), duration)),
            };
            results.add(Finished::test(full(name), outcome, duration));
        }
        _ => {}
    });
    let all_reported = missing.is_empty() && failed.is_empty();
    let mut outputs = libtest::outputs(&captured.text);
    for (name, duration) in failed {
        let output = outputs.remove(name.as_str()).unwrap_or_default();
        results.add(Finished::test(full(&name), Err(output), duration));
    }
    let ending = captured.result.err().unwrap_or_default();
    if all_reported && !ending.is_empty() {
        results.step_failed(full("end"), format!("{}{ending}", captured.text));
    }
    // A test that ends the whole program leaves others without a result, too. One explanation is enough for all.
    let mut explanation = captured.text.as_str();
    for name in missing {
        let outcome = Err(format!("{explanation}there is no result; {ending}"));
        results.add(Finished::test(full(name), outcome, last.elapsed()));
        explanation = "";
    }
}
