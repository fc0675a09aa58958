//! The calls that tasks are in, found from records of calls and returns in the order of their times.
//!
//! On one stack, a call is within another if its stack pointer is lower, because a caller saves its own return address
//! before it calls. A call with the same stack pointer comes after the other call, or is its tail call. A tail call has the
//! address of a trampoline of return probes as its return address. A call whose return was not recorded therefore ends
//! here when the next call begins that is not within it.
//!
//! A return without a recorded call whose stack pointer is above all that its task was seen with shows that its call surrounds
//! all known calls. Such a call is *unseen*. If its stack pointer is lower, its call was not recorded, but calls around it may
//! have been.

use alloc::vec::Vec;

use fallible::OutOfMemory;

use super::STACK;
use crate::ring::Record;

/// The maximum number of known tasks. Beyond it, a task that was not seen for long is forgotten.
const TASKS: usize = 256;

/// The calls that each task is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// The task that was seen last is the first.
    tasks: Vec<Task>,
}

#[derive(Clone, Debug, Default)]
struct Task {
    key: Key,
    /// The number of unseen calls.
    unseen: usize,
    /// The recorded calls, outermost first.
    open: Vec<Call>,
    /// The highest stack pointer of its records; 0 before the first.
    highest: u64,
    /// Whether its last record is the return of an unseen call.
    is_after_unseen: bool,
    /// The depth of the entry of an interrupt that the task is in.
    interrupt: Option<usize>,
}

/// A task by its number. Task 0 is the idle task of each CPU, and has the CPU besides.
type Key = (u32, usize);

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
struct Call {
    function: u64,
    stack: u64,
    time: u64,
}

/// The change that a record makes. It is computed first and made when the record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The number of calls that contain the call.
    pub depth: usize,
    /// For a return, the system counter at its call, if that was recorded.
    pub began: Option<u64>,
    /// The depth of the interrupt entry that the call is, or is within.
    pub interrupt: Option<usize>,
    /// The number of open calls that stay open.
    keep: usize,
    /// Whether it is the return of an unseen call.
    is_unseen: bool,
}

fn key(record: &Record<'_>) -> Key {
    let task = record.task();
    (task, if task == 0 { record.cpu } else { 0 })
}

impl Calls {
    /// Returns the state before the first of `records`: the unseen calls, whose returns are among these records.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn before<'a>(
        records: impl Iterator<Item = Record<'a>>,
        kind: impl Fn(&Record<'_>) -> Option<Kind>,
    ) -> Result<Self, OutOfMemory> {
        let (mut calls, mut before) = (Self::default(), Self::default());
        for record in records {
            match kind(&record) {
                Some(Kind::Return) => {
                    let step = calls.leave(&record);
                    if step.is_unseen {
                        before.task(key(&record))?.unseen += 1;
                    }
                    calls.has_left(&record, step)?;
                }
                Some(Kind::Entry(entry)) => {
                    let step = calls.enter(&record, entry);
                    calls.has_entered(&record, step)?;
                }
                None => {}
            }
        }
        Ok(before)
    }

    /// Computes the step of a call.
    pub fn enter(&self, record: &Record<'_>, Entry { is_tail, is_interrupt }: Entry) -> Step {
        let stack = record.word(STACK);
        let begun = |depth| is_interrupt.then_some(depth);
        let Some(task) = self.find(key(record)) else { return Step { interrupt: begun(0), ..Step::first() } };
        let is_around = |call: &Call| call.stack > stack || is_tail && call.stack == stack;
        let keep = task.open.iter().rposition(is_around).map_or(0, |at| at + 1);
        let depth = task.unseen + keep;
        let interrupt = task.interrupt.filter(|around| *around < depth).or(begun(depth));
        Step { depth, began: None, interrupt, keep, is_unseen: false }
    }

    /// Computes the step of a return.
    pub fn leave(&self, record: &Record<'_>) -> Step {
        let (function, stack) = (record.word(8), record.word(STACK));
        let Some(task) = self.find(key(record)) else { return Step { is_unseen: true, ..Step::first() } };
        // The return of the entry itself is part of the interrupt.
        let interrupt = |depth| task.interrupt.filter(|entry| *entry <= depth);
        let is_own = |call: &Call| call.stack == stack && call.function == function;
        if let Some(at) = task.open.iter().rposition(is_own) {
            let began = task.open.get(at).map(|call| call.time);
            let depth = task.unseen + at;
            return Step { depth, began, interrupt: interrupt(depth), keep: at, is_unseen: false };
        }
        let keep = task.open.iter().rposition(|call| call.stack >= stack).map_or(0, |at| at + 1);
        // An unseen call that has just returned may be the tail call of another.
        let is_above = stack > task.highest || task.is_after_unseen && stack == task.highest;
        let is_unseen = keep == 0 && is_above;
        let unseen = task.unseen.saturating_sub(usize::from(is_unseen));
        let depth = unseen + keep;
        Step { depth, began: None, interrupt: interrupt(depth), keep, is_unseen }
    }

    /// Makes the step of a call.
    ///
    /// # Errors
    ///
    /// There is no memory: the step was not made.
    pub fn has_entered(&mut self, record: &Record<'_>, step: Step) -> Result<(), OutOfMemory> {
        let task = self.task(key(record))?;
        task.open.truncate(step.keep);
        task.interrupt = step.interrupt;
        let call = Call { function: record.word(8), stack: record.word(STACK), time: record.time };
        fallible::push(&mut task.open, call)?;
        (task.highest, task.is_after_unseen) = (task.highest.max(call.stack), false);
        Ok(())
    }

    /// Makes the step of a return.
    ///
    /// # Errors
    ///
    /// There is no memory: the step was not made.
    pub fn has_left(&mut self, record: &Record<'_>, step: Step) -> Result<(), OutOfMemory> {
        let task = self.task(key(record))?;
        task.open.truncate(step.keep);
        task.interrupt = step.interrupt.filter(|entry| *entry < step.depth);
        task.unseen = task.unseen.saturating_sub(usize::from(step.is_unseen));
        (task.highest, task.is_after_unseen) = (task.highest.max(record.word(STACK)), step.is_unseen);
        Ok(())
    }

    fn find(&self, key: Key) -> Option<&Task> {
        self.tasks.iter().find(|task| task.key == key)
    }

    /// Returns the task after moving it to the front, or adding it.
    fn task(&mut self, key: Key) -> Result<&mut Task, OutOfMemory> {
        match self.tasks.iter().position(|task| task.key == key) {
            Some(at) => self.tasks[..=at].rotate_right(1),
            None => {
                self.tasks.truncate(TASKS - 1);
                fallible::push(&mut self.tasks, Task { key, ..Task::default() })?;
                self.tasks.rotate_right(1);
            }
        }
        self.tasks.first_mut().ok_or(OutOfMemory)
    }
}

impl Step {
    /// The step of a task of which nothing is known.
    const fn first() -> Self {
        Self { depth: 0, began: None, interrupt: None, keep: 0, is_unseen: false }
    }
}

/// A record that changes the calls of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A call.
    Entry(Entry),
    /// A return.
    Return,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Whether it is a tail call.
    pub is_tail: bool,
    /// Whether it is the entry of an interrupt.
    pub is_interrupt: bool,
}
