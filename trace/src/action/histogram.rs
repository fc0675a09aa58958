//! Histograms: a hit is counted in the table of its CPU.
//!
//! The key is written to the room of the entry that would be next, and looked up from there: if it is new, it is already in
//! its place. An entry is published when it is complete, so a reader sees whole keys; its sums it sees as they are.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{Moment, load};
use crate::filter::{Number, Text};
use crate::histogram::{Histogram, Key, Source, Table, Transform};
use crate::trigger::{Bound, Plan};

/// Odd, with bits all over: the upper half of a product depends on all bits of the other factor.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Histogram {
    /// Counts a hit.
    pub(super) fn count(&self, bound: &Bound, plan: &Plan, record: &[u8], moment: Moment<'_>) {
        if self.paused.load(Relaxed) {
            return;
        }
        let Some(table) = self.tables.get(moment.context.cpu) else { return };
        let used = table.used.load(Relaxed);
        let Some(room) = self.entry(table, used) else { return };
        let mut hash = 0;
        let mut place = 0;
        for key in &bound.keys {
            let words = room.get(place..place + key.words).unwrap_or(&[]);
            write_key(key, words, plan, record, moment);
            for word in words {
                hash = (hash ^ word.load(Relaxed)).wrapping_mul(MULTIPLIER);
                hash ^= hash >> 32;
            }
            place += key.words;
        }
        let key = room.get(..place).unwrap_or(&[]);
        match self.find(table, key, hash) {
            Some(Found::Entry(entry)) => add(&bound.values, entry.get(place..).unwrap_or(&[]), record, moment),
            Some(Found::Free(slot)) if used < self.size => {
                let sums = room.get(place..).unwrap_or(&[]);
                sums.iter().for_each(|sum| sum.store(0, Relaxed));
                add(&bound.values, sums, record, moment);
                if let Some(names @ [_, ..]) = sums.get(self.values.len() + 1..) {
                    write_text(names, load::text(Text::Task, record, moment));
                }
                slot.store(used + 1, Relaxed);
                table.used.store(used + 1, Release);
            }
            _ => return increment(&table.dropped, 1),
        }
        increment(&table.hits, 1);
    }

    /// Entry `number`, of which there is one more than are used at most.
    fn entry<'a>(&self, table: &'a Table, number: u32) -> Option<&'a [AtomicU64]> {
        let start = number as usize * self.stride;
        table.entries.get(start..start + self.stride)
    }

    /// Looks for an entry of this key, or for the slot that it would have.
    fn find<'a>(&self, table: &'a Table, key: &[AtomicU64], hash: u64) -> Option<Found<'a>> {
        let mask = table.slots.len().wrapping_sub(1);
        let mut at = hash as usize;
        for _ in 0..table.slots.len() {
            let slot = table.slots.get(at & mask)?;
            let Some(number) = slot.load(Relaxed).checked_sub(1) else { return Some(Found::Free(slot)) };
            let entry = self.entry(table, number)?;
            if key.iter().zip(entry).all(|(one, other)| one.load(Relaxed) == other.load(Relaxed)) {
                return Some(Found::Entry(entry));
            }
            at = at.wrapping_add(1);
        }
        None
    }
}

/// Adds a hit to the sums of an entry: the first counts hits.
#[inline(always)]
fn add(values: &[Number], sums: &[AtomicU64], record: &[u8], moment: Moment<'_>) {
    let Some((hits, sums)) = sums.split_first() else { return };
    increment(hits, 1);
    for (sum, &value) in sums.iter().zip(values) {
        increment(sum, load::number(value, record, moment));
    }
}

enum Found<'a> {
    Entry(&'a [AtomicU64]),
    Free(&'a core::sync::atomic::AtomicU32),
}

/// Only this CPU writes it, and only here.
#[inline(always)]
fn increment(sum: &AtomicU64, by: u64) {
    sum.store(sum.load(Relaxed).wrapping_add(by), Relaxed);
}

#[inline(always)]
fn write_key(key: &Key, words: &[AtomicU64], plan: &Plan, record: &[u8], moment: Moment<'_>) {
    match key.source {
        Source::Number { number, transform } => {
            let value = load::number(number, record, moment);
            let value = match transform {
                Transform::None => value,
                Transform::Log2 => u64::from(64 - value.saturating_sub(1).leading_zeros()),
                Transform::Buckets(size) => value - value.checked_rem(size).unwrap_or(0),
            };
            if let Some(word) = words.first() {
                word.store(value, Relaxed);
            }
        }
        Source::Text(text) => write_text(words, load::text(text, record, moment)),
        Source::Stack => {
            let mut walk = plan.walk(moment);
            let mut address = Some(walk.first());
            for word in words {
                word.store(address.unwrap_or(0), Relaxed);
                address = address.and_then(|_| walk.step());
            }
        }
    }
}

/// Stores text, filled up with zeros. What does not fit is cut off.
fn write_text(words: &[AtomicU64], text: &[u8]) {
    let mut bytes = text.iter();
    for word in words {
        let value = (0..8).fold(0, |value, at| value | u64::from(bytes.next().copied().unwrap_or(0)) << (8 * at));
        word.store(value, Relaxed);
    }
}
