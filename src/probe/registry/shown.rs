//! The contents of the registry, for listings.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use fallible::OutOfMemory;

use super::{RegistryEntry, lock_to_read};
use crate::probe::arena::Cell;
use crate::probe::hit::point::{Handlers, Probe};
use crate::probe::{Memory, ProbeInfo, ProbeKind, publish};

/// Returns all registered probes, in the order of their addresses, and of their registration at each address.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the list.
///
/// # Panics
///
/// If interrupts are masked, as they are in a handler.
pub fn list() -> Result<Vec<ProbeInfo>, OutOfMemory> {
    let registry = lock_to_read();
    let info = |entry: &RegistryEntry, probe: &Probe| ProbeInfo {
        address: entry.address,
        kind: match probe.handlers {
            Handlers::Kprobe { .. } => ProbeKind::Kprobe,
            Handlers::Return(_) => ProbeKind::Kretprobe,
        },
        mode: entry.mode_at_return(probe).or(entry.mode()),
        fallback: entry.fallback(probe),
        enabled: probe.enabled.load(Relaxed),
        hits: probe.hits(),
        missed: probe.counters.missed(),
        data: probe.data,
    };
    let mut all = Vec::new();
    for entry in registry.entries.iter() {
        for probe in entry.probes.iter() {
            fallible::push(&mut all, info(entry, probe))?;
        }
    }
    Ok(all)
}

/// Returns the memory that the probes take.
///
/// # Panics
///
/// If interrupts are masked, as they are in a handler.
#[must_use]
pub fn memory() -> Memory {
    let registry = lock_to_read();
    let (slots, slot_bytes) = registry.arena.usage(Cell::Slot);
    let (mut stubs, mut stub_bytes) = (0, 0);
    for kind in Cell::KINDS.into_iter().filter(|&kind| kind != Cell::Slot) {
        let (count, bytes) = registry.arena.usage(kind);
        // The code of a return belongs to the stub at the entry.
        stubs += if matches!(kind, Cell::Return | Cell::LongReturn) { 0 } else { count };
        stub_bytes += bytes;
    }
    Memory {
        points: registry.entries.len(),
        slots,
        slot_bytes,
        stubs,
        stub_bytes,
        table_bytes: publish::memory() + registry.arena.memory(),
        counter_bytes: registry.counters.memory(),
    }
}
