//! Lists of CPUs in filters: `CPUS{0,2-3}` (Linux, kernel/trace/trace_events_filter.c, and lib/bitmap-str.c for lists).

use alloc::vec::Vec;

use aarch64_kprobes::platform::MAX_CPUS;
use fallible::OutOfMemory;

use super::{AcceptedRange, Comparison};
use crate::definition::number::plain;

/// A set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuList([bool; MAX_CPUS]);

impl CpuList {
    /// Parses numbers and ranges of numbers, with commas or white space between them. `all` is the range of all CPUs,
    /// and `N` the last one. After a range, `:USED/GROUP` takes the first USED of each GROUP of its numbers. Returns
    /// `None` if the text is empty or cannot be read, or if a number is out of range.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut list = Self([false; MAX_CPUS]);
        let is_between = |character: char| character == ',' || character.is_ascii_whitespace();
        for part in text.split(is_between).filter(|part| !part.is_empty()) {
            let (range, groups) = match part.split_once(':') {
                Some((range, groups)) => (range, Some(groups.split_once('/')?)),
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range.eq_ignore_ascii_case("all") => (0, MAX_CPUS - 1),
                Some((first, last)) => (cpu(first)?, cpu(last)?),
                // Only a range has groups.
                None if groups.is_some() => return None,
                None => (cpu(range)?, cpu(range)?),
            };
            let (used, group) = groups.map_or(Some((1, 1)), |(used, group)| Some((number(used)?, number(group)?)))?;
            if first > last || used > group || group == 0 {
                return None;
            }
            let cpus = list.0.get_mut(first..=last)?;
            cpus.chunks_mut(group).flat_map(|group| group.iter_mut().take(used)).for_each(|cpu| *cpu = true);
        }
        (!text.is_empty()).then_some(list)
    }

    /// Returns the ranges of numbers that compare to the list in this way. Other comparisons than `==`, `!=` and `&`
    /// have none.
    pub(super) fn compared(&self, comparison: Comparison) -> Result<Vec<AcceptedRange>, OutOfMemory> {
        let mut members = self.0.iter().enumerate().filter(|(_, is_member)| **is_member).map(|(cpu, _)| cpu as u64);
        // A number equals a list only if it is the only number in the list.
        let only = members.next().filter(|_| members.next().is_none());
        match (comparison, only) {
            (Comparison::Equal | Comparison::NotEqual, Some(only)) => {
                fallible::collect([AcceptedRange::of(comparison, only, false)])
            }
            // Each CPU differs from a list of several. A number that no CPU has does not.
            (Comparison::NotEqual, None) => {
                fallible::collect([AcceptedRange::of(Comparison::Less, MAX_CPUS as u64, false)])
            }
            (Comparison::Bits, _) => self.ranges(),
            _ => fallible::collect([AcceptedRange::NONE]),
        }
    }

    /// Returns the ranges that the list consists of, at least one.
    fn ranges(&self) -> Result<Vec<AcceptedRange>, OutOfMemory> {
        let mut ranges = Vec::new();
        let mut low = 0;
        for run in self.0.chunk_by(|one, other| one == other) {
            if run.first() == Some(&true) {
                let span = run.len() as u64 - 1;
                fallible::push(&mut ranges, AcceptedRange { mask: u64::MAX, low, span })?;
            }
            low += run.len() as u64;
        }
        if ranges.is_empty() {
            fallible::push(&mut ranges, AcceptedRange::NONE)?;
        }
        Ok(ranges)
    }
}

/// Parses the number of a CPU.
fn cpu(text: &str) -> Option<usize> {
    if text == "N" {
        return Some(MAX_CPUS - 1);
    }
    number(text).filter(|&number| number < MAX_CPUS)
}

fn number(text: &str) -> Option<usize> {
    plain(text, 10)?.try_into().ok()
}
