//! The UART, a PL011, polled (Arm DDI 0183).
//!
//! Pins and speed stay as the firmware has set them, with one exception: the firmware may have given the pins to the
//! other UART. It does so if the card has no overlay that says otherwise.

use core::fmt::{self, Write};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{CNTFRQ_EL0, CNTPCT_EL0};
use heapless::Deque;
use kprobes_pl011::{Divisor, Flags, Pl011};
use tock_registers::interfaces::{Readable, Writeable};

/// The register for the functions of pins 10 to 19, three bits each, and the mask of pins 14 and 15 in it ("BCM2835 ARM
/// Peripherals", 6.1; "BCM2711 ARM Peripherals", 5.2).
const FUNCTIONS_1: usize = 0x04;
const UART_PINS: u32 = 0b111_111 << 12;
/// Alternate function 0 of both pins, which is the PL011.
const UART_FUNCTION: u32 = 0b100_100 << 12;
/// The register for the functions of pins 30 to 39, and in it the pins and functions by which the PL011 would hear a
/// Bluetooth chip instead.
const FUNCTIONS_3: usize = 0x0c;
const OTHER_INPUTS: [(u32, u32); 2] = [(0b111 << 9, 0b111 << 9), (0b111 << 21, 0b110 << 21)];
/// The frequency in Hz of the UART's clock as config.txt sets it, and the speed in bits per second.
const CLOCK: u32 = 48_000_000;
const SPEED: u32 = 115_200;

/// The number of bytes that the UART holds (Arm DDI 0183, 2.4.1).
const FIFO: usize = 16;

/// The UART, and the bytes that arrived during a transmission.
pub struct Uart {
    registers: &'static Pl011,
    received: Deque<u8, 1024>,
}

impl Uart {
    /// Wraps the UART at this physical address.
    ///
    /// # Safety
    /// A PL011 is there, and the caller is its only user.
    pub unsafe fn at(address: usize) -> Self {
        // SAFETY: the caller guarantees a PL011 (see # Safety). The MMU is off, so the address is Device memory (Arm
        // ARM, D8.2.12).
        let registers = unsafe { &*core::ptr::with_exposed_provenance::<Pl011>(address) };
        Self { registers, received: Deque::new() }
    }

    /// Prepares the UART, on the pins of the controller at the physical address `pins`. Until a reset, a kernel may
    /// have used it, and may have left it in any state.
    ///
    /// # Safety
    /// If `pins` is given, a pin controller is at that address.
    pub unsafe fn initialize(&self, pins: Option<usize>) {
        // Bytes still being sent go to the UART that has the pins now.
        self.registers.wait_until_sent();
        let is_new = match pins {
            // SAFETY: the caller guarantees that a pin controller is there (see # Safety).
            Some(pins) => unsafe { take_pins(pins) },
            None => false,
        };
        self.registers.start(if is_new { Divisor::new(CLOCK, SPEED) } else { None });
    }

    /// Returns the next byte that has arrived, if any.
    pub fn receive(&mut self) -> Option<u8> {
        // No more bytes arrive in the meantime than the FIFO holds.
        if self.received.len().is_multiple_of(FIFO) {
            pause();
            self.collect();
        }
        self.received.pop_front()
    }

    /// Takes what the FIFO holds, which is only a moment's bytes. Bytes that do not fit here are lost, and the host
    /// repeats them.
    fn collect(&mut self) {
        for _ in 0..FIFO {
            if self.registers.flags.is_set(Flags::RECEIVE_EMPTY) {
                break;
            }
            let _ = self.received.push_back(self.registers.data.get() as u8);
        }
    }

    /// Sends bytes, and collects the bytes that arrive meanwhile.
    pub fn send(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            while self.registers.flags.is_set(Flags::TRANSMIT_FULL) {
                self.collect();
            }
            self.registers.data.set(byte.into());
        }
    }

    /// Sends a line of text and waits until the UART has sent it.
    pub fn report(&mut self, text: fmt::Arguments) {
        // Sending reports no errors.
        let _ = writeln!(self, "\r\n{text}\r");
        self.registers.wait_until_sent();
    }

    /// Waits until the UART has sent everything, and discards the bytes that have arrived.
    pub fn finish(&mut self) {
        self.registers.wait_until_sent();
        while self.receive().is_some() {}
    }
}

/// Leaves the UART alone for a moment, which is shorter than the FIFO takes to fill at any speed. An emulator refills
/// the FIFO after each read, and without the pause it would hold one byte at a time.
fn pause() {
    const IN_A_SECOND: u64 = 50_000;
    let until = CNTPCT_EL0.get() + CNTFRQ_EL0.get() / IN_A_SECOND;
    while CNTPCT_EL0.get() < until {}
}

/// Gives the PL011 the pins 14 and 15 and no others. Returns false if it had them already, so that the firmware has set
/// this UART up.
///
/// # Safety
/// A pin controller is at the physical address `pins`.
unsafe fn take_pins(pins: usize) -> bool {
    let register = |offset| core::ptr::with_exposed_provenance_mut::<u32>(pins + offset);
    // SAFETY: the caller guarantees that the registers are there (see # Safety), and no other code that uses them runs.
    unsafe {
        let functions = register(FUNCTIONS_1);
        let before = functions.read_volatile();
        if before & UART_PINS == UART_FUNCTION {
            return false;
        }
        for (pin, function) in OTHER_INPUTS {
            let others = register(FUNCTIONS_3).read_volatile();
            if others & pin == function {
                register(FUNCTIONS_3).write_volatile(others & !pin);
            }
        }
        functions.write_volatile(before & !UART_PINS | UART_FUNCTION);
    }
    // Required before another peripheral is accessed ("BCM2835 ARM Peripherals", 1.3).
    barrier::dsb(barrier::SY);
    true
}

impl Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.send(text.as_bytes());
        Ok(())
    }
}
