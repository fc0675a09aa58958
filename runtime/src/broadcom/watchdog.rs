//! Reset and power-off, by the watchdog in the power management of the BCM2835 and its successors. Its only
//! documentation is the Linux driver, drivers/watchdog/bcm2835_wdt.c.
//!
//! A reset starts the firmware again. The firmware boots from the partition whose number it finds in a register.
//! Partition 63 tells it to stop there, which is how a Raspberry Pi is switched off.

use spin::Once;
use tock_registers::interfaces::{Readable, Writeable};
use tock_registers::register_structs;
use tock_registers::registers::ReadWrite;

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

/// The upper byte of every value written. A write without it is ignored.
const PASSWORD: u32 = 0x5a00_0000;
const WITHOUT_PASSWORD: u32 = 0x00ff_ffff;
/// The control field for what happens when the watchdog expires, and its value for a full reset.
const CONFIGURATION: u32 = 0b11 << 4;
const FULL_RESET: u32 = 0b10 << 4;
/// The status bits for the partition to boot from: a bit of its number in every second bit.
const PARTITION: u32 = 0x555;
/// The time until the reset, in ticks of 1/65536 s.
const SOON: u32 = 10;

static POWER: Once<Mmio<Registers>> = Once::new();

/// Maps the registers of the power management.
pub(crate) fn initialize(registers: &device_tree::RegisterBlock) -> Result<(), MapError> {
    // SAFETY: the device tree says that the power management has its registers there.
    let power = unsafe { Mmio::map(registers.address)? };
    POWER.call_once(|| power);
    Ok(())
}

/// Returns whether the machine has a watchdog.
pub(crate) fn is_present() -> bool {
    POWER.get().is_some()
}

/// Makes the watchdog reset the machine, which then boots again. Returns before that, or if there is no watchdog.
pub(crate) fn reset() {
    reset_to(|status| status & !PARTITION);
}

/// Makes the watchdog reset the machine, whose firmware then stops. Returns before that, or if there is no watchdog.
pub(crate) fn off() {
    reset_to(|status| status | PARTITION);
}

/// Starts the watchdog, if there is one, after applying `change` to the status register.
fn reset_to(change: impl FnOnce(u32) -> u32) {
    let Some(power) = POWER.get() else { return };
    power.status.set(PASSWORD | change(power.status.get()) & WITHOUT_PASSWORD);
    power.watchdog.set(PASSWORD | SOON);
    power.control.set(PASSWORD | power.control.get() & WITHOUT_PASSWORD & !CONFIGURATION | FULL_RESET);
}
