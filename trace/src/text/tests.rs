//! Lines that Linux 6.1 and 6.12 printed, character by character.

use kprobes_random::assert_tried;

use super::*;
use crate::definition::{Command, EventKind, parse, synthetic};
use crate::format::Format;
use crate::ring::Record;
use crate::symbols::Function;
use alloc::string::String;
use alloc::vec::Vec;

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

/// A hit by task `name`-`task` at `time`, in nanoseconds of a counter of 1 GHz.
struct Hit<'a> {
    name: &'a str,
    task: u32,
    flags: u8,
    time: u64,
    at: (u64, u64),
    faults: u32,
}

/// Returns the line of a hit of `definition`, with these bytes after the fields for the place.
fn line(definition: &str, hit: &Hit<'_>, arguments: &[u8]) -> String {
    let Ok(Some(Command::Define(definition))) = parse(definition) else { panic!("{definition}") };
    let shape = if definition.kind == EventKind::Probe { Shape::Probe } else { Shape::Return };
    let fields = definition.arguments.iter().map(|argument| (argument.name.as_str(), argument.kind));
    let format = Format::new(shape, fields).unwrap();
    let mut bytes: Vec<u8> = [6, 0, hit.flags, 0].into();
    bytes.extend(hit.task.to_le_bytes());
    bytes.extend(hit.at.0.to_le_bytes());
    if shape == Shape::Return {
        bytes.extend(hit.at.1.to_le_bytes());
    }
    bytes.extend(arguments);
    let mut name = [0; 16];
    let length = hit.name.len().min(16);
    name[..length].copy_from_slice(&hit.name.as_bytes()[..length]);
    let record = Record { cpu: 0, lost: 0, time: hit.time + 1000, count: 0, name, faults: hit.faults, bytes: &bytes };
    let clock = Clock { frequency: 1_000_000_000, origin: 1000 };
    let mut text = String::new();
    write_record(&mut text, &record, Some((&definition.event, &format)), &Names, clock, Options::default()).unwrap();
    text
}

fn words<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.map(u64::to_le_bytes).concat()
}

const INTERRUPT: u8 = Flags::IRQS_OFF | Flags::INTERRUPT;
const NOWHERE: Hit<'_> = Hit { name: "t", task: 1, flags: 0, time: 0, at: (READ, 0), faults: 0 };

/// Returns what follows the place in the line of a hit.
fn arguments(definition: &str, faults: u32, bytes: &[u8]) -> String {
    let text = line(definition, &Hit { faults, ..NOWHERE }, bytes);
    let (_, arguments) = text.split_once("/0x2d0) ").unwrap();
    arguments.trim_end().into()
}

#[test]
fn a_return() {
    let hit = Hit {
        name: "dd",
        task: 101,
        flags: INTERRUPT,
        // Linux rounds to the nearest microsecond.
        time: 7_680_263_500,
        at: (CALLER + 0x840, CALLER + 0x2c),
        faults: 0,
    };
    let text = line("r:blk_update blk_update_request $retval", &hit, &words([0]));
    let linux = "              dd-101     [000] d.h..     7.680264: blk_update: \
        (blk_mq_end_request+0x2c/0x54 <- blk_update_request) arg1=0x0\n";
    assert_eq!(text, linux);
}

#[test]
fn a_probe() {
    let hit = Hit { name: "dd", task: 104, flags: Flags::IRQS_OFF, time: 7_714_665_000, at: (READ, 0), faults: 0 };
    let text = line("p:read_in vfs_read count=%x2:u64 file=%x1", &hit, &words([8192, 0x1_0001_050b]));
    let linux = "              dd-104     [000] d....     7.714665: read_in: \
        (vfs_read+0x0/0x2d0) count=8192 file=0x10001050b\n";
    assert_eq!(text, linux);
}

#[test]
fn addresses_without_a_function_and_long_names() {
    let hit = Hit {
        name: "a_name_of_sixteen",
        task: 12_345_678,
        flags: 0,
        time: 100_000_000_000_000,
        at: (0x10, 0x20),
        faults: 0,
    };
    let text = line("r:x f", &hit, &[]);
    assert_eq!(text, " a_name_of_sixte-12345678 [000] ..... 100000.000000: x: (0x20 <- 0x10)\n");
}

#[test]
fn names_that_are_cut_inside_a_character_stay_text() {
    let text = line("p:x f", &Hit { name: "aufgabe_aufgabä", ..NOWHERE }, &[]);
    assert!(text.starts_with("  aufgabe_aufgab-1 "), "{text}");
}

#[test]
fn values_are_written_by_their_type() {
    let text = |kind: &str, value: u64| arguments(&std::format!("p f %x0:{kind}"), 0, &words([value]));
    assert_tried!(text("x64", u64::MAX), "arg1=0xffffffffffffffff");
    assert_tried!(text("x8", 0x1234), "arg1=0x34");
    assert_tried!(text("u64", u64::MAX), "arg1=18446744073709551615");
    assert_tried!(text("u16", 0x1_ffff), "arg1=65535");
    assert_tried!(text("s8", 0xff), "arg1=-1");
    assert_tried!(text("s32", 0x7fff_ffff), "arg1=2147483647");
    assert_tried!(text("s64", u64::MAX), "arg1=-1");
    assert_tried!(text("char", 0x41), "arg1='A'");
    assert_tried!(text("symbol", READ + 0x10), "arg1=vfs_read+0x10/0x2d0");
    assert_tried!(text("symbol", 0x10), "arg1=0x10");
    assert_tried!(text("b4@8/32", 3), "arg1=3");
}

#[test]
fn arrays_and_texts() {
    assert_tried!(arguments("p f +0(%x0):u8[3]", 0, &[1, 2, 3]), "arg1={1,2,3}");
    let mut bytes: Vec<u8> = (3 << 16 | 20_u32).to_le_bytes().into();
    bytes.extend(b"hi\0");
    assert_tried!(arguments("p f +0(%x0):string", 0, &bytes), "arg1=\"hi\"");
    bytes[2] = 0;
    assert_tried!(arguments("p f +0(%x0):string", 0, &bytes), "arg1=(fault)");
    let mut bytes: Vec<u8> = (6 << 16 | 20_u32).to_le_bytes().into();
    bytes.extend(b"f+0x4\0");
    assert_tried!(arguments("p f %x0:symstr", 0, &bytes), "arg1=\"f+0x4\"");
}

#[test]
fn flags_of_a_synthetic_event_follow_the_blank() {
    let Ok(Some(synthetic::Command::Define(definition))) = synthetic::parse("e gfp_t a; gfp_t b", &|_| false) else {
        panic!()
    };
    let format = Format::of_synthetic(definition).unwrap();
    let bytes = [&[6, 0, 0, 0, 1, 0, 0, 0][..], &words([0xcc0, 0])].concat();
    let record = Record { cpu: 0, lost: 0, time: 0, count: 0, name: [0; 16], faults: 0, bytes: &bytes };
    let mut text = String::new();
    write_message(&mut text, &record, Some(("e", &format)), &Names, Options::default()).unwrap();
    assert_eq!(text, "e: a=cc0  (0xcc0)b=0 ()\n");
}

#[test]
fn what_could_not_be_read_is_said() {
    let text = arguments("p f a=+0(%x0) b=%x1 c=+0(%x2):u8[2]", 0b101, &[0; 18]);
    assert_eq!(text, "a=(fault) b=0x0 c=(fault)");
    let text = |unread: [u8; 2]| {
        let bytes = [&[1, 2, 3, 9, 0][..], &words(unread.map(u64::from))].concat();
        arguments("p f a=+0(%x0):u8[3] b=+0(%x0):u16[1]", 0b11, &bytes)
    };
    assert_tried!(text([0b010, 1]), "a={1,(fault),3} b=(fault)");
    assert_tried!(text([0b111, 0]), "a=(fault) b=(fault)");
}

#[test]
fn missing_records_are_said_before_the_next() {
    let record =
        Record { cpu: 3, lost: 7, time: 0, count: 0, name: [0; 16], faults: 0, bytes: &[9, 0, 0, 0, 1, 0, 0, 0] };
    let mut text = String::new();
    write_record(&mut text, &record, None, &Names, Clock { frequency: 1, origin: 0 }, Options::default()).unwrap();
    assert!(text.starts_with("CPU:3 [LOST 7 EVENTS]\n") && text.ends_with(": Unknown type 9\n"), "{text}");
}

#[test]
fn raw_data_is_shown_byte_by_byte() {
    let bytes = [&[18, 0, 0, 0, 7, 0, 0, 0][..], &0xdead_beef_u32.to_le_bytes(), b"A\0\xffB\n\0\0\0"].concat();
    let mut name = [0; 16];
    name[..4].copy_from_slice(b"main");
    let record = Record { cpu: 1, lost: 0, time: 1_000_002, count: 0, name, faults: 0, bytes: &bytes };
    let (mut text, clock) = (String::new(), Clock { frequency: 1_000_000, origin: 0 });
    write_record(&mut text, &record, None, &Names, clock, Options::default()).unwrap();
    let data = "# deadbeef buf: 41 00 ff 42 0a 00 00 00\n";
    assert_eq!(text, std::format!("            main-7       [001] .....     1.000002: {data}"));
    text.clear();
    write_message(&mut text, &record, None, &Names, Options::default()).unwrap();
    assert_eq!(text, data, "among the calls of function_graph, too");
}

#[test]
fn texts_have_the_name_of_where_they_are_from() {
    let shown = |place: u64, text: &str, on: &[Flag]| {
        let bytes = [&[5, 0, 0, 0, 7, 0, 0, 0][..], &place.to_le_bytes(), text.as_bytes(), b"\0"].concat();
        let mut name = [0; 16];
        name[..4].copy_from_slice(b"main");
        let record = Record { cpu: 1, lost: 0, time: 1_000_002, count: 0, name, faults: 0, bytes: &bytes };
        let (mut text, mut options) = (String::new(), Options::default());
        on.iter().for_each(|flag| options.set(*flag, true));
        write_record(&mut text, &record, None, &Names, Clock { frequency: 1_000_000, origin: 0 }, options).unwrap();
        text
    };
    let line = "            main-7       [001] .....     1.000002: ";
    assert_tried!(shown(0, "hello\n", &[]), std::format!("{line}tracing_mark_write: hello\n"));
    let mut symbol = String::new();
    write_name(&mut symbol, 0x1004, &Names).unwrap();
    assert_tried!(shown(0x1004, "hello\n", &[]), std::format!("{line}{symbol}: hello\n"));
    symbol.clear();
    write_offset(&mut symbol, 0x1004, &Names).unwrap();
    let both = shown(0x1004, "hello\n", &[Flag::SymOffset, Flag::SymAddr]);
    assert_eq!(both, std::format!("{line}{symbol} <0000000000001004>: hello\n"));
}

#[test]
fn the_profile() {
    let mut text = String::new();
    write_profile(&mut text, "blk_update", 3, 0).unwrap();
    assert_eq!(text, "  blk_update                                                 3               0\n");
}
