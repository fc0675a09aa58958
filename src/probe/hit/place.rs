//! A place on a stack, and which of the calls that a task is in belongs to it.
//!
//! A task may have several stacks, as where it runs fibers. Its calls are in one list, newest first, in which those of all
//! its stacks are mixed; only on one stack a newer call lies lower. [`Platform::stack`](crate::platform::Platform::stack)
//! tells stacks apart where it knows them. Where it does not, nothing here takes two calls to be on the same one.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use super::instance::Instance;
use super::list::List;
use super::trampoline;
use crate::platform;

/// A stack pointer, and the stack that it is in, if that is known.
pub(super) struct Place {
    pointer: u64,
    stack: Option<Range<usize>>,
}

impl Place {
    #[inline]
    pub(super) fn of(pointer: u64) -> Self {
        Self { pointer, stack: platform::stack(pointer as usize) }
    }

    /// Whether a stack pointer is known to be in the same stack.
    #[inline]
    pub(super) fn is_on_its_stack(&self, pointer: u64) -> bool {
        self.stack.as_ref().is_some_and(|stack| pointer > stack.start as u64 && pointer <= stack.end as u64)
    }

    /// The call that a return with this stack pointer ends, or the oldest of those that it ends: the one which has the true
    /// return address.
    ///
    /// It is the newest that was entered with the stack pointer. If none was, the function has not restored it: then it is
    /// the newest on the stack, or, where none is known to be there, of the task.
    pub(super) fn returned<'a>(&self, calls: &'a List) -> Option<&'a Instance> {
        let has_address = |call: &&Instance| !trampoline::is_kretprobe(call.return_address.load(Relaxed));
        let fits = |call: &&Instance| call.stack_pointer.load(Relaxed) == self.pointer;
        let is_near = |call: &&Instance| self.is_on_its_stack(call.stack_pointer.load(Relaxed));
        let calls = || calls.iter().filter(has_address);
        calls().find(fits).or_else(|| calls().find(is_near)).or_else(|| calls().next())
    }

    /// The true return address of the call that was entered with the next higher stack pointer, or this one: on the stack, if
    /// it is known, that of the newest such call; otherwise that of the lowest one, as nothing of another stack is between.
    pub(super) fn true_return_address(&self, calls: &List) -> Option<u64> {
        let mut lowest: Option<(u64, u64)> = None;
        for call in calls.iter() {
            let (pointer, address) = (call.stack_pointer.load(Relaxed), call.return_address.load(Relaxed));
            if pointer < self.pointer || trampoline::is_kretprobe(address) {
                continue;
            }
            if self.is_on_its_stack(pointer) {
                return Some(address);
            }
            if self.stack.is_none() && lowest.is_none_or(|(other, _)| pointer < other) {
                lowest = Some((pointer, address));
            }
        }
        lowest.map(|(_, address)| address)
    }
}
