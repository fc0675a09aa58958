//! Audits programs with planted errors: each rule has a program that breaks it.

mod declared;
mod planted;
mod stacks;
mod suspects;
mod tables;
mod words;

use std::path::Path;

use super::{Findings, declarations::Declarations, executable::Executable};

/// Returns the violations in a program with these declarations, each as the path and the sentence.
fn audit(executable: &Executable, declared: &str) -> Vec<String> {
    let mut declarations = Declarations::default();
    declarations.add(Path::new("test.toml"), declared, true).expect("the declarations can be read");
    let findings = Findings::new(executable, &declarations);
    let told = |violation: &super::Violation| format!("{}: {}", violation.path.join(" → "), violation.what);
    findings.violations.iter().map(told).collect()
}
