//! The tasks of a restriction that children inherit: looked up at a hit, and changed when a task starts or ends.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::trigger::inherited_tasks::{Bucket, ENDED, InheritedTasks, NONE, TaskSet};

impl InheritedTasks {
    /// Whether hits of this task are recorded.
    #[inline]
    pub(crate) fn accepts(&self, task: u32) -> bool {
        self.only.as_ref().is_none_or(|only| only.has(task)) && !self.without.has(task)
    }

    /// Has `child` inherit the restriction of `parent`, which starts it. A child that finds no place does not inherit
    /// the restriction.
    #[inline]
    pub(crate) fn starts(&self, parent: u32, child: u32) {
        for set in self.only.iter().chain([&self.without]) {
            // An earlier task with this number has ended.
            set.replace(child, NONE);
            if set.has(parent) && !set.insert(child) {
                // Relaxed: the number is only shown.
                self.lost.fetch_add(1, Relaxed);
            }
        }
    }

    /// Marks a task that ends: no task inherits from it any more, and its place may be taken.
    #[inline]
    pub(crate) fn ends(&self, task: u32) {
        for set in self.only.iter().chain([&self.without]) {
            set.replace(task, task | ENDED);
        }
    }
}

impl TaskSet {
    #[inline]
    fn bucket(&self, task: u32) -> &[AtomicU32] {
        let number = (task as usize).checked_rem(self.0.len()).unwrap_or(0);
        self.0.get(number).map_or(&[][..], |Bucket(places)| &places[..])
    }

    #[inline]
    pub(crate) fn has(&self, task: u32) -> bool {
        let is_it = |place: u32| place != NONE && (place == task || place == task | ENDED);
        self.bucket(task).iter().any(|place| is_it(place.load(Relaxed)))
    }

    /// Adds a task. Returns false if there is no place for it.
    #[inline]
    pub(crate) fn insert(&self, task: u32) -> bool {
        // Only its parent adds a task, so no task is added twice at the same time.
        let take = |place: &AtomicU32| {
            let before = place.load(Relaxed);
            before & ENDED != 0 && place.compare_exchange(before, task, Relaxed, Relaxed).is_ok()
        };
        self.has(task) || self.bucket(task).iter().any(take)
    }

    /// Puts `other` in the place of a task, whether it has ended or not.
    #[inline]
    fn replace(&self, task: u32, other: u32) {
        for place in self.bucket(task) {
            let before = place.load(Relaxed);
            // If another task has taken the place meanwhile, `task` is gone anyway.
            if before != NONE && before & !ENDED == task {
                let _ = place.compare_exchange(before, other, Relaxed, Relaxed);
            }
        }
    }
}
