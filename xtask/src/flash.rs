//! Puts a kernel, or the loader that takes kernels over a serial line, on the card that a Raspberry Pi boots from: into a boot
//! partition that is mounted, beside what is there, or as an image of a whole card.

mod card;
mod config;
mod partition;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{image, setup, workspace};

/// What is put where.
#[derive(clap::Args)]
pub struct Options {
    /// The board: rpi3, rpi4 or rpi5.
    #[arg(long, value_name = "NAME")]
    board: String,
    /// The directory where the boot partition of a card is mounted. What is there stays, but for a `kernel8.img`, which gets
    /// another name; of `config.txt`, a section is written.
    #[arg(long, value_name = "DIR", required_unless_present = "image", conflicts_with = "image")]
    boot_dir: Option<PathBuf>,
    /// The file that becomes the image of a whole card, with a partition table and a boot partition. A block device is written
    /// to after its name was typed once more.
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Puts the chain-loader on the card: kernels then come by `cargo xtask run --serial`.
    #[arg(long)]
    loader: bool,
    /// The image to put on the card, as `cargo xtask image` makes it; the kernel is built if none is given.
    #[arg(long, value_name = "FILE", conflicts_with = "loader")]
    kernel: Option<PathBuf>,
    /// With --image, the directory with the firmware; without, it is that of Debian's package raspi-firmware.
    #[arg(long, value_name = "DIR", requires = "image")]
    firmware: Option<PathBuf>,
    /// Also writes into a directory that does not look like the boot partition of this board.
    #[arg(long, requires = "boot_dir")]
    force: bool,
}

/// What a board wants of its card.
pub struct Board {
    /// Its directory in `boards/`.
    pub name: &'static str,
    /// The firmware, without which it does not boot; in the board itself where none is listed.
    pub firmware: &'static [&'static str],
    /// The device trees: what each is called where it comes from, and what the firmware looks for.
    pub trees: &'static [(&'static str, &'static str)],
}

const BOARDS: [Board; 3] = [
    Board {
        name: "rpi3",
        firmware: &["bootcode.bin", "start.elf", "fixup.dat"],
        trees: &[
            ("bcm2837-rpi-3-b.dtb", "bcm2710-rpi-3-b.dtb"),
            ("bcm2837-rpi-3-b-plus.dtb", "bcm2710-rpi-3-b-plus.dtb"),
        ],
    },
    Board {
        name: "rpi4",
        firmware: &["start4.elf", "fixup4.dat"],
        trees: &[("bcm2711-rpi-4-b.dtb", "bcm2711-rpi-4-b.dtb")],
    },
    Board { name: "rpi5", firmware: &[], trees: &[("bcm2712-rpi-5-b.dtb", "bcm2712-rpi-5-b.dtb")] },
];

/// The name of the kernel on the card.
pub const KERNEL: &str = "kernel8.img";
/// The name of the firmware's configuration.
pub const CONFIG: &str = "config.txt";

impl Board {
    /// The board of this name.
    pub fn named(name: &str) -> Result<&'static Self> {
        let Some(board) = BOARDS.iter().find(|board| board.name == name) else {
            let names: Vec<_> = BOARDS.iter().map(|board| board.name).collect();
            bail!("the board {name} has no card; those with one are: {}", names.join(", "));
        };
        Ok(board)
    }

    /// What its configuration has to say, whatever else it does.
    pub fn config(&self) -> Result<String> {
        let path = workspace::root().join("boards").join(self.name).join(CONFIG);
        fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
    }
}

/// Puts the kernel or the loader where it is to be.
pub fn flash(options: &Options) -> Result<()> {
    let board = Board::named(&options.board)?;
    let kernel = kernel(options)?;
    let what = if options.loader { "the loader" } else { "the kernel" };
    if let Some(directory) = &options.boot_dir {
        partition::write(board, directory, &kernel, options.force)?;
        println!("{what} is on {}: unmount it before the card is taken out", directory.display());
    }
    if let Some(path) = &options.image {
        let bytes = card_image(board, &kernel, options.firmware.as_deref())?;
        if card::is_device(path) {
            card::write_device(path, &bytes)?;
        } else {
            image::write_bytes(&bytes, path)?;
        }
        println!("{what} is on {}: {} MiB", path.display(), bytes.len() >> 20);
    }
    Ok(())
}

/// The image of a card with this kernel, with the firmware from `firmware` or from Debian's package.
pub fn card_image(board: &Board, kernel: &[u8], firmware: Option<&Path>) -> Result<Vec<u8>> {
    let read = |path: PathBuf| fs::read(&path).with_context(|| format!("{} cannot be read", path.display()));
    let mut files = vec![(KERNEL, kernel.to_vec()), (CONFIG, config::with_section("", &board.config()?)?.into_bytes())];
    let directory = match firmware {
        Some(directory) => directory.to_path_buf(),
        None if board.firmware.is_empty() => PathBuf::new(),
        None => setup::firmware::get()?,
    };
    for name in board.firmware {
        files.push((name, read(directory.join(name))?));
    }
    setup::trees::get()?;
    for (tree, name) in board.trees {
        files.push((name, read(setup::trees::path(tree))?));
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
                false => image::write_beside(&workspace::build_kernel("runtime")?)?,
            }
        }
    };
    fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Builds the loader and says where its image is.
pub fn loader() -> Result<PathBuf> {
    loader_with(&[])
}

/// Builds the loader with more arguments for Cargo, and says where its image is.
pub fn loader_with(arguments: &[&str]) -> Result<PathBuf> {
    let elf = workspace::build_kernel_with("kprobes-loader", arguments)?;
    let out = elf.with_extension("img");
    image::write_plain(&elf, &out)?;
    Ok(out)
}
