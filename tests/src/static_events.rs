//! Static events of this image: the instructions at their sites, the arguments of their functions, and the fields of
//! their records.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use aarch64_kprobes::event::{self, Text};
use aarch64_kprobes::insn::Reason;
use aarch64_kprobes::probe::{self, CallArguments};
use aarch64_kprobes::{Kprobe, ProbeError, emit};
use kprobes_console::program::RunningProgram;
use kprobes_console::{symbol, tracing};
use kprobes_trace::engine::Probe;
use kprobes_trace::events::Events;
use runtime::task;

use crate::events::trace_of;
use crate::smp::start_on_each_cpu;
use crate::test;

aarch64_kprobes::event! {
    /// A sum was computed.
    pub struct Sum = tests:sum {
        left: u32,
        right: i16,
        sum: i64,
    }
}

aarch64_kprobes::event! {
    /// A name was seen.
    pub struct Seen<'a> = tests:seen {
        number: u8,
        name: Text<'a>,
        label: [u8; 5],
    }
    print r#""%s is %u (%s)", __get_str(name), REC->number, REC->label"#
}

/// The number of times that the fields of [`Sum`] were evaluated.
static EVALUATED: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn add(left: u32, right: i16) -> i64 {
    let sum = i64::from(black_box(left)) + i64::from(black_box(right));
    emit!(Sum { left: evaluated(left), right, sum });
    sum
}

fn evaluated(left: u32) -> u32 {
    EVALUATED.fetch_add(1, Relaxed);
    left
}

#[inline(never)]
fn see(number: u8, name: &str) {
    emit!(Seen { number, name: name.into(), label: *b"abcde" });
}

/// Returns the addresses of the sites in the function that begins at `function`.
fn sites(function: usize) -> Vec<usize> {
    let function = symbol::function(function).expect("a function has a symbol");
    let is_site =
        |at: &usize| matches!(probe::check(*at), Err(ProbeError::Instruction { reason: Reason::EventSite, .. }));
    function.step_by(4).filter(is_site).collect()
}

/// Reads the word that stands at `address` now.
fn word(address: usize) -> u32 {
    // SAFETY: the address is that of an instruction of this image, which is readable.
    unsafe { (address as *const u32).read_volatile() }
}

const NOP: u32 = 0xd503_201f;

/// Returns whether `word` is B (C6.2).
fn is_branch(word: u32) -> bool {
    word >> 26 == 0b00_0101
}

test!(
    fn every_event_is_described_once() {
        let names: Vec<_> = event::all().map(|event| (event.group(), event.name())).collect();
        for (number, name) in names.iter().enumerate() {
            assert!(!names[..number].contains(name), "{name:?} is there twice");
        }
        for expected in [("tests", "sum"), ("tests", "seen"), ("sched", "sched_switch"), ("kmem", "kmalloc")] {
            assert!(names.contains(&expected), "{expected:?} is missing");
        }
        assert_eq!((Sum::EVENT.sites(), Seen::EVENT.sites()), (1, 1));
    }
);

test!(
    depends(core, cpus),
    fn a_site_is_a_nop_until_a_probe_listens() {
        static LEFT: AtomicU64 = AtomicU64::new(0);
        extern "C" fn listen(call: &CallArguments) {
            // SAFETY: the argument is the address of the struct, which stays while the function is called.
            let sum = unsafe { &*(call.arguments()[0] as *const Sum) };
            LEFT.fetch_add(u64::from(sum.left) + sum.right as u64 + sum.sum as u64, Relaxed);
        }
        let [site] = sites(add as *const () as usize)[..] else { panic!("the function has one site") };
        assert_eq!(word(site), NOP);
        assert_eq!(add(5, -2), 3);
        assert_eq!(EVALUATED.load(Relaxed), 0, "fields are evaluated although no probe listens");
        let probe = Kprobe::at(Sum::EVENT.address()).arguments(listen).register().unwrap();
        assert!(is_branch(word(site)), "{:#x}", word(site));
        assert_eq!(probe::instruction(site), Some(NOP));
        assert_eq!(add(5, -2), 3);
        assert_eq!((EVALUATED.load(Relaxed), LEFT.load(Relaxed), probe.hits()), (1, 6, 1));
        // Every CPU executes the branch.
        let callers = start_on_each_cpu("caller", || assert_eq!(add(1, 1), 2));
        let cpus = callers.len() as u64;
        callers.into_iter().for_each(task::JoinHandle::join);
        assert_eq!((LEFT.load(Relaxed), probe.hits()), (6 + 4 * cpus, 1 + cpus));
        probe.disable().unwrap();
        assert_eq!(word(site), NOP);
        add(5, -2);
        assert_eq!(EVALUATED.load(Relaxed), 1 + cpus);
        probe.enable().unwrap();
        assert!(is_branch(word(site)));
        // Another probe keeps the site as it is.
        let other = Kprobe::at(Sum::EVENT.address()).arguments(listen).register().unwrap();
        drop(probe);
        assert!(is_branch(word(site)));
        drop(other);
        assert_eq!(word(site), NOP);
    }
);

test!(
    fn a_pattern_leaves_out_the_functions_of_events() {
        let event = Sum::EVENT.address();
        let probed = |functions: &str| -> Vec<usize> {
            let program = RunningProgram::start(&format!("kprobe:{functions} {{ @ = count(); }}")).unwrap();
            program.registrations().map(|probe| probe.address()).collect()
        };
        assert_eq!(probed("tests::static_events::Sum::event"), [event]);
        let all = probed("tests::static_events::*");
        assert!(all.contains(&(add as *const () as usize)) && !all.contains(&event), "{event:#x} in {all:x?}");
    }
);

test!(
    fn a_site_is_not_probed() {
        let [site] = sites(add as *const () as usize)[..] else { panic!("the function has one site") };
        extern "C" fn nothing(_: &mut aarch64_kprobes::Hit<'_>) {}
        let refused = Kprobe::at(site).pre(nothing).register().map(|_| ());
        let (address, word, reason) = (site, NOP, Reason::EventSite);
        assert_eq!(refused, Err(ProbeError::Instruction { address, word, reason }));
    }
);

// With probes on all other instructions of a function, its event has the values that the code has computed: no stub
// changes a register that only the block of the site reads.
test!(
    depends(core),
    fn probes_around_a_site_leave_the_fields_alone() {
        static WRONG: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn listen(call: &CallArguments) {
            // SAFETY: the argument is the address of the struct, which stays while the function is called.
            let sum = unsafe { &*(call.arguments()[0] as *const Sum) };
            let is_right = sum.sum == i64::from(sum.left) + i64::from(sum.right) && sum.left == 1000 && sum.right == -7;
            WRONG.fetch_add(usize::from(!is_right), Relaxed);
        }
        let function = symbol::function(add as *const () as usize).unwrap();
        let text = format!("insn:{}:* {{ @ = count(); }}", symbol::lookup(function.start).unwrap().name);
        let program =
            kprobes_console::program::RunningProgram::start(&text).unwrap_or_else(|_| panic!("{text} does not run"));
        let listener = Kprobe::at(Sum::EVENT.address()).arguments(listen).register().unwrap();
        for _ in 0..10 {
            assert_eq!(add(1000, -7), 993);
        }
        assert_eq!((listener.hits(), WRONG.load(Relaxed)), (10, 0));
        drop(program.detach());
    }
);

/// Returns what follows the time in each line of the trace.
fn recorded(events: &Events<Probe>) -> Vec<String> {
    let text = trace_of(events, usize::MAX);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(": ")).map(|(_, rest)| String::from(rest)).collect()
}

test!(
    depends(core),
    fn records_have_the_fields() {
        let mut events = tracing::events(tracing::rings()).unwrap();
        events.add_all_static().unwrap();
        events.set_enabled(Some("tests"), None, true).unwrap();
        add(5, -2);
        see(7, "a name");
        see(255, "");
        let lines = ["sum: left=5 right=-2 sum=3", "seen: a name is 7 (abcde)", "seen:  is 255 (abcde)"];
        assert_eq!(recorded(&events), lines);
        let counts = |events: &Events<Probe>| -> Vec<u64> {
            events.iter().filter(|event| event.definition().group == "tests").map(|event| event.hits()).collect()
        };
        let mut hits = counts(&events);
        hits.sort_unstable();
        assert_eq!(hits, [1, 2]);
        events.set_filter(("tests", "sum"), "right < 0 && sum == 4").unwrap();
        events.set_filter(("tests", "seen"), "name ~ \"b*\"").unwrap();
        events.clear_trace();
        add(6, -2);
        add(2, 2);
        see(1, "abc");
        see(2, "bcd");
        assert_eq!(recorded(&events), ["sum: left=6 right=-2 sum=4", "seen: bcd is 2 (abcde)"]);
        events.set_enabled(Some("tests"), None, false).unwrap();
        add(6, -2);
        assert_eq!(recorded(&events).len(), 2);
        assert_eq!(probe::list().unwrap(), [], "a disabled event has a probe");
    }
);

test!(
    fn an_allocation_has_the_bytes_that_its_event_tells() {
        const COUNT: usize = 64;
        let mut events = tracing::events(tracing::rings()).unwrap();
        events.add_all_static().unwrap();
        events.set_enabled(Some("kmem"), Some("kmalloc"), true).unwrap();
        for size in [1, 23, 24, 25, 56, 57, 1000, 4096] {
            let layout = Layout::from_size_align(size, 1).unwrap();
            events.set_filter(("kmem", "kmalloc"), &format!("bytes_req == {size}")).unwrap();
            events.clear_trace();
            let mut all = [0; COUNT];
            // SAFETY: the size is not 0.
            all.iter_mut().for_each(|pointer| *pointer = unsafe { alloc::alloc::alloc(layout) }.expose_provenance());
            let lines = recorded(&events);
            let told = lines.iter().find_map(|line| line.split_once("bytes_alloc=")).expect("it is recorded").1;
            let told: usize = told.trim().parse().unwrap();
            all.sort_unstable();
            // Allocations that follow each other have one word of the heap between them.
            let nearest = all.array_windows().map(|[one, next]| next - one).min();
            assert_eq!(nearest, Some(told + size_of::<usize>()), "{size}: {told}");
            assert!(told >= size);
            // SAFETY: each pointer is that of an allocation of this layout, which is freed once.
            all.iter().for_each(|&pointer| unsafe {
                alloc::alloc::dealloc(core::ptr::with_exposed_provenance_mut(pointer), layout);
            });
        }
        events.set_enabled(Some("kmem"), None, false).unwrap();
    }
);
