//! Sorts lists with little code. Each type and order that [`slice::sort_unstable`] sorts adds 3 to 20 KiB of
//! instructions; here it adds two short functions.

use core::cmp::Ordering;

/// A list that can be sorted.
trait Sorted {
    /// Returns whether the element at `one` comes before the one at `other`.
    fn is_before(&mut self, one: usize, other: usize) -> bool;

    fn swap(&mut self, one: usize, other: usize);
}

struct By<'a, T, F>(&'a mut [T], F);

impl<T, F: FnMut(&T, &T) -> Ordering> Sorted for By<'_, T, F> {
    fn is_before(&mut self, one: usize, other: usize) -> bool {
        let Self(all, compare) = self;
        all.get(one).zip(all.get(other)).is_some_and(|(one, other)| compare(one, other) == Ordering::Less)
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.0.swap(one, other);
    }
}

/// Sorts `all` by `compare`, in place. Equal elements may change their order. In the worst case, about twice the time
/// of [`slice::sort_unstable_by`].
pub fn sort_by<T>(all: &mut [T], compare: impl FnMut(&T, &T) -> Ordering) {
    let count = all.len();
    heap_sort(&mut By(all, compare), count);
}

/// Sorts `all` by a key, in place: see [`sort_by`].
pub fn sort_by_key<T, K: Ord>(all: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(all, |one, other| key(one).cmp(&key(other)));
}

/// Sorts the first `count` elements.
fn heap_sort(all: &mut dyn Sorted, count: usize) {
    for root in (0..count / 2).rev() {
        sift(all, root, count);
    }
    for end in (1..count).rev() {
        all.swap(0, end);
        sift(all, 0, end);
    }
}

/// Moves the element at `root` down, until none of its children in the heap of `count` elements comes after it.
fn sift(all: &mut dyn Sorted, root: usize, count: usize) {
    let mut root = root;
    loop {
        let mut child = 2 * root + 1;
        if child >= count {
            return;
        }
        if child + 1 < count && all.is_before(child, child + 1) {
            child += 1;
        }
        if !all.is_before(root, child) {
            return;
        }
        all.swap(root, child);
        root = child;
    }
}
