//! Lines that Linux 6.1 and 6.12 printed, character by character.

use super::*;
use crate::definition::{Command, MAX_ARGUMENTS, parse};
use crate::host::Function;
use alloc::string::String;

const READ: u64 = 0xffff_8000_0839_efb0;
const CALLER: u64 = 0xffff_8000_085d_f000;

struct Names;

impl Symbols for Names {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        let functions = [
            Function { name: "vfs_read", address: READ, size: 0x2d0 },
            Function { name: "blk_mq_end_request", address: CALLER, size: 0x54 },
            Function { name: "blk_update_request", address: CALLER + 0x840, size: 0x414 },
        ];
        functions.into_iter().find(|function| (function.address..function.address + function.size).contains(&address))
    }

    fn find<'a>(&'a self, _: &str, _: &mut dyn FnMut(Function<'a>)) {}
}

/// The line of a hit of `definition` by task `name`-`task` at `time`, in nanoseconds of a counter of 1 GHz.
fn line(definition: &str, (name, task): (&str, u64), flags: u32, time: u64, at: (u64, u64), values: &[u64]) -> String {
    let Ok(Some(Command::Define(definition))) = parse(definition) else { panic!("{definition}") };
    let mut record = Record {
        time: time + 1000,
        cpu: 0,
        sequence: 1,
        event: 1,
        flags: Flags(flags),
        task,
        name: [0; 16],
        address: at.0,
        return_address: at.1,
        values: [0; MAX_ARGUMENTS],
    };
    let length = name.len().min(16);
    record.name[..length].copy_from_slice(&name.as_bytes()[..length]);
    record.values[..values.len()].copy_from_slice(values);
    let clock = Clock { frequency: 1_000_000_000, origin: 1000 };
    let mut text = String::new();
    write_record(&mut text, &record, Some(&definition), &Names, clock).unwrap();
    text
}

const INTERRUPT: u32 = Flags::IRQS_OFF | Flags::INTERRUPT;

#[test]
fn a_return() {
    let text = line(
        "r:blk_update blk_update_request $retval",
        ("dd", 101),
        INTERRUPT,
        7_680_264_999,
        (CALLER + 0x840, CALLER + 0x2c),
        &[0],
    );
    let linux = "              dd-101     [000] d.h..     7.680264: blk_update: \
        (blk_mq_end_request+0x2c/0x54 <- blk_update_request) arg1=0x0\n";
    assert_eq!(text, linux);
}

#[test]
fn a_probe() {
    let text = line(
        "p:read_in vfs_read count=%x2:u64 file=%x1",
        ("dd", 104),
        Flags::IRQS_OFF,
        7_714_665_000,
        (READ, 0),
        &[8192, 0x1_0001_050b],
    );
    let linux = "              dd-104     [000] d....     7.714665: read_in: \
        (vfs_read+0x0/0x2d0) count=8192 file=0x10001050b\n";
    assert_eq!(text, linux);
}

#[test]
fn addresses_without_a_function_and_long_names() {
    let text = line("r:x f", ("a_name_of_sixteen", 12_345_678), 0, 100_000_000_000_000, (0x10, 0x20), &[1]);
    assert_eq!(text, " a_name_of_sixte-12345678 [000] ..... 100000.000000: x: (0x20 <- 0x10) ret=0x1\n");
}

#[test]
fn names_that_are_cut_inside_a_character_stay_text() {
    let text = line("p:x f %x0", ("aufgabe_aufgabä", 1), 0, 0, (0x10, 0), &[1]);
    assert!(text.starts_with("  aufgabe_aufgab-1 "), "{text}");
}

#[test]
fn the_header() {
    let mut text = String::new();
    write_header(&mut text, 3, 3, 1).unwrap();
    let linux = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 3/3   #P:1\n#\n\
        #                                _-----=> irqs-off/BH-disabled\n";
    assert!(text.starts_with(linux), "{text}");
    assert!(text.ends_with("#              | |         |   |||||     |         |\n"), "{text}");
}

#[test]
fn the_profile() {
    let mut text = String::new();
    write_profile(&mut text, "blk_update", 3, 0).unwrap();
    assert_eq!(text, "  blk_update                                                 3               0\n");
}
