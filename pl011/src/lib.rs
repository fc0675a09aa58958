//! The UART of every board, a PL011: its registers, and the one order in which it can be started. The kernel and the
//! chain-loader share it. Section numbers are those of Arm DDI 0183, PrimeCell UART (PL011) Technical Reference Manual.

#![no_std]

mod registers;

use registers::{Control, LineControl};
pub use registers::{Data, Flags, Interrupts, Pl011};
use tock_registers::interfaces::{Readable, Writeable};
use tock_registers::registers::ReadOnly;

/// The byte that ^\ sends. A kernel that receives it [`QUITS`] times in a row stops the machine, whatever it is doing.
pub const QUIT_KEY: u8 = 0x1c;
/// How many quit keys stop the machine. Noise or a slip of the hand does not produce that many.
pub const QUITS: usize = 5;

/// The byte that a host sends to see whether a kernel is alive, SYN. The kernel answers with [`PULSE`].
pub const PULSE_KEY: u8 = 0x16;
/// The answer to [`PULSE_KEY`], NUL, which no terminal shows.
pub const PULSE: u8 = 0;

impl Pl011 {
    /// Returns whether this is a PL011 (3.3.14, 3.3.15). Reads the identification registers only, so it is harmless to
    /// other devices.
    #[must_use]
    pub fn is_identified(&self) -> bool {
        let identity = |registers: &[ReadOnly<u32>; 4]| {
            u32::from_le_bytes([0, 1, 2, 3].map(|index: usize| registers[index].get() as u8))
        };
        identity(&self.component_id) == 0xb105_f00d && identity(&self.peripheral_id) & 0xfff == 0x011
    }

    /// Prepares the UART to send and receive, without interrupts, from any state. The speed is that of `divisor`, or
    /// the current one if `divisor` is `None`.
    pub fn start(&self, divisor: Option<Divisor>) {
        // Line control must not change while the UART is enabled or sending (3.3.8).
        self.wait_until_sent();
        self.control.set(0);
        self.interrupt_mask.set(0);
        self.interrupt_clear.write(Interrupts::ALL.val(0x7ff));
        if let Some(Divisor(divisor)) = divisor {
            self.divisor.set(divisor / 64);
            self.divisor_fraction.set(divisor % 64);
        }
        // The write to line control also makes the divisor take effect (3.3.6).
        self.line_control.write(LineControl::FIFOS::SET + LineControl::WORD_LENGTH::Eight);
        self.control.write(Control::ENABLE::SET + Control::TRANSMIT::SET + Control::RECEIVE::SET);
    }

    /// Waits until the UART has sent everything. If the UART or its transmitter is off, returns at once: bytes in the
    /// FIFO keep it busy, and none of them is sent (3.3.3).
    pub fn wait_until_sent(&self) {
        let sends = || self.control.matches_all(Control::ENABLE::SET + Control::TRANSMIT::SET);
        while sends() && self.flags.is_set(Flags::BUSY) {}
    }
}

/// The divisor of the UART's clock in 64ths. 16 periods of the divided clock are one bit (3.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor(u32);

impl Divisor {
    /// Returns the divisor nearest to `speed` bits per second with a clock of `clock` Hz, or `None` if the registers
    /// cannot hold it.
    #[must_use]
    pub const fn new(clock: u32, speed: u32) -> Option<Self> {
        let (clock, speed) = (clock as u64, speed as u64);
        if speed == 0 {
            return None;
        }
        let divisor = (clock * 64 + speed * 8) / (speed * 16);
        if 64 <= divisor && divisor <= 0xffff * 64 { Some(Self(divisor as u32)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use core::mem::{offset_of, transmute};

    use super::{Control, Divisor, Flags, LineControl, Pl011};
    use tock_registers::interfaces::Readable;

    #[test]
    fn a_uart_that_is_off_and_has_bytes_is_started() {
        for control in [Control::ENABLE::SET, Control::TRANSMIT::SET] {
            let mut words = [0; 1024];
            words[offset_of!(Pl011, flags) / 4] = Flags::BUSY::SET.value;
            words[offset_of!(Pl011, control) / 4] = control.value;
            // SAFETY: the registers are integers, of which every value is valid.
            let uart: Pl011 = unsafe { transmute::<[u32; 1024], _>(words) };
            uart.start(None);
            assert!(uart.control.matches_all(Control::ENABLE::SET + Control::TRANSMIT::SET + Control::RECEIVE::SET));
            assert_eq!(uart.line_control.read(LineControl::WORD_LENGTH), 3);
        }
    }

    #[test]
    fn divisors_are_those_of_the_manual() {
        // 3.3.6: the divisor for 230,400 baud from 4 MHz is 1 and 5/64.
        assert_eq!(Divisor::new(4_000_000, 230_400), Some(Divisor(64 + 5)));
        assert_eq!(Divisor::new(48_000_000, 115_200), Some(Divisor(26 * 64 + 3)));
        for (clock, speed) in [(0, 115_200), (115_200 * 15, 115_200), (u32::MAX, 4000), (1, 0)] {
            assert_eq!(Divisor::new(clock, speed), None, "{clock} Hz, {speed} baud");
        }
    }
}
