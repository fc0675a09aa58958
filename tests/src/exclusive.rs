//! A lock that is taken by a load-exclusive and a store-exclusive, with probes on every instruction around the pair:
//! contending tasks make progress, and no update is lost. And a loop that waits for the event of a load-exclusive.

use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::Release};

use aarch64_kprobes::insn::{NotRelocatable, Reason};
use aarch64_kprobes::probe::{Fallback, Mode};
use aarch64_kprobes::{Hit, Kprobe, ProbeError};
use runtime::task;

use crate::entry::mode_at;
use crate::fixture::range_of;
use crate::test;

core::arch::global_asm!(include_str!("exclusive.S"));

unsafe extern "C" {
    fn exclusive_add_locked(lock: *mut u32, sum: *mut u64);
    safe fn exclusive_wait(word: &AtomicU32) -> u64;
}

/// A sum with its lock.
struct Locked {
    lock: UnsafeCell<u32>,
    sum: UnsafeCell<u64>,
}

// SAFETY: `exclusive_add_locked` takes the lock, and the sum is only read after all users have ended.
unsafe impl Sync for Locked {}

static LOCKED: Locked = Locked { lock: UnsafeCell::new(0), sum: UnsafeCell::new(0) };

const TASKS: u64 = 4;
const ADDITIONS: u64 = 5000;

test!(
    depends(cpus),
    fn a_contended_lock_makes_progress_under_probes() {
        extern "C" fn nothing(_: &mut Hit<'_>) {}
        let range = range_of(exclusive_add_locked as *const () as usize);
        let load = range.start + 4;
        let mut probes = Vec::new();
        for (index, address) in range.clone().step_by(4).enumerate() {
            let result = Kprobe::at(address).pre(nothing).post(nothing).register();
            match (index, result) {
                (1, Err(ProbeError::Instruction { reason: Reason::LoadExclusive, .. }))
                | (3, Err(ProbeError::Instruction { reason: Reason::StoreExclusive, .. })) => {}
                (2, Err(ProbeError::Exclusive { load: found, .. })) => assert_eq!(found, load),
                (0 | 4.., Ok(probe)) => probes.push(probe),
                (_, result) => panic!("instruction {index}: {result:?}"),
            }
        }
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                task::spawn("adder", || {
                    for _ in 0..ADDITIONS {
                        // SAFETY: both pointers are valid, and only this function uses the words.
                        unsafe { exclusive_add_locked(LOCKED.lock.get(), LOCKED.sum.get()) };
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
        // SAFETY: all tasks that use the sum have ended.
        assert_eq!(unsafe { *LOCKED.sum.get() }, TASKS * ADDITIONS);
        let hits: Vec<u64> = probes.iter().map(|probe| probe.hits()).collect();
        let [first, stored, once @ .., waited, again] = &hits[..] else { panic!("{hits:?}") };
        // The `cbnz` after the store may be hit more often, because an interrupt may have made the store fail.
        assert!((*first, waited) == (TASKS * ADDITIONS, again) && stored >= first, "{hits:?}");
        assert!(once.iter().all(|hits| hits == first), "{hits:?}");
        assert!(*waited > 0, "no task has waited for another");
        assert!(probes.iter().all(|probe| probe.missed() == 0));
    }
);

test!(
    depends(cpus, core),
    fn what_leads_to_a_wait_for_the_monitor_is_probed_by_breakpoints() {
        extern "C" fn nothing(_: &mut Hit<'_>) {}
        static WORD: AtomicU32 = AtomicU32::new(1);
        let (mut probes, mut by_breakpoint) = (Vec::new(), Vec::new());
        for (index, address) in range_of(exclusive_wait as *const () as usize).step_by(4).enumerate() {
            match Kprobe::at(address).pre(nothing).register() {
                Ok(probe) => probes.push(probe),
                Err(ProbeError::Instruction { reason: Reason::LoadExclusive, .. }) => continue,
                Err(error) => panic!("instruction {index}: {error}"),
            }
            match mode_at(address) {
                (Mode::Optimized, None) => {}
                (Mode::Boosted | Mode::Simulated, Some(Fallback::NoStub(NotRelocatable::BeforeWait))) => {
                    by_breakpoint.push(index);
                }
                other => panic!("instruction {index}: {other:?}"),
            }
        }
        assert_eq!(by_breakpoint, [1, 3, 4], "wfe, eor, cbnz");
        let waiter = task::spawn("waiter", || assert_eq!(exclusive_wait(&WORD), 0));
        while probes[2].hits() < 10 {
            task::yield_now();
        }
        WORD.store(0, Release);
        waiter.join();
        assert!(probes.iter().all(|probe| probe.missed() == 0));
    }
);
