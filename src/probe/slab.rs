//! A slab allocator for values of which there is one for each probe or point. A value never moves.
//!
//! A block is a page with a header, followed by values; the header is found from the address of any of them.
//! Allocating and freeing a place takes a few instructions, whatever allocator the kernel has. An empty block is
//! returned to that allocator.
//!
//! A block ends a little before the end of its page, because most allocators keep a few bytes of their own beside each
//! allocation. Blocks of whole pages would then take every second page, and leave gaps that are too small for another
//! block.

use alloc::alloc::{Layout, alloc, dealloc};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

const BLOCK: Layout = match Layout::from_size_align(4096 - 32, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("the alignment of a block is not a power of two"),
};

/// A slab of values of type `T`.
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// The first block with room, or null.
    open: *mut Block,
    values: PhantomData<T>,
}

// SAFETY: the slab owns its blocks and their values.
unsafe impl<T: Send> Send for Slab<T> {}

/// The header of a block. The blocks with room form a list.
#[derive(Debug)]
struct Block {
    next: *mut Block,
    previous: *mut Block,
    /// The first of the freed places, or null: each holds the address of the next.
    free: *mut Free,
    /// The number of places that have ever been handed out.
    begun: usize,
    /// The number of places in use.
    used: usize,
}

struct Free {
    next: *mut Free,
}

impl<T> Slab<T> {
    /// Bytes from the header to the first place.
    const FIRST: usize = size_of::<Block>().next_multiple_of(align_of::<T>());
    /// The number of places in a block.
    const PLACES: usize = {
        assert!(size_of::<T>() >= size_of::<Free>() && align_of::<T>() >= align_of::<Free>());
        let places = (BLOCK.size() - Self::FIRST) / size_of::<T>();
        assert!(places > 1, "a block that is not empty is not full either");
        places
    };

    pub(super) const fn new() -> Self {
        Self { open: ptr::null_mut(), values: PhantomData }
    }

    /// Makes room for one value; `None` if there is no memory.
    #[inline]
    pub(super) fn reserve(&mut self) -> Option<()> {
        if self.open.is_null() { self.grow() } else { Some(()) }
    }

    /// Allocates a place with the size and alignment of a value, which does not hold a value yet; `None` if there is no
    /// memory.
    #[inline]
    pub(super) fn allocate(&mut self) -> Option<NonNull<T>> {
        self.reserve()?;
        // SAFETY: `reserve` made sure that `open` points to a block. Only this slab makes references to its blocks, and
        // `self` is borrowed mutably.
        let block = unsafe { &mut *self.open };
        let place = match NonNull::new(block.free) {
            Some(free) => {
                // SAFETY: a place in the free list holds a `Free`, written by `remove`.
                block.free = unsafe { free.read() }.next;
                free.cast()
            }
            None => {
                let offset = Self::FIRST + block.begun * size_of::<T>();
                block.begun += 1;
                // SAFETY: a block in the list has a place that is not in use. None was freed, so it is one that was
                // never handed out, and lies within the block.
                unsafe { NonNull::new_unchecked(self.open).byte_add(offset).cast() }
            }
        };
        block.used += 1;
        if block.used == Self::PLACES {
            self.open = block.next;
            // SAFETY: the pointer is null or a block of this slab.
            if let Some(next) = unsafe { self.open.as_mut() } {
                next.previous = ptr::null_mut();
            }
        }
        Some(place)
    }

    /// Drops the value at `place`, and frees the place.
    ///
    /// # Safety
    ///
    /// [`allocate`](Self::allocate) of this slab has returned `place`, which holds a value. Neither is used after this.
    #[inline]
    pub(super) unsafe fn remove(&mut self, place: NonNull<T>) {
        // SAFETY: the caller guarantees that the place holds a value that is not used any more (see # Safety).
        unsafe { place.drop_in_place() };
        let pointer = place.as_ptr().map_addr(|address| address & !(BLOCK.align() - 1)).cast::<Block>();
        // SAFETY: a place lies in a block, after its header. Only this slab makes references to its blocks, and `self`
        // is borrowed mutably.
        let block = unsafe { &mut *pointer };
        let free = place.cast::<Free>();
        // SAFETY: the value has been dropped, and `PLACES` asserts that a place is large enough for a `Free`.
        unsafe { free.write(Free { next: block.free }) };
        block.free = free.as_ptr();
        block.used -= 1;
        if block.used == Self::PLACES - 1 {
            self.link(pointer);
        } else if block.used == 0 {
            self.give_back(pointer);
        }
    }

    #[cold]
    fn grow(&mut self) -> Option<()> {
        // SAFETY: the size of the layout is not zero.
        let block = unsafe { alloc(BLOCK) }.cast::<Block>();
        if block.is_null() {
            return None;
        }
        let (next, previous, free) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the block was just allocated with this layout.
        unsafe { block.write(Block { next, previous, free, begun: 0, used: 0 }) };
        self.link(block);
        Some(())
    }

    /// Puts `block`, which is not in the list, at its head.
    #[cold]
    fn link(&mut self, block: *mut Block) {
        // SAFETY: the pointer is null or a block of this slab.
        if let Some(next) = unsafe { self.open.as_mut() } {
            next.previous = block;
        }
        // SAFETY: the callers got the block from the allocator, or from the address of a place in it.
        unsafe { ((*block).next, (*block).previous) = (self.open, ptr::null_mut()) };
        self.open = block;
    }

    /// Returns `block`, which is in the list and empty, to the allocator.
    #[cold]
    fn give_back(&mut self, block: *mut Block) {
        // SAFETY: the caller got the block from the address of a place in it.
        let Block { next, previous, .. } = unsafe { block.read() };
        // SAFETY: the pointer is null or a block of this slab.
        if let Some(next) = unsafe { next.as_mut() } {
            next.previous = previous;
        }
        // SAFETY: the pointer is null or a block of this slab.
        match unsafe { previous.as_mut() } {
            Some(previous) => previous.next = next,
            None => self.open = next,
        }
        // SAFETY: `grow` allocated the block with this layout, and it holds no value.
        unsafe { dealloc(block.cast(), BLOCK) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use kprobes_random::Random;

    /// Large enough that a few values fill a block.
    type Value = [u64; 100];

    fn add(slab: &mut Slab<Value>, number: u64) -> NonNull<Value> {
        let place = slab.allocate().unwrap();
        // SAFETY: `allocate` returned a place for a value.
        unsafe { place.write([number; 100]) };
        place
    }

    fn blocks(slab: &Slab<Value>) -> usize {
        // SAFETY: each pointer is null or a block of the slab.
        core::iter::successors(unsafe { slab.open.as_ref() }, |block| unsafe { block.next.as_ref() }).count()
    }

    #[test]
    fn values_keep_their_places_and_blocks_without_any_are_given_back() {
        let mut slab = Slab::new();
        let mut all: Vec<_> = (0..100).map(|number| (number, add(&mut slab, number))).collect();
        let mut random = Random::new(1);
        let rounds = if cfg!(miri) { 500 } else { 10_000 };
        for round in 0..rounds {
            // More values come in some rounds, and more go in others.
            if random.below(8) < if round / (rounds / 10) % 2 == 0 { 3 } else { 5 } {
                all.push((round + 100, add(&mut slab, round + 100)));
            } else if !all.is_empty() {
                let (number, place) = all.swap_remove(random.below(all.len()));
                // SAFETY: the place holds a value, which `add` wrote.
                assert!(unsafe { place.read() }.iter().all(|&word| word == number));
                // SAFETY: the place was taken out of the list, and is not used any more.
                unsafe { slab.remove(place) };
            }
        }
        for (number, place) in all {
            // SAFETY: the place holds a value, which `add` wrote.
            assert!(unsafe { place.read() }.iter().all(|&word| word == number));
            // SAFETY: the place was taken out of the list, and is not used any more.
            unsafe { slab.remove(place) };
        }
        assert_eq!(blocks(&slab), 0);
    }

    #[test]
    fn places_do_not_overlap_and_lie_in_as_few_blocks_as_hold_them() {
        let mut slab = Slab::new();
        let mut places: Vec<_> = (0..5 * 4).map(|number| add(&mut slab, number).as_ptr().addr()).collect();
        assert_eq!((Slab::<Value>::PLACES, blocks(&slab)), (5, 0), "all of them are full");
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= size_of::<Value>()));
        slab.reserve().unwrap();
        slab.reserve().unwrap();
        assert_eq!(blocks(&slab), 1);
    }

    #[test]
    fn a_value_is_dropped_when_it_is_removed() {
        let value = std::rc::Rc::new(());
        let mut slab = Slab::new();
        let place = slab.allocate().unwrap();
        // SAFETY: `allocate` returned a place for a value.
        unsafe { place.write(value.clone()) };
        assert_eq!(std::rc::Rc::strong_count(&value), 2);
        // SAFETY: the place holds a value, and is not used any more.
        unsafe { slab.remove(place) };
        assert_eq!(std::rc::Rc::strong_count(&value), 1);
    }
}
