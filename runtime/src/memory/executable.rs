//! Executable memory, and writing to it.
//!
//! **At no virtual address is memory both writable and executable.** Memory that is executable at one address is not
//! writable at another either, except for a moment. The arena grows by page frames, and each frame leaves the linear
//! map before it enters the arena. The image is not in the linear map either. Writes go through an alias: one page,
//! mapped for as long as the write takes, at an address that belongs to one CPU and is used with interrupts masked.
//!
//! The arena is as large as direct branches allow: every place in it is less than 128 MiB from every place in the image
//! ([`layout`](super::layout)). Its memory is never freed; its users reuse it.
//!
//! A caller of [`with_writable`] also does the cache maintenance that makes its bytes executable.
//! [`allocate_executable`] has done it for the zeroes. Another CPU may have fetched earlier instructions. It needs a
//! context synchronization event: an exception, or its release from a rendezvous.
//!
//! [`with_writable`] takes no lock, so it can be called while other CPUs are held. [`allocate_executable`] takes locks,
//! so it cannot.

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

/// The number of bytes of the arena that are mapped, from its start.
static MAPPED: PreemptLock<usize> = PreemptLock::new(0);
static ALIAS_ENTRIES: Once<[&AtomicU64; MAX_CPUS]> = Once::new();

/// Returns the virtual address of a CPU's alias. The page after an alias is unmapped, so that a write over the end
/// faults.
const fn alias(cpu: usize) -> usize {
    ALIASES + cpu * 2 * PAGE_SIZE
}

/// Reserves the translation table entries of the aliases.
pub(super) fn initialize() -> Result<(), MapError> {
    let first = table::reserve_entry(alias(0))?;
    let mut entries = [first; MAX_CPUS];
    for (cpu, entry) in entries.iter_mut().enumerate() {
        *entry = table::reserve_entry(alias(cpu))?;
    }
    ALIAS_ENTRIES.call_once(|| entries);
    Ok(())
}

/// Returns the number of bytes mapped as executable, without the image.
pub(super) fn mapped() -> usize {
    *MAPPED.lock()
}

/// Maps `length` bytes of executable memory and returns their virtual address. There is none for a length that is not a
/// multiple of the page size.
///
/// The memory holds zeroes, which are undefined instructions (UDF #0). The CPU checks branch targets in it if it is
/// `guarded`. It is never freed. Only tasks may call this, with interrupts unmasked.
pub fn allocate_executable(length: usize, guarded: bool) -> Result<usize, OutOfMemory> {
    let mut mapped = MAPPED.lock();
    let start = ARENA.start + *mapped;
    if !length.is_multiple_of(PAGE_SIZE) || length > ARENA.end - start {
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

/// Maps a zeroed frame at the virtual address `page`, and nowhere else.
fn map_page(page: usize, attributes: Attributes) -> Result<(), OutOfMemory> {
    let frame = frame::allocate_zeroed().ok_or(OutOfMemory)?;
    let linear = LINEAR_BASE + frame as usize;
    // Otherwise, a stray jump could fetch the earlier contents of the memory, because the zeroes may only be in the
    // data cache.
    let words = || (0..PAGE_SIZE).step_by(size_of::<u32>());
    // SAFETY: the linear map contains the frame until `unmap` below. The lock that the callers hold keeps the task
    // here.
    unsafe { cache::clean_data(linear, words()) };
    // SAFETY: the frame has just been allocated, and nothing refers to it.
    unsafe { table::unmap(linear) };
    if table::map(page, frame, PAGE_SIZE, attributes).is_err() {
        give_back(frame);
        return Err(OutOfMemory);
    }
    // SAFETY: the page has just been mapped. The lock that the callers hold keeps the task here.
    unsafe { cache::invalidate_instructions(words().map(|offset| page + offset)) };
    Ok(())
}

/// Undoes [`map_page`] for the virtual address `page`, which has not been handed out.
fn unmap_page(page: usize) {
    // SAFETY: the page has not been handed out, so nothing refers to it.
    if let Some(frame) = unsafe { table::unmap(page) } {
        give_back(frame);
    }
}

/// Returns a frame that is mapped nowhere to the linear map and to the frame allocator.
fn give_back(frame: u64) {
    // This cannot lack tables: the frame was mapped at this address before.
    if table::map_pages(LINEAR_BASE + frame as usize, frame, PAGE_SIZE, Attributes::DATA).is_ok() {
        // SAFETY: the frame came from the allocator, and is again mapped only in the linear map.
        unsafe { frame::free(frame) };
    }
}

/// Calls `write` with a writable alias of the `length` bytes at the virtual address `address`, which lie within one
/// page.
///
/// Interrupts are masked meanwhile, and the alias is unmapped when this returns. This function takes no lock, so it may
/// be called while other CPUs are held. It lies in the section that refuses probes, because it changes code.
///
/// # Panics
///
/// Panics if nothing is mapped at the address, if the bytes are not within one page, or if `write` calls this function:
/// a CPU has one alias.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.memory_with_writable")]
pub fn with_writable(address: usize, length: usize, write: &mut dyn FnMut(*mut u8)) {
    let offset = address % PAGE_SIZE;
    // Until the mask is dropped, the task keeps its CPU, and so the alias.
    let _mask = IrqMask::new();
    let cpu = task::current_cpu();
    let entry = ALIAS_ENTRIES.get().and_then(|entries| entries.get(cpu));
    let reason = match (entry, table::translate(address)) {
        // A valid entry is never replaced by another (Arm ARM, D8.17), and the outer call still uses this one.
        (Some(entry), _) if Descriptor(entry.load(Ordering::Relaxed)).is_valid() => {
            "a write through an alias began inside another one"
        }
        (Some(entry), Some(physical)) if length <= PAGE_SIZE - offset => {
            let page = alias(cpu);
            entry.store(Descriptor::page(physical - offset as u64, Attributes::DATA).0, Ordering::Relaxed);
            tlb::publish();
            write(core::ptr::with_exposed_provenance_mut(page + offset));
            entry.store(Descriptor::INVALID.0, Ordering::Relaxed);
            // Other CPUs are included. They do not use this address, but a CPU may walk the tables for any address
            // speculatively.
            return tlb::invalidate_page(page);
        }
        _ => "the target of a write through an alias is not mapped, or crosses a page",
    };
    // SAFETY: the panic stops the machine, and `_mask` keeps interrupts masked.
    unsafe { exception::abandon_cpu() };
    panic!("{reason}");
}

/// Returns whether the CPU checks branch targets at the virtual address `address`.
#[must_use]
pub fn is_guarded(address: usize) -> bool {
    table::has_attributes(address, Attributes::GUARDED_TEXT)
}

/// Turns the check of branch targets on or off for the page of text at the virtual address `address`. Returns false if
/// that is not a page of text, or has that setting already.
///
/// # Safety
///
/// No probe is on the page, and none is being registered there: what the engine has written for a probe depends on the
/// setting ([`Platform::is_guarded`](aarch64_kprobes::platform::Platform::is_guarded)).
pub unsafe fn set_guarded(address: usize, guarded: bool) -> bool {
    let (from, to) = match guarded {
        true => (Attributes::TEXT, Attributes::GUARDED_TEXT),
        false => (Attributes::GUARDED_TEXT, Attributes::TEXT),
    };
    table::change_attributes(address, from, to)
}
