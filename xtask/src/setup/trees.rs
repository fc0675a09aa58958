//! The device trees of the Raspberry Pi, which QEMU does not make as it does for `virt`. They are those of Debian's
//! Linux, and so the ones that the firmware of a real board starts from. They are extracted from the package of the
//! kernel, which is not installed, and kept in `target/device-trees`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::archive::Archive;
use crate::workspace;

const COMPONENT: &str = "main";
/// The package that depends on the current kernel.
const PACKAGE: &str = "linux-image-arm64";
/// The prefix of the name of that kernel's package.
const KERNEL: &str = "linux-image-";

fn directory() -> PathBuf {
    workspace::root().join("target/device-trees")
}

/// Returns the path of the tree `name`, where it is after [`get`].
pub fn path(name: &str) -> PathBuf {
    directory().join(name)
}

/// Gets the trees with these names, if they are not there.
pub fn get(names: &BTreeSet<&str>) -> Result<()> {
    let Err(lack) = check(names) else { return Ok(()) };
    eprintln!("setup: {lack}; the device trees are extracted from Debian's kernel package");
    let archive = Archive::open(COMPONENT)?;
    let kernel = archive.dependency(PACKAGE, KERNEL)?;
    let all: Vec<&str> = names.iter().copied().collect();
    archive.take(&kernel, &format!("/usr/lib/{kernel}/broadcom"), &all, &directory())?;
    check(names)
}

/// Checks that these trees are there and complete.
fn check(names: &BTreeSet<&str>) -> Result<()> {
    names.iter().try_for_each(|name| check_complete(&path(name)))
}

fn check_complete(file: &Path) -> Result<()> {
    let bytes = fs::read(file).with_context(|| format!("the device tree {} is missing", file.display()))?;
    ensure!(has_stated_length(&bytes), "{} is not a complete device tree", file.display());
    Ok(())
}

/// Whether the file begins as a device tree does, and has the length that its header says (Devicetree Specification,
/// 5.2).
fn has_stated_length(bytes: &[u8]) -> bool {
    const MAGIC: [u8; 4] = 0xd00d_feed_u32.to_be_bytes();
    let length = bytes.strip_prefix(&MAGIC).and_then(|rest| rest.first_chunk());
    length.is_some_and(|length| u32::from_be_bytes(*length) as usize == bytes.len())
}

#[cfg(test)]
mod tests {
    use super::has_stated_length;

    #[test]
    fn half_a_tree_is_none() {
        let tree = [0xd0, 0x0d, 0xfe, 0xed, 0, 0, 0, 10, 1, 2];
        assert!(has_stated_length(&tree));
        for part in [&tree[..9], &tree[..7], &tree[1..], &[]] {
            assert!(!has_stated_length(part), "{part:?}");
        }
    }
}
