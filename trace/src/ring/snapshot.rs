//! Reading the rings: records are copied first, because printing takes long and may be probed itself.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use super::{Counts, PAGE, PAGE_HEADER, RECORD_HEADER, Reader, Ring, Rings};
use crate::atomic::{AtomicU64, fence};
use crate::format::FAULTS;
use crate::recorder::Flags;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The number of the CPU that wrote it.
    pub cpu: usize,
    /// The number of this CPU's records that are missing before it.
    pub lost: u64,
    /// The system counter at the hit.
    pub time: u64,
    /// The number of records on all CPUs before it, including missing ones.
    pub count: u64,
    /// The name of the task, padded with zeros.
    pub name: [u8; 16],
    /// The arguments that could not be read: bit 0 for the first, up to bit 31.
    pub faults: u32,
    /// The event's own bytes, which its format describes.
    pub bytes: &'a [u8],
}

/// A copy of the rings' contents.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    cpus: Vec<Copied>,
}

/// A copy of one ring's contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Copied {
    /// The records, one after the other, without page headers and unused ends.
    bytes: Vec<u8>,
    /// Where records are missing: the offset in `bytes`, and how many.
    gaps: Vec<(usize, u64)>,
    pub(super) counts: Counts,
    /// The number of the first record, or of the first one missing before it.
    first: u64,
    /// The number of the next record.
    next: u64,
    /// The number of overwritten records.
    overwritten: u64,
    /// The number of records taken earlier, since the ring was cleared.
    read: u64,
}

/// The statistics of a ring in `per_cpu/cpuN/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of records in the ring.
    pub entries: u64,
    /// The number of records that were overwritten before they were taken.
    pub overrun: u64,
    /// The number of records that found no room.
    pub dropped: u64,
    /// The number of records that were taken.
    pub read: u64,
    /// The size of the records in the ring, in bytes.
    pub bytes: u64,
    /// The system counter at the oldest record in the ring.
    pub oldest: Option<u64>,
}

impl Stats {
    /// Returns the number of records that were written, including overwritten ones and without taken ones.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.entries + self.overrun
    }
}

impl Rings {
    /// Copies the contents of the rings. Records missing before the first record of a CPU appear only in the counts,
    /// because no record precedes the gap.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the copy.
    pub fn snapshot(&self) -> Result<Snapshot, OutOfMemory> {
        let copy = |ring: &Ring| -> Result<_, OutOfMemory> {
            let (mut copied, _) = ring.copy(*ring.reader.lock())?;
            copied.drop_first_gap();
            Ok(copied)
        };
        Ok(Snapshot { cpus: fallible::collect_results(self.rings.iter().map(copy))? })
    }

    /// Takes all records out of the ring of `cpu`; `None` takes those of all CPUs.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the copy. Then nothing was taken.
    pub fn take(&self, cpu: Option<usize>) -> Result<Snapshot, OutOfMemory> {
        self.take_all(|number, ring, reader| {
            if cpu.is_some_and(|cpu| cpu != number) {
                return Ok((Copied::default(), reader));
            }
            let (copied, next) = ring.copy(reader)?;
            let read = next.read + copied.counts.present;
            Ok((copied, Reader { read, ..next }))
        })
    }

    /// Takes the records that were in the rings when a trigger `snapshot` last fired; `None` if none has fired since
    /// the last call. With `now`, takes all present records. Afterwards the rings contain only later records, as if
    /// they were new rings.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the copy. Then nothing was taken.
    pub fn split_off(&self, now: bool) -> Result<Option<Snapshot>, OutOfMemory> {
        let mut parted = self.parted.lock();
        let newest = self.part(now)?;
        Ok(newest.or(parted.take()))
    }

    /// Splits off the records that a trigger `snapshot` wants, and keeps them for [`split_off`](Self::split_off). A
    /// reader that takes records calls this first, so that it does not take the records of a snapshot.
    pub(super) fn keep_parted(&self) -> Result<(), OutOfMemory> {
        let mut parted = self.parted.lock();
        if let Some(newest) = self.part(false)? {
            *parted = Some(newest);
        }
        Ok(())
    }

    /// Splits the records off. The caller holds the lock of `parted`, so that no reader takes records meanwhile.
    fn part(&self, now: bool) -> Result<Option<Snapshot>, OutOfMemory> {
        let splits = self.splits.swap(0, Ordering::Acquire);
        if splits == 0 && !now {
            return Ok(None);
        }
        let taken = self.take_all(|_, ring, reader| {
            let end = (!now).then(|| ring.split.load(Ordering::Acquire));
            if end.is_some_and(|end| end <= reader.position) {
                return Ok((Copied { first: reader.number, next: reader.number, ..Copied::default() }, reader));
            }
            let (mut copied, next) = ring.copy_to(reader, end)?;
            copied.drop_first_gap();
            // The copy counts the last records that found no room, so they are not missing before the next page.
            let number = next.number + (copied.counts.lost - next.lost);
            Ok((copied, Reader { position: next.position, number, ..Reader::default() }))
        });
        if taken.is_err() && splits != 0 {
            // The positions are still stored, so the next call can try again.
            self.splits.store(splits, Ordering::Relaxed);
        }
        taken.map(Some)
    }

    /// Takes records out of all rings: `copy` copies those of a ring, and returns the next state of the ring's reader,
    /// too. If there is no memory for one of the copies, nothing is taken.
    fn take_all(
        &self,
        copy: impl Fn(usize, &Ring, Reader) -> Result<(Copied, Reader), OutOfMemory>,
    ) -> Result<Snapshot, OutOfMemory> {
        // Every task locks the readers in the order of the CPUs, so there is no deadlock.
        let mut readers = fallible::collect(self.rings.iter().map(|ring| ring.reader.lock()))?;
        let copies = self.rings.iter().zip(&readers).enumerate();
        let copies = fallible::collect_results(copies.map(|(cpu, (ring, reader))| copy(cpu, ring, **reader)))?;
        let mut cpus = Vec::new();
        cpus.try_reserve_exact(copies.len())?;
        for ((ring, reader), (copied, next)) in self.rings.iter().zip(&mut readers).zip(copies) {
            **reader = next;
            ring.taken.store(next.position, Ordering::Release);
            cpus.push(copied);
        }
        Ok(Snapshot { cpus })
    }
}

impl Ring {
    /// Copies the ring's contents from the position of `reader` on. Returns the copy and the reader's next state.
    fn copy(&self, reader: Reader) -> Result<(Copied, Reader), OutOfMemory> {
        self.copy_to(reader, None)
    }

    /// Copies the ring's contents from the position of `reader` up to the position `until`; `None` means all.
    pub(super) fn copy_to(&self, mut reader: Reader, until: Option<u64>) -> Result<(Copied, Reader), OutOfMemory> {
        const BYTES: u64 = PAGE as u64;
        let counts = Counts { lost: reader.lost, ..Counts::default() };
        let (first, overwritten, read) = (reader.number, reader.overwritten, reader.read);
        let mut copied = Copied { counts, first, overwritten, read, ..Copied::default() };
        // Everything below this position is complete, whatever is written meanwhile.
        let end = until.unwrap_or_else(|| self.position(Ordering::Acquire));
        // SAFETY: only the holder of the reader's lock changes pages, and the caller holds it.
        let pages = unsafe { &*self.pages.get() };
        let count = pages.len() as u64;
        let first = (reader.position / BYTES).max((self.begun.load(Ordering::Relaxed) + 1).saturating_sub(count));
        // Says why records are missing before the next page: they were overwritten, or otherwise they found no room.
        let mut is_overwritten = reader.is_overwritten || first > reader.position / BYTES;
        for number in first..end.div_ceil(BYTES) {
            let Some(page) = pages.get((number % count) as usize) else { break };
            let length = (end - number * BYTES).min(BYTES) as usize;
            let start = copied.bytes.len();
            copied.bytes.try_reserve(length)?;
            let skipped = if reader.position / BYTES == number { (reader.position % BYTES) as usize } else { 0 };
            let (head, records) = copy_page(page, length, skipped.max(PAGE_HEADER), &mut copied.bytes);
            // Acquire, after the words: if one of them belongs to a later page, that page is visible in `begun`.
            fence(Ordering::Acquire);
            if number + count <= self.begun.load(Ordering::Relaxed) {
                copied.bytes.truncate(start);
                is_overwritten = true;
                continue;
            }
            if skipped == 0 {
                let lost = head.saturating_sub(reader.number);
                if lost > 0 {
                    fallible::push(&mut copied.gaps, (start, lost))?;
                    copied.counts.lost += lost;
                    copied.overwritten += if is_overwritten { lost } else { 0 };
                }
                reader.number = head;
            }
            is_overwritten = false;
            reader.number += records;
            copied.counts.present += records;
        }
        (reader.lost, reader.overwritten) = (copied.counts.lost, copied.overwritten);
        // These records precede no record yet. Once they do, the gap appears there. The reader may have cleared some of
        // them.
        let (number, missing) = if until.is_some() { (reader.number, 0) } else { self.next_number() };
        copied.counts.lost += missing.min((number + missing).saturating_sub(reader.number));
        copied.next = reader.number.max(number + missing);
        (reader.position, reader.is_overwritten) = (end, is_overwritten);
        Ok((copied, reader))
    }
}

/// Copies the records of `page` from byte `from` up to `end`, or to a word that is 0. Returns the number at the page's
/// start, and the number of copied records.
fn copy_page(page: &[AtomicU64], end: usize, from: usize, out: &mut Vec<u8>) -> (u64, u64) {
    let word = |at: usize| page.get(at / 8).map_or(0, |word| word.load(Ordering::Relaxed));
    let (mut at, mut records) = (from, 0);
    while at < end {
        let head = word(at);
        // A page that is being overwritten can contain anything.
        let size = usize::from(head as u16).next_multiple_of(8);
        if size < RECORD_HEADER || at + size > end {
            break;
        }
        out.extend_from_slice(&head.to_le_bytes());
        (at + 8..at + size).step_by(8).for_each(|at| out.extend_from_slice(&word(at).to_le_bytes()));
        at += size;
        records += 1;
    }
    (word(0), records)
}

impl Record<'_> {
    /// Returns the number of the event.
    #[must_use]
    pub fn event(&self) -> u16 {
        self.word(0) as u16
    }

    /// Returns the state of the CPU at the hit.
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags((self.word(0) >> 16) as u8)
    }

    /// Returns the number of the task.
    #[must_use]
    pub fn task(&self) -> u32 {
        (self.word(0) >> 32) as u32
    }

    /// Returns the word at byte `at`; 0 beyond the end.
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Whether argument `number`, from 0, could not be read. The arguments after the 31st share a bit, so this is false
    /// for them.
    #[must_use]
    pub fn is_fault(&self, number: usize) -> bool {
        number < FAULTS && self.faults & 1 << number != 0
    }
}

impl Snapshot {
    /// Returns the records of all CPUs, oldest first.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory to merge the records of several CPUs.
    pub fn records(&self) -> Result<impl Iterator<Item = Record<'_>>, OutOfMemory> {
        Ok(self.records_with_next()?.map(|(record, _)| record))
    }

    /// Returns the records, oldest first, each with the record that follows it on its CPU.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`records`](Self::records).
    pub fn records_with_next(&self) -> Result<impl Iterator<Item = (Record<'_>, Option<Record<'_>>)>, OutOfMemory> {
        let cpus = self.cpus.iter().enumerate();
        let mut next = fallible::collect(cpus.map(|(cpu, copied)| copied.records(cpu).peekable()))?;
        let mut count = self.cpus.iter().map(|copied| copied.first).sum::<u64>();
        Ok(core::iter::from_fn(move || {
            let times = next.iter_mut().enumerate().filter_map(|(cpu, records)| Some((records.peek()?.time, cpu)));
            let (_, cpu) = times.min()?;
            let records = next.get_mut(cpu)?;
            let record = records.next()?;
            count += record.lost + 1;
            Some((Record { count: count - 1, ..record }, records.peek().copied()))
        }))
    }

    /// Removes the records of `cpu`, and its counts.
    pub(crate) fn clear_of(&mut self, cpu: usize) {
        if let Some(copied) = self.cpus.get_mut(cpu) {
            *copied = Copied { first: copied.next, next: copied.next, ..Copied::default() };
        }
    }

    /// Returns the counts of each CPU's records since its ring was cleared.
    pub fn counts(&self) -> impl Iterator<Item = Counts> {
        self.cpus.iter().map(|copied| copied.counts)
    }

    /// Returns the number of records on all CPUs up to the end of the snapshot, including missing ones.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cpus.iter().map(|copied| copied.next).sum()
    }

    /// Returns the statistics of each ring.
    pub fn stats(&self) -> impl Iterator<Item = Stats> {
        self.cpus.iter().map(|copied| {
            let Counts { present, lost } = copied.counts;
            Stats {
                entries: present,
                overrun: copied.overwritten,
                dropped: lost.saturating_sub(copied.overwritten),
                read: copied.read,
                bytes: copied.bytes.len() as u64,
                oldest: copied.records(0).next().map(|record| record.time),
            }
        })
    }

    /// Returns the number of records in the snapshot.
    #[must_use]
    pub fn present(&self) -> u64 {
        self.counts().map(|counts| counts.present).sum()
    }

    /// Returns the number of records since the rings were cleared, including lost ones and without taken ones.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.counts().map(|counts| counts.present + counts.lost).sum()
    }

    /// Returns the number of records that were written since the rings were cleared, including overwritten ones and
    /// without taken ones. As in Linux, those that found no room are not among them.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.stats().map(|stats| stats.written()).sum()
    }

    /// Returns the numbers of records that are [present](Self::present) and [written](Self::written): all, or those of
    /// one `cpu`.
    pub(crate) fn entries_of(&self, cpu: Option<usize>) -> (u64, u64) {
        let Some(cpu) = cpu else { return (self.present(), self.written()) };
        let stats = self.stats().nth(cpu).unwrap_or_default();
        (stats.entries, stats.written())
    }
}

impl Copied {
    /// Removes a gap before the first record: no record precedes it, so it appears only in the counts.
    fn drop_first_gap(&mut self) {
        if let Some(&(0, lost)) = self.gaps.first() {
            self.first += lost;
            self.gaps.remove(0);
        }
    }

    pub(super) fn records(&self, cpu: usize) -> impl Iterator<Item = Record<'_>> {
        let (mut at, mut gaps) = (0, self.gaps.iter().peekable());
        core::iter::from_fn(move || {
            let rest = self.bytes.get(at..)?;
            let (head, rest) = rest.split_at_checked(RECORD_HEADER)?;
            let (size, head) = head.split_first_chunk::<2>()?;
            let (_, head) = head.split_first_chunk::<2>()?;
            let (faults, head) = head.split_first_chunk::<4>()?;
            let (time, name) = head.split_first_chunk::<8>()?;
            let size = usize::from(u16::from_le_bytes(*size));
            let lost = gaps.next_if(|(place, _)| *place == at).map_or(0, |(_, lost)| *lost);
            at += size.next_multiple_of(8);
            Some(Record {
                cpu,
                lost,
                time: u64::from_le_bytes(*time),
                count: 0,
                name: *name.first_chunk()?,
                faults: u32::from_le_bytes(*faults),
                bytes: rest.get(..size - RECORD_HEADER)?,
            })
        })
    }
}
