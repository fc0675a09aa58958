//! Links the kernel, and makes the list of the boards' UARTs from `boards/*/board.toml`.

#[path = "../boards/descriptions.rs"]
mod descriptions;
mod linked;

use std::collections::BTreeSet;

use serde::Deserialize;

/// The part of a board's description that the kernel needs before it has a device tree.
#[derive(Deserialize)]
struct Description {
    /// The physical address of the console's PL011.
    uart: u64,
}

fn main() {
    linked::by_script();
    let boards = descriptions::read::<Description>();
    // Each once, in ascending order.
    let uarts: BTreeSet<u64> = boards.into_iter().map(|(_, board)| board.uart).collect();
    descriptions::write("uarts.rs", &format!("&{:#x?}\n", uarts.into_iter().collect::<Vec<_>>()));
}
