//! The UART, a PL011, polled (Arm DDI 0183). Pins and speed are as the firmware has set them; unless it has put the other
//! UART on the pins, as it does where the card has no overlay that says otherwise.

use core::fmt::{self, Write};

use aarch64_cpu::asm::barrier;
use heapless::Deque;
use kprobes_pl011::{Divisor, Flags, Pl011};
use tock_registers::interfaces::{Readable, Writeable};

/// The register of the functions of pins 10 to 19, three bits each, and in it pins 14 and 15 ("BCM2835 ARM Peripherals",
/// 6.1; "BCM2711 ARM Peripherals", 5.2).
const FUNCTIONS_1: usize = 0x04;
const UART_PINS: u32 = 0b111_111 << 12;
/// Alternate function 0 of both is the PL011.
const UART_FUNCTION: u32 = 0b100_100 << 12;
/// The same of pins 30 to 39, and in it the pins by which, with these functions, the PL011 hears a Bluetooth chip instead.
const FUNCTIONS_3: usize = 0x0c;
const OTHER_INPUTS: [(u32, u32); 2] = [(0b111 << 9, 0b111 << 9), (0b111 << 21, 0b110 << 21)];
/// In Hz, what config.txt gives the UART; and bits in a second.
const CLOCK: u32 = 48_000_000;
const SPEED: u32 = 115_200;

/// The UART, and what has come while something was sent.
pub struct Uart {
    registers: &'static Pl011,
    received: Deque<u8, 1024>,
}

impl Uart {
    /// The UART at this physical address.
    ///
    /// # Safety
    /// There is one, and the caller is its only user.
    pub unsafe fn at(address: usize) -> Self {
        // SAFETY: the caller says so. The MMU is off, so that this is Device memory (Arm ARM, D8.2.12).
        let registers = unsafe { &*core::ptr::with_exposed_provenance::<Pl011>(address) };
        Self { registers, received: Deque::new() }
    }

    /// Makes it ready, on the pins of the controller at the physical address `pins`. It may be as a kernel has left it that
    /// was running until a reset.
    ///
    /// # Safety
    /// Such a controller is there.
    pub unsafe fn initialize(&self, pins: Option<usize>) {
        // What it still sends goes to the UART that has the pins.
        self.registers.wait_until_sent();
        let is_new = match pins {
            // SAFETY: the caller says so.
            Some(pins) => unsafe { take_pins(pins) },
            None => false,
        };
        self.registers.start(if is_new { Divisor::new(CLOCK, SPEED) } else { None });
    }

    /// The next byte that has come, if one has.
    pub fn receive(&mut self) -> Option<u8> {
        self.collect();
        self.received.pop_front()
    }

    /// Takes what the UART has room for only a moment. What is more than there is room for here is lost; the host repeats it.
    fn collect(&mut self) {
        while !self.registers.flags.is_set(Flags::RECEIVE_EMPTY) {
            let _ = self.received.push_back(self.registers.data.get() as u8);
        }
    }

    /// Sends bytes, and takes those that come meanwhile.
    pub fn send(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            while self.registers.flags.is_set(Flags::TRANSMIT_FULL) {
                self.collect();
            }
            self.registers.data.set(byte.into());
        }
    }

    /// Sends a line of text and waits until it has gone.
    pub fn report(&mut self, text: fmt::Arguments) {
        // Sending gives no errors.
        let _ = writeln!(self, "\r\n{text}\r");
        self.registers.wait_until_sent();
    }

    /// Waits until everything has gone, and forgets what has come.
    pub fn finish(&mut self) {
        self.registers.wait_until_sent();
        while self.receive().is_some() {}
    }
}

/// Gives the PL011 the pins 14 and 15 and no others. False if it had them, so that it is the UART that the firmware has set up.
///
/// # Safety
/// The controller of the pins is at the physical address `pins`.
unsafe fn take_pins(pins: usize) -> bool {
    let register = |offset| core::ptr::with_exposed_provenance_mut::<u32>(pins + offset);
    // SAFETY: the caller says that the registers are there; nothing else runs that would use them.
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
    // Before another peripheral is accessed ("BCM2835 ARM Peripherals", 1.3).
    barrier::dsb(barrier::SY);
    true
}

impl Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.send(text.as_bytes());
        Ok(())
    }
}
