//! What a Raspberry Pi needs beside what every machine has: a console on the pins where a cable is, at a speed that is
//! known, and a way to be reset.
//!
//! The firmware of a Pi decides from its configuration which of two UARTs is at the pins 14 and 15, and sets only that one
//! up. The console here is the PL011 always; so the kernel does for it what the firmware may have done for the other one.
//! That holds for the first PL011 of the BCM2835 to the BCM2711, in Raspberry Pi 1 to 4; where there is none, as on the
//! Raspberry Pi 5, whose console has pins of its own, nothing is changed.
//!
//! | module | what it owns |
//! |---|---|
//! | `pins` | which pins the UART has |
//! | `mailbox` | what the firmware is asked |
//! | `watchdog` | reset |

mod mailbox;
mod pins;
pub(crate) mod watchdog;

use crate::device_tree::{Device, Machine};
use crate::memory::MapError;

/// The first PL011 is one page behind the pins ("BCM2835 ARM Peripherals", 6.1 and 13.4; "BCM2711 ARM Peripherals", 5.2
/// and 11.5).
const UART_BEHIND_PINS: u64 = 0x1000;

/// Connects the UART of the console to its pins, if that is for the kernel to do, and returns the frequency of its clock in
/// Hz then, if the firmware tells it. None where the UART has its pins, and with them a speed.
pub(crate) fn connect_uart(machine: &Machine, uart: &Device) -> Result<Option<u32>, MapError> {
    let board = &machine.broadcom;
    let Some(pins) = board.pins.filter(|pins| uart.registers.address == pins.registers.address + UART_BEHIND_PINS)
    else {
        return Ok(None);
    };
    let is_without_speed = pins::connect_uart(&pins)?;
    match &board.mailbox {
        Some(registers) if is_without_speed => Ok(mailbox::Mailbox::map(registers)?.uart_clock()),
        _ => Ok(None),
    }
}
