//! Events on a machine of two functions whose probes are counters.

use kprobes_random::{assert_tried, tried::tried};

use super::*;
use crate::clock::Clock;
use crate::context::Context;
use crate::definition::{Command, parse};
use crate::errno::Errno;
use crate::filter::FindFunction;
use crate::hit::Registers;
use crate::hit::write::RecordedHit;
use crate::options::{Flag, TraceClock};
use crate::symbols::Function;
use crate::text::ShowError;
use crate::trigger::ProbeContext;
use crate::trigger::inherited_tasks::InheritedTasks;
use crate::trigger::restriction::Restriction;
use crate::trigger::settings::Settings;
use aarch64_kprobes::event::Text;
use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe::Insertion;
use alloc::borrow::ToOwned;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::fmt::{self, Write};
use core::ptr;
use fallible::failing::with_memory;
use kprobes_types::LineError;

mod base_event;
mod commands;
mod instance;
mod named;
mod scarce;
mod tested;
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

/// Replaces the plan of an event that no hit is using.
fn replace_plan(event: &Event<Counter>, plan: Option<Box<Plan>>) {
    let old = event.recorder().plan.replace(plan);
    // SAFETY: the test has one thread, which handles no hit now.
    old.into_iter().for_each(|old| unsafe { old.free() });
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

/// Returns the problem of a line with a caret below its cause, and the reason.
fn refused(line: &str, caret: &str) -> (Problem, String) {
    let mut events = events();
    define(&mut events, "p:taken f x=%x0").unwrap();
    let error = define(&mut events, line).expect_err(line);
    assert_eq!(error.column, caret.len() - 1, "{line}\n{caret}");
    assert_eq!(events.iter().count(), 1);
    (error.problem, error.reason.unwrap_or_default())
}

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

#[test]
fn lines_are_places_if_one_instruction_begins_them() {
    let mut events = events();
    define(&mut events, "p:line b.rs:7 %x1").unwrap();
    let event = events.iter().next().unwrap();
    assert_eq!(
        (event.address(), event.definition().to_string()),
        (0x2008, "p:kprobes/line b.rs:7 arg1=%x1".to_string())
    );
    let (problem, reason) = refused("p b.rs:8", "  ^");
    let places = "this line has 2 instructions of its own, such as a::b<c, d>+0xc and f+0x4; give one of them instead";
    assert_eq!((problem, &*reason), (Problem::Ambiguous, places));
    let (problem, reason) = refused("p b.rs:10", "  ^");
    let places = "this line has 2 instructions of its own, such as 0x3004 and 0x4004; give one of them instead";
    assert_eq!((problem, &*reason), (Problem::Ambiguous, places));
    let (problem, reason) = refused("p b.rs:9", "  ^");
    let nearest = "this line of a/b.rs has no instruction of its own; the nearest line is 8";
    assert_eq!((problem, &*reason), (Problem::NoFunction, nearest));
    assert_eq!(refused("p c.rs:9", "  ^").0, Problem::NoFunction);
}

#[test]
fn hits_are_in_the_trace() {
    let mut events = events();
    define(&mut events, "p:here a::b<c, d>+8 n=%x1:u8").unwrap();
    assert!(events.iter().all(|event| !event.probe().unwrap().is_enabled() && event.address() == 0x2008));
    hit(0x2008, 5_000_001);
    assert_eq!(
        trace(&events, usize::MAX),
        "            main-3       [000] .....     5.000001: here: (a::b<c, d>+0x8/0x100) n=1\n"
    );
    let mut text = String::new();
    let clock = Clock { frequency: 1_000_000, origin: 0 };
    assert_eq!(events.write_pipe(&mut text, None, &Names, clock), Ok(1));
    assert_eq!(text, "            main-3       [000] .....     5.000001: here: (a::b<c, d>+0x8/0x100) n=1\n");
    assert_eq!((events.write_pipe(&mut text, None, &Names, clock), trace(&events, 9)), (Ok(0), String::new()));
}

/// The buffer in which records are composed still has the record before.
#[test]
fn no_record_has_bytes_of_another() {
    aarch64_kprobes::event! {
        struct Noted<'a> = test:noted {
            mark: u8,
            text: Text<'a>,
            tag: [u8; 3],
        }
    }
    let mut events = events();
    define(&mut events, "p:before f t=+0(%x19):string t2=+0(%x19):string t3=+0(%x19):string").unwrap();
    hit(0x1000, 1);
    events.add_static(Noted::EVENT).unwrap();
    let event = events.iter().find(|event| event.is_static()).unwrap();
    happen(event, &Noted { mark: 1, text: "ab".into(), tag: *b"xyz" });
    let snapshot = events.rings().snapshot().unwrap();
    let record = snapshot.records().unwrap().last().unwrap();
    assert_eq!(record.bytes[8..], *b"\x01\0\0\0\x18\0\x03\0xyz\0\0\0\0\0ab\0");
}

#[test]
fn arguments_are_fetched() {
    assert_tried!(fetched("p f %x3 $arg2 $stack %pc"), "arg1=0x3 arg2=0x1 arg3=0x0 arg4=0x0");
    assert_tried!(fetched("p f %x3:u8 \\-1:s16 \\8:x32"), "arg1=3 arg2=-1 arg3=0x8");
    assert_tried!(fetched("p f @a::TIMES+16 @a::TIMES+8:u8 @a::TIMES:u64[2]"), "arg1=0x2 arg2=1 arg3={0,1}");
    assert_tried!(fetched("p f $comm c=$COMM:string"), "arg1=\"main\" c=\"main\"");
    assert_tried!(fetched("p f \\\"some\" %x1:char"), "arg1=\"some\" arg2='\u{1}'");
    assert_tried!(fetched("p f %x30:b2@1/32 %x30:symbol"), "arg1=3 arg2=0x1e");
    assert_tried!(fetched("p f +0(%x19):string +6(%x19):string"), "arg1=\"first\" arg2=\"second\"");
    assert_tried!(fetched("p f +0(%x19):char[3] +0(%x19):u16[2]"), "arg1={'f','i','r'} arg2={26982,29554}");
    assert_tried!(fetched("p f +0(%x19):b8@8/32[2]"), "arg1={105,0}");
    assert_tried!(fetched("p f +0(%x19):x8 %x2"), "arg1=0x66 arg2=0x2");
    assert_tried!(fetched("r f $arg1 $arg9 $arg1:u8"), "arg1=0x5 arg2=0x1000 arg3=5");
    assert_tried!(fetched("r f $retval:s32 $arg3:symstr"), "arg1=0 arg2=\"0x5\"");
}

/// The fast path accepts exactly the hits that it can handle, and both paths record the same.
#[test]
fn a_hit_is_recorded_the_same_in_whichever_way() {
    let words = "p:e f n=%x20 m=+0(%x21) null=+0(%x0):s64";
    let more = "p:e f n=%x20 m=+0(%x21) null=+0(%x0):s64 b=+0(%x21):u8 t=+0(%x19):string";
    let narrow = "p:e f n=%x20:x32 m=+0(%x21):u8 null=+0(%x0):s16";
    let returns = "r:e f n=%x20 m=+0(%x21) null=%x0:s64";
    type Kept = fn(u64, u64) -> bool;
    // More records than a page has room for, and fewer than two pages have.
    const HITS: u64 = if cfg!(miri) { 8 } else { 80 };
    let filters: [(&str, bool, Kept); 10] = [
        ("0", true, |_, _| true),
        ("n == 3", true, |n, _| n == 3),
        ("m != 3", false, |_, m| m != 3),
        ("n < 2 || m > 5", false, |n, m| n < 2 || m > 5),
        ("!(n & 1) && m >= 4", false, |n, m| n & 1 == 0 && m >= 4),
        ("!(null != 0) && n <= 1", true, |n, _| n <= 1),
        ("null < 0 || null > 0", true, |_, _| false),
        ("n == 3 && comm == 'main'", false, |n, _| n == 3),
        ("n == 3 || cpu == 1 || common_pid == 4", false, |n, _| n == 3),
        ("n > 1 && __probe_func != 1", false, |n, _| n > 1),
    ];
    for line in tried([words, more, narrow, returns]) {
        for (filter, is_quick, kept) in tried(filters) {
            // A field from memory makes the filter look at the record.
            let is_quick = is_quick && (line == returns || !filter.contains("null"));
            let filter = if line == returns { filter.into() } else { filter.replace("__probe_func", "__probe_ip") };
            let recorded = [hit, hit_unusually].map(|hit| {
                let mut events = events();
                define(&mut events, line).unwrap();
                let event = events.iter().next().unwrap();
                let mut settings = Settings::new(true).unwrap();
                settings.set_filter(&filter, &event.format().fields, FindFunction::NONE).unwrap();
                let plan =
                    settings.plan(None, ProbeContext::INSIDE, &|number| event.recorder().source(number)).unwrap();
                assert!(plan.as_ref().is_none_or(|plan| plan.register_tests.is_some() == is_quick), "{line}: {filter}");
                replace_plan(event, plan);
                (0..HITS).for_each(|time| hit(0x1000, time));
                settings.set_enabled(false);
                settings.settle();
                let plan =
                    settings.plan(None, ProbeContext::INSIDE, &|number| event.recorder().source(number)).unwrap();
                replace_plan(event, plan);
                hit(0x1000, 3);
                events.rings().set_on(false);
                replace_plan(event, None);
                hit(0x1000, 3);
                trace(&events, usize::MAX)
            });
            assert_eq!(recorded[0], recorded[1], "{line}: {filter}");
            let number = |line: &str| {
                let (_, rest) = line.split_once(" n=0x").unwrap();
                u64::from_str_radix(rest.split(' ').next().unwrap(), 16).unwrap()
            };
            let numbers: Vec<u64> = recorded[0].lines().map(number).collect();
            let expected: Vec<u64> = (0..HITS).filter(|&time| kept(time, time % 8)).collect();
            assert_eq!(numbers, expected, "{line}: {filter}");
        }
    }
}

/// A probe saves only the registers of a call if it is at a function's entry and its arguments use no others.
#[test]
fn a_probe_saves_what_its_arguments_need() {
    let form = |line: &str| {
        let mut events = events();
        define(&mut events, line).unwrap();
        events.iter().next().unwrap().probe().unwrap().form
    };
    for arguments in tried([
        "",
        "%x0 %x7 %x8 %x18 %x29 %x30 %sp %pc",
        "$stack $stack3 $arg1 $arg12 $comm \\5 @f",
        "+0(%x0):string +8(+16(%x30)):u8[4] +0(%sp):b4@2/32",
    ]) {
        assert_eq!(form(&std::format!("p f {arguments}")), Form::Call, "{arguments}");
        // $argN is refused inside a function and at a bare address.
        let arguments = arguments.replace("$arg1 $arg12", "");
        assert_tried!(form(&std::format!("p f+4 {arguments}")), Form::Full, "{arguments}");
        assert_tried!(form(&std::format!("p 0x5000 {arguments}")), Form::Full, "{arguments}");
    }
    for argument in tried(["%x9", "%x17", "%x19", "%x28", "%pstate", "+0(%x20)", "+0(+8(%x16)):string"]) {
        assert_eq!(form(&std::format!("p f %x0 {argument}")), Form::Full, "{argument}");
    }
    assert_eq!(form("r f $retval"), Form::Full);
}

/// No test of a value that could not be read holds, whatever the type of the argument.
#[test]
fn what_cannot_be_read_is_no_value_to_a_filter() {
    for line in
        tried(["p:one f x=+0(%x0) y=%x20", "p:one f x=+0(%x0):u8 y=%x20", "p:one f x=+0(%x0):b4@0/32 y=%x20:u16"])
    {
        for (filter, kept) in tried([
            ("x == 0", 0),
            ("x != 0", 0),
            ("x < 5 || x >= 5 || x & 1", 0),
            ("!(x == 0)", 1),
            ("x == 0 || y == 7", 1),
            ("y == 7", 1),
            ("y == 0", 0),
        ]) {
            let Controlled { mut events } = Controlled::new(&[line]);
            events.set_enabled(None, None, true).unwrap();
            events.set_filter(("kprobes", "one"), filter).unwrap();
            hit(0x1000, 7);
            assert_eq!(trace(&events, 9).lines().count(), kept, "{line}: {filter}");
        }
    }
    for (filter, kept) in tried([("t == ''", 0), ("t != 'x'", 0), ("t ~ '*'", 0), ("!(t == 'x')", 1)]) {
        let Controlled { mut events } = Controlled::new(&["p:one f t=+0(%x0):string"]);
        events.set_enabled(None, None, true).unwrap();
        events.set_filter(("kprobes", "one"), filter).unwrap();
        hit(0x1000, 7);
        assert_eq!(trace(&events, 9).lines().count(), kept, "{filter}");
    }
}

/// A `symstr` is the text of an address, for records, filters and histograms alike.
#[test]
fn symbol_strings_are_recorded_as_text() {
    let addresses = [0, 0xfff, 0x1000, 0x100f, 0x1010, 0x20fe, 0x300f, 0x4000, 0x4010, u64::MAX];
    for address in tried(addresses) {
        static PLACE: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);
        PLACE.store(address, core::sync::atomic::Ordering::Relaxed);
        let mut symbol = String::new();
        crate::symbols::write_offset(&mut symbol, address, &Names).unwrap();
        let line = std::format!("p f @{:#x}:symstr", PLACE.as_ptr() as usize);
        assert_eq!(fetched(&line), std::format!("arg1=\"{symbol}\""));
    }
    assert_tried!(fetched("p f +0(%x0):symstr"), "arg1=(fault)");

    let Controlled { mut events } = Controlled::new(&["p:one f s=%x20:symstr"]);
    let name = ("kprobes", "one");
    events.set_enabled(None, None, true).unwrap();
    events.set_filter(name, "s ~ \"a::*\" && s != 'a::b<c, d>+0x8/0x100'").unwrap();
    events.set_trigger(name, "hist:keys=s").unwrap();
    [0x1004, 0x2004, 0x2008, 0x2008, 0x5000].into_iter().for_each(|address| hit(0x1000, address));
    assert_eq!(trace(&events, 9).lines().count(), 1);
    assert!(trace(&events, 9).ends_with(" s=\"a::b<c, d>+0x4/0x100\"\n"), "{}", trace(&events, 9));
    let mut shown = String::new();
    let trigger = &events.settings(name).unwrap().triggers()[0];
    trigger.histogram().unwrap().write(&mut shown, trigger, &Names).unwrap();
    for (text, hits) in [("f+0x4/0x10", 1), ("a::b<c, d>+0x8/0x100", 2), ("0x5000", 1)] {
        assert!(shown.contains(&std::format!("{{ s: {text:<50} }} hitcount: {hits:>10}\n")), "{text}: {shown}");
    }
}

/// On the host, the null page is the memory that cannot be read.
#[test]
fn what_cannot_be_read_is_a_fault() {
    assert_tried!(fetched("p f +0(%x0)"), "arg1=(fault)");
    assert_tried!(fetched("p f a=%x1 b=-1(%x1):u64 c=%x2"), "a=0x1 b=(fault) c=0x2");
    assert_tried!(fetched("p f +0(%x0):string +4(+0(%x0)):u8 %x1"), "arg1=(fault) arg2=(fault) arg3=0x1");
    assert_tried!(fetched("p f +0(%x0):u8[1] $stack0"), "arg1=(fault) arg2=(fault)");
    assert_tried!(fetched("p f +0(+0(%x0)):string[2]"), "arg1=(fault)");
    static PLACES: [Option<&[u8; 5]>; 3] = [Some(b"text\0"), None, Some(b"more\0")];
    let places = std::format!("p f @{:#x}:string[3]", &raw const PLACES as usize);
    assert_tried!(fetched(&places), "arg1={\"text\",(fault),\"more\"}");
}

#[test]
fn long_texts_are_cut_and_records_stay_whole() {
    static LONG: [u8; 2000] = [b'a'; 2000];
    let argument = std::format!("@{:#x}:string", LONG.as_ptr() as usize);
    let line = (0..9).fold(String::from("p f"), |line, number| std::format!("{line} t{number}={argument}")) + " %x1";
    let text = fetched(&line);
    let whole = std::format!("\"{}\"", "a".repeat(crate::recorder::TEXT_MAX - 1));
    assert!(text.starts_with(&std::format!("t0={whole} t1={whole}")) && text.ends_with(" arg10=0x1"), "{text}");
    assert!(text.len() < 4096);
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
    let reason = |line, caret, problem: Problem| {
        let (found, reason) = refused(line, caret);
        assert_eq!(found, problem, "{line}");
        reason
    };
    assert_tried!(reason("r:taken a::b<c, d>", "^", Problem::OtherKind), "");
    assert_tried!(reason("p:taken a::b<c, d> x=%x0:u8", "                   ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:taken a::b<c, d> x=%x0 %x1", "                         ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:taken a::b<c, d> y=%x0", "                   ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:taken f", "          ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:taken f y=%x0 %x1", "                ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:kprobes/taken f x=%x0", "^", Problem::Same), "");
    assert!(reason("p:x g", "    ^", Problem::NoFunction).ends_with("no function has the name g; did you mean `f`?"));
    assert!(!reason("p:x TIME", "    ^", Problem::NoFunction).contains("did you mean"), "a static is no place");
    assert!(reason("p:x f @g", "    ^", Problem::NoSymbol).contains("did you mean `f`?"));
    let unknown = reason("p:x f @TIME", "    ^", Problem::NoSymbol);
    assert_eq!(unknown, "no function or static has the name TIME; did you mean `a::TIMES`?");
    // As in Linux, a place is looked up before the probe is registered; a symbol in an argument, while it is
    // registered.
    assert!(reason("p:x f @", "    ^", Problem::NoSymbol).starts_with("no function or static has the name"));
    assert_eq!([Problem::NoFunction, Problem::NoSymbol].map(Problem::errno), [Errno::Invalid, Errno::NotFound]);
    assert!(reason("p:x f @twice", "    ^", Problem::Ambiguous).contains("3 symbols"), "functions and a static");
    assert!(reason("p:x twice", "    ^", Problem::Ambiguous).contains("2 symbols"));
    assert!(reason("p:x f+0x1004", "    ^", Problem::NoFunction).contains("0x10 bytes"));
    // As in Linux, the start of another function can be given as an offset from this one.
    define(&mut events(), "p:x f+0x1000").unwrap();
    let mut behind = events();
    define(&mut behind, "p:x f+16").unwrap();
    assert_eq!(behind.iter().next().unwrap().address(), 0x1010);
    assert!(reason("p:x f+6", "    ^", Problem::Refused).contains("multiple of 4"));
    assert_tried!(reason("p:x f+12", "    ^", Problem::Refused), "refused");
    // As in Linux, arguments have 3072 bytes at most. The caret points to the inside of the outermost read.
    let large =
        |count| (0..count).fold(String::from("p:x f"), |line, number| format!("{line} a{number}=+0(%x0):u64[64]"));
    define(&mut events(), &large(6)).unwrap();
    let caret = format!("{:>1$}", "^", large(6).len() + " a6=+0(^".len());
    assert_tried!(reason(&large(8), &caret, Problem::TooBig), "");
    assert_eq!(Problem::TooBig.errno(), Errno::TooLong);
}

/// As in Linux, a place that does not exist is found before what else is wrong with a line, but for an fprobe.
#[test]
fn a_missing_place_is_found_first() {
    let mut events = events();
    define(&mut events, "p:taken f x=%x0").unwrap();
    for (line, caret, problem) in tried([
        ("p:x  g %x99", "     ^", Problem::NoFunction),
        ("r:1x twice $nosuch", "     ^", Problem::Ambiguous),
        ("p:taken g", "        ^", Problem::NoFunction),
        ("p:x f %x99", "      ^", Problem::Register),
        ("p:1x f %x99", "  ^", Problem::Event),
        ("r0:x g %x99", " ^", Problem::Maxactive),
        ("f:x g %x0", "      ^", Problem::NoRegisters),
        ("t:x nothing %x0", "    ^", Problem::NoTracepoint),
        ("e:x no.event $a:junk if", "    ^", Problem::AttachedEvent),
        ("e:1x no.event", "  ^", Problem::Event),
        ("e:x kprobes.taken $x:junk", "                     ^", Problem::Type),
    ]) {
        let defined = events.parse(line, &Names).and_then(|command| match command {
            Some(Command::Define(definition)) => events.define(definition, &Names),
            _ => Ok(()),
        });
        let error = defined.expect_err(line);
        assert_eq!((error.problem, error.column), (problem, caret.len() - 1), "{line}");
    }
}

/// Two spellings of one function are the same function.
#[test]
fn one_probe_spelled_in_two_ways_is_one() {
    let mut events = events();
    for line in ["p:one a::b x=%x0", "p:one a::b x=%x1", "p:one a::b+4 x=%x0", "p:two f x=@a::b y=%x0:b1@0/8"] {
        assert_eq!(define(&mut events, line), Ok(()), "{line}");
    }
    for line in
        ["p:one a::b<c, d> x=%x0", "p:one 0x2000 x=%x1", "p:one a::b<c, d>+4 x=%x0", "p:two f x=@a::b y=%x0:b1@0/8"]
    {
        assert_eq!(define(&mut events, line).map_err(|error| error.problem), Err(Problem::Same), "{line}");
    }
    assert_eq!(define(&mut events, "p:two f x=@f y=%x0:b1@0/8"), Ok(()));
    assert_eq!(define(&mut events, "p:two f x=@a::b y=%x0:b1@1/8"), Ok(()), "other bits");
    assert_eq!(events.iter().count(), 6);
}

#[test]
fn functions_of_one_path_are_told_apart_by_numbers() {
    let mut events = events();
    define(&mut events, "p:one twice#1 x=@twice#2 # the first").unwrap();
    define(&mut events, "p:one twice#2+4 x=@twice#2").unwrap();
    assert!(events.iter().map(Event::address).eq([0x3000, 0x4004]));
    let mut listed = String::new();
    events.write_definitions(&mut listed).unwrap();
    assert_eq!(listed, "p:kprobes/one twice#1 x=@twice#2\np:kprobes/one twice#2+4 x=@twice#2\n");
    assert_eq!(remove(&mut events, "-:one twice#2+4 x=@twice#2"), Ok(1));
    assert!(define(&mut events, "p:one twice#3").is_err());
}

#[test]
fn an_event_can_have_several_probes() {
    let mut events = events();
    define(&mut events, "p:one f x=%x0").unwrap();
    define(&mut events, "p:one f x=%x1").unwrap();
    assert_eq!(events.set_enabled(None, Some("one"), true), Ok(()));
    define(&mut events, "p:one a::b<c, d> x=%x2").unwrap();
    assert!(events.iter().all(|event| event.probe().unwrap().is_enabled() && event.number() == 6));
    hit(0x1000, 1);
    hit(0x2000, 2);
    assert_eq!(trace(&events, 9).matches(": one: (").count(), 3);
    assert_eq!(remove(&mut events, "-:one f x=%x1"), Ok(1));
    assert_eq!(remove(&mut events, "-:kprobes/one f x=%x0"), Ok(1));
    assert_eq!(
        remove(&mut events, "-:one a::b<c, d> x=%x2"),
        Err(Problem::Busy),
        "the last one of an event that is enabled"
    );
    assert_eq!(events.set_enabled(Some("kprobes"), None, false), Ok(()));
    assert_eq!(remove(&mut events, "-:one f"), Ok(0));
    assert_eq!(remove(&mut events, "-:one"), Ok(1));
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

/// With the option `stacktrace`, the stack follows what is recorded, and nothing else.
#[test]
fn stacks_can_follow_all_records() {
    let mut controlled = Controlled::new(&["p:one f x=%x20", "p:two a::b x=%x20"]);
    let Controlled { events } = &mut controlled;
    events.set_enabled(None, None, true).unwrap();
    events.set_filter(("kprobes", "one"), "x < 5").unwrap();
    events.set_trigger(("kprobes", "two"), "hist:keys=x").unwrap();
    for (stacks, expected) in [(false, 0), (true, 2), (false, 0)] {
        let Controlled { events } = &mut controlled;
        events.set_stacks(stacks).unwrap();
        [(0x1000, 1), (0x1000, 9), (0x2000, 9)].into_iter().for_each(|(address, time)| hit(address, time));
        let text = controlled.take_trace();
        assert_eq!(text.matches("<stack trace>").count(), expected, "{text}");
        assert_eq!(text.matches(" x=").count(), 2, "{text}");
    }
    let mut allocations = 0;
    let mut set = |allocations| {
        let Controlled { events } = &mut controlled;
        with_memory(allocations, || events.set_stacks(true))
    };
    while set(allocations) == Err(Errno::NoMemory) {
        allocations += 1;
    }
    assert!(allocations > 3, "{allocations}");
}

/// The probe of an event in another list may trigger a synthetic event of a list that is dropped.
#[test]
fn hits_are_over_before_the_plans_of_a_list_are_dropped() {
    let dropped = |lines: &[&str], filter: Option<&str>| {
        let mut controlled = Controlled::new(lines);
        let Controlled { events } = &mut controlled;
        events.set_enabled(None, None, true).unwrap();
        if let Some(filter) = filter {
            events.set_filter(("kprobes", "one"), filter).unwrap();
        }
        let before = SYNCHRONIZED.get();
        drop(controlled);
        SYNCHRONIZED.get() - before
    };
    assert_eq!(dropped(&["p:one f x=%x20"], None), 0, "there is no plan");
    assert_eq!(dropped(&["p:one f x=%x20", "p:two a::b x=%x20"], Some("x < 5")), 1);
    let lines: Vec<String> = (0..PLANS).map(|number| format!("p:e{number} f")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(["p:one f x=%x20"]).collect();
    assert_eq!(dropped(&lines, Some("x < 5")), 1, "the plan is in the second part");
}

/// A hit in progress can use the plan that it has found until `synchronize` has waited for it. Miri also checks that
/// the plan's new owners leave the reference valid.
#[test]
fn a_plan_is_kept_for_the_hits_that_have_found_it() {
    const ONE: (&str, &str) = ("kprobes", "one");
    let mut controlled = Controlled::new(&["p:one f x=%x20", "p:two a::b x=%x20"]);
    let Controlled { events } = &mut controlled;
    events.set_enabled(Some("kprobes"), Some("one"), true).unwrap();
    events.set_filter(ONE, "x < 5").unwrap();
    let find = |events: &Events<Counter>| {
        let plan = events.iter().next().unwrap().recorder().plan.get().unwrap();
        // SAFETY: `synchronize` takes the reference out of `FOUND`, before the plan is freed.
        FOUND.set(Some(unsafe { &*ptr::from_ref(plan) }));
    };
    let is_over = || FOUND.get().is_none();
    find(events);
    events.set_filter(ONE, "x < 6").unwrap();
    assert!(is_over(), "the settings have changed");
    find(events);
    ARMS_LEFT.set(0);
    assert_eq!(events.set_enabled(None, None, true), Err(Errno::NoMemory));
    ARMS_LEFT.set(usize::MAX);
    assert!(is_over(), "the old plan is put back");
    find(events);
    events.reset_settings(|_| true);
    assert!(is_over(), "the settings are reset");
    events.set_filter(ONE, "x < 5").unwrap();
    find(events);
    drop(controlled);
    assert!(is_over(), "the list is dropped");
}

/// Code at a return records every hit, so it must not run while there is a plan.
#[test]
fn returns_are_left_to_the_handler_exactly_while_there_is_a_plan() {
    const ONE: (&str, &str) = ("kprobes", "one");
    fn assert_left(controlled: &Controlled, expected: bool, when: &str) {
        for event in controlled.events.iter() {
            assert_eq!(event.recorder().plan.has_plan(), expected, "{when}");
            assert_eq!(event.probe().unwrap().is_snippet_enabled.get(), !expected, "{when}");
        }
    }
    let mut controlled = Controlled::new(&["r:one f x=%x0"]);
    let set = |controlled: &mut Controlled, filter, allocations| {
        let Controlled { events } = controlled;
        with_memory(allocations, || events.set_filter(ONE, filter))
    };
    let enable = |controlled: &mut Controlled, enabled| {
        let Controlled { events } = controlled;
        events.set_enabled(None, None, enabled).unwrap();
    };
    enable(&mut controlled, true);
    assert_left(&controlled, false, "enabled");
    let mut allocations = 0;
    while set(&mut controlled, "x < 5", allocations) == Err(Errno::NoMemory) {
        assert_left(&controlled, false, "without memory for a filter");
        allocations += 1;
    }
    assert!(allocations > 3, "{allocations}");
    assert_left(&controlled, true, "with a filter");
    controlled.define("r:one a::b<c, d> x=%x0");
    assert_left(&controlled, true, "with a second probe");
    set(&mut controlled, "0", usize::MAX).unwrap();
    assert_left(&controlled, false, "without a filter again");
    enable(&mut controlled, false);
    assert_left(&controlled, true, "disabled");
    enable(&mut controlled, true);
    set(&mut controlled, "x < 5", usize::MAX).unwrap();
    let Controlled { events } = &mut controlled;
    events.reset_settings(|_| true);
    assert_left(&controlled, true, "reset");
}

/// A stack begins with the probed address, followed by its callers. A return is hit in the caller of the function.
#[test]
fn a_stack_has_each_call_once() {
    for (line, expected) in tried([
        ("p:one f", "{ common_stacktrace:\n         f+0x0/0x10\n         0x1e\n"),
        ("p:one f+4", "{ common_stacktrace:\n         f+0x4/0x10\n} hitcount"),
        ("r:one f", "{ common_stacktrace:\n         a::b<c, d>+0x4/0x100\n} hitcount"),
    ]) {
        let Controlled { mut events } = Controlled::new(&[line]);
        let name = ("kprobes", "one");
        for trigger in ["hist:keys=common_stacktrace", "stacktrace"] {
            events.set_trigger(name, trigger).unwrap();
        }
        hit(events.iter().next().unwrap().address(), 1);
        let mut text = String::new();
        let trigger = &events.settings(name).unwrap().triggers()[1];
        trigger.histogram().unwrap().write(&mut text, trigger, &Names).unwrap();
        assert!(text.contains(expected), "{line}: {text}");
        let frames = expected.matches("\n    ").count();
        assert_eq!(trace(&events, 9).matches("\n => ").count(), frames, "{line}: {}", trace(&events, 9));
    }
}

#[test]
fn a_group_counts_events_as_enabled_that_triggers_have_hit() {
    let Controlled { mut events } = Controlled::new(&["p:g/one f", "p:g/two f+4"]);
    let texts = |events: &Events<Counter>| [Some("g"), None, Some("h")].map(|group| events.enabled_text(group));
    assert_tried!(texts(&events), ["0", "0", "?"]);
    events.set_trigger(("g", "one"), "stacktrace").unwrap();
    assert_tried!(texts(&events), ["X", "X", "?"]);
    events.set_trigger(("g", "one"), "enable_event:g:two").unwrap();
    assert_tried!(texts(&events), ["1", "1", "?"], "the target of a trigger is hit, too");
    for trigger in ["!stacktrace", "!enable_event:g:two"] {
        events.set_trigger(("g", "one"), trigger).unwrap();
    }
    assert_tried!(texts(&events), ["0", "0", "?"]);
}

/// The examples of Linux's documentation of `set_event` (events.rst, section 2.1).
#[test]
fn events_are_enabled_by_words() {
    let Controlled { mut events } = Controlled::new(&["p:g/one f", "p:g/two f+4", "p:h/one f+8"]);
    let mut enabled = |text: &str| {
        events.set_enabled(None, None, false).unwrap();
        let outcome = events.set_events(text);
        let mut text = String::new();
        events.write_events(true, &mut text).unwrap();
        (outcome, text.replace('\n', " "))
    };
    for (text, expected) in tried([
        ("", ""),
        (" \n", ""),
        ("g:one\n", "g:one "),
        ("one", "g:one h:one "),
        ("g", "g:one g:two "),
        ("g:", "g:one g:two "),
        ("g:*", "g:one g:two "),
        (":one", "g:one h:one "),
        ("*:one", "g:one h:one "),
        ("*:*", "g:one g:two h:one "),
        ("*:* !g:one", "g:two h:one "),
        ("g !one", "g:two "),
    ]) {
        assert_eq!(enabled(text), (Ok(()), expected.into()), "{text}");
    }
    for (text, expected) in [("x", ""), ("*", ""), ("g:x", ""), ("g:one x h:one", "g:one "), ("!", ""), ("o*", "")] {
        assert_eq!(enabled(text), (Err(Errno::Invalid), expected.into()), "{text}");
    }
    let mut text = String::new();
    events.write_events(false, &mut text).unwrap();
    assert_eq!(text, "g:one\ng:two\nh:one\n");
}

#[test]
fn the_filter_of_a_group_is_that_of_its_events_that_can_have_it() {
    let lines = ["p:g/one f x=%x0", "p:g/two f+4", "p:h/one f+8 x=%x0", "p:g/three f+8"];
    let Controlled { mut events } = Controlled::new(&lines);
    events.set_group_filter("g", "x == 1\n").unwrap();
    let filters = |events: &Events<Counter>| {
        [("g", "one"), ("g", "two"), ("h", "one")].map(|name| {
            let mut text = String::new();
            if let Some(settings) = events.settings(name) {
                settings.write_filter(&mut text).unwrap();
            }
            text
        })
    };
    let refused = "x == 1\n^\nparse_error: Couldn't find or set field in one of a subsystem's events\n\n";
    assert_eq!(filters(&events), ["x == 1\n", refused, ""]);
    let mut log = String::new();
    events.problems().write(&mut log).unwrap();
    let logged = "event filter parse error: error: Couldn't find or set field in one";
    assert_eq!(log.matches(logged).count(), 2, "one for each event that refuses it: {log}");
    events.set_group_filter("g", "0").unwrap();
    assert_eq!(filters(&events), ["none\n", "none\n", ""]);
}

#[test]
fn the_error_of_a_filter_is_returned_and_shown_as_in_linux() {
    let Controlled { mut events } = Controlled::new(&["p:g/one f x=%x0"]);
    for (text, errno, problem, shown, logged) in tried([
        ("x == 1)", Errno::NotAllowed, "Too few '('", "      ^", "      ^"),
        ("(x == 1", Errno::NotFound, "Too many '('", "^", "^"),
        ("x == 'a", Errno::NoProcess, "Missing matching quote", "     ^", "     ^"),
        ("x == 1 x", Errno::NotAllowed, "Too many terms in predicate expression", "       ^", "       ^"),
        ("x ==", Errno::Invalid, "Invalid value (did you forget quotes)?", "    ^", "     ^"),
        ("", Errno::Invalid, "Error", "", "^"),
        ("|| x == 1", Errno::NotAllowed, "Error", "", "^"),
        (
            "x == 1 || x == 2 &&",
            Errno::Invalid,
            "Meaningless filter expression",
            "                   ^",
            "                   ^",
        ),
    ]) {
        assert_eq!(events.set_filter(("g", "one"), text), Err(errno), "{text}");
        let (mut file, mut log) = (String::new(), String::new());
        events.settings(("g", "one")).unwrap().write_filter(&mut file).unwrap();
        let expected = match shown {
            "" => format!("{text}\nError: (0)\n\n"),
            caret => format!("{text}\n{caret}\nparse_error: {problem}\n\n"),
        };
        assert_eq!(file, expected);
        events.problems().write(&mut log).unwrap();
        let expected = format!(": error: {problem}\n  Command: {text}\n           {logged}\n");
        assert!(log.ends_with(&expected), "{log}");
    }
}

/// A restriction applies to existing and to later events, with and without a filter.
#[test]
fn only_hits_of_some_tasks_and_cpus_are_recorded() {
    let mut controlled = Controlled::new(&["p:one f"]);
    controlled.events.set_events("one").unwrap();
    // Every hit is by task 3, on CPU 0.
    let both = |case| [false, true].map(|children| (case, children));
    let cases = [
        ("", "", None, 2),
        ("3", "", None, 2),
        ("4 5", "", None, 0),
        ("3 4", "3", None, 0),
        ("", "4", None, 2),
        ("", "", Some(0), 0),
        ("", "", Some(0b10), 0),
        ("3", "4", Some(0b11), 2),
    ];
    for ((only, without, cpus, expected), children) in tried(cases.into_iter().flat_map(both)) {
        let mut restriction = Restriction { cpus, children, ..Restriction::default() };
        if !only.is_empty() {
            restriction.only.get_or_insert_default().add(only).unwrap();
        }
        restriction.without.add(without).unwrap();
        let Controlled { events } = &mut controlled;
        let inherited = InheritedTasks::of(&restriction).unwrap();
        events.restrict(restriction, inherited).unwrap();
        controlled.define("p:two f+4");
        controlled.define("p:one f+8");
        let Controlled { events } = &mut controlled;
        events.set_events("two").unwrap();
        events.clear_trace();
        [0x1000, 0x1004].into_iter().for_each(|address| hit(address, 1));
        assert_eq!(trace(events, 9).lines().count(), expected, "{only}, {without}, {cpus:?}");
        events.clear_trace();
        hit(0x1008, 1);
        assert_eq!(trace(events, 9).lines().count(), expected / 2, "a second probe of an event");
        events.set_events("!two").unwrap();
        remove(events, "-:two").unwrap();
        remove(events, "-:one f+8").unwrap();
    }
}

/// The child of a recorded task is recorded, and the files show it.
#[test]
fn children_follow_into_the_restriction() {
    let Controlled { mut events } = Controlled::new(&["p:one f"]);
    events.set_events("one").unwrap();
    let mut restriction = Restriction { children: true, ..Restriction::default() };
    restriction.only.get_or_insert_default().add("7").unwrap();
    let inherited = InheritedTasks::of(&restriction).unwrap();
    events.restrict(restriction, inherited.clone()).unwrap();
    hit(0x1000, 1);
    assert_eq!(trace(&events, 9).lines().count(), 0);
    inherited.unwrap().starts(7, 3);
    hit(0x1000, 2);
    assert_eq!(trace(&events, 9).lines().count(), 1);
    let mut tasks = String::new();
    events.restriction().unwrap().only.unwrap().write(&mut tasks).unwrap();
    assert_eq!(tasks, "3\n7\n");
}

/// A text for `trace_marker` fires triggers only where it is recorded.
#[test]
fn a_text_on_a_cpu_that_is_left_out_fires_no_trigger() {
    let mut events = events();
    events.add_static(&crate::mark::PRINT).unwrap();
    let print = ("ftrace", "print");
    events.set_trigger(print, "hist:keys=buf").unwrap();
    assert!(events.write_marker("kept"));
    events.restrict(Restriction { cpus: Some(0b10), ..Restriction::default() }, None).unwrap();
    assert!(!events.write_marker("lost"));
    let mut shown = String::new();
    let trigger = &events.settings(print).unwrap().triggers()[0];
    trigger.histogram().unwrap().write(&mut shown, trigger, &Names).unwrap();
    assert!(shown.contains("{ buf: kept ") && shown.contains("\n    Hits: 1\n"), "{shown}");
    let text = trace(&events, 9);
    assert!(text.contains(": tracing_mark_write: kept\n") && text.lines().count() == 1, "{text}");
}

/// The numbers of records continue across records that were read or are missing.
#[test]
fn the_clock_can_count_records() {
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    events.set_clock(TraceClock::Counter);
    let times = |text: String| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().nth(3).unwrap().into()).collect()
    };
    (1..=2).for_each(|time| hit(0x1000, time));
    assert_eq!(times(trace(&events, 9)), ["0:", "1:"]);
    let clock = Clock { frequency: 1, origin: 0 };
    let mut text = String::new();
    events.write_pipe(&mut text, None, &Names, clock).unwrap();
    hit(0x1000, 3);
    assert_eq!((times(text), times(trace(&events, 9))), (["0:".into(), "1:".into()].into(), ["2:".into()].into()));
    events.clear_trace();
    hit(0x1000, 4);
    assert_eq!(times(trace(&events, 9)), ["3:"]);
    assert!(trace(&events, 9).contains(" .....            3: one: "), "{}", trace(&events, 9));
    let mut stats = String::new();
    events.write_stats(&mut stats, 0, clock, 9).unwrap();
    assert!(stats.contains("oldest event ts: 3\nnow ts: 4\n"), "{stats}");
    let hits = if cfg!(miri) { 200 } else { 5000 };
    (0..hits).for_each(|time| hit(0x1000, 5 + time));
    let all = times(trace(&events, usize::MAX));
    let last = format!("{}:", 3 + hits);
    assert_eq!((all.len() < hits as usize, all.last()), (true, Some(&last)), "some were overwritten");
}

/// The heading of `trace`, as Linux prints it.
#[test]
fn the_heading_is_that_of_the_tracer_and_its_options() {
    use crate::tracer::Tracer;
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    (1..=3).for_each(|time| hit(0x1000, time));
    let heading = |events: &Events<Counter>| {
        let mut text = String::new();
        events.write_trace(&mut text, 0, 1, &Names, Clock { frequency: 1_000_000, origin: 0 }).unwrap();
        text
    };
    let first = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 3/3   #P:1\n#\n";
    let shown = heading(&events);
    assert!(
        shown.starts_with(&format!("{first}#                                _-----=> irqs-off/BH-disabled\n")),
        "{shown}"
    );
    assert!(shown.ends_with("#              | |         |   |||||     |         |\n"), "{shown}");
    events.set_option(Flag::IrqInfo, false);
    let few =
        "#           TASK-PID     CPU#     TIMESTAMP  FUNCTION\n#              | |         |         |         |\n";
    assert_eq!(heading(&events).strip_prefix(first), Some(few));
    events.set_tracer(Tracer::FunctionGraph);
    let first = "# tracer: function_graph\n#\n";
    let usual = "# CPU  DURATION                  FUNCTION CALLS\n# |     |   |                     |   |   |   |\n";
    assert_eq!(heading(&events).strip_prefix(first), Some(usual));
    events.set_option(Flag::GraphTime, true);
    events.set_option(Flag::GraphTask, true);
    let all = "\
#     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS
#      |          |     |    |           |   |                     |   |   |   |
";
    assert_eq!(heading(&events).strip_prefix(first), Some(all));
    for tracer in [Tracer::FunctionGraph, Tracer::Nop] {
        events.set_tracer(tracer);
        events.set_option(Flag::ContextInfo, false);
        assert_eq!(heading(&events), format!("# tracer: {}\n#\n", tracer.name()));
        events.set_option(Flag::ContextInfo, true);
    }
}

fn snapshot(events: &Events<Counter>) -> String {
    let mut text = String::new();
    events.write_snapshot(&mut text, 2, &Names, Clock { frequency: 1_000_000, origin: 0 }).unwrap();
    text
}

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

#[test]
fn options_change_what_is_printed() {
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    hit(0x1000, 1);
    let mut with = |text: &str| {
        let (flag, on) = Flag::parse(text).unwrap();
        events.set_option(flag, on);
        let mut text = String::new();
        events.write_trace(&mut text, 9, 2, &Names, Clock { frequency: 1_000_000, origin: 0 }).unwrap();
        text
    };
    assert!(with("sym-addr").ends_with("0.000001: one: (f+0x0/0x10 <0000000000001000>)\n"));
    assert!(with("noirq-info").ends_with(
        "#\n#           TASK-PID     CPU#     TIMESTAMP  FUNCTION\n\
         #              | |         |         |         |\n\
         \x20           main-3       [000]      0.000001: one: (f+0x0/0x10 <0000000000001000>)\n"
    ));
    assert_eq!(with("nocontext-info"), "# tracer: nop\n#\none: (f+0x0/0x10 <0000000000001000>)\n");
    assert!(!with("nooverwrite").is_empty() && !events.options().is(Flag::Overwrite) && !events.rings().overwrites());
}

/// The first hit of a second probe already follows the event's settings.
#[test]
fn a_probe_that_is_armed_as_others_are_has_a_plan_before() {
    let mut controlled = Controlled::new(&["p:one f x=%x20"]);
    let Controlled { events } = &mut controlled;
    events.set_enabled(None, Some("one"), true).unwrap();
    events.set_filter(("kprobes", "one"), "x == 2").unwrap();
    controlled.define("p:one a::b<c, d> x=%x20");
    let Controlled { events } = controlled;
    assert!(events.iter().all(|event| event.probe().unwrap().is_enabled()));
    [1, 2].into_iter().for_each(|time| hit(0x2000, time));
    assert_eq!(trace(&events, 9).lines().count(), 1);
}

/// If the output refuses a record, the next write starts with that record.
#[test]
fn what_was_taken_for_the_pipe_and_not_written_is_not_lost() {
    struct Narrow(String, usize);
    impl Write for Narrow {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text;
            if self.0.len() > self.1 { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let clock = Clock { frequency: 1_000_000, origin: 0 };
    let mut events = events();
    define(&mut events, "p:one f x=%x20").unwrap();
    (0..5).for_each(|time| hit(0x1000, time));
    let line = trace(&events, 1).len();
    let mut narrow = Narrow(String::new(), 2 * line + line / 2);
    events.write_pipe(&mut narrow, None, &Names, clock).unwrap_err();
    assert_eq!(trace(&events, 9), "");
    assert_eq!(remove(&mut events, "-:one"), Ok(1));
    let mut rest = Narrow(String::new(), usize::MAX);
    assert_eq!(events.write_pipe(&mut rest, None, &Names, clock), Ok(3));
    assert!(rest.0.starts_with(&narrow.0[2 * line..]), "{rest:?}", rest = rest.0);
    let times: Vec<_> = rest.0.lines().map(|text| text.rsplit_once("x=0x").expect(text).1).collect();
    assert_eq!(times, ["2", "3", "4"]);
    assert_eq!(events.write_pipe(&mut rest, None, &Names, clock), Ok(0));
}

#[test]
fn removing_unregisters_and_keeps_what_was_recorded() {
    let mut events = events();
    define(&mut events, "p:one f %x0").unwrap();
    define(&mut events, "p:g/two a::b<c, d> %x0").unwrap();
    define(&mut events, "p:g/three twice_no").unwrap_err();
    hit(0x1000, 1);
    assert_eq!(remove(&mut events, "-:h/one"), Ok(0));
    assert_eq!(remove(&mut events, "-:one"), Ok(1));
    hit(0x1000, 2);
    assert_eq!(trace(&events, 9).lines().count(), 1);
    assert!(trace(&events, 9).contains(": one: (f+0x0/0x10) arg1=0x0"));
    define(&mut events, "p:three f").unwrap();
    assert_eq!(events.iter().last().unwrap().number(), 8, "the number of an event of which there are records");
    (0..if cfg!(miri) { 200 } else { 500 }).for_each(|time| hit(0x2000, time));
    assert_eq!(remove(&mut events, "-:g/"), Ok(1));
    assert_eq!(events.removed.len(), 1, "an event without records is forgotten");
    remove_all(&mut events, None).unwrap();
    REGISTERED.with_borrow(|registered| assert!(registered.is_empty()));
}

#[test]
fn events_are_enabled_and_disabled_by_name() {
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    define(&mut events, "p:g/one a::b<c, d>").unwrap();
    assert_eq!(events.set_enabled(None, None, true), Ok(()));
    assert_eq!(remove_all(&mut events, None), Err(Problem::Busy));
    assert_eq!(events.set_enabled(Some("g"), Some("one"), false), Ok(()));
    let enabled: Vec<bool> = events.iter().map(|event| event.probe().unwrap().is_enabled()).collect();
    assert_eq!(enabled, [true, false]);
    assert_eq!(events.set_enabled(None, Some("two"), true), Err(Errno::NotFound));
}

#[test]
fn the_files_of_definitions_and_counts() {
    let mut events = events();
    define(&mut events, "r5:one f").unwrap();
    define(&mut events, "p:g/two a::b<c, d> n=%x0:u8").unwrap();
    let mut text = String::new();
    events.write_definitions(&mut text).unwrap();
    assert_eq!(text, "r5:kprobes/one f\np:g/two a::b<c, d> n=%x0:u8\n");
    events.iter().for_each(|event| event.probe().unwrap().hits.set(7));
    text.clear();
    events.write_profile(&mut text).unwrap();
    let line = |name: &str, missed: u64| std::format!("  {name:<44} {:>15} {missed:>15}\n", 7);
    assert_eq!(text, line("one", 0x1000) + &line("two", 0x2000));
}
