//! The firmware for the cards of the Raspberry Pi 3 and 4. It is extracted from Debian's package, which is not
//! installed, and kept in `target/firmware`. The Raspberry Pi 5 has its firmware in itself.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::archive::Archive;
use crate::workspace;

/// The licence of this component permits distribution for use with a Raspberry Pi.
const COMPONENT: &str = "non-free-firmware";
const PACKAGE: &str = "raspi-firmware";
/// The directory of the files in the package, and their names.
const DIRECTORY: &str = "/usr/lib/raspi-firmware";
const FILES: [&str; 5] = ["bootcode.bin", "start.elf", "fixup.dat", "start4.elf", "fixup4.dat"];

/// Gets the firmware, if it is not there, and returns its directory.
pub fn get() -> Result<PathBuf> {
    let directory = workspace::root().join("target/firmware");
    let is_there = |place: &Path| FILES.iter().all(|name| place.join(name).is_file());
    if !is_there(&directory) {
        eprintln!("setup: the firmware of the Raspberry Pi is missing");
        Archive::open(COMPONENT)?.take(PACKAGE, DIRECTORY, &FILES, &directory)?;
    }
    Ok(directory)
}
