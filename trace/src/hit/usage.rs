//! Keeping the deepest stack of a CPU, at a hit.

use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::atomic::fence;
use crate::tracer::usage::Deepest;

impl Deepest {
    /// Keeps a stack of this depth, in bytes, if it is deeper than the one that is kept. `next` returns its frames from
    /// the innermost on: addresses and depths.
    ///
    /// Only one hit at a time is handled on the CPU, so nothing else writes here.
    #[inline(always)]
    pub(crate) fn note(&self, depth: u64, mut next: impl FnMut() -> Option<(u64, u64)>) {
        if depth <= self.depth.load(Relaxed) {
            return;
        }
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        self.depth.store(depth, Relaxed);
        let mut count = 0;
        for frame in &self.frames {
            let Some((address, depth)) = next() else { break };
            frame.address.store(address, Relaxed);
            frame.depth.store(depth, Relaxed);
            count += 1;
        }
        self.count.store(count, Relaxed);
        self.version.store(version.wrapping_add(2), Release);
    }
}
