//! Has the sites of static events lead to their events exactly while a probe is armed there.
//!
//! The order is that of a probe: an event's function is armed before a site leads to it, and the sites lead past it
//! again after it was disarmed. The block that a site leads to calls a function that returns at once, so a CPU that is
//! in it has nothing to be waited for, and nothing is freed. Neither takes memory.

use super::{Registry, Used};
use crate::event::site;
use crate::text::{self, Word};

/// Sites that are replaced while the other CPUs are held once.
const AT_ONCE: usize = 16;

impl Registry {
    /// Makes what has changed at `addresses` true of the sites of the events that are there.
    pub(super) fn lead_sites(&mut self, addresses: impl Iterator<Item = usize>) {
        if site::all().is_empty() {
            return;
        }
        for address in addresses {
            let is_armed = self.entries.get_mut(address).is_some_and(|entry| entry.execution.is_some());
            lead(address, is_armed);
        }
    }
}

/// Has the sites of the event at the virtual address `function` lead to it, or past it.
fn lead(function: usize, to_it: bool) {
    let (mut words, mut count) = ([Word { address: 0, words: [0] }; AT_ONCE], 0);
    for site in site::of(function) {
        let Some(word) = (if to_it { site.branch() } else { Some(site::NOP) }) else { continue };
        if text::read(site.instruction()) == word {
            continue;
        }
        if let Some(place) = words.get_mut(count) {
            *place = Word { address: site.instruction(), words: [word] };
            count += 1;
        }
        if count == AT_ONCE {
            text::patch::<Used>(&words, &mut []);
            count = 0;
        }
    }
    if let Some(rest @ [_, ..]) = words.get(..count) {
        text::patch::<Used>(rest, &mut []);
    }
}
