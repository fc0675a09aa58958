//! The device trees of the Raspberry Pi, which QEMU does not make as it does that of `virt`: those that Linux is delivered
//! with in Debian, so what the firmware of a real one starts from. They are taken out of the package of the kernel, which
//! is not installed, and kept in `target/device-trees`. What they are is fixed by their checksums.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::package::{Package, checksum};
use crate::workspace;

/// The first kernel of Debian 12 with a tree of the Raspberry Pi 5 came by its backports; this is the last one there.
const PACKAGE: Package = Package {
    path: "pool/main/l/linux-signed-arm64/linux-image-6.12.95+deb12-arm64_6.12.95-1~bpo12+1_arm64.deb",
    sha256: "08f6c01d4c68c5136106f51302d1b564f40325be2b6bfada71269929e9b5b336",
};
/// Where the trees are in the package.
const DIRECTORY: &str = "./usr/lib/linux-image-6.12.95+deb12-arm64/broadcom";
/// The trees, by the names that the firmware of a Raspberry Pi gives them, and their checksums.
const TREES: [(&str, &str); 4] = [
    ("bcm2837-rpi-3-b.dtb", "04dad97e4af7c63031f8bab57dd6725520a65c7198e5cdd8e831524279892328"),
    ("bcm2837-rpi-3-b-plus.dtb", "34616a1088033fec7b2fe4be144e3f47ec95d915ebfb6a7cc660720e9d22299e"),
    ("bcm2711-rpi-4-b.dtb", "35767bd9bf386edb22685c639f2cf0a538aefa34a08c503aca604f6f06179811"),
    ("bcm2712-rpi-5-b.dtb", "b8f261ed405560ad2049a14dfaa80ed235188e42089daf763328763b0b70ea0f"),
];

fn directory() -> PathBuf {
    workspace::root().join("target/device-trees")
}

/// Where the tree `name` is, or will be after [`get`].
pub fn path(name: &str) -> PathBuf {
    directory().join(name)
}

/// Gets the trees, if they are not there.
pub fn get() -> Result<()> {
    let Err(lack) = check() else { return Ok(()) };
    eprintln!("setup: {lack}");
    let directory = directory();
    fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let members: Vec<_> = TREES.iter().map(|(name, _)| format!("{DIRECTORY}/{name}")).collect();
    let unpacked = PACKAGE.unpack(&directory, &members)?;
    for (name, _) in TREES {
        let (from, to) = (unpacked.join(DIRECTORY).join(name), directory.join(name));
        fs::rename(&from, &to).with_context(|| format!("{} cannot be made", to.display()))?;
    }
    fs::remove_dir_all(&unpacked).with_context(|| format!("{} cannot be removed", unpacked.display()))?;
    check()
}

/// Whether they are all there, and the right ones.
fn check() -> Result<()> {
    TREES.iter().try_for_each(|(name, sha256)| is_right(&path(name), sha256))
}

fn is_right(file: &Path, sha256: &str) -> Result<()> {
    let bytes = fs::read(file).with_context(|| format!("the device tree {} is missing", file.display()))?;
    ensure!(checksum(&bytes) == sha256, "{} is another device tree than it should be", file.display());
    Ok(())
}

/// Whether there is a tree of this name.
pub fn is_known(name: &str) -> bool {
    TREES.iter().any(|(known, _)| *known == name)
}
