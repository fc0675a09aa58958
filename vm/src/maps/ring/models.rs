//! Models of a ring that is read while its CPU writes it, in every order.

use alloc::sync::Arc;

use kprobes_models::{Model, loom::thread, verify};

use super::*;

/// Records are read completely, even if they replace others that were read before. Records that are not read and not in
/// the ring are counted.
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
    // These orders keep a place from being written before it has been read. In a model, no load returns a value that is
    // stored later, so weaker orders go unnoticed.
    let unnoticed =
        ["vm/src/hit/append.rs: load: Acquire to Relaxed", "vm/src/maps/ring.rs: store: Release to Relaxed"];
    verify(&["ring.rs", "append.rs"], &[model], &unnoticed);
}
