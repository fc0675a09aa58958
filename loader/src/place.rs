//! The division of memory, by physical address.
//!
//! All of it is RAM on every board, the smallest of which has 512 MiB. All of it is free: the firmware uses only the
//! first 512 KiB, the place where it puts the kernel, and the upper end of the memory, where the device tree is.

use core::{ops::Range, slice};

use kprobes_loader_protocol::ImageRefusal;

unsafe extern "C" {
    safe static __image_start: u8;
    safe fn loader_invalidate(start: usize, end: usize);
}

/// Where the firmware puts a kernel, and the loader as well. The range ends at the loader itself.
const KERNEL: Range<usize> = 0x20_0000..LOADER.start;
/// The loader with its stack (loader/layout.ld).
const LOADER: Range<usize> = 0x400_0000..0x410_0000;
/// Packed images. The loader leaves its contents alone when it starts: they may be the next kernel.
const PACKED: Range<usize> = LOADER.end..0x510_0000;

/// The length in bytes of the longest image that fits.
pub const ROOM: u32 = (KERNEL.end - KERNEL.start) as u32;

/// The two buffers of the loader.
pub struct Memory {
    /// The buffer for the packed image.
    pub packed: &'static mut [u8],
    /// The buffer for the unpacked kernel.
    pub kernel: &'static mut [u8],
}

impl Memory {
    /// Returns both buffers, with no line of them in a cache.
    ///
    /// # Safety
    /// Must be called only once.
    pub unsafe fn take() -> Self {
        assert!((&raw const __image_start).addr() == LOADER.start, "the loader is not linked to its place");
        // SAFETY: the ranges are RAM outside the loader itself. The caller guarantees that this is the only call, so
        // the slices are unique.
        let all = |range: Range<usize>| unsafe {
            loader_invalidate(range.start, range.end);
            slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(range.start), range.len())
        };
        Self { packed: all(PACKED), kernel: all(KERNEL) }
    }

    /// Drops cache lines from before, so that every observer sees the first `length` bytes of the kernel as they are in
    /// memory.
    pub fn finish(&self, length: usize) {
        let kernel = &self.kernel[..length];
        loader_invalidate(kernel.as_ptr().addr(), kernel.as_ptr_range().end.addr());
    }
}

/// Checks that a kernel of `length` bytes, and the loader, do not overwrite the device tree at the physical address
/// `tree`.
pub fn check_device_tree(tree: u64, length: u32) -> Result<(), ImageRefusal> {
    let taken = [KERNEL.start as u64..KERNEL.start as u64 + u64::from(length), LOADER.start as u64..PACKED.end as u64];
    let is_hit = |taken: &Range<u64>| tree < taken.end && tree.saturating_add(tree_length(tree)) > taken.start;
    match taken.iter().any(is_hit) {
        true => Err(ImageRefusal::DeviceTree { address: tree }),
        false => Ok(()),
    }
}

/// Returns the length of the device tree from its header (Devicetree Specification, 5.2), or 0 if there is none.
fn tree_length(tree: u64) -> u64 {
    const MAGIC: u32 = 0xd00d_feed;
    /// The end of the addresses where firmware puts anything: they have 32 bits on all boards.
    const END: u64 = 1 << 32;
    if tree == 0 || !tree.is_multiple_of(8) || tree >= END {
        return 0;
    }
    let word = core::ptr::with_exposed_provenance::<u32>(tree as usize);
    // SAFETY: `tree` is aligned, and the firmware says that the device tree is there, so it is RAM.
    let [magic, length] = unsafe { [word.read_volatile(), word.add(1).read_volatile()] }.map(u32::from_be);
    if magic == MAGIC { length.into() } else { 0 }
}
