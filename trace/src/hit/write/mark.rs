//! Records of messages, which tasks write. This code is in the region that is closed to probes: a hit inside it would
//! find the ring busy.

use core::sync::atomic::Ordering;

use crate::context::Context;
use crate::recorder::{Flags, PRINT_EVENT, PRINT_HEADER, RAW_EVENT};
use crate::ring::{RECORD_HEADER, Ring};

/// Bytes of a record before the written bytes: the common fields.
const COMMON: usize = 8;

impl Ring {
    /// Records the message `text`, of at most [`PRINT_MAX`](crate::recorder::PRINT_MAX) bytes, as written at the
    /// virtual address `place`. Adds a line end if the text has none, and a zero. Returns false if there is no room for
    /// the message; it is counted as dropped then.
    ///
    /// # Safety
    ///
    /// The caller must run on the CPU of the ring, which is that of `context`, with interrupts masked. `masked` must
    /// say whether interrupts were masked before.
    #[inline(never)]
    pub(crate) unsafe fn mark(&self, context: &Context, masked: bool, place: u64, text: &[u8]) -> bool {
        const TEXT: usize = PRINT_HEADER - COMMON;
        let end = if text.last() == Some(&b'\n') { 0 } else { b'\n' };
        let length = PRINT_HEADER + text.len() + usize::from(end != 0) + 1;
        let byte = |at: usize| match at.checked_sub(TEXT) {
            None => (place >> (8 * at)) as u8,
            Some(at) => match text.get(at) {
                Some(&byte) => byte,
                None if at == text.len() => end,
                None => 0,
            },
        };
        // SAFETY: the caller upholds the contract of `note`, which is the same (see # Safety).
        unsafe { self.note(context, masked, PRINT_EVENT, length, byte) }
    }

    /// Records `bytes`, at most [`RAW_MAX`](crate::recorder::RAW_MAX) of them: a number of four bytes, and data. As in
    /// Linux, the length is rounded up to a multiple of 4, here with zeros. Returns false if there is no room for the
    /// record; it is counted as dropped then.
    ///
    /// # Safety
    ///
    /// The contract of [`mark`](Self::mark) applies.
    #[inline(never)]
    pub(crate) unsafe fn mark_raw(&self, context: &Context, masked: bool, bytes: &[u8]) -> bool {
        let length = COMMON + bytes.len().next_multiple_of(4);
        let byte = |at: usize| match bytes.get(at) {
            Some(&byte) => byte,
            None => 0,
        };
        // SAFETY: the caller upholds the contract of `note`, which is the same (see # Safety).
        unsafe { self.note(context, masked, RAW_EVENT, length, byte) }
    }

    /// Records the bytes that `byte` returns by their place after the common fields, as a record of `event` that has
    /// `length` bytes. Returns false if there is no room for it.
    ///
    /// # Safety
    ///
    /// The contract of [`mark`](Self::mark) applies.
    #[inline(always)]
    unsafe fn note(
        &self,
        context: &Context,
        masked: bool,
        event: u16,
        length: usize,
        byte: impl Fn(usize) -> u8,
    ) -> bool {
        const FIRST: usize = RECORD_HEADER / 8;
        if !self.enter() {
            return false;
        }
        let words = length.div_ceil(8);
        let reservation = self.reserve(RECORD_HEADER + 8 * words);
        let has_room = reservation.is_some();
        if let Some(reservation) = reservation {
            let interrupt = self.interrupt.load(Ordering::Relaxed);
            let flags = u64::from(masked) << Flags::IRQS_OFF.trailing_zeros()
                | u64::from(interrupt) << Flags::INTERRUPT.trailing_zeros();
            // SAFETY: `reserve` has reserved `FIRST + words` words, of which these are the first.
            unsafe {
                reservation.set(0, (RECORD_HEADER + length) as u64);
                reservation.set(1, context.time);
                reservation.set(2, context.name[0]);
                reservation.set(3, context.name[1]);
                reservation.set(FIRST, u64::from(event) | flags << 16 | context.task << 32);
            }
            for index in FIRST + 1..FIRST + words {
                let at = 8 * (index - FIRST - 1);
                let word = (0..8).fold(0, |word, byte_of| word | u64::from(byte(at + byte_of)) << (8 * byte_of));
                // SAFETY: `index` is below `FIRST + words`, the size of the reservation in words.
                unsafe { reservation.set(index, word) };
            }
            reservation.commit();
        }
        self.leave();
        has_room
    }
}
