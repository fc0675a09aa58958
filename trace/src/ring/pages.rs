//! The records of a ring as pages of Linux's `trace_pipe_raw`, in the layout that `events/header_page` and
//! `events/header_event` describe. Programs that read Linux's rings can read these pages (kernel/trace/ring_buffer.c).
//!
//! ```text
//! page   u64 time in ns │ u64 commit: bytes of data, flags │ event │ event │ … │ [u64 count of missing records] │ 0
//! event  u32: bits 0–4 type_len, bits 5–31 ns since the event before │ [u32 length] │ the record's own bytes
//! ```
//!
//! The pages are made when they are read. A page has no place for the name of the task, so the caller gets each record
//! to note the name. The time is that of the clock `local`, whatever `trace_clock` is set to.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use super::{PAGE, Reader, Record, Rings};
use crate::clock::Clock;

/// The size of a page, in bytes.
pub const RAW_PAGE: usize = 4096;
/// Bytes of a page before its data.
const HEADER: usize = 16;
/// Flag of `commit`: events are missing before the first one.
const MISSING: u64 = 1 << 31;
/// Flag of `commit`: the number of missing events follows the data.
const COUNTED: u64 = 1 << 30;
/// The largest `type_len` that is a length, in 32-bit words.
const TYPE_LEN_MAX: usize = 28;
/// The `type_len` of an event that only extends the time: the next word has the upper bits of its nanoseconds.
const TIME_EXTEND: u32 = 30;
const DELTA_BITS: u32 = 27;
const DELTA_MASK: u64 = (1 << DELTA_BITS) - 1;
/// The number of a ring's pages that are taken at a time, which bounds the memory that a call needs.
const PAGES_PER_CALL: u64 = 16;

/// The pages that one call takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The bytes of whole pages.
    pub bytes: Vec<u8>,
    /// The number of records in them.
    pub records: u64,
    /// The number of records missing between and before them.
    pub lost: u64,
}

impl Rings {
    /// Takes the oldest records out of the ring of `cpu`, as pages; no page if there are no records. Calls `named` for
    /// each record. Records that a trigger `snapshot` wants are split off first.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the pages, or if `named` fails. Then nothing was taken.
    pub fn take_pages(
        &self,
        cpu: usize,
        clock: Clock,
        named: &mut dyn FnMut(&Record<'_>) -> Result<(), OutOfMemory>,
    ) -> Result<Pages, OutOfMemory> {
        const BYTES: u64 = PAGE as u64;
        let Some(ring) = self.rings.get(cpu) else { return Ok(Pages::default()) };
        self.keep_parted()?;
        let mut reader = ring.reader.lock();
        // SAFETY: only the holder of the reader's lock changes pages, and this function holds it.
        let count = unsafe { &*ring.pages.get() }.len() as u64;
        let oldest = (ring.begun.load(Ordering::Relaxed) + 1).saturating_sub(count);
        let end = ((reader.position / BYTES).max(oldest) + PAGES_PER_CALL) * BYTES;
        let is_part = end < ring.position(Ordering::Acquire);
        let (copied, next) = ring.copy_to(*reader, is_part.then_some(end))?;
        let mut pages = Draft::default();
        for record in copied.records(cpu) {
            named(&record)?;
            pages.add(&record, clock.nanoseconds(record.time))?;
        }
        let pages = pages.finish();
        *reader = Reader { read: next.read + copied.counts.present, ..next };
        ring.taken.store(next.position, Ordering::Release);
        Ok(pages)
    }
}

/// Pages that are being made.
#[derive(Default)]
struct Draft {
    done: Pages,
    /// The length of the data in the last page, in bytes.
    used: usize,
    /// The time of the last event, in nanoseconds.
    last: u64,
    /// The number of records missing before the last page.
    lost: u64,
}

impl Draft {
    fn add(&mut self, record: &Record<'_>, time: u64) -> Result<(), OutOfMemory> {
        let words = record.bytes.len().div_ceil(4);
        let is_long = words > TYPE_LEN_MAX || words == 0;
        let length = 4 + if is_long { 4 } else { 0 } + 4 * words;
        // If the clock goes back, the event gets the time of the one before it.
        let delta = time.saturating_sub(self.last);
        let extension = if delta > DELTA_MASK { 8 } else { 0 };
        let is_first = self.done.bytes.is_empty();
        if is_first || record.lost > 0 || HEADER + self.used + extension + length > RAW_PAGE {
            self.close();
            let start = self.done.bytes.len();
            self.done.bytes.try_reserve(RAW_PAGE)?;
            self.done.bytes.resize(start + HEADER, 0);
            self.put(start, &time.to_le_bytes());
            (self.used, self.last, self.lost) = (0, time, record.lost);
            return self.event(record, 0, words, is_long);
        }
        if extension > 0 {
            self.word(TIME_EXTEND | ((delta & DELTA_MASK) as u32) << 5);
            self.word((delta >> DELTA_BITS) as u32);
        }
        self.last = time.max(self.last);
        self.event(record, if extension > 0 { 0 } else { delta as u32 }, words, is_long)
    }

    /// Appends an event; the page must have room for it.
    fn event(&mut self, record: &Record<'_>, delta: u32, words: usize, is_long: bool) -> Result<(), OutOfMemory> {
        self.word(delta << 5 | if is_long { 0 } else { words as u32 });
        if is_long {
            self.word(4 + 4 * words as u32);
        }
        // The space is reserved, so nothing is allocated.
        let end = self.done.bytes.len() + 4 * words;
        self.done.bytes.extend_from_slice(record.bytes);
        self.done.bytes.resize(end, 0);
        self.used += 4 * words;
        self.done.records += 1;
        self.done.lost += record.lost;
        Ok(())
    }

    fn word(&mut self, word: u32) {
        self.done.bytes.extend_from_slice(&word.to_le_bytes());
        self.used += 4;
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.done.bytes.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Pads the last page, if there is one, and writes its `commit` word.
    fn close(&mut self) {
        let Some(start) = self.done.bytes.len().checked_sub(HEADER + self.used) else { return };
        self.done.bytes.resize(start + RAW_PAGE, 0);
        let mut commit = self.used as u64;
        if self.lost > 0 {
            commit |= MISSING;
            if HEADER + self.used + 8 <= RAW_PAGE {
                commit |= COUNTED;
                self.put(start + HEADER + self.used, &self.lost.to_le_bytes());
            }
        }
        self.put(start + 8, &commit.to_le_bytes());
    }

    fn finish(mut self) -> Pages {
        self.close();
        self.done
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// An event of a page: its time, the number of events missing before it, and its bytes, which may be padded at the
    /// end.
    type Event = (u64, u64, Vec<u8>);

    /// Parses pages as ring_buffer.c describes them.
    fn read(bytes: &[u8]) -> Vec<Event> {
        assert_eq!(bytes.len() % RAW_PAGE, 0);
        let mut events = Vec::new();
        for page in bytes.chunks(RAW_PAGE) {
            let long = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
            let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
            let (mut time, commit) = (long(0), long(8));
            let end = HEADER + (commit & 0x07ff_ffff) as usize;
            let mut lost = if commit & COUNTED != 0 { long(end) } else { u64::from(commit & MISSING != 0) };
            let mut at = HEADER;
            while at < end {
                let (type_len, delta) = (word(at) & 31, u64::from(word(at) >> 5));
                time += delta;
                match type_len {
                    30 => {
                        time += u64::from(word(at + 4)) << 27;
                        at += 8;
                        continue;
                    }
                    0 => {
                        let length = word(at + 4) as usize - 4;
                        events.push((time, core::mem::take(&mut lost), page[at + 8..at + 8 + length].to_vec()));
                        at += 8 + length;
                    }
                    words => {
                        let length = 4 * words as usize;
                        events.push((time, core::mem::take(&mut lost), page[at + 4..at + 4 + length].to_vec()));
                        at += 4 + length;
                    }
                }
            }
            assert_eq!(at, end);
            assert!(page[end + 8.min(RAW_PAGE - end)..].iter().all(|&byte| byte == 0));
        }
        events
    }

    fn pages(records: &[(u64, u64, Vec<u8>)]) -> Pages {
        let mut draft = Draft::default();
        for (time, lost, bytes) in records {
            let (time, lost) = (*time, *lost);
            let record = Record { cpu: 0, lost, time, count: 0, name: [0; 16], faults: 0, bytes };
            draft.add(&record, time).unwrap();
        }
        draft.finish()
    }

    #[test]
    fn records_of_every_length_come_through() {
        let step = if cfg!(miri) { 17 } else { 1 };
        let lengths = (8..300).step_by(step).chain([4000, 4055, 4056]).chain((8..200).rev().step_by(step));
        let lengths: Vec<usize> = lengths.collect();
        let records: Vec<Event> =
            lengths.iter().map(|&length| (length as u64, 0, (0..length).map(|at| at as u8).collect())).collect();
        let made = pages(&records);
        assert_eq!((made.records, made.lost), (records.len() as u64, 0));
        let found = read(&made.bytes);
        assert_eq!(found.len(), records.len());
        let mut last = 0;
        for ((time, lost, bytes), (wanted, _, record)) in found.iter().zip(&records) {
            last = last.max(*wanted).max(*time);
            assert_eq!((*lost, &bytes[..record.len()]), (0, &record[..]));
            assert!(
                bytes.len() == record.len().next_multiple_of(4) && bytes[record.len()..].iter().all(|&byte| byte == 0)
            );
        }
    }

    #[test]
    fn times_are_exact_however_far_apart() {
        let mut time = 0;
        let steps = [0, 1, DELTA_MASK - 1, DELTA_MASK, DELTA_MASK + 1, 1 << 30, 1 << 40, 1 << 50, 3];
        let records: Vec<Event> = (0..20)
            .flat_map(|_| steps)
            .map(|step| {
                time += step;
                (time, 0, std::vec![1; 400])
            })
            .collect();
        let found = read(&pages(&records).bytes);
        let times = |events: &[Event]| events.iter().map(|(time, ..)| *time).collect::<Vec<_>>();
        assert_eq!(times(&found), times(&records));
    }

    #[test]
    fn what_is_missing_begins_a_page_that_counts_it() {
        let record = |lost| (5, lost, std::vec![7; 8]);
        let records: Vec<Event> = [3, 0, 0, 1 << 40, 0].map(record).to_vec();
        let made = pages(&records);
        assert_eq!((made.bytes.len(), made.lost, made.records), (2 * RAW_PAGE, 3 + (1 << 40), 5));
        assert_eq!(read(&made.bytes), records);
        let full = [(5, 9, std::vec![1; 4056])];
        let made = pages(&full);
        assert_eq!(read(&made.bytes)[0].1, 9);
        // A full page has no room for the count.
        let filled: Vec<Event> = (0..340).map(|number| (5, if number == 0 { 9 } else { 0 }, std::vec![1; 8])).collect();
        assert_eq!(read(&pages(&filled).bytes).first().map(|(_, lost, _)| *lost), Some(1));
        assert_eq!(pages(&[]), Pages::default());
    }
}
