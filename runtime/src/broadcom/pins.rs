//! The pins of the UART ("BCM2835 ARM Peripherals", chapter 6; "BCM2711 ARM Peripherals", chapter 5).

use core::time::Duration;

use aarch64_cpu::asm::barrier;
use device_tree::Pins;
use tock_registers::interfaces::{Readable, Writeable};
use tock_registers::register_structs;
use tock_registers::registers::ReadWrite;

use crate::memory::{MapError, Mmio};
use crate::time;

register_structs! {
    Registers {
        /// The functions of the pins: three bits for each pin, ten pins in each register.
        (0x00 => function: [ReadWrite<u32>; 6]),
        (0x18 => _reserved0),
        /// On the BCM2835: the pull that clocked pins get, and which pins are clocked.
        (0x94 => pull: ReadWrite<u32>),
        (0x98 => pull_clock: [ReadWrite<u32>; 2]),
        (0xa0 => _reserved1),
        /// On the BCM2711: the pulls of the pins, two bits for each.
        (0xe4 => pull_each: [ReadWrite<u32>; 4]),
        (0xf4 => @END),
    }
}

/// The functions of a pin, as values of its three bits.
const INPUT: u32 = 0b000;
const ALTERNATE_0: u32 = 0b100;
const ALTERNATE_2: u32 = 0b110;
const ALTERNATE_3: u32 = 0b111;

/// The pins of the UART: output and input, both by alternate function 0.
const OUTPUT_PIN: usize = 14;
const INPUT_PIN: usize = 15;
/// The other pins that the input may come from, and by which functions. On some boards a Bluetooth chip is there.
const OTHER_INPUTS: [(usize, u32); 2] = [(33, ALTERNATE_3), (37, ALTERNATE_2)];

const PULL_UP_BCM2835: u32 = 0b10;
const PULL_UP_BCM2711: u32 = 0b01;
/// The pause between the steps on a BCM2835, longer than the required 150 cycles of the peripherals' clock.
const STEP: Duration = Duration::from_micros(2);

/// Gives the first PL011 the pins 14 and 15, and no others. Returns false if it had them already, so that an earlier
/// stage of the boot has set the UART up.
pub(super) fn connect_uart(pins: &Pins) -> Result<bool, MapError> {
    // SAFETY: the device tree says that such a GPIO controller has its registers there.
    let registers = unsafe { Mmio::<Registers>::map(pins.registers.address)? };
    for (pin, function) in OTHER_INPUTS {
        if registers.function(pin) == function {
            registers.set_function(pin, INPUT);
        }
    }
    // The pull-up keeps a line without a cable high, which is idle.
    if pins.bcm2711 {
        let (register, shift) = (&registers.pull_each[INPUT_PIN / 16], INPUT_PIN % 16 * 2);
        register.set(register.get() & !(0b11 << shift) | PULL_UP_BCM2711 << shift);
    } else {
        registers.pull.set(PULL_UP_BCM2835);
        pause();
        registers.pull_clock[INPUT_PIN / 32].set(1 << (INPUT_PIN % 32));
        pause();
        registers.pull.set(0);
        registers.pull_clock[INPUT_PIN / 32].set(0);
    }
    let had_them = [OUTPUT_PIN, INPUT_PIN].iter().all(|pin| registers.function(*pin) == ALTERNATE_0);
    registers.set_function(OUTPUT_PIN, ALTERNATE_0);
    registers.set_function(INPUT_PIN, ALTERNATE_0);
    // Required before another peripheral is accessed ("BCM2835 ARM Peripherals", 1.3).
    barrier::dsb(barrier::SY);
    Ok(!had_them)
}

impl Registers {
    fn function(&self, pin: usize) -> u32 {
        self.function[pin / 10].get() >> (pin % 10 * 3) & 0b111
    }

    fn set_function(&self, pin: usize, function: u32) {
        let (register, shift) = (&self.function[pin / 10], pin % 10 * 3);
        register.set(register.get() & !(0b111 << shift) | function << shift);
    }
}

fn pause() {
    let end = time::counter().saturating_add(time::ticks(STEP));
    while time::counter() < end {}
}
