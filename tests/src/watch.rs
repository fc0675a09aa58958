//! Watchpoints: which accesses of which CPU are reported, and what the accessing code sees.

use alloc::vec::Vec;
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use core::time::Duration;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::probe::{Mode, WatchError, WatchHit, Watchpoint, initialize_cpu, watchpoints};
use aarch64_kprobes::{Hit, Kprobe, Kretprobe};
use kprobes_console::symbol;
use runtime::per_cpu::MAX_CPUS;
use runtime::sync::{IrqLock, IrqMask};
use runtime::task::JoinHandle;
use runtime::{smp, task, time};

use crate::random::features::Features;
use crate::smp::sum_over_cpus;
use crate::test;

global_asm!(include_str!("watch.S"));

unsafe extern "C" {
    pub fn watch_store(at: *mut u64, value: u64);
    pub fn watch_load(at: *const u64) -> u64;
    fn watch_store_pair(at: *mut u64, value: u64);
    fn watch_store_byte(at: *mut u8, value: u64);
    fn watch_zero(at: *mut u64);
    fn watch_add(at: *mut u64) -> u64;
    safe static watch_add_store: u8;
    fn watch_add_pair(at: *mut u64);
    fn watch_compare(at: *mut u64, expected: u64, new: u64) -> u64;
    fn watch_strange(at: *mut u64);
    fn watch_call(at: *mut u64);
    safe static watch_call_load: u8;
    fn watch_outlined(at: *mut u64);
    safe static watch_begin: u8;
    fn watch_poll(at: *const u64);
    fn watch_fetch_add(at: *mut u64, addend: u64) -> u64;
    fn watch_swap(at: *mut u64, new: u64) -> u64;
    fn watch_compare_swap(at: *mut u64, expected: u64, new: u64) -> u64;
}

/// The most accesses that a test records. A lock for which many CPUs wait may have more.
const MOST: usize = 8192;

/// A reported access.
struct Record {
    pc: AtomicUsize,
    cpu: AtomicUsize,
    task: AtomicU64,
    data: AtomicUsize,
}

static RECORDS: [Record; MOST] = [const {
    Record { pc: AtomicUsize::new(0), cpu: AtomicUsize::new(0), task: AtomicU64::new(0), data: AtomicUsize::new(0) }
}; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn record(hit: &WatchHit<'_>) {
    let number = COUNT.fetch_add(1, Relaxed);
    let Some(record) = RECORDS.get(number) else { return };
    record.pc.store(hit.frame().pc as usize, Relaxed);
    record.cpu.store(task::current_cpu(), Relaxed);
    record.task.store(task::current().id(), Relaxed);
    record.data.store(hit.data(), Relaxed);
}

/// Returns the records so far, and forgets them.
fn records() -> &'static [Record] {
    &RECORDS[..COUNT.swap(0, Relaxed).min(MOST)]
}

/// Returns the addresses of the instructions that were recorded, and forgets them.
fn instructions() -> Vec<usize> {
    records().iter().map(|record| record.pc.load(Relaxed)).collect()
}

/// Doublewords to watch, in cache lines that nothing else uses. They belong to the test that runs, because each test
/// has a boot of its own.
#[repr(C, align(256))]
struct Words([u64; 64]);

static mut WORDS: Words = Words([0; 64]);

/// Returns the address of a word.
fn word(number: usize) -> *mut u64 {
    // SAFETY: only computes the address of an element; all numbers are constants below the length.
    unsafe { (&raw mut WORDS.0).cast::<u64>().add(number) }
}

#[derive(Clone, Copy)]
enum Accesses {
    Loads,
    Stores,
    All,
}
use Accesses::{All, Loads, Stores};

/// Arms a watchpoint on `length` bytes.
fn watch(at: *mut u64, length: usize, accesses: Accesses) -> Watchpoint {
    let builder = Watchpoint::at(at.addr(), length, record);
    let builder = match accesses {
        Loads => builder.loads(),
        Stores => builder.stores(),
        All => builder.loads().stores(),
    };
    let watchpoint = builder.register().unwrap();
    Watchpoint::set_all_enabled([&watchpoint], true).unwrap();
    watchpoint
}

/// Reads the control register of each watchpoint of this CPU, and MDSCR_EL1.MDE, and adds up what is enabled.
fn enabled_here() -> u64 {
    let (first, second, control): (u64, u64, u64);
    // SAFETY: reading the registers has no effect; every CPU has two watchpoints (Arm ARM, D24.2.59).
    unsafe {
        asm!("mrs {}, dbgwcr0_el1", "mrs {}, dbgwcr1_el1", "mrs {}, mdscr_el1", out(reg) first, out(reg) second, out(reg) control, options(nomem, nostack));
    }
    (first & 1) + (second & 1) + (control >> 15 & 1)
}

/// Returns the sum of [`enabled_here`] of all CPUs.
pub fn enabled() -> u64 {
    sum_over_cpus(enabled_here)
}

/// Runs `body` with the CPU's number on each CPU at once.
fn on_all_cpus(body: fn(usize)) -> Vec<(usize, u64)> {
    static TASKS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
    let tasks: Vec<JoinHandle> = smp::running()
        .map(|cpu| {
            task::spawn_on(cpu, "access", move || {
                TASKS[cpu].store(task::current().id(), Relaxed);
                body(cpu);
            })
        })
        .collect();
    tasks.into_iter().for_each(JoinHandle::join);
    smp::running().map(|cpu| (cpu, TASKS[cpu].load(Relaxed))).collect()
}

fn address(function: *const ()) -> usize {
    function.addr()
}

test!(
    depends(cpus, core, entry, board),
    fn only_the_store_to_the_watched_word_is_reported() {
        const TIMES: u64 = 200;
        let watchpoint = watch(word(0), 8, Stores);
        let tasks = on_all_cpus(|cpu| {
            for turn in 1..=TIMES {
                // SAFETY: each CPU stores to a word of its own.
                unsafe {
                    watch_store(word(cpu), turn);
                    watch_load(word(0));
                }
            }
        });
        let found = records();
        assert_eq!(found.len() as u64, TIMES);
        for record in found {
            assert_eq!(record.pc.load(Relaxed), address(watch_store as *const ()));
            assert_eq!((record.cpu.load(Relaxed), record.task.load(Relaxed)), tasks[0]);
        }
        assert_eq!((watchpoint.hits(), watchpoint.missed(), watchpoint.given_up_at()), (TIMES, 0, None));
        // SAFETY: the word belongs to this test (see `Words`), and its tasks have ended.
        assert_eq!(unsafe { word(0).read_volatile() }, TIMES);
        drop(watchpoint);
        assert_eq!(enabled(), 0);
    }
);

test!(
    depends(core, entry, board),
    fn each_access_that_touches_a_watched_byte_is_reported_once() {
        let (store, load) = (address(watch_store as *const ()), address(watch_load as *const ()));
        let pair = address(watch_store_pair as *const ());
        let unaligned = |offset: isize| word(4).wrapping_byte_offset(offset);
        // SAFETY: the words belong to this test (see `Words`).
        let accesses = || unsafe {
            watch_store(word(4), 1);
            watch_load(word(4));
            // Below, and over the beginning of, the watched word.
            watch_store_pair(word(2), 1);
            watch_store_pair(word(3), 1);
            watch_store(word(3), 1);
            watch_store(word(5), 1);
            watch_store(unaligned(-1), 1);
            watch_load(unaligned(7));
            watch_store_byte(unaligned(7).cast(), 1);
            watch_store_byte(unaligned(8).cast(), 1);
        };
        let byte = address(watch_store_byte as *const ());
        let expected = |accesses| match accesses {
            Loads => Vec::from([load, load]),
            Stores => Vec::from([store, pair, store, byte]),
            All => Vec::from([store, load, pair, store, load, byte]),
        };
        for kind in [Loads, Stores, All] {
            let _watchpoint = watch(word(4), 8, kind);
            accesses();
            assert_eq!(instructions(), expected(kind));
        }
        accesses();
        assert!(instructions().is_empty());
        // One byte, and a range of 16 words.
        let watchpoint = watch(unaligned(3), 1, Stores);
        accesses();
        assert_eq!(instructions(), [store, pair, store]);
        drop(watchpoint);
        let watchpoint = watch(word(16), 128, Stores);
        // SAFETY: the words belong to this test (see `Words`).
        unsafe {
            watch_store(word(15), 1);
            watch_store(word(16), 1);
            watch_store(word(31), 1);
            watch_store(word(32), 1);
            watch_zero(word(16));
        }
        assert_eq!(instructions(), [store, store, address(watch_zero as *const ())]);
        // SAFETY: the words belong to this test (see `Words`), and were zeroed.
        assert_eq!(unsafe { word(16).read_volatile() }, 0);
        drop(watchpoint);
    }
);

test!(
    depends(core, entry),
    fn one_instruction_is_reported_to_each_watchpoint_that_it_touches() {
        let watch = |number: usize| {
            let watchpoint = Watchpoint::at(word(number).addr(), 8, record).stores().data(number).register().unwrap();
            Watchpoint::set_all_enabled([&watchpoint], true).unwrap();
            watchpoint
        };
        let _both = (watch(0), watch(1));
        // SAFETY: the words belong to this test (see `Words`).
        unsafe {
            watch_store_pair(word(0), 1);
            watch_store(word(1), 1);
        }
        let found: Vec<usize> = records().iter().map(|record| record.data.load(Relaxed)).collect();
        assert_eq!(found, [0, 1, 1]);
    }
);

/// Adds 1 on all CPUs at once, `TIMES` times each, by `add`. Returns the sum.
fn add_everywhere(add: fn(usize)) -> u64 {
    // SAFETY: the tasks of earlier calls have ended.
    unsafe { word(0).write_volatile(0) };
    on_all_cpus(add);
    // SAFETY: the tasks have ended.
    unsafe { word(0).read_volatile() }
}

const ADDITIONS: u64 = 100;

test!(
    depends(cpus, core, entry, board),
    fn a_loop_of_exclusives_goes_on_and_each_store_is_reported_once() {
        let sum = ADDITIONS * smp::running().count() as u64;
        let add = |_: usize| {
            for _ in 0..ADDITIONS {
                // SAFETY: the word is added to atomically only.
                unsafe { watch_add(word(0)) };
            }
        };
        let add_pair = |_: usize| {
            for _ in 0..ADDITIONS {
                // SAFETY: the word is added to atomically only.
                unsafe { watch_add_pair(word(0)) };
            }
        };
        let (load, store) = (address(watch_add as *const ()), (&raw const watch_add_store).addr());
        for kind in [Stores, Loads, All] {
            let watchpoint = watch(word(0), 8, kind);
            assert_eq!(add_everywhere(add), sum);
            let found = instructions();
            let stores = found.iter().filter(|&&pc| pc == store).count() as u64;
            let loads = found.iter().filter(|&&pc| pc == load).count() as u64;
            // Besides, this test writes the word first, and reads it at the end.
            assert!(found.len() as u64 - stores - loads <= 2);
            // Where several CPUs add, some loads are in vain.
            assert_eq!(stores, if matches!(kind, Loads) { 0 } else { sum });
            assert!(if matches!(kind, Stores) { loads == 0 } else { loads >= sum }, "{loads} of {sum}");
            assert_eq!((watchpoint.missed(), watchpoint.given_up_at()), (0, None));
            assert_eq!(add_everywhere(add_pair), sum);
            assert!(!instructions().is_empty());
            drop(watchpoint);
        }
    }
);

test!(
    depends(core, entry),
    fn an_atomic_instruction_is_a_load_and_a_store_and_reported_once() {
        if !Features::read().atomics() {
            return;
        }
        for kind in [Loads, Stores, All] {
            // SAFETY: the word belongs to this test (see `Words`).
            unsafe { word(0).write_volatile(5) };
            let watchpoint = watch(word(0), 8, kind);
            // SAFETY: the word belongs to this test (see `Words`), and the CPU has the instructions.
            let found =
                unsafe { [watch_fetch_add(word(0), 2), watch_swap(word(0), 9), watch_compare_swap(word(0), 9, 11)] };
            assert_eq!(found, [5, 7, 9]);
            let all = [watch_fetch_add as *const (), watch_swap as *const (), watch_compare_swap as *const ()];
            assert_eq!(instructions(), all.map(address));
            assert_eq!((watchpoint.hits(), watchpoint.missed()), (3, 0));
            drop(watchpoint);
            // SAFETY: the word belongs to this test (see `Words`).
            assert_eq!(unsafe { word(0).read_volatile() }, 11);
        }
    }
);

test!(
    depends(cpus, core, entry),
    fn each_addition_is_reported_once_whether_by_one_instruction_or_by_a_loop() {
        let sum = ADDITIONS * smp::running().count() as u64;
        let by_instruction = if Features::read().atomics() { sum / 2 } else { 0 };
        let add = |_: usize| {
            let has_atomics = Features::read().atomics();
            for number in 0..ADDITIONS {
                // SAFETY: the word is added to atomically only, and by instructions that the CPU has.
                unsafe {
                    if number % 2 == 0 && has_atomics {
                        watch_fetch_add(word(0), 1);
                    } else {
                        watch_add(word(0));
                    }
                }
            }
        };
        let (fetch_add, store) = (address(watch_fetch_add as *const ()), (&raw const watch_add_store).addr());
        for kind in [Stores, All] {
            let watchpoint = watch(word(0), 8, kind);
            assert_eq!(add_everywhere(add), sum);
            let found = instructions();
            let count = |at: usize| found.iter().filter(|&&pc| pc == at).count() as u64;
            assert_eq!((count(fetch_add), count(store)), (by_instruction, sum - by_instruction));
            assert_eq!((watchpoint.missed(), watchpoint.given_up_at()), (0, None));
            drop(watchpoint);
        }
    }
);

test!(
    depends(core, entry),
    fn a_comparison_that_fails_is_a_load_only() {
        let _watchpoint = watch(word(0), 8, All);
        // SAFETY: the word belongs to this test (see `Words`).
        unsafe {
            word(0).write_volatile(5);
            instructions();
            assert_eq!(watch_compare(word(0), 6, 7), 5);
            assert_eq!(instructions().len(), 1);
            assert_eq!(watch_compare(word(0), 5, 7), 5);
            assert_eq!(instructions().len(), 2);
            assert_eq!(word(0).read_volatile(), 7);
        }
    }
);

test!(
    depends(core, entry),
    fn a_sequence_that_cannot_be_followed_ends_the_watchpoint() {
        let watchpoint = watch(word(0), 8, All);
        // SAFETY: the word belongs to this test (see `Words`).
        unsafe {
            word(0).write_volatile(5);
            instructions();
            watch_strange(word(0));
            assert_eq!(word(0).read_volatile(), 6);
        }
        assert_eq!(watchpoint.given_up_at(), Some(address(watch_strange as *const ())));
        assert_eq!(instructions(), [address(watch_strange as *const ())]);
    }
);

test!(
    depends(cpus, core, entry),
    fn a_watchpoint_that_was_given_up_interrupts_each_cpu_at_most_once_more() {
        let (given_up, _other) = (watch(word(0), 8, All), watch(word(8), 8, All));
        // SAFETY: the word belongs to this test (see `Words`).
        unsafe { watch_strange(word(0)) };
        assert!(given_up.given_up_at().is_some());
        on_all_cpus(|_| {
            // SAFETY: no CPU stores to the word.
            unsafe { watch_load(word(0)) };
        });
        // The other watchpoint, and MDSCR_EL1.MDE.
        assert_eq!(enabled(), 2 * smp::running().count() as u64);
    }
);

test!(
    depends(core, entry),
    fn a_sequence_that_a_breakpoint_must_end_ends_the_watchpoint() {
        let functions: [(usize, unsafe extern "C" fn(*mut u64)); 2] =
            [((&raw const watch_call_load).addr(), watch_call), ((&raw const watch_begin).addr(), watch_outlined)];
        for kind in [Loads, Stores, All] {
            for (load, add) in functions {
                // SAFETY: the word belongs to this test (see `Words`).
                unsafe { word(0).write_volatile(5) };
                let watchpoint = watch(word(0), 8, kind);
                // SAFETY: the word belongs to this test (see `Words`).
                unsafe { add(word(0)) };
                assert_eq!(watchpoint.given_up_at(), Some(load));
                drop(watchpoint);
                // SAFETY: the word belongs to this test (see `Words`).
                assert_eq!(unsafe { word(0).read_volatile() }, 6);
                // Each attempt begins with a load, which is reported if it is wanted.
                assert_eq!(instructions().is_empty(), matches!(kind, Stores));
            }
        }
        assert_eq!(enabled(), 0);
    }
);

/// Returns whether the second watchpoint of this CPU is enabled, plus 2 if it watches loads: DBGWCR1_EL1.E and LSC.
fn second_here() -> u64 {
    let control: u64;
    // SAFETY: reading the register has no effect; every CPU has two watchpoints (Arm ARM, D24.2.59).
    unsafe { asm!("mrs {}, dbgwcr1_el1", out(reg) control, options(nomem, nostack)) };
    (control & 1) + 2 * (control >> 3 & 1)
}

test!(
    depends(cpus, core, entry),
    fn loads_are_watched_for_a_sequence_no_longer_than_its_watchpoint_is_there() {
        let (given_up, _other) = (watch(word(0), 8, Stores), watch(word(8), 8, Stores));
        // SAFETY: the word belongs to this test (see `Words`).
        unsafe { watch_call(word(0)) };
        assert!(given_up.given_up_at().is_some());
        drop(given_up);
        assert_eq!(sum_over_cpus(second_here), smp::running().count() as u64);
    }
);

test!(
    depends(core, entry),
    fn a_loop_that_polls_does_not_end_the_watchpoint() {
        const TIMES: usize = 1000;
        static IS_OVER: AtomicU64 = AtomicU64::new(1);
        static POLLS: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn count(_: &WatchHit<'_>) {
            if POLLS.fetch_add(1, Relaxed) == TIMES {
                IS_OVER.store(0, Relaxed);
            }
        }
        // Without a probe; with one on the branch, and on the instruction that waits.
        let poll = address(watch_poll as *const ());
        let cases = [
            None,
            Some((4, Mode::Boosted)),
            Some((4, Mode::Optimized)),
            Some((8, Mode::Boosted)),
            Some((8, Mode::Optimized)),
        ];
        for probed in cases {
            let builder = probed.map(|(offset, mode)| Kprobe::at(poll + offset).pre(before).at_most(mode));
            let _probe = builder.map(|builder| builder.register().unwrap());
            IS_OVER.store(1, Relaxed);
            POLLS.store(0, Relaxed);
            let watchpoint = Watchpoint::at(IS_OVER.as_ptr().addr(), 8, count).loads().register().unwrap();
            Watchpoint::set_all_enabled([&watchpoint], true).unwrap();
            // SAFETY: the word is atomic.
            unsafe { watch_poll(IS_OVER.as_ptr()) };
            let found = (watchpoint.hits(), watchpoint.missed(), watchpoint.given_up_at());
            assert_eq!(found, (TIMES as u64 + 1, 0, None), "{probed:?}");
        }
    }
);

test!(
    depends(cpus, core, entry),
    fn a_watched_lock_works() {
        static LOCK: IrqLock<u64> = IrqLock::new(0);
        const TIMES: u64 = 50;
        let at = (&raw const LOCK).addr() & !7;
        let watchpoint = watch(core::ptr::with_exposed_provenance_mut(at), 8, All);
        on_all_cpus(|_| {
            for _ in 0..TIMES {
                *LOCK.lock() += 1;
            }
        });
        drop(watchpoint);
        let total = TIMES * smp::running().count() as u64;
        assert_eq!(*LOCK.lock(), total);
        // Taken and given back each time.
        let found = instructions();
        assert!(found.len() as u64 >= 2 * total, "{}", found.len());
        assert!(found.iter().all(|&pc| symbol::lookup(pc).is_some()));
    }
);

test!(
    depends(cpus, interrupts),
    needs SECOND_CPU,
    fn a_cpu_that_is_held_calls_no_handler() {
        extern "C" fn ignore(_: &WatchHit<'_>) {}
        // A held CPU reads it while it waits.
        let reporter = symbol::find_static("runtime::machine::REPORTER").next().unwrap().address as usize;
        let watchpoint = Watchpoint::at(reporter, 8, ignore).loads().register().unwrap();
        Watchpoint::set_all_enabled([&watchpoint], true).unwrap();
        let accesses = || watchpoint.hits() + watchpoint.missed();
        for _ in 0..20 {
            smp::hold_cpus(&mut || {
                let before = accesses();
                let until = time::now() + Duration::from_millis(1);
                while time::now() < until {
                    core::hint::spin_loop();
                }
                assert_eq!(accesses(), before);
            });
        }
        drop(watchpoint);
        assert_eq!(enabled(), 0);
    }
);

extern "C" fn before(_: &mut Hit<'_>) {}

test!(
    depends(core, entry),
    fn a_probed_store_is_reported_at_its_own_address() {
        let store = address(watch_store as *const ());
        let watchpoint = watch(word(0), 8, Stores);
        for mode in [Mode::Boosted, Mode::Optimized] {
            let probe = Kprobe::at(store).pre(before).at_most(mode).register().unwrap();
            // SAFETY: the word belongs to this test (see `Words`).
            unsafe { watch_store(word(0), 9) };
            assert_eq!(instructions(), [store], "{mode}");
            assert_eq!((probe.hits(), probe.missed()), (1, 0), "{mode}");
        }
        assert_eq!(watchpoint.hits(), 2);
    }
);

test!(
    depends(core, entry),
    fn what_a_stub_and_the_trampoline_store_for_themselves_is_not_reported() {
        let load = address(watch_load as *const ());
        let entered = Kprobe::at(load).pre(before).register().unwrap();
        let returned = Kretprobe::at(load).register().unwrap();
        let sp: usize;
        // SAFETY: reads the stack pointer, with which the function is called below.
        unsafe { asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
        // Both store x0 there, before they mask debug exceptions.
        let watchpoint = watch(core::ptr::with_exposed_provenance_mut(sp - TrapFrame::SIZE), 8, Stores);
        let mask = IrqMask::new();
        // Functions that were called before have stored there, too.
        COUNT.store(0, Relaxed);
        // SAFETY: the function loads the word, which belongs to this test (see `Words`).
        unsafe { asm!("bl {}", sym watch_load, inout("x0") word(0) => _, clobber_abi("C")) };
        let found = COUNT.load(Relaxed);
        drop(mask);
        drop(watchpoint);
        assert_eq!(found, 0);
        assert_eq!([entered.hits(), returned.hits()], [1, 1]);
    }
);

test!(
    depends(core, entry),
    fn there_are_as_many_watchpoints_as_the_cpu_has() {
        let count = watchpoints();
        let one = |number: usize| Watchpoint::at(word(number).addr(), 8, record).stores().data(number).register();
        let all: Vec<Watchpoint> = (0..count).map(|number| one(number).unwrap()).collect();
        assert_eq!(one(count).unwrap_err(), WatchError::NoneFree { count });
        Watchpoint::set_all_enabled(&all, true).unwrap();
        for number in 0..=count {
            // SAFETY: the words belong to this test (see `Words`).
            unsafe { watch_store(word(number), 1) };
        }
        let found: Vec<usize> = records().iter().map(|record| record.data.load(Relaxed)).collect();
        assert_eq!(found, (0..count).collect::<Vec<_>>());
        drop(all);
        assert!(one(0).is_ok());
        assert_eq!(enabled(), 0);
    }
);

test!(
    depends(core, entry),
    fn code_with_interrupts_masked_is_seen_and_code_with_debug_exceptions_masked_is_not() {
        let _watchpoint = watch(word(0), 8, Stores);
        let mask = IrqMask::new();
        // SAFETY: the word belongs to this test (see `Words`).
        unsafe { watch_store(word(0), 1) };
        assert_eq!(instructions().len(), 1);
        // SAFETY: masking is always allowed; the word belongs to this test (see `Words`).
        unsafe {
            asm!("msr daifset, #0b1000", options(nomem, nostack));
            watch_store(word(0), 2);
            let refused = Watchpoint::at(word(1).addr(), 8, record).stores().register();
            assert_eq!(refused.unwrap_err(), WatchError::Masked);
            asm!("msr daifclr, #0b1000", options(nomem, nostack));
        }
        assert!(instructions().is_empty());
        drop(mask);
    }
);

/// Sets the registers of the last watchpoint of this CPU, and MDSCR_EL1.MDE, as a debugger in the kernel does.
fn take_last(is_enabled: bool) {
    // For no bytes.
    let control = u64::from(is_enabled);
    // SAFETY: the watchpoint watches no bytes, and nothing else uses it. Every CPU has two watchpoints.
    unsafe {
        asm!(
            "msr dbgwcr1_el1, {control}", "mrs {scratch}, mdscr_el1", "bfi {scratch}, {control}, #15, #1",
            "msr mdscr_el1, {scratch}", "isb",
            control = in(reg) control, scratch = out(reg) _, options(nostack)
        );
    }
}

test!(
    depends(cpus, core, entry),
    fn watchpoints_that_another_owner_has_are_refused_and_stay() {
        let one = || Watchpoint::at(word(0).addr(), 8, record).stores().register();
        let last = smp::running().last().unwrap_or(0);
        let on_last = |is_enabled| task::spawn_on(last, "debugger", move || take_last(is_enabled)).join();
        on_last(true);
        assert_eq!(one().unwrap_err(), WatchError::Busy { address: word(0).addr() });
        // The register and MDSCR_EL1.MDE.
        assert_eq!(enabled(), 2);
        on_last(false);
        drop(one().unwrap());
        assert_eq!(enabled(), 0);
    }
);

/// Sets or clears the first breakpoint of this CPU, and MDSCR_EL1.MDE, as a debugger in the kernel does.
fn set_breakpoint(is_enabled: bool) {
    // At EL0, where nothing runs.
    let control = u64::from(is_enabled) * (0xf << 5 | 0b10 << 1 | 1);
    // SAFETY: the breakpoint is not hit, and nothing else uses it.
    unsafe {
        asm!(
            "msr dbgbvr0_el1, xzr", "msr dbgbcr0_el1, {control}", "mrs {scratch}, mdscr_el1",
            "bfi {scratch}, {control}, #15, #1", "msr mdscr_el1, {scratch}", "isb",
            control = in(reg) control, scratch = out(reg) _, options(nostack)
        );
    }
}

test!(
    depends(cpus, core, entry),
    fn a_breakpoint_that_another_owner_has_stays_enabled() {
        let last = smp::running().last().unwrap_or(0);
        let on_last = |is_enabled| task::spawn_on(last, "debugger", move || set_breakpoint(is_enabled)).join();
        for is_first in [true, false] {
            if is_first {
                on_last(true);
                // SAFETY: a task runs, so TPIDR_EL1 leads to the state of this CPU.
                task::spawn_on(last, "initialize", || unsafe { initialize_cpu() }).join();
                assert_eq!(enabled(), 1);
            }
            let watchpoint = watch(word(0), 8, Stores);
            if !is_first {
                on_last(true);
            }
            // SAFETY: the word belongs to this test (see `Words`).
            unsafe { watch_store(word(0), 1) };
            assert_eq!(instructions().len(), 1);
            drop(watchpoint);
            // MDSCR_EL1.MDE.
            assert_eq!(enabled(), 1);
            on_last(false);
            assert_eq!(enabled(), 0);
        }
    }
);

test!(
    depends(core, entry),
    fn an_address_whose_upper_bits_differ_is_refused() {
        for address in [1 << 60, word(0).addr() & !(1 << 50)] {
            let refused = Watchpoint::at(address, 8, record).loads().register();
            assert_eq!(refused.unwrap_err(), WatchError::NotCanonical { address });
        }
        // A canonical address need not be mapped.
        drop(Watchpoint::at(0x1000, 8, record).loads().register().unwrap());
    }
);
