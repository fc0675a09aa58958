//! Records are read back in order, and never torn.

use kprobes_random::tried::{is_thorough, tried};

use super::*;
use crate::context::Context;
use crate::fetch::{Fetch, RecordedPart, Register, Source};
use crate::format::{Format, Shape, Type};
use crate::hit::Registers;
use crate::hit::write::RecordedHit;
use crate::recorder::{Flags, PRINT_EVENT, PRINT_HEADER, PRINT_MAX, RAW_EVENT, RAW_MAX, Recorder};
use aarch64_kprobes::exception::TrapFrame;
use core::ops::Range;
use std::string::ToString;
use std::thread;

const ARGUMENTS: u8 = 4;
/// The size of a record of these tests, in bytes, and the number of records in a page.
const SIZE: usize = RECORD_HEADER + 16 + 8 * ARGUMENTS as usize;
const IN_PAGE: u64 = ((PAGE - PAGE_HEADER) / SIZE) as u64;

static INTERRUPTS: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(true)];

fn rings(cpus: usize, pages: usize) -> &'static Rings {
    Box::leak(Box::new(Rings::new(cpus, pages * PAGE, &INTERRUPTS).unwrap()))
}

fn recorder(rings: &'static Rings, sources: &[Source]) -> Recorder {
    let arguments: Vec<_> = sources
        .iter()
        .map(|source| Fetch { source: source.clone(), reads: Vec::new(), part: RecordedPart::Whole })
        .collect();
    let names: Vec<_> = (0..sources.len()).map(|number| std::format!("arg{number}")).collect();
    let format = Format::new(Shape::Probe, names.iter().map(|name| (name.as_str(), Type::DEFAULT))).unwrap();
    Recorder::new(7, &format, &arguments, Box::new([]), None, rings).unwrap()
}

/// The fields of a format are public. However they were changed, a record has room for all that is written.
#[test]
fn a_record_has_room_for_what_is_written_whatever_its_format_says() {
    for change in 0..4 {
        let rings = rings(1, 2);
        let argument = Fetch { source: Source::Register(Register::SP), reads: Vec::new(), part: RecordedPart::Whole };
        let mut format = Format::new(Shape::Probe, (0..32).map(|_| ("argument", Type::DEFAULT))).unwrap();
        match change {
            0 => format.fields.iter_mut().for_each(|field| field.offset = 0),
            1 => format.fields.iter_mut().for_each(|field| field.offset = 1 << 40),
            2 => format.fields.last_mut().unwrap().offset = 3,
            _ => {}
        }
        let recorder = Recorder::new(7, &format, &vec![argument; 32], Box::new([]), None, rings).unwrap();
        for number in 0..100 {
            // SAFETY: only this thread writes the ring, and the event is not one of returns, so the hit has no return
            // address.
            unsafe { recorder.record(Registers::Frame(&TrapFrame::default()), &hit(0, number)) };
        }
        let snapshot = rings.snapshot().unwrap();
        let records: Vec<_> = snapshot.records().unwrap().collect();
        assert_eq!(records.last().map(|record| record.time), Some(99), "{change}");
        assert!(records.iter().all(|record| record.bytes.len() >= 8 * 34), "{change}");
    }
}

fn hit(cpu: usize, number: u64) -> RecordedHit<'static> {
    let context = Context { cpu, task: number, name: [number; 2], time: number };
    RecordedHit { context, address: number, return_address: None, entry: &[], is_caller_in_x30: false }
}

/// Records a hit of event 7 for each of `all`. The numbers of a hit are the same.
fn record_each(rings: &'static Rings, cpu: usize, all: Range<u64>) {
    let sources: Vec<_> = (0..ARGUMENTS).map(|number| Source::Register(Register::x(number).unwrap())).collect();
    let recorder = recorder(rings, &sources);
    let mut frame = TrapFrame::default();
    for number in all {
        frame.x.fill(number);
        // SAFETY: the tests have one writer for each CPU, and the event is not one of returns, so the hit has no return
        // address.
        unsafe { recorder.record(Registers::Frame(&frame), &hit(cpu, number)) };
    }
}

fn record(rings: &'static Rings, cpu: usize, number: u64) {
    record_each(rings, cpu, number..number + 1);
}

/// Returns the number in `record`, after checking that all its numbers are equal.
fn number(record: &Record<'_>) -> u64 {
    let number = record.time;
    assert_eq!((record.event(), record.task(), record.faults), (7, number as u32, 0));
    assert_eq!(record.name, *[number; 2].map(u64::to_le_bytes).as_flattened());
    assert_eq!(record.bytes.len(), SIZE - RECORD_HEADER);
    (8..record.bytes.len()).step_by(8).for_each(|at| assert_eq!(record.word(at), number));
    number
}

fn numbers(snapshot: &Snapshot) -> Vec<u64> {
    snapshot.records().unwrap().map(|record| number(&record)).collect()
}

fn present(rings: &Rings) -> Vec<u64> {
    numbers(&rings.snapshot().unwrap())
}

fn counted(rings: &Rings) -> u64 {
    rings.snapshot().unwrap().counted()
}

fn losses(snapshot: &Snapshot) -> Vec<(u64, u64)> {
    snapshot.records().unwrap().filter(|record| record.lost > 0).map(|record| (record.time, record.lost)).collect()
}

#[test]
fn empty_rings_have_no_records() {
    let rings = rings(2, 2);
    let snapshot = rings.snapshot().unwrap();
    assert_eq!((snapshot.records().unwrap().count(), snapshot.present(), snapshot.written()), (0, 0, 0));
}

/// Messages of every possible length are recorded completely, with a line end and a zero.
#[test]
fn texts_are_records() {
    let rings = rings(1, 2);
    let context = Context { cpu: 0, task: 9, name: [1; 2], time: 5 };
    for length in (0..30).chain([PRINT_MAX - 1, PRINT_MAX]) {
        for end in ["", "\n"] {
            let text = "x".repeat(length - end.len().min(length)) + end;
            // SAFETY: only this thread writes the ring.
            assert!(unsafe { rings.rings[0].mark(&context, true, 7, text.as_bytes()) });
            let taken = rings.take(None).unwrap();
            let record = taken.records().unwrap().next().unwrap();
            assert_eq!((record.event(), record.task(), record.time, record.word(8)), (PRINT_EVENT, 9, 5, 7));
            assert_eq!(record.flags(), Flags(Flags::IRQS_OFF));
            let expected = std::format!("{}\n\0", text.trim_end());
            assert_eq!(&record.bytes[PRINT_HEADER..], expected.as_bytes(), "{length}");
        }
    }
}

/// The number and all bytes are recorded, rounded up to four bytes.
#[test]
fn raw_data_is_a_record() {
    let rings = rings(1, 2);
    let context = Context { cpu: 0, task: 9, name: [1; 2], time: 5 };
    for length in (4..30).chain([RAW_MAX - 1, RAW_MAX]) {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 37 + 0xe0) as u8).collect();
        // SAFETY: only this thread writes the ring.
        assert!(unsafe { rings.rings[0].mark_raw(&context, true, &bytes) });
        let taken = rings.take(None).unwrap();
        let record = taken.records().unwrap().next().unwrap();
        assert_eq!((record.event(), record.task(), record.time), (RAW_EVENT, 9, 5));
        let padded = bytes.iter().copied().chain([0; 3]).take(length.next_multiple_of(4)).collect::<Vec<_>>();
        assert_eq!(record.bytes[8..], padded, "{length}");
    }
}

/// The writer of a message is told that a ring that does not overwrite has no room for it.
#[test]
fn messages_without_room_are_refused() {
    let rings = rings(1, 2);
    rings.set_overwrites(false);
    let context = Context { cpu: 0, task: 9, name: [1; 2], time: 5 };
    // SAFETY: only this thread writes the ring.
    let mark = || unsafe { rings.rings[0].mark(&context, true, 7, &[b'x'; PRINT_MAX]) };
    let accepted = core::iter::repeat_with(mark).take_while(|is_recorded| *is_recorded).count() as u64;
    let stats = rings.snapshot().unwrap().stats().next().unwrap();
    assert!(accepted > 0);
    assert_eq!((stats.entries, stats.dropped), (accepted, 1));
}

/// Missing records were overwritten or found no room; the reason stays even if the mode changes later.
#[test]
fn a_ring_says_what_was_overwritten_and_what_was_dropped() {
    let rings = rings(2, 2);
    let stats = || rings.snapshot().unwrap().stats().next().unwrap();
    record_each(rings, 0, 0..3 * IN_PAGE);
    let Stats { entries, overrun, dropped, read, bytes, oldest } = stats();
    assert_eq!((entries, overrun, dropped, read, oldest), (2 * IN_PAGE, IN_PAGE, 0, 0, Some(IN_PAGE)));
    assert_eq!(bytes, entries * SIZE as u64);
    rings.set_overwrites(false);
    record_each(rings, 0, 0..5);
    let Stats { entries, overrun, dropped, .. } = stats();
    assert_eq!((entries, overrun, dropped), (2 * IN_PAGE, IN_PAGE, 5));
    rings.take(None).unwrap();
    record(rings, 0, 7);
    assert_eq!(rings.snapshot().unwrap().count(), 3 * IN_PAGE + 6);
    let Stats { entries, overrun, dropped, read, .. } = stats();
    assert_eq!((entries, overrun, dropped, read), (1, IN_PAGE, 5, 2 * IN_PAGE));
    rings.clear_of(Some(1));
    assert_eq!(stats().entries, 1);
    rings.clear_of(Some(0));
    assert_eq!(stats(), Stats::default());
}

#[test]
fn the_oldest_records_are_overwritten_by_pages() {
    let rings = rings(1, 3);
    let count = 3 * IN_PAGE + 1;
    record_each(rings, 0, 0..count);
    assert_eq!(present(rings), (IN_PAGE..count).collect::<Vec<_>>());
    let snapshot = rings.snapshot().unwrap();
    assert_eq!((snapshot.present(), snapshot.written()), (2 * IN_PAGE + 1, count));
    assert_eq!(losses(&snapshot), [], "nothing is missing behind a record");
}

#[test]
fn the_records_of_all_cpus_are_in_the_order_of_time() {
    let rings = rings(3, 2);
    [(2, 1), (0, 2), (1, 3), (1, 4), (0, 5)].into_iter().for_each(|(cpu, time)| record(rings, cpu, time));
    assert_eq!(present(rings), [1, 2, 3, 4, 5]);
}

#[test]
fn a_cpu_without_a_ring_records_nothing() {
    let rings = rings(1, 2);
    record(rings, 1, 1);
    assert_eq!(present(rings), []);
}

#[test]
fn clearing_leaves_what_comes_later() {
    let rings = rings(1, 2);
    record_each(rings, 0, 0..10);
    rings.clear();
    assert_eq!(rings.snapshot().unwrap().written(), 0);
    record_each(rings, 0, 10..13);
    let snapshot = rings.snapshot().unwrap();
    assert_eq!((numbers(&snapshot), snapshot.written(), losses(&snapshot)), ([10, 11, 12].into(), 3, [].into()));
}

/// Clearing forgets records that found no room before, and counts those that find none afterwards.
#[test]
fn clearing_forgets_what_has_found_no_room() {
    let rings = rings(1, 2);
    rings.set_overwrites(false);
    record_each(rings, 0, 0..2 * IN_PAGE + 5);
    rings.clear();
    assert_eq!(counted(rings), 0);
    record_each(rings, 0, 0..2 * IN_PAGE + 3);
    assert_eq!((rings.snapshot().unwrap().present(), counted(rings)), (2 * IN_PAGE, 2 * IN_PAGE + 3));
    let ring = &rings.rings[0];
    rings.clear();
    record(rings, 0, 0);
    assert!(ring.enter());
    record(rings, 0, 1);
    ring.leave();
    assert_eq!(counted(rings), 2);
    rings.clear();
    assert_eq!(counted(rings), 0);
    record(rings, 0, 2);
    assert_eq!((present(rings), counted(rings)), ([2].into(), 1));
}

#[test]
fn what_is_taken_is_gone_and_what_was_overwritten_before_is_told() {
    let rings = rings(1, 2);
    record_each(rings, 0, 0..3);
    assert_eq!(numbers(&rings.take(None).unwrap()), [0, 1, 2]);
    assert_eq!(numbers(&rings.take(None).unwrap()), []);
    let count = 3 * IN_PAGE;
    record_each(rings, 0, 3..count);
    let snapshot = rings.take(None).unwrap();
    assert_eq!(numbers(&snapshot), (IN_PAGE..count).collect::<Vec<_>>());
    assert_eq!(losses(&snapshot), [(IN_PAGE, IN_PAGE - 3)]);
    assert_eq!(rings.take(None).unwrap().written(), IN_PAGE - 3);
}

#[test]
fn what_finds_no_room_is_discarded_and_told_where_it_is_missing() {
    let rings = rings(1, 2);
    rings.set_overwrites(false);
    assert!(!rings.overwrites());
    record_each(rings, 0, 0..2 * IN_PAGE + 5);
    let snapshot = rings.take(None).unwrap();
    assert_eq!((snapshot.present(), snapshot.counted()), (2 * IN_PAGE, 2 * IN_PAGE + 5));
    assert_eq!(snapshot.written(), 2 * IN_PAGE, "what found no room was not written");
    assert_eq!(numbers(&snapshot), (0..2 * IN_PAGE).collect::<Vec<_>>());
    record_each(rings, 0, 1000..1003);
    let snapshot = rings.take(None).unwrap();
    assert_eq!((numbers(&snapshot), losses(&snapshot)), ([1000, 1001, 1002].into(), [(1000, 5)].into()));
}

/// Records that found no room before a snapshot are counted with it, and not again with the later records.
#[test]
fn what_a_snapshot_counts_as_dropped_is_not_counted_later() {
    let rings = rings(1, 2);
    rings.set_overwrites(false);
    record_each(rings, 0, 0..2 * IN_PAGE + 5);
    let dropped = |snapshot: &Snapshot| snapshot.stats().next().unwrap().dropped;
    let taken = rings.split_off(true).unwrap().unwrap();
    assert_eq!((taken.present(), dropped(&taken)), (2 * IN_PAGE, 5));
    record_each(rings, 0, 1000..1003);
    let later = rings.snapshot().unwrap();
    assert_eq!((numbers(&later), dropped(&later)), ([1000, 1001, 1002].into(), 0));
    record_each(rings, 0, 1003..1003 + 2 * IN_PAGE);
    assert_eq!(dropped(&rings.snapshot().unwrap()), 3);
}

#[test]
fn nothing_is_recorded_while_it_is_off() {
    let rings = rings(2, 2);
    rings.set_on(false);
    record(rings, 0, 1);
    rings.set_on(true);
    assert!(rings.is_on());
    record(rings, 0, 2);
    let snapshot = rings.snapshot().unwrap();
    assert_eq!((numbers(&snapshot), snapshot.written()), ([2].into(), 1));
}

/// A hit that interrupts the recording of another is counted as lost; the other record is whole.
#[test]
fn a_hit_in_a_hit_is_counted() {
    let rings = rings(1, 2);
    let ring = &rings.rings[0];
    assert!(ring.enter());
    assert!(ring.reserve(SIZE).is_some());
    record(rings, 0, 1);
    ring.leave();
    record_each(rings, 0, 2..2 + IN_PAGE + 1);
    let snapshot = rings.take(None).unwrap();
    assert_eq!((snapshot.present(), snapshot.written(), snapshot.counted()), (IN_PAGE + 1, IN_PAGE + 1, IN_PAGE + 2));
    assert_eq!(losses(&snapshot), [(2, 1)], "told where the next page begins");
}

#[test]
fn a_record_that_is_being_written_is_not_there_and_not_lost() {
    let rings = rings(1, 2);
    record(rings, 0, 1);
    let ring = &rings.rings[0];
    let reservation = ring.reserve(SIZE).unwrap();
    let snapshot = rings.snapshot().unwrap();
    assert_eq!((numbers(&snapshot), snapshot.written()), ([1].into(), 1));
    reservation.commit();
}

#[test]
fn what_is_recorded_is_the_state_of_the_probed_code() {
    let rings = rings(2, 2);
    let sources = [Register::x(30).unwrap(), Register::SP, Register::PC, Register::PSTATE].map(Source::Register);
    let mut frame = TrapFrame::default();
    (frame.sp, frame.pc, frame.pstate) = (2, 3, TrapFrame::IRQ_MASKED);
    frame.x[30] = 1;
    let recorder = recorder(rings, &sources);
    // SAFETY: only this thread writes the ring of CPU 1, and the event is not one of returns.
    unsafe { recorder.record(Registers::Frame(&frame), &hit(1, 4)) };
    frame.pstate = !TrapFrame::IRQ_MASKED;
    // SAFETY: only this thread writes the ring of CPU 0, and the event is not one of returns.
    unsafe { recorder.record(Registers::Frame(&frame), &hit(0, 5)) };
    let snapshot = rings.snapshot().unwrap();
    let records: Vec<_> = snapshot.records().unwrap().collect();
    assert_eq!([8, 16, 24, 32, 40].map(|at| records[0].word(at)), [4, 1, 2, 3, TrapFrame::IRQ_MASKED]);
    assert_eq!([records[0].flags(), records[1].flags()], [Flags(Flags::IRQS_OFF | Flags::INTERRUPT), Flags(0)]);
}

/// After resizing, the newest records are still there, as many as fit, and later ones are added.
#[test]
fn rings_are_resized() {
    for (before, after) in [(2, 5), (5, 2), (3, 3), (4, 3)] {
        let rings = rings(1, before);
        let mut written = 0;
        let mut write = |count: u64| {
            record_each(rings, 0, written..written + count);
            written += count;
            written
        };
        let count = write(before as u64 * IN_PAGE + 3);
        // SAFETY: only this thread uses the rings, so nothing is recorded meanwhile.
        unsafe { rings.resize(None, after * PAGE, usize::MAX, &mut |action| action()) }.unwrap();
        assert_eq!(rings.bytes(), after * PAGE);
        let kept = count - (before.min(after) as u64 - 1) * IN_PAGE - 3;
        assert_eq!(present(rings), (kept..count).collect::<Vec<_>>(), "{before} to {after}");
        let snapshot = rings.snapshot().unwrap();
        assert_eq!(snapshot.written(), count);
        let Stats { overrun, dropped, .. } = snapshot.stats().next().unwrap();
        assert_eq!((overrun, dropped), (kept, 0), "{before} to {after}");
        let count = write(after as u64 * IN_PAGE);
        let snapshot = rings.take(None).unwrap();
        assert_eq!(snapshot.written(), count);
        assert!(numbers(&snapshot).is_sorted() && snapshot.records().unwrap().last().unwrap().time == count - 1);
        assert!(snapshot.present() > (after as u64 - 1) * IN_PAGE);
    }
}

/// A ring that drops new records has room in all pages that it gains, whatever was overwritten before.
#[test]
fn a_larger_ring_has_more_room() {
    let rings = rings(1, 2);
    record_each(rings, 0, 0..9 * IN_PAGE);
    rings.set_overwrites(false);
    // SAFETY: only this thread uses the rings, so nothing is recorded meanwhile.
    unsafe { rings.resize(None, 5 * PAGE, usize::MAX, &mut |action| action()) }.unwrap();
    record_each(rings, 0, 9 * IN_PAGE..13 * IN_PAGE);
    assert_eq!(present(rings), (7 * IN_PAGE..12 * IN_PAGE).collect::<Vec<_>>());
}

/// Rings that would need too much memory are refused; the present ones stay, with their records. Smaller rings are
/// always accepted.
#[test]
fn rings_that_are_too_large_are_refused() {
    let rings = rings(2, 3);
    record(rings, 1, 7);
    let hold: &mut dyn FnMut(&mut dyn FnMut()) = &mut |_| panic!("nothing is to be exchanged");
    for (bytes, free) in [(4 * PAGE, 8 * PAGE), (usize::MAX, usize::MAX - 1)] {
        // SAFETY: only this thread uses the rings, so nothing is recorded meanwhile.
        let refused = unsafe { rings.resize(None, bytes, free, hold) }.unwrap_err();
        assert!(
            matches!(refused, ResizeError::TooLarge { cpus: 2, needed, free: said } if needed > free && said == free)
        );
        assert_eq!((rings.bytes(), present(rings)), (3 * PAGE, [7].into()));
    }
    // SAFETY: only this thread uses the rings, so nothing is recorded meanwhile.
    unsafe { rings.resize(None, 2 * PAGE, 0, &mut |action| action()) }.unwrap();
    assert_eq!((rings.bytes(), present(rings)), (2 * PAGE, [7].into()));
}

#[test]
fn a_refusal_counts_its_rings() {
    for (cpus, rings) in [(1, "the ring of 1 CPU would"), (2, "the rings of 2 CPUs would")] {
        let sentence = ResizeError::TooLarge { cpus, needed: 8, free: 4 }.to_string();
        assert!(sentence.starts_with(rings), "{sentence}");
    }
}

/// Two readers copy while a writer laps them again and again: every record in a copy is whole, they are in
/// order, and none is missing without being counted. A usual run writes a tenth of the records of a thorough one, so it
/// meets fewer interleavings; `models` tries them all.
#[test]
fn records_are_never_torn() {
    let count = match is_thorough() {
        _ if cfg!(miri) => 100,
        true => 300_000,
        false => 30_000,
    };
    let rings = rings(1, 2);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            record_each(rings, 0, 0..count);
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let numbers = present(rings);
                assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
            }
        });
        let mut next = 0;
        let mut ended = false;
        while !ended {
            ended = done.load(Ordering::Acquire);
            for record in rings.take(None).unwrap().records().unwrap() {
                assert_eq!(number(&record), next + record.lost);
                next = number(&record) + 1;
            }
        }
        assert_eq!(next, count);
    });
}

/// Pages contain the same records, however they are portioned, and overwritten records are counted.
#[cfg(not(loom))]
#[test]
fn pages_have_every_record_once() {
    let clock = crate::clock::Clock { frequency: 1_000_000_000, origin: 0 };
    let many = if cfg!(miri) { 4 * IN_PAGE + 7 } else { 100 * IN_PAGE + 7 };
    for (written, pages) in tried([(many, 4), (0, 4), (10, 4), (3 * IN_PAGE, 4), (many, 200)]) {
        let rings = rings(1, pages);
        record_each(rings, 0, 0..written);
        let mut tasks = Vec::new();
        let (mut records, mut lost, mut bytes) = (0, 0, 0);
        loop {
            let taken = rings.take_pages(0, clock, &mut |record| fallible::push(&mut tasks, record.task())).unwrap();
            if taken.records == 0 {
                break;
            }
            records += taken.records;
            lost += taken.lost;
            bytes += taken.bytes.len();
        }
        assert_eq!((records + lost, bytes % RAW_PAGE), (written, 0), "{written} in {pages} pages");
        assert!(tasks.iter().map(|&task| u64::from(task)).eq(lost..written));
        assert!((lost == 0) == (written <= (pages as u64 - 1) * IN_PAGE));
        assert_eq!((present(rings).len(), rings.snapshot().unwrap().stats().next().unwrap().read), (0, records));
    }
}
