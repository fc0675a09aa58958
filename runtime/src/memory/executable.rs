//! Memory that instructions are executed from, and the way to write to it.
//!
//! **At no virtual address is memory both writable and executable**, and what can be executed at one address can be written
//! at no other, but for a moment. The arena grows by page frames, one at a time, and each leaves the linear map before it
//! comes into the arena; the image is not in the linear map either. Writes go through an alias: one page, mapped for as long
//! as the write takes, at an address that belongs to one CPU and is used with interrupts masked.
//!
//! The arena is as large as direct branches reach: every place in it is less than 128 MiB from every place in the image
//! ([`layout`](super::layout)). What it holds is never given back; who hands out parts of it uses them again.
//!
//! The writer through [`with_writable`] also does the cache maintenance that makes instructions of it;
//! [`allocate_executable`] has done it for the zeroes. A CPU that did not do so itself may have fetched before, and needs a
//! context synchronization event: an exception, or its release from a rendezvous.
//!
//! [`with_writable`] takes no lock, so it can be called while other CPUs are held. [`allocate_executable`] cannot.

use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_kprobes::{cache, exception};
use spin::Once;

use super::descriptor::{Attributes, Descriptor};
use super::layout::{ALIASES, ARENA, LINEAR_BASE, PAGE_SIZE};
use super::{MapError, frame, table, tlb};
use crate::per_cpu::MAX_CPUS;
use crate::sync::{IrqMask, PreemptLock};
use crate::task;
use fallible::OutOfMemory;

/// How many bytes of the arena are mapped, from its start.
static MAPPED: PreemptLock<usize> = PreemptLock::new(0);
static ALIAS_ENTRIES: Once<[&AtomicU64; MAX_CPUS]> = Once::new();

/// An alias has an unmapped page behind it, so that a write that runs over the end faults.
const fn alias(cpu: usize) -> usize {
    ALIASES + cpu * 2 * PAGE_SIZE
}

/// Prepares the aliases.
pub(super) fn initialize() -> Result<(), MapError> {
    let first = table::reserve_entry(alias(0))?;
    let mut entries = [first; MAX_CPUS];
    for (cpu, entry) in entries.iter_mut().enumerate() {
        *entry = table::reserve_entry(alias(cpu))?;
    }
    ALIAS_ENTRIES.call_once(|| entries);
    Ok(())
}

/// How many bytes are mapped to be executed, without the image.
pub(super) fn mapped() -> usize {
    *MAPPED.lock()
}

/// Maps `length` bytes (a multiple of the page size) of executable memory that holds zeroes, which are undefined
/// instructions (UDF #0), and returns their virtual address. Branch targets are checked in it if it is `guarded`. It
/// cannot be given back. Called by tasks, with interrupts unmasked.
pub fn allocate_executable(length: usize, guarded: bool) -> Result<usize, OutOfMemory> {
    let mut mapped = MAPPED.lock();
    let start = ARENA.start + *mapped;
    if length > ARENA.end - start {
        return Err(OutOfMemory);
    }
    let attributes = if guarded { Attributes::GUARDED_TEXT } else { Attributes::TEXT };
    for page in (start..start + length).step_by(PAGE_SIZE) {
        if map_page(page, attributes).is_err() {
            (start..page).step_by(PAGE_SIZE).for_each(unmap_page);
            return Err(OutOfMemory);
        }
    }
    *mapped += length;
    Ok(start)
}

/// Maps a frame of zeroes at the virtual address `page`, and nowhere else.
fn map_page(page: usize, attributes: Attributes) -> Result<(), OutOfMemory> {
    let frame = frame::allocate_zeroed().ok_or(OutOfMemory)?;
    let linear = LINEAR_BASE + frame as usize;
    // Otherwise a stray jump fetches what the memory held before: the zeroes may be in the data cache only.
    let words = || (0..PAGE_SIZE).step_by(size_of::<u32>());
    // SAFETY: the linear map has the frame, until it is taken out below.
    unsafe { cache::clean_data(linear, words()) };
    // SAFETY: the frame was allocated just now, and nothing refers to it.
    unsafe { table::unmap(linear) };
    if table::map(page, frame, PAGE_SIZE, attributes).is_err() {
        give_back(frame);
        return Err(OutOfMemory);
    }
    // SAFETY: it was just mapped.
    unsafe { cache::invalidate_instructions(words().map(|offset| page + offset)) };
    Ok(())
}

/// Takes back what [`map_page`] has mapped at the virtual address `page`, which was not handed out.
fn unmap_page(page: usize) {
    // SAFETY: the page was not handed out.
    if let Some(frame) = unsafe { table::unmap(page) } {
        give_back(frame);
    }
}

/// Gives back a frame that is mapped nowhere.
fn give_back(frame: u64) {
    // The tables are there: it was mapped at this address before.
    if table::map_pages(LINEAR_BASE + frame as usize, frame, PAGE_SIZE, Attributes::DATA).is_ok() {
        // SAFETY: it came from the allocator, and is mapped in the linear map alone, as it was then.
        unsafe { frame::free(frame) };
    }
}

/// Calls `write` with a writable alias of `length` bytes at the virtual address `address`, which lie within one page.
/// Interrupts are masked meanwhile, and the alias is gone when this returns. Takes no lock, and may be called while other CPUs
/// are held. It lies with the code that refuses probes, as it changes the text.
///
/// # Panics
///
/// If nothing is mapped at the address, or the bytes are not within one page; and if `write` calls this, as a CPU has one
/// alias at a time.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.memory_with_writable")]
pub fn with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8)) {
    let offset = address % PAGE_SIZE;
    // The CPU and its alias stay this task's until the mask is dropped.
    let _mask = IrqMask::new();
    let cpu = task::current_cpu();
    let entry = ALIAS_ENTRIES.get().and_then(|entries| entries.get(cpu));
    let reason = match (entry, table::translate(address)) {
        // A valid entry is never replaced by another (Arm ARM, D8.17.1), and the outer call still uses this one.
        (Some(entry), _) if Descriptor(entry.load(Ordering::Relaxed)).is_valid() => {
            "a write through an alias was begun within another one"
        }
        (Some(entry), Some(physical)) if length <= PAGE_SIZE - offset => {
            let page = alias(cpu);
            entry.store(Descriptor::page(physical - offset as u64, Attributes::DATA).0, Ordering::Relaxed);
            tlb::publish();
            write(core::ptr::with_exposed_provenance_mut(page + offset));
            entry.store(Descriptor::INVALID.0, Ordering::Relaxed);
            // Other CPUs too: nothing there uses this address, but a CPU may walk the tables for any address,
            // speculatively.
            return tlb::invalidate_page(page);
        }
        _ => "what was to be written through an alias is not mapped, or not within one page",
    };
    // SAFETY: the panic stops the machine, and interrupts are masked.
    unsafe { exception::abandon_cpu() };
    panic!("{reason}");
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
