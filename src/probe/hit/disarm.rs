//! Finds out which probes are to be removed, and which instructions are to be restored.
//!
//! The code that removes probes may itself be probed, and each of its instructions then costs a hit. So the work for
//! each probe that comes before the instructions are restored is done here, where nothing is probed, and is kept to a
//! minimum.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use super::table::TABLE;
use crate::probe::Registration;
use crate::text::Word;

/// Moves the items of `from` to `into`, as long as there is room.
#[inline(never)] // So that it is not inlined into code that is probed.
pub(crate) fn collect<T>(from: &mut impl Iterator<Item = T>, into: &mut Vec<T>) {
    while into.len() < into.capacity()
        && let Some(item) = from.next()
    {
        into.push(item);
    }
}

/// Disables `probes`, and adds to `words` the instructions at which no other probe is enabled, as long as there is
/// room.
///
/// # Safety
///
/// The caller holds the registry's lock.
#[inline(never)] // So that it is not inlined into code that is probed.
pub(crate) unsafe fn disable<'a>(probes: impl Iterator<Item = &'a Registration> + Clone, words: &mut Vec<Word>) {
    // Written by hand: the iterator adapters of `core` may be compiled to functions that can be probed.
    for registration in probes.clone() {
        registration.probe.enabled.store(false, Relaxed);
    }
    let mut count = words.len();
    let mut room = words.spare_capacity_mut().iter_mut();
    for registration in probes {
        // SAFETY: the caller holds the registry's lock (see # Safety).
        let Some(word) = (unsafe { original(registration.address) }) else { continue };
        let Some(place) = room.next() else { break };
        place.write(word);
        count += 1;
    }
    // SAFETY: the loop has written `count - words.len()` words to the spare capacity.
    unsafe { words.set_len(count) };
}

/// Returns the instruction at the virtual address `address`, if there is a point without an enabled probe.
///
/// # Safety
///
/// The caller holds the registry's lock.
#[inline(always)]
unsafe fn original(address: usize) -> Option<Word> {
    let point = TABLE.page(address)?.locked_point(address)?;
    // SAFETY: only the holder of the registry's lock, which is the caller (see # Safety), withdraws and frees points.
    let point = unsafe { point.as_ref() };
    // A loop, not `all`: at some levels of optimization that is a function of `core`, which calls others.
    for armed in point.armed_probes() {
        if armed.probe.enabled.load(Relaxed) {
            return None;
        }
    }
    Some(Word { address, words: [point.word] })
}
