//! Setup of memory: maps the RAM in the device tree and hands it to the allocators. Runs once, on the boot CPU.

use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering;

use device_tree::regions::Regions;
use device_tree::{DeviceTreeError, Hardware, Start};

use super::descriptor::Attributes;
use super::layout::{BLOCK_SIZE, IMAGE_BASE, LINEAR_BASE, LINEAR_END, PAGE_SIZE, image};
use super::table::{self, MapError};
use super::{IMAGE, executable, frame, heap};

/// Why memory cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupError {
    /// The free RAM is too small or too fragmented. The value is its size in bytes.
    TooLittle(u64),
    /// Something cannot be mapped.
    Map(MapError),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::TooLittle(bytes) => write!(f, "the device tree leaves too little memory: {bytes} bytes are free"),
            Self::Map(error) => error.fmt(f),
        }
    }
}

impl From<MapError> for SetupError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

/// Stores where the image was loaded: `physical` is the physical address of its first byte. Must come before any other
/// use of memory.
pub(crate) fn set_image(physical: u64) {
    IMAGE.store(physical, Ordering::Relaxed);
}

/// Maps the device tree blob at the physical address `physical`, at its address in the linear map.
///
/// # Safety
///
/// This is called only once, because the returned reference must be the only one.
pub(crate) unsafe fn map_device_tree(physical: u64) -> Result<&'static mut [u8], DeviceTreeError> {
    device_tree::check_address(physical, LINEAR_END)?;
    let unreachable = |_| DeviceTreeError::OutOfReach { address: physical };
    let page = physical & !(PAGE_SIZE as u64 - 1);
    let map_pages = |from: u64, to: u64| {
        let length = (to - from) as usize;
        table::map(LINEAR_BASE + from as usize, from, length, Attributes::DATA).map_err(unreachable)
    };
    let mapped = (physical + device_tree::HEADER_SIZE as u64).next_multiple_of(PAGE_SIZE as u64);
    map_pages(page, mapped)?;
    let start = core::ptr::with_exposed_provenance_mut::<u8>(LINEAR_BASE + physical as usize);
    // SAFETY: these pages have just been mapped, and are reserved for the blob from now on.
    let header = unsafe { core::slice::from_raw_parts(start, device_tree::HEADER_SIZE) };
    let length = device_tree::total_size(header)?;
    let end = (physical + length as u64).next_multiple_of(PAGE_SIZE as u64);
    if end > LINEAR_END {
        return Err(DeviceTreeError::OutOfReach { address: physical });
    }
    map_pages(mapped, end.max(mapped))?;
    // SAFETY: the pages have just been mapped, and `header` is no longer used. The caller guarantees that this is the
    // only call (see # Safety).
    Ok(unsafe { core::slice::from_raw_parts_mut(start, length) })
}

/// Returns the length in bytes of the image with everything appended to it, from its header.
pub(crate) fn image_length() -> usize {
    // SAFETY: the header is mapped and constant. image_size is at byte 16 (Linux,
    // Documentation/arch/arm64/booting.rst).
    unsafe { core::ptr::with_exposed_provenance::<u64>(IMAGE_BASE + 16).read() as usize }
}

/// Returns the physical addresses of the pages of the image, with everything appended to it.
pub(super) fn image_pages() -> Range<u64> {
    let start = IMAGE.load(Ordering::Relaxed);
    start..start + image_length().next_multiple_of(PAGE_SIZE).max(image().len()) as u64
}

/// Maps all RAM, and hands it to the allocators. `tree` is the result of [`map_device_tree`].
pub(crate) fn initialize(hardware: &Hardware, tree: &[u8]) -> Result<(), SetupError> {
    let image_pages = image_pages();
    let tree_start = (tree.as_ptr().addr() - LINEAR_BASE) as u64;

    let mut mapped = Regions::new();
    for region in &hardware.memory {
        mapped.add(region.start..region.end.min(LINEAR_END));
    }
    for reserved in hardware.reserved.iter().filter(|reserved| !reserved.mapped) {
        mapped.remove(reserved.range.clone());
    }
    mapped.remove(image_pages.clone());
    mapped.remove(tree_start..tree_start + tree.len() as u64);

    let mut free = mapped.clone();
    for reserved in &hardware.reserved {
        free.remove(reserved.range.clone());
    }
    // CPUs poll these words, whether or not the tree reserves them.
    for cpu in &hardware.cpus {
        if let Some(Start::SpinTable(address)) = cpu.start {
            free.remove(address..address.saturating_add(8));
        }
    }
    let total = free.total();
    let too_little = SetupError::TooLittle(total);
    let block = BLOCK_SIZE as u64;
    // This block provides the tables that map the rest. It needs no more than two of the early tables itself.
    let seed = free.take_aligned(block, block).ok_or(too_little)?;
    add_frames(seed..seed + block)?;
    mapped.remove(seed..seed + block);
    for piece in free.iter() {
        mapped.remove(piece.clone());
        // The heap gets three quarters of each large piece, in whole blocks. Stacks and tables, which take single
        // frames, get the rest.
        let heap = (piece.end - piece.start) / 4 * 3 / block * block;
        table::map(linear(piece.start), piece.start, heap as usize, Attributes::DATA)?;
        // SAFETY: this memory has just been mapped, and only the heap gets it.
        unsafe { heap::add(super::pointer(piece.start), heap as usize) };
        // In steps, because the frames of one step are the tables of the next.
        for start in (piece.start + heap..piece.end).step_by(BLOCK_SIZE) {
            add_frames(start..piece.end.min(start + block))?;
        }
    }
    for region in mapped.iter() {
        table::map(linear(region.start), region.start, (region.end - region.start) as usize, Attributes::DATA)?;
    }
    table::map(
        image().end,
        image_pages.start + image().len() as u64,
        (image_pages.end - image_pages.start) as usize - image().len(),
        Attributes::RODATA,
    )?;
    if heap::counters().claimed_bytes == 0 {
        return Err(too_little);
    }
    executable::initialize()?;
    Ok(())
}

/// Maps free memory by pages, and hands it to the frame allocator.
fn add_frames(region: Range<u64>) -> Result<(), MapError> {
    table::map_pages(linear(region.start), region.start, (region.end - region.start) as usize, Attributes::DATA)?;
    frame::add(region);
    Ok(())
}

/// Returns the address in the linear map of the physical address `physical`.
fn linear(physical: u64) -> usize {
    LINEAR_BASE + physical as usize
}
