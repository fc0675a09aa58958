//! Makes the sites of a static event lead to its function while a probe is enabled there.
//!
//! The function of an event is armed before a site leads to it, and the sites lead past it again after it was disarmed.
//! The block that a site leads to calls a function that returns at once, so no CPU in it has to be waited for, and
//! nothing is freed. Neither direction takes memory.

use super::{Registry, Used};
use crate::event::site;
use crate::insn::encode;
use crate::text::{self, Word};

/// The number of sites that are replaced while the other CPUs are held once.
const SITES_PER_RENDEZVOUS: usize = 16;

impl Registry {
    /// Makes the sites of the events at `addresses`, which are in ascending order, lead to their events if a probe is
    /// enabled there, and past them otherwise.
    pub(super) fn lead_sites(&mut self, addresses: &[usize]) {
        if addresses.len() < site::all().len() && !addresses.iter().any(|&address| site::may_lead_to(address)) {
            return;
        }
        let (mut words, mut count) = ([Word { address: 0, words: [0] }; SITES_PER_RENDEZVOUS], 0);
        for site in site::all() {
            let function = site.function();
            if addresses.binary_search(&function).is_err() {
                continue;
            }
            let is_armed = self.entries.get_mut(function).is_some_and(|entry| entry.execution.is_some());
            let word = if is_armed { site.branch() } else { Some(encode::NOP) };
            let Some(word) = word.filter(|word| text::read(site.instruction()) != *word) else { continue };
            if let Some(place) = words.get_mut(count) {
                *place = Word { address: site.instruction(), words: [word] };
                count += 1;
            }
            if count == SITES_PER_RENDEZVOUS {
                text::patch::<Used>(&words, &mut []);
                count = 0;
            }
        }
        if let Some(rest @ [_, ..]) = words.get(..count) {
            text::patch::<Used>(rest, &mut []);
        }
    }
}
