//! The instances of a return probe: one for each call that is in progress, from a list of free ones that is
//! filled when the probe is registered.
//!
//! Every CPU has a list of its own, and takes from another's only where that is empty: calls on several CPUs find their
//! instances without taking cache lines from each other. A list is a stack of indices with a tag, changed by
//! compare-and-swap. The tag changes with every operation, since an index alone could be taken, given back and be on top
//! again between the load and the swap of another CPU, with another successor.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::cpu::Cpu;
use super::point::Probe;
use crate::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use crate::platform::MAX_CPUS;

/// A call in progress of a return-probed function.
///
/// Between [`Pool::take`] and [`Pool::give_back`] it belongs to the hit path of the task that made the call,
/// and the fields are written only before it is linked into the task's list; they are atomic, with relaxed
/// accesses, because they live in memory that is shared. The lock of the list orders them.
#[derive(Debug)]
pub(crate) struct Instance {
    /// The instance of an older call in the same list.
    pub(super) next: AtomicPtr<Instance>,
    /// The task that made the call.
    pub(super) task: AtomicU64,
    /// The stack pointer at the entry of the function, and so at its return.
    pub(super) stack_pointer: AtomicU64,
    /// What was in x30: the true return address, or `kretprobe_trampoline` where another instance, older and
    /// with the same stack pointer, holds it.
    pub(super) return_address: AtomicU64,
    /// The probe that it is an instance of. Good until the instance is given back.
    pub(super) probe: AtomicPtr<Probe>,
    index: u32,
    next_free: AtomicU32,
}

impl Instance {
    #[inline]
    pub(super) fn belongs_to(&self, task: u64) -> bool {
        self.task.load(Relaxed) == task
    }
}

/// The index that ends the free list.
const NONE: u32 = u32::MAX;

/// The instances of one return probe, and the words of private data that each has.
#[derive(Debug)]
pub(crate) struct Pool {
    instances: Box<[Instance]>,
    data: Box<[UnsafeCell<u64>]>,
    data_words: usize,
    shares: [Share; MAX_CPUS],
}

/// What a CPU has of a pool; a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Share {
    /// The index of the first free instance in the low half, the tag in the high one.
    free: AtomicU64,
    /// How many instances this CPU has taken, from whatever share. Changed by this CPU alone, with interrupts masked.
    taken: AtomicU64,
    /// How many it has given back. Likewise.
    given_back: AtomicU64,
}

// SAFETY: the data words of an instance are reached only through `Pool::data`, the contract of which gives them
// to whoever holds the instance; everything else is atomic or never changes.
unsafe impl Sync for Pool {}

impl Instance {
    /// The instance with the number `index` among `count` that are all free, in the order of their numbers.
    pub(crate) fn free(index: u32, count: u32) -> Self {
        Self {
            next: AtomicPtr::default(),
            task: AtomicU64::new(0),
            stack_pointer: AtomicU64::new(0),
            return_address: AtomicU64::new(0),
            probe: AtomicPtr::default(),
            index,
            next_free: AtomicU32::new(if index + 1 == count { NONE } else { index + 1 }),
        }
    }
}

impl Share {
    fn new(first: u32) -> Self {
        Self { free: AtomicU64::new(u64::from(first)), taken: AtomicU64::new(0), given_back: AtomicU64::new(0) }
    }

    /// Takes the first free instance.
    #[inline]
    fn pop<'a>(&self, instances: &'a [Instance]) -> Option<&'a Instance> {
        let mut free = self.free.load(Acquire);
        loop {
            let instance = instances.get(free as u32 as usize)?;
            // Another CPU may take the instance at this moment and change the field; the swap then fails.
            let next = successor(free, instance.next_free.load(Relaxed));
            match self.free.compare_exchange_weak(free, next, Acquire, Acquire) {
                Ok(_) => return Some(instance),
                Err(current) => free = current,
            }
        }
    }

    #[inline]
    fn push(&self, instance: &Instance) {
        let mut free = self.free.load(Relaxed);
        loop {
            instance.next_free.store(free as u32, Relaxed);
            match self.free.compare_exchange_weak(free, successor(free, instance.index), Release, Relaxed) {
                Ok(_) => return,
                Err(current) => free = current,
            }
        }
    }
}

impl Pool {
    /// The pool of `instances`, made by [`Instance::free`], with `data_words` words of `data` each. All are in the share
    /// of CPU 0 at first, and come to others as they are used there.
    pub(crate) fn new(instances: Box<[Instance]>, data: Box<[UnsafeCell<u64>]>, data_words: usize) -> Self {
        let mut first = if instances.is_empty() { NONE } else { 0 };
        let shares = [(); MAX_CPUS].map(|()| Share::new(core::mem::replace(&mut first, NONE)));
        Self { instances, data, data_words, shares }
    }

    #[inline]
    fn share(&self, cpu: &Cpu) -> &Share {
        &self.shares[cpu.number() & (MAX_CPUS - 1)]
    }

    /// Takes a free instance, with its data zeroed. `cpu` is this CPU.
    #[inline]
    pub(super) fn take(&self, cpu: &Cpu) -> Option<&Instance> {
        let share = self.share(cpu);
        let instance = match share.pop(&self.instances) {
            Some(instance) => instance,
            None => self.shares.iter().find_map(|share| share.pop(&self.instances))?,
        };
        share.taken.store(share.taken.load(Relaxed).wrapping_add(1), Relaxed);
        // SAFETY: the instance has just been taken, so nobody else holds it.
        for word in unsafe { self.data(instance) } {
            // SAFETY: a reference is valid. The store is volatile lest the loop become a call of memset, which
            // can be probed.
            unsafe { ptr::from_mut(word).write_volatile(0) };
        }
        Some(instance)
    }

    /// Gives back an instance that [`take`](Self::take) has returned, and that is in no list any more. `cpu` is this CPU.
    #[inline]
    pub(super) fn give_back(&self, cpu: &Cpu, instance: &Instance) {
        let share = self.share(cpu);
        share.push(instance);
        // The last access to the pool: whoever sees that none is taken, and lets nobody take, may free it.
        share.given_back.store(share.given_back.load(Relaxed).wrapping_add(1), Release);
    }

    /// The private data of `instance`.
    ///
    /// # Safety
    ///
    /// The caller holds the instance, and keeps no other reference to its data.
    #[expect(clippy::mut_from_ref, reason = "the words are in cells, and belong to whoever holds the instance")]
    pub(super) unsafe fn data(&self, instance: &Instance) -> &mut [u64] {
        if self.data_words == 0 {
            return &mut [];
        }
        let start = instance.index as usize * self.data_words;
        match self.data.get(start..start + self.data_words) {
            // SAFETY: `UnsafeCell<u64>` has the layout of `u64`, and the caller has these words to itself.
            Some(words) => unsafe { core::slice::from_raw_parts_mut(UnsafeCell::raw_get(words.as_ptr()), words.len()) },
            None => &mut [],
        }
    }

    /// How many calls are in progress.
    pub(crate) fn taken(&self) -> u32 {
        // In this order: an instance that is taken and given back in between counts as taken, not as a debt.
        let sum = |count: fn(&Share) -> &AtomicU64| {
            self.shares.iter().map(|share| count(share).load(Acquire)).fold(0, u64::wrapping_add)
        };
        let given_back = sum(|share| &share.given_back);
        sum(|share| &share.taken).wrapping_sub(given_back) as u32
    }
}

/// The value of the free list after `free`, with `index` on top.
fn successor(free: u64, index: u32) -> u64 {
    ((free >> 32).wrapping_add(1) << 32) | u64::from(index)
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::kretprobe::make_pool;
    use std::collections::HashSet;
    use std::sync::Barrier;

    fn pool(count: u32, data_words: usize) -> Pool {
        make_pool(count, data_words).unwrap()
    }

    fn cpu(number: usize) -> &'static Cpu {
        Cpu::of(number)
    }

    #[test]
    fn instances_come_to_the_cpu_that_uses_them_and_none_is_out_of_reach() {
        let pool = pool(3, 0);
        let instance = pool.take(cpu(2)).unwrap();
        pool.give_back(cpu(2), instance);
        assert_eq!(pool.shares[2].free.load(Relaxed) as u32, instance.index);
        let again = [1, 2, 3].map(|number| pool.take(cpu(number)).unwrap().index);
        assert_eq!(HashSet::from(again), HashSet::from([0, 1, 2]));
        assert_eq!((pool.taken(), pool.take(cpu(2)).is_none()), (3, true));
        // Given back elsewhere than it was taken, as by a task that has moved.
        pool.give_back(cpu(5), &pool.instances[0]);
        assert_eq!((pool.taken(), pool.take(cpu(0)).unwrap().index), (2, 0));
    }

    #[test]
    fn every_instance_is_taken_once_and_then_there_are_none() {
        let pool = pool(3, 0);
        let taken: HashSet<u32> = (0..3).map(|_| pool.take(cpu(0)).unwrap().index).collect();
        assert_eq!(taken, HashSet::from([0, 1, 2]));
        assert!(pool.take(cpu(0)).is_none());
        assert_eq!(pool.taken(), 3);
    }

    #[test]
    fn an_instance_given_back_is_taken_again() {
        let pool = pool(2, 0);
        let first = pool.take(cpu(0)).unwrap();
        pool.take(cpu(0)).unwrap();
        pool.give_back(cpu(0), first);
        assert_eq!(pool.taken(), 1);
        assert_eq!(pool.take(cpu(0)).unwrap().index, first.index);
        assert!(pool.take(cpu(0)).is_none());
    }

    #[test]
    fn the_free_list_never_looks_the_same_twice() {
        let pool = pool(2, 0);
        let before = pool.shares[0].free.load(Relaxed);
        pool.give_back(cpu(0), pool.take(cpu(0)).unwrap());
        let after = pool.shares[0].free.load(Relaxed);
        assert_eq!(after as u32, before as u32, "the same instance is on top");
        assert_ne!(after, before, "a swap that expects what was before must fail");
    }

    #[test]
    fn an_empty_pool_gives_nothing() {
        assert!(pool(0, 4).take(cpu(0)).is_none());
    }

    #[test]
    fn data_is_private_and_zeroed() {
        let pool = pool(2, 3);
        let (first, second) = (pool.take(cpu(0)).unwrap(), pool.take(cpu(0)).unwrap());
        // SAFETY: both instances are held by this test, and each reference is dropped at once.
        unsafe {
            pool.data(first).fill(1);
            pool.data(second).fill(2);
            assert_eq!(*pool.data(first), [1, 1, 1]);
            assert_eq!(*pool.data(second), [2, 2, 2]);
        }
        pool.give_back(cpu(0), first);
        let again = pool.take(cpu(0)).unwrap();
        // SAFETY: as above.
        assert_eq!(*unsafe { pool.data(again) }, [0, 0, 0]);
    }

    #[test]
    fn threads_never_hold_the_same_instance() {
        const THREADS: u64 = 4;
        let pool = pool(3, 1);
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let (pool, barrier) = (&pool, &barrier);
                let cpu = cpu(thread as usize);
                scope.spawn(move || {
                    barrier.wait();
                    for _ in 0..200_000 {
                        let Some(instance) = pool.take(cpu) else { continue };
                        assert_eq!(instance.task.swap(thread, Relaxed), 0, "held by two threads");
                        instance.task.store(0, Relaxed);
                        pool.give_back(cpu, instance);
                    }
                });
            }
        });
        assert_eq!(pool.taken(), 0);
        assert_eq!((0..4).filter(|_| pool.take(cpu(0)).is_some()).count(), 3);
    }
}
