//! A network card, and a disk, whose interrupt belongs to another device, by the tree. The kernel must refuse it with a
//! sentence, and not use a device that it cannot hear.

use std::{ffi::OsString, path::Path};

use anyhow::{Context, Result};

use super::{
    super::{
        flattened::Tree,
        select::{Demands, Trait},
        sessions,
    },
    Boot, TREE, loaded, loader,
};

/// The names of the boots, with the nodes of the card, where QEMU puts one beside a disk, and of the disk.
const DEVICES: [(&str, &str); 2] =
    [("card_without_interrupt", "virtio_mmio@a003c00"), ("disk_without_interrupt", "virtio_mmio@a003e00")];
/// The node of the UART.
const UART: &str = "pl011@9000000";
const INTERRUPTS: &str = "interrupts";

/// Returns the boots for QEMU's tree `good`.
pub fn boots<'a>(
    machine: &'a [OsString],
    good: &'a [u8],
    image: &'a Path,
    directory: &'a Path,
) -> impl Iterator<Item = Result<Boot>> + 'a {
    DEVICES.into_iter().map(|(name, device)| boot(name, device, machine, good, image, directory))
}

fn boot(
    name: &'static str,
    device: &str,
    machine: &[OsString],
    good: &[u8],
    image: &Path,
    directory: &Path,
) -> Result<Boot> {
    let wrong = "QEMU's device tree has an unexpected form";
    let mut tree = Tree::parse(good).context(wrong)?;
    let taken = tree.get(UART, INTERRUPTS).context(wrong)?.to_vec();
    tree.set(device, INTERRUPTS, taken).context(wrong)?;
    let mut arguments = machine.to_vec();
    arguments
        .extend(["-netdev", "user,id=net0,restrict=on", "-device", "virtio-net-device,netdev=net0"].map(Into::into));
    arguments.extend(loaded(image, Some(&tree.blob()), TREE, &loader(TREE), name, directory)?);
    Ok(Boot { name, demands: Demands::on(&[Trait::Interrupts]), arguments, subject: sessions::special(name) })
}
