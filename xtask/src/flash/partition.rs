//! The mounted boot partition of a card. It belongs to a user, and the operating system on it must still boot after our
//! section is removed from `config.txt`. If the power fails, each file is either the old or the new one.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::{CONFIG, KERNEL, config, configuration};
use crate::board::Board;

/// The new name of a kernel that was there before.
const SAVED: &str = "kernel8.img.saved";

/// Puts `kernel` and the section of the configuration into `directory`, if it is a boot partition for `board`, or if
/// `force` is set. Returns the new path of the kernel of another system, if there was one.
pub fn write(board: &Board, directory: &Path, kernel: &[u8], force: bool) -> Result<Option<PathBuf>> {
    ensure!(directory.is_dir(), "{} is not a directory", directory.display());
    if !force {
        check(board, directory)?;
    }
    let path = directory.join(CONFIG);
    let before = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
    };
    let after = config::with_section(&before, &configuration(board)?)?;
    let (place, saved) = (directory.join(KERNEL), directory.join(SAVED));
    let there = match fs::read(&place) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", place.display())),
    };
    // Without the section, the kernel is that of another system, or was put there by a command that did not get to the
    // section. Such a command may have saved the kernel already.
    let is_first = !config::has_section(&before);
    if let Some(other) = there.filter(|bytes| is_first && bytes != kernel)
        && !fs::read(&saved).is_ok_and(|bytes| bytes == other)
    {
        ensure!(
            !saved.exists(),
            "{} and {} both exist: remove or rename the one that no system on the card needs",
            place.display(),
            saved.display()
        );
        replace(&saved, &other)?;
    }
    // The section comes last: with it, a command takes the kernel for its own.
    replace(&place, kernel)?;
    replace(&path, after.as_bytes())?;
    Ok((is_first && saved.exists()).then_some(saved))
}

/// Checks that the directory is a boot partition for this board.
fn check(board: &Board, directory: &Path) -> Result<()> {
    let (name, sd) = (directory.display(), board.sd()?);
    ensure!(
        is_fat(directory)?,
        "{name} is not on a FAT file system, from which boards boot (--force writes there anyway)"
    );
    for file in &sd.firmware {
        ensure!(
            directory.join(file).is_file(),
            "{name} has no {file}, which {} needs to boot: is it the boot partition? (--force writes there anyway)",
            board.name
        );
    }
    let mut trees = sd.device_trees.iter();
    ensure!(
        trees.any(|tree| directory.join(&tree.name).is_file()),
        "{name} has no device tree for {}, {}: is it the boot partition? (--force writes there anyway)",
        board.name,
        sd.device_trees.iter().map(|tree| tree.name.as_str()).collect::<Vec<_>>().join(" or ")
    );
    Ok(())
}

/// Whether the directory is on a FAT file system. True on systems that do not tell.
fn is_fat(directory: &Path) -> Result<bool> {
    #[cfg(target_os = "linux")]
    {
        /// MSDOS_SUPER_MAGIC, statfs(2).
        const FAT: rustix::fs::FsWord = 0x4d44;
        let system =
            rustix::fs::statfs(directory).with_context(|| format!("{} cannot be read", directory.display()))?;
        Ok(system.f_type == FAT)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = directory;
        Ok(true)
    }
}

/// Replaces the file by one with these bytes. They are on the card before the new file has its name.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut unfinished = path.file_name().unwrap_or(OsStr::new("new")).to_owned();
    unfinished.push(".new");
    let unfinished = path.with_file_name(unfinished);
    let write = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    write()
        .inspect_err(|_| drop(fs::remove_file(&unfinished)))
        .with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Board, SAVED, write};
    use crate::workspace;

    #[test]
    fn what_is_on_a_card_stays() {
        let directory = workspace::root().join(format!("target/boot-partition-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let board = &Board::load("rpi4").unwrap();
        let put = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        put("config.txt", "dtparam=audio=on\n");
        put("kernel8.img", "theirs");
        let refusal = write(board, &directory, b"ours", false).unwrap_err().to_string();
        assert!(refusal.contains("--force"), "{refusal}");
        assert_eq!((read("kernel8.img"), read("config.txt")), ("theirs".into(), "dtparam=audio=on\n".into()));

        assert_eq!(write(board, &directory, b"ours", true).unwrap(), Some(directory.join(SAVED)));
        assert_eq!(write(board, &directory, b"newer", true).unwrap(), None);
        assert_eq!((read("kernel8.img"), read(SAVED)), ("newer".into(), "theirs".into()));
        // A command that ended before the kernel, or between the kernel and the section, can be repeated.
        for there in ["theirs", "newer"] {
            put("config.txt", "dtparam=audio=on\n");
            put("kernel8.img", there);
            assert_eq!(write(board, &directory, b"newer", true).unwrap(), Some(directory.join(SAVED)));
            assert_eq!((read("kernel8.img"), read(SAVED)), ("newer".into(), "theirs".into()));
        }
        put("config.txt", "dtparam=audio=on\n");
        let refusal = write(board, &directory, b"newest", true).unwrap_err().to_string();
        assert!(refusal.contains("both exist"), "{refusal}");
        assert_eq!((read("kernel8.img"), read(SAVED)), ("newer".into(), "theirs".into()));
        assert!(write(board, &directory, b"newer", true).is_ok());
        let config = read("config.txt");
        assert!(
            config.starts_with("dtparam=audio=on\n") && config.matches("kernel=kernel8.img").count() == 1,
            "{config}"
        );
        let mut names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["config.txt", "kernel8.img", SAVED]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
