//! Which memory is whose, by physical address. All of it is RAM on every board, the smallest having 512 MiB, and free: the
//! firmware keeps to the first 512 KiB, to where it puts the kernel, and to the upper end of the memory, where the device
//! tree is.

use core::{ops::Range, slice};

use kprobes_loader_protocol::Refusal;

unsafe extern "C" {
    safe static __image_start: u8;
    safe fn loader_invalidate(start: usize, end: usize);
}

/// Where the firmware puts a kernel, and so does the loader; up to the loader itself.
const KERNEL: Range<usize> = 0x20_0000..LOADER.start;
/// The loader with its stack (loader/layout.ld).
const LOADER: Range<usize> = 0x400_0000..0x410_0000;
/// Packed images. What is there when the loader starts is left alone: it may be the next kernel.
const PACKED: Range<usize> = LOADER.end..0x510_0000;

/// Longest image, in bytes.
pub const ROOM: u32 = (KERNEL.end - KERNEL.start) as u32;

/// The memory of the loader.
pub struct Memory {
    /// The packed image.
    pub packed: &'static mut [u8],
    /// The kernel.
    pub kernel: &'static mut [u8],
}

impl Memory {
    /// All of it, with nothing in caches.
    ///
    /// # Safety
    /// To be called once.
    pub unsafe fn take() -> Self {
        assert!((&raw const __image_start).addr() == LOADER.start, "the loader is not linked to its place");
        // SAFETY: it is RAM that the owner of this value alone uses; it is not the loader's own.
        let all = |range: Range<usize>| unsafe {
            loader_invalidate(range.start, range.end);
            slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(range.start), range.len())
        };
        Self { packed: all(PACKED), kernel: all(KERNEL) }
    }

    /// Makes sure that memory, and not a line of a cache from before, is what everybody sees of the first `length` bytes of
    /// the kernel.
    pub fn finish(&self, length: usize) {
        let kernel = &self.kernel[..length];
        loader_invalidate(kernel.as_ptr().addr(), kernel.as_ptr_range().end.addr());
    }
}

/// Whether the device tree at the physical address `tree` survives a kernel of `length` bytes.
pub fn check_device_tree(tree: u64, length: u32) -> Result<(), Refusal> {
    let taken = [KERNEL.start as u64..KERNEL.start as u64 + u64::from(length), LOADER.start as u64..PACKED.end as u64];
    let is_hit = |taken: &Range<u64>| tree < taken.end && tree.saturating_add(tree_length(tree)) > taken.start;
    match taken.iter().any(is_hit) {
        true => Err(Refusal::DeviceTree { address: tree }),
        false => Ok(()),
    }
}

/// How long the device tree is by its header (Devicetree Specification, 5.2); 0 where there is none.
fn tree_length(tree: u64) -> u64 {
    const MAGIC: u32 = 0xd00d_feed;
    /// Boards have 32-bit addresses where the firmware puts anything.
    const END: u64 = 1 << 32;
    if tree == 0 || !tree.is_multiple_of(8) || tree >= END {
        return 0;
    }
    let word = core::ptr::with_exposed_provenance::<u32>(tree as usize);
    // SAFETY: the firmware says that the device tree is there, so that it is RAM; it is aligned.
    let [magic, length] = unsafe { [word.read_volatile(), word.add(1).read_volatile()] }.map(u32::from_be);
    if magic == MAGIC { length.into() } else { 0 }
}
