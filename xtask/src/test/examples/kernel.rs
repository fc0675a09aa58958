//! The example with four CPUs. Its numbers differ from run to run, so they are checked against each other.

use std::path::Path;

use super::{QemuMachine, run, shown};
use crate::{audit, test::report::Outcome, workspace};

pub const PACKAGE: &str = "kprobes-kernel-example";
/// The most lines that its page promises: those that describe the kernel to the engine, and those that a kernel that
/// changes its own text has already.
pub const LINES: &[(&str, usize)] = &[("probes", 90), ("patching", 65)];
const CPUS: usize = 4;

/// Audits the image by the declarations of the example.
pub fn is_closed(elf: &Path) -> Result<(), String> {
    audit::check(audit::Image::Example, elf, workspace::other_profile().is_none())
}

/// Runs the example, with its tables filled in, on several CPUs. It must print what its page shows, with other numbers
/// that agree with each other.
pub fn counts(name: &str, elf: &Path, machine: QemuMachine) -> Result<Outcome, String> {
    let printed = run(elf, QemuMachine { cpus: CPUS, ..machine })?;
    let page = shown(name)?;
    if words(&printed) != words(&page) {
        return Err(format!("it prints\n{printed}\nand its page shows\n{page}"));
    }
    check(&printed).map(|()| Outcome::Passed).map_err(|sentence| format!("it prints\n{printed}\n{sentence}"))
}

/// Returns the text between the numbers.
fn words(text: &str) -> Vec<&str> {
    text.split(|letter: char| letter.is_ascii_digit()).filter(|words| !words.is_empty()).collect()
}

/// Checks the numbers of each line against those of the others.
fn check(printed: &str) -> Result<(), &'static str> {
    let numbers = |line: &str| line.split(|letter: char| !letter.is_ascii_digit()).flat_map(str::parse).collect();
    let lines: Vec<Vec<u64>> = printed.lines().map(numbers).collect();
    let [rounds, tasks, calls, kprobe, kretprobe] = &*lines else { return Err("there are not five lines") };
    if **rounds == [0] || tasks.last() == Some(&0) {
        return Err("nothing was placed and removed, or no task was preempted");
    }
    let [calls, arguments, results] = **calls else { return Err("the calls are not three numbers") };
    for (probe, values) in [(kprobe, arguments), (kretprobe, results)] {
        let [hits, by_cpu @ .., missed, sum] = &**probe else { return Err("a probe has too few numbers") };
        if (*hits, *missed, *sum) != (calls, 0, values) {
            return Err("a probe has other hits than there were calls, or other values");
        }
        if by_cpu.len() != CPUS || by_cpu.contains(&0) || by_cpu.iter().sum::<u64>() != calls {
            return Err("the hits of the CPUs are not those of the probe, or a CPU has none");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{check, words};

    const PRINTED: &str = "placed 2 times\n4 CPUs, 3 times\n6 calls, 10, 20\nk: 6 hits, [1, 2, 1, 2], 0 missed, 10\n\
                           r: 6 hits, [3, 1, 1, 1], 0 missed, 20\n";

    #[test]
    fn numbers_agree() {
        assert_eq!(check(PRINTED), Ok(()));
        for (right, wrong) in [
            ("2 times\n", "0 times\n"),
            ("3 times", "0 times"),
            ("6 calls", "7 calls"),
            ("k: 6", "k: 5"),
            ("[1, 2, 1, 2]", "[1, 2, 1, 1]"),
            ("[1, 2, 1, 2]", "[0, 2, 2, 2]"),
            ("[1, 2, 1, 2]", "[1, 2, 3]"),
            ("0 missed, 10", "1 missed, 10"),
            ("0 missed, 20", "0 missed, 21"),
        ] {
            assert!(check(&PRINTED.replacen(right, wrong, 1)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_no_words() {
        assert_eq!(words("a 12 b\n"), words("a 3 b\n"));
        assert_ne!(words("a 12 b\n"), words("a 12\n"));
    }
}
