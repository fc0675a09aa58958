//! Signals: a task that waits for a signal with a deadline is woken by whichever comes first. A lost signal would hang
//! the test, because the deadlines are years away.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use core::time::Duration;

use runtime::sync::Signal;
use runtime::{task, time};

use crate::test;

/// A counter value that is never reached.
const NEVER: u64 = u64::MAX;

test!(
    fn a_signal_that_is_set_is_seen_once() {
        let signal = Signal::new();
        signal.set();
        signal.set();
        signal.wait_until(NEVER);
        let deadline = time::counter() + time::ticks(Duration::from_millis(5));
        signal.wait_until(deadline);
        assert!(time::counter() >= deadline, "it was seen again");
        signal.wait_until(0);
    }
);

test!(
    depends(cpus),
    fn tasks_that_signal_each_other_lose_nothing() {
        const ROUNDS: u64 = 3000;
        const TASKS: usize = 5;
        let ring: Arc<Vec<(Signal, AtomicU64)>> =
            Arc::new((0..TASKS).map(|_| (Signal::new(), AtomicU64::new(0))).collect());
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let ring = ring.clone();
                task::spawn("signalled", move || {
                    let (mine, tokens) = &ring[number];
                    for round in 1..=ROUNDS {
                        while tokens.load(SeqCst) < round {
                            mine.wait_until(NEVER - number as u64);
                        }
                        let (next, its) = &ring[(number + 1) % TASKS];
                        its.fetch_add(1, SeqCst);
                        next.set();
                    }
                })
            })
            .collect();
        // Several tokens are on their way at a time, so that signals reach tasks on their way to sleep.
        for (signal, tokens) in ring.iter().step_by(2) {
            tokens.fetch_add(1, SeqCst);
            signal.set();
        }
        tasks.into_iter().for_each(task::JoinHandle::join);
    }
);

test!(
    fn sleepers_beside_one_that_is_woken_early_sleep_on() {
        let signal = Arc::new(Signal::new());
        let start = time::counter();
        let wake_at = move |milliseconds| start + time::ticks(Duration::from_millis(milliseconds));
        let sleepers: Vec<_> = [40, 20, 60]
            .into_iter()
            .map(|milliseconds| {
                task::spawn("sleeper", move || {
                    let deadline = wake_at(milliseconds);
                    let rest = time::duration(deadline.saturating_sub(time::counter()));
                    task::sleep(rest);
                    assert!(time::counter() >= deadline);
                })
            })
            .collect();
        let woken = {
            let signal = signal.clone();
            task::spawn("woken", move || (0..50).for_each(|_| signal.wait_until(NEVER)))
        };
        let mut is_over = false;
        while !is_over {
            signal.set();
            task::yield_now();
            is_over = task::list().unwrap().iter().all(|task| task.name != "woken");
        }
        woken.join();
        sleepers.into_iter().for_each(task::JoinHandle::join);
    }
);
