//! Memory that instructions are executed from, and the way to write to it.
//!
//! Executable memory is never writable at its own virtual address. Writes go through an alias: one page, mapped for as
//! long as the write takes, at an address that belongs to one CPU. Whoever writes through [`with_writable`] also does
//! the cache maintenance that makes instructions of it; [`allocate_executable`] has done it for the zeroes.

use core::sync::atomic::{AtomicU64, Ordering};

use spin::Once;

use super::OutOfMemory;
use super::descriptor::{Attributes, Descriptor};
use super::layout::{ALIASES, ARENA, PAGE_SIZE};
use super::{MapError, cache, table, tlb};
use crate::per_cpu::MAX_CPUS;
use crate::sync::{IrqLock, IrqMask};
use crate::task;

/// Bytes of physical memory that are set aside for executable memory.
pub(super) const ARENA_MEMORY: usize = 4 << 20;
const _: () = assert!(ARENA_MEMORY <= ARENA.end - ARENA.start);

struct Arena {
    /// The physical address of the memory that was set aside.
    memory: u64,
    used: usize,
}

static EXECUTABLE: Once<IrqLock<Arena>> = Once::new();
static ALIAS_ENTRIES: Once<[&AtomicU64; MAX_CPUS]> = Once::new();

/// An alias has an unmapped page behind it, so that a write that runs over the end faults.
const fn alias(cpu: usize) -> usize {
    ALIASES + cpu * 2 * PAGE_SIZE
}

/// Prepares both. `memory` is the physical address of [`ARENA_MEMORY`] bytes that are mapped nowhere.
pub(super) fn initialize(memory: u64) -> Result<(), MapError> {
    let first = table::reserve_entry(alias(0))?;
    let mut entries = [first; MAX_CPUS];
    for (cpu, entry) in entries.iter_mut().enumerate() {
        *entry = table::reserve_entry(alias(cpu))?;
    }
    ALIAS_ENTRIES.call_once(|| entries);
    EXECUTABLE.call_once(|| IrqLock::new(Arena { memory, used: 0 }));
    Ok(())
}

/// Maps `length` bytes (a multiple of the page size) of executable memory that holds zeroes, which are undefined
/// instructions (UDF #0), and returns their virtual address. Branch targets are checked in it if it is `guarded`. It
/// cannot be given back.
pub fn allocate_executable(length: usize, guarded: bool) -> Result<usize, OutOfMemory> {
    let mut arena = EXECUTABLE.get().ok_or(OutOfMemory)?.lock();
    if length > ARENA_MEMORY - arena.used {
        return Err(OutOfMemory);
    }
    let (start, physical) = (ARENA.start + arena.used, arena.memory + arena.used as u64);
    for offset in (0..length).step_by(PAGE_SIZE) {
        with_frame(physical + offset as u64, &mut |page| {
            // SAFETY: the alias is one page of memory that nobody has been given yet.
            unsafe { page.write_bytes(0, PAGE_SIZE) };
            // Otherwise a stray jump fetches what the memory held before: the zeroes may be in the data cache only.
            cache::clean_to_unification(page.addr(), PAGE_SIZE);
        });
    }
    let attributes = if guarded { Attributes::GUARDED_TEXT } else { Attributes::TEXT };
    table::map(start, physical, length, attributes).map_err(|_| OutOfMemory)?;
    cache::invalidate_instructions(start, length);
    arena.used += length;
    Ok(start)
}

/// Calls `write` with a writable alias of `length` bytes at the virtual address `address`, which lie within one page.
/// Interrupts are masked meanwhile, and the alias is gone when this returns. Returns false, without a call, if nothing
/// is mapped at the address or the bytes are not within one page.
///
/// # Panics
///
/// If `write` calls this or [`allocate_executable`]: a CPU has one alias at a time.
pub fn with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8)) -> bool {
    let offset = address % PAGE_SIZE;
    match table::translate(address) {
        Some(physical) if offset + length <= PAGE_SIZE => {
            // SAFETY: the offset is within the page.
            with_frame(physical - offset as u64, &mut |page| write(unsafe { page.add(offset) }))
        }
        _ => false,
    }
}

/// Calls `write` with an alias of the page at the physical address `frame`. False before [`initialize`].
///
/// # Panics
///
/// If this CPU has an alias already.
fn with_frame(frame: u64, write: &mut dyn FnMut(*mut u8)) -> bool {
    let Some(entries) = ALIAS_ENTRIES.get() else { return false };
    let _mask = IrqMask::new();
    let cpu = task::current_cpu();
    let (address, entry) = (alias(cpu), entries[cpu]);
    // A valid entry is never replaced by another (Arm ARM, D8.17.1), and the outer call still uses this one.
    let found = Descriptor(entry.load(Ordering::Relaxed));
    assert!(!found.is_valid(), "a write through an alias was begun within another one");
    entry.store(Descriptor::page(frame, Attributes::DATA).0, Ordering::Relaxed);
    tlb::publish();
    write(core::ptr::with_exposed_provenance_mut(address));
    entry.store(Descriptor::INVALID.0, Ordering::Relaxed);
    // Other CPUs too: nothing there uses this address, but a CPU may walk the tables for any address, speculatively.
    tlb::invalidate_page(address);
    true
}

/// Whether branch targets are checked at the virtual address `address`.
#[must_use]
pub fn is_guarded(address: usize) -> bool {
    table::has_attributes(address, Attributes::GUARDED_TEXT)
}

/// Makes the page of text at the virtual address `address` one in which branch targets are checked, or no more.
/// Returns false if it is not a page of text.
pub fn set_guarded(address: usize, guarded: bool) -> bool {
    let (from, to) = match guarded {
        true => (Attributes::TEXT, Attributes::GUARDED_TEXT),
        false => (Attributes::GUARDED_TEXT, Attributes::TEXT),
    };
    table::change_attributes(address, from, to)
}
