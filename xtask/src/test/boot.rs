//! Boots with damaged input. Without a usable device tree the machine must stop with a sentence that names the fault.
//! Without symbols everything else must work.
//!
//! QEMU does not pass on a damaged tree. So the tests make it load everything into memory and start at a few
//! instructions that do the work of its own boot loader: they pass the tree and jump to the image. This requires the
//! memory map of the machine, which is that of `virt` here.

mod cards;
mod cpus;
mod resets;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use cargo_kprobes::image;

use super::{
    capture::capture,
    differ::{self, Numbers},
    flattened::{self, Tree},
    select::{Demands, Trait},
    sessions,
};
use crate::{
    board::{Board, Configuration, Overrides},
    console::Event,
    dialogue::{Reply, Subject},
    machine::{QEMU, load, option_value, value_of},
};

/// The machine whose memory map is used here.
const MACHINE: &str = "virt";
/// Physical addresses in its RAM: of the loader, of the image, and of the tree. The image fits between its address and
/// that of the tree.
const LOADER: u64 = 0x4010_0000;
const IMAGE: u64 = 0x4020_0000;
const TREE: u64 = 0x4800_0000;

/// A boot with damaged input.
pub struct Boot {
    pub name: &'static str,
    pub demands: Demands,
    pub arguments: Vec<OsString>,
    pub subject: Result<Box<dyn Subject<()> + Send>, String>,
}

/// Returns all boots of this configuration. `image` is made from the kernel `elf`.
pub fn all(board: &Board, configuration: &Configuration, elf: &Path, image: &Path) -> Result<Vec<Boot>> {
    if board.machine()? != MACHINE {
        return Ok(Vec::new());
    }
    let mut directory = image.as_os_str().to_owned();
    directory.push(format!(".damaged/{}-{}", board.name, configuration.name));
    let directory = PathBuf::from(directory);
    fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let mut boots = with_damaged_tree(board, configuration, image, &directory)?;
    boots.push(with_little_memory(board, configuration, image)?);
    boots.push(with_secure_state(board, configuration, image)?);
    boots.extend(with_damaged_symbols(board, configuration, elf, image, &directory)?);
    Ok(boots)
}

/// Returns a boot with too little memory for a probe on every instruction.
fn with_little_memory(board: &Board, configuration: &Configuration, image: &Path) -> Result<Boot> {
    const MEMORY: &str = "48M";
    let mut arguments = board.machine_arguments(configuration, &Overrides::default())?;
    *value_of(&mut arguments, "-m")? = MEMORY.into();
    arguments.extend(["-kernel".into(), image.into()]);
    let name = "little_memory";
    Ok(Boot { name, demands: Demands::default(), arguments, subject: sessions::special(name) })
}

/// Returns a boot of a machine whose interrupt controller keeps fast interrupts for secure state.
fn with_secure_state(board: &Board, configuration: &Configuration, image: &Path) -> Result<Boot> {
    let mut arguments = board.machine_arguments(configuration, &Overrides::default())?;
    value_of(&mut arguments, "-machine")?.push(",secure=on");
    arguments.extend(["-kernel".into(), image.into()]);
    let name = "secure_state";
    Ok(Boot { name, demands: Demands::on(&[Trait::Interrupts]), arguments, subject: sessions::special(name) })
}

/// A device tree to pass on, and the reason for which the machine must stop.
struct Handed {
    name: &'static str,
    /// The value of x0.
    address: u64,
    /// The bytes at that address. `None` if nothing is loaded there.
    tree: Option<Vec<u8>>,
    reason: &'static str,
}

fn with_damaged_tree(
    board: &Board,
    configuration: &Configuration,
    image: &Path,
    directory: &Path,
) -> Result<Vec<Boot>> {
    let machine = board.machine_arguments(configuration, &Overrides::default())?;
    let good = device_tree(&machine, &directory.join("good.dtb"))?;
    let truncated = good[..flattened::structure(&good).context("QEMU's device tree is damaged")?.start + 2000].to_vec();
    let mut short = good.clone();
    short[flattened::TOTAL_SIZE].copy_from_slice(&4096_u32.to_be_bytes());
    let mut bad_magic = good.clone();
    bad_magic[0] ^= 1;
    let parsed = || Tree::parse(&good).context("QEMU's device tree is damaged");
    let mut no_memory = parsed()?;
    no_memory.remove_node("memory@").context("QEMU's device tree has no memory")?;
    let mut other_cpu = parsed()?;
    other_cpu.set("cpu@0", "reg", 0x99_u32.to_be_bytes().into()).context("QEMU's device tree has no CPU 0")?;
    let handed = |name, address, tree, reason| Handed { name, address, tree, reason };
    [
        handed("no_device_tree", 0, None, "the boot loader passed no device tree (x0 is 0)"),
        handed(
            "misaligned_device_tree",
            TREE + 4,
            Some(good.clone()),
            "the device tree is at 0x48000004, which is not a multiple of 8",
        ),
        handed(
            "device_tree_without_magic",
            TREE,
            Some(bad_magic),
            "there is no device tree where the boot loader says: it starts with 0xd10dfeed, not 0xd00dfeed",
        ),
        handed(
            "truncated_device_tree",
            TREE,
            Some(truncated),
            "the device tree is damaged at offset ${offset}: an unknown token",
        ),
        handed(
            "device_tree_longer_than_it_says",
            TREE,
            Some(short),
            "the device tree's structure block, ${length} bytes at offset ${offset}, is misplaced",
        ),
        handed("device_tree_without_memory", TREE, Some(no_memory.blob()), "the device tree describes no memory"),
        handed(
            "device_tree_without_the_cpu_that_boots",
            TREE,
            Some(other_cpu.blob()),
            "cannot set up CPUs: the device tree does not describe the CPU that boots, with affinity 0x0",
        ),
    ]
    .into_iter()
    .map(|Handed { name, address, tree, reason }| {
        let mut arguments = machine.clone();
        arguments.extend(loaded(image, tree.as_deref(), address, &loader(address), name, directory)?);
        Ok(Boot { name, demands: Demands::default(), arguments, subject: Ok(Box::new(Stops { reason })) })
    })
    .chain(cpus::boots(board, configuration, &machine, &good, image, directory)?.into_iter().map(Ok))
    .chain(cards::boots(&machine, &good, image, directory))
    .chain([resets::boot(&machine, &good, image, directory)])
    .collect()
}

/// Returns QEMU's arguments that load the image, the tree if there is one, and the instructions `code`, and start at
/// these.
fn loaded(
    image: &Path,
    tree: Option<&[u8]>,
    address: u64,
    code: &[u8],
    name: &str,
    directory: &Path,
) -> Result<Vec<OsString>> {
    let mut arguments = load(image, IMAGE).to_vec();
    if let Some(tree) = tree {
        arguments.extend(load(&written(directory.join(format!("{name}.dtb")), tree)?, address));
    }
    arguments.extend(load(&written(directory.join(format!("{name}.loader")), code)?, LOADER));
    arguments.extend(["-device".into(), format!("loader,addr={LOADER:#x},cpu-num=0").into()]);
    Ok(arguments)
}

fn with_damaged_symbols(
    board: &Board,
    configuration: &Configuration,
    elf: &Path,
    image: &Path,
    directory: &Path,
) -> Result<Vec<Boot>> {
    let good = fs::read(image).with_context(|| format!("{} cannot be read", image.display()))?;
    let symbols = image::symbols_at(elf)?;
    // The table contains its own length: other tables follow it.
    let length = good[symbols + 16..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
    let middle = symbols + length / 2;
    let with_length = |length: usize| {
        let mut bytes = good[..length].to_vec();
        bytes[image::IMAGE_SIZE_AT..][..8].copy_from_slice(&(length as u64).to_le_bytes());
        bytes
    };
    let mut corrupted = good.clone();
    corrupted[middle] ^= 0x10;
    let damaged = "the symbol table is damaged: its checksum is ${found} instead of ${expected}";
    let truncated = "the symbol table is truncated: it needs ${needed} bytes, and ${present} are present";
    [
        ("truncated_symbols", with_length(middle), truncated),
        ("no_symbols", with_length(symbols), truncated),
        // The header still has the whole length, and the memory after the file is zero.
        ("truncated_image", good[..middle].to_vec(), damaged),
        ("corrupted_symbols", corrupted, damaged),
    ]
    .into_iter()
    .map(|(name, image, sentence)| {
        let image = written(directory.join(format!("{name}.img")), &image)?;
        let arguments = board.arguments(configuration, &Overrides::default(), &image)?;
        let consequence = "functions are shown without names and cannot be probed by name";
        let subject = sessions::without_symbols(&format!("{sentence}: {consequence}"));
        Ok(Boot { name, demands: Demands::default(), arguments, subject })
    })
    .collect()
}

/// Returns the tree that QEMU would pass on.
fn device_tree(machine: &[OsString], file: &Path) -> Result<Vec<u8>> {
    let mut command = Command::new(QEMU);
    command.args(machine).args(["-display", "none", "-machine"]).arg(option_value("dumpdtb=", file));
    capture(&mut command, |_| {}).output().map_err(anyhow::Error::msg)?;
    let tree = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    ensure!(flattened::structure(&tree).is_some(), "QEMU's device tree is damaged");
    Ok(tree)
}

/// Returns instructions that pass the tree at the physical address `tree` to the image.
fn loader(tree: u64) -> Vec<u8> {
    let code: [u32; 4] = [
        0x5800_0080, // ldr x0, tree
        0x5800_00a1, // ldr x1, image
        0xd61f_0020, // br  x1
        0,
    ];
    let mut bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend([tree, IMAGE].iter().flat_map(|address| address.to_le_bytes()));
    bytes
}

fn written(file: PathBuf, bytes: &[u8]) -> Result<PathBuf> {
    fs::write(&file, bytes).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(file)
}

/// Requires that the machine stops for this reason, before it prompts.
struct Stops {
    reason: &'static str,
}

impl Subject<()> for Stops {
    fn event(&mut self, event: Event) -> Reply<()> {
        match event {
            Event::Line(_) => Reply::Wait,
            Event::Prompt => Reply::Done(Err("it booted, but was expected to stop".into())),
        }
    }

    fn stopped(&mut self, reason: &str) -> Result<(), String> {
        let difference = differ::compare(&[self.reason.into()], &[reason.into()], &mut Numbers::new());
        difference.map_err(|difference| format!("{difference}the machine stopped for another reason"))
    }
}

#[cfg(test)]
mod tests {
    use super::Stops;
    use crate::{
        console::Event,
        dialogue::{Reply, Subject},
    };

    #[test]
    fn only_the_right_reason_passes() {
        let mut stops = Stops { reason: "at ${offset}: no" };
        let mut line = |text: &str| stops.hear(Event::Line(text.into()));
        assert_eq!(line("at 0x10: no"), Reply::Wait);
        assert_eq!(line("machine stopped: at 0x10: no"), Reply::Done(Ok(())));
        assert!(matches!(line("machine stopped: at 0x10: yes"), Reply::Done(Err(_))));
        assert!(matches!(stops.hear(Event::Prompt), Reply::Done(Err(_))));
    }
}
