//! The instances of a return probe: one for each call that is in progress, made when the probe is registered.
//!
//! A free instance is in one of two places. Every CPU has a slot for one, which it alone fills, with the instance of a
//! call that has returned there, and which is emptied by compare-and-swap: by that CPU when the next call begins, by another
//! where it finds no other instance. So calls that do not overlap take and give back one instance, in a few instructions, and no
//! cache line goes from CPU to CPU. What does not fit into the slots is in a list that all CPUs share.
//!
//! The list is a stack of indices with a tag, changed by compare-and-swap. The tag changes with every operation, since an
//! index alone could be taken, given back and be on top again between the load and the swap of another CPU, with another
//! successor. A slot needs no tag: the successor of the instance in it is not read.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::cpu::Cpu;
use super::returns::ReturnProbe;
use crate::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use crate::probe::aliasable::AliasableBox;

/// A call in progress of a return-probed function.
///
/// Between [`Pool::take`] and [`Pool::give_back`] it belongs to the hit path of the task that made the call. The fields are
/// atomic, with relaxed accesses but for one, because they live in memory that is shared. `trampoline/kretprobe.S` knows them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Instance {
    /// The stack pointer at the entry of the function, and so at its return; 0 while no call is followed with it, which
    /// is stored with release order, after all that the call has counted.
    pub(super) stack_pointer: AtomicU64,
    /// What was in x30: the true return address, or that of a trampoline where another instance, older and
    /// with the same stack pointer, holds it.
    pub(super) return_address: AtomicU64,
    /// The instance of the next older call in the same list.
    pub(super) next: AtomicPtr<Instance>,
    /// What is known of the hit that has put it into the list: one of the constants below.
    pub(super) hit: AtomicU64,
    /// The probe that it is an instance of.
    owner: AtomicPtr<ReturnProbe>,
    /// The slots of that.
    slots: AtomicPtr<Slot>,
    index: u32,
    next_free: AtomicU32,
}

// The assembly stores and loads the first two together, the next two, and those in the middle; it loads the two after those
// together.
const _: () = {
    // The atomics of a model are larger.
    let is_model = cfg!(all(test, loom));
    assert!(Instance::STACK_POINTER == 0);
    assert!(is_model || offset_of!(Instance, return_address) == Instance::STACK_POINTER + 8);
    assert!(is_model || Instance::NEXT == Instance::RETURN_ADDRESS + 8);
    assert!(is_model || offset_of!(Instance, hit) == Instance::NEXT + 8);
    assert!(is_model || offset_of!(Instance, slots) == Instance::OWNER + 8);
    assert!(is_model || size_of::<Slot>() == 1 << Pool::SLOT_SHIFT);
};

impl Instance {
    // For the assembly.
    pub(in crate::probe) const STACK_POINTER: usize = offset_of!(Self, stack_pointer);
    pub(in crate::probe) const RETURN_ADDRESS: usize = offset_of!(Self, return_address);
    pub(in crate::probe) const NEXT: usize = offset_of!(Self, next);
    pub(super) const OWNER: usize = offset_of!(Self, owner);

    /// [`hit`](Self::hit): the hit has put no other instance into the list. The assembly stores a zero.
    pub(super) const ALONE: u64 = 0;
    /// [`hit`](Self::hit): it may have put others there before.
    pub(super) const AMONG_OTHERS: u64 = 1;
    /// [`hit`](Self::hit): there was another hit since.
    pub(super) const OLDER: u64 = 2;

    /// The instance with the number `index` among `count` that are all free, in the order of their numbers.
    pub(crate) fn free(index: u32, count: u32) -> Self {
        Self {
            stack_pointer: AtomicU64::new(0),
            return_address: AtomicU64::new(0),
            next: AtomicPtr::default(),
            hit: AtomicU64::new(Self::ALONE),
            owner: AtomicPtr::default(),
            slots: AtomicPtr::default(),
            index,
            next_free: AtomicU32::new(if index + 1 == count { NONE } else { index + 1 }),
        }
    }

    /// The probe that it is an instance of.
    #[inline]
    pub(super) fn owner(&self) -> &ReturnProbe {
        // SAFETY: it was set before the probe was found by any hit, and a probe is freed with its instances.
        unsafe { &*self.owner.load(Relaxed) }
    }
}

/// The index that ends the free list.
const NONE: u32 = u32::MAX;

/// The instances of one return probe, and the words of private data that each has.
#[derive(Debug)]
pub(crate) struct Pool {
    /// One for each CPU, in the order of their numbers.
    slots: AliasableBox<[Slot]>,
    instances: AliasableBox<[Instance]>,
    data: Box<[UnsafeCell<u64>]>,
    data_words: usize,
    /// The index of the first instance of the shared list in the low half, the tag in the high one.
    free: AtomicU64,
}

/// A free instance that a CPU has given back, or none. A cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Slot(AtomicPtr<Instance>);

impl Slot {
    /// Takes the instance out, if there is one.
    #[inline]
    fn take<'a>(&self) -> Option<&'a Instance> {
        let mut found = self.0.load(Relaxed);
        while !found.is_null() {
            // It may have been taken and given back in between: it is the same, and free.
            match self.0.compare_exchange_weak(found, ptr::null_mut(), Acquire, Relaxed) {
                // SAFETY: the instances of a pool live as long as the pool, in which this is.
                Ok(_) => return unsafe { found.as_ref() },
                Err(current) => found = current,
            }
        }
        None
    }

    /// Puts a free instance in, if there is none. It is the slot of this CPU.
    #[inline]
    fn fill(&self, instance: &Instance) -> bool {
        // It stays empty meanwhile, as others do not fill it.
        let is_empty = self.0.load(Relaxed).is_null();
        if is_empty {
            self.0.store(ptr::from_ref(instance).cast_mut(), Release);
        }
        is_empty
    }
}

// SAFETY: only the holder of an instance uses its data words; all other fields are atomic or never change.
unsafe impl Sync for Pool {}

impl Pool {
    /// For the assembly: log2 of the size of a slot.
    pub(in crate::probe) const SLOT_SHIFT: usize = 6;

    /// The pool of `instances`, made by [`Instance::free`], with `data_words` words of `data` each. All are free:
    /// the first ones in the `slots`, one for each CPU, the others in the shared list.
    pub(crate) fn new(
        slots: Box<[Slot]>,
        instances: Box<[Instance]>,
        data: Box<[UnsafeCell<u64>]>,
        data_words: usize,
    ) -> Self {
        let (slots, instances) = (AliasableBox::new(slots), AliasableBox::new(instances));
        for (slot, instance) in slots.iter().zip(instances.iter()) {
            slot.0.store(ptr::from_ref(instance).cast_mut(), Relaxed);
        }
        let first = if instances.len() > slots.len() { slots.len() as u32 } else { NONE };
        Self { slots, instances, data, data_words, free: AtomicU64::new(u64::from(first)) }
    }

    /// Makes the instances those of `owner`, which this is the pool of, and which stays where it is.
    pub(super) fn adopt(&self, owner: NonNull<ReturnProbe>) {
        for instance in self.instances.iter() {
            instance.owner.store(owner.as_ptr(), Relaxed);
            instance.slots.store(self.slots().cast_mut(), Relaxed);
        }
    }

    /// The slots, the first of which is that of CPU 0.
    pub(crate) fn slots(&self) -> *const Slot {
        self.slots.place().as_ptr().cast_const().cast()
    }

    /// How many words of private data an instance has.
    pub(crate) fn data_words(&self) -> usize {
        self.data_words
    }

    #[inline]
    fn slot(&self, cpu: &Cpu) -> &Slot {
        // SAFETY: there is one for each CPU, by `make_pool`, and `cpu` is the state of one.
        unsafe { self.slots.get_unchecked(cpu.number()) }
    }

    /// Takes a free instance, with its data zeroed. `cpu` is this CPU.
    #[inline]
    pub(super) fn take(&self, cpu: &Cpu) -> Option<&Instance> {
        let instance =
            self.slot(cpu).take().or_else(|| self.pop()).or_else(|| self.slots.iter().find_map(Slot::take))?;
        // SAFETY: the instance has just been taken, so this is its only holder.
        for word in unsafe { &mut *self.data(instance) } {
            // SAFETY: a reference is valid. The store is volatile so that the loop does not become a call of
            // memset, which can be probed.
            unsafe { ptr::from_mut(word).write_volatile(0) };
        }
        Some(instance)
    }

    /// Gives back an instance that [`take`](Self::take) has returned, and that is in no list any more. `cpu` is this CPU.
    ///
    /// Until this CPU has left the hit path, the pool is not freed, though none of its instances is taken.
    #[inline]
    pub(super) fn give_back(&self, cpu: &Cpu, instance: &Instance) {
        instance.stack_pointer.store(0, Release);
        if !self.slot(cpu).fill(instance) {
            self.push(instance);
        }
    }

    /// Takes the first instance of the shared list.
    fn pop(&self) -> Option<&Instance> {
        let mut free = self.free.load(Acquire);
        loop {
            let instance = self.instances.get(free as u32 as usize)?;
            // Another CPU may take the instance at this moment and change the field; the swap then fails.
            let next = successor(free, instance.next_free.load(Relaxed));
            match self.free.compare_exchange_weak(free, next, Acquire, Acquire) {
                Ok(_) => return Some(instance),
                Err(current) => free = current,
            }
        }
    }

    /// Puts an instance in front of the shared list.
    pub(super) fn push(&self, instance: &Instance) {
        let mut free = self.free.load(Relaxed);
        loop {
            instance.next_free.store(free as u32, Relaxed);
            match self.free.compare_exchange_weak(free, successor(free, instance.index), Release, Relaxed) {
                Ok(_) => return,
                Err(current) => free = current,
            }
        }
    }

    /// The private data of `instance`, for its holder.
    pub(super) fn data(&self, instance: &Instance) -> *mut [u64] {
        let start = instance.index as usize * self.data_words;
        let words = self.data.get(start..start + self.data_words).unwrap_or(&[]);
        // `UnsafeCell<u64>` has the layout of `u64`.
        ptr::slice_from_raw_parts_mut(UnsafeCell::raw_get(words.as_ptr()), words.len())
    }

    /// How many calls are in progress. What the others have counted is seen after this.
    pub(crate) fn taken(&self) -> u32 {
        self.instances.iter().filter(|instance| instance.stack_pointer.load(Acquire) != 0).count() as u32
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
    fn a_cpu_keeps_what_it_gives_back_and_nothing_is_out_of_reach() {
        let pool = pool(3, 0);
        let taken = [(); 3].map(|()| pool.take(cpu(2)).unwrap());
        // Two are given back elsewhere than they were taken, as by a task that has moved: the second to the shared list.
        for (number, instance) in [1, 1, 2].into_iter().zip(taken) {
            pool.give_back(cpu(number), instance);
        }
        assert_eq!(pool.take(cpu(2)).unwrap().index, taken[2].index);
        let again = [2, 2].map(|number| pool.take(cpu(number)).unwrap().index);
        assert_eq!(again, [taken[1].index, taken[0].index]);
        assert!((0..crate::platform::cpus()).all(|number| pool.take(cpu(number)).is_none()));
    }

    #[test]
    fn those_with_a_stack_pointer_are_in_progress() {
        let pool = pool(2, 0);
        let instance = pool.take(cpu(0)).unwrap();
        assert_eq!(pool.taken(), 0);
        instance.stack_pointer.store(0x1000, Relaxed);
        assert_eq!(pool.taken(), 1);
        pool.give_back(cpu(1), instance);
        assert_eq!(pool.taken(), 0);
    }

    #[test]
    fn every_instance_is_taken_once_and_then_there_are_none() {
        let pool = pool(3, 0);
        let taken: HashSet<u32> = (0..3).map(|_| pool.take(cpu(0)).unwrap().index).collect();
        assert_eq!(taken, HashSet::from([0, 1, 2]));
        assert!(pool.take(cpu(0)).is_none());
    }

    #[test]
    fn an_instance_given_back_is_taken_again() {
        let pool = pool(2, 0);
        let first = pool.take(cpu(0)).unwrap();
        pool.take(cpu(0)).unwrap();
        pool.give_back(cpu(0), first);
        assert_eq!(pool.take(cpu(0)).unwrap().index, first.index);
        assert!(pool.take(cpu(0)).is_none());
    }

    #[test]
    fn the_free_list_never_looks_the_same_twice() {
        let pool = pool(10, 0);
        let before = pool.free.load(Relaxed);
        pool.push(pool.pop().unwrap());
        let after = pool.free.load(Relaxed);
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
            (&mut *pool.data(first)).fill(1);
            (&mut *pool.data(second)).fill(2);
            assert_eq!(*pool.data(first), [1, 1, 1]);
            assert_eq!(*pool.data(second), [2, 2, 2]);
        }
        pool.give_back(cpu(0), first);
        let again = pool.take(cpu(0)).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { &*pool.data(again) }, [0, 0, 0]);
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
                    for _ in 0..if cfg!(miri) { 100 } else { 200_000 } {
                        let Some(instance) = pool.take(cpu) else { continue };
                        assert_eq!(instance.return_address.swap(thread, Relaxed), 0, "held by two threads");
                        instance.return_address.store(0, Relaxed);
                        pool.give_back(cpu, instance);
                    }
                });
            }
        });
        assert_eq!((0..4).filter(|_| pool.take(cpu(0)).is_some()).count(), 3);
    }
}
