//! Scarce memory: whichever allocation fails, the error is "no memory", and nothing has changed.

use kprobes_random::tried::tried;

use super::*;
use crate::errno::Errno;
use crate::text::ShowError;
use core::fmt::Write;
use core::sync::atomic::Ordering::Relaxed;
use fallible::failing::{Heap, each_allocation};

#[global_allocator]
static HEAP: Heap = Heap;

/// Returns the contents of all files, and which probes are enabled.
fn state(Controlled { events }: &Controlled) -> String {
    let mut text = String::new();
    events.write_definitions(&mut text).unwrap();
    events.write_profile(&mut text).unwrap();
    events.problems().write(&mut text).unwrap();
    for event in events.iter() {
        let Definition { group, event: name, .. } = event.definition();
        event.format().write(&mut text, name, event.number()).unwrap();
        let has_plan = event.recorder().plan.0.load(Relaxed) as usize;
        writeln!(text, "armed: {}, plan: {has_plan:#x}", event.probe().unwrap().is_enabled()).unwrap();
        let Some(control) = events.settings((group, name)) else { continue };
        writeln!(text, "enabled: {}", control.enabled_text()).unwrap();
        control.write_filter(&mut text).unwrap();
        control.write_triggers(&mut text).unwrap();
    }
    text
}

/// Carries out `operation` once for each of its allocations, with that allocation failing, and then without failures.
fn each(
    controlled: &mut Controlled,
    what: &str,
    mut operation: impl FnMut(&mut Controlled) -> Result<(), Errno>,
) -> usize {
    let controlled = RefCell::new(controlled);
    let before = state(&controlled.borrow());
    let ((), allocations) = each_allocation(
        || operation(&mut controlled.borrow_mut()),
        |error| {
            assert_eq!(state(&controlled.borrow()), before, "{what}");
            *error == Errno::NoMemory
        },
    );
    allocations
}

fn define_line(Controlled { events }: &mut Controlled, line: &str) -> Result<(), Errno> {
    match parse(line).map_err(|error| error.problem.errno())? {
        Some(Command::Define(definition)) => events.define(definition, &Names).map_err(|error| error.problem.errno()),
        _ => Err(Errno::Invalid),
    }
}

/// Two events, one with two probes and every possible setting, and others.
const LINES: [&str; 7] = [
    "p:g/one f x=%x20 n=%x0:u8 s=+0(%x19):string a=+8(%x19):u8[4] t=\\\"text\" y=%x20:symstr b=%x3:b4@2/32 $comm",
    "p:g/one a::b<c, d> x=%x20 n=%x0:u8 s=+0(%x19):string a=+8(%x19):u8[4] t=\\\"text\" y=%x20:symstr b=%x3:b4@2/32 $comm",
    "r3:g/two a::b<c, d> $retval first=$arg1 ninth=$arg9 z=@a::TIMES z2=-8(+16(%sp)):s32",
    "p f+4",
    "p 0x2008 %x20 +0(%x19)",
    "f f $comm",
    "e:on g.two $first t=\\\"text\" $ninth:u8",
];

fn controlled() -> Controlled {
    Controlled::new(&LINES)
}

/// Every kind of setting.
const CHANGES: [(&str, &str); 14] = [
    ("enable", "1"),
    ("filter", "x > 3 && (!(n == 4) || s ~ \"*t\" && cpu < 2)"),
    ("trigger", "hist:keys=x.log2,common_pid.execname:vals=n,x.hex:sort=x.log2.descending if x != 5"),
    ("trigger", "hist:keys=x:vals=n"),
    ("trigger", "hist:keys=common_stacktrace,s:sort=hitcount:size=128"),
    ("trigger", "hist:keys=x:vals=n:pause"),
    ("trigger", "hist:keys=x:vals=n:clear"),
    ("trigger", "stacktrace:3 if n == 1"),
    ("trigger", "traceoff:1"),
    ("trigger", "enable_event:g:two"),
    ("trigger", "!enable_event:g:two"),
    ("trigger", "!hist:keys=x:vals=n"),
    ("filter", "0"),
    ("enable", "0"),
];

fn change(Controlled { events }: &mut Controlled, file: &str, text: &str) -> Result<(), Errno> {
    let name = ("g", "one");
    match file {
        "enable" => events.set_enabled(Some("g"), None, text == "1"),
        "filter" => events.set_filter(name, text),
        _ => events.set_trigger(name, text),
    }
}

#[test]
fn what_there_is_no_memory_for_is_not_defined() {
    let (mut controlled, mut allocations) = (Controlled::new(&[]), 0);
    for line in tried(LINES) {
        allocations += each(&mut controlled, line, |controlled| define_line(controlled, line));
    }
    assert!(cfg!(miri) || allocations > 100 && controlled.events.iter().count() == 7, "{allocations}");
}

#[test]
fn what_there_is_no_memory_to_enable_is_not_defined() {
    let (mut controlled, mut allocations) = (Controlled::new(&[]), 0);
    for line in tried(LINES) {
        allocations += each(&mut controlled, line, |controlled| {
            define_line(controlled, line)?;
            controlled.events.enable_newest()
        });
    }
    assert!(controlled.events.iter().all(|event| event.probe().unwrap().is_enabled()));
    assert!(cfg!(miri) || allocations > 200, "{allocations}");
}

#[test]
fn what_there_is_no_memory_for_is_not_set() {
    let mut controlled = controlled();
    let mut allocations = 0;
    for (file, text) in tried(CHANGES) {
        allocations += each(&mut controlled, text, |controlled| change(controlled, file, text));
    }
    allocations += each(&mut controlled, "disarm", |Controlled { events }| events.set_may_be_armed(false));
    assert!(cfg!(miri) || allocations > 200, "{allocations}");
}

/// If the engine cannot enable one of several probes, none is enabled, and each keeps its plan.
#[test]
fn probes_are_armed_together_or_not_at_all() {
    let mut controlled = controlled();
    change(&mut controlled, "filter", "x > 3").unwrap();
    let before = state(&controlled);
    for arms in 0..3 {
        ARMS_LEFT.set(arms);
        assert_eq!(change(&mut controlled, "enable", "1"), Err(Errno::NoMemory));
        assert_eq!(change(&mut controlled, "trigger", "enable_event:g:two").is_err(), arms < 3);
        assert_eq!(state(&controlled), before);
    }
    ARMS_LEFT.set(3);
    change(&mut controlled, "enable", "1").unwrap();
    ARMS_LEFT.set(usize::MAX);
    assert!(controlled.events.iter().filter(|event| event.probe().unwrap().is_enabled()).count() == 3);
}

/// Hits follow the plans in effect, even after changes that failed for lack of memory.
#[test]
fn a_change_without_memory_changes_no_hit() {
    let mut controlled = controlled();
    change(&mut controlled, "enable", "1").unwrap();
    change(&mut controlled, "filter", "x == 2").unwrap();
    let mut hits = 0;
    let mut check = |controlled: &Controlled, recorded: usize| {
        controlled.events.rings().clear();
        [1, 2].into_iter().for_each(|time| hit(0x1000, time));
        hits += 1;
        let shown = trace(&controlled.events, 9);
        assert_eq!(shown.matches(": one: ").count(), recorded, "{shown}");
    };
    for allocations in (0..).step_by(if cfg!(miri) { 3 } else { 1 }) {
        let result = with_memory(allocations, || change(&mut controlled, "filter", "x == 1 || x == 2"));
        check(&controlled, if result.is_ok() { 2 } else { 1 });
        if result.is_ok() {
            break;
        }
    }
    assert!(hits > if cfg!(miri) { 3 } else { 10 });
}

/// Removing needs no memory, so there is a way out when memory is used up.
#[test]
fn events_are_removed_without_memory() {
    let mut controlled = controlled();
    for (file, text) in &CHANGES[..8] {
        change(&mut controlled, file, text).unwrap();
    }
    let Controlled { events } = &mut controlled;
    // The group cannot be removed while another event is on one of its events.
    assert_eq!(remove(events, "-:on"), Ok(1));
    let before = REGISTERED.with_borrow(Vec::len);
    let Ok(Some(Command::Remove(removal))) = parse("-:g/") else { panic!("it is read") };
    with_memory(0, || {
        events.reset_settings(|definition| removal.matches(definition));
        events.remove(&removal, &|_| false)
    })
    .unwrap();
    assert_eq!((events.iter().count(), before - REGISTERED.with_borrow(Vec::len)), (3, 3));
    assert!(events.settings(("g", "one")).is_none());
}

/// An error without memory for its reason is still an error.
#[test]
fn what_is_refused_is_refused_without_memory() {
    let mut controlled = controlled();
    for line in tried([
        "p:x f %x99",
        "p:x no_such_function",
        "p:x f+6",
        "p:x f+12",
        "p:x f x=%x0 x=%x1",
        "p:x twice",
        "r:g/one f",
        "p:g/one f",
        "p:x f +0(+0(%x0)",
        "e:x g.none",
        "e:x g.one $none",
        "-:g/one f",
    ]) {
        let outcome = |allocations, controlled: &mut Controlled| {
            with_memory(allocations, || define_line(controlled, line)).unwrap_err()
        };
        let refused = outcome(usize::MAX, &mut controlled);
        let before = state(&controlled);
        for allocations in tried(0..40) {
            let error = outcome(allocations, &mut controlled);
            assert!(error == refused || error == Errno::NoMemory, "{line}: {error}");
            assert_eq!(state(&controlled), before, "{line}");
        }
    }
    for (file, text) in
        tried([("filter", "x == nothing"), ("filter", "(x == 1"), ("trigger", "hist:keys=none"), ("trigger", "x")])
    {
        let refused = change(&mut controlled, file, text).unwrap_err();
        for allocations in tried(0..40) {
            let error = with_memory(allocations, || change(&mut controlled, file, text)).unwrap_err();
            assert!(error == refused || error == Errno::NoMemory, "{text}: {error}");
        }
    }
}

/// Files are written completely, or give an error.
#[test]
fn files_are_written_with_little_memory() {
    let mut controlled = controlled();
    for (file, text) in &CHANGES[..8] {
        change(&mut controlled, file, text).unwrap();
    }
    [7, 8, 9].into_iter().for_each(|time| hit(0x1000, time));
    let Controlled { events } = &controlled;
    let clock = Clock { frequency: 1_000_000, origin: 0 };
    let whole = |write: &dyn Fn(&mut dyn Write) -> Result<(), ShowError>| {
        let mut expected = String::new();
        write(&mut expected).unwrap();
        let (text, allocations) = each_allocation(
            || {
                let mut text = fallible::Text::default();
                write(&mut text).map(|()| text.0)
            },
            |_| true,
        );
        assert_eq!(text, expected);
        assert!(allocations > 0);
    };
    whole(&|out| events.write_trace(out, usize::MAX, 1, &Names, clock));
    whole(&|out| Ok(events.settings(("g", "one")).unwrap().write_triggers(out)?));
    for trigger in tried(events.settings(("g", "one")).unwrap().triggers()) {
        let Some(histogram) = trigger.histogram() else { continue };
        whole(&|out| histogram.write(out, trigger, &Names));
    }
    let mut present = String::new();
    events.write_trace(&mut present, usize::MAX, 1, &Names, clock).unwrap();
    let mut text = fallible::Text::default();
    let (_, allocations) = each_allocation(|| events.write_pipe(&mut text, None, &Names, clock), |_| true);
    // If a failure interrupts writing taken records, the rest comes in the next call.
    let is_lost = |line: &&str| !line.starts_with('#') && !text.0.contains(line);
    assert_eq!(present.lines().find(is_lost), None, "{}", text.0);
    assert!(allocations > 2);
    assert_eq!(events.write_pipe(&mut String::new(), None, &Names, clock), Ok(0));
}

#[test]
fn rings_are_made_and_resized_or_not() {
    let (rings, allocations) = each_allocation(|| Rings::new(2, 1, &[]), |_| true);
    assert!(allocations > 8);
    let ((), allocations) = each_allocation(
        // SAFETY: nothing is recorded in these rings.
        || unsafe { rings.resize(None, 40_000, usize::MAX, &mut |action| action()) },
        |_| rings.bytes() == 8192,
    );
    assert!(allocations > 20 && rings.bytes() == 40_960);
}

/// Without memory for the records of one CPU, those of the others stay, too.
#[test]
fn records_are_taken_out_of_all_rings_or_out_of_none() {
    let rings = Rings::new(2, 1, &[]).unwrap();
    let mark = || {
        for (cpu, ring) in rings.rings.iter().enumerate() {
            // SAFETY: only this thread writes the rings.
            assert!(unsafe { ring.mark(&Context { cpu, ..Context::default() }, true, 0, b"here") });
        }
    };
    let are_there =
        |_: &OutOfMemory| rings.snapshot().unwrap().stats().all(|stats| (stats.entries, stats.read) == (1, 0));
    mark();
    let (taken, allocations) = each_allocation(|| rings.take(None), are_there);
    assert!(allocations > 3 && taken.present() == 2);
    rings.clear();
    mark();
    let (taken, allocations) = each_allocation(|| rings.split_off(true), are_there);
    assert!(allocations > 3 && taken.unwrap().present() == 2);
    assert_eq!(rings.snapshot().unwrap().present(), 0);
}
