//! Page frames: the physical memory that stacks and translation tables are made of.
//!
//! Frames that were never used are taken from the ranges that are left; frames that were given back are linked through
//! their own first word, in the linear map. So memory that is never allocated is never touched.
//!
//! The linear map has every frame as a page, not as a part of a block, so that a single one can be taken out of it
//! ([`executable`](super::executable)).
//!
//! Tasks allocate frames, and the boot; no interrupt handler does.

use core::ops::Range;

use super::layout::PAGE_SIZE;
use super::regions::Regions;
use crate::sync::PreemptLock;

struct Frames {
    fresh: Regions,
    /// The physical address of the first frame that was given back.
    returned: Option<u64>,
    free: usize,
    total: usize,
}

static FRAMES: PreemptLock<Frames> =
    PreemptLock::new(Frames { fresh: Regions::new(), returned: None, free: 0, total: 0 });

/// Adds memory to allocate from, whole pages: in the linear map, as pages, and unused.
pub(super) fn add(region: Range<u64>) {
    let mut frames = FRAMES.lock();
    let count = (region.end - region.start) as usize / PAGE_SIZE;
    frames.fresh.add(region);
    frames.free += count;
    frames.total += count;
}

/// Takes a frame, with unknown contents. Returns its physical address.
pub(super) fn allocate() -> Option<u64> {
    let mut frames = FRAMES.lock();
    let frame = match frames.returned {
        Some(frame) => {
            // SAFETY: the frame is free and in the linear map; `free` has written this word.
            let next = unsafe { super::pointer(frame).cast::<u64>().read() };
            frames.returned = (next != 0).then(|| next - 1);
            frame
        }
        None => frames.fresh.take(PAGE_SIZE as u64)?,
    };
    frames.free -= 1;
    Some(frame)
}

/// Takes a frame and fills it with zeroes.
pub(super) fn allocate_zeroed() -> Option<u64> {
    let frame = allocate()?;
    // SAFETY: the frame is in the linear map, and is free.
    unsafe { super::pointer(frame).write_bytes(0, PAGE_SIZE) };
    Some(frame)
}

/// Gives back a frame.
///
/// # Safety
///
/// It came from [`allocate`], is mapped nowhere but in the linear map, and nothing refers to it any more.
pub(super) unsafe fn free(frame: u64) {
    let mut frames = FRAMES.lock();
    // One more than the address, so that 0 ends the list, wherever RAM begins.
    let next = frames.returned.map_or(0, |next| next + 1);
    // SAFETY: the caller gives the frame away; it is in the linear map.
    unsafe { super::pointer(frame).cast::<u64>().write(next) };
    frames.returned = Some(frame);
    frames.free += 1;
}

/// The number of frames that can be allocated, and of those that are.
pub(super) fn counts() -> (usize, usize) {
    let frames = FRAMES.lock();
    (frames.free, frames.total - frames.free)
}
