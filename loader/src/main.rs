//! The chain-loader on a board's card, so that a new kernel needs no new card and takes seconds to try.
//!
//! It takes a kernel over the UART, unpacks it to where the firmware would have put it, and hands the board over in the
//! state in which the firmware does. When a kernel ends with a reset, the loader runs again.
//!
//! The loader stays out of the kernel's way. It needs neither a device tree nor caches, and knows of the board only
//! what the part number of its CPU tells. So nothing that a kernel does can keep the loader from loading the next one.
//!
//! | module | what it owns |
//! |---|---|
//! | `board` | the addresses of the devices |
//! | `place` | the division of memory |
//! | `uart` | the UART |
//! | `load` | the path from the first byte to the jump |

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
