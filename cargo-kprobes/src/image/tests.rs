//! Images of a small program that is assembled here, byte by byte, so that every part of it can be made wrong.

use std::{env, fs, process};

use anyhow::Result;
use kprobes_symbols::SymbolTable;

use super::{Tables, contents, fill, fill_in, parse_elf, with_tables, write_bytes};
use crate::audit::Executable;

const START: u64 = 0xffff_ffc0_0000_0000;
const TEXT_SECTION: u16 = 1;
const DATA_SECTION: u16 = 2;
const FUNCTION: u8 = 2;
const OBJECT: u8 = 1;

fn image(program: &[u8]) -> Result<Vec<u8>> {
    with_tables(&parse_elf(program)?, &[], None)
}

/// Builds an ELF file from the parts that the tests vary.
struct ElfBuilder {
    machine: u16,
    /// For each segment: the address, the bytes and the length in memory.
    segments: Vec<(u64, Vec<u8>, u64)>,
    /// For each symbol: the name, the type, the section, the address and the size.
    symbols: Vec<(&'static str, u8, u16, u64, u64)>,
}

impl ElfBuilder {
    fn new() -> Self {
        let mut text = vec![0x11; 0x80];
        text[16..24].fill(0);
        text[56..60].copy_from_slice(b"ARM\x64");
        Self {
            machine: 183,
            segments: vec![(START, text, 0x80), (START + 0x1000, vec![0x22; 8], 0x20)],
            symbols: vec![
                ("__image_start", 0, TEXT_SECTION, START, 0),
                ("__image_end", 0, DATA_SECTION, START + 0x2000, 0),
                ("_RNvC6kernel4main", FUNCTION, TEXT_SECTION, START + 0x40, 0x10),
                ("memcpy", FUNCTION, TEXT_SECTION, START + 0x50, 0x30),
                ("marker", FUNCTION, TEXT_SECTION, START + 0x50, 0),
                ("_RNvC6kernel5TABLE", OBJECT, DATA_SECTION, START + 0x1000, 8),
                ("anon.0123.4.llvm.56", OBJECT, DATA_SECTION, START + 0x1000, 8),
                ("in_text", OBJECT, TEXT_SECTION, START + 0x40, 8),
                ("in_data", FUNCTION, DATA_SECTION, START + 0x1000, 8),
                ("$x", 0, TEXT_SECTION, START, 0),
                ("$d.1", 0, TEXT_SECTION, START + 0x48, 0),
                ("$x.2", 0, TEXT_SECTION, START + 0x4c, 0),
                ("$d", 0, TEXT_SECTION, START + 0x60, 0),
                ("$x", 0, TEXT_SECTION, START + 0x60, 0),
                ("$d", 0, TEXT_SECTION, START + 0x78, 0),
                ("$d", 0, DATA_SECTION, START + 0x1000, 0),
            ],
        }
    }

    /// Returns the ELF file: header, program headers, segments, names, symbols, section headers.
    fn elf(&self) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 * self.segments.len()];
        let mut headers = Vec::new();
        for (address, data, length) in &self.segments {
            headers.extend(1u32.to_le_bytes());
            headers.extend(5u32.to_le_bytes());
            let offset = bytes.len() as u64;
            headers.extend([offset, *address, *address, data.len() as u64, *length, 8].map(u64::to_le_bytes).concat());
            bytes.extend(data);
        }
        bytes[64..64 + headers.len()].copy_from_slice(&headers);

        let names_at = bytes.len() as u64;
        let mut symbols = vec![0; 24];
        bytes.push(0);
        for (name, kind, section, address, size) in &self.symbols {
            symbols.extend((bytes.len() as u32 - names_at as u32).to_le_bytes());
            symbols.extend([0x10 | kind, 0]);
            symbols.extend(section.to_le_bytes());
            symbols.extend([*address, *size].map(u64::to_le_bytes).concat());
            bytes.extend(name.as_bytes());
            bytes.push(0);
        }
        let names_length = bytes.len() as u64 - names_at;
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let symbols_at = bytes.len() as u64;
        bytes.extend(&symbols);
        let sections_at = bytes.len() as u64;
        // Type, flags, address, offset, size, link, size of an entry.
        let text_at = 64 + 56 * self.segments.len() as u64;
        let data = self.segments.get(1).map_or(8, |(_, data, _)| data.len() as u64);
        let sections: [(u32, u64, u64, u64, u64, u32, u64); 5] = [
            (0, 0, 0, 0, 0, 0, 0),
            (1, 6, START, text_at, 0x80, 0, 0),
            (1, 3, START + 0x1000, text_at + 0x80, data, 0, 0),
            (3, 0, 0, names_at, names_length, 0, 0),
            (2, 0, 0, symbols_at, symbols.len() as u64, 3, 24),
        ];
        for (kind, flags, address, offset, size, link, entry) in sections {
            bytes.extend([0u32, kind].map(u32::to_le_bytes).concat());
            bytes.extend([flags, address, offset, size].map(u64::to_le_bytes).concat());
            bytes.extend([link, 1].map(u32::to_le_bytes).concat());
            bytes.extend([1, entry].map(u64::to_le_bytes).concat());
        }

        let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        header.extend([2u16, self.machine].map(u16::to_le_bytes).concat());
        header.extend(1u32.to_le_bytes());
        header.extend([START, 64, sections_at].map(u64::to_le_bytes).concat());
        header.extend(0u32.to_le_bytes());
        header.extend([64, 56, self.segments.len() as u16, 64, 5, 3].map(u16::to_le_bytes).concat());
        bytes[..64].copy_from_slice(&header);
        bytes
    }

    fn error(&self) -> String {
        image(&self.elf()).unwrap_err().to_string()
    }
}

#[test]
fn lays_out_segments_and_zeroed_data() {
    let image = image(&ElfBuilder::new().elf()).unwrap();
    assert_eq!(image.len() % 4096, 0);
    assert_eq!(image[16..24], (image.len() as u64).to_le_bytes());
    assert_eq!(image[..16], [0x11; 16]);
    assert_eq!(image[24..56], [0x11; 32]);
    assert_eq!(image[60..0x80], [0x11; 0x80 - 60]);
    assert!(image[0x80..0x1000].iter().all(|byte| *byte == 0));
    assert_eq!(image[0x1000..0x1008], [0x22; 8]);
    assert!(image[0x1008..0x2000].iter().all(|byte| *byte == 0));
}

#[test]
fn appends_the_functions_and_statics_and_nothing_else() {
    let image = image(&ElfBuilder::new().elf()).unwrap();
    let table = SymbolTable::parse(&image[0x2000..]).unwrap();
    let functions: Vec<_> = table.iter().map(|symbol| (symbol.name, symbol.address, symbol.size)).collect();
    assert_eq!(functions, [("kernel::main", START + 0x40, 0x10), ("memcpy", START + 0x50, 0x30)]);
    let statics: Vec<_> = table.statics().map(|symbol| (symbol.name, symbol.address, symbol.size)).collect();
    assert_eq!(statics, [("kernel::TABLE", START + 0x1000, 8)]);
}

#[test]
fn leaves_out_symbols_that_end_out_of_reach() {
    let expected = image(&ElfBuilder::new().elf()).unwrap();
    for size in [1 << 32, u64::MAX] {
        let mut builder = ElfBuilder::new();
        builder.symbols.push(("far", FUNCTION, TEXT_SECTION, START + 0x78, size));
        builder.symbols.push(("far_data", OBJECT, DATA_SECTION, START + 0x1000, size));
        assert!(image(&builder.elf()).unwrap() == expected, "{size:#x} bytes");
    }
}

#[test]
fn surveys_the_text_with_both_ways_at_the_sites_of_events() {
    let mut builder = ElfBuilder::new();
    builder.symbols.push(("__kprobes_text_start", 0, TEXT_SECTION, START + 0x40, 0));
    let main: [u32; 6] = [
        0x9400_0004, // bl memcpy
        0xd503_201f, // nop: the site
        0xd65f_03c0, // ret
        0xaa09_03e0, // mov x0, x9: the block of the site
        0xd280_0029, // memcpy: mov x9, #1
        0xd65f_03c0, // ret
    ];
    builder.segments[0].1[0x40..0x58].copy_from_slice(&main.map(u32::to_le_bytes).concat());
    // The site, its block and its function, each by the distance from the word itself.
    let site = [0x44 - 0x1000, 0x4c - 0x1008, 0].map(i64::to_le_bytes).concat();
    builder.segments[1].1 = site;
    let is_read_in_block = |builder: &ElfBuilder| {
        let image = image(&builder.elf()).unwrap();
        let survey = SymbolTable::parse(&image[0x2000..]).unwrap().survey();
        let (rows, _) = survey[24..].as_chunks::<4>().0.as_chunks::<4>();
        let header = [START.to_le_bytes(), [0, 0, 1, 0, 0x40, 0, 0, 0]].concat();
        assert_eq!(survey[..16], header, "the image has pages of up to 64 KiB, and the engine's region at 0x40");
        rows.contains(&[0x50, 0, 1 << 9, 0x4c].map(u32::to_le_bytes))
    };
    assert!(!is_read_in_block(&builder));
    let site = |name, address| (name, 0, DATA_SECTION, address, 0);
    builder.symbols.push(site("__kprobes_sites_start", START + 0x1000));
    builder.symbols.push(site("__kprobes_sites_end", START + 0x1018));
    assert!(is_read_in_block(&builder));

    let mut error = |[start, end]: [u64; 2]| {
        builder.symbols.truncate(builder.symbols.len() - 2);
        builder.symbols.push(site("__kprobes_sites_start", start));
        builder.symbols.push(site("__kprobes_sites_end", end));
        builder.error()
    };
    assert_eq!(error([START + 0x1000, START + 0x1010]), "the sites of static events are truncated");
    assert_eq!(error([START + 0x1000, START + 0x1030]), "the sites of static events are in no section");
    // The symbols of the file are at the address 0, but not in memory.
    assert_eq!(error([0, 24]), "the sites of static events are in no section");
}

#[test]
fn appends_where_data_lies_in_the_text() {
    let image = image(&ElfBuilder::new().elf()).unwrap();
    let table = SymbolTable::parse(&image[0x2000..]).unwrap();
    let data: Vec<u64> = (0..0x2000).step_by(4).filter(|&at| table.has_data(START + at..START + at + 4)).collect();
    assert_eq!(data, [0x48, 0x78, 0x7c], "the last range ends with its section");
}

#[test]
fn says_what_is_wrong_with_a_program() {
    assert!(image(b"#!/bin/sh\n").unwrap_err().to_string().starts_with("it is not a 64-bit ELF file"));
    let foreign = ElfBuilder { machine: 62, ..ElfBuilder::new() };
    assert_eq!(foreign.error(), "it is not a program for little-endian AArch64");
    for name in ["__image_start", "__image_end"] {
        let mut builder = ElfBuilder::new();
        builder.symbols.retain(|symbol| symbol.0 != name);
        assert_eq!(builder.error(), format!("it has no symbol {name}: is it linked with linker.ld?"));
    }
    let mut builder = ElfBuilder::new();
    builder.symbols[1].3 = START;
    assert!(builder.error().contains("does not fit its __image_start"), "{}", builder.error());
    let mut builder = ElfBuilder::new();
    builder.segments[0].1[56] = 0;
    assert_eq!(builder.error(), "it does not begin with an arm64 Image header");
    for (address, length) in [(START - 8, 8), (START + 0x1ff0, 0x20), (u64::MAX - 8, 8), (START, u64::MAX)] {
        let mut builder = ElfBuilder::new();
        builder.segments.push((address, vec![1; 8], length));
        let expected = format!("its segment at {address:#x} is not between __image_start and __image_end");
        assert_eq!(builder.error(), expected);
    }
}

#[test]
fn tables_are_filled_in_where_there_is_room_for_them() {
    let mut elf = ElfBuilder::new();
    elf.segments[1] = (START + 0x1000, vec![0x22; 0x800], 0x800);
    let error = fill(&mut elf.elf(), Tables::All).unwrap_err().to_string();
    assert_eq!(error, "it has no room for them: write `INCLUDE kprobes-tables.x` in its linker script");
    elf.symbols.push(("__kprobes_tables_start", 0, DATA_SECTION, START + 0x1100, 0));
    elf.symbols.push(("__kprobes_tables_end", 0, DATA_SECTION, START + 0x1700, 0));
    let mut program = elf.elf();
    let filled = fill(&mut program, Tables::All).unwrap();
    assert_eq!((filled.room, filled.has_types), (0x600, false), "it has no debugging information");
    // The second segment follows the header, the headers of both segments, and the first segment.
    let data = &program[64 + 2 * 56 + 0x80..][..0x800];
    let table = SymbolTable::parse(&data[0x100..0x700]).unwrap();
    assert_eq!(table.find("kernel::main").map(|found| found.address).collect::<Vec<_>>(), [START + 0x40]);
    assert!(table.length() <= filled.length && filled.length < filled.room, "{filled:?}");
    assert!(data[..0x100].iter().chain(&data[0x700..]).all(|&byte| byte == 0x22));
    elf.symbols.clear();
    let error = fill(&mut elf.elf(), Tables::All).unwrap_err().to_string();
    assert_eq!(error, "it has no symbols: fill in its tables before you strip it");
}

#[test]
fn a_filled_in_program_has_the_permissions_of_the_program() {
    let mut elf = ElfBuilder::new();
    elf.segments[1] = (START + 0x1000, vec![0x22; 0x800], 0x800);
    elf.symbols.push(("__kprobes_tables_start", 0, DATA_SECTION, START + 0x1100, 0));
    elf.symbols.push(("__kprobes_tables_end", 0, DATA_SECTION, START + 0x1700, 0));
    let directory = env::temp_dir().join(format!("kprobes-{}-filled", process::id()));
    let (program, out) = (directory.join("program"), directory.join("out"));
    fs::create_dir_all(&directory).unwrap();
    fs::write(&program, elf.elf()).unwrap();
    let mut permissions = fs::metadata(&program).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&program, permissions.clone()).unwrap();
    fill_in(&program, &out, Tables::Symbols).unwrap();
    let found = fs::metadata(&out).unwrap().permissions();
    let files = fs::read_dir(&directory).unwrap().count();
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!((found, files), (permissions, 2));
}

#[test]
fn damaged_room_for_tables_is_an_error() {
    let mut elf = ElfBuilder::new();
    elf.segments[1] = (START + 0x1000, vec![0x22; 0x800], 0x800);
    elf.symbols.push(("__kprobes_tables_start", 0, DATA_SECTION, START + 0x1700, 0));
    elf.symbols.push(("__kprobes_tables_end", 0, DATA_SECTION, START + 0x1100, 0));
    let error = fill(&mut elf.elf(), Tables::Symbols).unwrap_err().to_string();
    assert_eq!(error, "its __kprobes_tables_end is before its __kprobes_tables_start");
    // The room is not in the file: the length of the second segment in the file, at 32 in its header.
    elf.symbols.last_mut().unwrap().3 = START + (1 << 37);
    let mut program = elf.elf();
    program[64 + 56 + 32..][..8].copy_from_slice(&(1_u64 << 37).to_le_bytes());
    assert_eq!(fill(&mut program, Tables::Symbols).unwrap_err().to_string(), "it is truncated");
}

#[test]
fn a_function_ends_with_its_section_at_the_latest() {
    let mut elf = ElfBuilder::new();
    elf.symbols.push(("__kprobes_text_start", 0, TEXT_SECTION, START, 0));
    elf.symbols.push(("__kprobes_text_end", 0, TEXT_SECTION, START, 0));
    for size in [1 << 44, u64::MAX] {
        elf.symbols[3].4 = size;
        let executable = Executable::parse(&elf.elf()).unwrap();
        let function = executable.function(START + 0x50).expect("a function");
        assert_eq!((function.name(), function.range.clone()), ("memcpy", START + 0x50..START + 0x80));
    }
    // The address of code or data is at 16 in its header, the second or the third of five.
    for after in [4, 3] {
        let mut program = elf.elf();
        let header = program.len() - after * 64;
        program[header + 16..][..8].copy_from_slice(&(u64::MAX - 6).to_le_bytes());
        let error = Executable::parse(&program).unwrap_err().to_string();
        assert_eq!(error, "a section extends past the last address");
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_not_replaced() {
    // A socket, in place of a device.
    let path = env::temp_dir().join(format!("kprobes-socket-{}", process::id()));
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = write_bytes(b"image", &path).unwrap_err().to_string();
    let is_kept = !fs::metadata(&path).unwrap().is_file();
    fs::remove_file(&path).unwrap();
    assert_eq!((error, is_kept), (format!("{} is not a file, and would be replaced by one", path.display()), true));
}

#[cfg(unix)]
#[test]
fn what_a_link_leads_to_is_replaced() {
    let [file, link] = ["file", "link"].map(|name| env::temp_dir().join(format!("kprobes-{name}-{}", process::id())));
    fs::write(&file, b"before").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    write_bytes(b"image", &link).unwrap();
    let is_link = fs::symlink_metadata(&link).unwrap().is_symlink();
    let content = fs::read(&file).unwrap();
    [link, file].iter().for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!((is_link, &*content), (true, &b"image"[..]));
}

#[test]
fn a_plain_image_is_what_is_in_memory() {
    let elf = ElfBuilder::new().elf();
    let (plain, start) = contents(&parse_elf(&elf).unwrap()).unwrap();
    assert_eq!((plain.len(), start), (0x2000, START));
    // In the header, only the length differs from that of an image with symbols.
    assert_eq!(plain[24..], image(&elf).unwrap()[24..0x2000]);
}

#[test]
fn no_truncated_program_becomes_an_image() {
    let elf = ElfBuilder::new().elf();
    for length in 0..elf.len() {
        assert!(image(&elf[..length]).is_err(), "the first {length} of {} bytes", elf.len());
    }
}
