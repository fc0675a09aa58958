//! Executable memory for code that is generated at run time. Memory is never made non-executable again, so the memory
//! of an ended program is kept for the next one.

use alloc::vec::Vec;
use core::ops::Range;

use fallible::OutOfMemory;

/// Free memory, as the start and end addresses (virtual) of its ranges, in ascending order. Adjacent ranges are merged.
#[derive(Debug)]
struct Free {
    stretches: Vec<(usize, usize)>,
    /// The number of additional ranges that the list has reserved capacity for, so that memory can be returned without
    /// an allocation.
    reserved: usize,
}

impl Free {
    const fn new() -> Self {
        Self { stretches: Vec::new(), reserved: 0 }
    }

    /// Reserves capacity so that [`give`](Self::give) does not allocate in its next `count` calls.
    fn reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        self.stretches.try_reserve(self.reserved + count)?;
        self.reserved += count;
        Ok(())
    }

    /// Cancels `count` reservations.
    fn cancel(&mut self, count: usize) {
        self.reserved = self.reserved.saturating_sub(count);
    }

    /// Takes `bytes` bytes from the first range that is large enough.
    fn take(&mut self, bytes: usize) -> Option<Range<usize>> {
        let at = self.stretches.iter().position(|(start, end)| end - start >= bytes)?;
        let (start, end) = self.stretches[at];
        if start + bytes < end {
            self.stretches[at].0 = start + bytes;
        } else {
            self.stretches.remove(at);
        }
        Some(start..start + bytes)
    }

    /// Gives a range back to the free memory. The range may be new, or empty. Uses up one reservation.
    fn give(&mut self, Range { start, end }: Range<usize>) {
        self.cancel(1);
        if start == end {
            return;
        }
        let at = self.stretches.partition_point(|&(other, _)| other < start);
        let before = at.checked_sub(1).filter(|&before| self.stretches[before].1 == start);
        let behind = self.stretches.get(at).filter(|(other, _)| *other == end).map(|&(_, end)| end);
        match (before, behind) {
            (Some(before), Some(end)) => {
                self.stretches[before].1 = end;
                self.stretches.remove(at);
            }
            (Some(before), None) => self.stretches[before].1 = end,
            (None, Some(_)) => self.stretches[at].0 = start,
            (None, None) => self.stretches.insert(at, (start, end)),
        }
    }
}

mod target {
    use core::ops::Range;

    use aarch64_kprobes::{platform, probe};

    use super::Free;
    use crate::lock::Lock;
    use fallible::OutOfMemory;

    /// The unit in which executable memory is allocated, in bytes.
    const PAGE_SIZE: usize = 4096;
    /// The alignment of handlers, in bytes. It is the size of the literals after the instructions.
    const ALIGNMENT: usize = 8;

    /// Executable memory that no program uses.
    static FREE: Lock<Free> = Lock::new(Free::new());

    /// Instructions in executable memory, which is given back when this is dropped. The memory is not guarded: the CPU
    /// does not check branch targets there.
    #[derive(Debug)]
    pub struct ExecutableMemory(Range<usize>);

    impl ExecutableMemory {
        /// Writes `words`, at least one, to free executable memory.
        ///
        /// # Errors
        ///
        /// There is no memory.
        pub fn new(words: &[u32]) -> Result<Self, OutOfMemory> {
            let bytes = size_of_val(words).next_multiple_of(ALIGNMENT);
            let range = find(bytes)?;
            // SAFETY: `find` returned the range: executable memory from `allocate_executable` that is large enough,
            // aligned, and has no other owner.
            unsafe { probe::write_instructions(range.start, words) };
            Ok(Self(range))
        }

        /// Returns the virtual address of the first instruction.
        pub fn start(&self) -> usize {
            self.0.start
        }
    }

    /// Takes `bytes` bytes of free memory, or of new pages, and reserves capacity to return them.
    fn find(bytes: usize) -> Result<Range<usize>, OutOfMemory> {
        let mut free = FREE.lock();
        // One reservation is for the bytes, and one for the rest of the new pages.
        free.reserve(2).map_err(|_| OutOfMemory)?;
        if let Some(range) = free.take(bytes) {
            free.cancel(1);
            return Ok(range);
        }
        drop(free);
        let length = bytes.next_multiple_of(PAGE_SIZE);
        let Some(start) = platform::allocate_executable(length, false) else {
            FREE.lock().cancel(2);
            return Err(OutOfMemory);
        };
        FREE.lock().give(start + bytes..start + length);
        Ok(start..start + bytes)
    }

    impl Drop for ExecutableMemory {
        fn drop(&mut self) {
            FREE.lock().give(self.0.clone());
        }
    }
}

pub(super) use target::ExecutableMemory;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_as_it_was() {
        let mut free = Free::new();
        assert_eq!(free.take(8), None);
        free.give(0x1000..0x2000);
        let ranges = [0x100, 0xe00, 0x100].map(|bytes| free.take(bytes).unwrap());
        assert_eq!(ranges, [0x1000..0x1100, 0x1100..0x1f00, 0x1f00..0x2000]);
        assert_eq!(free.stretches, []);
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut free = Free::new();
            for number in order {
                free.give(ranges[number].clone());
            }
            assert_eq!(free.stretches, [(0x1000, 0x2000)], "{order:?}");
        }
    }

    #[test]
    fn what_is_reserved_has_room() {
        let mut free = Free::new();
        for count in 1..20 {
            free.reserve(1).unwrap();
            assert!(free.stretches.capacity() >= count);
        }
        let capacity = free.stretches.capacity();
        (1..20).for_each(|number| free.give(0x100 * number..0x100 * number + 8));
        assert_eq!((free.stretches.len(), free.stretches.capacity(), free.reserved), (19, capacity, 0));
    }

    #[test]
    fn stretches_that_do_not_touch_stay_apart() {
        let mut free = Free::new();
        free.give(0x1000..0x1008);
        free.give(0x1010..0x1020);
        free.give(0x1018..0x1018);
        assert_eq!(free.take(0x18), None);
        assert_eq!(free.take(0x10), Some(0x1010..0x1020));
        assert_eq!(free.take(8), Some(0x1000..0x1008));
    }
}
