//! The layout of the virtual address space.
//!
//! There is one translation regime, TTBR1, with 39 bits, so three levels of 4 KiB tables. Each part of the layout has
//! whole entries of level 1 (1 GiB) to itself.
//!
//! ```text
//! ffffff80_00000000  linear map: all RAM, and device registers, at their physical address plus LINEAR_BASE
//! ffffffc0_00000000  the image; nothing of it is in the linear map
//! ffffffc0_04000000  executable memory for probe slots: with the image within 128 MiB, which direct branches reach
//! ffffffd0_00000000  stacks, each the upper half of a window
//! fffffff0_00000000  a page for each CPU through which it writes to text, for a moment
//! ```
//!
//! Physical addresses are `u64` everywhere, virtual addresses `usize`.

use core::ops::Range;

/// Bytes in a page, and in a translation table.
pub const PAGE_SIZE: usize = 4096;
/// Bytes that a level 2 entry maps.
pub const BLOCK_SIZE: usize = 2 << 20;
/// The number of translated bits in a virtual address.
pub const VIRTUAL_BITS: usize = 39;

/// The virtual address of physical address 0 in the linear map.
pub const LINEAR_BASE: usize = 0xffff_ff80_0000_0000;
/// The end of the physical addresses that fit into the linear map.
pub const LINEAR_END: u64 = 1 << 38;
/// The virtual address that the image is linked to.
pub const IMAGE_BASE: usize = 0xffff_ffc0_0000_0000;
/// The virtual addresses of executable memory.
pub const ARENA: Range<usize> = IMAGE_BASE + (64 << 20)..IMAGE_BASE + (128 << 20);
/// The virtual address of the first stack's window.
pub const STACKS: usize = 0xffff_ffd0_0000_0000;
/// The virtual address of the first writable alias.
pub const ALIASES: usize = 0xffff_fff0_0000_0000;

/// log2 of [`STACK_SIZE`]. This bit of a stack pointer is set unless the stack has overflowed.
pub const STACK_SHIFT: usize = 15;
/// Bytes in a stack.
pub const STACK_SIZE: usize = 1 << STACK_SHIFT;

macro_rules! section {
    ($(#[$doc:meta])* $name:ident, $start:ident, $end:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name() -> Range<usize> {
            unsafe extern "C" {
                safe static $start: u8;
                safe static $end: u8;
            }
            (&raw const $start).addr()..(&raw const $end).addr()
        }
    };
}

section! {
    /// Returns the virtual addresses of the image, without the data appended to it.
    image, __image_start, __image_end
}
section! {
    /// Returns the virtual addresses of the text.
    text, __text_start, __text_end
}
