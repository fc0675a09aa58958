//! The output of a program on one CPU: a ring of words, with one writer, `hit::append`, and one reader, a task.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use crate::atomic::{AtomicU64, Cells, cells};

/// The words of a record before its values: the action with the number of values, and the time.
pub(crate) const HEAD: usize = 2;

/// An output ring. A record that does not fit is dropped and counted as lost.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) cells: Box<Cells>,
    /// The number of words ever written.
    pub(crate) written: AtomicU64,
    /// The number of words ever read.
    pub(crate) read: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// A record of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the action to carry out.
    pub action: u8,
    /// The time when the clause asked for it, in nanoseconds.
    pub time: u64,
    /// The arguments of the action.
    pub values: Vec<u64>,
}

impl Ring {
    /// Makes a ring of `words` words, a power of 2.
    pub fn new(words: usize) -> Result<Self, OutOfMemory> {
        let zero = || AtomicU64::new(0);
        Ok(Self { cells: cells(words)?, written: zero(), read: zero(), lost: zero() })
    }

    /// Returns the word with this number, counted from the first ever written.
    #[inline(always)]
    pub(crate) fn cell(&self, number: u64) -> Option<&AtomicU64> {
        self.cells.get(number as usize & self.cells.len().wrapping_sub(1))
    }

    /// Returns the number of words ever written: the end of the last record.
    pub fn end(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns whether everything up to `end`, the end of a record, has been read.
    pub fn is_read(&self, end: u64) -> bool {
        self.read.load(Ordering::Relaxed) == end
    }

    /// Returns the time of the next record; `None` if there is none. Only the reader may call this.
    pub fn next_time(&self) -> Option<u64> {
        let read = self.read.load(Ordering::Relaxed);
        (self.written.load(Ordering::Acquire) != read).then_some(())?;
        self.cell(read.wrapping_add(1)).map(|cell| cell.load(Ordering::Relaxed))
    }

    /// Takes the next record; `None` if there is none. Only the reader may call this.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the record. The record then stays the next.
    pub fn take(&self) -> Result<Option<Record>, OutOfMemory> {
        let Some(time) = self.next_time() else { return Ok(None) };
        let read = self.read.load(Ordering::Relaxed);
        let Some(head) = self.cell(read).map(|cell| cell.load(Ordering::Relaxed)) else { return Ok(None) };
        let count = head >> 8;
        let word = |at: u64| self.cell(read.wrapping_add(HEAD as u64 + at)).map(|cell| cell.load(Ordering::Relaxed));
        let values = fallible::collect((0..count).filter_map(word))?;
        self.read.store(read.wrapping_add(HEAD as u64 + count), Ordering::Release);
        Ok(Some(Record { action: head as u8, time, values }))
    }

    /// Returns the number of records that did not fit.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    fn values(words: &[u64]) -> Box<Cells> {
        words.iter().map(|&word| AtomicU64::new(word)).collect()
    }

    #[test]
    fn records_come_out_as_they_went_in_also_around_the_end() {
        let ring = Ring::new(16).unwrap();
        for number in 0..100_u64 {
            let words: Vec<u64> = (0..number % 5).map(|word| number + word).collect();
            ring.write(number as u8, number, &values(&words));
            assert_eq!(ring.next_time(), Some(number));
            assert_eq!(ring.take().unwrap(), Some(Record { action: number as u8, time: number, values: words }));
        }
        assert_eq!(ring.take().unwrap(), None);
    }

    #[test]
    fn what_does_not_fit_is_lost_and_counted_and_the_rest_is_whole() {
        let ring = Ring::new(16).unwrap();
        for number in 0..9 {
            ring.write(number, 0, &values(&[u64::from(number)]));
        }
        assert_eq!(ring.lost(), 4);
        let taken: Vec<u8> = std::iter::from_fn(|| ring.take().unwrap()).map(|record| record.action).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4]);
    }
}
