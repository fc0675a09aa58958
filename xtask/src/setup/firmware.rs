//! The firmware of the Raspberry Pi 3 and 4, which is on their cards: it is Debian's, taken out of its package, which is not
//! installed, and kept in `target/firmware`. The Raspberry Pi 5 has its own in itself.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::archive::Archive;
use crate::workspace;

/// The licence of what is in this component permits its distribution for use with a Raspberry Pi.
const COMPONENT: &str = "non-free-firmware";
const PACKAGE: &str = "raspi-firmware";
/// Where the files are in the package, and which they are.
const DIRECTORY: &str = "/usr/lib/raspi-firmware";
const FILES: [&str; 5] = ["bootcode.bin", "start.elf", "fixup.dat", "start4.elf", "fixup4.dat"];

/// Gets the firmware, if it is not there, and says in which directory it is.
pub fn get() -> Result<PathBuf> {
    let directory = workspace::root().join("target/firmware");
    let is_there = |place: &Path| FILES.iter().all(|name| place.join(name).is_file());
    if !is_there(&directory) {
        eprintln!("setup: the firmware of the Raspberry Pi is missing");
        Archive::open(COMPONENT)?.take(PACKAGE, DIRECTORY, &FILES, &directory)?;
    }
    Ok(directory)
}
