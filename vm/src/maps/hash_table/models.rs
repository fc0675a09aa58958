//! Models of a table that several CPUs change and read, in every order.

use alloc::sync::Arc;

use kprobes_models::{Model, loom::thread, verify};

use super::tests::all;
use super::*;

/// Adds 1 to both words of the only key's value.
fn step(table: &HashTable) {
    table.change(&[], |value| {
        for word in value {
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    });
}

/// If two CPUs change a value, no change is lost. A reader never sees a partial change.
#[test]
fn changes_are_not_lost_and_values_are_whole() {
    let model = Model::new(|| {
        let table = Arc::new(HashTable::new(0, 2, 1).unwrap());
        let other = thread::spawn({
            let table = table.clone();
            move || step(&table)
        });
        step(&table);
        other.join().unwrap();
        assert_eq!(all(&table), [(Vec::new(), Vec::from([2, 2]))]);
    });
    let reader = Model::new(|| {
        let table = Arc::new(HashTable::new(0, 2, 1).unwrap());
        let writer = thread::spawn({
            let table = table.clone();
            move || step(&table)
        });
        for (_, value) in all(&table) {
            assert_eq!(value, [1, 1]);
        }
        writer.join().unwrap();
    });
    verify(&["lookup.rs"], &[model, reader].map(|model| model.preempted_at_most(2)), &[]);
}
