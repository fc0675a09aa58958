//! Counts the instructions that can be probed, by the way of probing, and those that cannot, by the reason.

mod class;
mod linear_scan;
mod survey;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::ops::Range;

use aarch64_kprobes::ProbeError;
use fallible::OutOfMemory;

pub use class::Class;
use linear_scan::Masks;
pub use survey::At;
use survey::survey;

/// The counts of some functions.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// The counts of each class, in ascending order of the class.
    classes: Vec<(Class, Count)>,
    loose: Comparison,
    tight: Comparison,
}

/// Counts of instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// All instructions.
    instructions: u64,
    /// The first instructions of functions.
    entries: u64,
}

/// The differences between a linear scan and the check, for the instructions that are refused at most because of their
/// position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Comparison {
    /// The instructions outside every sequence that the scan refuses.
    refused: Occurrences,
    /// The instructions inside a sequence that the scan accepts.
    accepted: Occurrences,
}

/// A number of occurrences, with the virtual address of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Occurrences {
    count: u64,
    first: Option<usize>,
}

impl Census {
    /// Counts a function in the text. It begins at the virtual address `start` and consists of `words`, as they are
    /// without probes. `at` answers questions about addresses.
    ///
    /// # Errors
    ///
    /// There is no memory to analyze the function, or for another class.
    pub fn add(&mut self, start: usize, words: &[u32], blacklist: &Range<usize>, at: At) -> Result<(), OutOfMemory> {
        for (index, outcome) in survey(start, words, blacklist, at)?.enumerate() {
            let count = self.count_mut(Class::of(&outcome))?;
            count.instructions += 1;
            count.entries += u64::from(index == 0);
            let inside = match outcome {
                Ok(_) => false,
                Err(ProbeError::Exclusive { .. }) => true,
                Err(_) => continue,
            };
            let before = &words[..index];
            for (masks, comparison) in [(Masks::Loose, &mut self.loose), (Masks::Tight, &mut self.tight)] {
                let found = match (masks.refuse(before), inside) {
                    (true, false) => &mut comparison.refused,
                    (false, true) => &mut comparison.accepted,
                    _ => continue,
                };
                found.count += 1;
                found.first.get_or_insert(start + 4 * index);
            }
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
        )?;
        writeln!(f, "A linear scan back over 32 instructions, as Linux does it, would be wrong about:")?;
        for (masks, Comparison { refused, accepted }) in [("up to 2025", self.loose), ("since 2025", self.tight)] {
            writeln!(f, "  {masks}: {refused} refused outside every sequence, {accepted} accepted inside one")?;
        }
        Ok(())
    }
}

impl fmt::Display for Occurrences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        self.first.map_or(Ok(()), |first| write!(f, " (the first at {first:#x})"))
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
