//! The calls that tasks are in, found from records of calls and returns in the order of their times.
//!
//! On one stack, a call is within another if its stack pointer is lower, because a caller saves its own return address
//! before it calls. A call with the same stack pointer comes after the other call, or is its tail call. A tail call has
//! the address of a trampoline of return probes as its return address. A call whose return was not recorded therefore
//! ends here when the next call begins that is not within it.
//!
//! A return without a recorded call shows that its task was in that call before. Each CPU has a ring, and the rings go
//! back to different times, so such a call can surround the task's first record or begin between any two.
//! [`unrecorded`] finds where these calls begin, from all records that will be read. Where that was not done, as for
//! `trace_pipe`, such a return closes nothing.

use alloc::vec::Vec;

use fallible::OutOfMemory;

use self::unrecorded::Unrecorded;
use super::{PARENT, STACK};
use crate::ring::Record;

mod unrecorded;

/// The maximum number of known tasks. Beyond it, a task that was not seen for long is forgotten.
const TASKS: usize = 256;

/// The calls that each task is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    tasks: Tasks<Task>,
    /// The calls without a recorded entry that have not begun. The last one begins first.
    unrecorded: Vec<Unrecorded>,
}

/// What is known of each task. The task that was seen last is the first.
#[derive(Clone, Debug, Default)]
struct Tasks<T>(Vec<(Key, T)>);

#[derive(Clone, Debug, Default)]
struct Task {
    /// The calls, outermost first.
    open: Vec<OpenCall>,
    /// The depth of the entry of an interrupt that the task is in.
    interrupt: Option<usize>,
}

/// A task by its number. Task 0 is the idle task of each CPU, and has the CPU besides.
type Key = (u32, usize);

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
struct OpenCall {
    identity: CallIdentity,
    /// The system counter at the entry, if that was recorded.
    began: Option<u64>,
}

/// The properties that the records of an entry and a return have in common if they belong to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CallIdentity {
    function: u64,
    stack: u64,
    /// The return address. `None` for a tail call: its entry has the address of a trampoline, its return the true
    /// address.
    address: Option<u64>,
}

/// The change that a record makes. It is computed first and made when the record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    /// The number of calls that contain the call. All others end.
    pub depth: usize,
    /// For a return, the system counter at its call, if that was recorded.
    pub began: Option<u64>,
    /// The depth of the interrupt entry that the call is, or is within.
    pub interrupt: Option<usize>,
}

fn key(record: &Record<'_>) -> Key {
    let task = record.task();
    (task, if task == 0 { record.cpu } else { 0 })
}

/// Returns whether the return `back` can be that of the call `entry` of the same task. A recursive call has another
/// stack pointer.
pub(crate) fn is_return_of(back: &Record<'_>, entry: &Record<'_>, is_tail: bool) -> bool {
    CallIdentity::of(entry, is_tail).is_of_return(back)
}

impl Calls {
    /// Creates the state before the first of `records`, which are then followed.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn before<'a>(
        records: impl Iterator<Item = Record<'a>>,
        call_record: impl Fn(&Record<'_>) -> Option<CallRecord>,
    ) -> Result<Self, OutOfMemory> {
        Ok(Self { tasks: Tasks::default(), unrecorded: unrecorded::find(records, call_record)? })
    }

    /// Begins the calls without a recorded entry that begin just before `record`. It does nothing when it is called
    /// again for that record.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory. Then it can be called again.
    pub fn reach(&mut self, record: &Record<'_>) -> Result<(), OutOfMemory> {
        while let Some(call) = self.unrecorded.last().filter(|call| call.before <= record.count) {
            // A call before a record that was not followed is dropped.
            if call.before == record.count {
                let task = self.tasks.of(record)?;
                let keep = surrounding(&task.open, call.identity.stack, call.is_tail);
                task.open.truncate(keep);
                task.interrupt = task.interrupt.filter(|entry| *entry < keep);
                fallible::push(&mut task.open, OpenCall { identity: call.identity, began: None })?;
            }
            self.unrecorded.pop();
        }
        Ok(())
    }

    /// Computes the transition of a call.
    pub fn enter(&self, record: &Record<'_>, CallEntry { is_tail, is_interrupt }: CallEntry) -> Transition {
        let task = self.tasks.find(record);
        let depth = task.map_or(0, |task| surrounding(&task.open, record.word(STACK), is_tail));
        let around = task.and_then(|task| task.interrupt).filter(|around| *around < depth);
        Transition { depth, began: None, interrupt: around.or(is_interrupt.then_some(depth)) }
    }

    /// Computes the transition of a return.
    pub fn leave(&self, record: &Record<'_>) -> Transition {
        let Some(task) = self.tasks.find(record) else { return Transition { depth: 0, began: None, interrupt: None } };
        let own = task.open.iter().rposition(|call| call.identity.is_of_return(record));
        let began = own.and_then(|at| task.open.get(at)).and_then(|call| call.began);
        // A call with the same stack pointer may have ended in the call that returns.
        let depth = own.unwrap_or_else(|| surrounding(&task.open, record.word(STACK), true));
        // The return of the entry itself is part of the interrupt.
        Transition { depth, began, interrupt: task.interrupt.filter(|entry| *entry <= depth) }
    }

    /// Makes the transition of a call.
    ///
    /// # Errors
    ///
    /// There is no memory: the transition was not made.
    pub fn has_entered(
        &mut self,
        record: &Record<'_>,
        entry: CallEntry,
        transition: Transition,
    ) -> Result<(), OutOfMemory> {
        let task = self.tasks.of(record)?;
        task.open.truncate(transition.depth);
        task.interrupt = transition.interrupt;
        let identity = CallIdentity::of(record, entry.is_tail);
        fallible::push(&mut task.open, OpenCall { identity, began: Some(record.time) })
    }

    /// Makes the transition of a return.
    ///
    /// # Errors
    ///
    /// There is no memory: the transition was not made.
    pub fn has_left(&mut self, record: &Record<'_>, transition: Transition) -> Result<(), OutOfMemory> {
        let task = self.tasks.of(record)?;
        task.open.truncate(transition.depth);
        task.interrupt = transition.interrupt.filter(|entry| *entry < transition.depth);
        Ok(())
    }
}

/// Returns the number of the calls in `open` that contain a call with the stack pointer `stack`, which may be a tail
/// call.
fn surrounding(open: &[OpenCall], stack: u64, is_tail: bool) -> usize {
    let is_around = |call: &OpenCall| call.identity.is_around(stack, is_tail);
    open.iter().rposition(is_around).map_or(0, |at| at + 1)
}

impl CallIdentity {
    /// Returns the identity of the call that `record` is of. For a return of unknown kind, `is_tail` is false.
    fn of(record: &Record<'_>, is_tail: bool) -> Self {
        let address = (!is_tail).then_some(record.word(PARENT));
        Self { function: record.word(8), stack: record.word(STACK), address }
    }

    /// Returns whether the call contains a call with the stack pointer `stack` that begins before it returns.
    fn is_around(&self, stack: u64, is_tail: bool) -> bool {
        self.stack > stack || is_tail && self.stack == stack
    }

    /// Returns whether `record` can be the return of the call.
    fn is_of_return(&self, record: &Record<'_>) -> bool {
        *self == Self::of(record, self.address.is_none())
    }
}

impl<T: Default> Tasks<T> {
    fn find(&self, record: &Record<'_>) -> Option<&T> {
        let key = key(record);
        self.0.iter().find(|(other, _)| *other == key).map(|(_, task)| task)
    }

    /// Returns the task of `record` after moving it to the front, or adding it.
    fn of(&mut self, record: &Record<'_>) -> Result<&mut T, OutOfMemory> {
        let key = key(record);
        match self.0.iter().position(|(other, _)| *other == key) {
            Some(at) => self.0[..=at].rotate_right(1),
            None => {
                self.0.truncate(TASKS - 1);
                fallible::push(&mut self.0, (key, T::default()))?;
                self.0.rotate_right(1);
            }
        }
        self.0.first_mut().map(|(_, task)| task).ok_or(OutOfMemory)
    }
}

/// The meaning of a record for the calls of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallRecord {
    /// A call.
    Entry(CallEntry),
    /// A return.
    Return,
}

/// The entry of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallEntry {
    /// Whether the call is a tail call.
    pub is_tail: bool,
    /// Whether the call is the entry of an interrupt.
    pub is_interrupt: bool,
}

#[cfg(all(test, not(loom)))]
mod tests;
