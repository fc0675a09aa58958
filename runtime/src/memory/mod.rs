//! Memory: the owners of physical memory, and the layout of the virtual address space ([`layout`]).
//!
//! At every virtual address, text is executable and never writable, and data is writable and never executable. The one
//! exception is the alias of a page through which a CPU writes to text ([`with_writable`]). That is why the linear map
//! lacks the image and the executable memory.
//!
//! All CPUs share the translation tables. When a CPU unmaps memory, it removes it from the TLBs of all CPUs (`tlb`).
//! When a CPU maps memory, another CPU can use it after two conditions: it has learnt of the memory in an ordinary way,
//! such as from a lock, and it has had a context synchronization event since. For a stack that event is in the switch
//! to the task, and for executable memory it is an exception or a rendezvous. Heap, frames and linear map are mapped
//! before the other CPUs start.
//!
//! The heap's lock masks interrupts, because interrupt handlers and code that has masked interrupts allocate and free.
//! The locks of frames, tables, stacks and executable memory only mask preemption: only tasks take them, and they zero
//! pages meanwhile.

pub mod descriptor;
pub mod layout;

mod cache;
pub(crate) mod dma;
mod executable;
mod frame;
mod heap;
mod mmio;
mod setup;
pub mod stack;
mod table;
mod tlb;

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

pub(crate) use cache::clean_to_coherency;
use descriptor::Attributes;
pub use executable::{allocate_executable, is_guarded, set_guarded, with_writable};
pub use heap::Heap;
use layout::{LINEAR_BASE, LINEAR_END, PAGE_SIZE, image};
pub(crate) use mmio::Mmio;
pub(crate) use setup::{image_length, initialize, map_device_tree, set_image};
pub use table::{MapError, translate};

/// The physical address of the image.
static IMAGE: AtomicU64 = AtomicU64::new(0);

/// Returns the virtual address of the physical address `physical`, which is in the image or in the linear map.
#[inline(always)]
fn pointer(physical: u64) -> *mut u8 {
    let image = image();
    let offset = physical.wrapping_sub(IMAGE.load(Ordering::Relaxed)) as usize;
    let address = if offset < image.len() { image.start + offset } else { LINEAR_BASE + physical as usize };
    core::ptr::with_exposed_provenance_mut(address)
}

/// Returns the physical address of the virtual address `address`, if that is in the image.
fn physical(address: usize) -> Option<u64> {
    let image = image();
    image.contains(&address).then(|| IMAGE.load(Ordering::Relaxed) + (address - image.start) as u64)
}

/// Maps the registers of a device, `length` bytes at the physical address `physical`. Returns their virtual
/// address. Registers that are mapped already stay mapped at the same address.
pub(crate) fn map_device(physical: u64, length: u64) -> Result<usize, MapError> {
    let page = PAGE_SIZE as u64 - 1;
    let end = physical.checked_add(length).filter(|end| *end <= LINEAR_END);
    let end = end.ok_or(MapError::OutOfReach(physical))?.next_multiple_of(page + 1);
    for page in (physical & !page..end).step_by(PAGE_SIZE) {
        let address = LINEAR_BASE + page as usize;
        match table::map(address, page, PAGE_SIZE, Attributes::DEVICE) {
            Err(MapError::Mapped(_)) if table::has_attributes(address, Attributes::DEVICE) => {}
            result => result?,
        }
    }
    Ok(LINEAR_BASE + physical as usize)
}

/// Stores `value` at the physical address `physical`, a multiple of 8, for a CPU that reads it with its MMU and
/// caches off.
///
/// When this returns, the value is at the point of coherency (Arm ARM, D7.5.9). A word outside the linear map is
/// mapped like the registers of a device, and is not cached.
///
/// # Errors
///
/// [`MapError::OutOfReach`] if the word is in the image or in the data appended to it, is too high, or is misaligned;
/// otherwise the error of mapping its page.
///
/// # Safety
///
/// The word has no other owner.
pub(crate) unsafe fn store_for_uncached(physical: u64, value: u64) -> Result<(), MapError> {
    if !physical.is_multiple_of(8) || physical >= LINEAR_END || setup::image_pages().contains(&physical) {
        return Err(MapError::OutOfReach(physical));
    }
    let address = LINEAR_BASE + physical as usize;
    if !table::is_data(address) {
        // The page may be mapped already, for the word of another CPU.
        map_device(physical, 8)?;
    }
    // SAFETY: the word is mapped as writable in the linear map, and the caller guarantees that it has no other
    // owner (see # Safety).
    unsafe { core::ptr::with_exposed_provenance_mut::<u64>(address).write_volatile(value) };
    clean_to_coherency(address, 8);
    Ok(())
}

/// The use of memory and its limits.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// Bytes of page frames that are free.
    pub free_frames: usize,
    /// Bytes of the heap that are allocated.
    pub heap_used: usize,
    /// Bytes in the heap.
    pub heap_size: usize,
    /// Allocations in the heap.
    pub heap_allocations: usize,
}

/// The use of memory that is freed after use. Two equal values show that nothing was leaked between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the heap that are allocated.
    pub heap: usize,
    /// Bytes of page frames allocated for stacks. Translation tables do not count, because they are never freed.
    pub frames: usize,
    /// Bytes of executable memory, without the image.
    pub executable: usize,
}

/// Returns the current use of memory that is freed after use.
#[must_use]
pub fn usage() -> Usage {
    let executable = executable::mapped();
    let frames = frame::counts().1.saturating_sub(table::frames()) * PAGE_SIZE;
    Usage { heap: heap::counters().allocated_bytes, frames: frames.saturating_sub(executable), executable }
}

impl Statistics {
    /// Returns the bytes of the heap that a caller may ask for: the free ones, without an eighth of the heap that
    /// is kept for others.
    #[must_use]
    pub fn heap_to_spare(&self) -> usize {
        (self.heap_size - self.heap_size / 8).saturating_sub(self.heap_used)
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { free_frames, heap_used, heap_size, heap_allocations } = self;
        write!(
            f,
            "heap: {heap_used} of {heap_size} bytes in {heap_allocations} allocations; page frames: {free_frames} bytes free",
        )
    }
}

/// Returns the current use of memory.
#[must_use]
pub fn statistics() -> Statistics {
    let heap = heap::counters();
    Statistics {
        free_frames: frame::counts().0 * PAGE_SIZE,
        heap_used: heap.allocated_bytes,
        heap_size: heap.claimed_bytes,
        heap_allocations: heap.allocation_count,
    }
}
