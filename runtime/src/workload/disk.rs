//! Reads a disk whose every word is known. `xtask/src/disk.rs` makes the disk.

/// The word with the index 0. Word n is n + 1 times this.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the word with the index `index`.
#[must_use]
pub fn word(index: u64) -> u64 {
    (index + 1).wrapping_mul(MULTIPLIER)
}

/// Returns whether `sectors` are the contents of the disk from sector `number` on.
#[must_use]
pub fn is_right(number: u64, sectors: &[u8]) -> bool {
    let (words, rest) = sectors.as_chunks::<8>();
    let mut expected = word(number * 64);
    let right = words.iter().all(|word| {
        let right = u64::from_le_bytes(*word) == expected;
        expected = expected.wrapping_add(MULTIPLIER);
        right
    });
    right && rest.is_empty()
}

#[cfg(target_os = "none")]
pub use target::{iterate, lacks};

#[cfg(target_os = "none")]
mod target {
    use core::sync::atomic::{AtomicU64, Ordering};

    use super::is_right;
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
}

#[cfg(not(target_os = "none"))]
pub use host::{iterate, lacks};

#[cfg(not(target_os = "none"))]
mod host {
    /// Returns the reason why the workload does not run on a host.
    pub fn lacks() -> Option<&'static str> {
        Some("the host is no machine with a disk of ours")
    }

    /// Never called: [`lacks`] says that the host has no disk.
    pub fn iterate() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn wrong_sectors_are_told() {
        let words = (2 * 64 + 1..).map(|number: u64| number.wrapping_mul(MULTIPLIER).to_le_bytes());
        let mut sector: Vec<u8> = words.take(64).flatten().collect();
        assert!(is_right(2, &sector));
        assert!(!is_right(1, &sector));
        sector[511] ^= 1;
        assert!(!is_right(2, &sector));
    }
}
