//! Tables that the writer made are read back whole; any other bytes are refused or harmless.

use std::{string::ToString, vec, vec::Vec};

use super::{Symbol, SymbolError, SymbolTable};
use crate::write::{seal, write};

const BASE: u64 = 0xffff_ffc0_0000_0000;

fn symbols() -> Vec<Symbol<'static>> {
    let symbol = |offset, size, name| Symbol { name, address: BASE + offset, size };
    vec![
        symbol(0x40, 0x20, "zeta::last"),
        symbol(0x00, 0x10, "boot"),
        symbol(0x10, 0x08, "core::fmt::write"),
        symbol(0x80, 0x10, "duplicate"),
        symbol(0x20, 0x10, "duplicate"),
        symbol(0x90, 0x10, "memcpy"),
        symbol(0x90, 0x30, "compiler_builtins::mem::memcpy"),
        symbol(0xc0, 0x04, "gr\u{fc}\u{df}e"),
    ]
}

/// Calls everything; that it comes back is the test.
fn exercise(table: &SymbolTable<'_>) {
    assert!(table.iter().count() <= table.len());
    for symbol in table.iter() {
        for address in [symbol.address, symbol.address + symbol.size, symbol.address.wrapping_sub(1)] {
            table.lookup(address);
        }
        table.find(symbol.name).for_each(drop);
    }
    for address in [0, BASE - 1, BASE, BASE + 0x1_0000_0000, u64::MAX] {
        table.lookup(address);
    }
    table.find("").chain(table.find("duplicate")).for_each(drop);
}

#[test]
fn reads_back_what_was_written() {
    let bytes = write(BASE, &symbols()).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    let mut expected = symbols();
    expected.sort_by_key(|symbol| (symbol.address, symbol.name));
    assert_eq!(table.iter().collect::<Vec<_>>(), expected);
    assert_eq!(table.len(), expected.len());
    assert!(!table.is_empty());
}

#[test]
fn looks_up_every_address() {
    let bytes = write(BASE, &symbols()).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    for offset in 0..0x100 {
        let mut containing: Vec<_> = symbols();
        containing.retain(|symbol| (symbol.address..symbol.address + symbol.size).contains(&(BASE + offset)));
        containing.sort_by_key(|symbol| symbol.name);
        let first = containing.first().copied();
        assert_eq!(table.lookup(BASE + offset), first, "offset {offset:#x}");
        let range = first.map(|symbol| symbol.address..symbol.address + symbol.size);
        for near in (0..symbols().len() + 2).chain([usize::MAX]) {
            assert_eq!(table.range(BASE + offset, &mut near.clone()), range, "offset {offset:#x} from {near}");
        }
    }
    for outside in [0, BASE - 1, BASE + 0x1_0000_0000, BASE + 0x1_0000_0010, u64::MAX] {
        assert_eq!(table.lookup(outside), None, "{outside:#x}");
        assert_eq!(table.range(outside, &mut 0), None, "{outside:#x}");
    }
}

#[test]
fn finds_every_symbol_of_a_name() {
    let bytes = write(BASE, &symbols()).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    for symbol in symbols() {
        let mut same = symbols();
        same.retain(|other| other.name == symbol.name);
        same.sort_by_key(|other| other.address);
        assert_eq!(table.find(symbol.name).collect::<Vec<_>>(), same);
    }
    assert_eq!(table.find("duplicate").count(), 2);
    for unknown in ["", "duplicat", "duplicate2", "zzz"] {
        assert_eq!(table.find(unknown).count(), 0, "{unknown}");
    }
}

#[test]
fn an_empty_table_is_a_table() {
    let bytes = write(BASE, &[]).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    assert!(table.is_empty());
    exercise(&table);
    assert_eq!(table.lookup(BASE), None);
}

#[test]
fn works_where_words_are_aligned_and_with_bytes_behind_it() {
    let table = write(BASE, &symbols()).unwrap();
    for shift in 0..8 {
        let mut bytes = vec![0xa5; shift];
        bytes.extend(&table);
        bytes.extend([0xff; 13]);
        let address = bytes[shift..].as_ptr().addr();
        let count = SymbolTable::parse(&bytes[shift..]).map(|table| table.iter().count());
        let is_aligned = address.is_multiple_of(4);
        assert_eq!(count, if is_aligned { Ok(symbols().len()) } else { Err(SymbolError::Misaligned { address }) });
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = write(BASE, &symbols()).unwrap();
    for present in 0..bytes.len() {
        let needed = if present < 32 { 32 } else { bytes.len() };
        let error = SymbolTable::parse(&bytes[..present]).unwrap_err();
        assert_eq!(error, SymbolError::Truncated { needed, present });
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = write(BASE, &symbols()).unwrap();
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(SymbolTable::parse(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let bytes = write(BASE, &symbols()).unwrap();
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let unsealed = SymbolTable::parse(&bytes).unwrap_err();
        seal(&mut bytes);
        (unsealed, SymbolTable::parse(&bytes).err())
    };
    assert_eq!(changed(0, b'X').0, SymbolError::Magic);
    assert_eq!(changed(12, 2).0, SymbolError::Version { found: 2 });
    assert!(matches!(changed(20, 200).0, SymbolError::Checksum { .. }));
    let inconsistent = |part| Some(SymbolError::Inconsistent { part });
    assert_eq!(changed(20, 200).1, inconsistent("its number of symbols"));
    assert_eq!(changed(32, 0x11).1, inconsistent("the order of its addresses"));
    assert_eq!(changed(32 + 8 + 3, 1).1, inconsistent("an entry"));
    assert_eq!(changed(32 + 12 * 8, 8).1, inconsistent("an entry number"));
    assert_eq!(changed(32 + 12 * 8, 7).1, inconsistent("the order of its names"));
    // The last function would end beyond the end of the address space.
    let mut high = bytes.clone();
    high[24..32].copy_from_slice(&(u64::MAX - 0xc2).to_le_bytes());
    seal(&mut high);
    assert_eq!(SymbolTable::parse(&high).err(), inconsistent("an entry"));
    let mut short = bytes.clone();
    short[16..20].copy_from_slice(&[11, 0, 0, 0]);
    assert_eq!(SymbolTable::parse(&short).unwrap_err(), SymbolError::Inconsistent { part: "its length" });
    let sentence = SymbolTable::parse(&bytes[..40]).unwrap_err().to_string();
    assert!(sentence.starts_with("the symbol table is truncated: it needs "), "{sentence}");
}

#[test]
fn no_bytes_make_it_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let original = write(BASE, &symbols()).unwrap();
    let mut accepted = 0;
    for _ in 0..200_000 {
        let mut bytes = original.clone();
        for _ in 0..=random(4) {
            let at = 12 + random(bytes.len() - 12);
            bytes[at] = [0, 1, 0x7f, 0xff, random(256) as u8][random(5)];
        }
        // Without the right checksum nothing behind it would be reached.
        seal(&mut bytes);
        if random(4) == 0 {
            bytes.truncate(random(bytes.len()));
        }
        if let Ok(table) = SymbolTable::parse(&bytes) {
            accepted += 1;
            exercise(&table);
        }
    }
    assert!(accepted > 1000, "only {accepted} of the mutations reached the readers");
    for _ in 0..10_000 {
        let length = random(200);
        let noise: Vec<u8> = (0..length).map(|_| random(256) as u8).collect();
        assert!(SymbolTable::parse(&noise).is_err());
    }
}
