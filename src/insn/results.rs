//! Finds functions that have results in registers in which the procedure call standard has none: x9 to x17, and the
//! flags.
//!
//! Code that runs at a return, in the place of the return address, may change these registers only if the callers do
//! not need them (AAPCS64, section 6.1). LLVM's machine outliner makes functions that do not follow the standard, and
//! assembly may contain some. Their callers show it: an instruction after the call reads a value that the call has
//! left.
//!
//! A function may go on in another one, and ends with the values that the other leaves. So if a function is seen to
//! have such results, the functions that it calls or ends in may have them, too. Callers that call by a register, or
//! branch with a return address that they made themselves, cannot be seen, and are assumed to follow the standard. If
//! the callers of a function cannot all be judged, the functions that it calls or ends in are also assumed to follow
//! it.

use alloc::vec::Vec;
use core::ops::Range;

use super::classify;
use super::control::Control;
use super::liveness::{Bounds, Live, Read, ScratchPreservers, Shared, called_by, function_around, live_after_call};
use super::registers::Registers;
use super::survey::row::{Row, offset};

/// The functions of a text that have such results, or for which that cannot be excluded.
#[derive(Debug, Default)]
pub struct ScratchResults(Vec<(u64, Live)>);

impl ScratchResults {
    /// Finds these functions among those that are called in the text at these virtual addresses; `None` if there is no
    /// memory for the list. `bounds` returns the bounds of the function around an address.
    pub fn in_text(
        text: Range<u64>,
        preservers: &ScratchPreservers,
        read: Read<'_>,
        bounds: Bounds<'_>,
    ) -> Option<Self> {
        let (mut found, shared) = (Self::default(), Shared::new());
        for call in text.clone().step_by(4) {
            let Some(function) = read(call).and_then(|word| called_by(word, call)) else { continue };
            if found.has_some(function) {
                continue;
            }
            if let Some(live) = live_after_call(call + 4, preservers, read, &shared) {
                found.add(function, live)?;
            }
        }
        // Each function may add others.
        let seen = found.0.iter().copied().filter(|(_, live)| is_seen(live));
        let mut pending = fallible::boxed_slice(seen).ok()?.into_vec();
        while let Some((function, live)) = pending.pop() {
            let Some(function) = function_around(function, &text, bounds) else { continue };
            for at in function.clone().step_by(4) {
                let Some(word) = read(at) else { break };
                let other = match Control::after(word, classify(word)) {
                    Control::Jump(offset) | Control::Either(offset) | Control::Call(offset) => {
                        at.wrapping_add_signed(offset.into())
                    }
                    Control::Next | Control::Register { .. } => continue,
                };
                if !function.contains(&other) && !found.has_some(other) {
                    found.add(other, live)?;
                    fallible::push(&mut pending, (other, live)).ok()?;
                }
            }
        }
        Some(found)
    }

    /// Returns a row for each of the functions in the text, in ascending order. Data that looks like a call leads
    /// anywhere.
    pub(super) fn rows(&self, text: &Range<u64>) -> impl Iterator<Item = Row> {
        self.0.iter().filter(|(function, _)| text.contains(function)).map(|&(function, live)| {
            let (reason, register, place) = match live {
                Live::Read { register, reader } => (0, register, reader),
                Live::Kept { register, call } => (1, register, call),
                Live::Lost { register, end } => (2, register, end),
            };
            [offset(text.start, function), reason, register.bits(), offset(text.start, place)]
        })
    }

    /// Makes the list from its rows; `None` if they are not in order, or if there is no memory.
    pub(super) fn from_rows(start: u64, rows: impl Iterator<Item = Row>) -> Option<Self> {
        let result = |[function, reason, register, place]: Row| {
            let (register, place) = (Registers::from_bits(register), start.wrapping_add(place.into()));
            let live = match reason {
                0 => Live::Read { register, reader: place },
                1 => Live::Kept { register, call: place },
                _ => Live::Lost { register, end: place },
            };
            (start.wrapping_add(function.into()), live)
        };
        let list = fallible::collect(rows.map(result)).ok()?;
        list.is_sorted_by(|(one, _), (next, _)| one < next).then_some(Self(list))
    }

    /// Returns why a value that the function at the virtual address `function` leaves in x9 to x17 or the flags may be
    /// used by its callers; `None` if the callers that were found use none, and all of them could be judged.
    #[must_use]
    pub fn by(&self, function: u64) -> Option<Live> {
        let index = self.0.binary_search_by_key(&function, |&(function, _)| function).ok()?;
        self.0.get(index).map(|&(_, live)| live)
    }

    /// Returns whether a caller of `function` is seen to read such a value.
    fn has_some(&self, function: u64) -> bool {
        self.by(function).is_some_and(|live| is_seen(&live))
    }

    /// Records this about `function`, in place of what was recorded before.
    fn add(&mut self, function: u64, live: Live) -> Option<()> {
        match self.0.binary_search_by_key(&function, |&(function, _)| function) {
            Ok(index) => self.0.get_mut(index)?.1 = live,
            Err(index) => {
                self.0.try_reserve(1).ok()?;
                self.0.insert(index, (function, live));
            }
        }
        Some(())
    }
}

/// Returns whether an instruction was found that needs the value.
const fn is_seen(live: &Live) -> bool {
    !matches!(live, Live::Lost { .. })
}

#[cfg(test)]
mod tests;
