//! The disk of the emulated machines. Each word of it depends on its position, so that a program of the machine can
//! check that it has read the intended place.

use std::{fs, path::PathBuf, sync::LazyLock};

use anyhow::{Context, Result};
use cargo_kprobes::image::write_bytes;
use kprobes_random::words::word;

use crate::workspace;

/// Stands for the file's path in the arguments of a board.
pub const PLACEHOLDER: &str = "{disk}";

/// The size of the disk in bytes.
const SIZE: usize = 4 << 20;

/// Returns the path of the disk, and creates it if there is none. Machines do not change it: QEMU keeps their writes
/// elsewhere.
pub fn path() -> Result<PathBuf> {
    let path = workspace::root().join("target/disk.img");
    if fs::metadata(&path).is_ok_and(|found| found.len() == SIZE as u64) {
        return Ok(path);
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    }
    // Other processes never see a part of it.
    write_bytes(contents(), &path)?;
    Ok(path)
}

/// Returns the contents of the disk.
pub fn contents() -> &'static [u8] {
    static CONTENTS: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..SIZE as u64 / 8).flat_map(|index| word(index).to_le_bytes()).collect());
    &CONTENTS
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
        assert_eq!(contents[..8], 0x9e37_79b9_7f4a_7c15_u64.to_le_bytes());
    }
}
