//! Models of a ring that is read while its CPU writes it, in every order.

use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;

use kprobes_models::{Model, loom::thread, verify};

use super::*;

static NEVER: [AtomicBool; 1] = [AtomicBool::new(false)];

/// The size of a record of which two fill a page.
const SIZE: usize = RECORD_HEADER + 16;

fn rings() -> Rings {
    Rings::new(1, 2 * PAGE, &NEVER).unwrap()
}

/// Writes a record that contains `number` twice, because loom tries every value for each load. As for a usual hit, the
/// record goes into the current page if that has room. Returns whether there was room.
fn record(rings: &Rings, number: u64) -> bool {
    let ring = &rings.rings[0];
    let reservation = ring.reserve_here(SIZE).or_else(|| {
        assert!(ring.enter());
        ring.reserve(SIZE)
    });
    let is_written = reservation.is_some();
    if let Some(reservation) = reservation {
        // SAFETY: the reservation has six words.
        unsafe {
            reservation.set(0, SIZE as u64);
            reservation.set(4, number);
            reservation.set(5, number);
        }
        reservation.commit();
    }
    ring.leave();
    is_written
}

/// Returns the number in each record, after checking that the record is whole, and the number of records missing before
/// it.
fn numbers(snapshot: &Snapshot) -> Vec<(u64, u64)> {
    let number = |record: Record<'_>| {
        assert_eq!(record.word(0), record.word(8), "a record is torn");
        (record.word(0), record.lost)
    };
    snapshot.records().unwrap().map(number).collect()
}

/// Checks that a reader finds each written record whole, or learns that it is missing.
fn check(taken: &[(u64, u64)], next: &mut u64) {
    for &(number, lost) in taken {
        assert_eq!(number, *next + lost);
        *next = number + 1;
    }
}

/// Records are overwritten while they are read: the copies are whole and in order, and missing records are counted.
fn overwriting() -> Model {
    Model::new(|| {
        let rings = Arc::new(rings());
        (0..3).for_each(|number| _ = record(&rings, number));
        let writer = thread::spawn({
            let rings = rings.clone();
            move || (3..5).for_each(|number| _ = record(&rings, number))
        });
        let mut next = 0;
        check(&numbers(&rings.take(None).unwrap()), &mut next);
        writer.join().unwrap();
        check(&numbers(&rings.take(None).unwrap()), &mut next);
        assert_eq!(next, 5);
    })
    .preempted_at_most(3)
}

/// In the mode without overwriting, only taken records are replaced.
fn discarding() -> Model {
    Model::new(|| {
        let rings = Arc::new(rings());
        rings.set_overwrites(false);
        (0..3).for_each(|number| _ = record(&rings, number));
        let writer = thread::spawn({
            let rings = rings.clone();
            move || [3, 4].map(|number| record(&rings, number))
        });
        let mut found = numbers(&rings.take(None).unwrap());
        let written = writer.join().unwrap();
        found.extend(numbers(&rings.take(None).unwrap()));
        let all: Vec<(u64, u64)> = (0..5).map(|number| (number, 0)).collect();
        assert!(written[0]);
        assert_eq!(found, all[..if written[1] { 5 } else { 4 }]);
    })
    .preempted_at_most(3)
}

/// Cleared records are not reported as missing, even if they had found no room.
fn clearing() -> Model {
    Model::new(|| {
        let rings = Arc::new(rings());
        rings.set_overwrites(false);
        (0..5).for_each(|number| _ = record(&rings, number));
        rings.clear();
        let writer = thread::spawn({
            let rings = rings.clone();
            move || record(&rings, 5)
        });
        let lost = || rings.snapshot().unwrap().counts().map(|counts| counts.lost).sum::<u64>();
        assert_eq!(lost(), 0);
        assert!(writer.join().unwrap());
        assert_eq!((lost(), numbers(&rings.take(None).unwrap())), (0, [(5, 0)].into()));
    })
    .preempted_at_most(3)
}

#[test]
fn records_are_whole_or_said_to_be_missing() {
    // These order the loads of a reader before the stores of a writer that has seen the reader finish. In loom, no load
    // returns a value that is stored later, so the weaker orders go unnoticed.
    let unnoticed = [
        "trace/src/hit/write/reservation.rs: load: Acquire to Relaxed",
        "trace/src/ring/snapshot.rs: store: Release to Relaxed",
    ];
    verify(&["ring/mod.rs", "snapshot.rs", "reservation.rs"], &[overwriting(), discarding(), clearing()], &unnoticed);
}
