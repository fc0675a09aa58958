//! A ring is read while its CPU writes it, in every order.

use alloc::sync::Arc;

use kprobes_models::{Model, loom::thread, verify};

use super::*;

/// Writes a record all of whose numbers are `number`: two, as loom tries for each what it may be loaded as.
fn record(rings: &Rings, number: u64) {
    let slot = rings.reserve(0).unwrap();
    slot.locate(number, number);
    slot.commit();
}

/// A record is overwritten while it is read: what is copied is whole, and what is missing is counted.
#[test]
fn a_record_that_is_overwritten_is_read_whole_or_lost() {
    let model = Model::new(|| {
        let rings = Arc::new(Rings::new(1, 1));
        record(&rings, 1);
        let writer = thread::spawn({
            let rings = rings.clone();
            move || record(&rings, 2)
        });
        let snapshot = rings.snapshot().unwrap();
        for record in &snapshot.records {
            assert_eq!((record.address, record.return_address), (record.sequence, record.sequence));
        }
        let ring = &rings.rings[0];
        assert!(ring.read(0, 1).is_some() || ring.is_overwritten(1));
        writer.join().unwrap();
        assert_eq!(rings.snapshot().unwrap().records.len(), 1);
    });
    verify(&["ring.rs", "slot.rs"], &[model], &[]);
}
