//! The firmware of the Raspberry Pi 3 and 4, which is on their cards: it is Debian's, taken out of its package, which is not
//! installed, and kept in `target/firmware`. The Raspberry Pi 5 has its own in itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::package::Package;
use crate::workspace;

/// Of Debian 12, section non-free-firmware: its licence permits its distribution for use with a Raspberry Pi.
const PACKAGE: Package = Package {
    path: "pool/non-free-firmware/r/raspi-firmware/raspi-firmware_1.20220830+ds-1_all.deb",
    sha256: "0094ced47a7fbb6a220ff83e7b43aa637a5d8f6802461e2e4e474597fb796f62",
};
/// Where the files are in the package, and which they are.
const DIRECTORY: &str = "./usr/lib/raspi-firmware";
const FILES: [&str; 5] = ["bootcode.bin", "start.elf", "fixup.dat", "start4.elf", "fixup4.dat"];

/// Gets the firmware, if it is not there, and says in which directory it is.
pub fn get() -> Result<PathBuf> {
    let directory = workspace::root().join("target/firmware");
    let is_there = |place: &Path| FILES.iter().all(|name| place.join(name).is_file());
    if is_there(&directory) {
        return Ok(directory);
    }
    eprintln!("setup: the firmware of the Raspberry Pi is missing");
    fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let members: Vec<_> = FILES.iter().map(|name| format!("{DIRECTORY}/{name}")).collect();
    let unpacked = PACKAGE.unpack(&directory, &members)?;
    for name in FILES {
        let (from, to) = (unpacked.join(DIRECTORY).join(name), directory.join(name));
        fs::rename(&from, &to).with_context(|| format!("{} cannot be made", to.display()))?;
    }
    fs::remove_dir_all(&unpacked).with_context(|| format!("{} cannot be removed", unpacked.display()))?;
    Ok(directory)
}
