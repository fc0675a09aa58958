//! Lists of CPUs in filters: `CPUS{0,2-3}` (Linux, kernel/trace/trace_events_filter.c, and lib/bitmap-str.c for lists).

use alloc::vec::Vec;

use fallible::OutOfMemory;

use super::{Comparison, Range};

/// CPUs have lower numbers.
const LIMIT: usize = 256;

/// A set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuList([bool; LIMIT]);

impl CpuList {
    /// Parses `all`, or numbers and ranges of numbers with commas between them. After a range, `:USED/GROUP` takes the first
    /// USED of each GROUP of its numbers. Returns `None` if there is no number, or one that is no CPU's.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut list = Self([false; LIMIT]);
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let (range, stride) = match part.split_once(':') {
                Some((range, stride)) => (range, Some(stride.split_once('/')?)),
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "all" => (0, LIMIT - 1),
                Some((first, last)) => (number(first)?, number(last)?),
                // Only a range has groups.
                None if stride.is_some() => return None,
                None => (number(range)?, number(range)?),
            };
            let (used, group) = match stride {
                Some((used, group)) => (number(used)?, number(group)?),
                None => (1, 1),
            };
            if first > last || used > group || used == 0 {
                return None;
            }
            let cpus = list.0.get_mut(first..=last)?;
            cpus.chunks_mut(group).flat_map(|group| group.iter_mut().take(used)).for_each(|cpu| *cpu = true);
        }
        list.0.contains(&true).then_some(list)
    }

    /// Returns the ranges of numbers that compare to the list in this way; `None` if none does.
    pub(super) fn compared(&self, comparison: Comparison) -> Result<Option<Vec<Range>>, OutOfMemory> {
        let mut members = self.0.iter().enumerate().filter(|(_, is_member)| **is_member).map(|(cpu, _)| cpu as u64);
        // A number equals a list that it is alone in.
        let only = members.next().filter(|_| members.next().is_none());
        let compared = |otherwise| only.map_or(otherwise, |only| Range::of(comparison, only, false));
        Ok(Some(match comparison {
            Comparison::Equal => fallible::collect([compared(Range::NONE)])?,
            Comparison::NotEqual => fallible::collect([compared(Range::ALL)])?,
            Comparison::Bits => self.ranges()?,
            Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual => {
                return Ok(None);
            }
        }))
    }

    /// Returns the ranges that the list consists of.
    fn ranges(&self) -> Result<Vec<Range>, OutOfMemory> {
        let mut ranges = Vec::new();
        let mut low = 0;
        for run in self.0.chunk_by(|one, other| one == other) {
            if run.first() == Some(&true) {
                let span = run.len() as u64 - 1;
                fallible::push(&mut ranges, Range { mask: u64::MAX, low, span })?;
            }
            low += run.len() as u64;
        }
        Ok(ranges)
    }
}

/// Parses the number of a CPU.
fn number(text: &str) -> Option<usize> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| is_number && number < LIMIT)
}
