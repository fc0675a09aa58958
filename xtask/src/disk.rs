//! The disk of the emulated machines: a file whose every word tells where it is, so that a program of the machine can
//! tell whether it has read what it asked for.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, Result};

use crate::workspace;

/// What an argument of a board contains in the place of the file's path.
pub const PLACEHOLDER: &str = "{disk}";

/// Bytes of the disk.
const SIZE: usize = 4 << 20;

/// The contents: the word with the index `i`, of 64 bits, little-endian, is `i + 1` times this odd number, whatever
/// overflows left out. `runtime/src/workload/disk.rs` expects just that.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The path of the disk, which is made if there is none. It stays as it is: QEMU keeps apart what a machine writes.
pub fn path() -> Result<PathBuf> {
    let path = workspace::root().join("target/disk.img");
    if fs::metadata(&path).is_ok_and(|found| found.len() == SIZE as u64) {
        return Ok(path);
    }
    write(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

/// Writes the disk under another name first, so that no other process sees a part of it.
fn write(path: &Path) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let draft = path.with_extension(format!("{}.img", process::id()));
    fs::write(&draft, contents())?;
    fs::rename(&draft, path)?;
    Ok(())
}

/// What is on it.
pub fn contents() -> Vec<u8> {
    (1..=SIZE as u64 / 8).flat_map(|number| number.wrapping_mul(MULTIPLIER).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_words_are_alike() {
        let contents = contents();
        let words: HashSet<_> = contents.chunks(8).collect();
        assert_eq!((contents.len(), words.len()), (SIZE, SIZE / 8));
        assert_eq!(contents[..8], MULTIPLIER.to_le_bytes());
    }
}
