//! A whole card: a partition table with one boot partition, and the files in it. Raspberry Pis read the old kind of
//! partition table (MBR) and FAT32.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, Cursor, IsTerminal, Seek, SeekFrom, Write},
    os::unix::fs::FileTypeExt,
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use fatfs::{FatType, FileSystem, FormatVolumeOptions, FsOptions};
use mbrman::{BOOT_INACTIVE, CHS, MBR, MBRPartitionEntry};

const SECTOR: u32 = 512;
/// In sectors: the start of the partition, aligned for the card's flash; and its size, which is enough for FAT32 with
/// the smallest clusters, and for every firmware.
const START: u32 = 8192;
const SIZE: u32 = (96 << 20) / SECTOR;
/// FAT32, addressed by sectors.
const TYPE: u8 = 0x0c;
/// The disk signature and the volume label.
const SIGNATURE: [u8; 4] = *b"kpro";
const LABEL: [u8; 11] = *b"KPROBES    ";

/// Returns the image of a card with these files in its boot partition.
pub fn image(files: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut disk = Cursor::new(vec![0; ((START + SIZE) * SECTOR) as usize]);
    let mut table = MBR::new_from(&mut disk, SECTOR, SIGNATURE)?;
    table[1] = MBRPartitionEntry {
        boot: BOOT_INACTIVE,
        first_chs: CHS::empty(),
        sys: TYPE,
        last_chs: CHS::empty(),
        starting_lba: START,
        sectors: SIZE,
    };
    table.write_into(&mut disk)?;

    let mut disk = disk.into_inner();
    let mut partition = Cursor::new(&mut disk[(START * SECTOR) as usize..]);
    let format = FormatVolumeOptions::new().fat_type(FatType::Fat32).bytes_per_cluster(SECTOR).volume_label(LABEL);
    fatfs::format_volume(&mut partition, format).context("the boot partition cannot be made")?;
    partition.seek(SeekFrom::Start(0))?;
    let system = FileSystem::new(&mut partition, FsOptions::new())?;
    for (name, bytes) in files {
        let mut file = system.root_dir().create_file(name)?;
        file.write_all(bytes).with_context(|| format!("the boot partition has no room for {name}"))?;
        file.flush()?;
    }
    system.unmount()?;
    Ok(disk)
}

/// Whether the path is a block device.
pub fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Writes the image to a block device, if nothing of it is in use and the user types its name.
pub fn write_device(path: &Path, bytes: &[u8]) -> Result<()> {
    let path = fs::canonicalize(path).with_context(|| format!("{} cannot be found", path.display()))?;
    let name = path.to_string_lossy();
    if let Some(place) = mounted(&name, &fs::read_to_string("/proc/self/mounts").unwrap_or_default()) {
        bail!("{name} is in use: it is mounted at {place}");
    }
    let mut device = exclusive().open(&path).with_context(|| format!("{name} cannot be written to"))?;
    let size = device.seek(SeekFrom::End(0))?;
    ensure!(size >= bytes.len() as u64, "{name} has {} MiB, but {} are needed", size >> 20, bytes.len() >> 20);
    ensure!(io::stdin().is_terminal(), "overwriting {name} has to be confirmed on a terminal");
    eprint!("Everything on {name}, {} MiB, will be lost. To go on, type its name: ", size >> 20);
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    ensure!(is_confirmed(&name, &answer), "nothing was written");
    device.seek(SeekFrom::Start(0))?;
    device.write_all(bytes).and_then(|()| device.sync_all()).with_context(|| format!("{name} cannot be written to"))
}

/// Returns options that open a block device for writing. Linux refuses to open one of which a part is in use in any
/// way, such as for swap or by the device mapper (open(2), O_EXCL).
fn exclusive() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(target_os = "linux")]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_EXCL);
    options
}

fn is_confirmed(device: &str, answer: &str) -> bool {
    answer.trim() == device
}

/// Returns where the device or a partition of it is mounted, by the table `mounts`. `None` if it is not.
fn mounted<'a>(device: &str, mounts: &'a str) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        let (source, rest) = line.split_once(' ')?;
        source.starts_with(device).then(|| rest.split(' ').next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::{is_confirmed, mounted};

    #[test]
    fn a_device_in_use_is_not_written_to() {
        let mounts = "/dev/sda1 / ext4 rw 0 0\n/dev/mmcblk0p1 /boot/firmware vfat rw 0 0\n";
        assert_eq!(mounted("/dev/mmcblk0", mounts), Some("/boot/firmware"));
        assert_eq!(mounted("/dev/sda1", mounts), Some("/"));
        assert_eq!(mounted("/dev/sdb", mounts), None);
    }

    #[test]
    fn only_the_name_confirms() {
        assert!(is_confirmed("/dev/sdb", "/dev/sdb\n"));
        for answer in ["", "y\n", "yes\n", "/dev/sda\n", "sdb\n", "/dev/sdb1\n"] {
            assert!(!is_confirmed("/dev/sdb", answer), "{answer:?}");
        }
    }
}
