//! Histograms with variables: a variable is set at one event and read at another under the same key.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::count::{self, mix, place, write_key, write_text};
use super::{HitState, load};
use crate::atomic::{AtomicU32, AtomicU64};
use crate::filter::HitString;
use crate::histogram::{
    BoundAction, Content, Effect, From, Handler, Histogram, MULTIPLIER, OPERANDS_MAX, Op, Reference, Setting, Shared,
    VariableUse,
};
use crate::trigger::{BoundTrigger, Plan};

/// The variables that a hit refers to: for each, its number, or the index of its first word in the table that contains
/// it. The buffer is preallocated per CPU, not an array on the stack, which the compiler would clear by a call of
/// `memset`.
type Read = [AtomicU64];

/// The words of an entry.
type EntryWords<'a> = &'a [AtomicU64];

impl VariableUse {
    /// Counts a hit on a CPU, and sets variables. As in Linux, a hit is not counted if a variable that it refers to is
    /// not set under its key.
    pub(super) fn count(&self, bound: &BoundTrigger, plan: &Plan, record: &[u8], state: &HitState<'_>) {
        let table = &self.table;
        let Some((room, number)) = table.room(state.context.cpu) else { return table.drop_hit() };
        let mut rest = room;
        for key in &bound.keys {
            let Some((own, others)) = rest.split_at_checked(key.words) else { return };
            write_key(key, own, plan, record, state);
            rest = others;
        }
        let Some(read) = self.read(room, state.context.cpu) else { return };
        let Some((entry, is_new)) = table.entry(room, number, state.context.cpu) else { return table.drop_hit() };
        if is_new && let Some(name) = entry.get(self.name..self.set) {
            write_text(name, load::text(HitString::Task, record, state).unwrap_or(&[]));
        }
        let Some((hits, mut sums)) = entry.get(table.key()..).and_then(|words| words.split_first()) else { return };
        for ops in &self.sums {
            let [sum, others @ ..] = sums else { break };
            sum.fetch_add(compute(ops, read, record, state), Relaxed);
            sums = others;
        }
        self.set(entry, read, plan, record, state);
        hits.fetch_add(1, Relaxed);
        self.act(entry, read, plan, record, state);
    }

    /// Reads the variables that are referred to, under the key in `room`. `None` if one of them is not set. While a
    /// histogram is being cleared, none of its variables is set.
    fn read(&self, room: EntryWords<'_>, cpu: usize) -> Option<&Read> {
        let start = cpu * self.references.len();
        let read = self.reads.get(start..start + self.references.len())?;
        let mut places = read.iter();
        for Reference { histogram, variable, once } in &self.references {
            let place = places.next()?;
            // Acquire: a hit after `Histogram::clear` sees the cleared table.
            if histogram.held.load(Acquire) {
                return None;
            }
            let variable_use = histogram.variable_use.as_ref()?;
            let start = variable_use.table.find_like(&self.table.parts, room)?;
            let entry = variable_use.table.words.get(start..start + variable_use.table.stride)?;
            let (Setting { content, at, .. }, bit) = (variable_use.variables.get(*variable)?, 1_u64 << (variable & 63));
            let set = entry.get(variable_use.set)?;
            let before = if *once { set.fetch_and(!bit, AcqRel) } else { set.load(Acquire) };
            if before & bit == 0 {
                return None;
            }
            let value = match content {
                Content::Number(_) => entry.get(*at)?.load(Relaxed),
                Content::Text(_) | Content::Stack | Content::Copy(_) => (start + at) as u64,
            };
            place.store(value, Relaxed);
        }
        Some(read)
    }

    /// Returns the words that an action sends: a variable of this histogram, or one that is referred to. A number that
    /// was read is in `read`.
    pub(crate) fn sent<'a>(&'a self, from: From, entry: EntryWords<'a>, read: &'a Read) -> Option<EntryWords<'a>> {
        match from {
            From::Own(number) => {
                let Setting { at, words, .. } = self.variables.get(number)?;
                entry.get(*at..at + words)
            }
            From::Other(number) => {
                let Reference { histogram, variable, .. } = self.references.get(usize::from(number))?;
                match histogram.variable_use.as_ref()?.variables.get(*variable)?.content {
                    Content::Number(_) => read.get(usize::from(number)..),
                    _ => self.copied(number, read),
                }
            }
        }
    }

    /// Carries out the actions.
    fn act(&self, entry: EntryWords<'_>, read: &Read, plan: &Plan, record: &[u8], state: &HitState<'_>) {
        for BoundAction { handler, watched, effect, latest, rings } in &self.actions {
            let mut now = 0;
            if let Some((variable, kept)) = watched {
                let (Some(variable), Some(kept)) = (self.variables.get(*variable), self.kept.get(*kept)) else {
                    return;
                };
                let (Some(value), Some(before)) = (entry.get(variable.at), entry.get(kept.at)) else { return };
                now = value.load(Relaxed);
                if !handler.is_due(now, before.load(Relaxed)) {
                    continue;
                }
                before.store(now, Relaxed);
            }
            match effect {
                Effect::Trace { recorder, sent } => self.emit(recorder, sent, entry, read, state.context.cpu),
                Effect::Save(first, count) => {
                    let kept = self.kept.get(*first..first + count).unwrap_or(&[]);
                    self.set_all(kept, entry, read, plan, record, state);
                }
                Effect::Snapshot => {
                    let Some(rings) = rings else { continue };
                    if handler.is_due(now, latest.value.load(Relaxed)) {
                        latest.value.store(now, Relaxed);
                        latest.entry.store(self.table.number(entry), Relaxed);
                        rings.split();
                    }
                }
            }
        }
    }

    /// Sets all variables under the key of `entry`.
    fn set(&self, entry: EntryWords<'_>, read: &Read, plan: &Plan, record: &[u8], state: &HitState<'_>) {
        let bits = self.set_all(&self.variables, entry, read, plan, record, state);
        if let Some(set) = entry.get(self.set) {
            set.fetch_or(bits, AcqRel);
        }
    }

    /// Sets these variables. Returns a mask with a bit for each.
    fn set_all(
        &self,
        settings: &[Setting],
        entry: EntryWords<'_>,
        read: &Read,
        plan: &Plan,
        record: &[u8],
        state: &HitState<'_>,
    ) -> u64 {
        let mut bits = 0;
        let mut bit = 1_u64;
        for Setting { content, at, words } in settings {
            let Some(words) = entry.get(*at..at + words) else { break };
            match content {
                Content::Number(ops) => {
                    if let [word, ..] = words {
                        word.store(compute(ops, read, record, state), Relaxed);
                    }
                }
                Content::Text(text) => write_text(words, load::text(*text, record, state).unwrap_or(&[])),
                Content::Stack => count::write_stack(words, plan, state),
                Content::Copy(reference) => {
                    let from = self.copied(*reference, read).unwrap_or(&[]);
                    let mut from = from.iter();
                    for word in words {
                        word.store(from.next().map_or(0, |word| word.load(Relaxed)), Relaxed);
                    }
                }
            }
            bits |= bit;
            bit <<= 1;
        }
        bits
    }

    /// Returns the words of a variable that is referred to and is not a number.
    fn copied(&self, reference: u8, read: &Read) -> Option<EntryWords<'_>> {
        let Reference { histogram, variable, .. } = self.references.get(usize::from(reference))?;
        let variable_use = histogram.variable_use.as_ref()?;
        let start = read.get(usize::from(reference))?.load(Relaxed) as usize;
        variable_use.table.words.get(start..start + variable_use.variables.get(*variable)?.words)
    }
}

/// Computes a number.
fn compute(ops: &[Op], read: &Read, record: &[u8], state: &HitState<'_>) -> u64 {
    let mut stack = [0_u64; OPERANDS_MAX];
    let mut depth = 0_usize;
    for op in ops {
        let value = match op {
            Op::Number(number) => load::counted(*number, record, state),
            Op::Constant(constant) => *constant,
            Op::Reference(number) => match read.get(usize::from(*number)) {
                Some(read) => read.load(Relaxed),
                None => 0,
            },
            Op::Negate => {
                depth = depth.wrapping_sub(1);
                stack.get(depth).copied().unwrap_or(0).wrapping_neg()
            }
            Op::Combine(operator) => {
                depth = depth.wrapping_sub(2);
                let (left, right) = (stack.get(depth), stack.get(depth.wrapping_add(1)));
                operator.apply(left.copied().unwrap_or(0), right.copied().unwrap_or(0))
            }
        };
        if let Some(place) = stack.get_mut(depth) {
            *place = value;
        }
        depth = depth.wrapping_add(1);
    }
    let [first, ..] = stack;
    first
}

impl Handler {
    /// Whether the action is due when the watched variable changes from `before` to `now`.
    fn is_due(self, now: u64, before: u64) -> bool {
        match self {
            Self::Match => true,
            Self::Max => now > before,
            Self::Change => now != before,
        }
    }
}

impl Shared {
    /// Returns the number of an entry of this table, from 1.
    fn number(&self, entry: EntryWords<'_>) -> u64 {
        let before = entry.as_ptr().addr().wrapping_sub(self.words.as_ptr().addr()) / size_of::<AtomicU64>();
        before.checked_div(self.stride).unwrap_or(0) as u64 + 1
    }

    fn drop_hit(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    /// Returns the number of words of an entry that are the key.
    #[inline(always)]
    fn key(&self) -> usize {
        let mut words = 0;
        for part in &self.parts {
            words += part;
        }
        words
    }

    /// Returns the room of a CPU, and its entry number. `None` for a CPU without a room.
    fn room(&self, cpu: usize) -> Option<(EntryWords<'_>, u32)> {
        let number = self.rooms.get(cpu)?.load(Relaxed);
        Some((self.at(number)?, number))
    }

    /// Returns entry `number`, from 0.
    #[inline(always)]
    fn at(&self, number: u32) -> Option<EntryWords<'_>> {
        let start = number as usize * self.stride;
        self.words.get(start..start + self.stride)
    }

    /// Returns the entry for the key in `room`, and whether it is new. A new entry is the room itself, which has this
    /// `number`. `None` if the key would be new and the table is full.
    #[inline(never)]
    fn entry(&self, room: EntryWords<'_>, number: u32, cpu: usize) -> Option<(EntryWords<'_>, bool)> {
        let key = room.get(..self.key())?;
        let mut hash = 0;
        for word in key {
            hash = mix(hash, word.load(Relaxed));
        }
        let count = self.slots.len();
        let first = place(hash.wrapping_mul(MULTIPLIER), count);
        for step in 0..count {
            let slot = self.slots.get((first + step) & count.wrapping_sub(1))?;
            let mut taken = slot.load(Acquire);
            if taken == 0 {
                if self.used.load(Relaxed) as usize >= count / 2 {
                    return None;
                }
                match slot.compare_exchange(0, number + 1, AcqRel, Acquire) {
                    Ok(_) => {
                        self.leave_room(cpu);
                        return Some((self.at(number)?, true));
                    }
                    Err(other) => taken = other,
                }
            }
            let entry = self.at(taken.wrapping_sub(1))?;
            if is_same(key, entry) {
                return Some((entry, false));
            }
        }
        None
    }

    /// Gives this CPU another room, because its old one is now in the table.
    fn leave_room(&self, cpu: usize) {
        self.used.fetch_add(1, Relaxed);
        let next = self.next.fetch_add(1, Relaxed);
        if let Some(room) = self.rooms.get(cpu) {
            room.store(next, Relaxed);
        }
    }

    /// Returns the first word of the entry whose key equals the start of the key in `room`, which has these `parts`;
    /// this table may have fewer. A text may have another size in this table, because it is padded with zeros.
    #[inline(never)]
    fn find_like(&self, parts: &[usize], room: EntryWords<'_>) -> Option<usize> {
        let mut hash = 0;
        if !self.each_word(parts, room, |word, _| {
            hash = mix(hash, word);
            true
        }) {
            return None;
        }
        let count = self.slots.len();
        let first = place(hash.wrapping_mul(MULTIPLIER), count);
        for step in 0..count {
            let slot: &AtomicU32 = self.slots.get((first + step) & count.wrapping_sub(1))?;
            let number = slot.load(Acquire).checked_sub(1)?;
            let start = number as usize * self.stride;
            let is_same = |word, at: usize| self.words.get(start + at).is_some_and(|other| other.load(Relaxed) == word);
            if self.each_word(parts, room, is_same) {
                return Some(start);
            }
        }
        None
    }

    /// Calls `each` for each word of the key in `room`, which has these `parts`, as a key of this table would contain
    /// it, with its index there. Returns false if this table cannot have such a key, or if `each` does.
    #[inline(always)]
    fn each_word(&self, parts: &[usize], room: EntryWords<'_>, mut each: impl FnMut(u64, usize) -> bool) -> bool {
        let (mut start, mut at) = (0, 0);
        let mut parts = parts.iter();
        for own in &self.parts {
            let Some(theirs) = parts.next() else { return false };
            let most = if own > theirs { *own } else { *theirs };
            for index in 0..most {
                let word = if index < *theirs { room.get(start + index) } else { None };
                let word = match word {
                    Some(word) => word.load(Relaxed),
                    None => 0,
                };
                let is_good = if index < *own { each(word, at + index) } else { word == 0 };
                if !is_good {
                    return false;
                }
            }
            start += theirs;
            at += own;
        }
        true
    }
}

/// Whether the entry begins with this key.
fn is_same(key: &[AtomicU64], entry: EntryWords<'_>) -> bool {
    let mut words = entry.iter();
    for word in key {
        if words.next().is_none_or(|other| other.load(Relaxed) != word.load(Relaxed)) {
            return false;
        }
    }
    true
}

impl Histogram {
    /// Returns the part about variables; `None` if the histogram has none.
    #[inline(always)]
    pub(super) fn variable_use(&self) -> Option<&VariableUse> {
        self.variable_use.as_ref()
    }
}
