//! What is written is read back, in order, and never torn.

use super::*;
use crate::definition::Source;
use crate::host::Context;
use crate::recorder::Recorder;
use aarch64_kprobes::exception::TrapFrame;
use alloc::boxed::Box;
use core::sync::atomic::AtomicBool;
use std::thread;

fn rings(cpus: usize, records: usize) -> &'static Rings {
    Box::leak(Box::new(Rings::new(cpus, records)))
}

/// Records a hit of event 7 all of whose numbers are `number`.
fn record(rings: &'static Rings, cpu: usize, number: u64) {
    let registers = (0..MAX_ARGUMENTS as u8).map(Source::Register);
    let recorder = Recorder::new(7, registers, rings);
    let mut frame = TrapFrame::default();
    frame.x.fill(number);
    let mut name = [0; 16];
    name[..8].copy_from_slice(&number.to_le_bytes());
    name[8..].copy_from_slice(&number.to_le_bytes());
    let context = Context { cpu, task: number, name, ..Context::default() };
    recorder.record(&frame, number, number, &context, number);
}

/// The number that all numbers of `record` must be.
fn number(record: &Record) -> u64 {
    let number = record.time;
    let name = u128::from(number) | u128::from(number) << 64;
    assert_eq!(record.values, [number; MAX_ARGUMENTS]);
    assert_eq!((record.task, record.address, record.return_address), (number, number, number));
    assert_eq!(record.name, name.to_le_bytes());
    assert_eq!(record.event, 7);
    number
}

fn numbers(rings: &Rings) -> Vec<u64> {
    rings.snapshot().unwrap().records.iter().map(number).collect()
}

#[test]
fn empty_rings_have_no_records() {
    let rings = rings(2, 8);
    assert_eq!(rings.snapshot(), Ok(Snapshot { records: Vec::new(), written: 0, lost: [0, 0].into() }));
    assert!(!rings.holds(7));
}

#[test]
fn the_oldest_records_are_overwritten() {
    let rings = rings(1, 8);
    (0..20).for_each(|number| record(rings, 0, number));
    assert_eq!(numbers(rings), (12..20).collect::<Vec<_>>());
    assert_eq!(rings.written(), 20);
    assert!(rings.holds(7) && !rings.holds(6));
}

#[test]
fn the_records_of_all_cpus_are_in_the_order_of_time() {
    let rings = rings(3, 8);
    [(2, 1), (0, 2), (1, 3), (1, 4), (0, 5)].into_iter().rev().for_each(|(cpu, time)| record(rings, cpu, time));
    assert_eq!(numbers(rings), [1, 2, 3, 4, 5]);
}

#[test]
fn a_cpu_without_a_ring_records_nothing() {
    let rings = rings(1, 8);
    record(rings, 1, 1);
    assert_eq!(rings.written(), 0);
}

#[test]
fn clearing_leaves_what_comes_later() {
    let rings = rings(1, 8);
    (0..10).for_each(|number| record(rings, 0, number));
    rings.clear();
    assert_eq!((numbers(rings), rings.written()), (Vec::new(), 0));
    (10..13).for_each(|number| record(rings, 0, number));
    assert_eq!((numbers(rings), rings.written()), ([10, 11, 12].into(), 3));
}

#[test]
fn a_record_that_is_being_written_is_not_yet_there_and_not_lost() {
    let rings = rings(1, 8);
    record(rings, 0, 1);
    let slot = rings.reserve(0).unwrap();
    assert_eq!(numbers(rings), [1]);
    assert_eq!(rings.snapshot().unwrap().lost, [0]);
    record(rings, 0, 3);
    slot.commit();
    assert_eq!(rings.snapshot().unwrap().lost, [0]);
    assert_eq!(rings.snapshot().unwrap().records.len(), 3);
}

#[test]
fn a_record_that_was_overwritten_is_lost() {
    let rings = rings(1, 8);
    (0..8).for_each(|number| record(rings, 0, number));
    let ring = &rings.rings[0];
    assert!(ring.read(0, 1).is_some());
    let slot = rings.reserve(0).unwrap();
    assert!(ring.read(0, 1).is_none() && ring.is_overwritten(1));
    assert!(ring.read(0, 9).is_none() && !ring.is_overwritten(9));
    slot.commit();
    assert!(ring.read(0, 1).is_none() && ring.is_overwritten(1));
    assert!(ring.read(0, 9).is_some());
}

#[test]
fn a_slot_that_is_being_overwritten_holds_neither_record() {
    let rings = rings(1, 8);
    (0..8).for_each(|number| record(rings, 0, number));
    let first = &rings.rings[0].slots[0];
    assert!(first.is_published(1) && first.is_unchanged(1));
    assert!(!first.is_published(9), "the slot of record 9 still holds record 1");
    let slot = rings.reserve(0).unwrap();
    assert!(!first.is_published(1) && !first.is_unchanged(1) && !first.is_published(9));
    slot.commit();
    assert!(first.is_published(9) && !first.is_unchanged(1));
}

#[test]
fn what_is_recorded_is_the_state_of_the_probed_code() {
    let rings = rings(1, 8);
    let sources = [Source::Register(30), Source::StackPointer, Source::ProgramCounter, Source::ProcessorState];
    let recorder = Recorder::new(7, sources.into_iter(), rings);
    let mut frame = TrapFrame::default();
    (frame.sp, frame.pc, frame.pstate) = (2, 3, TrapFrame::IRQ_MASKED);
    frame.x[30] = 1;
    let state = Context { interrupt: true, ..Context::default() };
    recorder.record(&frame, 4, 5, &state, 6);
    frame.pstate = !TrapFrame::IRQ_MASKED;
    recorder.record(&frame, 4, 0, &Context::default(), 7);
    let records = rings.snapshot().unwrap().records;
    assert_eq!(records[0].values[..4], [1, 2, 3, TrapFrame::IRQ_MASKED]);
    let all = Flags::IRQS_OFF | Flags::INTERRUPT;
    assert_eq!([records[0].flags, records[1].flags], [Flags(all), Flags(0)]);
}

/// Two readers copy while a writer laps them again and again: every record in a copy is whole, they are in
/// order, and none is missing without being counted.
#[test]
fn records_are_never_torn() {
    let rings = rings(1, 16);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            (1..=400_000).for_each(|number| record(rings, 0, number));
            done.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let snapshot = rings.snapshot().unwrap();
                    let numbers: Vec<u64> = snapshot.records.iter().map(number).collect();
                    assert!(numbers.is_sorted_by(|one, next| one < next));
                    for record in &snapshot.records {
                        assert_eq!(record.sequence, record.time);
                    }
                    assert!(numbers.len() as u64 + snapshot.lost[0] <= 16);
                }
            });
        }
    });
    assert_eq!(numbers(rings), (399_985..=400_000).collect::<Vec<_>>());
}
