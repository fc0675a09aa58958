//! Counts the instructions that can be probed, by the way of probing, and those that cannot, by the reason.

mod class;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt::{self, Write};

use aarch64_kprobes::ProbeError;
use aarch64_kprobes::probe::CheckedInstruction;
use fallible::OutOfMemory;

pub use class::Class;

/// The counts of some functions.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// The counts of each class, in ascending order of the class.
    classes: Vec<(Class, Count)>,
}

/// Counts of instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// All instructions.
    instructions: u64,
    /// The first instructions of functions.
    entries: u64,
}

impl Census {
    /// Counts a function by the results of the check of its instructions, in ascending order of their addresses.
    ///
    /// # Errors
    ///
    /// There was no memory for a check, or there is none for another class.
    pub fn add(
        &mut self,
        outcomes: impl IntoIterator<Item = Result<CheckedInstruction, ProbeError>>,
    ) -> Result<(), OutOfMemory> {
        for (index, outcome) in outcomes.into_iter().enumerate() {
            if let Err(ProbeError::OutOfMemory { .. }) = outcome {
                return Err(OutOfMemory);
            }
            let count = self.count_mut(Class::of(&outcome))?;
            count.instructions += 1;
            count.entries += u64::from(index == 0);
        }
        Ok(())
    }

    fn count_mut(&mut self, class: Class) -> Result<&mut Count, OutOfMemory> {
        self.classes.try_reserve(1)?;
        let at = self.classes.binary_search_by_key(&class, |&(known, _)| known).unwrap_or_else(|at| {
            self.classes.insert(at, (class, Count::default()));
            at
        });
        Ok(&mut self.classes[at].1)
    }

    /// Returns the number of counted instructions.
    pub fn instructions(&self) -> u64 {
        self.sum(|_| true).instructions
    }

    /// Returns the sum of the counts of the classes for which `wanted` is true.
    fn sum(&self, wanted: impl Fn(Class) -> bool) -> Count {
        let counts = self.classes.iter().filter(|&&(class, _)| wanted(class)).map(|&(_, count)| count);
        counts.fold(Count::default(), |sum, count| Count {
            instructions: sum.instructions + count.instructions,
            entries: sum.entries + count.entries,
        })
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.sum(|_| true);
        writeln!(f, "    instructions  function entries")?;
        let mut row = |indent: &str, label: &dyn fmt::Display, count: Count| {
            let instructions = Percent(count.instructions, all.instructions);
            let entries = Percent(count.entries, all.entries);
            writeln!(
                f,
                "{:>8} {instructions:>8}  {:>8} {entries:>8}  {indent}{label}",
                count.instructions, count.entries
            )
        };
        row("", &"all", all)?;
        for (label, group) in class::GROUPS {
            let count = self.sum(group);
            if count.instructions == 0 {
                continue;
            }
            row("", &label, count)?;
            for (class, count) in self.classes.iter().filter(|&&(class, _)| group(class) && class != Class::Slot) {
                row("  ", class, *count)?;
            }
        }
        let candidates = self.sum(|class| !class.is_exclusive() && class != Class::Blacklisted).instructions;
        let accepted = self.sum(Class::accepts).instructions;
        writeln!(
            f,
            "Outside exclusive sequences and the blacklist, {accepted} of {candidates} instructions accept a probe: {}",
            Percent(accepted, candidates)
        )
    }
}

/// A share of a whole, in hundredths of a percent, rounded down so that only the whole is 100 %.
struct Percent(u64, u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(part, whole) = *self;
        match (part * 10_000).checked_div(whole) {
            Some(hundredths) => {
                let mut text = heapless::String::<24>::new();
                write!(text, "{}.{:02} %", hundredths / 100, hundredths % 100)?;
                f.pad(&text)
            }
            None => f.pad("-"),
        }
    }
}
