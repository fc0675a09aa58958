//! Reset, by the watchdog of the power management of the BCM2835 and its successors (Linux,
//! drivers/watchdog/bcm2835_wdt.c, is what documents it).
//!
//! A reset starts the firmware again, which boots from the partition that it finds in a register; partition 63 means that it
//! is to stop there. That is how a Raspberry Pi is switched off.

use spin::Once;
use tock_registers::interfaces::{Readable, Writeable};
use tock_registers::register_structs;
use tock_registers::registers::ReadWrite;

use crate::device_tree;
use crate::memory::{MapError, Mmio};

register_structs! {
    Registers {
        (0x00 => _reserved0),
        (0x1c => control: ReadWrite<u32>),
        (0x20 => status: ReadWrite<u32>),
        (0x24 => watchdog: ReadWrite<u32>),
        (0x28 => @END),
    }
}

/// What is written has this in its upper byte, or is ignored.
const PASSWORD: u32 = 0x5a00_0000;
const WITHOUT_PASSWORD: u32 = 0x00ff_ffff;
/// Control: what happens when the watchdog's time is over.
const CONFIGURATION: u32 = 0b11 << 4;
const FULL_RESET: u32 = 0b10 << 4;
/// Status: the partition to boot from, a bit of its number in every second bit.
const PARTITION: u32 = 0x555;
/// Ticks of 1/65536 s until the reset.
const SOON: u32 = 10;

static POWER: Once<Mmio<Registers>> = Once::new();

/// Maps the registers.
pub(crate) fn initialize(registers: &device_tree::Registers) -> Result<(), MapError> {
    // SAFETY: the device tree says that they are there.
    let power = unsafe { Mmio::map(registers.address)? };
    POWER.call_once(|| power);
    Ok(())
}

/// Whether there is a watchdog.
pub(crate) fn is_there() -> bool {
    POWER.get().is_some()
}

/// Resets the machine, to boot again.
pub(crate) fn reset() {
    reset_to(|status| status & !PARTITION);
}

/// Resets the machine, for the firmware to stop.
pub(crate) fn off() {
    reset_to(|status| status | PARTITION);
}

/// Has the machine reset in a moment, with this change of the status, if there is a watchdog.
fn reset_to(change: impl FnOnce(u32) -> u32) {
    let Some(power) = POWER.get() else { return };
    power.status.set(PASSWORD | change(power.status.get()) & WITHOUT_PASSWORD);
    power.watchdog.set(PASSWORD | SOON);
    power.control.set(PASSWORD | power.control.get() & WITHOUT_PASSWORD & !CONFIGURATION | FULL_RESET);
}
