//! The places of values: for each value of a clause, a register or its word of the frame.
//!
//! Control only goes forward, so one pass over the ops in their order is enough. A word has a value *after* an op if
//! an op that can be reached from there, by falling through or by a jump over it, reads its present contents.
//! Consecutive ops after which a word has a value are a *span*. A span has one place, and no value goes from one span
//! to another. Registers are assigned to spans in the order in which they begin; if there are not enough, the span that
//! ends last is in the frame.
//!
//! Strings are in the frame. A value in a register also has its word in the frame, where it is stored for a call.

use alloc::vec::Vec;
use core::iter;
use core::ops::RangeInclusive;

use fallible::OutOfMemory;

use crate::code::{Code, FRAME_WORDS, Op, Word};

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A register, by its number.
    Register(u8),
    /// The word of the frame.
    Memory,
    /// No place: the value is never read.
    Nowhere,
}

/// A span: a word, the ops after which it has a value, and its place.
#[derive(Debug)]
struct Span {
    word: usize,
    /// The number of the op that writes the word, and of the last op after which it has the value.
    first: usize,
    last: usize,
    place: Place,
}

/// The places of all values.
#[derive(Debug)]
pub(super) struct Places {
    spans: Vec<Span>,
    /// For each word, the numbers of its spans, in their order.
    of: Vec<Vec<usize>>,
}

/// A set of words.
#[derive(Clone, Copy, Default)]
struct Words([u64; FRAME_WORDS / 64]);

impl Words {
    fn insert(&mut self, word: usize) {
        if let Some(bits) = self.0.get_mut(word / 64) {
            *bits |= 1 << (word % 64);
        }
    }

    fn remove(&mut self, word: usize) {
        if let Some(bits) = self.0.get_mut(word / 64) {
            *bits &= !(1 << (word % 64));
        }
    }

    fn join(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(bits, others)| *bits |= others);
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(index, bits)| {
            // Each step removes the lowest bit.
            let rests = iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
            rests.take_while(|bits| *bits != 0).map(move |bits| 64 * index + bits.trailing_zeros() as usize)
        })
    }
}

/// Returns each word of ranges of words.
pub(super) fn each(rows: impl Iterator<Item = (Word, usize)>) -> impl Iterator<Item = usize> {
    rows.flat_map(|(Word(first), count)| usize::from(first)..usize::from(first) + count)
}

/// Returns the op that an op may jump to, and whether control may fall through to the next op.
pub(super) fn successors(op: Op) -> (Option<usize>, bool) {
    match op {
        Op::Branch { target, .. } => (Some(target.into()), true),
        Op::Jump { target } => (Some(target.into()), false),
        _ => (None, true),
    }
}

impl Places {
    /// Assigns places to the values of `ops`, which are part of `code` and keep the rules of the form. The registers
    /// are `registers`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the places.
    pub fn new(code: &Code, ops: &[Op], registers: RangeInclusive<u8>) -> Result<Self, OutOfMemory> {
        let of = fallible::collect((0..FRAME_WORDS).map(|_| Vec::new()))?;
        let mut places = Self { spans: Vec::new(), of };
        places.find(code, ops)?;
        places.assign(registers)?;
        Ok(places)
    }

    /// Finds the spans.
    fn find(&mut self, code: &Code, ops: &[Op]) -> Result<(), OutOfMemory> {
        let mut needed = fallible::collect((0..=ops.len()).map(|_| Words::default()))?;
        for (number, op) in ops.iter().enumerate().rev() {
            let Ok(touched) = code.touched(*op) else { continue };
            let (target, falls) = successors(*op);
            let mut words = Words::default();
            let next = target.into_iter().chain(falls.then_some(number + 1));
            next.filter_map(|next| needed.get(next)).for_each(|others| words.join(*others));
            each(touched.written()).for_each(|word| words.remove(word));
            each(touched.read()).for_each(|word| words.insert(word));
            if let Some(place) = needed.get_mut(number) {
                *place = words;
            }
        }
        // For each word, the last op to which a jump carries a value of the word; and the last of all words.
        let (mut until, mut last) = (fallible::collect((0..FRAME_WORDS).map(|_| 0))?, 0);
        for (number, op) in ops.iter().enumerate() {
            let Ok(touched) = code.touched(*op) else { continue };
            let (target, falls) = successors(*op);
            let of = |next: usize| needed.get(next).copied().unwrap_or_default();
            for word in target.into_iter().flat_map(|target| of(target).iter()) {
                if let Some(until) = until.get_mut(word) {
                    *until = target.unwrap_or(0).max(*until);
                    last = last.max(*until);
                }
            }
            let mut behind = if falls { of(number + 1) } else { Words::default() };
            if last > number {
                let carried = until.iter().enumerate().filter(|(_, until)| **until > number);
                carried.for_each(|(word, _)| behind.insert(word));
            }
            let text = touched.written().any(|(_, words)| words > 1);
            for word in behind.iter() {
                self.extend(word, number, text && each(touched.written()).any(|written| written == word))?;
            }
        }
        Ok(())
    }

    /// Notes that a word has a value after an op, in memory if `in_memory`.
    fn extend(&mut self, word: usize, op: usize, in_memory: bool) -> Result<(), OutOfMemory> {
        let Some(of) = self.of.get_mut(word) else { return Ok(()) };
        let known = of.last().and_then(|&last| self.spans.get_mut(last)).filter(|span| span.last + 1 == op);
        let span = match known {
            Some(span) => {
                span.last = op;
                span
            }
            None => {
                fallible::push(of, self.spans.len())?;
                fallible::push(&mut self.spans, Span { word, first: op, last: op, place: Place::Nowhere })?;
                let Some(span) = self.spans.last_mut() else { return Ok(()) };
                span
            }
        };
        if in_memory {
            span.place = Place::Memory;
        }
        Ok(())
    }

    /// Assigns registers to spans, which are in the order in which they begin.
    fn assign(&mut self, registers: RangeInclusive<u8>) -> Result<(), OutOfMemory> {
        // Each register is in one of these lists, and each has room for all.
        let mut free = fallible::collect(registers.rev())?;
        let mut active: Vec<(usize, u8)> = Vec::new();
        active.try_reserve_exact(free.len())?;
        for number in 0..self.spans.len() {
            let Some(&Span { first, last, place, .. }) = self.spans.get(number) else { continue };
            active.retain(|&(other, register)| {
                let stays = self.spans.get(other).is_some_and(|other| other.last >= first);
                if !stays {
                    free.push(register);
                }
                stays
            });
            if place == Place::Memory {
                continue;
            }
            let register = free.pop().or_else(|| {
                let ends = |&(other, _): &(usize, u8)| self.spans.get(other).map_or(0, |other| other.last);
                let (at, &(other, register)) = active.iter().enumerate().max_by_key(|(_, one)| ends(one))?;
                let longest = self.spans.get_mut(other).filter(|other| other.last > last)?;
                longest.place = Place::Memory;
                active.swap_remove(at);
                Some(register)
            });
            active.extend(register.map(|register| (number, register)));
            if let Some(span) = self.spans.get_mut(number) {
                span.place = register.map_or(Place::Memory, Place::Register);
            }
        }
        Ok(())
    }

    fn behind(&self, word: usize, op: usize) -> Option<&Span> {
        let spans = self.of.get(word)?.iter().filter_map(|&number| self.spans.get(number));
        spans.take_while(|span| span.first <= op).find(|span| op <= span.last)
    }

    /// Returns the place where op `number` finds `word`.
    pub fn before(&self, word: usize, number: usize) -> Place {
        number.checked_sub(1).and_then(|op| self.behind(word, op)).map_or(Place::Nowhere, |span| span.place)
    }

    /// Returns the place where op `number` puts `word`.
    pub fn after(&self, word: usize, number: usize) -> Place {
        self.behind(word, number).map_or(Place::Nowhere, |span| span.place)
    }

    /// Returns the last op after which `word` has the value that op `number` writes.
    pub fn last(&self, word: usize, number: usize) -> usize {
        self.behind(word, number).map_or(number, |span| span.last)
    }

    /// Returns whether `register` never holds a value.
    pub fn has_no_value_in(&self, register: u8) -> bool {
        self.spans.iter().all(|span| span.place != Place::Register(register))
    }

    /// Returns the words in registers that have a value both before and after op `number`.
    pub fn across(&self, number: usize) -> impl Iterator<Item = (usize, u8)> {
        let spans = self.spans.iter().filter(move |span| span.first < number && number <= span.last);
        spans.filter_map(|span| match span.place {
            Place::Register(register) => Some((span.word, register)),
            _ => None,
        })
    }
}
