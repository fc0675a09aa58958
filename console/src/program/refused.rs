//! Collects what a program cannot probe. If a probe reaches no instruction at all, the program is refused before it
//! runs. Otherwise it runs, and the user is told which functions and instructions are left out. A pure computation.

use alloc::string::String;
use alloc::vec::Vec;

use aarch64_kprobes::ProbeError;
use fallible::OutOfMemory;

/// An instruction to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbedInstruction {
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
    /// The virtual addresses of the functions that a probe means, but in which it reaches no instruction. Each is
    /// listed once, in ascending order.
    pub functions: Vec<usize>,
    /// The virtual addresses of the instructions that a probe means, but cannot reach, in functions in which it reaches
    /// others.
    pub instructions: Vec<usize>,
    /// The probes that reach no instruction: their numbers in the text, in ascending order, each with a sentence.
    pub probes: Vec<(usize, String)>,
}

impl Refused {
    /// Summarizes `outcomes`, one for each instruction to be probed.
    ///
    /// # Errors
    ///
    /// There is no memory for the lists.
    pub fn of(outcomes: Vec<(ProbedInstruction, Result<(), ProbeError>)>) -> Result<Self, OutOfMemory> {
        let (mut reached, mut failed) = (Vec::new(), Vec::new());
        for (ProbedInstruction { probe, function, address }, outcome) in outcomes {
            match outcome {
                Ok(()) if reached.last() == Some(&(probe, function)) => {}
                Ok(()) => fallible::push(&mut reached, (probe, function))?,
                Err(error) => fallible::push(&mut failed, (probe, function, address, error))?,
            }
        }
        reached.sort_unstable();
        let reaches = |probe| {
            let first = reached.partition_point(|&(other, _)| other < probe);
            reached.get(first).is_some_and(|&(other, _)| other == probe)
        };
        let mut refused = Self::default();
        let mut probes: Vec<(usize, usize, ProbeError)> = Vec::new();
        for (probe, function, address, error) in failed {
            if reached.binary_search(&(probe, function)).is_ok() {
                fallible::push(&mut refused.instructions, address)?;
            } else {
                fallible::push(&mut refused.functions, function)?;
            }
            if !reaches(probe) {
                match probes.iter_mut().find(|(other, ..)| *other == probe) {
                    Some((_, count, _)) => *count += 1,
                    None => fallible::push(&mut probes, (probe, 1, error))?,
                }
            }
        }
        for list in [&mut refused.functions, &mut refused.instructions] {
            list.sort_unstable();
            list.dedup();
        }
        fallible::sort_by_key(&mut probes, |(probe, ..)| *probe);
        for (probe, count, error) in probes {
            let sentence = match count {
                1 => fallible::format(format_args!("{error}"))?,
                _ => fallible::format(format_args!("none of {count} instructions can be probed; the first: {error}"))?,
            };
            fallible::push(&mut refused.probes, (probe, sentence))?;
        }
        Ok(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(outcomes: &[(usize, usize, usize, bool)]) -> Refused {
        let outcome = |&(probe, function, address, is_registered): &(usize, usize, usize, bool)| {
            let outcome = if is_registered { Ok(()) } else { Err(ProbeError::Blacklisted { address }) };
            (ProbedInstruction { probe, function, address }, outcome)
        };
        Refused::of(outcomes.iter().map(outcome).collect()).unwrap()
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
        let one = "0x1000 runs while probes are handled, so it cannot be probed";
        let two = "none of 2 instructions can be probed; the first: 0x2000 runs while probes are handled, so it cannot be probed";
        assert_eq!(refused.probes.into_iter().collect::<Vec<_>>(), [(1, one.into()), (2, two.into())]);
    }
}
