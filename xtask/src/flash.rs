//! Puts a kernel, or the loader that takes kernels over a serial line, on the card that a Raspberry Pi boots from: into
//! a mounted boot partition, beside the files there, or as an image of a whole card.

mod card;
mod config;
mod partition;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use cargo_kprobes::image;

use crate::{board::Board, setup, workspace};

/// The kernel, and where it goes.
#[derive(clap::Args)]
pub struct Options {
    /// The board, one with a memory card: `[sd]` in its board.toml.
    #[arg(long, value_name = "NAME")]
    board: String,
    /// The directory where the boot partition of a card is mounted. Existing files stay, except that a `kernel8.img` is
    /// renamed, and a section of `config.txt` is written.
    #[arg(long, value_name = "DIR", required_unless_present = "image", conflicts_with = "image")]
    boot_dir: Option<PathBuf>,
    /// The file for the image of a whole card, with a partition table and a boot partition. A block device is written
    /// to only after its name was typed once more.
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Puts the chain-loader on the card: kernels then come by `cargo xtask run --serial`.
    #[arg(long)]
    loader: bool,
    /// The image to put on the card, as `cargo xtask image` makes it. The kernel is built if none is given.
    #[arg(long, value_name = "FILE", conflicts_with = "loader")]
    kernel: Option<PathBuf>,
    /// The directory with the firmware for --image. Without this, the firmware of Debian's package raspi-firmware is
    /// used.
    #[arg(long, value_name = "DIR", requires = "image")]
    firmware: Option<PathBuf>,
    /// Also writes into a directory that does not look like the boot partition of this board.
    #[arg(long, requires = "boot_dir")]
    force: bool,
}

/// The name of the kernel on the card.
pub const KERNEL: &str = "kernel8.img";
/// The name of the firmware's configuration.
pub const CONFIG: &str = "config.txt";

/// Returns the settings that the firmware's configuration must contain for the board.
fn configuration(board: &Board) -> Result<String> {
    let path = workspace::root().join("boards").join(&board.name).join(CONFIG);
    fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Puts the kernel or the loader on the card.
pub fn flash(options: &Options) -> Result<()> {
    let board = Board::load(&options.board)?;
    board.sd()?;
    let kernel = kernel(options)?;
    let what = if options.loader { "the loader" } else { "the kernel" };
    if let Some(directory) = &options.boot_dir {
        if let Some(saved) = partition::write(&board, directory, &kernel, options.force)? {
            let place = directory.join(KERNEL);
            writeln!(io::stdout(), "the old {} was renamed to {}", place.display(), saved.display())?;
        }
        writeln!(io::stdout(), "{what} is on {}: unmount it before the card is taken out", directory.display())?;
    }
    if let Some(path) = &options.image {
        let bytes = card_image(&board, &kernel, options.firmware.as_deref())?;
        if card::is_device(path) {
            card::write_device(path, &bytes)?;
        } else {
            image::write_bytes(&bytes, path)?;
        }
        writeln!(io::stdout(), "{what} is on {}: {} MiB", path.display(), bytes.len() >> 20)?;
    }
    Ok(())
}

/// Returns the image of a card with this kernel, and with the firmware from `firmware` or from Debian's package.
pub fn card_image(board: &Board, kernel: &[u8], firmware: Option<&Path>) -> Result<Vec<u8>> {
    let read = |path: PathBuf| fs::read(&path).with_context(|| format!("{} cannot be read", path.display()));
    let sd = board.sd()?;
    let section = config::with_section("", &configuration(board)?)?;
    let mut files = vec![(KERNEL, kernel.to_vec()), (CONFIG, section.into_bytes())];
    let directory = match firmware {
        Some(directory) => directory.to_path_buf(),
        None if sd.firmware.is_empty() => PathBuf::new(),
        None => setup::firmware::get()?,
    };
    for name in &sd.firmware {
        files.push((name, read(directory.join(name))?));
    }
    setup::device_trees()?;
    for tree in &sd.device_trees {
        files.push((&tree.name, read(setup::trees::path(&tree.from))?));
    }
    card::image(&files)
}

fn kernel(options: &Options) -> Result<Vec<u8>> {
    let path = match &options.kernel {
        Some(path) => path.clone(),
        None => {
            setup::rust(&[])?;
            match options.loader {
                true => loader()?,
                false => workspace::image(&workspace::build_kernel("runtime")?)?,
            }
        }
    };
    fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Builds the loader, and returns the path of its image.
pub fn loader() -> Result<PathBuf> {
    let elf = workspace::build_kernel("kprobes-loader")?;
    let out = elf.with_extension("img");
    image::write_plain(&elf, &out)?;
    Ok(out)
}
