//! Events on a machine of two functions whose probes are counters.

use super::*;
use crate::definition::{Command, parse};
use crate::host::Context;
use aarch64_kprobes::exception::TrapFrame;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};

struct Names;

const FUNCTIONS: [Function<'_>; 4] = [
    Function { name: "f", address: 0x1000, size: 0x10 },
    Function { name: "a::b<c, d>", address: 0x2000, size: 0x100 },
    Function { name: "twice", address: 0x3000, size: 0x10 },
    Function { name: "twice", address: 0x4000, size: 0x10 },
];

impl Symbols for Names {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        FUNCTIONS.into_iter().find(|function| (function.address..function.address + function.size).contains(&address))
    }

    fn find<'a>(&'a self, name: &str, each: &mut dyn FnMut(Function<'a>)) {
        FUNCTIONS.into_iter().filter(|function| function.name == name).for_each(each);
    }
}

std::thread_local! {
    /// The probes that are registered: where, and the recorder.
    static REGISTERED: RefCell<Vec<(u64, *const Recorder)>> = const { RefCell::new(Vec::new()) };
}

struct Counter {
    address: u64,
    enabled: Cell<bool>,
    hits: Rc<Cell<u64>>,
}

impl Armed for Counter {
    type Error = &'static str;

    unsafe fn arm(_: Kind, address: u64, recorder: &Recorder) -> Result<Self, &'static str> {
        if address == 0x100c {
            return Err("refused");
        }
        REGISTERED.with_borrow_mut(|registered| registered.push((address, &raw const *recorder)));
        Ok(Self { address, enabled: Cell::new(true), hits: Rc::default() })
    }

    fn set_enabled(&self, enabled: bool) -> Result<(), &'static str> {
        self.enabled.set(enabled);
        Ok(())
    }

    fn is_enabled(&self) -> bool {
        self.enabled.get()
    }

    fn hits(&self) -> u64 {
        self.hits.get()
    }

    fn missed(&self) -> u64 {
        self.address
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        REGISTERED.with_borrow_mut(|registered| registered.retain(|&(address, _)| address != self.address));
    }
}

fn events() -> Events<Counter> {
    Events::new(Box::leak(Box::new(Rings::new(2, 8))))
}

fn define(events: &mut Events<Counter>, line: &str) -> Result<(), EventError<&'static str>> {
    let Ok(Some(Command::Define(definition))) = parse(line) else { panic!("{line}") };
    events.define(definition, &Names)
}

/// Hits every probe at `address`.
fn hit(address: u64, time: u64) {
    let registered = REGISTERED.with_borrow(Clone::clone);
    for (_, recorder) in registered.into_iter().filter(|&(other, _)| other == address) {
        let mut name = [0; 16];
        name[..4].copy_from_slice(b"main");
        let mut frame = TrapFrame::default();
        frame.x.iter_mut().zip(0..).for_each(|(register, number)| *register = number);
        // SAFETY: the event that owns the recorder drops its probe first, and with it the entry in the table.
        unsafe { &*recorder }.record(&frame, address, 0, &Context { task: 3, name, ..Context::default() }, time);
    }
}

fn refused(line: &str, caret: &str) -> Refusal<&'static str> {
    let mut events = events();
    define(&mut events, "p:taken f").unwrap();
    let error = define(&mut events, line).expect_err(line);
    assert_eq!(error.column, caret.len() - 1, "{line}\n{caret}");
    assert_eq!(events.iter().count(), 1);
    error.refusal
}

fn trace(events: &Events<Counter>, limit: usize) -> String {
    let mut text = String::new();
    events.write_trace(&mut text, limit, 2, &Names, Clock { frequency: 1_000_000, origin: 0 }).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(|line| std::format!("{line}\n")).collect()
}

#[test]
fn a_definition_is_armed_at_once_and_its_hits_are_in_the_trace() {
    let mut events = events();
    define(&mut events, "p:here a::b<c, d>+8 n=%x1:u8").unwrap();
    assert!(events.iter().all(|event| event.probe().is_enabled() && event.address() == 0x2008));
    hit(0x2008, 5_000_001);
    assert_eq!(
        trace(&events, usize::MAX),
        "            main-3       [000] .....     5.000001: here: (a::b<c, d>+0x8/0x100) n=1\n"
    );
}

#[test]
fn the_newest_records_are_shown() {
    let mut events = events();
    define(&mut events, "p:here f %x0").unwrap();
    (0..5).for_each(|time| hit(0x1000, time));
    assert_eq!(trace(&events, 2).lines().count(), 2);
    assert!(trace(&events, 1).contains(" 0.000004: here: "));
    events.clear_trace();
    assert_eq!(trace(&events, 2), "");
}

#[test]
fn definitions_are_refused_with_their_reason_and_column() {
    assert_eq!(refused("p:taken a::b<c, d>", "  ^"), Refusal::Exists);
    assert_eq!(refused("p:kprobes/taken f", "  ^"), Refusal::Exists);
    assert_eq!(refused("p:x g", "    ^"), Refusal::UnknownSymbol);
    assert_eq!(refused("p:x twice", "    ^"), Refusal::Ambiguous { count: 2 });
    assert_eq!(refused("p:x f+16", "      ^"), Refusal::PastEnd { size: 16 });
    assert_eq!(refused("p:x f+18", "      ^"), Refusal::PastEnd { size: 16 });
    assert_eq!(refused("p:x f+6", "      ^"), Refusal::Misaligned);
    assert_eq!(refused("p:x f+12", "    ^"), Refusal::Probe("refused"));
    let mut events = events();
    define(&mut events, "p:taken f").unwrap();
    define(&mut events, "p:other/taken f").unwrap();
    define(&mut events, "p:x 0x3004").unwrap();
}

#[test]
fn removing_unregisters_and_keeps_what_was_recorded() {
    let mut events = events();
    define(&mut events, "p:one f %x0").unwrap();
    define(&mut events, "p:g/two a::b<c, d> %x0").unwrap();
    define(&mut events, "p:g/three twice_no").unwrap_err();
    hit(0x1000, 1);
    assert_eq!(events.remove(Some("h"), Some("one")), 0);
    assert_eq!(events.remove(None, Some("one")), 1);
    hit(0x1000, 2);
    assert_eq!(trace(&events, 9).lines().count(), 1);
    assert!(trace(&events, 9).contains(": one: (f+0x0/0x10) arg1=0x0"));
    (0..8).for_each(|time| hit(0x2000, time));
    assert_eq!(events.remove(Some("g"), None), 1);
    assert_eq!(events.removed.len(), 1, "a definition without records is forgotten");
    assert_eq!(events.remove(None, None), 0);
    REGISTERED.with_borrow(|registered| assert!(registered.is_empty()));
}

#[test]
fn events_are_enabled_and_disabled_by_name() {
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    define(&mut events, "p:g/one a::b<c, d>").unwrap();
    assert_eq!(events.set_enabled(Some("g"), "one", false), Ok(1));
    let enabled: Vec<bool> = events.iter().map(|event| event.probe().is_enabled()).collect();
    assert_eq!(enabled, [true, false]);
    assert_eq!(events.set_enabled(None, "one", true), Ok(2));
    assert_eq!(events.set_enabled(None, "two", true), Ok(0));
}

#[test]
fn the_files_of_definitions_and_counts() {
    let mut events = events();
    define(&mut events, "r5:one f").unwrap();
    define(&mut events, "p:g/two a::b<c, d> n=%x0:u8").unwrap();
    let mut text = String::new();
    events.write_definitions(&mut text).unwrap();
    assert_eq!(text, "r5:kprobes/one f ret=$retval\np:g/two a::b<c, d> n=%x0:u8\n");
    events.iter().for_each(|event| event.probe().hits.set(7));
    text.clear();
    events.write_profile(&mut text).unwrap();
    let line = |name: &str, missed: u64| std::format!("  {name:<44} {:>15} {missed:>15}\n", 7);
    assert_eq!(text, line("one", 0x1000) + &line("two", 0x2000));
}
