//! Maps are read completely, or with an error, and in little memory.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use fallible::failing::{Heap, allocated, each_allocation};

use super::*;
use crate::atomic::{AtomicU64, Cells};
use crate::ir::{Aggregate, Type};

#[global_allocator]
static HEAP: Heap = Heap;

fn add(table: &HashTable, key: &[u64], value: &[u64]) {
    let key: Box<Cells> = key.iter().map(|&word| AtomicU64::new(word)).collect();
    let add = |words: &Cells| {
        words
            .iter()
            .zip(value)
            .for_each(|(word, value)| _ = word.fetch_add(*value, core::sync::atomic::Ordering::Relaxed));
    };
    table.change(&key, add).expect("there is room for the key");
}

/// Tables of four CPUs that share keys of two words, and the expected merged values.
fn tables() -> (Vec<HashTable>, BTreeMap<[u64; 2], u64>) {
    // In Miri, a borrow of a table takes time for each of its words.
    const KEYS: u64 = if cfg!(miri) { 4 } else { 97 };
    let tables: Vec<_> = (0..4).map(|_| HashTable::new(2, 1, if cfg!(miri) { 16 } else { 256 }).unwrap()).collect();
    let mut expected = BTreeMap::new();
    for number in 0..4 * KEYS {
        let key = [number % KEYS, number % 3];
        add(&tables[(number % 4) as usize], &key, &[number]);
        *expected.entry(key).or_default() += number;
    }
    (tables, expected)
}

const COUNTS: MapValue = MapValue::Aggregate(Aggregate::Count);

#[test]
fn what_all_cpus_have_collected_is_read_by_key_or_not_at_all() {
    let (tables, expected) = tables();
    let read = || Entries::read(&tables, COUNTS, &|action| action());
    let (entries, allocations) = each_allocation(read, |&OutOfMemory| true);
    assert!(allocations > 4);
    assert!(entries.iter().eq(expected.iter().map(|(key, value)| (&key[..], core::slice::from_ref(value)))));
}

#[test]
fn keys_that_become_the_same_are_put_together() {
    let (tables, expected) = tables();
    let mut entries = Entries::read(&tables, COUNTS, &|action| action()).unwrap();
    entries.change_keys(|key| key[0] = 0).unwrap();
    let sum = |part: u64| expected.iter().filter(|(key, _)| key[1] == part).map(|(_, value)| value).sum::<u64>();
    let sums = [0, 1, 2].map(|part| ([0, part], [sum(part)]));
    assert!(entries.iter().eq(sums.iter().map(|(key, value)| (&key[..], &value[..]))));
}

#[test]
fn entries_are_sorted_by_their_values_or_by_their_keys() {
    let table = HashTable::new(1, 2, 64).unwrap();
    for (key, text) in
        [(5, b"b\0\0\0\0\0\0\0"), (1, b"ba\0\0\0\0\0\0"), (9, b"a\0\0\0\0\0\0\0"), (2, b"b\0\0\0\0\0\0\0")]
    {
        add(&table, &[key], &[u64::from_le_bytes(*text), 0]);
    }
    let kept = MapValue::Value(Type::Text { words: 2 });
    let mut entries = Entries::read(core::slice::from_ref(&table), kept, &|action| action()).unwrap();
    let keys = |entries: &Entries| entries.iter().map(|(key, _)| key[0]).collect::<Vec<_>>();
    assert_eq!(keys(&entries), [1, 2, 5, 9]);
    entries.sort_by_key(|one, other| other.cmp(one));
    assert_eq!(keys(&entries), [9, 5, 2, 1]);
    let ((), allocations) =
        each_allocation(|| entries.sort_by_number(|value| (value[0] & 0xff).into()), |&OutOfMemory| true);
    assert_eq!((allocations, keys(&entries)), (1, Vec::from([9, 1, 2, 5])));
}

/// Reading a map with many keys takes less memory than its tables.
#[test]
fn a_large_map_is_read_in_less_memory_than_it_takes() {
    let keys = if cfg!(miri) { 1 << 4 } else { 1 << 14 };
    let before = allocated();
    let tables: Vec<_> = (0..4).map(|_| HashTable::new(1, 1, keys as usize).unwrap()).collect();
    let taken = allocated() - before;
    for key in 0..keys {
        tables.iter().for_each(|table| add(table, &[key], &[1]));
    }
    let before = allocated();
    let entries = Entries::read(&tables, COUNTS, &|action| action()).unwrap();
    assert!(entries.iter().len() as u64 == keys && entries.iter().all(|(_, value)| value == [4]));
    assert!(allocated() - before < taken / 2, "{} bytes for {taken}", allocated() - before);
}
