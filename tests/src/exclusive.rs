//! A lock that is taken by a load-exclusive and a store-exclusive, with probes on everything around the two: tasks that
//! contend for it go on, and nothing is lost.

use alloc::vec::Vec;
use core::cell::UnsafeCell;

use aarch64_kprobes::insn::Reason;
use aarch64_kprobes::{Hit, Kprobe, ProbeError};
use runtime::task;

use crate::fixture::range_of;
use crate::test;

core::arch::global_asm!(include_str!("exclusive.S"));

unsafe extern "C" {
    fn exclusive_add_locked(lock: *mut u32, sum: *mut u64);
}

/// A sum, and the lock around it.
struct Locked {
    lock: UnsafeCell<u32>,
    sum: UnsafeCell<u64>,
}

// SAFETY: `exclusive_add_locked` takes the lock, and the sum is not read while it is in use.
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
                        // SAFETY: both are good, and this function alone uses them.
                        unsafe { exclusive_add_locked(LOCKED.lock.get(), LOCKED.sum.get()) };
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
        // SAFETY: the tasks have ended.
        assert_eq!(unsafe { *LOCKED.sum.get() }, TASKS * ADDITIONS);
        let hits: Vec<u64> = probes.iter().map(|probe| probe.hits()).collect();
        let [first, stored, once @ .., waited, again] = &hits[..] else { panic!("{hits:?}") };
        // `cbnz` behind the store: an interrupt may have made the store fail.
        assert!((*first, waited) == (TASKS * ADDITIONS, again) && stored >= first, "{hits:?}");
        assert!(once.iter().all(|hits| hits == first), "{hits:?}");
        assert!(*waited > 0, "no task has waited for another");
        assert!(probes.iter().all(|probe| probe.missed() == 0));
    }
);
