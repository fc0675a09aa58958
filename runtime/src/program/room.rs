//! Room for instructions that are made while the kernel runs. Memory that is once mapped to be executed stays so, hence what a
//! program does not need any more is kept for the next one.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// Memory that nobody uses: the virtual addresses at which stretches of it begin and end. None touches another.
#[derive(Debug, Default, PartialEq, Eq)]
struct Free(BTreeMap<usize, usize>);

impl Free {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Takes `bytes` from the first stretch that has so many.
    fn take(&mut self, bytes: usize) -> Option<Range<usize>> {
        let (&start, &end) = self.0.iter().find(|(start, end)| **end - **start >= bytes)?;
        self.0.remove(&start);
        if start + bytes < end {
            self.0.insert(start + bytes, end);
        }
        Some(start..start + bytes)
    }

    /// Takes back what was taken, or is new, or is nothing.
    fn give(&mut self, Range { mut start, mut end }: Range<usize>) {
        if start == end {
            return;
        }
        if let Some((&before, _)) = self.0.range(..start).next_back().filter(|(_, before_end)| **before_end == start) {
            self.0.remove(&before);
            start = before;
        }
        if let Some(behind) = self.0.remove(&end) {
            end = behind;
        }
        self.0.insert(start, end);
    }
}

#[cfg(target_os = "none")]
mod target {
    use core::ops::Range;

    use aarch64_kprobes::probe;

    use super::Free;
    use crate::memory::layout::PAGE_SIZE;
    use crate::memory::{OutOfMemory, allocate_executable};
    use crate::sync::PreemptLock;

    /// What handlers are aligned to, in bytes: numbers that they load follow the instructions.
    const ALIGNMENT: usize = 8;

    /// What programs have used.
    static FREE: PreemptLock<Free> = PreemptLock::new(Free::new());

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
            let range = FREE.lock().take(bytes);
            let range = match range {
                Some(range) => range,
                None => {
                    let length = bytes.next_multiple_of(PAGE_SIZE);
                    let start = allocate_executable(length, false)?;
                    let mut free = FREE.lock();
                    free.give(start + bytes..start + length);
                    start..start + bytes
                }
            };
            // SAFETY: it is executable memory of which nobody else has been told, and large enough.
            unsafe { probe::write_instructions(range.start, words) };
            Ok(Self(range))
        }

        /// The virtual address of the first.
        pub fn start(&self) -> usize {
            self.0.start
        }
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
        assert_eq!(free, Free::new());
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut free = Free::new();
            for number in order {
                free.give(ranges[number].clone());
            }
            assert_eq!(free, Free([(0x1000, 0x2000)].into()), "{order:?}");
        }
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
