//! The firmware for the cards of boards that have none in themselves. It is extracted from Debian's package, which is
//! not installed, and kept in `target/firmware`.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::Result;

use super::archive::Archive;
use crate::{board::Board, workspace};

/// The licence of this component permits distribution for use with a Raspberry Pi.
const COMPONENT: &str = "non-free-firmware";
const PACKAGE: &str = "raspi-firmware";
/// The directory of the files in the package.
const DIRECTORY: &str = "/usr/lib/raspi-firmware";

/// Gets the firmware of all boards, if it is not there, and returns its directory.
pub fn get() -> Result<PathBuf> {
    let directory = workspace::root().join("target/firmware");
    let boards = Board::all()?;
    let files: BTreeSet<&str> = boards
        .iter()
        .filter_map(|board| board.sd().ok())
        .flat_map(|sd| sd.firmware.iter().map(String::as_str))
        .collect();
    if !files.iter().all(|name| directory.join(name).is_file()) {
        eprintln!("setup: the firmware of the Raspberry Pi is missing");
        let files: Vec<&str> = files.into_iter().collect();
        Archive::open(COMPONENT)?.take(PACKAGE, DIRECTORY, &files, &directory)?;
    }
    Ok(directory)
}
