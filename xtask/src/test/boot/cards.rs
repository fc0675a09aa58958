//! A network card whose interrupt belongs to another device, by the tree. The kernel must refuse it with a sentence,
//! and not use a card that it cannot hear.

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

/// The nodes of the card, where QEMU puts one beside a disk, and of the UART.
const CARD: &str = "virtio_mmio@a003c00";
const UART: &str = "pl011@9000000";
const INTERRUPTS: &str = "interrupts";

/// Returns the boot for QEMU's tree `good`.
pub fn boot(machine: &[OsString], good: &[u8], image: &Path, directory: &Path) -> Result<Boot> {
    let wrong = "QEMU's device tree has an unexpected form";
    let mut tree = Tree::parse(good).context(wrong)?;
    let taken = tree.get(UART, INTERRUPTS).context(wrong)?.to_vec();
    tree.set(CARD, INTERRUPTS, taken).context(wrong)?;
    let name = "card_without_interrupt";
    let mut arguments = machine.to_vec();
    arguments
        .extend(["-netdev", "user,id=net0,restrict=on", "-device", "virtio-net-device,netdev=net0"].map(Into::into));
    arguments.extend(loaded(image, Some(&tree.blob()), TREE, &loader(TREE), name, directory)?);
    Ok(Boot { name, demands: Demands::on(&[Trait::Interrupts]), arguments, subject: sessions::special(name) })
}
