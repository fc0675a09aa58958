//! Reads the output of Rust's own test programs.

use std::collections::BTreeMap;

/// The result that a test program prints for a test.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed,
    Ignored,
}

/// Returns the test and the verdict of a line such as `test a::b ... ok`.
pub fn verdict(line: &str) -> Option<(&str, Verdict)> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let verdict = match verdict.split([',', ' ']).next()? {
        "ok" => Verdict::Passed,
        "FAILED" => Verdict::Failed,
        "ignored" => Verdict::Ignored,
        _ => return None,
    };
    Some((name.strip_suffix(" - should panic").unwrap_or(name), verdict))
}

/// Returns the test of a line that `--list --format terse` prints.
pub fn listed(line: &str) -> Option<&str> {
    line.strip_suffix(": test")
}

/// Returns the output of each failed test, from all output of a test program.
pub fn outputs(text: &str) -> BTreeMap<&str, String> {
    let mut outputs: BTreeMap<&str, String> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            current = Some(name);
        } else if line == "failures:" {
            current = None;
        } else if let Some(name) = current {
            let output = outputs.entry(name).or_default();
            output.push_str(line);
            output.push('\n');
        }
    }
    outputs
}

#[cfg(test)]
mod tests {
    use super::{Verdict, listed, outputs, verdict};

    #[test]
    fn reads_verdicts() {
        assert_eq!(verdict("test a::b ... ok"), Some(("a::b", Verdict::Passed)));
        assert_eq!(verdict("test a ... FAILED"), Some(("a", Verdict::Failed)));
        assert_eq!(verdict("test a ... ignored, needs a board"), Some(("a", Verdict::Ignored)));
        assert_eq!(verdict("test a - should panic ... ok"), Some(("a", Verdict::Passed)));
        assert_eq!(verdict("test a ... ok <0.002s>"), Some(("a", Verdict::Passed)));
        for other in
            ["", "test", "running 3 tests", "test result: ok. 3 passed; 0 failed", "test a ... maybe", "a ... ok"]
        {
            assert_eq!(verdict(other), None, "{other}");
        }
    }

    #[test]
    fn reads_lists() {
        assert_eq!(listed("a::b: test"), Some("a::b"));
        assert_eq!(listed("a::b: benchmark"), None);
        assert_eq!(listed("1 test, 0 benchmarks"), None);
    }

    #[test]
    fn finds_what_failed_tests_printed() {
        let text = "running 2 tests\ntest a ... FAILED\ntest b ... FAILED\n\nfailures:\n\n---- a stdout ----\nleft: 1\n\n\
            ---- b stdout ----\nboom\n\nfailures:\n    a\n    b\n\ntest result: FAILED.\n";
        let outputs = outputs(text);
        assert_eq!(outputs["a"].trim(), "left: 1");
        assert_eq!(outputs["b"].trim(), "boom");
        assert_eq!(outputs.len(), 2);
    }
}
