//! Pending records of synthetic events. A trigger makes such a record while the record of its own event may still be in
//! the making. Therefore the record is kept in a buffer, and written when the record of the event is done. Only then
//! does the synthetic event's own plan run, which may add further records to the buffer. A record that finds no room in
//! the buffer, or is longer than a record can be, is counted together with the hits that find the ring busy.

use core::sync::atomic::Ordering::Relaxed;

use super::{RecordedHit, Registers};
use crate::atomic::AtomicU64;
use crate::context::Context;
use crate::histogram::{Form, Sent, VariableUse};
use crate::hit::action::Verdict;
use crate::recorder::{COMPOSED, Recorder};
use crate::ring::{Pending, RECORD_HEADER, Ring};
use crate::trigger::Plan;

/// Words before a pending record: the address of its recorder, and its size in bytes.
const HEADER: usize = 2;

impl Pending {
    /// Returns the words from `start` on; `None` if `start` is beyond the buffer.
    fn from(&self, start: usize) -> Option<&[AtomicU64]> {
        self.words.get(start..)
    }
}

impl VariableUse {
    /// Adds a pending record of a synthetic event, with the values `sent` from the variables in `entry` and in `read`.
    pub(crate) fn emit(&self, recorder: &Recorder, sent: &[Sent], entry: &[AtomicU64], read: &[AtomicU64], cpu: usize) {
        if !recorder.armed.load(Relaxed) {
            return;
        }
        let Some(ring) = recorder.rings.rings.get(cpu) else { return };
        if self.compose(&ring.pending, recorder, sent, entry, read).is_none() {
            ring.refuse();
        }
    }

    /// Composes a pending record. `None` if there is no room for it, or if it would not fit into a page of the ring.
    fn compose(
        &self,
        pending: &Pending,
        recorder: &Recorder,
        sent: &[Sent],
        entry: &[AtomicU64],
        read: &[AtomicU64],
    ) -> Option<()> {
        let start = pending.used.load(Relaxed) as usize;
        let all = pending.from(start)?;
        let (header, words) = all.split_at_checked(HEADER)?;
        let fixed = (recorder.size - RECORD_HEADER) / 8;
        // The index of the word after the last text: the next text begins there.
        let mut end = fixed;
        words.get(..fixed)?;
        for Sent { from, at, form } in sent {
            let from = self.sent(*from, entry, read)?;
            let to = words.get(*at..fixed)?;
            match form {
                Form::Number(size) => {
                    let unused = 64 - 8 * (*size as u32 & 15).min(8);
                    let value = from.first()?.load(Relaxed);
                    to.first()?.store(value.wrapping_shl(unused).wrapping_shr(unused), Relaxed);
                }
                Form::Fixed(size) => copy(from, to.get(..TEXT_WORDS)?, *size),
                Form::Located => {
                    let length = length(from);
                    let room = words.get(end..end + length / 8 + 1)?;
                    copy(from, room, 8 * room.len());
                    let place = 8 * end as u64;
                    to.first()?.store((length as u64 + 1) << 16 | place, Relaxed);
                    end += room.len();
                }
                Form::Stack => {
                    // The addresses end with a 0, which is copied, too.
                    let count = depth(from) + 1;
                    let room = words.get(end..end + count)?;
                    copy(from, room, 8 * count + 1);
                    to.first()?.store(8 * (count << 16 | end) as u64, Relaxed);
                    end += count;
                }
            }
        }
        if end > COMPOSED {
            return None;
        }
        let [first, second, ..] = header else { return None };
        first.store(core::ptr::from_ref(recorder).expose_provenance() as u64, Relaxed);
        second.store(8 * end as u64, Relaxed);
        pending.used.store((start + HEADER + end) as u64, Relaxed);
        Some(())
    }
}

const TEXT_WORDS: usize = crate::format::TEXT_SIZE / 8;

/// Returns the number of bytes of a text before its zero.
fn length(words: &[AtomicU64]) -> usize {
    let mut length = 0;
    for word in words {
        let word = word.load(Relaxed);
        // Sets the top bit of the lowest zero byte, and no bit below it.
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        if zeros != 0 {
            return length + zeros.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    length
}

/// Returns the number of return addresses before the first 0.
fn depth(words: &[AtomicU64]) -> usize {
    let mut depth = 0;
    for word in words {
        if word.load(Relaxed) == 0 {
            break;
        }
        depth += 1;
    }
    depth
}

/// Copies a text, padded with zeros and cut so that its `size` bytes end with a zero.
fn copy(from: &[AtomicU64], to: &[AtomicU64], size: usize) {
    let mut left = 8 * size.saturating_sub(1);
    let mut from = from.iter();
    for place in to {
        let word = match from.next() {
            Some(word) => word.load(Relaxed),
            None => 0,
        };
        let kept = if left < 64 { word & !(u64::MAX << (left & 63)) } else { word };
        place.store(kept, Relaxed);
        left = left.saturating_sub(64);
    }
}

/// Copies a context, field by field: a copy of the whole would be a call of `memcpy`, which is out of the region.
#[inline(always)]
fn copied(&Context { cpu, task, name: [low, high], time }: &Context) -> Context {
    Context { cpu, task, name: [low, high], time }
}

impl Recorder {
    /// Records the pending records of this CPU, which the `plan` of this event has caused.
    ///
    /// # Safety
    ///
    /// The contract of [`record`](Self::record) applies.
    #[inline(never)]
    pub(super) unsafe fn drain(&self, plan: &Plan, registers: Registers<'_>, hit: &RecordedHit<'_>) {
        let Some(ring) = self.rings.rings.get(hit.context.cpu) else { return };
        let RecordedHit { address, return_address, entry, .. } = *hit;
        let (context, is_caller_in_x30) = (copied(&hit.context), plan.is_caller_in_x30);
        let hit = &RecordedHit { context, address, return_address, entry, is_caller_in_x30 };
        let mut at = 0;
        while at < ring.pending.used.load(Relaxed) as usize {
            let Some([recorder, size, words @ ..]) = ring.pending.from(at) else { break };
            let size = size.load(Relaxed) as usize;
            // SAFETY: `emit` stored the address at this hit. The trigger that owns the recorder is not dropped before
            // the hit has been handled.
            let recorder = unsafe { &*core::ptr::with_exposed_provenance::<Recorder>(recorder.load(Relaxed) as usize) };
            at += HEADER + size / 8;
            if let Some(words) = words.get(..size / 8) {
                // SAFETY: the caller upholds the contract of `record` (see # Safety).
                unsafe { recorder.record_pending(ring, words, registers, hit) };
            }
        }
        ring.pending.used.store(0, Relaxed);
    }

    /// Does what the synthetic event does at a hit: runs its plan, and records the words.
    ///
    /// # Safety
    ///
    /// The contract of [`record`](Self::record) applies.
    #[inline(never)]
    unsafe fn record_pending(&self, ring: &Ring, words: &[AtomicU64], registers: Registers<'_>, hit: &RecordedHit<'_>) {
        if let Some(first) = words.first() {
            first.store(self.common(ring, registers, &hit.context), Relaxed);
        }
        let plan = self.plan.get();
        let verdict = match plan {
            None => Verdict { keep: self.rings.is_on(), stack: false },
            Some(plan) => {
                // SAFETY: the pointer and the length are those of `words`. The bytes are in the order of a record
                // because every target of this crate is little-endian. Only this CPU writes the words, and nothing
                // writes them while `bytes` exists: the triggers append to the buffer after them.
                let bytes = unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), 8 * words.len()) };
                plan.run(bytes, &self.known(registers, hit), &self.rings.on)
            }
        };
        if verdict.keep && ring.enter() {
            self.publish(ring, words, hit);
            ring.leave();
        }
        let Some(plan) = plan else { return };
        if verdict.stack {
            // SAFETY: the caller upholds the contract of `record` (see # Safety).
            unsafe { self.enter_stack(plan, registers, hit) };
        }
        if plan.dependents.is_empty() {
            return;
        }
        // SAFETY: the pointer and the length are those of `words`. Only this CPU writes the words, and nothing writes
        // them while `entry` exists: the triggers of dependent events append to the buffer after them.
        let entry = unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u64>(), words.len()) };
        let (context, is_caller_in_x30) = (copied(&hit.context), hit.is_caller_in_x30);
        // A return is hit in the caller, where the stack begins.
        let address = hit.return_address.unwrap_or(hit.address);
        let hit = RecordedHit { context, address, return_address: None, entry, is_caller_in_x30 };
        for dependent in &plan.dependents {
            // SAFETY: the caller upholds the contract of `record` (see # Safety). An event on a synthetic event is not
            // one of returns, and `hit` has no return address.
            unsafe { dependent.record_dependent(registers, &hit) };
        }
    }

    fn publish(&self, ring: &Ring, words: &[AtomicU64], hit: &RecordedHit<'_>) {
        const FIRST: usize = RECORD_HEADER / 8;
        let context = &hit.context;
        let Some(reservation) = ring.reserve(8 * (FIRST + words.len())) else { return };
        // SAFETY: `reserve` has reserved `FIRST + words.len()` words, of which the header takes the first.
        unsafe {
            reservation.set(0, (RECORD_HEADER + 8 * words.len()) as u64);
            reservation.set(1, context.time);
            reservation.set(2, context.name[0]);
            reservation.set(3, context.name[1]);
        }
        for (index, word) in words.iter().enumerate() {
            // SAFETY: `index` is below `words.len()`, and the reservation has `FIRST + words.len()` words.
            unsafe { reservation.set(FIRST + index, word.load(Relaxed)) };
        }
        reservation.commit();
    }
}
