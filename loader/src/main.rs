//! The kernel of a board's card that is never changed: it takes another one over the UART, unpacks it to where the firmware
//! would have put it, and leaves the board to it as the firmware does. So a new kernel needs no card and takes seconds; and
//! when one ends with a reset, the loader is back.
//!
//! It stays out of the kernel's way, needs neither device tree nor caches, and knows of the board what the part number of
//! its CPU tells: nothing that a kernel does can keep it from loading the next one.
//!
//! | module | what it owns |
//! |---|---|
//! | `board` | where the devices are |
//! | `place` | which memory is whose |
//! | `uart` | the UART |
//! | `load` | from the first byte to the jump |

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod board;
#[cfg(target_os = "none")]
mod load;
#[cfg(target_os = "none")]
mod place;
#[cfg(target_os = "none")]
mod uart;

#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("start.S"));

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("the loader runs on the board that it is built for: cargo xtask flash --loader");
}
