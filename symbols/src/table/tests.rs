//! Tables are read back completely; any other bytes are refused or harmless.

use core::cell::Cell;
use core::ops::Range;
use std::{format, string::ToString, vec, vec::Vec};

use fallible::OutOfMemory;
use fallible::failing::{Heap, each_allocation};
use kprobes_random::Random;
use kprobes_random::tried::tried;

use super::{Defect, Symbol, SymbolError, SymbolTable};
use crate::frame::seal;
use crate::inlined::{InlinedCopies, InlinedError};
use crate::write::{Contents, Inlined, WriteError, encode, pack, write};
use crate::{HEADER_BYTES, Passage, VERSION, When};

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

fn statics() -> Vec<Symbol<'static>> {
    let symbol = |offset, size, name| Symbol { name, address: BASE + offset, size };
    vec![symbol(0x208, 0x8, "duplicate"), symbol(0x200, 0x8, "core::START")]
}

fn passage(offset: u64, when: When) -> Passage {
    Passage { address: BASE + offset, when }
}

/// A copy of `name` in `caller`, entered at its first instruction. Control leaves it two instructions before that, if a
/// branch is not taken.
fn copy(name: &str, offset: u64, caller: Option<&str>) -> Inlined {
    Inlined {
        name: name.to_string(),
        address: BASE + offset,
        caller: caller.map(ToString::to_string),
        is_in_pieces: offset.is_multiple_of(8),
        entries: Some(vec![passage(offset, When::Always)]),
        exits: Some(vec![passage(offset - 8, When::NotTaken), passage(offset + 0x1000, When::Taken)]),
    }
}

fn copies() -> Vec<Inlined> {
    vec![
        copy("zeta::small", 0x44, None),
        Inlined { entries: None, ..copy("gr\u{fc}n", 0x24, Some("zeta::small")) },
        copy("gr\u{fc}\u{df}", 0x2c, Some("zeta::never_itself")),
        Inlined { exits: Some(vec![]), ..copy("zeta::small", 0x4c, Some("zeta::small")) },
        Inlined { exits: None, ..copy("zeta::small", 0x10, None) },
    ]
}

/// Data among the instructions. Two of the ranges touch.
fn data() -> Vec<Range<u64>> {
    [0x98..0xa0, 0x30..0x34, 0xa0..0xa4, 0x50..0x50].map(|Range { start, end }| BASE + start..BASE + end).to_vec()
}

fn table(functions: &[Symbol<'_>], statics: &[Symbol<'_>], copies: &[Inlined]) -> Result<Vec<u8>, WriteError> {
    write(BASE, &Contents { functions, statics, data: &data(), survey: b"survey", copies })
}

/// Calls every function of the reader; the test is that all of them return.
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
        table.has_data(address..address.wrapping_add(4));
    }
    table.find("").chain(table.find("duplicate")).for_each(drop);
    table.statics().for_each(|symbol| table.find_static(symbol.name).for_each(drop));
    for copy in
        table.inlined().iter().flat_map(InlinedCopies::functions).flat_map(|function| function.unwrap().copies())
    {
        copy.entries().into_iter().flatten().for_each(drop);
        copy.exits().into_iter().flatten().for_each(drop);
    }
}

#[test]
fn reads_back_what_was_written() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    let mut expected = symbols();
    expected.sort_by_key(|symbol| (symbol.address, symbol.name));
    assert_eq!(table.iter().collect::<Vec<_>>(), expected);
    assert_eq!(table.len(), expected.len());
    let names: Vec<_> = table.statics().map(|symbol| symbol.name).collect();
    assert_eq!(names, ["core::START", "duplicate"], "in the order of their addresses");
    assert!(!table.is_empty());
    assert_eq!(table.survey(), b"survey\0\0", "filled up to whole words");
}

#[test]
fn tells_data_from_instructions() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    for offset in 0..0x100 {
        let address = BASE + offset;
        let is_data = |address| data().iter().any(|data| data.contains(&address));
        assert_eq!(table.has_data(address..address + 1), is_data(address), "offset {offset:#x}");
        assert_eq!(table.has_data(address..address + 16), (address..address + 16).any(is_data), "offset {offset:#x}");
    }
    assert!([0, BASE - 1, BASE + 0x1_0000_0030, u64::MAX - 1].iter().all(|&at| !table.has_data(at..at + 1)));
    assert!(table.has_data(0..u64::MAX));
    for data in [BASE - 4..BASE, BASE + 0xffff_fff0..BASE + 0xffff_ffff] {
        let contents = Contents { data: core::slice::from_ref(&data), ..Contents::default() };
        assert_eq!(write(BASE, &contents), Err(WriteError::DataOutOfRange { data }));
    }
}

#[test]
fn looks_up_every_address() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
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
fn an_image_that_was_moved_has_its_symbols_where_it_runs() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
    let linked = SymbolTable::parse(&bytes).unwrap();
    for distance in [0, 0x20_0000, BASE.wrapping_neg()] {
        let moved = linked.moved_by(distance).unwrap();
        let address = |linked: u64| linked.wrapping_add(distance);
        let expected = |symbol: Symbol<'static>| Symbol { address: address(symbol.address), ..symbol };
        assert!(moved.iter().eq(linked.iter().map(|symbol| Symbol { address: address(symbol.address), ..symbol })));
        assert_eq!(moved.find_static("core::START").next(), statics().pop().map(expected));
        assert_eq!(moved.range(address(BASE + 0x44), &mut 0), Some(address(BASE + 0x40)..address(BASE + 0x60)));
        assert!(moved.has_data(address(BASE + 0x30)..address(BASE + 0x34)));
        assert!(!moved.has_data(address(BASE + 0x34)..address(BASE + 0x98)));
        let copies = |table: &SymbolTable<'_>| {
            let inlined = table.inlined().unwrap();
            inlined
                .functions()
                .flat_map(|function| function.unwrap().copies().map(|copy| copy.address).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        assert_eq!(copies(&moved), copies(&linked).into_iter().map(address).collect::<Vec<_>>());
    }
    let error = linked.moved_by((BASE + 0x10).wrapping_neg()).unwrap_err();
    assert!(matches!(error, SymbolError::Defect(Defect::Inconsistent { .. })), "{error}");
}

#[test]
fn finds_every_symbol_of_a_name() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    for symbol in symbols() {
        let mut same = symbols();
        same.retain(|other| other.name == symbol.name);
        same.sort_by_key(|other| other.address);
        assert_eq!(table.find(symbol.name).collect::<Vec<_>>(), same);
    }
    assert_eq!(table.find("duplicate").count(), 2);
    for symbol in statics() {
        assert_eq!(table.find_static(symbol.name).collect::<Vec<_>>(), [symbol]);
        assert_eq!(table.lookup(symbol.address), None, "it is no function");
    }
    assert_eq!((table.find("core::START").count(), table.find_static("boot").count()), (0, 0));
    for unknown in ["", "duplicat", "duplicate2", "zzz"] {
        assert_eq!(table.find(unknown).count(), 0, "{unknown}");
    }
}

#[test]
fn reads_back_the_copies_that_were_written() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    let inlined = table.inlined().unwrap();
    let names: Vec<_> = inlined.functions().map(|function| function.unwrap().name).collect();
    assert_eq!(names, ["gr\u{fc}n", "gr\u{fc}\u{df}", "zeta::never_itself", "zeta::small"]);
    let numbers: Vec<_> = inlined.functions().map(|function| function.unwrap().number).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    let mut read = Vec::new();
    for function in inlined.functions() {
        let function = function.unwrap();
        read.extend(function.copies().map(|copy| Inlined {
            name: function.name.clone(),
            address: copy.address,
            caller: copy.caller.map(|number| names[number].clone()),
            is_in_pieces: copy.is_in_pieces,
            entries: copy.entries().map(Iterator::collect),
            exits: copy.exits().map(Iterator::collect),
        }));
    }
    let mut expected = copies();
    expected.sort();
    assert_eq!(read, expected);
}

#[global_allocator]
static HEAP: Heap = Heap;

#[test]
fn copies_are_read_or_there_is_no_memory() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    // The number of items that follow an error.
    let items_after = Cell::new(0);
    let length = || {
        let inlined = table.inlined().map_err(|error| match error {
            InlinedError::NoMemory { .. } => OutOfMemory,
            InlinedError::Inconsistent => panic!("the table is right"),
        })?;
        let mut functions = inlined.functions();
        let length = functions.try_fold(0, |length, function| Ok(length + function?.name.len()));
        items_after.set(items_after.get() + functions.count());
        length
    };
    let (length, allocations) = each_allocation(length, |&OutOfMemory| items_after.get() == 0);
    assert_eq!(length, ["gr\u{fc}n", "gr\u{fc}\u{df}", "zeta::never_itself", "zeta::small"].concat().len());
    assert!(allocations > 5, "{allocations}");
}

#[test]
fn the_same_copies_in_any_order_are_the_same_bytes() {
    let mut reversed = copies();
    reversed.reverse();
    assert_eq!(table(&symbols(), &statics(), &reversed), table(&symbols(), &statics(), &copies()));
}

#[test]
fn copies_that_do_not_fit_are_refused() {
    let far = BASE + 8 + 0x1_0000_0000;
    let wrong = [
        Inlined { address: BASE - 4, ..copy("f", 8, None) },
        Inlined { address: BASE + 10, ..copy("f", 8, None) },
        Inlined { entries: Some(vec![Passage { address: far, when: When::Always }]), ..copy("f", 8, None) },
    ];
    for copy in wrong {
        let error = WriteError::OutOfRange { name: "f".to_string(), address: copy.address };
        assert_eq!(table(&[], &[], &[copy]), Err(error));
    }
}

#[test]
#[cfg_attr(miri, ignore = "it compresses 1000 copies")]
fn copies_take_few_bytes() {
    let many: Vec<_> = (0..1000).map(|number| copy("f", 0x100 + 0x40 * number, None)).collect();
    let taken = table(&[], &[], &many).unwrap().len() - table(&[], &[], &[]).unwrap().len();
    assert!(taken < 10 * many.len(), "{taken} bytes");
    // The common part of names is stored once.
    let named =
        |count| (0..count).map(|number| copy(&format!("{}{number:03}", "n".repeat(100)), 8, None)).collect::<Vec<_>>();
    let taken = table(&[], &[], &named(101)).unwrap().len() - table(&[], &[], &named(1)).unwrap().len();
    assert!(taken < 20 * 100, "{taken} bytes");
}

#[test]
fn an_empty_table_is_a_table() {
    let bytes = table(&[], &[], &[]).unwrap();
    let table = SymbolTable::parse(&bytes).unwrap();
    assert!(table.is_empty());
    exercise(&table);
    assert_eq!(table.lookup(BASE), None);
}

#[test]
fn works_where_words_are_aligned_and_with_bytes_behind_it() {
    let table = table(&symbols(), &statics(), &copies()).unwrap();
    for shift in 0..8 {
        let mut bytes = vec![0xa5; shift];
        bytes.extend(&table);
        bytes.extend([0xff; 13]);
        let address = bytes[shift..].as_ptr().addr();
        let count = SymbolTable::parse(&bytes[shift..]).map(|table| table.iter().count());
        let is_aligned = address.is_multiple_of(4);
        assert_eq!(count, if is_aligned { Ok(symbols().len()) } else { Err(Defect::Misaligned { address }.into()) });
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
    for present in tried(0..bytes.len()) {
        let needed = if present < HEADER_BYTES { HEADER_BYTES } else { bytes.len() };
        let error = SymbolTable::parse(&bytes[..present]).unwrap_err();
        assert_eq!(error, SymbolError::Defect(Defect::Truncated { needed, present }));
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
    for bit in tried(0..8 * bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(SymbolTable::parse(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let bytes = table(&symbols(), &statics(), &copies()).unwrap();
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let unsealed = SymbolTable::parse(&bytes).unwrap_err();
        seal(&mut bytes);
        (unsealed, SymbolTable::parse(&bytes).err())
    };
    assert_eq!(changed(0, b'X').0, SymbolError::Magic);
    assert_eq!(changed(12, 1).0, SymbolError::Defect(Defect::Version { found: 1, supported: VERSION }));
    assert!(matches!(changed(20, 200).0, SymbolError::Defect(Defect::Checksum { .. })));
    let inconsistent = |part| Some(SymbolError::Defect(Defect::Inconsistent { part }));
    assert_eq!(changed(20, 200).1, inconsistent("its number of symbols"));
    assert_eq!(changed(HEADER_BYTES, 0x11).1, inconsistent("the order of its addresses"));
    assert_eq!(changed(HEADER_BYTES + 8 + 3, 1).1, inconsistent("an entry"));
    assert_eq!(changed(HEADER_BYTES + 12 * 8, 8).1, inconsistent("an entry number"));
    assert_eq!(changed(HEADER_BYTES + 12 * 8, 7).1, inconsistent("the order of its names"));
    assert_eq!(changed(44, 200).1, inconsistent("its number of symbols"));
    assert_eq!(changed(HEADER_BYTES + 16 * 8 + 24, 0x11).1, inconsistent("an entry number"));
    let data = HEADER_BYTES + 16 * (8 + 2);
    assert_eq!(changed(data, 0x94).1, inconsistent("its ranges of data"), "the first touches the second");
    assert_eq!(changed(data + 4, 0).1, inconsistent("its ranges of data"), "the first is empty");
    assert_eq!(changed(data + 7, 0xff).1, inconsistent("its ranges of data"), "the first goes over the second");
    assert_eq!(changed(38, 1).1, inconsistent("its start of inlined copies"));
    // The last function would end beyond the address space.
    let mut high = bytes.clone();
    high[24..32].copy_from_slice(&(u64::MAX - 0xc2).to_le_bytes());
    seal(&mut high);
    assert_eq!(SymbolTable::parse(&high).err(), inconsistent("an entry"));
    let mut short = bytes.clone();
    short[16..20].copy_from_slice(&[11, 0, 0, 0]);
    assert_eq!(SymbolTable::parse(&short).err(), inconsistent("its length"));
    let sentence = SymbolTable::parse(&bytes[..60]).unwrap_err().to_string();
    assert!(sentence.starts_with("the symbol table is truncated: it needs "), "{sentence}");
}

/// Makes a table whose part about copies is these bytes, with `count` functions.
fn with_part(count: u8, part: &[u8]) -> Vec<u8> {
    let mut bytes = table(&symbols(), &statics(), &[]).unwrap();
    let begin = usize::from(u16::from_le_bytes([bytes[36], bytes[37]]));
    bytes.truncate(begin);
    bytes.extend(pack(part));
    let length = bytes.len() as u32;
    bytes[16..20].copy_from_slice(&length.to_le_bytes());
    bytes[32] = count;
    bytes[40..44].copy_from_slice(&(part.len() as u32).to_le_bytes());
    seal(&mut bytes);
    bytes
}

#[test]
fn copies_that_contradict_the_format_are_refused() {
    let inlined = |count, part: &[u8]| {
        let bytes = with_part(count, part);
        let table = SymbolTable::parse(&bytes).expect("a table");
        table
            .inlined()
            .map(|copies| copies.functions().map(|function| function.unwrap().copies().count()).sum::<usize>())
    };
    // A function `f` with a copy at the base, without entries and exits.
    assert_eq!(inlined(1, &[0, 1, b'f', 4, 0, 0, 0, 0]), Ok(1));
    assert_eq!(inlined(0, &[]), Ok(0));
    let wrong: [(u8, &[u8], &str); 10] = [
        (2, &[0, 1, b'f', 4, 0, 0, 0, 0], "more functions than there are"),
        (0, &[0, 1, b'f', 4, 0, 0, 0, 0], "fewer"),
        (1, &[1, 1, b'f', 0], "begins as no name does"),
        (1, &[0, 1, 0xff, 0], "no text"),
        (1, &[0, 9, b'f', 0], "a name past the end"),
        (1, &[0, 1, b'f', 5, 0, 0, 0, 0], "copies past the end"),
        (1, &[0, 1, b'f', 4, 0, 2 << 3, 0, 0], "in a function that there is not"),
        (1, &[0, 1, b'f', 4, 0, 0, 1, 0], "an entry less than there are"),
        (1, &[0, 1, b'f', 5, 0, 0, 1, 3, 0], "passed in no way"),
        (1, &[0, 1, b'f', 4, 0, 0, 0, 0x80], "a number without its end"),
    ];
    for (count, part, what) in wrong {
        assert_eq!(inlined(count, part), Err(InlinedError::Inconsistent), "{what}");
    }
    // The unpacked size is too small, too large, or much larger than is possible.
    for length in [7, 9, 0xff] {
        let mut bytes = with_part(1, &[0, 1, b'f', 4, 0, 0, 0, 0]);
        bytes[if length == 0xff { 43 } else { 40 }] = length;
        seal(&mut bytes);
        assert_eq!(SymbolTable::parse(&bytes).unwrap().inlined().err(), Some(InlinedError::Inconsistent), "{length}");
    }
}

#[test]
fn no_copies_make_it_panic() {
    let mut random = Random::new(1);
    let (_, original) = encode(BASE, &copies()).unwrap();
    let mut accepted = 0;
    for _ in tried(0..10_000) {
        let mut part = original.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(part.len());
            part[at] = [0, 1, 0x7f, 0xff, random.next() as u8][random.below(5)];
        }
        let bytes = with_part(4, &part);
        let table = SymbolTable::parse(&bytes).expect("a table");
        accepted += usize::from(table.inlined().is_ok());
        exercise(&table);
    }
    assert!(cfg!(miri) || accepted > 300, "only {accepted} of the mutations reached the readers");
}

#[test]
fn no_bytes_make_it_panic() {
    let mut random = Random::new(1);
    let original = table(&symbols(), &statics(), &copies()).unwrap();
    let mut accepted = 0;
    for _ in tried(0..200_000) {
        let mut bytes = original.clone();
        for _ in 0..=random.below(4) {
            let at = 12 + random.below(bytes.len() - 12);
            bytes[at] = [0, 1, 0x7f, 0xff, random.next() as u8][random.below(5)];
        }
        // With a wrong checksum, the reader would reject the table at once.
        seal(&mut bytes);
        if random.below(4) == 0 {
            bytes.truncate(random.below(bytes.len()));
        }
        if let Ok(table) = SymbolTable::parse(&bytes) {
            accepted += 1;
            exercise(&table);
        }
    }
    assert!(cfg!(miri) || accepted > 1000, "only {accepted} of the mutations reached the readers");
    for _ in tried(0..10_000) {
        let length = random.below(200);
        let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        assert!(SymbolTable::parse(&noise).is_err());
    }
}
