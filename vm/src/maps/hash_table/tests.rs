//! Tables in one thread, and shared by threads.

use core::sync::atomic::AtomicBool;
use std::collections::BTreeMap;
use std::iter;
use std::vec;

use super::*;

fn key(words: &[u64]) -> Box<Cells> {
    words.iter().map(|&word| AtomicU64::new(word)).collect()
}

fn add(table: &HashTable, words: &[u64], amount: u64) -> Option<u64> {
    table.change(&key(words), |value| value[0].fetch_add(amount, Ordering::Relaxed) + amount)
}

fn get(table: &HashTable, words: &[u64]) -> Option<u64> {
    table.with_value(&key(words), |value| value[0].load(Ordering::Relaxed))
}

fn entries(table: &HashTable, bucket: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
    let mut rows = Vec::new();
    table.read(bucket, &|action| action(), &mut rows).unwrap();
    let row = |row: &[u64]| (row[..table.key_words].into(), row[table.key_words..].into());
    rows.chunks_exact(table.key_words + table.value_words).map(row).collect()
}

pub(super) fn all(table: &HashTable) -> Vec<(Vec<u64>, Vec<u64>)> {
    let mut all: Vec<_> = (0..table.buckets).flat_map(|bucket| entries(table, bucket)).collect();
    all.sort();
    all
}

/// Returns the keys whose home is bucket `home` of a table, in ascending order. There are enough for all tests among
/// the first million numbers, unless the hash is bad.
fn keys_at(table: &HashTable, home: usize) -> impl Iterator<Item = u64> {
    (0..1 << 20).filter(move |&word| table.home(&key(&[word])) == home)
}

#[test]
fn keys_have_values_of_their_own() {
    const NUMBERS: u64 = if cfg!(miri) { 10 } else { 40 };
    let table = HashTable::new(2, 1, if cfg!(miri) { 16 } else { 64 }).unwrap();
    for number in 0..NUMBERS {
        assert_eq!(add(&table, &[number, 7], number), Some(number));
        assert_eq!(add(&table, &[7, number], 100), Some(if number == 7 { 107 } else { 100 }));
    }
    assert_eq!(all(&table).len() as u64, 2 * NUMBERS - 1);
    assert_eq!(get(&table, &[7, 9]), Some(100));
    table.remove(&key(&[7, 9]));
    assert_eq!(get(&table, &[7, 9]), None);
    assert_eq!(add(&table, &[7, 9], 5), Some(5));
    assert_eq!(table.dropped(), 0);
}

#[test]
fn without_a_key_there_is_one_value() {
    let table = HashTable::new(0, 1, 64).unwrap();
    assert_eq!(all(&table), []);
    add(&table, &[], 3);
    add(&table, &[], 4);
    assert_eq!(all(&table), [(Vec::new(), [7].to_vec())]);
}

#[test]
fn as_many_keys_find_a_place_as_are_promised() {
    // Numbers, addresses of functions, and short strings that differ in their last letters.
    let patterns: [fn(u64) -> u64; 5] =
        [|n| n, |n| 0xffff_ffc0_0000_0000 + 4 * n, |n| 64 * n, |n| n << 40, |n| n.reverse_bits()];
    for &entries in if cfg!(miri) { &[16][..] } else { &[16, 32, 64, 128, 1024] } {
        for pattern in patterns.into_iter().take(if cfg!(miri) { 2 } else { 5 }) {
            let table = HashTable::new(1, 1, entries).unwrap();
            for number in 0..entries as u64 {
                add(&table, &[pattern(number)], number);
            }
            assert_eq!((table.dropped(), all(&table).len()), (0, entries));
            for number in 0..entries as u64 {
                assert_eq!(get(&table, &[pattern(number)]), Some(number));
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "it adds more than a million keys")]
fn keys_at_equal_distances_find_a_place_whatever_the_distance() {
    // The hash multiplies by the golden ratio. Multiples of it by Fibonacci numbers are nearly integers, so these
    // distances are the hardest.
    let fibonacci = iter::successors(Some((1_u64, 2_u64)), |&(one, next)| Some((next, one.checked_add(next)?)));
    let distances = fibonacci.map(|(distance, _)| distance).filter(|&distance| distance < u64::MAX >> 10);
    for distance in distances.chain((0..54).map(|bit| 1 << bit)).chain(1..500) {
        for first in [0, 0xffff_ffc0_0000_0000] {
            let table = HashTable::new(1, 1, 1024).unwrap();
            for number in 0..1000 {
                add(&table, &[distance.wrapping_mul(number).wrapping_add(first)], 1);
            }
            assert_eq!(table.dropped(), 0, "{distance} from {first:#x} on");
        }
    }
}

#[test]
fn up_to_128_keys_find_a_place_though_they_have_one_home() {
    for &entries in if cfg!(miri) { &[16][..] } else { &[16, 128] } {
        let table = HashTable::new(1, 1, entries).unwrap();
        let last = 2 * entries / WAYS - 1;
        let keys: Vec<u64> = keys_at(&table, last).take(entries + 1).collect();
        keys[..entries].iter().for_each(|&word| _ = add(&table, &[word], word));
        assert_eq!(table.dropped(), 0);
        keys[..entries].iter().for_each(|&word| assert_eq!(get(&table, &[word]), Some(word)));
        // There is no later bucket.
        assert_eq!(add(&table, &[keys[entries]], 1), None);
        assert_eq!((table.dropped(), get(&table, &[keys[entries]])), (1, None));
    }
}

#[test]
fn a_key_behind_its_home_stays_one_when_room_is_made() {
    let table = HashTable::new(1, 1, 16).unwrap();
    let keys: Vec<u64> = keys_at(&table, 1).take(12).collect();
    keys.iter().for_each(|&word| _ = add(&table, &[word], 1));
    assert_eq!((entries(&table, 1).len(), entries(&table, 2).len()), (8, 4));
    table.remove(&key(&[keys[0]]));
    assert_eq!(add(&table, &[keys[11]], 1), Some(2));
    table.remove(&key(&[keys[11]]));
    assert_eq!(get(&table, &[keys[11]]), None);
    // A free slot in the home is preferred.
    assert_eq!(add(&table, &[keys[11]], 1), Some(1));
    assert_eq!((entries(&table, 1).len(), entries(&table, 2).len()), (8, 3));
    assert_eq!(all(&table).len(), 11);
}

#[test]
fn what_has_no_place_is_dropped_and_counted() {
    let table = HashTable::new(1, 1, 16).unwrap();
    let keys = if cfg!(miri) { 100 } else { 1000 };
    for number in 0..keys {
        add(&table, &[number], 1);
    }
    let kept = all(&table).len() as u64;
    assert_eq!(kept, (table.buckets * WAYS) as u64);
    assert_eq!(table.dropped(), keys - kept);
    for (key, _) in all(&table) {
        assert_eq!(add(&table, &key, 1), Some(2));
    }
}

#[test]
fn clearing_takes_keys_out_and_zeroing_keeps_them() {
    let table = HashTable::new(1, 2, 16).unwrap();
    let words: Vec<u64> = keys_at(&table, 0).take(10).collect();
    words.iter().for_each(|&word| _ = add(&table, &[word], 5));
    (0..table.buckets).for_each(|bucket| table.clear(bucket, true));
    assert_eq!(all(&table), words.iter().map(|&word| (vec![word], vec![0, 0])).collect::<Vec<_>>());
    (0..table.buckets).for_each(|bucket| table.clear(bucket, false));
    assert_eq!(all(&table), []);
    words.iter().for_each(|&word| assert_eq!(get(&table, &[word]), None));
}

/// Adds 1 to all words of a key's value.
fn step(table: &HashTable, word: u64) {
    table.change(&key(&[word]), |value| {
        value.iter().for_each(|word| word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
    });
}

#[test]
fn threads_lose_nothing_and_readers_see_whole_values() {
    const ROUNDS: u64 = if cfg!(miri) { 15 } else { 30_000 };
    let table = HashTable::new(1, 2, 64).unwrap();
    // Enough keys with one home that some are in later buckets.
    let words: Vec<u64> = keys_at(&table, 3).take(11).collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..ROUNDS).for_each(|number| step(&table, words[number as usize % words.len()])));
        }
        scope.spawn(|| {
            for number in 0..ROUNDS as usize {
                let whole = |value: &Cells| value[0].load(Ordering::Relaxed) == value[1].load(Ordering::Relaxed);
                assert_ne!(table.with_value(&key(&[words[number % words.len()]]), whole), Some(false));
            }
        });
        for _ in 0..ROUNDS / 15 {
            assert!(all(&table).iter().all(|(_, value)| value[0] == value[1]));
        }
    });
    let mut expected: BTreeMap<Vec<u64>, Vec<u64>> = BTreeMap::new();
    for number in 0..ROUNDS {
        let value = expected.entry(vec![words[number as usize % words.len()]]).or_insert(vec![0, 0]);
        value.iter_mut().for_each(|count| *count += 3);
    }
    assert_eq!(all(&table), expected.into_iter().collect::<Vec<_>>());
}

#[test]
fn what_is_put_taken_out_and_looked_at_by_threads_at_a_time_is_never_of_another_key() {
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };
    let table = HashTable::new(1, 2, 16).unwrap();
    let words: Vec<u64> = keys_at(&table, 1).take(12).collect();
    let (table, words) = (&table, &words);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            scope.spawn(move || {
                for number in 0..ROUNDS {
                    let word = words[(number * 7 + thread) as usize % words.len()];
                    if number % 3 == thread {
                        table.remove(&key(&[word]));
                        continue;
                    }
                    table.change(&key(&[word]), |value| {
                        value[0].store(word, Ordering::Relaxed);
                        value[1].store(!word, Ordering::Relaxed);
                    });
                    let both = |value: &Cells| value[1].load(Ordering::Relaxed) == !value[0].load(Ordering::Relaxed);
                    let is_right = |value: &Cells| both(value) && value[0].load(Ordering::Relaxed) == word;
                    assert_ne!(table.with_value(&key(&[word]), is_right), Some(false));
                }
            });
        }
    });
    let all = all(table);
    assert!(all.iter().all(|(key, value)| value[..] == [key[0], !key[0]]), "{all:?}");
    assert!(all.windows(2).all(|two| two[0].0 != two[1].0), "no key is there twice: {all:?}");
    assert_eq!(table.dropped(), 0);
}

#[test]
fn a_reader_gets_ahead_however_often_the_bucket_is_changed() {
    // Reading this value takes longer than changing it.
    const WORDS: usize = if cfg!(miri) { 16 } else { 256 };
    let table = HashTable::new(1, WORDS, 16).unwrap();
    let is_over = AtomicBool::new(false);
    step(&table, 1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    table.change(&key(&[1]), |value| {
                        for word in [&value[0], &value[WORDS - 1]] {
                            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        }
                    });
                }
            });
        }
        let home = table.home(&key(&[1]));
        let found: Vec<_> = (0..if cfg!(miri) { 3 } else { 300 }).map(|_| entries(&table, home)).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(found.iter().flatten().all(|(_, value)| value[0] == value[WORDS - 1]));
    });
}

#[test]
fn keys_are_counted_and_met_one_after_the_other() {
    let table = HashTable::new(1, 1, 16).unwrap();
    // More keys with one home than a bucket has room for.
    let words: Vec<u64> = keys_at(&table, 1).take(12).collect();
    for &word in &words {
        add(&table, &[word], 1);
        add(&table, &[word], 1);
    }
    assert_eq!(table.keys(), 12);
    table.remove(&key(&[words[3]]));
    table.remove(&key(&[words[3]]));
    assert_eq!(table.keys(), 11);
    let place = key(&[0]);
    let mut met = Vec::new();
    for bucket in 0..table.buckets {
        let mut from = bucket * table.ways;
        while let Some(found) = table.key_from(from, &place) {
            assert!((from..(bucket + 1) * table.ways).contains(&found));
            met.push(place[0].load(Ordering::Relaxed));
            from = found + 1;
            if from == (bucket + 1) * table.ways {
                break;
            }
        }
    }
    met.sort_unstable();
    let mut expected: Vec<u64> = words.iter().copied().filter(|&word| word != words[3]).collect();
    expected.sort_unstable();
    assert_eq!(met, expected);
    table.clear(0, true);
    assert_eq!(table.keys(), 11);
    (0..table.buckets).for_each(|bucket| table.clear(bucket, false));
    assert_eq!(table.keys(), 0);
    assert_eq!(table.key_from(table.buckets * table.ways, &place), None);
}
