//! The tasks of the kernel, which all other tests rely on.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::{Hit, Kprobe};
use kprobes_console::symbol;
use runtime::sync::{IrqLock, IrqMask, WaitQueue};
use runtime::task::TaskState;
use runtime::{backtrace, memory, smp, task, time};

use crate::fixture;
use crate::test;

test!(
    depends(cpus),
    fn tasks_run_and_are_joined() {
        let sum = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (1..=10u64)
            .map(|number| {
                let sum = Arc::clone(&sum);
                task::spawn("adder", move || {
                    sum.fetch_add(number, Relaxed);
                })
            })
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
        assert_eq!(sum.load(Relaxed), 55);
    }
);

test!(
    depends(cpus, interrupts, board),
    fn a_task_that_never_yields_is_preempted() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let spinning = task::spawn("spinner", || {
            while !STOP.load(Relaxed) {
                core::hint::spin_loop();
            }
        });
        // The test would time out if this task never ran again.
        task::yield_now();
        STOP.store(true, Relaxed);
        spinning.join();
    }
);

/// Returns the state of the task with the number `id`.
fn state_of(id: u64) -> Option<TaskState> {
    task::list().unwrap().iter().find(|task| task.id == id).map(|task| task.state)
}

test!(
    depends(cpus, interrupts),
    fn sleepers_wake_in_the_order_of_their_deadlines_and_not_before() {
        static WOKEN: IrqLock<Vec<u32>> = IrqLock::new(Vec::new());
        static IS_LATE: AtomicBool = AtomicBool::new(false);
        // A round counts if all tasks slept before the first deadline, and were late by less than a unit. The deadlines
        // are a unit apart, so such a delay does not change the order.
        let is_in_order = |unit: Duration| {
            WOKEN.lock().clear();
            IS_LATE.store(false, Relaxed);
            let base = time::now();
            let tasks = [5, 2, 4, 1, 3].map(|number| {
                task::spawn("sleeper", move || {
                    let deadline = base + unit * number;
                    task::sleep(deadline.saturating_sub(time::now()));
                    assert!(time::now() >= deadline);
                    WOKEN.lock().push(number);
                    IS_LATE.fetch_or(time::now() >= deadline + unit, Relaxed);
                })
            });
            let is_asleep = |task: &task::JoinHandle| state_of(task.id()) == Some(TaskState::Sleeping);
            while time::now() < base + unit && !tasks.iter().all(is_asleep) {
                task::yield_now();
            }
            let all_slept = tasks.iter().all(is_asleep) && time::now() < base + unit;
            tasks.into_iter().for_each(task::JoinHandle::join);
            let counts = all_slept && !IS_LATE.load(Relaxed);
            counts.then(|| *WOKEN.lock() == [1, 2, 3, 4, 5])
        };
        // A busy host may let the machine wait for ten seconds, which the last unit exceeds.
        let rounds = (0..=10).map(|round| Duration::from_millis(10) * 2_u32.pow(round));
        let result = rounds.filter_map(is_in_order).next();
        assert_eq!(result, Some(true), "{:?}", *WOKEN.lock());
    }
);

test!(
    depends(cpus),
    fn a_thousand_tasks_leave_nothing_behind() {
        let run = |count: usize| {
            for _ in 0..count {
                task::spawn("short", task::yield_now).join();
            }
            let statistics = memory::statistics();
            (statistics.heap_used, statistics.free_frames, task::list().unwrap().len())
        };
        let before = run(10);
        assert_eq!(run(1000), before);
    }
);

test!(
    depends(cpus),
    fn tasks_keep_their_registers() {
        let tasks: Vec<_> = (0..4u64)
            .map(|number| {
                task::spawn("registers", move || {
                    for _ in 0..200_000 {
                        assert_eq!(fixture::CHECK_REGISTERS.call(number), 0);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
    }
);

test!(
    depends(cpus),
    fn backtraces_of_sleeping_tasks_lead_to_where_they_sleep() {
        #[inline(never)]
        fn rest() {
            task::sleep(Duration::from_secs(1_000_000));
            black_box(());
        }
        let sleeper = task::spawn("sleeper", rest);
        while state_of(sleeper.id()) != Some(TaskState::Sleeping) {
            task::yield_now();
        }
        let trace = backtrace::of_task(sleeper.id()).expect("the task exists and is not running");
        let names: Vec<&str> =
            trace.addresses().map(|address| symbol::lookup(address - 4).expect("there is a function").name).collect();
        assert_eq!(names[0], "runtime::task::scheduler::reschedule", "{trace}");
        let caller = names.iter().position(|name| name.ends_with("::rest")).expect("the function is active");
        assert!(names[1..caller].iter().any(|name| name.contains("::sleep")), "{trace}");
        assert!(names[caller..].ends_with(&["task_main", "context_first_entry"]), "{trace}");
    }
);

/// The counters of the tasks of the next test. There are more than the CPUs of any configuration.
static TURNS: [AtomicU64; 36] = [const { AtomicU64::new(0) }; 36];
/// The index of the task whose backtrace is requested.
static ASKED: AtomicUsize = AtomicUsize::new(0);
static HAS_RUN: AtomicBool = AtomicBool::new(false);

/// Gives a task time to run while its frames are walked.
extern "C" fn linger(_: &mut Hit<'_>) {
    let turns = || TURNS[ASKED.load(Relaxed)].load(Relaxed);
    let (before, until) = (turns(), time::counter() + time::ticks(Duration::from_micros(200)));
    while time::counter() < until {}
    HAS_RUN.fetch_or(turns() != before, Relaxed);
}

test!(
    depends(cpus),
    fn a_task_does_not_run_while_its_frames_are_walked() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        IS_OVER.store(false, Relaxed);
        HAS_RUN.store(false, Relaxed);
        // Some do not run at any time.
        let count = smp::running().count() + 4;
        let tasks: Vec<_> = TURNS[..count]
            .iter()
            .map(|turns| {
                task::spawn("comes and goes", || {
                    while !IS_OVER.load(Relaxed) {
                        turns.fetch_add(1, Relaxed);
                        task::yield_now();
                    }
                })
            })
            .collect();
        let follow = fixture::address_of("<runtime::backtrace::walk::Walk>::follow");
        let probe = Kprobe::at(follow).pre(linger).register().unwrap();
        while probe.hits() < 200 {
            for (number, task) in tasks.iter().enumerate() {
                ASKED.store(number, Relaxed);
                // A running task has no backtrace.
                let _ = backtrace::of_task(task.id());
            }
            task::yield_now();
        }
        IS_OVER.store(true, Relaxed);
        tasks.into_iter().for_each(task::JoinHandle::join);
        assert!(!HAS_RUN.load(Relaxed));
    }
);

fn are_interrupts_masked() -> bool {
    fixture::READ_MASKS.call(0) & TrapFrame::IRQ_MASKED != 0
}

test!(
    fn locks_are_released_in_any_order_with_interrupts_masked_until_the_last() {
        static FIRST: IrqLock<u64> = IrqLock::new(0);
        static SECOND: IrqLock<u64> = IrqLock::new(0);
        assert!(!are_interrupts_masked());
        for _ in 0..3 {
            let first = FIRST.lock();
            let second = SECOND.lock();
            drop(first);
            assert!(are_interrupts_masked());
            // A nested mask has no effect of its own.
            drop((FIRST.lock(), IrqMask::new()));
            assert!(are_interrupts_masked());
            drop(second);
            assert!(!are_interrupts_masked());
        }
        let mask = IrqMask::new();
        let lock = FIRST.try_lock().expect("the lock is free");
        assert!(mask.was_enabled());
        drop(mask);
        assert!(SECOND.try_lock().is_some() && FIRST.try_lock().is_none());
        assert!(are_interrupts_masked());
        drop(lock);
        assert!(!are_interrupts_masked());
    }
);

test!(
    fn tasks_find_their_interrupt_masks_again() {
        static STOP: AtomicBool = AtomicBool::new(false);
        // One task leaves the CPU in interrupts, the other in calls. They restore different things.
        let spinning = task::spawn("spinner", || {
            while !STOP.load(Relaxed) {
                assert!(!are_interrupts_masked());
            }
        });
        for _ in 0..10 {
            task::yield_now();
            assert!(!are_interrupts_masked());
        }
        STOP.store(true, Relaxed);
        spinning.join();
    }
);

test!(
    stops "a task gave up its CPU with interrupts masked",
    fn a_task_cannot_wait_with_a_lock() {
        static FIRST: IrqLock<u64> = IrqLock::new(0);
        static SECOND: IrqLock<u64> = IrqLock::new(0);
        let first = FIRST.lock();
        let _second = SECOND.lock();
        drop(first);
        task::yield_now();
    }
);

test!(
    depends(cpus),
    fn producers_and_consumers_wait_for_each_other() {
        const EACH: u64 = 500;
        const CAPACITY: usize = 4;
        static ITEMS: IrqLock<VecDeque<u64>> = IrqLock::new(VecDeque::new());
        static NOT_FULL: WaitQueue = WaitQueue::new();
        static NOT_EMPTY: WaitQueue = WaitQueue::new();
        static SUM: AtomicU64 = AtomicU64::new(0);
        static WAITED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
        fn produce(item: u64) {
            NOT_FULL.wait_until(|| {
                let mut items = ITEMS.lock();
                if items.len() == CAPACITY {
                    WAITED[0].fetch_add(1, Relaxed);
                    return None;
                }
                items.push_back(item);
                Some(())
            });
            NOT_EMPTY.wake_one();
        }
        fn consume() -> u64 {
            let item = NOT_EMPTY.wait_until(|| {
                let item = ITEMS.lock().pop_front();
                if item.is_none() {
                    WAITED[1].fetch_add(1, Relaxed);
                }
                item
            });
            NOT_FULL.wake_one();
            item
        }
        // Reserves the capacity, so that nothing is allocated while the lock is held.
        ITEMS.lock().reserve(CAPACITY);
        let producers = [0, 1]
            .map(|first| task::spawn("producer", move || (0..EACH).for_each(|number| produce(2 * number + first))));
        let consumers = [(); 2].map(|()| {
            task::spawn("consumer", || {
                for _ in 0..EACH {
                    SUM.fetch_add(consume(), Relaxed);
                }
            })
        });
        producers.into_iter().chain(consumers).for_each(task::JoinHandle::join);
        assert_eq!(SUM.load(Relaxed), (0..2 * EACH).sum());
        assert!(ITEMS.lock().is_empty());
        assert!(WAITED.iter().all(|waited| waited.load(Relaxed) > 10), "{WAITED:?}");
    }
);
