//! A board with PSCI and without a watchdog, such as a Raspberry Pi 5, which QEMU does not have. After it has stopped
//! it must be reset, so that its loader comes back.

use std::{ffi::OsString, path::Path};

use anyhow::{Context, Result};

use super::{
    super::{
        flattened::{Tree, text},
        select::{Demands, Trait},
    },
    Boot, Stops, TREE, loaded, loader,
};
use crate::{
    console::{Event, stop_reason},
    dialogue::{Reply, Subject},
};

/// The name of the root node.
const ROOT: &str = "";

/// Returns the boot for QEMU's tree `good`, without its timer and with a name of that vendor.
pub fn boot(machine: &[OsString], good: &[u8], image: &Path, directory: &Path) -> Result<Boot> {
    let wrong = "QEMU's device tree has an unexpected form";
    let mut tree = Tree::parse(good).context(wrong)?;
    tree.set(ROOT, "compatible", text("raspberrypi,none")).context(wrong)?;
    tree.set("timer", "compatible", text("none")).context(wrong)?;
    let name = "board_that_stops_is_reset";
    let mut arguments = machine.to_vec();
    arguments.extend(loaded(image, Some(&tree.blob()), TREE, &loader(TREE), name, directory)?);
    let stops =
        Stops { reason: "cannot set up interrupts: the device tree describes no usable interrupt of the timer" };
    let demands = Demands::on(&[Trait::Entry]);
    Ok(Boot { name, demands, arguments, subject: Ok(Box::new(Resets { stops, has_stopped: false })) })
}

/// Requires that the machine stops, and is then reset, which ends QEMU.
struct Resets {
    stops: Stops,
    has_stopped: bool,
}

impl Subject<()> for Resets {
    fn event(&mut self, event: Event) -> Reply<()> {
        self.stops.event(event)
    }

    fn hear(&mut self, event: Event) -> Reply<()> {
        let Event::Line(line) = &event else { return self.event(event) };
        match stop_reason(line).map(|reason| self.stops.stopped(reason)) {
            None => Reply::Wait,
            Some(Err(difference)) => Reply::Done(Err(difference)),
            Some(Ok(())) => {
                self.has_stopped = true;
                Reply::Wait
            }
        }
    }

    fn ended(&mut self) -> Result<(), String> {
        if self.has_stopped { Ok(()) } else { Err("it was reset before it said why it stops".into()) }
    }
}
