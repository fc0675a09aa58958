//! Records of messages, which tasks write. This code is in the region that is closed to probes: a hit inside it would
//! find the ring busy.

use core::sync::atomic::Ordering;

use crate::host::Context;
use crate::recorder::{Flags, PRINT_EVENT, PRINT_HEADER};
use crate::ring::{RECORD_HEADER, Ring};

impl Ring {
    /// Records the message `text`, of at most [`PRINT_MAX`](crate::recorder::PRINT_MAX) bytes, as written at the
    /// virtual address `place`. Adds a line end if the text has none, and a zero. A message without room is counted as
    /// dropped.
    ///
    /// # Safety
    ///
    /// The caller must run on the CPU of the ring, which is that of `context`, with interrupts masked. `masked` must
    /// say whether they were masked before.
    #[inline(never)]
    pub(crate) unsafe fn mark(&self, context: &Context, masked: bool, place: u64, text: &[u8]) {
        const FIRST: usize = RECORD_HEADER / 8;
        const TEXT: usize = FIRST + PRINT_HEADER / 8;
        if !self.enter() {
            return;
        }
        let end = if text.last() == Some(&b'\n') { 0 } else { b'\n' };
        let length = PRINT_HEADER + text.len() + usize::from(end != 0) + 1;
        let words = length.div_ceil(8);
        if let Some(room) = self.reserve(RECORD_HEADER + 8 * words) {
            let interrupt = self.interrupt.load(Ordering::Relaxed);
            let flags = u64::from(masked) << Flags::IRQS_OFF.trailing_zeros()
                | u64::from(interrupt) << Flags::INTERRUPT.trailing_zeros();
            // SAFETY: the reserved room has `FIRST + words` words, and these are the first of them.
            unsafe {
                room.set(0, (RECORD_HEADER + length) as u64);
                room.set(1, context.time);
                room.set(2, context.name[0]);
                room.set(3, context.name[1]);
                room.set(FIRST, u64::from(PRINT_EVENT) | flags << 16 | context.task << 32);
                room.set(FIRST + 1, place);
            }
            for index in TEXT..FIRST + words {
                let byte = |at: usize| match text.get(at) {
                    Some(&byte) => byte,
                    None if at == text.len() => end,
                    None => 0,
                };
                let at = 8 * (index - TEXT);
                let word = (0..8).fold(0, |word, byte_of| word | u64::from(byte(at + byte_of)) << (8 * byte_of));
                // SAFETY: `index` is below `FIRST + words`, the size of the reserved room in words.
                unsafe { room.set(index, word) };
            }
            room.commit();
        }
        self.leave();
    }
}
