//! Finding which probes go, and what the text is to hold again there.
//!
//! The code that removes probes may be probed itself, and each of its instructions then costs a hit. So what is done for each probe
//! before the instructions are back in place is done here, where nothing is probed, and is no more than it takes to know them.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use super::table::{self, TABLE};
use crate::probe::Registration;
use crate::text::Word;

/// Moves what `from` has to `into`, as far as there is room.
#[inline(never)] // Not into what is probed.
pub(crate) fn collect<T>(from: &mut impl Iterator<Item = T>, into: &mut Vec<T>) {
    while into.len() < into.capacity()
        && let Some(item) = from.next()
    {
        into.push(item);
    }
}

/// Has `probes` enabled no more, and adds to `words` the instructions at which no other is: as many as there is room for.
///
/// # Safety
///
/// The registry's lock is held.
#[inline(never)] // As above.
pub(crate) unsafe fn disable<'a>(probes: impl Iterator<Item = &'a Registration> + Clone, words: &mut Vec<Word>) {
    // By hand: how `core` chains iterators may be a function that can be probed.
    for registration in probes.clone() {
        registration.probe.enabled.store(false, Relaxed);
    }
    let mut count = words.len();
    let mut room = words.spare_capacity_mut().iter_mut();
    for registration in probes {
        // SAFETY: as the caller guarantees.
        let Some(word) = (unsafe { original(registration.address) }) else { continue };
        let Some(place) = room.next() else { break };
        place.write(word);
        count += 1;
    }
    // SAFETY: there is room for so many, and they have been written.
    unsafe { words.set_len(count) };
}

/// The instruction at the virtual address `address`, if a point is there of which no probe is enabled.
///
/// # Safety
///
/// The registry's lock is held.
unsafe fn original(address: usize) -> Option<Word> {
    let page = TABLE.page(address)?;
    // SAFETY: null, or a point, which only the holder of the registry's lock withdraws and frees.
    let point = unsafe { page.point(address).load(Relaxed).as_ref() }?;
    let is_idle = point.watchers().iter().all(|watcher| !watcher.probe.enabled.load(Relaxed));
    let word = is_idle.then(|| table::original(address)).flatten()?;
    Some(Word { address, words: [word] })
}
