//! The tasks of a restriction whose children follow them: looked up at a hit, and changed when a task starts or ends.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::trigger::followed::{Bucket, Followed, NONE, TaskSet};

impl Followed {
    /// Whether hits of this task are recorded.
    #[inline]
    pub(crate) fn accepts(&self, task: u32) -> bool {
        self.only.as_ref().is_none_or(|only| only.has(task)) && !self.without.has(task)
    }

    /// Has `child` follow `parent`, which starts it. A child that finds no place does not follow.
    #[cfg(any(target_os = "none", all(test, not(loom))))]
    #[inline]
    pub(crate) fn starts(&self, parent: u32, child: u32) {
        for set in self.only.iter().chain([&self.without]) {
            if set.has(parent) {
                set.insert(child);
            }
        }
    }

    /// Forgets a task that ends: its number may be used again.
    #[cfg(any(target_os = "none", all(test, not(loom))))]
    #[inline]
    pub(crate) fn ends(&self, task: u32) {
        for set in self.only.iter().chain([&self.without]) {
            set.remove(task);
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
        self.bucket(task).iter().any(|place| place.load(Relaxed) == task)
    }

    /// Adds a task. Returns false if there is no place for it.
    #[inline]
    pub(crate) fn insert(&self, task: u32) -> bool {
        // Only the task that starts it adds it, so it is not added twice at once.
        let take = |place: &AtomicU32| place.compare_exchange(NONE, task, Relaxed, Relaxed).is_ok();
        self.has(task) || self.bucket(task).iter().any(take)
    }

    #[cfg(any(target_os = "none", all(test, not(loom))))]
    #[inline]
    fn remove(&self, task: u32) {
        for place in self.bucket(task) {
            // Whoever starts meanwhile takes a place that is empty, and not this one.
            if place.load(Relaxed) == task {
                place.store(NONE, Relaxed);
            }
        }
    }
}
