//! A queue of tasks that needs no memory of its own: the tasks themselves are linked.
//!
//! Interrupt handlers and callers of the allocator put tasks into queues, and neither may allocate. A queue has no lock
//! of its own. It is part of data that a lock protects.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use fallible::Arc;

use super::Task;

/// Tasks in order: first in, first out, or as the callers of [`insert`](Self::insert) order them.
///
/// A task is in at most one queue. The queue shares ownership of its tasks.
pub struct Queue {
    first: Option<Arc<Task>>,
    /// The last task. Valid if `first` is `Some`.
    last: *const Task,
    length: usize,
}

// SAFETY: `last` points to a task that this queue keeps alive, and any CPU may use a task.
unsafe impl Send for Queue {}

/// The part of a task that belongs to the queue that the task is in.
pub struct Link {
    next: UnsafeCell<Option<Arc<Task>>>,
    queued: AtomicBool,
}

// SAFETY: only the queue that has set `queued` accesses `next`, under its `&mut self`.
unsafe impl Sync for Link {}

impl Link {
    /// Creates the link of a task that is in no queue.
    pub const fn new() -> Self {
        Self { next: UnsafeCell::new(None), queued: AtomicBool::new(false) }
    }
}

impl Queue {
    /// Creates an empty queue.
    pub const fn new() -> Self {
        Self { first: None, last: ptr::null(), length: 0 }
    }

    /// Returns whether the queue has no task.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns the number of tasks in the queue.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns the first task.
    pub fn first(&self) -> Option<&Task> {
        self.first.as_deref()
    }

    /// Adds `task` after all others. Panics if it is in a queue already.
    pub fn push(&mut self, task: Arc<Task>) {
        task.link.claim();
        let address = Arc::as_ptr(&task);
        let place = if self.is_empty() {
            &mut self.first
        } else {
            // SAFETY: `last` is in this queue, which keeps it alive and alone accesses its link.
            unsafe { &mut *(*self.last).link.next.get() }
        };
        *place = Some(task);
        self.last = address;
        self.length += 1;
    }

    /// Adds `task` before the first task that is `later`, or at the end. Panics if it is in a queue already.
    pub fn insert(&mut self, task: Arc<Task>, later: impl Fn(&Task) -> bool) {
        let (place, _) = self.find(later);
        if place.is_none() {
            return self.push(task);
        }
        task.link.claim();
        let rest = place.take();
        // SAFETY: `claim` has just reserved the link, so no other queue accesses it.
        unsafe { *task.link.next.get() = rest };
        *place = Some(task);
        self.length += 1;
    }

    /// Removes and returns the first task.
    pub fn pop(&mut self) -> Option<Arc<Task>> {
        let task = self.first.take()?;
        // SAFETY: the task was in this queue until now, and `queued` is cleared only below.
        self.first = unsafe { (*task.link.next.get()).take() };
        task.link.queued.store(false, Ordering::Release);
        self.length -= 1;
        Some(task)
    }

    /// Removes and returns `task`, if it is in this queue.
    pub fn remove(&mut self, task: &Task) -> Option<Arc<Task>> {
        let (place, previous) = self.find(|other| ptr::eq(other, task));
        let task = place.take()?;
        // SAFETY: the task was in this queue until now, and `queued` is cleared only below.
        *place = unsafe { (*task.link.next.get()).take() };
        if place.is_none() {
            self.last = previous;
        }
        task.link.queued.store(false, Ordering::Release);
        self.length -= 1;
        Some(task)
    }

    /// Finds the slot of the first task that is `wanted`, or the empty slot at the end. Also returns the task before
    /// it, or null.
    fn find(&mut self, wanted: impl Fn(&Task) -> bool) -> (&mut Option<Arc<Task>>, *const Task) {
        let mut previous = ptr::null();
        let mut place = &mut self.first;
        while place.as_deref().is_some_and(|other| !wanted(other)) {
            if let Some(other) = place {
                previous = Arc::as_ptr(other);
                // SAFETY: `other` is in this queue, which alone accesses its link, and `place` no longer borrows the
                // earlier slot.
                place = unsafe { &mut *other.link.next.get() };
            }
        }
        (place, previous)
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl Link {
    fn claim(&self) {
        assert!(!self.queued.swap(true, Ordering::Acquire), "a task was put into two queues");
    }
}
