//! The calls in progress of some tasks, newest first: a list through the instances themselves, since nothing
//! can be allocated where it grows.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use super::instance::Instance;

/// A list of instances, which are held by it: none is given back, or is in another list, while it is in this one.
#[derive(Debug)]
pub(super) struct List {
    first: *mut Instance,
}

/// Whether an instance is to be taken out of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    No,
    Yes,
    /// It is, and it is the last one.
    Last,
}

impl List {
    pub(super) const fn new() -> Self {
        Self { first: ptr::null_mut() }
    }

    /// Puts `instance`, which is held by the caller, in front.
    pub(super) fn push(&mut self, instance: &Instance) {
        instance.next.store(self.first, Relaxed);
        self.first = ptr::from_ref(instance).cast_mut();
    }

    /// Takes out the newest instance, if it `is_wanted`.
    #[inline]
    pub(super) fn pop_if<'a>(&mut self, is_wanted: impl FnOnce(&Instance) -> bool) -> Option<&'a Instance> {
        // SAFETY: the list holds its instances, so they exist; it is then held by the caller.
        let instance = unsafe { self.first.as_ref() }?;
        if !is_wanted(instance) {
            return None;
        }
        self.first = instance.next.load(Relaxed);
        Some(instance)
    }

    /// The instances, newest first. Each may be given back as soon as it has been returned.
    pub(super) fn iter(&self) -> Iter<'_> {
        Iter { next: self.first, list: PhantomData }
    }

    /// Takes out the instances that are `wanted`; the others stay in their order. What was taken is returned in
    /// the same order.
    pub(super) fn take(&mut self, mut wanted: impl FnMut(&Instance) -> Wanted) -> Self {
        let mut taken = Self::new();
        let mut last_taken: Option<&Instance> = None;
        let mut last_kept: Option<&Instance> = None;
        for instance in (Self { first: self.first }).iter() {
            let answer = wanted(instance);
            if answer == Wanted::No {
                last_kept = Some(instance);
                continue;
            }
            let next = instance.next.load(Relaxed);
            match last_kept {
                Some(kept) => kept.next.store(next, Relaxed),
                None => self.first = next,
            }
            instance.next.store(ptr::null_mut(), Relaxed);
            let pointer = ptr::from_ref(instance).cast_mut();
            match last_taken {
                Some(last) => last.next.store(pointer, Relaxed),
                None => taken.first = pointer,
            }
            last_taken = Some(instance);
            if answer == Wanted::Last {
                break;
            }
        }
        taken
    }
}

/// The instances of a list.
pub(super) struct Iter<'a> {
    next: *const Instance,
    list: PhantomData<&'a List>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Instance;

    #[inline]
    fn next(&mut self) -> Option<&'a Instance> {
        // SAFETY: the list holds its instances, so they exist; it is borrowed, so none has been taken out but
        // by whoever was given it here, after its successor was read.
        let instance = unsafe { self.next.as_ref() }?;
        self.next = instance.next.load(Relaxed);
        Some(instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::hit::cpu::Cpu;
    use crate::probe::hit::instance::Pool;
    use crate::probe::kretprobe::make_pool;

    /// The tasks of the instances in `list`, which the tests use as labels.
    fn tasks(list: &List) -> Vec<u64> {
        list.iter().map(|instance| instance.task.load(Relaxed)).collect()
    }

    fn list_of(pool: &Pool, tasks: &[u64]) -> List {
        let mut list = List::new();
        for &task in tasks.iter().rev() {
            let instance = pool.take(Cpu::of(0)).unwrap();
            instance.task.store(task, Relaxed);
            list.push(instance);
        }
        list
    }

    #[test]
    fn the_newest_is_in_front() {
        let pool = make_pool(4, 0).unwrap();
        let mut list = list_of(&pool, &[2, 1]);
        let instance = pool.take(Cpu::of(0)).unwrap();
        instance.task.store(3, Relaxed);
        list.push(instance);
        assert_eq!(tasks(&list), [3, 2, 1]);
    }

    #[test]
    fn what_is_wanted_is_taken_in_order() {
        let pool = make_pool(8, 0).unwrap();
        for (all, wanted, kept, taken) in [
            (&[1, 2, 1, 2, 1][..], 1, &[2, 2][..], &[1, 1, 1][..]),
            (&[1, 2, 1, 2, 1], 2, &[1, 1, 1], &[2, 2]),
            (&[1, 1], 1, &[], &[1, 1]),
            (&[1, 1], 2, &[1, 1], &[]),
            (&[], 1, &[], &[]),
        ] {
            let mut list = list_of(&pool, all);
            let out =
                list.take(|instance| if instance.task.load(Relaxed) == wanted { Wanted::Yes } else { Wanted::No });
            assert_eq!((tasks(&list), tasks(&out)), (kept.to_vec(), taken.to_vec()), "{wanted} of {all:?}");
            list.iter().chain(out.iter()).for_each(|instance| pool.give_back(Cpu::of(0), instance));
        }
    }

    #[test]
    fn nothing_is_taken_behind_the_last() {
        let pool = make_pool(4, 0).unwrap();
        let mut list = list_of(&pool, &[1, 2, 1, 2]);
        let out = list.take(|instance| match instance.task.load(Relaxed) {
            2 => Wanted::Last,
            _ => Wanted::No,
        });
        assert_eq!((tasks(&list), tasks(&out)), (vec![1, 1, 2], vec![2]));
    }
}
