//! Bounds the stack that the recursion of the parser and the checker takes. The text of a program decides how deep it
//! goes, and the compiler how large the frames are, so the stack itself is measured.

use core::hint::black_box;

/// The stack that recursion may take, in bytes. On bare metal, what is called before it begins and at its end takes less
/// than 5 KiB more; the stacks of a host are large.
const ROOM: usize = if cfg!(target_os = "none") { 20 << 10 } else { 512 << 10 };

/// The place on the stack at which recursion begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackBound(usize);

impl StackBound {
    /// Returns the bound of what the caller calls.
    pub fn here() -> Self {
        Self(address())
    }

    /// Returns whether recursion has taken its room.
    pub fn is_reached(self) -> bool {
        // Miri gives local variables any addresses.
        !cfg!(miri) && self.0.saturating_sub(address()) > ROOM
    }
}

/// Returns an address within the frame of this function.
#[inline(never)]
fn address() -> usize {
    let local = 0_u8;
    core::ptr::from_ref(black_box(&local)).addr()
}
