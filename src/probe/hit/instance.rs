//! The instances of a return probe: one for each call that can be in progress, allocated when the probe is registered.
//!
//! A free instance is the spare of a CPU, or in a shared list. Every CPU has a place for one spare, in memory of its
//! own: the instance of a call that has returned on it. The CPU's next call takes the spare, by compare-and-swap,
//! because a CPU that finds no other instance takes the spare of another CPU. So calls that do not overlap take and
//! give back the same instance, in a few instructions, and no cache line moves between CPUs before a pool is exhausted.
//! All other free instances are in the shared list.
//!
//! The list is a stack of indices with a tag, changed by compare-and-swap. The tag changes with every operation.
//! Without it, an instance could be taken, given back and be on top again, with another successor, between the load and
//! the swap of another CPU. A spare needs no tag, because its successor is not read.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::iter;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::counters::Counters;
#[cfg(not(all(test, loom)))]
use super::counters::Counts;
use super::cpu::Cpu;
use super::returns::ReturnProbe;
use super::trampoline;
use crate::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use crate::kernel;
use crate::probe::aliasable::AliasableBox;

/// A call in progress of a return-probed function.
///
/// Between [`Pool::take`] and [`Pool::give_back`] it belongs to the hit path of the task that made the call. The fields
/// are atomic because they are in shared memory; all accesses are relaxed. `trampoline/kretprobe.S` knows the layout.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Instance {
    /// The stack pointer at the entry of the function, and so at its return; with the bit
    /// [`ABANDONED`](Self::ABANDONED), once the CPU has been abandoned.
    pub(super) stack_pointer: AtomicU64,
    /// The value of x30 at the entry: the true return address, or the address of a trampoline if an older instance with
    /// the same stack pointer has the true one.
    pub(super) return_address: AtomicU64,
    /// The instance of the next older call in the same list.
    pub(super) next: AtomicPtr<Instance>,
    /// How the instance relates to the newest hit: one of the constants below.
    pub(super) hit: AtomicU64,
    /// The virtual address at which `kretprobe_lean` goes on when the call returns: code of the owner; code that leaves
    /// the call to the trampoline; or code that only returns.
    code: AtomicU64,
    /// The distance from the state of a CPU to the place of its spare in the owner's pool, in bytes.
    spare_distance: AtomicU64,
    /// The probe that owns the instance.
    owner: AtomicPtr<ReturnProbe>,
    index: u32,
    next_free: AtomicU32,
}

// The assembly stores and loads the first two fields as a pair, the next two, and the second and third; it loads `code`
// and `spare_distance` as a pair, and `spare_distance` and `owner`.
const _: () = {
    // The atomics of a model are larger.
    let is_model = cfg!(all(test, loom));
    assert!(Instance::STACK_POINTER == 0);
    assert!(is_model || offset_of!(Instance, return_address) == Instance::STACK_POINTER + 8);
    assert!(is_model || Instance::NEXT == Instance::RETURN_ADDRESS + 8);
    assert!(is_model || offset_of!(Instance, hit) == Instance::NEXT + 8);
    assert!(is_model || Instance::SPARE == offset_of!(Instance, code) + 8);
    assert!(is_model || Instance::OWNER == Instance::SPARE + 8);
};

impl Instance {
    // For the assembly: byte offsets.
    pub(in crate::probe) const STACK_POINTER: usize = offset_of!(Self, stack_pointer);
    pub(in crate::probe) const RETURN_ADDRESS: usize = offset_of!(Self, return_address);
    pub(in crate::probe) const NEXT: usize = offset_of!(Self, next);
    #[cfg(target_os = "none")]
    pub(super) const CODE: usize = offset_of!(Self, code);
    pub(super) const SPARE: usize = offset_of!(Self, spare_distance);
    pub(super) const OWNER: usize = offset_of!(Self, owner);

    /// [`hit`](Self::hit): the hit has put only this instance into the list. The assembly stores a zero.
    pub(super) const ALONE: u64 = 0;
    /// [`hit`](Self::hit): the hit may have put other instances into the list before this one.
    pub(super) const SHARED: u64 = 1;
    /// [`hit`](Self::hit): another hit has happened since.
    pub(super) const OLDER: u64 = 2;

    /// [`stack_pointer`](Self::stack_pointer): the CPU was abandoned in the call. No function returns with such a stack
    /// pointer, so the assembly leaves the return to Rust.
    pub(super) const ABANDONED: u64 = 1;

    /// Makes the instance with the number `index` of `count` instances, which are all free and in a list in the order
    /// of their numbers.
    pub(crate) fn free(index: u32, count: u32) -> Self {
        Self {
            stack_pointer: AtomicU64::new(0),
            return_address: AtomicU64::new(0),
            next: AtomicPtr::default(),
            hit: AtomicU64::new(Self::ALONE),
            code: AtomicU64::new(trampoline::lean_unusual_address()),
            spare_distance: AtomicU64::new(0),
            owner: AtomicPtr::default(),
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
    spares: SparePlaces,
    /// The number of CPUs. The hit path asks nothing of the platform that may be probed.
    cpus: usize,
    instances: AliasableBox<[Instance]>,
    data: Box<[UnsafeCell<u64>]>,
    data_words: usize,
    /// The index of the first instance of the shared list in the low half; the tag in the high half.
    free: AtomicU64,
}

/// The places for the spares of a pool, one for each CPU, allocated like counts: each CPU finds its own at a distance
/// from its state.
#[cfg(not(all(test, loom)))]
#[derive(Debug)]
struct SparePlaces(Counters);

#[cfg(not(all(test, loom)))]
impl SparePlaces {
    /// Returns places without spares, which nothing is stored to.
    const fn none() -> Self {
        Self(Counters::NO_SPARE)
    }

    fn new(words: Counters) -> Self {
        Self(words)
    }

    /// Returns the place of the CPU with the number `cpu`, which is below the number of CPUs.
    #[inline]
    fn on(&self, cpu: usize) -> &SparePlace {
        Self::place(self.0.on(cpu))
    }

    /// Returns the place of `cpu`.
    #[inline]
    fn of(&self, cpu: &Cpu) -> &SparePlace {
        Self::place(self.0.of(cpu))
    }

    #[inline]
    fn place(counts: &Counts) -> &SparePlace {
        // SAFETY: counts are two words that may change while they are shared, and a place is one such word. It holds
        // null or an instance of the pool: the caller of `Pool::set_spares` guarantees that nothing else stores there.
        unsafe { &*ptr::from_ref(counts).cast() }
    }
}

/// The places for the spares of a pool in a model, which are allocated here, because loom tracks only its own atomics.
#[cfg(all(test, loom))]
#[derive(Debug)]
struct SparePlaces(Box<[SparePlace]>);

#[cfg(all(test, loom))]
impl SparePlaces {
    fn none() -> Self {
        Self(Box::default())
    }

    fn new(_: Counters) -> Self {
        Self((0..kernel::cpus()).map(|_| SparePlace::default()).collect())
    }

    fn on(&self, cpu: usize) -> &SparePlace {
        &self.0[cpu]
    }

    fn of(&self, cpu: &Cpu) -> &SparePlace {
        self.on((ptr::from_ref(cpu).addr() - Cpu::first().addr()) / size_of::<Cpu>())
    }
}

/// The place for the spare of a CPU: a free instance that it has given back, or null.
#[derive(Debug, Default)]
#[repr(transparent)]
struct SparePlace(AtomicPtr<Instance>);

impl SparePlace {
    /// Takes the spare, if there is one.
    #[inline]
    fn take<'a>(&self) -> Option<&'a Instance> {
        let mut found = self.0.load(Relaxed);
        while !found.is_null() {
            // The instance may have been taken and given back since the load: it is still the same instance, and free.
            match self.0.compare_exchange_weak(found, ptr::null_mut(), Acquire, Relaxed) {
                // SAFETY: only instances of the pool are stored here (`Pool::set_spares`, `keep` and the assembly).
                // They live as long as the pool, which is not freed before every CPU has been held outside the hit
                // path; and the words are zeroed before they serve another pool.
                Ok(_) => return unsafe { found.as_ref() },
                Err(current) => found = current,
            }
        }
        None
    }

    /// Stores a free instance here, unless there is a spare already. Returns whether it was stored. To be called only
    /// by the CPU of this place.
    #[inline]
    fn keep(&self, instance: &Instance) -> bool {
        // Nothing is stored here between the load and the store: other CPUs only take the spare.
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
    /// Makes a pool of `instances`, made by [`Instance::free`], each with `data_words` words of `data`. None can be
    /// taken before [`set_spares`](Self::set_spares) has been called.
    pub(crate) fn new(instances: Box<[Instance]>, data: Box<[UnsafeCell<u64>]>, data_words: usize) -> Self {
        let (instances, free) = (AliasableBox::new(instances), AtomicU64::new(NONE.into()));
        Self { spares: SparePlaces::none(), cpus: 0, instances, data, data_words, free }
    }

    /// Gives the pool its places for spares. All instances are free then: the first ones are spares, the others in the
    /// shared list.
    ///
    /// # Safety
    ///
    /// `words` are counts that are zero, and that nothing but this pool uses until they have been
    /// [reset](Counters::reset), after every CPU was held outside the hit path and none of the pool's calls is in
    /// progress.
    pub(super) unsafe fn set_spares(&mut self, words: Counters) {
        self.spares = SparePlaces::new(words);
        self.cpus = kernel::cpus();
        for (cpu, instance) in (0..self.cpus).zip(self.instances.iter()) {
            self.spares.on(cpu).0.store(ptr::from_ref(instance).cast_mut(), Relaxed);
        }
        for instance in self.instances.iter() {
            instance.spare_distance.store(words.distance(), Relaxed);
        }
        let first = if self.instances.len() > self.cpus { self.cpus as u32 } else { NONE };
        self.free.store(first.into(), Relaxed);
    }

    /// Makes `owner` the owner of all instances. It is the probe that contains this pool, and does not move.
    pub(super) fn adopt(&self, owner: NonNull<ReturnProbe>) {
        self.instances.iter().for_each(|instance| instance.owner.store(owner.as_ptr(), Relaxed));
    }

    /// Has all calls, those in progress included, go on at the virtual address `code` when they return to
    /// `kretprobe_lean`.
    pub(super) fn set_code(&self, code: u64) {
        self.instances.iter().for_each(|instance| instance.code.store(code, Relaxed));
    }

    /// Returns the virtual address at which calls go on when they return to `kretprobe_lean`.
    #[cfg(all(test, not(loom)))]
    pub(super) fn code(&self) -> u64 {
        self.instances.first().expect("a pool has instances").code.load(Relaxed)
    }

    /// Returns the number of words of private data of each instance.
    pub(crate) fn data_words(&self) -> usize {
        self.data_words
    }

    #[inline]
    fn spare(&self, cpu: &Cpu) -> &SparePlace {
        self.spares.of(cpu)
    }

    /// Takes a free instance, with its data set to zero; `None` if there is no free instance. `cpu` is this CPU.
    #[inline]
    pub(super) fn take(&self, cpu: &Cpu) -> Option<&Instance> {
        let instance = self.spare(cpu).take().or_else(|| self.pop()).or_else(|| self.take_any_spare())?;
        // SAFETY: this function has just taken the instance, so it is the only holder.
        for word in unsafe { &mut *self.data(instance) } {
            // SAFETY: `word` is a reference, so it can be written to. The store is volatile so that the loop does not
            // become a call of memset, which can be probed.
            unsafe { ptr::from_mut(word).write_volatile(0) };
        }
        Some(instance)
    }

    /// Takes the spare of any CPU; `None` if there is none. At some levels of optimization the compiler does not inline
    /// the iterators of `core`, which can be probed, so this is a loop without them.
    fn take_any_spare(&self) -> Option<&Instance> {
        let mut cpu = 0;
        while cpu < self.cpus {
            if let Some(instance) = self.spares.on(cpu).take() {
                return Some(instance);
            }
            cpu += 1;
        }
        None
    }

    /// Gives back an instance that [`take`](Self::take) has returned, and that is not in any list any more. `cpu` is
    /// this CPU.
    ///
    /// The pool is not freed before this CPU has left the hit path, even if no instance is taken.
    #[inline]
    pub(super) fn give_back(&self, cpu: &Cpu, instance: &Instance) {
        if !self.spare(cpu).keep(instance) {
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
    /// While calls begin on other CPUs, the number may never have been right at any one time. If no more calls can
    /// begin, it is at least the number of calls that are in progress when this returns.
    pub(crate) fn taken(&self) -> u32 {
        let in_spares = (0..self.cpus).filter(|&cpu| !self.spares.on(cpu).0.load(Acquire).is_null()).count();
        let mut free = self.free.load(Acquire) as u32;
        let in_list = iter::from_fn(|| {
            free = self.instances.get(free as usize)?.next_free.load(Relaxed);
            Some(())
        });
        // Bounded, because the list may change while it is counted.
        let count = self.instances.len();
        count.saturating_sub(in_spares + in_list.take(count).count()) as u32
    }
}

/// Returns the new value of the free list after `free`, with `index` on top.
fn successor(free: u64, index: u32) -> u64 {
    ((free >> 32).wrapping_add(1) << 32) | u64::from(index)
}

/// Makes a pool as a registered probe has it.
#[cfg(test)]
pub(super) fn test_pool(count: u32, data_words: usize) -> Pool {
    let mut pool = crate::probe::kretprobe::make_pool(count, data_words).unwrap();
    // SAFETY: the words are new and zero, and never used again; a model uses none.
    unsafe { pool.set_spares(test_places()) };
    pool
}

/// Returns counts that are never freed.
#[cfg(all(test, not(loom)))]
fn test_places() -> Counters {
    use super::counters::STRIDE;
    let count = STRIDE * kernel::cpus() / size_of::<Counts>();
    let words: Vec<Counts> = iter::repeat_with(Counts::new).take(count).collect();
    // SAFETY: there is `STRIDE` for each CPU.
    unsafe { Counters::new(NonNull::from_ref(words.leak()).cast()) }
}

#[cfg(all(test, loom))]
fn test_places() -> Counters {
    Counters::NO_SPARE
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::test_pool as pool;
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;

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
        assert!((0..crate::kernel::cpus()).all(|number| pool.take(cpu(number)).is_none()));
    }

    #[test]
    fn those_that_are_no_spare_and_not_in_the_list_are_in_progress() {
        let cpus = crate::kernel::cpus() as u32;
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
