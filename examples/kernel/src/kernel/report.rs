//! The UART, and the end of the kernel.

use core::fmt::{self, Write};
use core::panic::PanicInfo;

use super::cpu;

struct Uart;

impl Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: writes the data register of the PL011 of QEMU's virt machine, which is always ready for a byte.
        text.bytes().for_each(|byte| unsafe { (0x900_0000 as *mut u32).write_volatile(byte.into()) });
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
