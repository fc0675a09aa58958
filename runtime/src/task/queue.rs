//! A queue of tasks that needs no memory: the tasks themselves are linked.
//!
//! A task may be queued by an interrupt handler, or by a caller of the allocator; neither may allocate. A queue has no
//! lock of its own: it lies within the data of one.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use fallible::Arc;

use super::Task;

/// Tasks, first in first out, or ordered by the user of [`insert`](Self::insert).
///
/// A task is in one queue at most. The queue shares the ownership of its tasks.
pub struct Queue {
    first: Option<Arc<Task>>,
    /// The last task, if there is a first.
    last: *const Task,
    length: usize,
}

// SAFETY: `last` points to a task that the queue itself keeps alive, and tasks may be used by any CPU.
unsafe impl Send for Queue {}

/// The part of a task that belongs to the queue it is in.
pub struct Link {
    next: UnsafeCell<Option<Arc<Task>>>,
    queued: AtomicBool,
}

// SAFETY: `next` is accessed only by the queue that has set `queued`, under its `&mut self`.
unsafe impl Sync for Link {}

impl Link {
    /// Of a task that is in no queue.
    pub const fn new() -> Self {
        Self { next: UnsafeCell::new(None), queued: AtomicBool::new(false) }
    }
}

impl Queue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { first: None, last: ptr::null(), length: 0 }
    }

    /// Whether there is no task in it.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// How many tasks are in it.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// The first task.
    pub fn first(&self) -> Option<&Task> {
        self.first.as_deref()
    }

    /// Adds `task` behind all others.
    pub fn push(&mut self, task: Arc<Task>) {
        task.link.claim();
        let address = Arc::as_ptr(&task);
        let place = if self.is_empty() {
            &mut self.first
        } else {
            // SAFETY: `last` is in this queue, which keeps it alive and has its link to itself.
            unsafe { &mut *(*self.last).link.next.get() }
        };
        *place = Some(task);
        self.last = address;
        self.length += 1;
    }

    /// Adds `task` before the first one that is `later`, so behind those that are not.
    pub fn insert(&mut self, task: Arc<Task>, later: impl Fn(&Task) -> bool) {
        let (place, _) = self.find(later);
        if place.is_none() {
            return self.push(task);
        }
        task.link.claim();
        let rest = place.take();
        // SAFETY: claimed just now, so no other queue touches the link.
        unsafe { *task.link.next.get() = rest };
        *place = Some(task);
        self.length += 1;
    }

    /// Removes and returns the first task.
    pub fn pop(&mut self) -> Option<Arc<Task>> {
        let task = self.first.take()?;
        // SAFETY: the task was in this queue until now, and is released below.
        self.first = unsafe { (*task.link.next.get()).take() };
        task.link.queued.store(false, Ordering::Release);
        self.length -= 1;
        Some(task)
    }

    /// Removes and returns `task`, if it is in this queue.
    pub fn remove(&mut self, task: &Task) -> Option<Arc<Task>> {
        let (place, previous) = self.find(|other| ptr::eq(other, task));
        let task = place.take()?;
        // SAFETY: the task was in this queue until now, and is released below.
        *place = unsafe { (*task.link.next.get()).take() };
        if place.is_none() {
            self.last = previous;
        }
        task.link.queued.store(false, Ordering::Release);
        self.length -= 1;
        Some(task)
    }

    /// The place of the first task that is `wanted`, or that behind all others; and the task before it, or null.
    fn find(&mut self, wanted: impl Fn(&Task) -> bool) -> (&mut Option<Arc<Task>>, *const Task) {
        let mut previous = ptr::null();
        let mut place = &mut self.first;
        while place.as_deref().is_some_and(|other| !wanted(other)) {
            if let Some(other) = place {
                previous = Arc::as_ptr(other);
                // SAFETY: `other` is in this queue, which has its link to itself, and `place` moves on to it.
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
