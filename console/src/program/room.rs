//! Room for instructions that are made while the kernel runs. Memory that is once mapped to be executed stays so, hence what a
//! program does not need any more is kept for the next one.

use alloc::vec::Vec;
use core::ops::Range;

use fallible::OutOfMemory;

/// Free memory: the virtual addresses at which stretches of it begin and end, in ascending order. None touches another.
#[derive(Debug)]
struct Free {
    stretches: Vec<(usize, usize)>,
    /// How many more stretches the list has room for at least, so that they can be given back without memory.
    promised: usize,
}

impl Free {
    const fn new() -> Self {
        Self { stretches: Vec::new(), promised: 0 }
    }

    /// Has [`give`](Self::give) take no memory, `count` times.
    fn promise(&mut self, count: usize) -> Result<(), OutOfMemory> {
        self.stretches.try_reserve(self.promised + count)?;
        self.promised += count;
        Ok(())
    }

    /// Gives up a promise.
    fn forgo(&mut self, count: usize) {
        self.promised = self.promised.saturating_sub(count);
    }

    /// Takes `bytes` from the first stretch that has so many.
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

    /// Takes back what was taken, or is new, or is nothing. It was promised.
    fn give(&mut self, Range { start, end }: Range<usize>) {
        self.forgo(1);
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

#[cfg(target_os = "none")]
mod target {
    use core::ops::Range;

    use aarch64_kprobes::{platform, probe};

    use super::Free;
    use crate::lock::Lock;
    use fallible::OutOfMemory;

    /// What is asked for at a time, in bytes.
    const PAGE_SIZE: usize = 4096;
    /// What handlers are aligned to, in bytes: numbers that they load follow the instructions.
    const ALIGNMENT: usize = 8;

    /// What programs have used.
    static FREE: Lock<Free> = Lock::new(Free::new());

    /// Instructions in memory, until this is dropped. Branch targets are not checked there.
    #[derive(Debug)]
    pub struct Room(Range<usize>);

    impl Room {
        /// Finds room for `words`, of which there is one at least, and writes them there.
        ///
        /// # Errors
        ///
        /// There is no memory.
        pub fn new(words: &[u32]) -> Result<Self, OutOfMemory> {
            let bytes = size_of_val(words).next_multiple_of(ALIGNMENT);
            let range = find(bytes)?;
            // SAFETY: it is executable memory that has not been handed out before, and large enough.
            unsafe { probe::write_instructions(range.start, words) };
            Ok(Self(range))
        }

        /// The virtual address of the first.
        pub fn start(&self) -> usize {
            self.0.start
        }
    }

    /// Takes `bytes` from what is free, or from new pages; that they can be given back is promised.
    fn find(bytes: usize) -> Result<Range<usize>, OutOfMemory> {
        let mut free = FREE.lock();
        // The bytes, and what is left of new pages.
        free.promise(2).map_err(|_| OutOfMemory)?;
        if let Some(range) = free.take(bytes) {
            free.forgo(1);
            return Ok(range);
        }
        drop(free);
        let length = bytes.next_multiple_of(PAGE_SIZE);
        let Some(start) = platform::allocate_executable(length, false) else {
            FREE.lock().forgo(2);
            return Err(OutOfMemory);
        };
        FREE.lock().give(start + bytes..start + length);
        Ok(start..start + bytes)
    }

    impl Drop for Room {
        fn drop(&mut self) {
            FREE.lock().give(self.0.clone());
        }
    }
}

#[cfg(target_os = "none")]
pub(super) use target::Room;

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
    fn what_is_promised_has_room() {
        let mut free = Free::new();
        for count in 1..20 {
            free.promise(1).unwrap();
            assert!(free.stretches.capacity() >= count);
        }
        let capacity = free.stretches.capacity();
        (1..20).for_each(|number| free.give(0x100 * number..0x100 * number + 8));
        assert_eq!((free.stretches.len(), free.stretches.capacity(), free.promised), (19, capacity, 0));
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
