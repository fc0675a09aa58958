//! A ring is read while its CPU writes it, in every order.

use alloc::sync::Arc;

use kprobes_models::{Model, loom::thread, verify};

use super::*;

/// What is read is whole, also where it lies in the place of what was read before; and what is neither read nor there is
/// counted.
#[test]
fn records_are_read_whole_or_counted() {
    let model = Model::new(|| {
        let ring = Arc::new(Ring::new(4).unwrap());
        ring.write(1, 1, &[AtomicU64::new(1)]);
        let writer = thread::spawn({
            let ring = ring.clone();
            move || ring.write(2, 2, &[AtomicU64::new(2)])
        });
        let mut found = 0;
        for _ in 0..2 {
            if let Some(record) = ring.take().unwrap() {
                assert_eq!((u64::from(record.action), record.values), (record.time, Vec::from([record.time])));
                found += 1;
            }
        }
        writer.join().unwrap();
        found += u64::from(ring.take().unwrap().is_some());
        assert_eq!(found + ring.lost(), 2);
    });
    // What keeps a place from being written before it has been read: in a model, nothing is read before it is written.
    let unnoticed =
        ["vm/src/hit/append.rs: load: Acquire to Relaxed", "vm/src/store/ring.rs: store: Release to Relaxed"];
    verify(&["ring.rs", "append.rs"], &[model], &unnoticed);
}
