//! Events: records that every CPU writes at once are complete, in order and accounted for, and the fetched values are
//! those of the real machine.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::naked_asm;
use core::hint::black_box;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};

use aarch64_kprobes::probe::{self, Call, CallArguments, Insertion, Mode, ProbeError};
use aarch64_kprobes::{Hit, Kprobe, Kretprobe};
use kprobes_console::{time, tracing};
use kprobes_trace::context::{Context, Offsets};
use kprobes_trace::definition::{Command, EventKind, parse};
use kprobes_trace::engine::Probe;
use kprobes_trace::errno::Errno;
use kprobes_trace::events::{self, Events, RegisteredProbe};
use kprobes_trace::hit::Registers;
use kprobes_trace::hit::write::RecordedHit;
use kprobes_trace::recorder::Recorder;
use kprobes_trace::ring::{Record, Snapshot};
use kprobes_trace::symbols::{Function, Symbols};
use kprobes_trace::trace_printk;
use runtime::per_cpu::MAX_CPUS;
use runtime::sync::{IrqLock, IrqMask};
use runtime::task::JoinHandle;
use runtime::{memory, smp, task};

use crate::smp::start_on_each_cpu;
use crate::{entry, test};

/// The number of calls on each CPU. Each call is recorded twice.
const CALLS: u64 = 20_000;

/// The probed function.
#[inline(never)]
extern "C" fn target(number: u64, complement: u64) -> u64 {
    black_box(number ^ complement).wrapping_add(number)
}

/// Defines the event of a line.
pub fn define(events: &mut Events<Probe>, line: &str) {
    let Ok(Some(Command::Define(definition))) = parse(line) else { panic!("{line} is no definition") };
    events.define(definition, &tracing::Names).unwrap_or_else(|error| panic!("{line}: {error}"));
}

/// Returns the newest `limit` records as the trace shows them.
pub fn trace_of<P: RegisteredProbe>(events: &Events<P>, limit: usize) -> String {
    let mut text = String::new();
    events.write_trace(&mut text, limit, 1, &tracing::Names, time::clock()).expect("there is memory");
    text
}

/// The state of checking a CPU's records.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// The number of the next record, counted from the first call.
    next: u64,
    read: u64,
    lost: u64,
}

/// Checks that the records of each CPU continue where the previous ones ended, and that each belongs to one hit.
fn follow(snapshot: &Snapshot, events: &Events<Probe>, progress: &mut [Progress; MAX_CPUS]) {
    for record in snapshot.records().expect("there is memory") {
        let progress = &mut progress[record.cpu];
        progress.lost += record.lost;
        progress.read += 1;
        progress.next += record.lost;
        let number = progress.next / 2;
        let (name, format) = events.described(record.event()).expect("the event of a record is known");
        let value = |name: &str| format.field(name).and_then(|field| field.value(record.bytes, 0)).expect("a field");
        if progress.next.is_multiple_of(2) {
            assert_eq!((name, value("number"), value("complement")), ("call", number, !number));
        } else {
            assert_eq!((name, value("ret"), value("low")), ("back", number.wrapping_sub(1), number & 0xffff));
            let task = format.field("task").and_then(|field| field.bytes(record.bytes, 0));
            assert_eq!(task, Some(&b"caller"[..]));
        }
        progress.next += 1;
    }
}

test!(
    depends(cpus),
    fn rings_that_would_take_all_memory_are_refused_and_nothing_changes() {
        let rings = tracing::rings();
        let bytes = rings.bytes();
        let before = memory::statistics().heap_used;
        tracing::resize_rings(memory::statistics().heap_size / rings.cpus()).expect_err("it is all there is");
        tracing::resize_rings(usize::MAX).expect_err("it is more than there is");
        assert_eq!((rings.bytes(), memory::statistics().heap_used), (bytes, before));
    }
);

test!(
    depends(cpus),
    fn only_cpus_that_run_have_a_ring() {
        assert_eq!(tracing::rings().cpus(), smp::running().count());
    }
);

test!(
    depends(cpus),
    fn what_all_cpus_record_is_whole_in_order_and_accounted_for() {
        let rings = tracing::rings();
        let mut events = tracing::events(rings).unwrap();
        let address = target as *const () as usize;
        tracing::resize_rings(16 << 10).expect("there is memory");
        define(&mut events, &format!("p:call {address:#x} number=%x0 complement=%x1"));
        define(&mut events, &format!("r:back {address:#x} ret=$retval low=$arg1:u16 task=$comm"));
        events.set_enabled(None, None, true).expect("probes can be armed");
        let callers = start_on_each_cpu("caller", || {
            for number in 0..CALLS {
                black_box(target(number, !number));
            }
        });
        let mut progress = [Progress::default(); MAX_CPUS];
        let is_done = |events: &Events<Probe>| {
            let calls = CALLS * callers.len() as u64;
            events.iter().all(|event| match event.probe() {
                Some(Probe::Kprobe(probe)) => probe.hits() == calls,
                Some(Probe::Kretprobe(probe)) => probe.hits() + probe.missed() == calls,
                None => false,
            })
        };
        for size in (3..11).cycle() {
            let ended = is_done(&events);
            follow(&rings.take(None).expect("there is memory"), &events, &mut progress);
            if ended {
                break;
            }
            tracing::resize_rings(size << 12).expect("there is memory");
            task::yield_now();
        }
        callers.into_iter().for_each(JoinHandle::join);
        let last = rings.take(None).expect("there is memory");
        assert_eq!(last.present(), 0, "records of hits that were taken before");
        let counts: Vec<_> = last.counts().collect();
        for cpu in smp::running() {
            let Progress { read, lost, .. } = progress[cpu];
            assert_eq!((read + lost, counts[cpu].lost), (2 * CALLS, lost), "of CPU {cpu}: written, lost");
        }
        events.set_enabled(None, None, false).expect("probes can be disarmed");
    }
);

/// Returns the arguments in the newest record.
fn arguments(events: &Events<Probe>) -> String {
    let text = trace_of(events, 1);
    let line = text.lines().last().expect("a record");
    let (_, arguments) = line.split_once(") ").expect("arguments behind the place");
    arguments.into()
}

test!(
    fn arguments_are_fetched_from_a_real_machine() {
        static TEXT: &[u8; 8] = b"written\0";
        let address = target as *const () as usize;
        let hit = |arguments: &str, number: u64, other: u64| {
            let mut events = tracing::events(tracing::rings()).unwrap();
            define(&mut events, &format!("p:e {address:#x} {arguments}"));
            events.set_enabled(None, None, true).expect("a probe can be armed");
            black_box(target(number, other));
            self::arguments(&events)
        };
        let text = TEXT.as_ptr() as u64;
        assert_eq!(hit("@tests::events::NUMBERS:u64 n=@tests::events::NUMBERS+16:u64[2]", 7, 0), "arg1=70 n={72,73}");
        assert_eq!(hit("%x0:u64 +0(%x1):string c=+2(%x1):char", 7, text), "arg1=7 arg2=\"written\" c='i'");
        assert_eq!(hit("+0(%x1):u8[3] +0(%x1):u16", 7, text), "arg1={119,114,105} arg2=29303");
        let wild = 0xffff_ff7f_dead_bee0;
        assert_eq!(hit("+0(%x1) +8(%x1):string %x0", 7, wild), "arg1=(fault) arg2=(fault) arg3=0x7");
        assert_eq!(hit("+0(%x1):u32[2] +0(+0(%x1)):s8", 7, wild), "arg1=(fault) arg2=(fault)");
        assert_eq!(hit("w=+0(%x1)", 7, wild), "w=(fault)");
        // A guard lies above the top of a stack.
        let end = task::current().stack().end as u64;
        let read = hit("+0(%x1):x64[2] +0(%x1):u8[64] %x0", 7, end - 8);
        assert!(read.starts_with("arg1={0x") && read.contains(",(fault)} arg2={"), "{read}");
        assert!(read.ends_with(",(fault)} arg3=0x7") && read.matches("(fault)").count() == 1 + 56, "{read}");
    }
);

test!(
    fn a_record_has_the_same_time_whenever_it_is_printed() {
        let mut events = tracing::events(tracing::rings()).unwrap();
        define(&mut events, &format!("p:e {:#x} %x0", target as *const () as usize));
        events.set_enabled(None, None, true).expect("a probe can be armed");
        black_box(target(1, 0));
        let first = trace_of(&events, 1);
        assert!(first.contains(" e: ("), "{first}");
        for _ in 0..500 {
            assert_eq!(trace_of(&events, 1), first);
        }
    }
);

/// Writes a text to the trace.
#[inline(never)]
fn says(number: u64) {
    trace_printk!(tracing::rings(), "number {number}");
}

test!(
    fn the_kernel_writes_texts_to_the_trace() {
        let rings = tracing::rings();
        let mut events = tracing::events::<Probe>(rings).unwrap();
        events.clear_trace();
        says(7);
        rings.set_on(false);
        says(8);
        rings.set_on(true);
        {
            let _mask = IrqMask::new();
            says(9);
        }
        let text = trace_of(&events, 9);
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        for (flags, said) in [(" ..... ", "says: number 7"), (" d.... ", "says: number 9")] {
            let line = lines.next().expect("a record");
            assert!(line.contains(flags) && line.ends_with(said), "{text}");
        }
        assert_eq!(lines.next(), None);
    }
);

/// Writes a text to the trace as writing to `trace_marker` does.
#[inline(never)]
fn writer(events: &Events<Probe>) -> bool {
    black_box(events.write_marker("here"))
}

test!(
    fn the_stack_at_a_text_is_that_of_its_writer() {
        let mut events = tracing::events::<Probe>(tracing::rings()).unwrap();
        events.add_all_static().expect("there is memory");
        events.set_trigger(("ftrace", "print"), "stacktrace").expect("the event takes triggers");
        events.clear_trace();
        assert!(black_box(writer(&events)));
        let text = trace_of(&events, 9);
        let is_of_writer = |line: &str| line.starts_with(" => ") && line.ends_with("::writer");
        assert!(text.lines().any(is_of_writer), "{text}");
    }
);

test!(
    fn nothing_is_recorded_while_it_is_switched_off() {
        let rings = tracing::rings();
        let mut events = tracing::events(rings).unwrap();
        define(&mut events, &format!("p:e {:#x} %x0", target as *const () as usize));
        events.set_enabled(None, None, true).expect("a probe can be armed");
        black_box(target(1, 0));
        rings.set_on(false);
        black_box(target(2, 0));
        rings.set_on(true);
        black_box(target(3, 0));
        let snapshot = rings.take(None).expect("there is memory");
        let values: Vec<u64> =
            snapshot.records().expect("there is memory").map(|record: Record<'_>| record.word(16)).collect();
        assert_eq!(values, [1, 3]);
    }
);

/// The code that records an event, and the registers that the event's handler sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The stub of the probe records, if possible.
    Stub,
    /// The stub of a probe that is not known to be at the entry of a function records, if possible.
    StubAnywhere,
    /// A handler that sees the registers that a call passes, which are all that was saved.
    Lean,
    /// A handler that sees the registers that a call passes, taken from the full set.
    Shared,
    /// A handler that sees all registers.
    Full,
    /// A handler that sees all registers, at the return.
    Return,
    /// The code at the return records, if possible.
    ReturnCode,
}

const FORMS: [Form; 5] = [Form::Lean, Form::Shared, Form::Full, Form::Stub, Form::StubAnywhere];
const FORMS_OF_RETURNS: [Form; 2] = [Form::Return, Form::ReturnCode];

/// The number of events that stubs have recorded.
static COMPILED: AtomicUsize = AtomicUsize::new(0);

/// Whether stubs may record.
static IN_STUBS: AtomicBool = AtomicBool::new(false);

/// The number of hits that stubs have left to handlers.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Handles a hit of the recorder at `data` as the handlers of the trace layer do, and counts the hit.
fn left(data: usize, registers: Registers<'_>, address: usize, return_address: Option<usize>) {
    LEFT.fetch_add(1, Relaxed);
    let (address, return_address) = (address as u64, return_address.map(|address| address as u64));
    // SAFETY: the callers are handlers of the engine, which handles a hit.
    let context = unsafe { Context::here() };
    let hit = RecordedHit { context, address, return_address, entry: &[], is_caller_in_x30: false };
    // SAFETY: `Chosen` registers the callers with the address of a recorder that outlives the probe. They are called at
    // its hits, with interrupts masked, and have a return address exactly at returns.
    unsafe {
        let recorder = &*(data as *const Recorder);
        if !recorder.tallies(registers, Context::cpu_here()) {
            recorder.record(registers, &hit);
        }
    }
}

extern "C" fn left_call(call: &CallArguments) {
    left(call.data(), Registers::Arguments(call), call.address(), None);
}

extern "C" fn left_hit(hit: &mut Hit<'_>) {
    left(hit.data(), Registers::Frame(hit.frame()), hit.address(), None);
}

extern "C" fn left_return(call: &mut Call<'_>) {
    left(call.data(), Registers::Frame(call.frame()), call.function(), Some(call.return_address()));
}

/// A probe whose handler records, unless its stub may.
struct Chosen(Probe);

// SAFETY: the probe, `synchronize` and the offsets are those of `Probe`, which fulfils the contract.
unsafe impl RegisteredProbe for Chosen {
    type Error = ProbeError;

    unsafe fn register(
        kind: EventKind,
        form: events::Form,
        address: u64,
        recorder: &Recorder,
        insertion: Option<&Insertion>,
    ) -> Result<Self, ProbeError> {
        let Some(insertion) = insertion else {
            // SAFETY: the caller fulfils the contract of this function, which is that of `Probe::register`.
            return unsafe { Probe::register(kind, form, address, recorder, None) }.map(Self);
        };
        let (address, data) = (address as usize, &raw const *recorder as usize);
        if let EventKind::Return { .. } = kind {
            let probe = Kretprobe::at(address).handler(left_return).data(data).disabled();
            // SAFETY: the caller guarantees that the insertion lives as long as the probe.
            return unsafe { probe.snippet(insertion) }.register().map(Probe::Kretprobe).map(Self);
        }
        let probe = Kprobe::at(address).data(data).disabled();
        let probe = match form {
            events::Form::Call => probe.arguments(left_call),
            events::Form::Full => probe.pre(left_hit),
        };
        // SAFETY: the caller guarantees that the insertion lives as long as the probe.
        unsafe { probe.snippet(insertion) }.register().map(Probe::Kprobe).map(Self)
    }

    fn exchange(&self, after: &Self) -> Result<(), ProbeError> {
        self.0.exchange(&after.0)
    }

    fn set_snippet_enabled(&self, enabled: bool) {
        self.0.set_snippet_enabled(enabled);
    }

    fn synchronize() {
        Probe::synchronize();
    }

    fn offsets() -> Option<Offsets> {
        Probe::offsets().filter(|_| IN_STUBS.load(Relaxed))
    }

    fn set_enabled(&self, enabled: bool) -> Result<(), ProbeError> {
        self.0.set_enabled(enabled)
    }

    fn is_enabled(&self) -> bool {
        self.0.is_enabled()
    }

    fn hits(&self) -> u64 {
        self.0.hits()
    }

    fn missed(&self) -> u64 {
        self.0.missed()
    }
}

/// The symbols of this image, for a kernel that makes no promises about its functions.
struct Unknown;

impl Symbols for Unknown {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        tracing::Names.lookup(address)
    }

    fn find<'a>(&'a self, _: &str, _: &mut dyn FnMut(Function<'a>)) {}

    fn each(&self, each: &mut dyn FnMut(Function<'static>)) {
        tracing::Names.each(each);
    }
}

extern "C" fn nothing(_: &mut Hit<'_>) {}

/// Replaces the filter for an event that counts and is not recorded.
const COUNT_ONLY: &str = "none";

/// Returns what an event at `address` shows for the calls that `call` makes: the trace, without times and CPUs, and the
/// histograms.
#[inline(never)]
fn told(form: Form, address: usize, call: fn(), arguments: &str, filter: &str, triggers: &[&str]) -> String {
    const EVENT: (&str, &str) = ("kprobes", "e");
    let other = Kprobe::at(address).pre(nothing);
    let _other = (form == Form::Shared).then(|| other.register().expect("it can be probed"));
    let rings = tracing::rings();
    let mut events = tracing::events::<Chosen>(rings).unwrap();
    let kind = if FORMS_OF_RETURNS.contains(&form) { "r" } else { "p" };
    let line = format!("{kind}:e {address:#x} {arguments}");
    let Ok(Some(Command::Define(definition))) = parse(&line) else { panic!("{line} is no definition") };
    let is_unknown = matches!(form, Form::Full | Form::StubAnywhere);
    let names: &dyn Symbols = if is_unknown { &Unknown } else { &tracing::Names };
    events.define(definition, names).unwrap_or_else(|error| panic!("{line}: {error}"));
    if filter != COUNT_ONLY {
        events.set_enabled(None, None, true).expect("a probe can be armed");
        events.set_filter(EVENT, filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    }
    for trigger in triggers {
        events.set_trigger(EVENT, trigger).unwrap_or_else(|error| panic!("{trigger}: {error}"));
    }
    let (mode, _) = entry::mode_at(address);
    let expected = if matches!(form, Form::Lean | Form::Stub) { Mode::Lean } else { Mode::Optimized };
    if mode == Mode::Compiled && matches!(form, Form::Stub | Form::StubAnywhere | Form::ReturnCode) {
        COMPILED.fetch_add(1, Relaxed);
    } else {
        assert_eq!(mode, expected, "{form:?}");
    }
    call();
    let event = events.iter().next().expect("it has been defined");
    assert_eq!(event.missed(), 0, "{form:?}");
    let mut told = format!("{} hits\n", event.hits());
    for line in trace_of(&events, usize::MAX).lines().filter(|line| !line.starts_with('#')) {
        let words = line.split_whitespace().enumerate();
        // The line of a record begins with the task, the CPU, the flags and the time.
        let is_record = line.contains(" [0");
        words
            .filter(|(number, _)| !is_record || !matches!(number, 1 | 3))
            .for_each(|(_, word)| told = format!("{told} {word}"));
        told.push('\n');
    }
    for trigger in events.settings(EVENT).expect("it has been enabled").triggers() {
        if let Some(histogram) = trigger.histogram() {
            histogram.write(&mut told, trigger, &tracing::Names).expect("there is memory");
        }
    }
    events.set_enabled(None, None, false).expect("a probe can be disarmed");
    rings.clear();
    rings.set_on(true);
    told
}

/// Records the event in each form, and checks that all forms show the same. Returns what they show.
fn told_alike(address: usize, call: fn(), arguments: &str, filter: &str, triggers: &[&str]) -> String {
    alike(&FORMS, address, call, arguments, filter, triggers)
}

fn alike(forms: &[Form], address: usize, call: fn(), arguments: &str, filter: &str, triggers: &[&str]) -> String {
    let mut first: Option<String> = None;
    // The loop has a single call site, so that the stack is the same for each form.
    for &form in black_box(forms) {
        IN_STUBS.store(matches!(form, Form::Stub | Form::StubAnywhere | Form::ReturnCode), Relaxed);
        let told = told(form, address, call, arguments, filter, triggers);
        match &first {
            Some(first) => assert_eq!(told, *first, "{form:?}: {arguments} if {filter}"),
            None => first = Some(told),
        }
    }
    first.expect("there are forms")
}

/// A probed function whose last two arguments are on the stack. It is written in assembly, so that the possible places
/// of stubs do not depend on the compiler.
#[unsafe(naked)]
extern "C" fn many(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    naked_asm!("stp x29, x30, [sp, #-16]!", "mov x29, sp", "eor x0, x0, x7", "ldp x29, x30, [sp], #16", "ret")
}

static NUMBERS: [u64; 8] = [70, 71, 72, 73, 74, 75, 76, 77];

/// Calls [`many`] for each of [`NUMBERS`], sometimes with interrupts masked.
#[inline(never)]
fn call_many() {
    static MASKED: IrqLock<()> = IrqLock::new(());
    for (number, place) in (0..).zip(&NUMBERS) {
        // `black_box` hides the value, so that there is only one call site, and one stack.
        let _masked = black_box((number % 3 == 1).then(|| MASKED.lock()));
        let place = (&raw const *place).addr() as u64;
        // No address, and no byte is 0.
        let wild = 0x8786_8084_8382_8180 + ((number + 1) << 40);
        black_box(many(number, wild, place, 3, 4, 5, 6, 7, 80 + number, 90 + number));
    }
}

test!(
    fn what_an_event_tells_does_not_depend_on_what_its_probe_saves() {
        let address = many as *const () as usize;
        let words = "n=%x0 m=+0(%x2) s=$stack1 h=%x1 l=%x30 f=%x29 p=%pc sp=%sp";
        let more = "n=%x0 m=+0(%x2) s=$stack1 h=%x1 \
                    sp=$stack b=%x0:u8 a=$stack0:u64 z=$stack1:u8 c=$comm t=+0(%x2):string v=+0(%x2):u64[2] w=+4(+0(%x29)):x32 \
                    k=\\7 at=%pc:symbol as=%pc:symstr p=%x7:b2@1/32 wild=+8(%x1):u16";
        // Each begins where the one before it ends, so some lie across two words.
        let narrow = "n=%x0:x32 c=%x1:u8 s=$stack1:u16 h=%x1 b=%x1:s8 a=$stack0:u64 w=+4(+0(%x29)):x32 d=%x2:u8 \
                      e=+0(%x30):x32 v=-8(+8(%x29)):u16 far=+40000(%x30):u8 p=%x7:b2@1/32 q=+0(%x30):b9@3/16 \
                      m=+0(%x2):u8";
        let across = "n=%x0 d=%x1:u8 l=%x30:x64 f=-1(%x2):s8 g=+0(+0(%x29)):x64 at=%pc:symbol sp=%sp:x32 s=$stack1:u16 \
                      m=+0(%x2):u8 h=%x1 k=%x1:b7@5/16 low=%x1:s16";
        let filters: [(&str, &[u64]); 9] = [
            ("0", &[0, 1, 2, 3, 4, 5, 6, 7]),
            ("n == 3", &[3]),
            ("n == 8", &[]),
            ("m >= 76", &[6, 7]),
            ("s != 95 && m != 71", &[0, 2, 3, 4, 6, 7]),
            ("n < 2 || s > 96", &[0, 1, 7]),
            ("!(n & 6)", &[0, 1]),
            ("h >= 0x8786860000000000 && cpu != 100", &[5, 6, 7]),
            ("n == 4 && common_pid != 100000", &[4]),
        ];
        COMPILED.store(0, Relaxed);
        for arguments in [words, more, narrow, across] {
            for (filter, kept) in filters {
                LEFT.store(0, Relaxed);
                let told = told_alike(address, call_many, arguments, filter, &[]);
                let numbers: Vec<u64> = told
                    .lines()
                    .filter_map(|line| line.split_once(" n=0x")?.1.split(' ').next()?.parse().ok())
                    .collect();
                assert_eq!(numbers, kept, "{filter}\n{told}");
                // A stub leaves a hit that begins a page.
                assert!(LEFT.load(Relaxed) <= 2, "{}: {arguments} if {filter}", LEFT.load(Relaxed));
                let masked = kept.iter().filter(|&number| number % 3 == 1).count();
                assert_eq!(told.matches(" d.... e: ").count(), masked, "{told}");
            }
        }
        // Stubs record events whose arguments are numbers and whose filters access no memory, in both stub forms.
        assert_eq!(COMPILED.load(Relaxed), 3 * 2 * 4);
        LEFT.store(0, Relaxed);
        told_alike(address, call_many, "k=%x0:u8 wild=+8(%x1):u16 m=+0(%x2):u32", "0", &[]);
        assert_eq!((COMPILED.load(Relaxed), LEFT.load(Relaxed)), (3 * 2 * 4 + 2, 2 * 8));
        let told = told_alike(address, call_many, more, "n == 6", &[]);
        for text in [
            " b=6 ",
            " a=86 ",
            " z=96 ",
            " t=\"L\" ",
            " v={76,77} ",
            " k=0x7 ",
            " p=3 ",
            " wild=(fault)",
            " as=\"tests::events::many+0x0/",
        ] {
            assert!(told.contains(text), "{text}: {told}");
        }
    }
);

/// Calls [`many`] so often that its records take several pages.
#[inline(never)]
fn call_for_pages() {
    for number in 0..300 {
        black_box(many(number, !number, 2, 3, 4, 5, 6, 7, 8, 9));
    }
}

test!(
    fn records_of_odd_lengths_fill_pages() {
        let address = many as *const () as usize;
        for arguments in ["n=%x0 b=%x1:s8", "b=%x1:s16 n=%x0 c=%x0:u8", "n=%x0 h=%x1 i=%x1:s32 s=$stack1:u16 k=%x0:u8"]
        {
            COMPILED.store(0, Relaxed);
            LEFT.store(0, Relaxed);
            let told = told_alike(address, call_for_pages, arguments, "0", &[]);
            assert_eq!((told.matches(" n=0x").count(), COMPILED.load(Relaxed)), (300, 2));
            // A page has room for more than 30 records.
            assert!((1..=2 * 300 / 30).contains(&LEFT.load(Relaxed)), "{}", LEFT.load(Relaxed));
        }
    }
);

test!(
    fn returns_are_recorded_alike_by_code_and_by_the_handler() {
        let address = many as *const () as usize;
        // The function leaves every register above x0 unchanged. The code at the return also fetches the last argument,
        // unless its memory cannot be read.
        for (arguments, filter, kept, in_code) in [
            ("r=$retval h=%x1 m=+0(%x2) sp=%sp f=%x29 k=%x19", "0", 8, 1),
            ("r=$retval wild=+8(%x1)", "0", 8, 1),
            ("r=$retval m=+0(%x2)", "r < 4", 4, 1),
            ("r=$retval m=+0(%x2)", "m >= 76", 2, 1),
            (
                "r=$retval:u8 h=%x1:s16 m=+0(%x2):u32 sp=%sp:x8 w=+4(+0(%x29)):x32 s=$stack1:u16 k=%x19 b=%x1:b7@5/16",
                "0",
                8,
                1,
            ),
            ("r=$retval:u8 wild=+8(%x1):u16", "0", 8, 1),
            // These arguments are unknown to the code at the return, or are not numbers.
            ("r=$retval l=%x30", "0", 8, 0),
            ("r=$retval l=%x30:u8", "0", 8, 0),
            ("r=$retval w=+0(%x30):u8", "0", 8, 0),
            ("r=$retval p=%pc", "0", 8, 0),
            ("r=$retval:u8 c=$comm", "0", 8, 0),
            ("r=$retval a=$arg1", "0", 8, 0),
        ] {
            COMPILED.store(0, Relaxed);
            LEFT.store(0, Relaxed);
            let told = alike(&FORMS_OF_RETURNS, address, call_many, arguments, filter, &[]);
            assert_eq!(COMPILED.load(Relaxed), in_code, "{arguments}");
            // The code at the return leaves all hits if there is a filter or if memory cannot be read, and one that
            // begins a page.
            match in_code * LEFT.load(Relaxed) {
                8 => assert!(filter != "0" || arguments.contains("wild"), "{arguments}"),
                left => assert!(left <= 1, "{left}: {arguments} if {filter}"),
            }
            assert!(told.starts_with("8 hits\n"), "{told}");
            assert_eq!(told.matches("(tests::events::call_many+0x").count(), kept, "{told}");
            assert!(told.contains(" d.... e: "), "{told}");
        }
        let told = alike(&FORMS_OF_RETURNS, address, call_many, "r=$retval", "0", &["hist:keys=r:vals=r"]);
        assert!(told.contains("Totals:\n    Hits: 8\n"), "{told}");
    }
);

static IS_TO_RETURN: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn wait(number: u64) -> u64 {
    while !IS_TO_RETURN.load(Relaxed) {
        task::yield_now();
    }
    black_box(number)
}

test!(
    fn calls_in_progress_return_by_what_has_been_asked_for_since() {
        const EVENT: (&str, &str) = ("kprobes", "e");
        type Act = fn(&mut Events<Probe>) -> Result<(), Errno>;
        let set_enabled: fn(bool) -> Act = |enabled| match enabled {
            true => |events| events.set_enabled(None, None, true),
            false => |events| events.set_enabled(None, None, false),
        };
        let (enable, disable) = (set_enabled(true), set_enabled(false));
        let drop_it: Act = |events| events.set_filter(EVENT, "r == 1");
        let keep_it: Act = |events| events.set_filter(EVENT, "r == 2");
        let all: Act = |events| events.set_filter(EVENT, "0");
        let cases: [(&[Act], usize); 7] = [
            (&[], 1),
            (&[disable], 0),
            (&[drop_it], 0),
            (&[keep_it], 1),
            (&[disable, drop_it, enable], 0),
            (&[disable, enable], 1),
            (&[drop_it, all], 1),
        ];
        for (number, (acts, records)) in cases.into_iter().enumerate() {
            let mut events = tracing::events::<Probe>(tracing::rings()).unwrap();
            define(&mut events, &format!("r:e {:#x} r=$retval", wait as *const () as usize));
            events.set_enabled(None, None, true).expect("it can be armed");
            let mode = probe::list().expect("there is memory").iter().find_map(|info| info.mode);
            assert_eq!(mode, Some(Mode::Compiled));
            IS_TO_RETURN.store(false, Relaxed);
            let waiting = task::spawn("waiting", || _ = black_box(wait(black_box(2))));
            while events.iter().filter_map(events::Event::probe).any(|probe| probe.registration().active() == 0) {
                task::yield_now();
            }
            for act in acts {
                act(&mut events).expect("it can be done");
            }
            IS_TO_RETURN.store(true, Relaxed);
            waiting.join();
            let trace = trace_of(&events, usize::MAX);
            assert_eq!(trace.matches(" r=0x2\n").count(), records, "{number}: {trace}");
            events.set_enabled(None, None, false).expect("it can be disarmed");
            tracing::rings().clear();
        }
    }
);

test!(
    fn triggers_act_alike_whatever_the_probe_saves() {
        let address = many as *const () as usize;
        let words = "n=%x0 m=+0(%x2) s=$stack1";
        let more = "n=%x0 m=+0(%x2) s=$stack1 b=%x0:u8";
        for arguments in [words, more] {
            let told = told_alike(address, call_many, arguments, "n > 5", &["stacktrace:3 if m & 1"]);
            assert_eq!(told.matches("<stack trace>").count(), 3, "{told}");
            assert_eq!(told.matches("\n => tests::events::call_many\n").count(), 3, "{told}");
            assert_eq!(told.matches("\n => tests::events::told\n").count(), 3, "{told}");
            let told = told_alike(
                address,
                call_many,
                arguments,
                "n == 100",
                &["hist:keys=n.log2:vals=m,s if s >= 91", "hist:keys=common_stacktrace,common_pid:size=128"],
            );
            assert!(told.contains("{ n: ~ 2^2  } hitcount:          2  m:        147  s:        187"), "{told}");
            assert!(told.contains("tests::events::call_many+0x") && told.contains("hitcount:          8"), "{told}");
            let told = told_alike(address, call_many, arguments, "n > 0", &["traceoff if m == 72"]);
            assert!(told.contains(" n=0x1 ") && !told.contains(" n=0x3 "), "{told}");
        }
    }
);

/// The values at which comparisons change their results.
const CORNERS: [i64; 13] = [0, 1, 6, 7, 8, 0xfff, 0x1000, 0x1001, i64::MAX - 1, i64::MAX, i64::MIN, i64::MIN + 1, -1];
/// The bytes at which comparisons of bytes change their results, if they are the lower ones of a number.
const BYTES: [i64; 5] = [0x1007, 0x7f, 0xff80, 0xff, 0x1200];
/// The numbers of five bits at which comparisons change their results, and one more.
const FIVE_BITS: [i64; 7] = [0, 1, 15, 16, 30, 31, 32];

/// The arguments of an event, the constants of its filters, and the values of its fields `n` and `i` for an argument.
type Compared = (&'static str, &'static [i64], fn(i64) -> i128, fn(i64) -> i128);

const COMPARED: [Compared; 3] = [
    ("n=%x0 i=%x0:s64", &CORNERS, |number| number.cast_unsigned().into(), i128::from),
    ("n=%x0:u8 i=%x0:s8", &BYTES, |number| (number as u8).into(), |number| (number as i8).into()),
    ("n=%x0:b5@3/32 i=%x0:s16", &FIVE_BITS, |number| (number >> 3 & 31).into(), |number| (number as i16).into()),
];

fn holds(one: i128, operator: &str, other: i128) -> bool {
    match operator {
        "==" => one == other,
        "!=" => one != other,
        "<" => one < other,
        "<=" => one <= other,
        ">" => one > other,
        ">=" => one >= other,
        _ => one & other != 0,
    }
}

fn corners() -> impl Iterator<Item = i64> {
    CORNERS.into_iter().chain(BYTES)
}

#[inline(never)]
fn call_at_corners() {
    for number in corners() {
        black_box(many(number.cast_unsigned(), 1, 2, 3, 4, 5, 6, 7, 8, 9));
    }
}

test!(
    fn stubs_compare_as_handlers_do() {
        let address = many as *const () as usize;
        COMPILED.store(0, Relaxed);
        let mut filters = 0;
        for (arguments, numbers, n, i) in COMPARED {
            for (field, is_signed, of) in [("n", false, n), ("i", true, i)] {
                for operator in ["==", "!=", "<", "<=", ">", ">=", "&"] {
                    for &number in numbers {
                        let value =
                            if is_signed { format!("{number}") } else { format!("{:#x}", number.cast_unsigned()) };
                        let filter = format!("{field} {operator} {value}");
                        let told = told_alike(address, call_at_corners, arguments, &filter, &[]);
                        assert!(told.starts_with("18 hits\n"), "{told}");
                        // Linux truncates the constant to the size of the field, which for a bit-field is 32 bits.
                        let constant = if arguments.contains("n=%x0:b") { number.into() } else { of(number) };
                        let kept = corners().filter(|&number| holds(of(number), operator, constant)).count();
                        assert_eq!(told.matches(" e: ").count(), kept, "{arguments} if {filter}\n{told}");
                        filters += 1;
                    }
                }
                let both = format!("({field} > 6 && {field} != 8) || ({field} & 1 && {field} < 5)");
                told_alike(address, call_at_corners, arguments, &both, &[]);
                filters += 1;
            }
        }
        // Each filter is compiled in both stub forms.
        assert_eq!(COMPILED.load(Relaxed), 2 * filters);
    }
);

/// Calls [`many`] several times with numbers of all lengths, including the greatest of each length.
#[inline(never)]
fn call_with_all_lengths() {
    for bits in 0..=64_u32 {
        let greatest = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        for number in [greatest, greatest.wrapping_add(1), greatest / 3] {
            for turn in 0..u64::from(bits % 3) + 1 {
                black_box(many(number, 100 * turn, number % 7, 3, 4, 5, 6, 7, 8, 9));
            }
        }
    }
}

test!(
    fn what_is_counted_does_not_depend_on_who_counts() {
        let address = many as *const () as usize;
        let arguments = "n=%x0 h=%x1 m=%x2 f=$stack0 b=%x0:u8 w=%x0:s16 q=%x0:b7@5/16";
        // The second element is the number of the two stub forms that count the histogram.
        for (histogram, compiled) in [
            ("keys=n.log2:size=128", 2),
            ("keys=m", 2),
            ("keys=n:vals=h,m:size=2048", 2),
            ("keys=n.buckets=10:vals=m:size=2048", 2),
            ("keys=common_pid:vals=n", 2),
            ("keys=common_cpu,n:vals=m:size=2048", 2),
            ("keys=common_pid,m:vals=h,n", 2),
            ("keys=n.buckets=64,m.buckets=3:size=2048", 2),
            ("keys=n:size=128", 2),
            ("keys=common_pid.execname,m", 2),
            // These histograms are counted by handlers.
            ("keys=n.log2:vals=m", 0),
            ("keys=f", 0),
            ("keys=n,h,m:size=2048", 0),
            ("keys=m if n > 7", 0),
            // These numbers are parts of registers.
            ("keys=b.log2", 2),
            ("keys=b:vals=w", 2),
            ("keys=q.buckets=16:vals=q", 2),
            ("keys=w,b.buckets=16:vals=b:size=2048", 2),
        ] {
            COMPILED.store(0, Relaxed);
            let trigger = format!("hist:{histogram}");
            let told = told_alike(address, call_with_all_lengths, arguments, COUNT_ONLY, &[&trigger]);
            assert_eq!(COMPILED.load(Relaxed), compiled, "{histogram}");
            assert!(told.contains("Totals:\n    Hits: "), "{told}");
            assert_eq!(
                told.contains("Dropped: 0"),
                !histogram.contains("size=128") || histogram.contains("log2"),
                "{told}"
            );
        }
    }
);

test!(
    fn a_histogram_counts_nothing_while_it_is_paused_and_begins_anew_when_it_is_cleared() {
        const EVENT: (&str, &str) = ("kprobes", "e");
        let mut events = tracing::events::<Probe>(tracing::rings()).unwrap();
        define(&mut events, &format!("p:e {:#x} n=%x0", target as *const () as usize));
        for key in ["n", "n.log2", "n,common_pid"] {
            let mut hits = 0;
            for (command, counted) in [("", 1), (":pause", 1), (":pause", 1), (":continue", 2), (":clear", 1), ("", 2)]
            {
                if hits == 0 || !command.is_empty() {
                    events.set_trigger(EVENT, &format!("hist:keys={key}{command}")).expect("it is a trigger");
                }
                black_box(target(7, 0));
                hits += 1;
                let mut text = String::new();
                let trigger = &events.settings(EVENT).expect("it has a trigger").triggers()[0];
                trigger
                    .histogram()
                    .expect("it is one")
                    .write(&mut text, trigger, &tracing::Names)
                    .expect("there is memory");
                assert!(text.contains(&format!("Totals:\n    Hits: {counted}\n")), "{key}{command}: {text}");
            }
            assert_eq!(events.iter().map(events::Event::hits).sum::<u64>(), hits);
            events.set_trigger(EVENT, &format!("!hist:keys={key}")).expect("it is there");
            drop(events);
            events = tracing::events(tracing::rings()).unwrap();
            define(&mut events, &format!("p:e {:#x} n=%x0", target as *const () as usize));
        }
    }
);

test!(
    fn all_that_a_call_passes_is_recorded_at_an_entry() {
        let arguments = "%x0 %x1 %x2 %x3 %x4 %x5 %x6 %x7 %x8 %x18 %x29 %x30 %sp %pc";
        let call = || {
            entry::call_save();
        };
        let told = told_alike(entry::address_of_save(), call, arguments, "0", &[]);
        // The memory that x8 points to is only known to the call.
        for number in [1, 2, 3, 4, 5, 6, 7, 8, 10_u64] {
            let value = number * 0x0101_0101_0101;
            assert!(told.contains(&format!(" arg{number}={value:#x} ")), "{number}: {told}");
        }
    }
);
