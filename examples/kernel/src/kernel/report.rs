//! The UART, and the end of the kernel.

use core::fmt::{self, Write};
use core::panic::PanicInfo;

use super::cpu;

/// The address of the PL011's data register.
const UART: usize = if cfg!(feature = "raspi3b") { 0x3f20_1000 } else { 0x900_0000 };

struct Uart;

impl Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: writes the data register of the PL011, which is always ready for a byte in QEMU.
        text.bytes().for_each(|byte| unsafe { (UART as *mut u32).write_volatile(byte.into()) });
        Ok(())
    }
}

/// Prints a line. Only the first task does, and a panic, so there is no lock.
pub fn println(text: fmt::Arguments<'_>) {
    let _ = writeln!(Uart, "{text}");
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    println(format_args!("{info}"));
    cpu::power_off()
}
