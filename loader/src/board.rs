//! The supported boards, and the devices that the loader uses on them.

use core::panic::PanicInfo;
use core::ptr;

use aarch64_cpu::registers::{MIDR_EL1, Readable};

use crate::uart::Uart;

/// A board, or several with the same SoC, identified by its CPU.
#[derive(Clone, Copy)]
pub struct Board {
    /// The part number in MIDR_EL1.
    pub part: u16,
    /// The name of the board in messages.
    pub name: &'static str,
    /// The physical address of the console's PL011.
    pub uart: usize,
    /// The physical address of the pin controller, if the UART has to be given its pins.
    pub pins: Option<usize>,
    /// The physical address of the power manager, which contains the watchdog.
    power: usize,
}

/// The supported boards, from `[sd.loader]` in their board.toml (`build.rs`).
const BOARDS: &[Board] = &include!(concat!(env!("OUT_DIR"), "/boards.rs"));

impl Board {
    /// Returns the board that this is, or `None` if its CPU is not in the table.
    pub fn here() -> Option<Self> {
        let part = MIDR_EL1.read(MIDR_EL1::PartNum) as u16;
        BOARDS.iter().copied().find(|board| board.part == part)
    }

    /// Resets the board, by a watchdog with the shortest time (Linux, drivers/watchdog/bcm2835_wdt.c).
    pub fn reset(&self) -> ! {
        const RESET_CONTROL: usize = 0x1c;
        const WATCHDOG: usize = 0x24;
        /// The top byte of every value written.
        const PASSWORD: u32 = 0x5a00_0000;
        /// The configuration field of the control register, and its value for a full reset.
        const CONFIGURATION: u32 = 0x30;
        const FULL_RESET: u32 = 0x20;
        /// The time until the reset, in units of 1/65536 s.
        const TICKS: u32 = 10;
        let register = |offset| ptr::with_exposed_provenance_mut::<u32>(self.power + offset);
        // SAFETY: the power manager of this board has its registers there, and only this function uses them.
        unsafe {
            register(WATCHDOG).write_volatile(PASSWORD | TICKS);
            let control = register(RESET_CONTROL).read_volatile() & !CONFIGURATION & 0x00ff_ffff;
            register(RESET_CONTROL).write_volatile(PASSWORD | control | FULL_RESET);
        }
        park()
    }
}

/// Waits forever.
pub fn park() -> ! {
    loop {
        aarch64_cpu::asm::wfe();
    }
}

/// Reports an unexpected exception with its ESR, ELR and FAR. Called by start.S.
#[unsafe(no_mangle)]
extern "C" fn loader_fault(syndrome: u64, from: u64, address: u64) -> ! {
    panic!("exception at {from:#x}: syndrome {syndrome:#x}, address {address:#x}")
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    let Some(board) = Board::here() else { park() };
    // SAFETY: the code that used the UART has failed and does not go on, so this is the UART's only user.
    unsafe { Uart::at(board.uart) }.report(format_args!("loader: {info}"));
    board.reset()
}
