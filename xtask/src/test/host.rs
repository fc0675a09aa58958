//! What needs no machine: the style of the sources, and the tests of the pure parts.

use std::collections::BTreeSet;

use super::{
    capture::capture,
    libtest::{self, Verdict},
    report::Report,
};
use crate::workspace::{self, Executable};

/// The packages whose library, or the pure part of it, also builds for the host.
const LIBRARIES: [&str; 14] = [
    "-p",
    "aarch64-kprobes",
    "-p",
    "kprobes-trace",
    "-p",
    "kprobes-program",
    "-p",
    "kprobes-symbols",
    "-p",
    "kprobes-loader-protocol",
    "-p",
    "kprobes-pl011",
    "-p",
    "runtime",
];
const HOST: [&str; 2] = ["--target", "host-tuple"];
/// The packages that have model-checked tests, and how these are built: see `models/`.
const MODELS: [&str; 8] = ["-p", "aarch64-kprobes", "-p", "kprobes-trace", "-p", "kprobes-program", "-p", "runtime"];
const LOOM: [&str; 2] = ["--config", r#"target."cfg(all())".rustflags=["--cfg=loom"]"#];
const DENY: [&str; 3] = ["--", "-D", "warnings"];

/// Checks the sources without running them.
pub fn check(report: &mut Report) {
    let checks: [(&str, Vec<&str>); 6] = [
        ("check::format", vec!["fmt", "--all", "--check", "--", "--color", "never"]),
        (
            "check::clippy::target",
            [&["clippy", "--release", "--workspace", "--exclude", "xtask", "--exclude", "kprobes-loader"], &DENY[..]]
                .concat(),
        ),
        // It has no heap, which together with the others it would need.
        ("check::clippy::loader", [&["clippy", "--release", "-p", "kprobes-loader"], &DENY[..]].concat()),
        // The profile is what makes clippy look at the tests of the libraries, too.
        ("check::clippy::host", [&["clippy", "--lib", "--profile", "test"], &HOST[..], &LIBRARIES, &DENY].concat()),
        (
            "check::clippy::models",
            [&["clippy", "--lib", "--profile", "test"], &HOST[..], &MODELS, &["-p", "kprobes-models"], &LOOM, &DENY]
                .concat(),
        ),
        ("check::clippy::xtask", [&["clippy", "--release", "-p", "xtask", "--all-targets"], &HOST[..], &DENY].concat()),
    ];
    for (name, arguments) in checks {
        if report.wants(name) {
            let captured = capture(&mut workspace::cargo(&arguments), |_| {});
            report.result(name, captured.result.map_err(|sentence| captured.text + &sentence));
        }
    }
}

/// Runs the tests of the pure parts.
pub fn test(report: &mut Report) {
    let build = ["test", "--no-run", "--release"];
    for (what, arguments, part) in [
        ("host::libraries", [&build, &HOST[..], &["--lib"], &LIBRARIES].concat(), ""),
        // The other tests are in these programs, too, and would use the atomics of the models outside a model.
        ("host::models", [&build, &HOST[..], &["--lib"], &MODELS, &LOOM].concat(), "::models::"),
        ("host::xtask", [&build, &HOST[..], &["--bins", "-p", "xtask"]].concat(), ""),
    ] {
        match workspace::build(&arguments) {
            Ok(executables) => executables.iter().for_each(|executable| run(report, executable, part)),
            Err(error) => report.result(what, Err(format!("{error:#}"))),
        }
    }
}

/// Runs the wanted tests of one program that have `part` in their names, and misses none of those that it lists.
fn run(report: &mut Report, executable: &Executable, part: &str) {
    let full = |name: &str| format!("host::{}::{name}", executable.target);
    let mut all = Vec::new();
    let listing = capture(executable.command().args(["--list", "--format", "terse"]), |line| {
        all.extend(libtest::listed(line).map(String::from));
    });
    if let Err(sentence) = listing.result {
        report.result(&full("list"), Err(listing.text + &sentence));
    } else if !all.iter().any(|name| name.contains(part)) {
        report.result(&full("list"), Err(format!("no test has {part:?} in its name")));
    }
    let wanted: Vec<_> = all.iter().filter(|name| name.contains(part) && report.wants(&full(name))).collect();
    if wanted.is_empty() {
        return;
    }
    let mut command = executable.command();
    if wanted.len() < all.len() {
        command.arg("--exact").args(&wanted);
    }
    let mut missing: BTreeSet<_> = wanted.iter().map(|name| name.as_str()).collect();
    let mut failed = Vec::new();
    let captured = capture(&mut command, |line| match libtest::verdict(line) {
        Some((name, verdict)) if missing.remove(name) => match verdict {
            Verdict::Passed => report.result(&full(name), Ok(())),
            Verdict::Ignored => report.ignored(&full(name), ""),
            Verdict::Failed => failed.push(name.to_string()),
        },
        _ => {}
    });
    let all_reported = missing.is_empty() && failed.is_empty();
    let mut outputs = libtest::outputs(&captured.text);
    for name in failed {
        report.result(&full(&name), Err(outputs.remove(name.as_str()).unwrap_or_default()));
    }
    let ending = captured.result.err().unwrap_or_default();
    if all_reported && !ending.is_empty() {
        report.result(&full("end"), Err(format!("{}{ending}", captured.text)));
    }
    // A test that ends the whole program leaves more than itself without a result, and one explanation for all.
    let mut explanation = captured.text.as_str();
    for name in missing {
        report.result(&full(name), Err(format!("{explanation}there is no result; {ending}")));
        explanation = "";
    }
}
