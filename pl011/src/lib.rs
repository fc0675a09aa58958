//! The UART of every board, a PL011, as the kernel and the chain-loader both need it: its registers, and the one order in
//! which it can be started. Arm DDI 0183: PrimeCell UART (PL011) Technical Reference Manual.

#![no_std]

mod registers;

use registers::{Control, LineControl};
pub use registers::{Data, Flags, Interrupts, Pl011};
use tock_registers::interfaces::{Readable, Writeable};
use tock_registers::registers::ReadOnly;

/// What ^\ sends. A kernel that hears it [`QUITS`] times in a row stops the machine, whatever it is doing.
pub const QUIT_KEY: u8 = 0x1c;
/// More often than noise or a slip of the hand has it.
pub const QUITS: usize = 5;

/// What a host sends to see whether a kernel lives, SYN. The kernel answers with [`PULSE`].
pub const PULSE_KEY: u8 = 0x16;
/// What no terminal shows, NUL.
pub const PULSE: u8 = 0;

impl Pl011 {
    /// Whether it is a PL011 (3.3.14, 3.3.15). Nothing else is accessed, so that there may be another device.
    #[must_use]
    pub fn is_identified(&self) -> bool {
        let identity = |registers: &[ReadOnly<u32>; 4]| {
            u32::from_le_bytes([0, 1, 2, 3].map(|index: usize| registers[index].get() as u8))
        };
        identity(&self.component_id) == 0xb105_f00d && identity(&self.peripheral_id) & 0xfff == 0x011
    }

    /// Makes it ready to send and to receive, without interrupts, in whatever state it is; at the speed that this
    /// [`Divisor`] gives, or else that it has.
    pub fn start(&self, divisor: Option<Divisor>) {
        // Line control takes effect only when the UART is not enabled and not sending (3.3.8).
        self.wait_until_sent();
        self.control.set(0);
        self.interrupt_mask.set(0);
        self.interrupt_clear.write(Interrupts::ALL.val(0x7ff));
        if let Some(Divisor(divisor)) = divisor {
            self.divisor.set(divisor / 64);
            self.divisor_fraction.set(divisor % 64);
        }
        // After the divisor, which is taken over with it (3.3.6).
        self.line_control.write(LineControl::FIFOS::SET + LineControl::WORD_LENGTH::Eight);
        self.control.write(Control::ENABLE::SET + Control::TRANSMIT::SET + Control::RECEIVE::SET);
    }

    /// Waits until everything has left it.
    pub fn wait_until_sent(&self) {
        while self.flags.is_set(Flags::BUSY) {}
    }
}

/// What the clock of the UART is divided by so that 16 periods are a bit (3.3.6): 64ths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor(u32);

impl Divisor {
    /// The nearest one for so many Hz and so many bits in a second. None if there is none in the range of the registers.
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
    use super::Divisor;

    #[test]
    fn divisors_are_those_of_the_manual() {
        // 3.3.6: 1 and 5/64 for 230,400 baud of 4 MHz.
        assert_eq!(Divisor::new(4_000_000, 230_400), Some(Divisor(64 + 5)));
        assert_eq!(Divisor::new(48_000_000, 115_200), Some(Divisor(26 * 64 + 3)));
        for (clock, speed) in [(0, 115_200), (115_200 * 15, 115_200), (u32::MAX, 4000), (1, 0)] {
            assert_eq!(Divisor::new(clock, speed), None, "{clock} Hz, {speed} baud");
        }
    }
}
