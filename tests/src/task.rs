//! Tasks: what the probes are tried on.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use runtime::sync::IrqLock;
use runtime::{memory, task, time};

use crate::test;

test!(
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
    fn a_task_that_never_yields_is_preempted() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let spinning = task::spawn("spinner", || {
            while !STOP.load(Relaxed) {
                core::hint::spin_loop();
            }
        });
        // If this task never ran again, the test would time out.
        task::yield_now();
        STOP.store(true, Relaxed);
        spinning.join();
    }
);

test!(
    fn sleepers_wake_in_the_order_of_their_deadlines_and_not_before() {
        static WOKEN: IrqLock<Vec<u64>> = IrqLock::new(Vec::new());
        // Far enough apart for a machine that is slow to start them.
        let base = time::now();
        let tasks = [250, 100, 200, 50, 150].map(|milliseconds| {
            task::spawn("sleeper", move || {
                let deadline = base + Duration::from_millis(milliseconds);
                task::sleep(deadline.saturating_sub(time::now()));
                assert!(time::now() >= deadline);
                WOKEN.lock().push(milliseconds);
            })
        });
        tasks.into_iter().for_each(task::JoinHandle::join);
        assert_eq!(*WOKEN.lock(), [50, 100, 150, 200, 250]);
    }
);

test!(
    fn a_thousand_tasks_leave_nothing_behind() {
        let run = |count: usize| {
            for _ in 0..count {
                task::spawn("short", task::yield_now).join();
            }
            // Stacks are freed by a task that runs after the one that has exited.
            task::sleep(Duration::from_millis(10));
            let statistics = memory::statistics();
            (statistics.heap_used, statistics.free_frames, task::list().len())
        };
        let before = run(10);
        assert_eq!(run(1000), before);
    }
);

test!(
    fn tasks_keep_their_registers() {
        let tasks: Vec<_> = (0..4u64)
            .map(|number| {
                task::spawn("registers", move || {
                    for _ in 0..200_000 {
                        assert_eq!(crate::fixture::CHECK_REGISTERS.call(number), 0);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
    }
);

test!(
    fn backtraces_of_sleeping_tasks_lead_to_where_they_sleep() {
        use core::fmt::Write;
        static STOP: AtomicBool = AtomicBool::new(false);
        let sleeper = task::spawn("sleeper", || {
            while !STOP.load(Relaxed) {
                task::sleep(Duration::from_millis(5));
            }
        });
        task::sleep(Duration::from_millis(1));
        let trace = runtime::backtrace::of_task(sleeper.id()).expect("the task exists and is not running");
        let mut text = alloc::string::String::new();
        write!(text, "{trace}").unwrap();
        assert!(text.contains("sleep"), "{text}");
        STOP.store(true, Relaxed);
        sleeper.join();
    }
);
