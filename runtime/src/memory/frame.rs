//! Page frames: the physical memory for stacks, translation tables and executable memory.
//!
//! Frames that were never used come from ranges. Freed frames form a list, linked through their own first word in the
//! linear map. So memory that is never allocated is never touched.
//!
//! The linear map maps every frame as a page, not as a part of a block, so that a single frame can be unmapped
//! ([`executable`](super::executable)).
//!
//! Only tasks and the boot allocate frames; no interrupt handler does.

use core::ops::Range;

use device_tree::regions::{self, Regions};

use super::layout::PAGE_SIZE;
use crate::sync::PreemptLock;

const _: () = assert!(PAGE_SIZE as u64 == regions::PAGE);

struct Frames {
    fresh: Regions,
    /// The physical address of the frame that was freed last.
    returned: Option<u64>,
    free: usize,
    total: usize,
}

static FRAMES: PreemptLock<Frames> =
    PreemptLock::new(Frames { fresh: Regions::new(), returned: None, free: 0, total: 0 });

/// Adds a range of whole pages to allocate from. It is unused, and mapped as pages in the linear map.
pub(super) fn add(region: Range<u64>) {
    let mut frames = FRAMES.lock();
    let count = (region.end - region.start) as usize / PAGE_SIZE;
    frames.fresh.add(region);
    frames.free += count;
    frames.total += count;
}

/// Allocates a frame with unknown contents. Returns its physical address.
pub(super) fn allocate() -> Option<u64> {
    let mut frames = FRAMES.lock();
    let frame = match frames.returned {
        Some(frame) => {
            // SAFETY: the frame is free and in the linear map, and `free` has written this word.
            let next = unsafe { super::pointer(frame).cast::<u64>().read() };
            frames.returned = (next != 0).then(|| next - 1);
            frame
        }
        None => frames.fresh.take(PAGE_SIZE as u64)?,
    };
    frames.free -= 1;
    Some(frame)
}

/// Allocates a zeroed frame. Returns its physical address.
pub(super) fn allocate_zeroed() -> Option<u64> {
    let frame = allocate()?;
    // SAFETY: the frame is in the linear map, and `allocate` has just made it ours.
    unsafe { super::pointer(frame).write_bytes(0, PAGE_SIZE) };
    Some(frame)
}

/// Frees a frame.
///
/// # Safety
///
/// The frame came from [`allocate`], is mapped only in the linear map, and nothing refers to it any more.
pub(super) unsafe fn free(frame: u64) {
    let mut frames = FRAMES.lock();
    // The address plus one, so that 0 ends the list even if RAM begins at address 0.
    let next = frames.returned.map_or(0, |next| next + 1);
    // SAFETY: the caller guarantees that nothing else uses the frame, and that the linear map contains it (see
    // # Safety).
    unsafe { super::pointer(frame).cast::<u64>().write(next) };
    frames.returned = Some(frame);
    frames.free += 1;
}

/// Returns the number of free frames and the number of allocated frames.
pub(super) fn counts() -> (usize, usize) {
    let frames = FRAMES.lock();
    (frames.free, frames.total - frames.free)
}
