//! What of a program cannot be probed: a probe of which that is true of all instructions is refused, before the program runs; of
//! the others it is told what they leave out. Pure.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use aarch64_kprobes::ProbeError;

/// An instruction that is to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The number of the probe in the text of the program.
    pub probe: usize,
    /// The virtual address of the function.
    pub function: usize,
    /// The virtual address of the instruction.
    pub address: usize,
}

/// What cannot be probed.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// The virtual addresses of functions that a probe means, and of which it can reach nothing: each once, in ascending order.
    pub functions: Vec<usize>,
    /// The virtual addresses of instructions that a probe means and cannot reach, in functions of which it reaches others.
    pub instructions: Vec<usize>,
    /// The probes that reach nothing at all, by their numbers in the text, each with a sentence.
    pub probes: BTreeMap<usize, String>,
}

impl Refused {
    /// What `outcomes`, one for each instruction that is to be probed, amount to.
    pub fn of(outcomes: Vec<(Wanted, Result<(), ProbeError>)>) -> Self {
        let mut reached = BTreeSet::new();
        let mut reaching = BTreeSet::new();
        let mut failed = Vec::new();
        for (wanted, outcome) in outcomes {
            match outcome {
                Ok(()) => {
                    reached.insert((wanted.probe, wanted.function));
                    reaching.insert(wanted.probe);
                }
                Err(error) => failed.push((wanted, error)),
            }
        }
        let (mut functions, mut instructions) = (BTreeSet::new(), BTreeSet::new());
        let mut probes: BTreeMap<usize, (usize, ProbeError)> = BTreeMap::new();
        for (Wanted { probe, function, address }, error) in failed {
            if reached.contains(&(probe, function)) {
                instructions.insert(address);
            } else {
                functions.insert(function);
            }
            if !reaching.contains(&probe) {
                probes.entry(probe).or_insert((0, error)).0 += 1;
            }
        }
        let sentence = |(count, error): (usize, ProbeError)| match count {
            1 => error.to_string(),
            _ => format!("none of {count} instructions can be probed; of the first: {error}"),
        };
        Self {
            functions: functions.into_iter().collect(),
            instructions: instructions.into_iter().collect(),
            probes: probes.into_iter().map(|(probe, why)| (probe, sentence(why))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(outcomes: &[(usize, usize, usize, bool)]) -> Refused {
        let outcome = |&(probe, function, address, is_registered): &(usize, usize, usize, bool)| {
            let outcome = if is_registered { Ok(()) } else { Err(ProbeError::Blacklisted { address }) };
            (Wanted { probe, function, address }, outcome)
        };
        Refused::of(outcomes.iter().map(outcome).collect())
    }

    #[test]
    fn functions_of_which_a_part_is_probed_are_not_among_those_that_are_not() {
        let refused = of(&[
            (0, 0x1000, 0x1000, true),
            (0, 0x1000, 0x1008, false),
            (0, 0x1000, 0x1004, false),
            (0, 0x2000, 0x2000, false),
            (0, 0x2000, 0x2004, false),
            (0, 0x3000, 0x3000, true),
        ]);
        assert_eq!(refused.functions, [0x2000]);
        assert_eq!(refused.instructions, [0x1004, 0x1008]);
        assert!(refused.probes.is_empty());
    }

    #[test]
    fn a_probe_that_reaches_nothing_is_refused_whatever_others_reach() {
        let refused = of(&[
            (0, 0x1000, 0x1000, true),
            (1, 0x1000, 0x1000, false),
            (2, 0x2000, 0x2000, false),
            (2, 0x2000, 0x2004, false),
        ]);
        assert_eq!(refused.functions, [0x1000, 0x2000]);
        let one = "0x1000 runs while probes are being handled, so it cannot be probed itself";
        let two = "none of 2 instructions can be probed; of the first: 0x2000 runs while probes are being handled, so it cannot be \
                   probed itself";
        assert_eq!(refused.probes.into_iter().collect::<Vec<_>>(), [(1, one.into()), (2, two.into())]);
    }
}
