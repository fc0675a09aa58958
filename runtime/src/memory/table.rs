//! The kernel's translation tables: mapping, unmapping and address translation.
//!
//! A valid entry is never replaced by another. [`map`] refuses to, and [`unmap`] makes the entry invalid and removes it
//! from the TLBs of all CPUs first. So break-before-make (Arm ARM, D8.17) holds by construction.
//!
//! Only tasks change tables, under a lock. Readers take no lock: the table walks of all CPUs, and functions like
//! [`translate`], which run with interrupts masked or while CPUs are held. Tables are never freed, so a reader that has
//! found a table may use it. A table is filled with zeroes before it can be found.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_cpu::asm::barrier;

use super::descriptor::{Attributes, Descriptor};
use super::layout::{BLOCK_SIZE, PAGE_SIZE};
use super::{frame, tlb};
use crate::boot::UARTS;
use crate::sync::PreemptLock;

const ENTRIES: usize = 512;
/// The most devices whose registers are mapped before there are frames: the UARTs of all boards if the device tree
/// cannot be used, and otherwise the UART, its pins, the mailbox that tells its clock, and the watchdog. The first
/// frames count as one.
const EARLY_DEVICES: usize = if UARTS.len() > 5 { UARTS.len() } else { 5 };
/// The tables for memory that is mapped before there are frames. The device tree, which may cross a boundary of either
/// level, needs two level 2 and two level 3 tables, and each device one of either.
const EARLY_TABLES: usize = 2 * (2 + EARLY_DEVICES);

/// A translation table of any level.
#[repr(C, align(4096))]
pub(super) struct TranslationTable([AtomicU64; ENTRIES]);

impl TranslationTable {
    const fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; ENTRIES])
    }

    /// Returns the entry of this table, which is of level `level`, for the virtual address `address`.
    pub(super) fn entry(&self, level: usize, address: usize) -> &AtomicU64 {
        &self.0[address >> (39 - 9 * level) & (ENTRIES - 1)]
    }
}

unsafe extern "C" {
    /// The level 1 table. trampoline/boot.S has entered the image in it.
    safe static boot_kernel_table: TranslationTable;
}

static EARLY: [TranslationTable; EARLY_TABLES] = [const { TranslationTable::empty() }; EARLY_TABLES];

/// The counts of tables. The lock is held while tables are changed.
static TABLES: PreemptLock<Count> = PreemptLock::new(Count { early: 0, frames: 0 });

/// The number of tables in use.
struct Count {
    /// The number in use of [`EARLY`].
    early: usize,
    /// The number in frames.
    frames: usize,
}

/// Returns the number of frames that are translation tables.
pub(super) fn frames() -> usize {
    TABLES.lock().frames
}

/// Why memory cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// There is no frame for a translation table.
    OutOfMemory,
    /// Something is mapped at this virtual address already.
    Mapped(usize),
    /// The linear map does not reach this physical address.
    OutOfReach(u64),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("no memory for a translation table"),
            Self::Mapped(address) => write!(f, "{address:#x} is already mapped"),
            Self::OutOfReach(address) => write!(f, "the physical address {address:#x} is too high to be mapped"),
        }
    }
}

/// Loads an entry with acquire ordering, so that the reader sees the contents that a table had when it was entered.
fn load(entry: &AtomicU64) -> Descriptor {
    Descriptor(entry.load(Ordering::Acquire))
}

/// Returns the table that `entry` names, if it names one.
#[inline(always)]
fn table_of(entry: &AtomicU64) -> Option<&'static TranslationTable> {
    let descriptor = load(entry);
    if !descriptor.is_table() {
        return None;
    }
    // SAFETY: only `next_table` and boot.S write table descriptors. They hold the address of a table that stays one
    // forever, in the image or in a frame of the linear map. All accesses to it are atomic.
    Some(unsafe { &*super::pointer(descriptor.address()).cast::<TranslationTable>() })
}

/// Returns the table that `entry` names. `entry` is for the virtual address `address`. Creates the table if there is
/// none.
fn next_table(entry: &AtomicU64, address: usize, tables: &mut Count) -> Result<&'static TranslationTable, MapError> {
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
    // The table walk is an observer of its own: when it finds the table, it must also find the zeroes.
    barrier::dmb(barrier::ISHST);
    entry.store(Descriptor::table(physical).0, Ordering::Release);
    table_of(entry).ok_or(MapError::OutOfMemory)
}

/// Maps `length` bytes of physical memory at the virtual address `address`. All three are multiples of the page size.
/// Uses 2 MiB blocks where possible. After an error, the part that was mapped before stays mapped.
pub(super) fn map(address: usize, physical: u64, length: usize, attributes: Attributes) -> Result<(), MapError> {
    map_by(BLOCK_SIZE, address, physical, length, attributes)
}

/// Maps memory as [`map`] does, but only by pages, so that each page can be unmapped.
pub(super) fn map_pages(address: usize, physical: u64, length: usize, attributes: Attributes) -> Result<(), MapError> {
    map_by(PAGE_SIZE, address, physical, length, attributes)
}

/// Maps by pages, and also by blocks if `largest` is [`BLOCK_SIZE`].
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

/// Returns the level 3 entry for the virtual address `address`, and creates the tables that lead to it. For a page that
/// one CPU maps and unmaps again and again.
pub(super) fn reserve_entry(address: usize) -> Result<&'static AtomicU64, MapError> {
    let mut tables = TABLES.lock();
    let directory = next_table(boot_kernel_table.entry(1, address), address, &mut tables)?;
    Ok(next_table(directory.entry(2, address), address, &mut tables)?.entry(3, address))
}

/// Unmaps the page at the virtual address `address` on all CPUs. Returns the physical address that it was mapped to.
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

/// Changes the attributes of the page at the virtual address `address` from `from` to `to`. Returns false if there is
/// no page with `from`.
///
/// The two must differ only in what can be changed without break-before-make, such as permissions and the GP bit (Arm
/// ARM, D8.16.1).
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

/// Returns the level 2 or 3 entry that maps the virtual address `address`, and the size in bytes of what it maps.
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

/// Returns the physical address for the virtual address `address`, if it is mapped. Lies in the section that refuses
/// probes, because writes to text call it.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.memory_translate")]
#[must_use]
pub fn translate(address: usize) -> Option<u64> {
    leaf(address).map(|(descriptor, size)| descriptor.address() + (address & (size - 1)) as u64)
}

/// Returns whether the virtual address `address` is mapped as data, by a page or a block.
pub(super) fn is_data(address: usize) -> bool {
    leaf(address).is_some_and(|(found, _)| {
        let frame = found.address();
        found == Descriptor::page(frame, Attributes::DATA) || found == Descriptor::block(frame, Attributes::DATA)
    })
}

/// Returns whether the virtual address `address` is mapped as a page with these attributes.
pub(super) fn has_attributes(address: usize, attributes: Attributes) -> bool {
    leaf(address).is_some_and(|(found, _)| found == Descriptor::page(found.address(), attributes))
}
