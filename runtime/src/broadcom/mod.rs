//! The devices that only a Raspberry Pi needs: a console on the pins where a cable is, at a known speed, and a way to
//! reset the board.
//!
//! The firmware of a Pi decides by its configuration which of two UARTs is on the pins 14 and 15, and sets up only that
//! one. The console here is always the PL011, so the kernel does for it what the firmware may have done for the other
//! UART. This concerns the first PL011 of the BCM2835 to the BCM2711, in Raspberry Pi 1 to 4. Nothing is changed on
//! other machines. On the Raspberry Pi 5, for example, the console has its own pins.
//!
//! | module | what it owns |
//! |---|---|
//! | `pins` | the pins of the UART |
//! | `mailbox` | requests to the firmware |
//! | `watchdog` | reset and power-off |

mod mailbox;
mod pins;
pub(crate) mod watchdog;

use device_tree::{Device, Hardware};

use crate::memory::MapError;

/// The distance in bytes from the pin controller's registers to those of the first PL011 ("BCM2835 ARM Peripherals",
/// 6.1 and 13.4; "BCM2711 ARM Peripherals", 5.2 and 11.5).
const UART_OFFSET: u64 = 0x1000;

/// Connects the UART of the console to its pins, if the kernel has to do that. Then returns the frequency of the UART's
/// clock in Hz, if the firmware tells it. Returns `None` if the UART has its pins already, and with them a speed.
pub(crate) fn connect_uart(hardware: &Hardware, uart: &Device) -> Result<Option<u32>, MapError> {
    let board = &hardware.broadcom;
    let Some(pins) = board.pins.filter(|pins| uart.registers.address == pins.registers.address + UART_OFFSET) else {
        return Ok(None);
    };
    let is_without_speed = pins::connect_uart(&pins)?;
    match &board.mailbox {
        Some(registers) if is_without_speed => Ok(mailbox::Mailbox::map(registers)?.uart_clock()),
        _ => Ok(None),
    }
}
