//! A slab allocator for values of which there is one for each probe or point. A value never moves.
//!
//! A block is a header, followed by values. A block is a page, so that its header is found from the address of any of
//! its values. Allocating and freeing a place takes a few instructions, whatever allocator the kernel has. An empty
//! block is returned to that allocator.
//!
//! The first block is smaller: it is only as large as two values, so that a kernel with one probe does not pay for
//! pages. Two, because a point is replaced by a new point before it is freed.
//!
//! The other blocks end a little before the end of their pages, because most allocators keep a few bytes of their own
//! beside each allocation. Blocks of whole pages would then take every second page, and leave gaps that are too small
//! for another block.

use alloc::alloc::{Layout, alloc, dealloc};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

/// The layout of all blocks but the small one.
const BLOCK: Layout = layout(4096 - 32, 4096);

const fn layout(size: usize, alignment: usize) -> Layout {
    match Layout::from_size_align(size, alignment) {
        Ok(layout) => layout,
        Err(_) => panic!("the alignment of a block is not a power of two"),
    }
}

/// A slab of values of type `T`.
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// The first block with room, or null.
    open: *mut Block,
    /// The small block, or null: the next block is then small.
    small: *mut Block,
    values: PhantomData<T>,
}

// SAFETY: the slab owns its blocks and their values.
unsafe impl<T: Send> Send for Slab<T> {}

/// The header of a block. The blocks with room form a list.
#[derive(Debug)]
struct Block {
    next: *mut Block,
    previous: *mut Block,
    /// The first of the free places, or null: each holds the address of the next.
    free: *mut Free,
    /// The number of places in use.
    used: usize,
}

struct Free {
    next: *mut Free,
}

impl<T> Slab<T> {
    /// Bytes from the header to the first place.
    const FIRST: usize = size_of::<Block>().next_multiple_of(align_of::<T>());
    /// The number of places in a block of the usual size.
    const PLACES: usize = {
        assert!(size_of::<T>() >= size_of::<Free>() && align_of::<T>() >= align_of::<Free>());
        assert!(align_of::<T>() <= BLOCK.align());
        let places = (BLOCK.size() - Self::FIRST) / size_of::<T>();
        assert!(places >= Self::FEW && Self::FEW > 1, "a block that was full is not empty after a removal");
        places
    };
    /// The number of places in the small block.
    const FEW: usize = 2;
    /// The layout of the small block.
    const SMALL: Layout = {
        let alignment = if align_of::<T>() > align_of::<Block>() { align_of::<T>() } else { align_of::<Block>() };
        layout(Self::FIRST + Self::FEW * size_of::<T>(), alignment)
    };

    pub(super) const fn new() -> Self {
        Self { open: ptr::null_mut(), small: ptr::null_mut(), values: PhantomData }
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
        let place = NonNull::new(block.free)?;
        // SAFETY: a place in the free list holds a `Free`, written by `grow` or `remove`.
        block.free = unsafe { place.read() }.next;
        block.used += 1;
        if block.free.is_null() {
            self.open = block.next;
            // SAFETY: the pointer is null or a block of this slab.
            if let Some(next) = unsafe { self.open.as_mut() } {
                next.previous = ptr::null_mut();
            }
        }
        Some(place.cast())
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
        let pointer = self.block(place);
        // SAFETY: a place lies in a block, after its header. Only this slab makes references to its blocks, and `self`
        // is borrowed mutably.
        let block = unsafe { &mut *pointer };
        let free = place.cast::<Free>();
        let was_full = block.free.is_null();
        // SAFETY: the value has been dropped, and `PLACES` asserts that a place is large enough for a `Free`.
        unsafe { free.write(Free { next: block.free }) };
        block.free = free.as_ptr();
        block.used -= 1;
        if was_full {
            self.link(pointer);
        } else if block.used == 0 {
            self.give_back(pointer);
        }
    }

    /// Returns the block that contains `place`.
    #[inline]
    fn block(&self, place: NonNull<T>) -> *mut Block {
        let place = place.as_ptr();
        // If there is no small block, all places lie in blocks at multiples of the alignment that are not null, and so
        // not this near to null.
        if place.addr().wrapping_sub(self.small.addr()) < Self::SMALL.size() {
            return self.small;
        }
        place.map_addr(|address| address & !(BLOCK.align() - 1)).cast()
    }

    #[cold]
    fn grow(&mut self) -> Option<()> {
        let (layout, places) = if self.small.is_null() { (Self::SMALL, Self::FEW) } else { (BLOCK, Self::PLACES) };
        // SAFETY: the size of the layout is not zero: both layouts have room for the header.
        let block = unsafe { alloc(layout) }.cast::<Block>();
        if block.is_null() {
            return None;
        }
        if self.small.is_null() {
            self.small = block;
        }
        let mut free = ptr::null_mut();
        for place in (0..places).rev() {
            // SAFETY: the block has room for `places` values, which begin at `FIRST`.
            let place = unsafe { block.byte_add(Self::FIRST + place * size_of::<T>()) }.cast::<Free>();
            // SAFETY: the place is in the block, holds no value, and is large enough for a `Free`, as `PLACES` asserts.
            unsafe { place.write(Free { next: free }) };
            free = place;
        }
        // SAFETY: the block was just allocated, with room for the header.
        unsafe { block.write(Block { next: ptr::null_mut(), previous: ptr::null_mut(), free, used: 0 }) };
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
        let is_small = block == self.small;
        if is_small {
            self.small = ptr::null_mut();
        }
        // SAFETY: `grow` allocated the block with this layout, and it holds no value.
        unsafe { dealloc(block.cast(), if is_small { Self::SMALL } else { BLOCK }) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use fallible::failing::allocated;
    use kprobes_random::Random;

    use super::*;

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
        let mut places: Vec<_> = (0..2 + 5 * 4).map(|number| add(&mut slab, number).as_ptr().addr()).collect();
        assert_eq!((Slab::<Value>::PLACES, blocks(&slab)), (5, 0), "all of them are full");
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= size_of::<Value>()));
        slab.reserve().unwrap();
        slab.reserve().unwrap();
        assert_eq!(blocks(&slab), 1);
    }

    #[test]
    fn the_first_two_values_take_no_page() {
        let (mut slab, before) = (Slab::new(), allocated());
        let more = || (allocated() - before) as usize;
        let first = [add(&mut slab, 1), add(&mut slab, 2)];
        let small = size_of::<Block>() + 2 * size_of::<Value>();
        assert_eq!(more(), small);
        let third = add(&mut slab, 3);
        assert_eq!(more(), small + BLOCK.size());
        // SAFETY: the place holds a value, and is not used any more.
        first.into_iter().for_each(|place| unsafe { slab.remove(place) });
        assert_eq!(more(), BLOCK.size());
        let fourth = add(&mut slab, 4);
        assert_eq!(more(), BLOCK.size(), "there is room in the block");
        // SAFETY: the place holds a value, and is not used any more.
        [third, fourth].into_iter().for_each(|place| unsafe { slab.remove(place) });
        assert_eq!(more(), 0);
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
