//! Links the loader with its own layout, and makes its table of boards from `boards/*/board.toml`.

#[path = "../boards/descriptions.rs"]
mod descriptions;

use std::{collections::BTreeMap, env, fmt::Write};

use serde::Deserialize;

/// The part of a board's description that the loader needs.
#[derive(Deserialize)]
struct Description {
    /// The physical address of the console's PL011.
    uart: u64,
    sd: Option<Sd>,
}

#[derive(Deserialize)]
struct Sd {
    loader: Loader,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Loader {
    /// The name of the board in messages.
    name: String,
    /// The part number in MIDR_EL1.
    cpu_part: u16,
    /// The physical address of the pin controller, if the UART has to be given its pins.
    pins: Option<u64>,
    /// The physical address of the power manager.
    power: u64,
}

/// The physical addresses in an entry of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Devices {
    uart: u64,
    pins: Option<u64>,
    power: u64,
}

fn main() {
    println!("cargo::rerun-if-changed=layout.ld");
    if env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "none") {
        println!("cargo::rustc-link-arg-bins=-Tloader/layout.ld");
    }
    descriptions::write("boards.rs", &table());
}

/// Returns the array of boards as Rust. Boards with the same CPU are one entry, which has the names of all of them: the
/// loader cannot tell them apart, and must not need to.
fn table() -> String {
    let mut entries: BTreeMap<u16, (Vec<String>, Devices)> = BTreeMap::new();
    for (file, board) in descriptions::read::<Description>() {
        let Some(Sd { loader: Loader { name, cpu_part, pins, power } }) = board.sd else { continue };
        let devices = Devices { uart: board.uart, pins, power };
        let (names, others) = entries.entry(cpu_part).or_insert_with(|| (Vec::new(), devices));
        assert!(
            *others == devices,
            "{}: uart or [sd.loader] has other devices than another board with the CPU {cpu_part:#x}, which the loader cannot tell \
             from this one",
            file.display()
        );
        names.push(name);
    }
    let mut text = String::from("[\n");
    for (part, (names, Devices { uart, pins, power })) in entries {
        let name = names.join(" or ");
        writeln!(
            text,
            "    Board {{ part: {part:#x}, name: {name:?}, uart: {uart:#x}, pins: {pins:?}, power: {power:#x} }},"
        )
        .expect("a string takes everything");
    }
    text + "]\n"
}
