//! Events on a machine of two functions whose probes are counters. The machine is here, and the tests are in files by
//! subject.

use super::*;
use crate::clock::Clock;
use crate::context::Context;
use crate::definition::{Command, parse};
use crate::filter::FindFunction;
use crate::hit::Registers;
use crate::hit::write::RecordedHit;
use crate::options::Flag;
use crate::symbols::Function;
use crate::trigger::restriction::Restriction;
use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe::Insertion;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use fallible::failing::with_memory;
use kprobes_types::LineError;

mod arguments;
mod base_event;
mod commands;
mod controls;
mod definitions;
mod instance;
mod named;
mod plans;
mod scarce;
mod snapshot;
mod tested;
mod trace;
mod variables;

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
        // Generic arguments may be left out. `twice#2` is the second function with this path.
        let (path, number) = name.split_once('#').unwrap_or((name, ""));
        let is_path = |other: &str| other == path || other.split_once('<').is_some_and(|(other, _)| other == path);
        let mut found = FUNCTIONS.into_iter().filter(|function| is_path(function.name));
        match number.parse::<usize>() {
            Ok(number) => found.nth(number - 1).into_iter().for_each(each),
            Err(_) => found.for_each(each),
        }
    }

    fn find_static(&self, name: &str, each: &mut dyn FnMut(u64)) {
        match name {
            "a::TIMES" => each(TIMES.as_ptr() as u64),
            "twice" => each(0x9000),
            _ => {}
        }
    }

    fn nearest(&self, name: &str) -> Option<&str> {
        (name == "g").then_some("f")
    }

    fn nearest_static(&self, _: &str) -> Option<&str> {
        Some("a::TIMES")
    }

    fn each(&self, each: &mut dyn FnMut(Function<'static>)) {
        FUNCTIONS.into_iter().rev().for_each(each);
    }

    fn signature(&self, address: u64) -> Option<(kprobes_types::Types<'_>, kprobes_types::Function<'_>)> {
        named::signature(address)
    }

    fn line(&self, file: &str, line: u32, each: &mut dyn FnMut(u64)) -> Result<(), LineError<'_>> {
        match (file, line) {
            ("b.rs", 7) => each(0x2008),
            ("b.rs", 8) => [0x200c, 0x1004].into_iter().for_each(each),
            ("b.rs", 10) => [0x3004, 0x4004].into_iter().for_each(each),
            ("b.rs", _) => return Err(LineError::NoLine { file: "a/b.rs", before: Some(8), after: None }),
            _ => return Err(LineError::NoFile),
        }
        Ok(())
    }

    fn is_call(&self, address: u64) -> bool {
        FUNCTIONS.iter().any(|function| function.address == address)
    }
}

std::thread_local! {
    /// The registered probes: the address and the recorder of each.
    static REGISTERED: RefCell<Vec<(u64, *const Recorder)>> = const { RefCell::new(Vec::new()) };
}

std::thread_local! {
    /// The number of probes that the engine can still arm.
    static ARMS_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// How often `synchronize` was called.
    static SYNCHRONIZED: Cell<usize> = const { Cell::new(0) };
    /// The plan that a hit in progress has found.
    static FOUND: Cell<Option<&'static Plan>> = const { Cell::new(None) };
}

struct Counter {
    address: u64,
    recorder: *const Recorder,
    form: Form,
    enabled: Cell<bool>,
    is_snippet_enabled: Cell<bool>,
    hits: Rc<Cell<u64>>,
}

// SAFETY: `drop` removes the recorder of a `Counter` from `REGISTERED`, in which alone hits find it. `offsets` returns
// `None`. A test has one thread, which handles no hit while it changes plans.
unsafe impl RegisteredProbe for Counter {
    type Error = &'static str;

    unsafe fn register(
        _: EventKind,
        form: Form,
        address: u64,
        recorder: &Recorder,
        _: Option<&Insertion>,
    ) -> Result<Self, &'static str> {
        if address == 0x100c {
            return Err("refused");
        }
        // The engine's memory is not limited together with that of the event.
        with_memory(usize::MAX, || {
            REGISTERED.with_borrow_mut(|registered| registered.push((address, &raw const *recorder)));
            Ok(Self {
                address,
                recorder,
                form,
                enabled: Cell::new(false),
                is_snippet_enabled: Cell::new(true),
                hits: Rc::default(),
            })
        })
    }

    fn exchange(&self, _: &Self) -> Result<(), &'static str> {
        unreachable!("no stub does anything")
    }

    fn set_snippet_enabled(&self, enabled: bool) {
        self.is_snippet_enabled.set(enabled);
    }

    fn synchronize() {
        SYNCHRONIZED.set(SYNCHRONIZED.get() + 1);
        // The hit looks at its plan once more, and is over.
        assert!(FOUND.take().is_none_or(|plan| plan.filter.is_some()));
    }

    fn set_enabled(&self, enabled: bool) -> Result<(), &'static str> {
        if enabled && !self.enabled.get() {
            ARMS_LEFT.set(ARMS_LEFT.get().checked_sub(1).ok_or("no memory")?);
        }
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
        REGISTERED.with_borrow_mut(|registered| {
            let own = registered.iter().position(|&probe| probe == (self.address, self.recorder));
            own.map(|own| registered.remove(own))
        });
    }
}

/// Returns the number of registered probes.
fn registered() -> usize {
    REGISTERED.with_borrow(Vec::len)
}

/// Makes a list of events, on a machine where x30 holds the caller at the entry of every function.
fn events() -> Events<Counter> {
    let services = Services {
        is_caller_in_x30: |address| Names.is_call(address),
        now: || 0,
        free: || usize::MAX,
        clock: || Clock { frequency: 1_000_000, origin: 0 },
        functions: FindFunction::NONE,
    };
    Events::new(Box::leak(Box::new(Rings::new(2, 1, &[]).unwrap())), services).unwrap()
}

fn define(events: &mut Events<Counter>, line: &str) -> Result<(), definition::Error> {
    let Ok(Some(Command::Define(definition))) = parse(line) else { panic!("{line}") };
    events.define(definition, &Names)
}

fn remove(events: &mut Events<Counter>, line: &str) -> Result<usize, Problem> {
    let Ok(Some(Command::Remove(removal))) = parse(line) else { panic!("{line}") };
    events.remove(&removal, &|_| false)
}

/// Removes the events of a family; without one, all that are not synthetic.
fn remove_all(events: &mut Events<Counter>, family: Option<Family>) -> Result<usize, Problem> {
    events.remove(&Removal::of_all(family), &|_| false)
}

/// Hits every probe at `address`. Each register holds its number, except for x19 (the address of [`TEXTS`]), x20 (the
/// time) and x21 (the address of an element of [`TIMES`]).
fn hit(address: u64, time: u64) {
    hit_in(address, time, |recorder, registers, hit| {
        // SAFETY: `hit_in` calls this as a handler would be called, with a fitting hit.
        if !unsafe { recorder.record_fast(registers, || *hit) } {
            // SAFETY: `hit_in` calls this as a handler would be called, with a fitting hit.
            unsafe { recorder.record(registers, hit) };
        }
    });
}

/// Hits every probe at `address` as [`hit`] does, but records by the general path.
fn hit_unusually(address: u64, time: u64) {
    // SAFETY: `hit_in` calls this as a handler would be called, with a fitting hit.
    hit_in(address, time, |recorder, registers, hit| unsafe { recorder.record(registers, hit) });
}

/// Calls `record` as a handler for each probe at `address`. Only one thread uses the rings, and the hit fits the event.
fn hit_in(address: u64, time: u64, record: fn(&Recorder, Registers<'_>, &RecordedHit<'_>)) {
    let registered = REGISTERED.with_borrow(Clone::clone);
    for (_, recorder) in registered.into_iter().filter(|&(other, _)| other == address) {
        let mut frame = TrapFrame::default();
        frame.x.iter_mut().zip(0..).for_each(|(register, number)| *register = number);
        frame.x[19] = TEXTS.as_ptr() as u64;
        frame.x[20] = time;
        frame.x[21] = TIMES.as_ptr().wrapping_add(time as usize % TIMES.len()) as u64;
        let name = [u64::from_le_bytes(*b"main\0\0\0\0"), 0];
        let context = Context { cpu: 0, task: 3, name, time };
        // SAFETY: the event that owns the recorder drops its probe first, which removes the address from `REGISTERED`.
        let recorder = unsafe { &*recorder };
        let return_address = (recorder.shape == Shape::Return).then_some(0x2004);
        let hit = RecordedHit { context, address, return_address, entry: &[5, 0x1000], is_caller_in_x30: false };
        record(recorder, Registers::Frame(&frame), &hit);
    }
}

/// Records a static event for `event`, a probe at its function, which gets the address of `fields`.
fn happen<T>(event: &Event<Counter>, fields: &T) {
    let mut frame = TrapFrame::default();
    frame.x[0] = &raw const *fields as u64;
    let name = [u64::from_le_bytes(*b"main\0\0\0\0"), 0];
    let context = Context { cpu: 0, task: 3, name, time: 2 };
    let address = event.address();
    let hit = RecordedHit { context, address, return_address: None, entry: &[], is_caller_in_x30: false };
    // SAFETY: only this thread uses the rings, and the hit fits the event.
    unsafe { event.recorder().record(Registers::Frame(&frame), &hit) };
}

/// The values that x21 may point to at a hit.
static TIMES: [u64; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// The bytes that x19 points to at a hit: two texts, followed by zeros.
static TEXTS: [u8; 24] = *b"first\0second\0\0\0\0\0\0\0\0\0\0\0\0";

fn trace(events: &Events<Counter>, limit: usize) -> String {
    let mut text = String::new();
    events.write_trace(&mut text, limit, 2, &Names, Clock { frequency: 1_000_000, origin: 0 }).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(|line| std::format!("{line}\n")).collect()
}

/// Returns what one hit of `line`, a probe on `f`, has in the trace after the place.
fn fetched(line: &str) -> String {
    let mut events = events();
    define(&mut events, line).unwrap();
    hit(0x1000, 1);
    let text = trace(&events, 1);
    let (_, arguments) = text.split_once(") ").expect(line);
    arguments.trim_end().into()
}

/// Events that are enabled and have filters and triggers, as opposed to probes that are hit in a test.
struct Controlled {
    events: Events<Counter>,
}

impl Controlled {
    fn new(lines: &[&str]) -> Self {
        let mut controlled = Self { events: events() };
        lines.iter().for_each(|line| controlled.define(line));
        controlled
    }

    /// Returns the trace, and empties it.
    fn take_trace(&mut self) -> String {
        let text = trace(&self.events, usize::MAX);
        self.events.clear_trace();
        text
    }

    fn define(&mut self, line: &str) {
        let Ok(Some(Command::Define(definition))) = parse(line) else { panic!("{line}") };
        self.events.define(definition, &Names).unwrap();
    }
}

fn snapshot(events: &Events<Counter>) -> String {
    let mut text = String::new();
    events.write_snapshot(&mut text, None, 2, &Names, Clock { frequency: 1_000_000, origin: 0 }).unwrap();
    text
}
