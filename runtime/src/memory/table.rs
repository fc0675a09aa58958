//! The kernel's translation tables.
//!
//! A valid entry is never replaced by another: [`map`] refuses to, and [`unmap`] makes it invalid and removes it from
//! the TLBs of all CPUs first. So break-before-make (Arm ARM, D8.17.1) holds by construction.
//!
//! Tables are changed under a lock, by tasks alone, and read without: by the walks of all CPUs, and by [`translate`] and
//! its like, which run with interrupts masked or while CPUs are held. They are never given back, so whoever has found one
//! may look into it; and they are full of zeroes before they can be found.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_cpu::asm::barrier;

use super::descriptor::{Attributes, Descriptor};
use super::layout::{BLOCK_SIZE, PAGE_SIZE};
use super::{frame, tlb};
use crate::sync::PreemptLock;

const ENTRIES: usize = 512;
/// Tables for what is mapped before there are frames: a level 2 and a level 3 table each for the device tree, which
/// may cross a boundary of either, for the UART, for the mailbox that tells its clock, and for the first frames.
const EARLY_TABLES: usize = 10;

/// A translation table of any level.
#[repr(C, align(4096))]
pub(super) struct Table([AtomicU64; ENTRIES]);

impl Table {
    const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; ENTRIES])
    }

    /// The entry of this table, of level `level`, for the virtual address `address`.
    pub(super) fn entry(&self, level: usize, address: usize) -> &AtomicU64 {
        &self.0[address >> (39 - 9 * level) & (ENTRIES - 1)]
    }
}

unsafe extern "C" {
    /// Level 1, filled by trampoline/boot.S with the image.
    safe static boot_kernel_table: Table;
}

static EARLY: [Table; EARLY_TABLES] = [const { Table::empty() }; EARLY_TABLES];

/// Held to change tables.
static TABLES: PreemptLock<Count> = PreemptLock::new(Count { early: 0, frames: 0 });

/// How many tables there are.
struct Count {
    /// Of [`EARLY`].
    early: usize,
    /// In frames.
    frames: usize,
}

/// How many frames are translation tables.
pub(super) fn frames() -> usize {
    TABLES.lock().frames
}

/// Why memory cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// There is no frame for a translation table.
    OutOfMemory,
    /// Something else is mapped at this virtual address.
    Mapped(usize),
    /// The linear map does not reach to this physical address.
    OutOfReach(u64),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("no memory for a translation table"),
            Self::Mapped(address) => write!(f, "{address:#x} is mapped already"),
            Self::OutOfReach(address) => write!(f, "the physical address {address:#x} is too high to be mapped"),
        }
    }
}

/// With acquire: what a table held when it was entered is seen by who finds it.
fn load(entry: &AtomicU64) -> Descriptor {
    Descriptor(entry.load(Ordering::Acquire))
}

/// The table that `entry` names.
#[inline(always)]
fn table_of(entry: &AtomicU64) -> Option<&'static Table> {
    let descriptor = load(entry);
    // SAFETY: table descriptors are written by `next_table` and boot.S only, with the address of a table that stays one
    // forever, in the image or in a frame of the linear map; all accesses are atomic.
    if descriptor.is_table() { Some(unsafe { &*super::pointer(descriptor.address()).cast::<Table>() }) } else { None }
}

/// The table that `entry`, the one for the virtual address `address`, names; a new one if there is none.
fn next_table(entry: &AtomicU64, address: usize, tables: &mut Count) -> Result<&'static Table, MapError> {
    if load(entry).is_valid() {
        return table_of(entry).ok_or(MapError::Mapped(address));
    }
    let physical = match EARLY.get(tables.early) {
        Some(table) => {
            tables.early += 1;
            super::physical((&raw const *table).addr()).ok_or(MapError::OutOfMemory)?
        }
        None => {
            let frame = frame::allocate_zeroed().ok_or(MapError::OutOfMemory)?;
            tables.frames += 1;
            frame
        }
    };
    // The table walk is an observer like another: it must find the zeroes when it finds the table.
    barrier::dmb(barrier::ISHST);
    entry.store(Descriptor::table(physical).0, Ordering::Release);
    table_of(entry).ok_or(MapError::OutOfMemory)
}

/// Maps `length` bytes of physical memory at the virtual address `address`; all three multiples of the page size.
/// Uses 2 MiB blocks where it can. What was mapped before an error stays mapped.
pub(super) fn map(address: usize, physical: u64, length: usize, attributes: Attributes) -> Result<(), MapError> {
    map_by(BLOCK_SIZE, address, physical, length, attributes)
}

/// The same, by pages alone: each of them can be unmapped.
pub(super) fn map_pages(address: usize, physical: u64, length: usize, attributes: Attributes) -> Result<(), MapError> {
    map_by(PAGE_SIZE, address, physical, length, attributes)
}

/// Maps by pages, and by blocks if `largest` is the size of those.
fn map_by(
    largest: usize,
    address: usize,
    physical: u64,
    length: usize,
    attributes: Attributes,
) -> Result<(), MapError> {
    let mut tables = TABLES.lock();
    let mut done = 0;
    while done < length {
        let (to, from) = (address + done, physical + done as u64);
        let directory = next_table(boot_kernel_table.entry(1, to), to, &mut tables)?;
        let entry = directory.entry(2, to);
        let aligned = (to as u64 | from) & (BLOCK_SIZE as u64 - 1) == 0;
        let by_block = aligned && length - done >= BLOCK_SIZE && largest == BLOCK_SIZE && !load(entry).is_valid();
        let (entry, descriptor, size) = if by_block {
            (entry, Descriptor::block(from, attributes), BLOCK_SIZE)
        } else {
            (next_table(entry, to, &mut tables)?.entry(3, to), Descriptor::page(from, attributes), PAGE_SIZE)
        };
        if load(entry).is_valid() {
            return Err(MapError::Mapped(to));
        }
        entry.store(descriptor.0, Ordering::Relaxed);
        done += size;
    }
    tlb::publish();
    Ok(())
}

/// The level 3 entry for the virtual address `address`, with the tables that lead to it: for a page that is mapped and
/// unmapped again and again, by one CPU alone.
pub(super) fn reserve_entry(address: usize) -> Result<&'static AtomicU64, MapError> {
    let mut tables = TABLES.lock();
    let directory = next_table(boot_kernel_table.entry(1, address), address, &mut tables)?;
    Ok(next_table(directory.entry(2, address), address, &mut tables)?.entry(3, address))
}

/// Unmaps the page at the virtual address `address` everywhere, and returns the physical address of what was there.
///
/// # Safety
///
/// Nothing refers to the page any more.
pub(super) unsafe fn unmap(address: usize) -> Option<u64> {
    let _tables = TABLES.lock();
    let directory = table_of(boot_kernel_table.entry(1, address))?;
    let entry = table_of(directory.entry(2, address))?.entry(3, address);
    let found = Descriptor(entry.swap(Descriptor::INVALID.0, Ordering::Relaxed));
    tlb::invalidate_page(address);
    found.is_valid().then(|| found.address())
}

/// Gives the page at the virtual address `address` the attributes `to` in place of `from`. These must differ only in
/// what can be changed without a break before make, as permissions and the GP bit (Arm ARM, D8.16.1). Returns false
/// if there is no page with `from`.
pub(super) fn change_attributes(address: usize, from: Attributes, to: Attributes) -> bool {
    let _tables = TABLES.lock();
    let directory = table_of(boot_kernel_table.entry(1, address));
    let Some(table) = directory.and_then(|directory| table_of(directory.entry(2, address))) else { return false };
    let entry = table.entry(3, address);
    let found = load(entry);
    if found != Descriptor::page(found.address(), from) {
        return false;
    }
    entry.store(Descriptor::page(found.address(), to).0, Ordering::Relaxed);
    tlb::invalidate_page(address);
    true
}

/// The level 2 or 3 entry for the virtual address `address`, and the size of what it maps.
#[inline(always)]
fn leaf(address: usize) -> Option<(Descriptor, usize)> {
    let directory = table_of(boot_kernel_table.entry(1, address))?;
    let entry = directory.entry(2, address);
    match table_of(entry) {
        Some(table) => Some((load(table.entry(3, address)), PAGE_SIZE)),
        None => Some((load(entry), BLOCK_SIZE)),
    }
    .filter(|(descriptor, _)| descriptor.is_valid())
}

/// The physical address of the virtual address `address`, if it is mapped. It lies with the code that refuses probes, for
/// writes to text.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.memory_translate")]
#[must_use]
pub fn translate(address: usize) -> Option<u64> {
    leaf(address).map(|(descriptor, size)| descriptor.address() + (address & (size - 1)) as u64)
}

/// Whether what is mapped at the virtual address `address`, as a page or a block, is data; `None` if nothing is.
pub(super) fn is_data(address: usize) -> Option<bool> {
    leaf(address).map(|(found, _)| {
        let frame = found.address();
        found == Descriptor::page(frame, Attributes::DATA) || found == Descriptor::block(frame, Attributes::DATA)
    })
}

/// Whether the page at the virtual address `address` is mapped, as a page, with these attributes.
pub(super) fn has_attributes(address: usize, attributes: Attributes) -> bool {
    leaf(address).is_some_and(|(found, _)| found == Descriptor::page(found.address(), attributes))
}
