//! Snapshots of the rings.

use super::*;
use crate::errno::Errno;
use alloc::borrow::ToOwned;

/// Returns the times of the records in `text`, in microseconds.
fn times(text: &str) -> Vec<u64> {
    let records = text.lines().filter(|line| !line.starts_with('#'));
    records.map(|line| line.split_once(" .....     0.").unwrap().1[..6].parse().unwrap()).collect()
}

#[test]
fn a_snapshot_is_what_was_in_the_rings() {
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    assert!(
        snapshot(&events)
            .starts_with("# tracer: nop\n#\n#\n# * Snapshot is freed *\n#\n# Snapshot commands:\n# echo 0")
    );
    events.set_snapshot(2).unwrap();
    assert!(snapshot(&events).contains("is freed"));
    events.set_snapshot(1).unwrap();
    assert!(snapshot(&events).contains("\n# * Snapshot is allocated *\n"));
    (1..=3).for_each(|time| hit(0x1000, time));
    events.set_snapshot(1).unwrap();
    hit(0x1000, 4);
    assert_eq!((times(&snapshot(&events)), times(&trace(&events, 9))), ([1, 2, 3].into(), [4].into()));
    assert!(snapshot(&events).contains("# entries-in-buffer/entries-written: 3/3   #P:2\n"));
    events.clear_trace();
    assert_eq!(remove(&mut events, "-:one"), Ok(1));
    assert_eq!(snapshot(&events).matches(": one: (f+0x0/0x10)").count(), 3, "the event is gone");
    events.set_snapshot(2).unwrap();
    assert!(snapshot(&events).contains("is allocated") && events.removed.is_empty());
    events.set_snapshot(0).unwrap();
    assert!(snapshot(&events).contains("is freed"));
}

#[test]
fn the_snapshot_of_one_cpu_is_read_and_emptied_by_itself() {
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    let of_cpu = |events: &Events<Counter>, cpu: usize| {
        let mut text = String::new();
        events.write_snapshot(&mut text, Some(cpu), 2, &Names, Clock { frequency: 1_000_000, origin: 0 }).unwrap();
        text
    };
    assert!(of_cpu(&events, 0).contains("is freed"));
    // Every hit is on CPU 0.
    (1..=3).for_each(|time| hit(0x1000, time));
    events.set_snapshot(1).unwrap();
    let shown = of_cpu(&events, 0);
    assert_eq!(times(&shown), [1, 2, 3]);
    assert!(shown.contains("# entries-in-buffer/entries-written: 3/3   #P:2\n"), "{shown}");
    let empty = of_cpu(&events, 1);
    let begin =
        "# tracer: nop\n#\n#\n# * Snapshot is allocated *\n#\n# Snapshot commands:\n# echo 0 > snapshot : Invalid";
    assert!(empty.starts_with(begin), "{empty}");
    for number in [0, 1] {
        assert_eq!(events.set_snapshot_of(0, number), Err(Errno::Invalid));
    }
    events.set_snapshot_of(1, 2).unwrap();
    events.set_snapshot_of(2, 2).unwrap();
    assert_eq!(times(&snapshot(&events)), [1, 2, 3]);
    events.set_snapshot_of(0, 9).unwrap();
    assert!(snapshot(&events).contains("is allocated") && of_cpu(&events, 0) == empty);
}

/// A tracer clears the rings, but not the snapshot.
#[test]
fn a_snapshot_of_the_graph_is_read_as_one_under_another_tracer() {
    use crate::tracer::{RecordKind, Recording, Tracer};
    let mut events = events();
    events.set_tracer(Tracer::FunctionGraph);
    let name = [u64::from_le_bytes(*b"main\0\0\0\0"), 0];
    let mut frame = TrapFrame::default();
    frame.x[30] = 0x2004;
    for (kind, time, return_address) in [(RecordKind::Entry, 1, None), (RecordKind::Return, 3, Some(0x2004))] {
        let recorder = kind.recorder(events.rings(), &Recording::ALL).unwrap();
        let hit = RecordedHit {
            context: Context { cpu: 0, task: 3, name, time },
            address: 0x1000,
            return_address,
            entry: &[],
            is_caller_in_x30: false,
        };
        // SAFETY: only this thread uses the rings, and the hit fits the kind.
        unsafe { recorder.record(Registers::Frame(&frame), &hit) };
    }
    events.set_snapshot(1).unwrap();
    let shown = snapshot(&events);
    events.set_tracer(Tracer::Nop);
    let last = |text: &str| text.lines().last().unwrap_or_default().to_owned();
    assert_eq!(last(&shown), " 0)   2.000 us    |  f();");
    assert_eq!(last(&snapshot(&events)), last(&shown));
}

/// A trigger separates earlier records from the hit itself and from later ones; as in Linux, also if it has a filter.
#[test]
fn a_trigger_takes_a_snapshot() {
    let Controlled { mut events } = Controlled::new(&["p:one f", "p:two f+4"]);
    events.set_events("*:*").unwrap();
    assert!(snapshot(&events).contains("is freed"));
    events.set_trigger(("kprobes", "two"), "snapshot:2").unwrap();
    assert!(snapshot(&events).contains("is allocated"));
    (1..=3).for_each(|time| hit(0x1000, time));
    hit(0x1004, 4);
    hit(0x1000, 5);
    assert_eq!((times(&trace(&events, 9)), times(&snapshot(&events))), ([4, 5].into(), [1, 2, 3].into()));
    let text = |events: &Events<Counter>| {
        let mut text = String::new();
        events.settings(("kprobes", "two")).unwrap().write_triggers(&mut text).unwrap();
        text
    };
    assert_eq!(text(&events), "snapshot:count=1\n");
    hit(0x1004, 6);
    events.clear_trace();
    assert_eq!(times(&snapshot(&events)), [4, 5], "nobody has looked before the rings were emptied");
    (7..=9).for_each(|time| hit(0x1004, time));
    assert_eq!(times(&snapshot(&events)), [4, 5], "two were asked for");
    events.set_trigger(("kprobes", "two"), "!snapshot").unwrap();
    events.set_trigger(("kprobes", "two"), "snapshot if common_pid == 3").unwrap();
    assert_eq!(text(&events), "snapshot:unlimited if common_pid == 3\n");
    hit(0x1000, 10);
    hit(0x1004, 11);
    assert_eq!(times(&snapshot(&events)), [7, 8, 9, 10]);
    // Reading does not remove records.
    assert_eq!((times(&snapshot(&events)).len(), times(&trace(&events, 9))), (4, [11].into()));
    // A reader that takes pages directly from the rings leaves the records of a snapshot in place.
    hit(0x1004, 12);
    let pages = events.rings.take_pages(0, Clock { frequency: 1_000_000, origin: 0 }, &mut |_| Ok(())).unwrap();
    assert_eq!((times(&snapshot(&events)), pages.records), ([11].into(), 1));
}
