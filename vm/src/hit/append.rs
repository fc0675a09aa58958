//! Writing an output record, on the CPU of the ring.

use core::sync::atomic::Ordering;

use crate::atomic::Cells;
use crate::maps::{RECORD_HEAD, Ring};

impl Ring {
    /// Writes a record. Must be called on the CPU of the ring, with interrupts masked. A record that does not fit is
    /// counted as lost.
    #[inline]
    pub fn write(&self, action: u8, time: u64, values: &Cells) {
        let written = self.written.load(Ordering::Relaxed);
        let taken = written.wrapping_sub(self.read.load(Ordering::Acquire));
        let words = RECORD_HEAD + values.len();
        if taken + words as u64 > self.cells.len() as u64 {
            self.lost.store(self.lost.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            return;
        }
        let head = [u64::from(action) | (values.len() as u64) << 8, time];
        let mut next = written;
        let mut put = |word| {
            if let Some(cell) = self.cell(next) {
                cell.store(word, Ordering::Relaxed);
            }
            next = next.wrapping_add(1);
        };
        for &word in &head {
            put(word);
        }
        for value in values {
            put(value.load(Ordering::Relaxed));
        }
        self.written.store(next, Ordering::Release);
    }
}
