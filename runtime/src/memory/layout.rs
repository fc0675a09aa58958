//! Where everything lies in the virtual address space.
//!
//! One translation regime, TTBR1: 39 bits, so three levels of 4 KiB tables, and each part has whole entries of
//! level 1 (1 GiB) to itself.
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
/// Bytes that an entry of level 2 maps.
pub const BLOCK_SIZE: usize = 2 << 20;
/// Bits of a virtual address that are translated.
pub const VIRTUAL_BITS: usize = 39;

/// Where physical address 0 would be in the linear map.
pub const LINEAR_BASE: usize = 0xffff_ff80_0000_0000;
/// Physical addresses from here on do not fit into the linear map.
pub const LINEAR_END: u64 = 1 << 38;
/// Where the image is linked to.
pub const IMAGE_BASE: usize = 0xffff_ffc0_0000_0000;
/// Executable memory.
pub const ARENA: Range<usize> = IMAGE_BASE + (64 << 20)..IMAGE_BASE + (128 << 20);
/// Windows of stacks.
pub const STACKS: usize = 0xffff_ffd0_0000_0000;
/// Writable aliases.
pub const ALIASES: usize = 0xffff_fff0_0000_0000;

/// log2 of [`STACK_SIZE`]. This bit of a stack pointer is set as long as the stack has not overflowed.
pub const STACK_SHIFT: usize = 15;
/// Bytes in a stack.
pub const STACK_SIZE: usize = 1 << STACK_SHIFT;

macro_rules! section {
    ($(#[$doc:meta])* $name:ident, $start:ident, $end:ident) => {
        $(#[$doc])*
        #[cfg(target_os = "none")]
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
    /// The virtual addresses of the image, without what is appended to it.
    image, __image_start, __image_end
}
section! {
    /// The virtual addresses of the text.
    text, __text_start, __text_end
}
