//! Events: that what every CPU records at once is whole, in order and accounted for, and what is fetched of a real machine.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hint::black_box;

use kprobes_trace::definition::{Command, parse};
use kprobes_trace::engine::Probe;
use kprobes_trace::events::Events;
use kprobes_trace::ring::{Record, Snapshot};
use runtime::per_cpu::MAX_CPUS;
use runtime::task::JoinHandle;
use runtime::{smp, task, tracing};

use crate::test;

/// Calls on each CPU; each is recorded twice.
const CALLS: u64 = 20_000;

/// What is probed.
#[inline(never)]
extern "C" fn target(number: u64, complement: u64) -> u64 {
    black_box(number ^ complement).wrapping_add(number)
}

fn define(events: &mut Events<Probe>, line: &str) {
    let Ok(Some(Command::Define(definition))) = parse(line) else { panic!("{line} is no definition") };
    events.define(definition, &tracing::Names).unwrap_or_else(|error| panic!("{line}: {error}"));
}

/// What is left to be found of a CPU.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// The number of the next record, counted from the first call on.
    next: u64,
    read: u64,
    lost: u64,
}

/// Checks that the records of each CPU go on where those before have ended, and that each is of one hit.
fn follow(snapshot: &Snapshot, events: &Events<Probe>, progress: &mut [Progress; MAX_CPUS]) {
    for record in snapshot.records() {
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
    fn what_all_cpus_record_is_whole_in_order_and_accounted_for() {
        let rings = tracing::rings();
        let mut events = Events::new(rings);
        let address = target as *const () as usize;
        tracing::resize_rings(16 << 10).expect("there is memory");
        define(&mut events, &format!("p:call {address:#x} number=%x0 complement=%x1"));
        define(&mut events, &format!("r:back {address:#x} ret=$retval low=$arg1:u16 task=$comm"));
        events.set_all_enabled(None, true).expect("probes can be armed");
        let callers: Vec<JoinHandle> = smp::running()
            .map(|cpu| {
                task::spawn_on(cpu, "caller", || {
                    for number in 0..CALLS {
                        black_box(target(number, !number));
                    }
                })
            })
            .collect();
        let mut progress = [Progress::default(); MAX_CPUS];
        let is_done = |events: &Events<Probe>| {
            let calls = CALLS * callers.len() as u64;
            events.iter().all(|event| match event.probe() {
                Probe::Kprobe(probe) => probe.hits() == calls,
                Probe::Kretprobe(probe) => probe.hits() + probe.missed() == calls,
            })
        };
        for size in (3..11).cycle() {
            let ended = is_done(&events);
            follow(&rings.take().expect("there is memory"), &events, &mut progress);
            if ended {
                break;
            }
            tracing::resize_rings(size << 12).expect("there is memory");
            task::yield_now();
        }
        callers.into_iter().for_each(JoinHandle::join);
        let last = rings.take().expect("there is memory");
        assert_eq!(last.present(), 0, "records of hits that were taken before");
        let counts: Vec<_> = last.counts().collect();
        for cpu in smp::running() {
            let Progress { read, lost, .. } = progress[cpu];
            assert_eq!((read + lost, counts[cpu].lost), (2 * CALLS, lost), "of CPU {cpu}: written, lost");
        }
        events.set_all_enabled(None, false).expect("probes can be disarmed");
    }
);

/// What the newest record says of its arguments.
fn arguments(events: &Events<Probe>) -> String {
    let mut text = String::new();
    events.write_trace(&mut text, 1, 1, &tracing::Names, tracing::clock()).expect("there is memory");
    let line = text.lines().last().expect("a record");
    let (_, arguments) = line.split_once(") ").expect("arguments behind the place");
    arguments.into()
}

test!(
    fn arguments_are_fetched_from_a_real_machine() {
        static TEXT: &[u8; 8] = b"written\0";
        let address = target as *const () as usize;
        let hit = |arguments: &str, number: u64, other: u64| {
            let mut events = Events::new(tracing::rings());
            define(&mut events, &format!("p:e {address:#x} {arguments}"));
            events.set_all_enabled(None, true).expect("a probe can be armed");
            black_box(target(number, other));
            self::arguments(&events)
        };
        let text = TEXT.as_ptr() as u64;
        assert_eq!(hit("%x0:u64 +0(%x1):string c=+2(%x1):char", 7, text), "arg1=7 arg2=\"written\" c='i'");
        assert_eq!(hit("+0(%x1):u8[3] +0(%x1):u16", 7, text), "arg1={119,114,105} arg2=29303");
        let wild = 0xffff_ff7f_dead_bee0;
        assert_eq!(hit("+0(%x1) +8(%x1):string %x0", 7, wild), "arg1=(fault) arg2=(fault) arg3=0x7");
        assert_eq!(hit("+0(%x1):u32[2] +0(+0(%x1)):s8", 7, wild), "arg1=(fault) arg2=(fault)");
        assert_eq!(hit("w=+0(%x1)", 7, wild), "w=(fault)");
    }
);

test!(
    fn nothing_is_recorded_while_it_is_switched_off() {
        let rings = tracing::rings();
        let mut events = Events::new(rings);
        define(&mut events, &format!("p:e {:#x} %x0", target as *const () as usize));
        events.set_all_enabled(None, true).expect("a probe can be armed");
        black_box(target(1, 0));
        rings.set_on(false);
        black_box(target(2, 0));
        rings.set_on(true);
        black_box(target(3, 0));
        let snapshot = rings.take().expect("there is memory");
        let values: Vec<u64> = snapshot.records().map(|record: Record<'_>| record.word(16)).collect();
        assert_eq!(values, [1, 3]);
    }
);
