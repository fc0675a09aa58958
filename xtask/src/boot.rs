//! The options by which a command line chooses the machine to talk to and the kernel that runs there.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    board::{self, Board, Overrides},
    conversation::{POWER_OFF, REBOOT},
    detached::{AtPrompt, DetachedMachine},
    machine::{Output, Start, Uart},
    network,
    serial::{self, Connection, Station},
    setup, workspace,
};

/// How the kernel is booted.
#[derive(clap::Args)]
pub struct Options {
    /// The board, a directory of `boards/`.
    #[arg(long, value_name = "NAME", default_value = board::DEFAULT)]
    board: String,
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

/// A kernel to run.
pub struct Kernel {
    pub image: PathBuf,
    /// The linked kernel, if it is known.
    pub elf: Option<PathBuf>,
}

/// The machine that the kernel runs on.
pub enum Target {
    /// QEMU.
    Qemu {
        arguments: Vec<OsString>,
        kernel: Kernel,
        /// Whether the machine has slots for virtio devices.
        has_virtio: bool,
    },
    /// A board on a serial line.
    Serial { station: Station, kernel: Kernel, bytes: Vec<u8> },
    /// A QEMU that runs already, and goes on afterwards.
    Detached(DetachedMachine),
    /// A board on a serial line that runs its kernel already, and goes on afterwards.
    Connected { connection: Connection, kernel: Option<Kernel> },
}

/// How a machine is booted, or which one runs already.
#[derive(clap::Args)]
pub struct TargetOptions {
    #[command(flatten)]
    pub boot: Options,
    /// Uses the machine that `cargo xtask run --detach` has started, or the kernel that the board at `--serial` runs
    /// already. It goes on afterwards.
    #[arg(long, conflicts_with_all = ["board", "configuration", "smp", "machine", "cpu", "no_network"])]
    attach: bool,
}

impl TargetOptions {
    /// Returns the machine that the options choose, and builds its image if needed.
    pub fn target(&self) -> Result<Target> {
        match self.attach {
            true => attached(&self.boot.serial, self.boot.given_kernel()?),
            false => self.boot.target(),
        }
    }
}

/// Returns the machine that runs already: the board, if there is a serial port, or the detached QEMU. `kernel` is what
/// the board runs, if that is known.
pub fn attached(serial: &serial::Options, kernel: Option<Kernel>) -> Result<Target> {
    match Connection::open(serial)? {
        Some(connection) => Ok(Target::Connected { connection, kernel }),
        None => {
            ensure!(kernel.is_none(), "the image of the detached machine is known: --image and --elf are for --serial");
            Ok(Target::Detached(DetachedMachine::find()?))
        }
    }
}

impl Options {
    /// Returns the machine that the options choose, and builds its image if needed.
    pub fn target(&self) -> Result<Target> {
        if let Some(station) = Station::open(&self.board, &self.serial)? {
            let kernel = self.kernel()?;
            let bytes =
                fs::read(&kernel.image).with_context(|| format!("{} cannot be read", kernel.image.display()))?;
            return Ok(Target::Serial { station, kernel, bytes });
        }
        let board = Board::load(&self.board)?;
        let configuration = board.configuration(&self.configuration)?;
        setup::board(&board)?;
        let kernel = self.kernel()?;
        let mut arguments = board.arguments(configuration, &self.overrides, &kernel.image)?;
        if !self.no_network {
            let plugged = network::plug(board.cards())?;
            arguments.extend(plugged.arguments);
            plugged.servers.iter().for_each(|servers| eprintln!("{servers}"));
        }
        Ok(Target::Qemu { arguments, kernel, has_virtio: board.has_virtio_serial() })
    }

    /// Returns the kernel that the options name, if they name one.
    fn given_kernel(&self) -> Result<Option<Kernel>> {
        match (&self.image, &self.elf) {
            (None, None) => Ok(None),
            _ => self.kernel().map(Some),
        }
    }

    /// Returns the kernel that the options choose, and builds it if needed.
    fn kernel(&self) -> Result<Kernel> {
        if let Some(image) = &self.image {
            File::open(image).with_context(|| format!("{} cannot be read", image.display()))?;
            return Ok(Kernel { image: image.clone(), elf: None });
        }
        let elf = kernel(self.elf.as_deref())?;
        Ok(Kernel { image: workspace::image(&elf)?, elf: Some(elf) })
    }
}

/// Returns the linked kernel that a command was `given`, or builds the runtime.
pub fn kernel(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(elf) => Ok(elf.into()),
        None => {
            setup::rust(&[])?;
            workspace::build_kernel("runtime")
        }
    }
}

impl Target {
    /// The line that ends a conversation. A board is left to its loader, for the next kernel. `None` for a machine that
    /// goes on.
    pub fn farewell(&self) -> Option<&'static str> {
        match self {
            Self::Qemu { .. } => Some(POWER_OFF),
            Self::Serial { .. } => Some(REBOOT),
            Self::Detached(_) | Self::Connected { .. } => None,
        }
    }

    /// Returns the path of the image that this machine runs.
    pub fn image(&self) -> Result<PathBuf> {
        if let Self::Detached(detached) = self {
            return Ok(detached.image());
        }
        let sentence = "the names of functions are in the image: say by --image or --elf which one runs";
        Ok(self.kernel().context(sentence)?.image.clone())
    }

    /// Returns the path of the linked kernel that this machine runs, if it is known.
    pub fn elf(&self) -> Option<&Path> {
        self.kernel()?.elf.as_deref()
    }

    fn kernel(&self) -> Option<&Kernel> {
        match self {
            Self::Qemu { kernel, .. } | Self::Serial { kernel, .. } => Some(kernel),
            Self::Detached(_) => None,
            Self::Connected { kernel, .. } => kernel.as_ref(),
        }
    }
}

impl Start for Target {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        match self {
            Self::Qemu { arguments, .. } => arguments.start(output),
            Self::Serial { station, bytes, .. } => station.with(bytes)?.start(output),
            Self::Detached(detached) => AtPrompt(detached).start(output),
            Self::Connected { connection, .. } => AtPrompt(connection).start(output),
        }
    }
}
