//! Reads a disk of which every word is known. `xtask/src/disk.rs` makes the disk.

use core::sync::atomic::{AtomicU64, Ordering};

use kprobes_random::words::are_words;

use crate::block::{self, SECTOR};

/// The number of sectors that are read at a time.
const COUNT: usize = (64 << 10) / SECTOR;

/// Returns what the machine lacks for this workload, if anything.
pub fn lacks() -> Option<&'static str> {
    match block::disks().first() {
        None => Some("this machine has no disk"),
        Some(disk) if disk.capacity() < COUNT as u64 => Some("the disk of this machine is too small"),
        Some(_) => None,
    }
}

/// Reads another part of the disk than the last call did. Returns whether its contents are right.
#[inline(never)]
pub fn iterate() -> bool {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let Some(disk) = block::disks().first() else { return false };
    // The parts begin at odd places, so that they overlap in every way.
    let sector = TURN.fetch_add(1, Ordering::Relaxed) * 37 % (disk.capacity() - COUNT as u64 + 1);
    disk.read(sector, COUNT).is_ok_and(|sectors| is_right(sector, &sectors))
}

/// Returns whether `sectors` are the contents of the disk from sector `number` on.
#[must_use]
pub fn is_right(number: u64, sectors: &[u8]) -> bool {
    are_words(number * (SECTOR / 8) as u64, sectors)
}
