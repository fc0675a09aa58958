//! The options by which a command line chooses the machine to talk to and the kernel that runs there.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    board::{self, Board, Overrides},
    conversation::{POWER_OFF, REBOOT},
    image,
    machine::{Output, Start, Uart},
    network,
    serial::{self, Station},
    setup, workspace,
};

/// QEMU's machine that has slots for virtio devices.
pub const VIRT: &str = "virt";

/// How the kernel is booted.
#[derive(clap::Args)]
pub struct Options {
    /// The board, a directory of `boards/`.
    #[arg(long, value_name = "NAME", default_value = board::DEFAULT)]
    pub board: String,
    /// The configuration, one of those in the board's `board.toml`.
    #[arg(long, value_name = "NAME", default_value = board::BASE)]
    configuration: String,
    #[command(flatten)]
    overrides: Overrides,
    /// The machine has no network cards.
    #[arg(long)]
    no_network: bool,
    #[command(flatten)]
    serial: serial::Options,
    /// How many seconds the machine may give no sign of life while it carries out a command.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub timeout: u64,
    /// A linked kernel, whose image is made beside it. The runtime is built if none is given.
    #[arg(long, value_name = "FILE")]
    elf: Option<PathBuf>,
    /// An image made by `cargo xtask image`.
    #[arg(long, value_name = "FILE", conflicts_with = "elf")]
    image: Option<PathBuf>,
}

/// The machine that the kernel runs on.
pub enum Target {
    /// QEMU.
    Qemu {
        arguments: Vec<OsString>,
        image: PathBuf,
        /// Whether the machine has slots for virtio devices.
        has_virtio: bool,
    },
    /// A board on a serial line.
    Serial { station: Station, image: PathBuf, bytes: Vec<u8> },
}

impl Options {
    /// Returns the machine that the options choose, and builds its image if needed.
    pub fn target(&self) -> Result<Target> {
        if let Some(station) = Station::open(&self.board, &self.serial)? {
            let image = self.image()?;
            let bytes = fs::read(&image).with_context(|| format!("{} cannot be read", image.display()))?;
            return Ok(Target::Serial { station, image, bytes });
        }
        let board = Board::load(&self.board)?;
        let configuration = board.configuration(&self.configuration)?;
        setup::board(&board)?;
        let image = self.image()?;
        let mut arguments = board.arguments(configuration, &self.overrides, &image)?;
        if !self.no_network {
            let plugged = network::plug(board.cards())?;
            arguments.extend(plugged.arguments);
            plugged.lines.iter().for_each(|line| eprintln!("{line}"));
        }
        Ok(Target::Qemu { arguments, image, has_virtio: board.machine()? == VIRT })
    }

    /// Returns the path of the image that the options choose, and builds it if needed.
    fn image(&self) -> Result<PathBuf> {
        Ok(match (&self.image, &self.elf) {
            (Some(image), _) => {
                File::open(image).with_context(|| format!("{} cannot be read", image.display()))?;
                image.clone()
            }
            (None, Some(elf)) => image::write_image_next_to(elf)?,
            (None, None) => {
                setup::rust(&[])?;
                image::write_image_next_to(&workspace::build_kernel("runtime")?)?
            }
        })
    }
}

impl Target {
    /// The line that ends a conversation. A board is left to its loader, for the next kernel.
    pub fn farewell(&self) -> &'static str {
        match self {
            Self::Qemu { .. } => POWER_OFF,
            Self::Serial { .. } => REBOOT,
        }
    }

    /// The path of the image that this machine boots.
    pub fn image(&self) -> &Path {
        match self {
            Self::Qemu { image, .. } | Self::Serial { image, .. } => image,
        }
    }
}

impl Start for Target {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        match self {
            Self::Qemu { arguments, .. } => arguments.start(output),
            Self::Serial { station, bytes, .. } => station.with(bytes)?.start(output),
        }
    }
}
