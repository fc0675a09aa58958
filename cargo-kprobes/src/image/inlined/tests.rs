//! Debugging information that is assembled here, byte by byte: two functions, and copies in one of them.

use std::collections::HashMap;

use super::super::debug::{Entries, Files, load};
use super::Names;

const START: u64 = 0xffff_ffc0_0000_1000;

/// Forms of entries (DWARF 4, section 7.5): for each the number, the tag, whether it has children, and the attributes
/// with their forms.
const ABBREVIATIONS: &[u8] = &[
    1, 0x11, 1, 0, 0, // A unit.
    2, 0x2e, 0, 0x6e, 0x08, 0, 0, // A function by its linkage name.
    3, 0x2e, 0, 0x47, 0x13, 0x03, 0x08, 0, 0, // One that completes another, and has a name.
    4, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, // One with addresses.
    5, 0x1d, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, // A copy at consecutive addresses, with others within.
    6, 0x1d, 0, 0x31, 0x10, 0x55, 0x17, 0, 0, // One in several ranges, of a function of any unit.
    7, 0x2e, 0, 0x03, 0x08, 0, 0, // A function by its name alone.
    8, 0x0b, 1, 0, 0, // A block.
    0,
];

/// Returns a unit of these entries.
fn unit(entries: &[u8]) -> Vec<u8> {
    let mut bytes = (entries.len() as u32 + 7).to_le_bytes().to_vec();
    bytes.extend([4, 0, 0, 0, 0, 0, 8]);
    bytes.extend(entries);
    bytes
}

/// The offsets of the entries of the functions.
const FIRST: u32 = 12;
const SECOND: u32 = FIRST + 20;
const THIRD: u32 = SECOND + 8;

/// Returns the entries, and ranges.
fn sections() -> (Vec<u8>, Vec<u8>) {
    let mut entries = vec![1];
    entries.extend([&[2], &b"_RNvC6kernel5first\0"[..]].concat());
    entries.extend([&[3], &FIRST.to_le_bytes()[..], b"no\0"].concat());
    entries.extend([&[7], &b"third\0"[..]].concat());
    let address = |offset: u64| (START + offset).to_le_bytes();
    let length = |bytes: u32| bytes.to_le_bytes();
    entries.extend([&[4], &address(0)[..], &length(0x80)].concat());
    // The second, in it a block, and in that the third; and beside the second the third again.
    entries.extend([&[5], &SECOND.to_le_bytes()[..], &address(8), &length(0x20), &[8]].concat());
    entries.extend([&[6], &THIRD.to_le_bytes()[..], &0_u32.to_le_bytes(), &[0, 0]].concat());
    entries.extend([&[6], &THIRD.to_le_bytes()[..], &48_u32.to_le_bytes(), &[0, 0]].concat());
    let ranges = [[0x10, 0x14], [0x18, 0x20], [0, 0], [0x40, 0x44], [0, 0]];
    let absolute = |[from, to]: [u64; 2]| if to == 0 { [0, 0] } else { [START + from, START + to] };
    (unit(&entries), ranges.into_iter().flat_map(absolute).flat_map(u64::to_le_bytes).collect())
}

fn entries<'a>(information: &'a [u8], ranges: &'a [u8]) -> gimli::Result<Entries<'a>> {
    let section = |name: &str| match name {
        ".debug_info" => information,
        ".debug_abbrev" => ABBREVIATIONS,
        ".debug_ranges" => ranges,
        _ => &[],
    };
    Entries::read(&load(section), &mut Files::default())
}

#[test]
fn copies_are_read_with_their_names_and_callers() {
    let (information, ranges) = sections();
    let entries = entries(&information, &ranges).unwrap();
    let mut names = Names { entries: &entries, known: HashMap::new() };
    let copies: Vec<_> = entries
        .copies()
        .map(|copy| {
            let ranges = entries[copy].ranges.iter();
            let ranges: Vec<_> = ranges.map(|range| (range.start - START, range.end - START)).collect();
            (names.of(copy), entries.copy_around(copy).and_then(|around| names.of(around)), ranges)
        })
        .collect();
    let [first, third] = ["kernel::first", "third"].map(|name| Some(name.to_owned()));
    let expected = [
        (first.clone(), None, vec![(8, 0x28)]),
        (third.clone(), first, vec![(0x10, 0x14), (0x18, 0x20)]),
        (third, None, vec![(0x40, 0x44)]),
    ];
    assert_eq!(copies, expected);
}

#[test]
fn damaged_information_is_an_error_or_harmless() {
    let (information, ranges) = sections();
    for length in 0..information.len() {
        let result = entries(&information[..length], &ranges);
        assert!(length == 0 || result.is_err(), "the first {length} bytes");
    }
    for at in 0..information.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = information.clone();
            damaged[at] = value;
            if let Ok(entries) = entries(&damaged, &ranges) {
                let mut names = Names { entries: &entries, known: HashMap::new() };
                entries.copies().for_each(|copy| _ = (names.of(copy), entries.copy_around(copy)));
            }
        }
    }
}
