//! Bounds the stack that the recursion of the parser and the checker takes. The depth depends on the program, and the
//! size of the frames on the compiler, so the stack itself is measured.

use core::hint::black_box;

/// The stack that recursion may take, in bytes. On bare metal, the calls before the recursion and at its end take less
/// than 5 KiB more. The stacks of a host are large.
const ROOM: usize = if cfg!(target_os = "none") { 20 << 10 } else { 512 << 10 };

/// The place on the stack at which recursion begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackBound(usize);

impl StackBound {
    /// Returns a bound for recursion that begins here.
    pub fn here() -> Self {
        Self(address())
    }

    /// Returns whether the recursion has taken `ROOM` bytes.
    pub fn is_reached(self) -> bool {
        // In Miri, the addresses of local variables tell nothing about the stack.
        !cfg!(miri) && self.0.saturating_sub(address()) > ROOM
    }
}

/// Returns an address within the frame of this function.
#[inline(never)]
fn address() -> usize {
    let local = 0_u8;
    core::ptr::from_ref(black_box(&local)).addr()
}
