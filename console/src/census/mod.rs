//! How much of the text can be probed, how, and what stands against the rest.

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
use survey::survey;

/// The counts over some functions.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// In ascending order of the class.
    classes: Vec<(Class, Count)>,
    loose: Comparison,
    tight: Comparison,
}

/// How many there are of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Instructions.
    instructions: u64,
    /// First instructions of functions.
    entries: u64,
}

/// Where a linear scan answers otherwise than the check, of the instructions whose place alone can speak against
/// a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Comparison {
    /// Outside every sequence, but refused.
    refused: Found,
    /// Inside a sequence, but accepted.
    accepted: Found,
}

/// How often something was found, and at which virtual address first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    count: u64,
    first: Option<usize>,
}

impl Census {
    /// Counts a function in the text, which begins at the virtual address `start` and consists of `words`, as they are
    /// without probes. `has_data` is what the kernel says.
    ///
    /// # Errors
    ///
    /// There is no memory to look at it as a whole, or for a class more.
    pub fn add(
        &mut self,
        start: usize,
        words: &[u32],
        blacklist: &Range<usize>,
        has_data: fn(Range<usize>) -> bool,
    ) -> Result<(), OutOfMemory> {
        for (index, outcome) in survey(start, words, blacklist, has_data)?.enumerate() {
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

    /// How many instructions were counted.
    pub fn instructions(&self) -> u64 {
        self.sum(|_| true).instructions
    }

    /// How many of those that are counted are of a class that is `wanted`.
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

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        self.first.map_or(Ok(()), |first| write!(f, " (the first at {first:#x})"))
    }
}

/// A part of a whole, in hundredths of a percent, rounded down so that only all is 100 %.
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
