//! Determines which of a task's calls a stack pointer belongs to.
//!
//! A task may have several stacks, for example if it runs fibers. Its calls are in one list, newest first, in which the
//! calls on all its stacks are mixed. Only on the same stack does a newer call lie lower.
//! [`Platform::stack`](crate::platform::Platform::stack) tells stacks apart, if it knows them. If it does not, no two
//! calls are taken to be on the same stack.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use super::instance::Instance;
use super::list::List;
use super::trampoline;
use crate::kernel;

/// Returns the stack that contains the stack pointer `pointer`, a virtual address, as
/// [`Platform::stack`](crate::platform::Platform::stack) knows it. Handlers may call it.
#[inline(always)]
#[must_use]
pub fn stack_around(pointer: usize) -> Option<Range<usize>> {
    kernel::stack(pointer)
}

/// A stack pointer, and the stack that contains it, if that is known.
pub(super) struct StackPosition {
    pointer: u64,
    stack: Option<Range<usize>>,
}

impl StackPosition {
    #[inline]
    pub(super) fn of(pointer: u64) -> Self {
        Self { pointer, stack: kernel::stack(pointer as usize) }
    }

    /// Returns the same position, among calls that are [abandoned](Instance::ABANDONED) if `is_abandoned`.
    #[inline]
    pub(super) fn among_abandoned(self, is_abandoned: bool) -> Self {
        let mark = if is_abandoned { Instance::ABANDONED } else { 0 };
        Self { pointer: self.pointer | mark, ..self }
    }

    /// Returns whether a stack pointer, which may be marked as abandoned, is known to be on the same stack.
    #[inline]
    pub(super) fn is_on_its_stack(&self, pointer: u64) -> bool {
        let pointer = pointer & !Instance::ABANDONED;
        self.stack.as_ref().is_some_and(|stack| pointer > stack.start as u64 && pointer <= stack.end as u64)
    }

    /// Returns the call that a return with this stack pointer ends. If it ends several, returns the oldest of them,
    /// which has the true return address.
    ///
    /// It is the newest call that was entered with this stack pointer. If there is none, the function has not restored
    /// its stack pointer: then it is the newest call on the stack, or, if no call is known to be on that stack, the
    /// newest of the task.
    pub(super) fn returned<'a>(&self, calls: &'a List) -> Option<&'a Instance> {
        let has_address = |call: &&Instance| !trampoline::is_kretprobe(call.return_address.load(Relaxed));
        let fits = |call: &&Instance| call.stack_pointer.load(Relaxed) == self.pointer;
        let is_near = |call: &&Instance| self.is_on_its_stack(call.stack_pointer.load(Relaxed));
        let calls = || calls.iter().filter(has_address);
        calls().find(fits).or_else(|| calls().find(is_near)).or_else(|| calls().next())
    }

    /// Returns the true return address of the call that was entered with this stack pointer, or with the next higher
    /// one. If the stack is known, that is the newest such call on the stack; otherwise it is the one with the lowest
    /// stack pointer, on the assumption that no other stack lies in between.
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
