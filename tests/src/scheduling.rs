//! Tasks on several CPUs: none is overlooked, lost, run twice at a time or left behind, however the tasks move.
//!
//! Most of the tests also make sense on one CPU. Some defects show as a hang, which the host ends by a timeout.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::array;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use core::time::Duration;

use aarch64_kprobes::{Call, Hit, Kprobe, Kretprobe};
use kprobes_random::Random;
use runtime::sync::{IrqLock, IrqMask, PreemptLock, PreemptMask, WaitQueue};
use runtime::{memory, smp, task};

use crate::fixture;
use crate::test;

core::arch::global_asm!(
    // In: x0 = a number, x1 = a function. Sets each of x19 to x28 to x0 plus the register's number, and calls the
    // function. Out: x0 = 0 if the registers are unchanged.
    ".text",
    ".balign 16",
    ".global fixture_keep_registers",
    ".type fixture_keep_registers, %function",
    "fixture_keep_registers:",
    "    stp x29, x30, [sp, #-112]!",
    "    mov x29, sp",
    "    str x0, [sp, #96]",
    "    .irp number, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28",
    "    str x\\number, [sp, #(\\number - 19) * 8 + 16]",
    "    add x\\number, x0, #\\number",
    "    .endr",
    "    blr x1",
    "    ldr x1, [sp, #96]",
    "    mov x0, #0",
    "    .irp number, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28",
    "    add x2, x1, #\\number",
    "    eor x2, x2, x\\number",
    "    orr x0, x0, x2",
    "    ldr x\\number, [sp, #(\\number - 19) * 8 + 16]",
    "    .endr",
    "    ldp x29, x30, [sp], #112",
    "    ret",
    ".size fixture_keep_registers, . - fixture_keep_registers",
);

unsafe extern "C" {
    safe fn fixture_keep_registers(number: u64, function: extern "C" fn()) -> u64;
}

extern "C" fn yield_now() {
    task::yield_now();
}

/// Returns the number of running CPUs.
fn cpus() -> usize {
    smp::running().count()
}

/// Returns the CPU with the dense number `number` modulo the number of CPUs.
fn cpu(number: usize) -> usize {
    number % cpus()
}

/// Tasks that pass tokens to each other.
struct Ring<const TASKS: usize> {
    /// The tokens that each task has received: the number of times that each is still to be passed on.
    tokens: [IrqLock<VecDeque<u64>>; TASKS],
    waiting: [WaitQueue; TASKS],
    received: [AtomicU64; TASKS],
    /// The number of tokens on their way.
    live: AtomicU64,
    /// The number of times that a task found itself on another CPU than before.
    moves: AtomicU64,
}

impl<const TASKS: usize> Ring<TASKS> {
    fn new(tokens: u64, hops: u64) -> Arc<Self> {
        let ring = Self {
            tokens: array::from_fn(|_| IrqLock::new(VecDeque::with_capacity(tokens as usize))),
            waiting: [const { WaitQueue::new() }; TASKS],
            received: [const { AtomicU64::new(0) }; TASKS],
            live: AtomicU64::new(tokens),
            moves: AtomicU64::new(0),
        };
        (0..tokens).for_each(|token| ring.tokens[token as usize % TASKS].lock().push_back(hops));
        Arc::new(ring)
    }

    /// Waits for a token for `task`. Returns `None` if there will be no more.
    fn receive(&self, task: usize) -> Option<u64> {
        self.waiting[task].wait_until(|| {
            let token = self.tokens[task].lock().pop_front();
            token.map(Some).or_else(|| (self.live.load(SeqCst) == 0).then_some(None))
        })
    }

    fn hand_to(&self, task: usize, hops: u64) {
        self.tokens[task].lock().push_back(hops);
        self.waiting[task].wake_one();
    }

    /// Runs the task `task`: between two tokens it computes, sleeps, starts a child, or does nothing.
    fn take_part(&self, task: usize) {
        let mut random = Random::new(task as u64);
        let mut place = task::current_cpu();
        while let Some(hops) = self.receive(task) {
            let received = self.received[task].fetch_add(1, Relaxed);
            match received % 512 {
                1 => task::sleep(Duration::from_micros(random.below(50))),
                2 => task::spawn("child", task::yield_now).join(),
                number if number % 64 == 3 => assert_eq!(fixture_keep_registers(random.below(1000), yield_now), 0),
                number if number % 32 == 5 => assert_eq!(fixture::CHECK_REGISTERS.call(random.below(1000)), 0),
                _ => {}
            }
            let now = task::current_cpu();
            self.moves.fetch_add(u64::from(now != place), Relaxed);
            place = now;
            if hops > 1 {
                self.hand_to(random.below(TASKS as u64) as usize, hops - 1);
            } else if self.live.fetch_sub(1, SeqCst) == 1 {
                self.waiting.iter().for_each(|waiting| waiting.wake_all());
            }
        }
    }
}

/// Delays now and then. Called by handlers.
fn dawdle() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    if CALLS.fetch_add(1, Relaxed).is_multiple_of(3) {
        (0..3000).for_each(|_| core::hint::spin_loop());
    }
}

/// Lets eight tasks pass on five tokens, `hops` times each. Returns how often a task found itself on another CPU.
fn storm(hops: u64) -> u64 {
    const TASKS: usize = 8;
    const TOKENS: u64 = 5;
    let ring = Ring::<TASKS>::new(TOKENS, hops);
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| {
            let ring = ring.clone();
            task::spawn("storm", move || ring.take_part(number))
        })
        .collect();
    tasks.into_iter().for_each(task::JoinHandle::join);
    assert_eq!(ring.received.iter().map(|count| count.load(Relaxed)).sum::<u64>(), TOKENS * hops);
    assert!(ring.tokens.iter().all(|tokens| tokens.lock().is_empty()));
    ring.moves.load(Relaxed)
}

test!(
    depends(cpus, interrupts),
    fn tasks_that_wake_each_other_across_cpus_lose_nothing() {
        storm(100);
        let before = (memory::usage(), task::list().unwrap().len());
        let moves = storm(10_000);
        assert_eq!((memory::usage(), task::list().unwrap().len()), before);
        assert_eq!(cpus() > 1, moves > 0, "{moves} moves");
    }
);

test!(
    depends(cpus),
    fn a_switch_that_takes_long_is_not_overtaken() {
        // The windows in which another CPU must not take the task are a few instructions long. Two probes extend them:
        // one before the registers are saved, and one before the lock is taken that protects the saving.
        extern "C" fn dawdle_before(_: &mut Hit<'_>) {
            dawdle();
        }
        let probes = ["context_switch", "runtime::task::scheduler::reschedule"]
            .map(|name| Kprobe::at(fixture::address_of(name)).pre(dawdle_before).register().expect("it can be probed"));
        storm(1000);
        assert!(probes.iter().all(|probe| probe.hits() > 1000));
    }
);

test!(
    depends(cpus),
    fn a_task_that_is_woken_on_its_way_to_sleep_is_neither_lost_nor_run_twice() {
        static QUEUE: WaitQueue = WaitQueue::new();
        /// The round in which the waiting task waits: it has checked the condition, and is about to leave its CPU.
        static ABOUT: AtomicU64 = AtomicU64::new(0);
        static GO: AtomicU64 = AtomicU64::new(0);
        const ROUNDS: u64 = 20_000;
        // The task is not pinned: an idle CPU takes it as soon as possible.
        let waiting = task::spawn("waiting", || {
            for round in 1..=ROUNDS {
                QUEUE.wait_until(|| {
                    ABOUT.store(round, SeqCst);
                    (GO.load(SeqCst) >= round).then_some(())
                });
            }
        });
        for round in 1..=ROUNDS {
            while ABOUT.load(SeqCst) < round {
                if cpus() == 1 {
                    task::yield_now();
                }
                core::hint::spin_loop();
            }
            GO.store(round, SeqCst);
            QUEUE.wake_one();
        }
        waiting.join();
    }
);

test!(
    depends(cpus),
    fn an_idle_cpu_overlooks_no_task() {
        // As many tasks as CPUs meet repeatedly without leaving their CPUs. Each CPU must have got one of them,
        // including a CPU that was just becoming idle.
        const ROUNDS: u64 = 200;
        static START: WaitQueue = WaitQueue::new();
        static STARTED: AtomicU64 = AtomicU64::new(0);
        static READY: AtomicUsize = AtomicUsize::new(0);
        static MET: [AtomicUsize; ROUNDS as usize] = [const { AtomicUsize::new(0) }; ROUNDS as usize];
        let count = cpus();
        let meet = move || {
            for round in 0..ROUNDS {
                if READY.fetch_add(1, SeqCst) + 1 == count {
                    READY.store(0, SeqCst);
                    STARTED.store(round + 1, SeqCst);
                    START.wake_all();
                } else {
                    START.wait_until(|| (STARTED.load(SeqCst) > round).then_some(()));
                }
                let _mask = PreemptMask::new();
                let met = &MET[round as usize];
                let place = 1 << task::current_cpu();
                assert_eq!(met.fetch_or(place, SeqCst) & place, 0, "two tasks keep the same CPU");
                while met.load(SeqCst).count_ones() < count as u32 {
                    core::hint::spin_loop();
                }
                assert_eq!(1 << task::current_cpu(), place);
            }
        };
        let tasks: Vec<_> = (0..count).map(|_| task::spawn("meeting", meet)).collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
    }
);

test!(
    depends(cpus, interrupts),
    needs SECOND_CPU,
    fn an_idle_cpu_finds_what_becomes_ready_elsewhere_as_it_becomes_idle() {
        const ROUNDS: u64 = 300;
        /// The round in which CPU 1 may become idle, the round in which the moving task should run, and the round in
        /// which it has run.
        static IDLE: AtomicU64 = AtomicU64::new(0);
        static WANTED: AtomicU64 = AtomicU64::new(0);
        static RUN: AtomicU64 = AtomicU64::new(0);
        static OVER: AtomicBool = AtomicBool::new(false);
        static OCCUPIED: AtomicUsize = AtomicUsize::new(0);
        static FIRST: WaitQueue = WaitQueue::new();
        static SECOND: WaitQueue = WaitQueue::new();
        static MOVES: WaitQueue = WaitQueue::new();
        /// Keeps the CPU busy until `is_over` is true.
        fn keep_until(mut is_over: impl FnMut() -> bool) {
            let _mask = PreemptMask::new();
            OCCUPIED.fetch_add(1, SeqCst);
            while !is_over() {
                core::hint::spin_loop();
            }
            OCCUPIED.fetch_sub(1, SeqCst);
        }
        extern "C" fn dawdle_after(_: &mut Call<'_>) {
            dawdle();
        }
        // The probe delays an idle CPU between its check for waiting tasks and what it does as a result.
        let look = fixture::address_of("runtime::task::scheduler::another_cpu_has_ready");
        let probe = Kretprobe::at(look).handler(dawdle_after).register().expect("it can be probed");
        let occupying = (2..cpus()).map(|cpu| task::spawn_on(cpu, "occupying", || keep_until(|| OVER.load(SeqCst))));
        let occupying: Vec<_> = occupying.collect();
        let moving = task::spawn("moving", || {
            for round in 1..=2 * ROUNDS {
                MOVES.wait_until(|| (WANTED.load(SeqCst) >= round).then_some(()));
                RUN.store(round, SeqCst);
                FIRST.wake_all();
            }
        });
        let second = task::spawn_on(1, "second", || {
            for round in 1..=ROUNDS {
                keep_until(|| IDLE.load(SeqCst) >= round);
                SECOND.wait_until(|| (RUN.load(SeqCst) >= 2 * round).then_some(()));
            }
        });
        let first = task::spawn_on(0, "first", || {
            let mut random = Random::new(0);
            for round in 1..=ROUNDS {
                while OCCUPIED.load(SeqCst) < cpus() - 1 {
                    task::yield_now();
                }
                // No other CPU is free, so the task runs here, and waits here again before this task continues.
                WANTED.store(2 * round - 1, SeqCst);
                MOVES.wake_all();
                FIRST.wait_until(|| (RUN.load(SeqCst) >= 2 * round - 1).then_some(()));
                let mask = PreemptMask::new();
                IDLE.store(round, SeqCst);
                (0..random.below(2000)).for_each(|_| core::hint::spin_loop());
                WANTED.store(2 * round, SeqCst);
                MOVES.wake_all();
                // Only CPU 1 can run the task.
                while RUN.load(SeqCst) < 2 * round {
                    core::hint::spin_loop();
                }
                drop(mask);
                SECOND.wake_all();
            }
        });
        [first, second, moving].into_iter().for_each(task::JoinHandle::join);
        OVER.store(true, SeqCst);
        occupying.into_iter().for_each(task::JoinHandle::join);
        // In some rounds the second task need not wait, and CPU 1 does not become idle.
        assert!(probe.hits() >= ROUNDS / 2, "{} hits in {ROUNDS} rounds", probe.hits());
    }
);

/// Computes without a call until told to stop.
#[inline(never)]
fn compute(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        core::hint::spin_loop();
    }
}

/// Returns the number of turns of each task named `name`.
fn turns(name: &str) -> Vec<u64> {
    task::list().unwrap().iter().filter(|task| task.name == name).map(|task| task.turns).collect()
}

test!(
    depends(cpus, interrupts, board),
    fn tasks_that_compute_take_turns_on_all_cpus() {
        // There is one task more than there are CPUs. If tasks were not moved, all CPUs but one would keep their task
        // forever.
        static STOP: AtomicBool = AtomicBool::new(false);
        let count = cpus() + 1;
        let tasks: Vec<_> = (0..count).map(|_| task::spawn("computing", || compute(&STOP))).collect();
        while turns("computing").iter().any(|turns| *turns < 20) {
            task::sleep(Duration::from_millis(10));
        }
        STOP.store(true, Relaxed);
        tasks.into_iter().for_each(task::JoinHandle::join);
    }
);

test!(
    depends(cpus),
    fn a_task_that_is_pinned_stays_and_others_do_not_wait_for_it() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let pinned: Vec<_> = (0..2 * cpus())
            .map(|number| {
                task::spawn_on(cpu(number), "pinned", move || {
                    for round in 0..300 {
                        assert_eq!(task::current_cpu(), cpu(number));
                        if round % 100 == 0 {
                            task::sleep(Duration::from_micros(10));
                        } else {
                            task::yield_now();
                        }
                    }
                })
            })
            .collect();
        let computing = task::spawn("computing", || compute(&STOP));
        pinned.into_iter().for_each(task::JoinHandle::join);
        STOP.store(true, Relaxed);
        computing.join();
    }
);

test!(
    depends(cpus),
    stops "there is no CPU 32 for a new task \"nowhere\"",
    fn a_task_cannot_be_pinned_to_a_cpu_that_does_not_run() {
        // No configuration has more than 32 CPUs.
        let _ = task::spawn_on(32, "nowhere", || {});
    }
);

test!(
    depends(cpus),
    fn masked_preemption_is_made_up_for() {
        static RAN: AtomicBool = AtomicBool::new(false);
        static TICKS: AtomicU64 = AtomicU64::new(0);
        extern "C" fn count(_: &mut Hit<'_>) {
            TICKS.fetch_add(u64::from(task::current_cpu() == 0), SeqCst);
        }
        let probe = Kprobe::at(task::timer_interrupt as *const () as usize).pre(count).register().unwrap();
        let test = task::spawn_on(0, "masking", || {
            let mask = PreemptMask::new();
            let other = task::spawn_on(0, "waiting", || RAN.store(true, SeqCst));
            // The mask is nested, and so has no effect of its own.
            drop(PreemptMask::new());
            // Interrupts are taken, including the one at the end of a quantum.
            let since = TICKS.load(SeqCst);
            while TICKS.load(SeqCst) < since + 4 {
                assert!(!RAN.load(SeqCst));
            }
            drop(mask);
            // The task may have ended, or may have been preempted before it stored anything.
            assert!(turns("waiting").iter().all(|turns| *turns > 0), "the next in line has had no turn");
            other.join();
            assert!(RAN.load(SeqCst));
        });
        test.join();
        drop(probe);
    }
);

test!(
    depends(cpus),
    fn locks_that_mask_preemption_exclude_tasks_of_all_cpus() {
        static SUM: PreemptLock<[u64; 2]> = PreemptLock::new([0; 2]);
        const EACH: u64 = 20_000;
        let add = || {
            for _ in 0..EACH {
                let mut sum = SUM.lock();
                assert_eq!(sum[0], sum[1]);
                sum[0] += 1;
                core::hint::spin_loop();
                sum[1] += 1;
            }
        };
        let tasks: Vec<_> = (0..2 * cpus()).map(|_| task::spawn("adding", add)).collect();
        let count = tasks.len() as u64;
        tasks.into_iter().for_each(task::JoinHandle::join);
        assert_eq!(*SUM.lock(), [count * EACH; 2]);
    }
);

test!(
    depends(cpus),
    stops "a lock that masks preemption was taken with interrupts masked",
    fn locks_are_taken_in_the_order_of_what_they_mask() {
        static LOCK: PreemptLock<()> = PreemptLock::new(());
        let _mask = IrqMask::new();
        drop(LOCK.lock());
    }
);

test!(
    depends(cpus),
    stops "a task that held a lock gave up its CPU",
    fn a_task_cannot_wait_with_a_lock_that_masks_preemption() {
        static LOCK: PreemptLock<()> = PreemptLock::new(());
        let _lock = LOCK.lock();
        task::yield_now();
    }
);

test!(
    depends(cpus, interrupts),
    fn held_cpus_show_where_tasks_were_interrupted_and_not_where_they_wait() {
        static STOP: AtomicBool = AtomicBool::new(false);
        // Of two tasks that compute on one CPU, one is preempted. On the CPU of this task, both are.
        let computing = [(); 2].map(|()| task::spawn_on(cpu(1), "interrupted", || compute(&STOP)));
        let yielding = task::spawn_on(cpu(1), "yielding", || {
            while !STOP.load(Relaxed) {
                task::yield_now();
            }
        });
        while turns("interrupted").iter().any(|turns| *turns < 3) {
            task::sleep(Duration::from_millis(1));
        }
        let function = fixture::range_of(compute as *const () as usize);
        let gives_up = fixture::range_of(fixture::address_of("runtime::task::scheduler::reschedule"));
        for _ in 0..100 {
            let (mut inside, mut switching) = (0, 0);
            smp::hold_cpus(&mut || {
                (inside, switching) = (0, 0);
                smp::interrupted(&mut |pc| {
                    inside += u32::from(function.contains(&pc));
                    switching += u32::from(gives_up.contains(&pc));
                });
            });
            assert_eq!((inside, switching), (2, 0));
            task::yield_now();
        }
        STOP.store(true, Relaxed);
        computing.into_iter().chain([yielding]).for_each(task::JoinHandle::join);
    }
);
