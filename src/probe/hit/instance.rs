//! The instances of a return probe: one for each call that can be in progress, allocated when the probe is registered.
//!
//! A free instance is in a slot or in a shared list. Every CPU has a slot for one instance. Only that CPU fills it,
//! with the instance of a call that has returned on it. The slot is emptied by compare-and-swap: by its CPU when the
//! next call begins, or by another CPU that finds no other instance. So calls that do not overlap take and give back
//! the same instance, in a few instructions, and no cache line moves between CPUs. Instances that do not fit into the
//! slots are in a list that all CPUs share.
//!
//! The list is a stack of indices with a tag, changed by compare-and-swap. The tag changes with every operation.
//! Without it, an instance could be taken, given back and be on top again, with another successor, between the load and
//! the swap of another CPU. A slot needs no tag, because the successor of its instance is not read.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::iter;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::cpu::Cpu;
use super::returns::ReturnProbe;
use crate::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use crate::probe::aliasable::AliasableBox;

/// A call in progress of a return-probed function.
///
/// Between [`Pool::take`] and [`Pool::give_back`] it belongs to the hit path of the task that made the call. The fields
/// are atomic because they are in shared memory; all accesses are relaxed. `trampoline/kretprobe.S` knows the layout.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Instance {
    /// The stack pointer at the entry of the function, and so at its return.
    pub(super) stack_pointer: AtomicU64,
    /// The value of x30 at the entry: the true return address, or the address of a trampoline if an older instance with
    /// the same stack pointer has the true one.
    pub(super) return_address: AtomicU64,
    /// The instance of the next older call in the same list.
    pub(super) next: AtomicPtr<Instance>,
    /// How the instance relates to the newest hit: one of the constants below.
    pub(super) hit: AtomicU64,
    /// The probe that owns the instance.
    owner: AtomicPtr<ReturnProbe>,
    /// The slots of the owner's pool.
    slots: AtomicPtr<Slot>,
    index: u32,
    next_free: AtomicU32,
}

// The assembly stores and loads the first two fields as a pair, the next two, and the second and third; it loads
// `owner` and `slots` as a pair.
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
    // For the assembly: byte offsets.
    pub(in crate::probe) const STACK_POINTER: usize = offset_of!(Self, stack_pointer);
    pub(in crate::probe) const RETURN_ADDRESS: usize = offset_of!(Self, return_address);
    pub(in crate::probe) const NEXT: usize = offset_of!(Self, next);
    pub(super) const OWNER: usize = offset_of!(Self, owner);

    /// [`hit`](Self::hit): the hit has put only this instance into the list. The assembly stores a zero.
    pub(super) const ALONE: u64 = 0;
    /// [`hit`](Self::hit): the hit may have put other instances into the list before this one.
    pub(super) const SHARED: u64 = 1;
    /// [`hit`](Self::hit): another hit has happened since.
    pub(super) const OLDER: u64 = 2;

    /// Makes the instance with the number `index` of `count` instances, which are all free and in a list in the order
    /// of their numbers.
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

    /// Returns the probe that owns the instance.
    #[inline]
    pub(super) fn owner(&self) -> &ReturnProbe {
        // SAFETY: `Pool::adopt` set the owner before any hit could find the probe, and a probe is freed together with
        // its instances.
        unsafe { &*self.owner.load(Relaxed) }
    }
}

/// The index that ends the free list.
const NONE: u32 = u32::MAX;

/// The instances of one return probe, and the words of private data that each has.
#[derive(Debug)]
pub(crate) struct Pool {
    /// One slot for each CPU, in the order of their numbers.
    slots: AliasableBox<[Slot]>,
    instances: AliasableBox<[Instance]>,
    data: Box<[UnsafeCell<u64>]>,
    data_words: usize,
    /// The index of the first instance of the shared list in the low half; the tag in the high half.
    free: AtomicU64,
}

/// A free instance that a CPU has given back, or null. It has a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Slot(AtomicPtr<Instance>);

impl Slot {
    /// Takes the instance out, if there is one.
    #[inline]
    fn take<'a>(&self) -> Option<&'a Instance> {
        let mut found = self.0.load(Relaxed);
        while !found.is_null() {
            // The instance may have been taken and given back since the load: it is still the same instance, and free.
            match self.0.compare_exchange_weak(found, ptr::null_mut(), Acquire, Relaxed) {
                // SAFETY: the pool that contains this slot owns the instances, which live as long as the pool.
                Ok(_) => return unsafe { found.as_ref() },
                Err(current) => found = current,
            }
        }
        None
    }

    /// Puts a free instance in, if the slot is empty. Returns whether it was. Only the CPU of this slot calls it.
    #[inline]
    fn fill(&self, instance: &Instance) -> bool {
        // The slot cannot be filled between the load and the store, because other CPUs do not fill it.
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

    /// Makes a pool of `instances`, made by [`Instance::free`], each with `data_words` words of `data`. All are free:
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

    /// Makes `owner` the owner of all instances. It is the probe that contains this pool, and does not move.
    pub(super) fn adopt(&self, owner: NonNull<ReturnProbe>) {
        for instance in self.instances.iter() {
            instance.owner.store(owner.as_ptr(), Relaxed);
            instance.slots.store(self.slots().cast_mut(), Relaxed);
        }
    }

    /// Returns the slots. The first is that of CPU 0.
    pub(crate) fn slots(&self) -> *const Slot {
        self.slots.place().as_ptr().cast_const().cast()
    }

    /// Returns the number of words of private data of each instance.
    pub(crate) fn data_words(&self) -> usize {
        self.data_words
    }

    #[inline]
    fn slot(&self, cpu: &Cpu) -> &Slot {
        // SAFETY: `make_pool` has made one slot for each CPU, and `cpu` is the state of one of these CPUs.
        unsafe { self.slots.get_unchecked(cpu.number()) }
    }

    /// Takes a free instance, with its data set to zero; `None` if there is no free instance. `cpu` is this CPU.
    #[inline]
    pub(super) fn take(&self, cpu: &Cpu) -> Option<&Instance> {
        let instance =
            self.slot(cpu).take().or_else(|| self.pop()).or_else(|| self.slots.iter().find_map(Slot::take))?;
        // SAFETY: this function has just taken the instance, so it is the only holder.
        for word in unsafe { &mut *self.data(instance) } {
            // SAFETY: `word` is a reference, so it can be written to. The store is volatile so that the loop does not
            // become a call of memset, which can be probed.
            unsafe { ptr::from_mut(word).write_volatile(0) };
        }
        Some(instance)
    }

    /// Gives back an instance that [`take`](Self::take) has returned, and that is not in any list any more. `cpu` is
    /// this CPU.
    ///
    /// The pool is not freed before this CPU has left the hit path, even if no instance is taken.
    #[inline]
    pub(super) fn give_back(&self, cpu: &Cpu, instance: &Instance) {
        if !self.slot(cpu).fill(instance) {
            self.push(instance);
        }
    }

    /// Takes the first instance of the shared list; `None` if the list is empty.
    fn pop(&self) -> Option<&Instance> {
        let mut free = self.free.load(Acquire);
        loop {
            let instance = self.instances.get(free as u32 as usize)?;
            // Another CPU may take the instance now and change the field; the swap then fails.
            let next = successor(free, instance.next_free.load(Relaxed));
            match self.free.compare_exchange_weak(free, next, Acquire, Acquire) {
                Ok(_) => return Some(instance),
                Err(current) => free = current,
            }
        }
    }

    /// Puts an instance at the head of the shared list.
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

    /// Returns the private data of `instance`. Only the instance's holder may use it.
    pub(super) fn data(&self, instance: &Instance) -> *mut [u64] {
        let start = instance.index as usize * self.data_words;
        let words = self.data.get(start..start + self.data_words).unwrap_or(&[]);
        // `UnsafeCell<u64>` has the layout of `u64`.
        ptr::slice_from_raw_parts_mut(UnsafeCell::raw_get(words.as_ptr()), words.len())
    }

    /// Returns the number of calls in progress. Everything that the other calls have counted is visible after this.
    ///
    /// While calls begin on other CPUs, the number may be that of no moment. If none can begin any more, it is not less
    /// than that of the calls in progress after this.
    pub(crate) fn taken(&self) -> u32 {
        let in_slots = self.slots.iter().filter(|slot| !slot.0.load(Acquire).is_null()).count();
        let mut free = self.free.load(Acquire) as u32;
        let in_list = iter::from_fn(|| {
            free = self.instances.get(free as usize)?.next_free.load(Relaxed);
            Some(())
        });
        // The list has an end, but it may change under way.
        let count = self.instances.len();
        count.saturating_sub(in_slots + in_list.take(count).count()) as u32
    }
}

/// Returns the new value of the free list after `free`, with `index` on top.
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
        // Two are given back on another CPU than took them, as by a task that has migrated; the second goes to the
        // shared list.
        for (number, instance) in [1, 1, 2].into_iter().zip(taken) {
            pool.give_back(cpu(number), instance);
        }
        assert_eq!(pool.take(cpu(2)).unwrap().index, taken[2].index);
        let again = [2, 2].map(|number| pool.take(cpu(number)).unwrap().index);
        assert_eq!(again, [taken[1].index, taken[0].index]);
        assert!((0..crate::platform::cpus()).all(|number| pool.take(cpu(number)).is_none()));
    }

    #[test]
    fn those_in_no_slot_and_not_in_the_list_are_in_progress() {
        let cpus = crate::platform::cpus() as u32;
        for count in [1, cpus, cpus + 3] {
            let pool = pool(count, 0);
            let mut taken = Vec::new();
            while let Some(instance) = pool.take(cpu(0)) {
                taken.push(instance);
                assert_eq!(pool.taken(), taken.len() as u32);
            }
            assert_eq!(taken.len() as u32, count);
            while let Some(instance) = taken.pop() {
                pool.give_back(cpu(0), instance);
                assert_eq!(pool.taken(), taken.len() as u32);
            }
        }
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
        // SAFETY: this test holds both instances, and drops each reference at once.
        unsafe {
            (&mut *pool.data(first)).fill(1);
            (&mut *pool.data(second)).fill(2);
            assert_eq!(*pool.data(first), [1, 1, 1]);
            assert_eq!(*pool.data(second), [2, 2, 2]);
        }
        pool.give_back(cpu(0), first);
        let again = pool.take(cpu(0)).unwrap();
        // SAFETY: this test holds the instance, and drops the reference at once.
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
