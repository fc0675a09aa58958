//! Links the kernel, and makes the list of the boards' UARTs from `boards/*/board.toml`.

mod linked;

use std::{collections::BTreeSet, env, fs, path::Path};

use serde::Deserialize;

/// The part of a board's description that the kernel needs before it has a device tree.
#[derive(Deserialize)]
struct Description {
    /// The physical address of the console's PL011.
    uart: u64,
}

fn main() {
    linked::by_script();
    let boards = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("Cargo sets it")).join("../boards");
    println!("cargo::rerun-if-changed={}", boards.display());
    let out = Path::new(&env::var("OUT_DIR").expect("Cargo sets it")).join("uarts.rs");
    fs::write(out, format!("&{:#x?}\n", uarts(&boards).into_iter().collect::<Vec<_>>()))
        .expect("the output directory can be written to");
}

/// Returns the addresses of the boards' UARTs, in ascending order.
fn uarts(boards: &Path) -> BTreeSet<u64> {
    let entries = fs::read_dir(boards).expect("the directory of boards can be read");
    let files = entries.map(|entry| entry.expect("the directory of boards can be read").path().join("board.toml"));
    files
        .filter(|file| file.is_file())
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let board: Description =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            board.uart
        })
        .collect()
}
