//! The calls that have a recorded return, but no recorded entry, and where they begin.
//!
//! All records of a task in a call have a lower stack pointer than the call. A call therefore begins after the last
//! record of its task that is before the return and has no lower stack pointer. How long after is unknown; here it
//! begins at once, before the next record of the task. Without such a record, it surrounds the first record of the
//! task.
//!
//! Tail calls are the exception: they have the stack pointer of the call that they end. All these calls return at once,
//! with interrupts masked: the CPU records their returns one after the other, innermost first, with the same return
//! address. Such a row of returns tells which calls surround which others.

use alloc::vec::Vec;
use core::cmp::Reverse;

use fallible::OutOfMemory;

use super::{CallIdentity, CallRecord, PARENT, Record, STACK, Tasks};

/// A call whose entry was not recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unrecorded {
    /// The [`count`](Record::count) of the record before which it begins.
    pub before: u64,
    pub identity: CallIdentity,
    /// Whether it is a tail call of the call around it that has the same stack pointer.
    pub is_tail: bool,
    /// The [`count`](Record::count) of its return.
    returned: u64,
}

/// The records of a task, as far as they bound calls without an entry.
#[derive(Clone, Debug, Default)]
struct Task {
    /// The records that bound calls without an entry, in the order of their times. No stack pointer is higher than the
    /// one before it. If several are equal, all but the first belong to entries of tail calls.
    bounds: Vec<Bound>,
    /// The last record, if it is a return and other calls with its stack pointer may return together with it.
    row: Option<ReturnRow>,
}

/// A record that is not within any call that returns later and has this stack pointer or a lower one.
#[derive(Clone, Copy, Debug)]
struct Bound {
    stack: u64,
    /// The call whose entry the record is; `None` for a return.
    entry: Option<CallIdentity>,
    /// The count of the task's next record.
    next: Option<u64>,
}

/// The last of a row of returns.
#[derive(Clone, Copy, Debug)]
struct ReturnRow {
    cpu: usize,
    stack: u64,
    address: u64,
    /// The index of its call in the list, if the entry was not recorded.
    unrecorded: Option<usize>,
}

/// Returns the calls in `records` without a recorded entry. The last one begins first.
///
/// # Errors
///
/// There is no memory.
pub(super) fn find<'a>(
    records: impl Iterator<Item = Record<'a>>,
    call_record: impl Fn(&Record<'_>) -> Option<CallRecord>,
) -> Result<Vec<Unrecorded>, OutOfMemory> {
    let (mut tasks, mut found) = (Tasks::<Task>::default(), Vec::new());
    for record in records {
        let Some(call_record) = call_record(&record) else { continue };
        let task = tasks.of(&record)?;
        match call_record {
            CallRecord::Entry(entry) => task.enter(&record, entry.is_tail)?,
            CallRecord::Return => task.leave(&record, &mut found)?,
        }
    }
    // Of calls that begin together, the one with the highest stack pointer is the outermost. In a row, the call that
    // returns last is the outermost.
    fallible::sort_by_key(&mut found, |call| (Reverse(call.before), call.identity.stack, call.returned));
    Ok(found)
}

impl Task {
    fn enter(&mut self, record: &Record<'_>, is_tail: bool) -> Result<(), OutOfMemory> {
        self.end_row()?;
        self.precede(record)?;
        let identity = CallIdentity::of(record, is_tail);
        let is_kept = |bound: &Bound| bound.stack > identity.stack || is_tail && bound.stack == identity.stack;
        self.add(is_kept, identity.stack, Some(identity))
    }

    fn leave(&mut self, record: &Record<'_>, found: &mut Vec<Unrecorded>) -> Result<(), OutOfMemory> {
        let (cpu, stack, address) = (record.cpu, record.word(STACK), record.word(PARENT));
        let is_next = |row: &ReturnRow| (row.cpu, row.stack, row.address) == (cpu, stack, address);
        match self.row.filter(is_next) {
            // The call of the last return is a tail call of this one.
            Some(row) => {
                if let Some(inner) = row.unrecorded.and_then(|at| found.get_mut(at)) {
                    inner.is_tail = true;
                }
            }
            None => self.end_row()?,
        }
        self.precede(record)?;
        self.bounds.truncate(self.bounds.iter().rposition(|bound| bound.stack >= stack).map_or(0, |at| at + 1));
        let is_own = |bound: &Bound| bound.entry.is_some_and(|identity| identity.is_of_return(record));
        let own = self.bounds.iter().rposition(is_own);
        let entry = own.and_then(|at| self.bounds.get(at)?.entry);
        let mut unrecorded = None;
        if let Some(at) = own {
            self.bounds.truncate(at);
        } else {
            let before = self.bounds.last().and_then(|bound| bound.next).unwrap_or(record.count);
            let identity = CallIdentity::of(record, false);
            unrecorded = Some(found.len());
            fallible::push(found, Unrecorded { before, identity, is_tail: false, returned: record.count })?;
        }
        self.row = Some(ReturnRow { cpu, stack, address, unrecorded });
        // This was no tail call, so no other call returns together with it.
        if entry.is_some_and(|identity| identity.address.is_some()) { self.end_row() } else { Ok(()) }
    }

    /// Ends the row of returns: other calls with its stack pointer have ended.
    fn end_row(&mut self) -> Result<(), OutOfMemory> {
        let Some(ReturnRow { stack, .. }) = self.row.take() else { return Ok(()) };
        self.add(|bound| bound.stack > stack, stack, None)
    }

    /// Notes that `record` follows the last one.
    fn precede(&mut self, record: &Record<'_>) -> Result<(), OutOfMemory> {
        if self.bounds.is_empty() {
            // Before the first record.
            fallible::push(&mut self.bounds, Bound { stack: u64::MAX, entry: None, next: None })?;
        }
        if let Some(last) = self.bounds.last_mut() {
            last.next.get_or_insert(record.count);
        }
        Ok(())
    }

    /// Adds a bound after those that are kept.
    fn add(
        &mut self,
        is_kept: impl Fn(&Bound) -> bool,
        stack: u64,
        entry: Option<CallIdentity>,
    ) -> Result<(), OutOfMemory> {
        self.bounds.truncate(self.bounds.iter().rposition(is_kept).map_or(0, |at| at + 1));
        fallible::push(&mut self.bounds, Bound { stack, entry, next: None })
    }
}
