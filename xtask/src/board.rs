//! Boards are data. `boards/NAME/board.toml` says how to start QEMU as the board, in which configurations it is tested,
//! and what is on the card that it boots from. `arguments` turns this into a command line for QEMU.

mod arguments;
mod traits;

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

pub use arguments::{Overrides, with_reboot};
pub use traits::{EntryLevel, Interruption, Interrupts, Traits};

use crate::workspace;

/// The board that is used if none is named.
pub const DEFAULT: &str = "qemu-virt";

/// The configuration that is used if none is named.
pub const BASE: &str = "base";

/// A board: one directory of `boards/`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Board {
    #[serde(skip)]
    pub name: String,
    /// The physical address of the console's PL011, for the build scripts of the kernel and the loader.
    #[serde(rename = "uart")]
    _uart: u64,
    /// The name of the machine's device tree at its source (see [`trees`](crate::setup::trees)). `None` if QEMU makes
    /// the tree.
    device_tree: Option<String>,
    /// Needs of tests that the board does not meet, by the names that tests use.
    #[serde(default)]
    lacks: Vec<String>,
    /// The memory card that it boots from. `None` if it has none.
    sd: Option<Sd>,
    /// QEMU's machine for this board. `None` if there is none.
    qemu: Option<Qemu>,
    #[serde(default, rename = "configuration")]
    pub configurations: Vec<Configuration>,
}

/// The memory card of a board.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sd {
    pub loader: Loader,
    /// The firmware files that the board needs to boot. Empty if the firmware is in the board itself.
    pub firmware: Vec<String>,
    /// The device trees that the firmware chooses from.
    pub device_trees: Vec<SdTree>,
}

/// The data of the board for the loader. `loader/build.rs` reads the rest of this table.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Loader {
    /// The part number of the CPU (MIDR_EL1), by which the loader recognizes its board.
    pub cpu_part: u16,
}

/// A device tree on a memory card.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SdTree {
    /// The name of the tree at its source: see [`trees`](crate::setup::trees).
    pub from: String,
    /// The file name that the firmware looks for.
    pub name: String,
}

/// How QEMU is started as a board.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Qemu {
    /// QEMU's name of the machine.
    machine: String,
    cpu: String,
    /// See [`Configuration::architecture`].
    architecture: Option<String>,
    memory: String,
    /// The machine's interrupt controller.
    interrupts: Interrupts,
    /// The exception level at which QEMU enters the kernel.
    entry: EntryLevel,
    /// The number of CPUs by default.
    smp: u32,
    max_smp: u32,
    /// Whether the machine always has `max-smp` CPUs. Fewer run if the boot arguments say so.
    #[serde(default)]
    fixed_smp: bool,
    /// Whether it takes the device of QEMU by which a recording leaves the machine.
    #[serde(default)]
    has_virtio_serial: bool,
    /// More arguments for QEMU. `{disk}` stands for the path of the [disk](crate::disk).
    arguments: Vec<String>,
    /// The network cards that the machine has on request.
    #[serde(default, rename = "card")]
    cards: Vec<Card>,
}

/// A network card.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Card {
    /// QEMU's name of the card's network. The kernel gives its interface the same name.
    pub name: String,
    /// QEMU's arguments for the card. The [placeholders](crate::network) stand for ports of the host.
    pub arguments: Vec<String>,
}

/// A variation of a board.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Configuration {
    pub name: String,
    cpu: Option<String>,
    /// The architecture that `cpu` implements, where several models of CPUs implement the same one.
    architecture: Option<String>,
    /// The number of CPUs, if it differs from that of the board.
    smp: Option<u32>,
    /// The size of its memory, as QEMU takes it, if it differs from that of the board.
    memory: Option<String>,
    interrupts: Option<Interrupts>,
    entry: Option<EntryLevel>,
    #[serde(default)]
    interruption: Interruption,
    /// Needs of tests that this configuration does not meet, in addition to those of the board.
    #[serde(default)]
    lacks: Vec<String>,
    #[serde(default)]
    machine_options: BTreeMap<String, String>,
    /// Whether tests run in it only on request: all, if a command line names it; in thorough runs those that depend on
    /// the number of CPUs.
    #[serde(default)]
    pub is_large: bool,
}

impl Configuration {
    /// Whether this configuration has the board's model of CPU, and no options of QEMU's machine.
    pub fn is_plain(&self) -> bool {
        self.cpu.is_none() && self.machine_options.is_empty()
    }
}

impl Board {
    /// Loads the board of this name. An error says what is wrong with its file.
    pub fn load(name: &str) -> Result<Self> {
        let names = names()?;
        ensure!(
            names.iter().any(|known| known == name),
            "there is no board {name:?}; the boards are: {}",
            names.join(", ")
        );
        let path = directory().join(name).join("board.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        Self::parse(name, &text).with_context(|| format!("{} is wrong", path.display()))
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let board = Self { name: name.into(), ..toml::from_str(text)? };
        let Some(qemu) = &board.qemu else {
            ensure!(board.configurations.is_empty(), "it has configurations of QEMU, but no `machine`");
            return Ok(board);
        };
        ensure!(
            board.configurations.first().is_some_and(|first| first.name == BASE),
            "its first configuration is not {BASE}"
        );
        for (number, configuration) in board.configurations.iter().enumerate() {
            let same = |other: &Configuration| other.name == configuration.name;
            ensure!(
                !board.configurations[..number].iter().any(same),
                "it has two configurations {}",
                configuration.name
            );
        }
        for configuration in &board.configurations {
            // The options of QEMU's `virt` set these two. They must agree with the values that tests go by.
            let option = |name: &str, value: &str| {
                configuration.machine_options.get(name).is_some_and(|found| found.as_str() == value)
            };
            let name = &configuration.name;
            if option("gic-version", "3") {
                let interrupts = configuration.interrupts.unwrap_or(qemu.interrupts);
                ensure!(interrupts == Interrupts::GicV3, "{name} has a GICv3, and interrupts = {interrupts:?}");
            }
            if option("virtualization", "on") {
                let entry = configuration.entry.unwrap_or(qemu.entry);
                ensure!(entry == EntryLevel::El2, "{name} is entered at EL2, and has entry = {entry:?}");
            }
        }
        let counts = board.configurations.iter().filter_map(|configuration| configuration.smp);
        for smp in counts.chain([qemu.smp]) {
            ensure!((1..=qemu.max_smp).contains(&smp), "smp is {smp}, but must be from 1 to max-smp, {}", qemu.max_smp);
        }
        Ok(board)
    }

    /// Loads all boards, sorted by name.
    pub fn all() -> Result<Vec<Self>> {
        names()?.iter().map(|name| Self::load(name)).collect()
    }

    /// Loads all boards that QEMU has a machine for.
    pub fn emulated() -> Result<Vec<Self>> {
        Ok(Self::all()?.into_iter().filter(|board| board.qemu.is_some()).collect())
    }

    /// Whether the board boots from a memory card.
    pub fn has_card(&self) -> bool {
        self.sd.is_some()
    }

    /// Returns the memory card. An error says that the board has none.
    pub fn sd(&self) -> Result<&Sd> {
        self.sd.as_ref().with_context(|| format!("the board {} has no card, and no loader", self.name))
    }

    /// Returns the names of all device trees that the board needs, as they are called at their source.
    pub fn device_trees(&self) -> impl Iterator<Item = &str> {
        let on_card = self.sd.iter().flat_map(|sd| &sd.device_trees).map(|tree| tree.from.as_str());
        self.device_tree().into_iter().chain(on_card)
    }

    fn qemu(&self) -> Result<&Qemu> {
        self.qemu.as_ref().with_context(|| format!("QEMU does not emulate the board {}", self.name))
    }

    /// Returns QEMU's name of the machine. An error says that QEMU has none for the board.
    pub fn machine(&self) -> Result<&str> {
        Ok(&self.qemu()?.machine)
    }

    /// Whether the machine takes the device of QEMU by which a recording leaves it.
    pub fn has_virtio_serial(&self) -> bool {
        self.qemu.as_ref().is_some_and(|qemu| qemu.has_virtio_serial)
    }

    /// The network cards that the machine has on request.
    pub fn cards(&self) -> &[Card] {
        self.qemu.as_ref().map_or(&[], |qemu| &qemu.cards)
    }

    /// The name of the machine's device tree. `None` if QEMU makes the tree.
    pub fn device_tree(&self) -> Option<&str> {
        self.device_tree.as_deref()
    }

    /// Returns the needs of tests that the board does not meet: in this configuration, or on hardware if it is `None`.
    pub fn lacks(&self, configuration: Option<&Configuration>) -> Vec<String> {
        self.lacks
            .iter()
            .chain(configuration.into_iter().flat_map(|configuration| &configuration.lacks))
            .cloned()
            .collect()
    }

    /// Returns the prefix of the names of tests in this configuration.
    pub fn prefix(&self, configuration: &Configuration) -> String {
        match configuration.name.as_str() {
            BASE => self.name.clone(),
            other => format!("{}/{other}", self.name),
        }
    }

    /// Returns the traits of this configuration that can make a difference to a test.
    pub fn traits(&self, configuration: &Configuration) -> Result<Traits> {
        let qemu = self.qemu()?;
        let (cpu, architecture) = match &configuration.cpu {
            Some(cpu) => (cpu, &configuration.architecture),
            None => (&qemu.cpu, &qemu.architecture),
        };
        Ok(Traits {
            cpus: self.cpus(configuration),
            core: architecture.as_ref().unwrap_or(cpu).clone(),
            interrupts: configuration.interrupts.unwrap_or(qemu.interrupts),
            entry: configuration.entry.unwrap_or(qemu.entry),
            board: self.name.clone(),
            interruption: configuration.interruption,
            lacks: self.lacks(Some(configuration)),
        })
    }

    /// Returns the configuration of this name. An error lists the existing ones.
    pub fn configuration(&self, name: &str) -> Result<&Configuration> {
        self.qemu()?;
        let Some(found) = self.configurations.iter().find(|configuration| configuration.name == name) else {
            let names: Vec<_> = self.configurations.iter().map(|configuration| configuration.name.as_str()).collect();
            bail!("the board {} has no configuration {name:?}; it has: {}", self.name, names.join(", "));
        };
        Ok(found)
    }

    /// Returns the number of CPUs in this configuration.
    pub fn cpus(&self, configuration: &Configuration) -> u32 {
        configuration.smp.or_else(|| Some(self.qemu.as_ref()?.smp)).unwrap_or(1)
    }
}

/// The directory of the boards.
fn directory() -> PathBuf {
    workspace::root().join("boards")
}

/// Returns the names of all boards, sorted.
fn names() -> Result<Vec<String>> {
    let (boards, mut names) = (directory(), Vec::new());
    for entry in fs::read_dir(&boards).with_context(|| format!("{} cannot be read", boards.display()))? {
        let entry = entry?;
        if entry.path().join("board.toml").is_file() {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::{Board, DEFAULT, EntryLevel, Interrupts};

    pub(super) const TEXT: &str = r#"
        uart = 0x0900_0000
        [qemu]
        machine = "virt"
        cpu = "max"
        memory = "512M"
        interrupts = "gicv2"
        entry = "el1"
        smp = 1
        max-smp = 8
        arguments = ["-nic", "none"]
        [[configuration]]
        name = "base"
        [[configuration]]
        name = "server"
        cpu = "neoverse-n1"
        interrupts = "gicv3"
        entry = "el2"
        smp = 2
        machine-options = { virtualization = "on", gic-version = "3" }
    "#;

    #[test]
    fn every_board_is_right() {
        let boards = Board::all().unwrap();
        assert!(boards.iter().any(|board| board.name == DEFAULT));
    }

    #[test]
    fn a_configuration_is_the_board_but_for_what_it_says() {
        let board = Board::parse("test", TEXT).unwrap();
        let [base, server] = &board.configurations[..] else { panic!("there are others") };
        let traits = board.traits(server).unwrap();
        assert_eq!((traits.cpus, traits.core.as_str(), traits.board.as_str()), (2, "neoverse-n1", "test"));
        let named = TEXT.replace("cpu = \"neoverse-n1\"", "cpu = \"neoverse-n1\"\narchitecture = \"Armv8.2-A\"");
        let named = Board::parse("test", &named).unwrap();
        let cores = [0, 1].map(|index| named.traits(&named.configurations[index]).unwrap().core);
        assert_eq!(cores, ["max", "Armv8.2-A"]);
        assert_eq!((traits.interrupts, traits.entry), (Interrupts::GicV3, EntryLevel::El2));
        assert_eq!(board.traits(base).unwrap().entry, EntryLevel::El1);
        assert_eq!((board.prefix(base), board.prefix(server)), ("test".into(), "test/server".into()));
        for (line, sentence) in [
            ("interrupts = \"gicv3\"\n", "server has a GICv3, and interrupts = GicV2"),
            ("entry = \"el2\"\n", "server is entered at EL2, and has entry = El1"),
        ] {
            assert_eq!(Board::parse("test", &TEXT.replace(line, "")).err().unwrap().to_string(), sentence);
        }
    }

    #[test]
    fn a_board_without_a_machine_cannot_be_emulated() {
        let board = Board::parse("test", "uart = 1\ndevice-tree = \"bcm2712-rpi-5-b.dtb\"").unwrap();
        let sentence = "QEMU does not emulate the board test";
        assert_eq!(board.machine().unwrap_err().to_string(), sentence);
        assert_eq!(board.configuration(super::BASE).err().unwrap().to_string(), sentence);
        let sentence = "the board test has no card, and no loader";
        assert_eq!(board.sd().err().unwrap().to_string(), sentence);
        assert!(Board::parse("test", "uart = 1\n[[configuration]]\nname = \"base\"").is_err());
    }

    #[test]
    fn errors_name_what_there_is() {
        let error = Board::load("toaster").err().unwrap().to_string();
        assert!(error.contains("\"toaster\"") && error.contains(DEFAULT), "{error}");
        let board = Board::parse("test", TEXT).unwrap();
        let error = board.configuration("gicv9").err().unwrap().to_string();
        assert_eq!(error, "the board test has no configuration \"gicv9\"; it has: base, server");
    }

    #[test]
    fn a_wrong_description_is_refused() {
        assert!(Board::parse("test", &TEXT.replace("smp = 1", "smp = 9")).is_err());
        assert!(Board::parse("test", &TEXT.replace("smp = 2", "smp = 9")).is_err());
        assert!(Board::parse("test", &TEXT.replace("\"base\"", "\"other\"")).is_err());
        assert!(Board::parse("test", &TEXT.replace("\"server\"", "\"base\"")).is_err());
        assert!(Board::parse("test", &TEXT.replace("memory", "memmory")).is_err());
    }
}
