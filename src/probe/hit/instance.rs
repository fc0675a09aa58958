//! The instances of a return probe: one for each call that is in progress, from a list of free ones that is
//! filled when the probe is registered.
//!
//! The free list is a stack of indices with a tag, changed by compare-and-swap: calls on several CPUs take and
//! give back instances without waiting for each other. The tag changes with every operation, since an index
//! alone could be taken, given back and be on top again between the load and the swap of another CPU, with
//! another successor.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use super::point::Probe;

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
    /// The index of the first free instance in the low half, the tag in the high one.
    free: AtomicU64,
    /// How many instances are taken.
    taken: AtomicU32,
}

// SAFETY: the data words of an instance are reached only through `Pool::data`, the contract of which gives them
// to whoever holds the instance; everything else is atomic or never changes.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool of `count` free instances with `data_words` words of data each, if there is memory for it.
    pub(crate) fn new(count: u32, data_words: usize) -> Option<Self> {
        let instances = (0..count).map(|index| Instance {
            next: AtomicPtr::default(),
            task: AtomicU64::new(0),
            stack_pointer: AtomicU64::new(0),
            return_address: AtomicU64::new(0),
            probe: AtomicPtr::default(),
            index,
            next_free: AtomicU32::new(if index + 1 == count { NONE } else { index + 1 }),
        });
        let words = (count as usize).checked_mul(data_words)?;
        Some(Self {
            instances: collect(instances)?,
            data: collect((0..words).map(|_| UnsafeCell::new(0)))?,
            data_words,
            free: AtomicU64::new(if count == 0 { u64::from(NONE) } else { 0 }),
            taken: AtomicU32::new(0),
        })
    }

    /// Takes a free instance, with its data zeroed.
    pub(super) fn take(&self) -> Option<&Instance> {
        let mut free = self.free.load(Acquire);
        let instance = loop {
            let instance = self.instances.get(free as u32 as usize)?;
            // Another CPU may take the instance at this moment and change the field; the swap then fails.
            let next = successor(free, instance.next_free.load(Relaxed));
            match self.free.compare_exchange_weak(free, next, AcqRel, Acquire) {
                Ok(_) => break instance,
                Err(current) => free = current,
            }
        };
        self.taken.fetch_add(1, Relaxed);
        // SAFETY: the instance has just been taken, so nobody else holds it.
        for word in unsafe { self.data(instance) } {
            // SAFETY: a reference is valid. The store is volatile lest the loop become a call of memset, which
            // can be probed.
            unsafe { ptr::from_mut(word).write_volatile(0) };
        }
        Some(instance)
    }

    /// Gives back an instance that [`take`](Self::take) has returned, and that is in no list any more.
    pub(super) fn give_back(&self, instance: &Instance) {
        let mut free = self.free.load(Relaxed);
        loop {
            instance.next_free.store(free as u32, Relaxed);
            match self.free.compare_exchange_weak(free, successor(free, instance.index), AcqRel, Relaxed) {
                Ok(_) => break,
                Err(current) => free = current,
            }
        }
        // The last access to the pool: whoever sees the count at zero, and lets nobody take, may free it.
        self.taken.fetch_sub(1, Release);
    }

    /// The private data of `instance`.
    ///
    /// # Safety
    ///
    /// The caller holds the instance, and keeps no other reference to its data.
    #[expect(clippy::mut_from_ref, reason = "the words are in cells, and belong to whoever holds the instance")]
    pub(super) unsafe fn data(&self, instance: &Instance) -> &mut [u64] {
        let start = instance.index as usize * self.data_words;
        match self.data.get(start..start + self.data_words) {
            // SAFETY: `UnsafeCell<u64>` has the layout of `u64`, and the caller has these words to itself.
            Some(words) => unsafe { core::slice::from_raw_parts_mut(UnsafeCell::raw_get(words.as_ptr()), words.len()) },
            None => &mut [],
        }
    }

    /// How many calls are in progress.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Acquire)
    }
}

/// All of `items`, if there is memory for them.
fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Option<Box<[T]>> {
    let mut collected = Vec::new();
    collected.try_reserve_exact(items.len()).ok()?;
    collected.extend(items);
    Some(collected.into_boxed_slice())
}

/// The value of the free list after `free`, with `index` on top.
fn successor(free: u64, index: u32) -> u64 {
    ((free >> 32).wrapping_add(1) << 32) | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;

    #[test]
    fn every_instance_is_taken_once_and_then_there_are_none() {
        let pool = Pool::new(3, 0).unwrap();
        let taken: HashSet<u32> = (0..3).map(|_| pool.take().unwrap().index).collect();
        assert_eq!(taken, HashSet::from([0, 1, 2]));
        assert!(pool.take().is_none());
        assert_eq!(pool.taken(), 3);
    }

    #[test]
    fn an_instance_given_back_is_taken_again() {
        let pool = Pool::new(2, 0).unwrap();
        let first = pool.take().unwrap();
        pool.take().unwrap();
        pool.give_back(first);
        assert_eq!(pool.taken(), 1);
        assert_eq!(pool.take().unwrap().index, first.index);
        assert!(pool.take().is_none());
    }

    #[test]
    fn the_free_list_never_looks_the_same_twice() {
        let pool = Pool::new(2, 0).unwrap();
        let before = pool.free.load(Relaxed);
        pool.give_back(pool.take().unwrap());
        let after = pool.free.load(Relaxed);
        assert_eq!(after as u32, before as u32, "the same instance is on top");
        assert_ne!(after, before, "a swap that expects what was before must fail");
    }

    #[test]
    fn an_empty_pool_gives_nothing() {
        assert!(Pool::new(0, 4).unwrap().take().is_none());
    }

    #[test]
    fn data_is_private_and_zeroed() {
        let pool = Pool::new(2, 3).unwrap();
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        // SAFETY: both instances are held by this test, and each reference is dropped at once.
        unsafe {
            pool.data(first).fill(1);
            pool.data(second).fill(2);
            assert_eq!(*pool.data(first), [1, 1, 1]);
            assert_eq!(*pool.data(second), [2, 2, 2]);
        }
        pool.give_back(first);
        let again = pool.take().unwrap();
        // SAFETY: as above.
        assert_eq!(*unsafe { pool.data(again) }, [0, 0, 0]);
    }

    #[test]
    fn threads_never_hold_the_same_instance() {
        const THREADS: u64 = 4;
        let pool = Pool::new(3, 1).unwrap();
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let (pool, barrier) = (&pool, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for _ in 0..200_000 {
                        let Some(instance) = pool.take() else { continue };
                        assert_eq!(instance.task.swap(thread, Relaxed), 0, "held by two threads");
                        instance.task.store(0, Relaxed);
                        pool.give_back(instance);
                    }
                });
            }
        });
        assert_eq!(pool.taken(), 0);
        assert_eq!((0..4).filter(|_| pool.take().is_some()).count(), 3);
    }
}
