//! Sets of physical memory: RAM minus reservations minus what has been taken.

use core::ops::Range;

use heapless::Vec;

/// The most ranges in a set. The reservations of a [`Hardware`](crate::Hardware) cut its RAM into fewer
/// pieces. Beyond the limit, memory stays unused.
const CAPACITY: usize = 128;
/// Bytes in a page, the unit of a set.
pub const PAGE: u64 = 4096;

/// Ranges of physical addresses that are whole pages and do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions(Vec<Range<u64>, CAPACITY>);

impl Regions {
    /// Creates an empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Iterates over the ranges, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Adds the pages that lie wholly in `range`. Merges ranges that touch.
    pub fn add(&mut self, range: Range<u64>) {
        let Some(start) = range.start.checked_next_multiple_of(PAGE) else { return };
        let end = range.end & !(PAGE - 1);
        if end <= start {
            return;
        }
        // Memory that is in the set already must not be added twice.
        self.remove(start..end);
        let mut whole = start..end;
        while let Some(index) = self.0.iter().position(|range| range.end == whole.start || range.start == whole.end) {
            let neighbour = self.0.swap_remove(index);
            whole = whole.start.min(neighbour.start)..whole.end.max(neighbour.end);
        }
        self.push(whole);
    }

    /// Removes all pages that overlap `range`.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let start = range.start & !(PAGE - 1);
        let end = range.end.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1));
        for found in core::mem::take(&mut self.0) {
            self.push(found.start..found.end.min(start));
            self.push(found.start.max(end)..found.end);
        }
    }

    /// Takes `length` bytes, a multiple of the page size, from the start of a range that is large enough. Returns their
    /// physical address.
    pub fn take(&mut self, length: u64) -> Option<u64> {
        let index = self.0.iter().position(|range| range.end - range.start >= length)?;
        let start = self.0[index].start;
        self.0[index].start += length;
        if self.0[index].is_empty() {
            self.0.swap_remove(index);
        }
        Some(start)
    }

    /// Takes `length` bytes at a multiple of `alignment`. Returns their physical address. Both arguments are multiples
    /// of the page size.
    pub fn take_aligned(&mut self, length: u64, alignment: u64) -> Option<u64> {
        let start = self.0.iter().find_map(|range| {
            let start = range.start.checked_next_multiple_of(alignment)?;
            (start.checked_add(length)? <= range.end).then_some(start)
        })?;
        self.remove(start..start + length);
        Some(start)
    }

    /// Returns the number of bytes in all ranges.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    fn push(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Err(range) = self.0.push(range) {
            // The set is full, so the smallest range is dropped.
            if let Some(smallest) = self.0.iter_mut().min_by_key(|range| range.end - range.start)
                && smallest.end - smallest.start < range.end - range.start
            {
                *smallest = range;
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "some lists have one range")]
mod tests {
    use super::*;

    fn sorted(regions: &Regions) -> std::vec::Vec<Range<u64>> {
        let mut ranges: std::vec::Vec<_> = regions.iter().cloned().collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    fn with(range: Range<u64>) -> Regions {
        let mut regions = Regions::new();
        regions.add(range);
        regions
    }

    #[test]
    fn ram_is_rounded_inwards_and_reservations_outwards() {
        let mut regions = with(0x1001..0x8fff);
        assert_eq!(sorted(&regions), [0x2000..0x8000]);
        regions.remove(0x3fff..0x4001);
        assert_eq!(sorted(&regions), [0x2000..0x3000, 0x5000..0x8000]);
        regions.remove(0..0x2001);
        assert_eq!(sorted(&regions), [0x5000..0x8000]);
        regions.remove(0x7000..u64::MAX);
        assert_eq!(sorted(&regions), [0x5000..0x7000]);
        assert_eq!(regions.total(), 0x2000);
    }

    #[test]
    fn memory_that_is_added_twice_is_there_once() {
        let mut regions = with(0x1000..0x4000);
        regions.add(0x2000..0x6000);
        assert_eq!(regions.total(), 0x5000);
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let mut regions = Regions::new();
        for page in [0, 2, 4, 1, 3] {
            regions.add(page * 0x1000..(page + 1) * 0x1000);
        }
        assert_eq!(sorted(&regions), [0..0x5000]);
        regions.add(0x6000..0x7000);
        regions.add(0..0);
        assert_eq!(sorted(&regions), [0..0x5000, 0x6000..0x7000]);
    }

    #[test]
    fn an_empty_reservation_removes_nothing() {
        let mut regions = with(0x1000..0x4000);
        regions.remove(0x2800..0x2800);
        assert_eq!(sorted(&regions), [0x1000..0x4000]);
    }

    #[test]
    fn taken_memory_is_gone() {
        let mut regions = with(0x1000..0x3000);
        assert_eq!(regions.take(0x1000), Some(0x1000));
        assert_eq!(regions.take(0x1000), Some(0x2000));
        assert_eq!(regions.take(0x1000), None);
        let mut regions = with(0x1000..0x9000);
        assert_eq!(regions.take_aligned(0x2000, 0x4000), Some(0x4000));
        assert_eq!(sorted(&regions), [0x1000..0x4000, 0x6000..0x9000]);
        assert_eq!(regions.take_aligned(0x4000, 0x4000), None);
    }

    #[test]
    fn too_many_pieces_cost_the_smallest() {
        let mut regions = with(0..0x40_0000);
        for page in 0..200 {
            regions.remove(page * 0x2000..page * 0x2000 + 1);
        }
        assert_eq!(regions.iter().count(), CAPACITY);
        assert!(regions.iter().any(|range| range.end == 0x40_0000));
        assert!(regions.total() <= 0x40_0000 - 200 * 0x1000);
    }
}
