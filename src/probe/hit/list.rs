//! The calls in progress of a task, newest first. The list is linked through the instances, because nothing can be
//! allocated in the hit path.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use super::instance::Instance;
use crate::atomic::AtomicPtr;
use crate::exception::nofault;

/// The calls in progress of return-probed functions, for one task. The kernel keeps one in each task. Make it with
/// [`new`](Self::new): zeroed memory is not a valid list.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct TaskCalls(pub(super) List);

#[cfg(not(all(test, loom)))]
impl TaskCalls {
    /// Makes the calls of a task that has not run yet: none.
    #[must_use]
    pub const fn new() -> Self {
        Self(List::new())
    }
}

/// Whether a return probe was ever registered. Every list is empty until then.
static MAY_HAVE_CALLS: AtomicBool = AtomicBool::new(false);

impl TaskCalls {
    /// Moves these calls to the task `from`, which stops running, and those of the task `to`, which runs next, here.
    ///
    /// This is for a kernel whose TPIDR_EL1 leads to memory of the CPU, with `self` at
    /// [`Platform::CALLS_OFFSET`](crate::platform::Platform::CALLS_OFFSET) in it. Each task has a list of its own,
    /// which holds its calls while it does not run.
    ///
    /// # Safety
    ///
    /// `self` is the list of this CPU, and all of PSTATE.DAIF is masked. The calls of `from` are in it. Neither task
    /// runs on another CPU, and the scheduler orders what a task does on one CPU before what it does on the next.
    ///
    /// The caller changes to the stack of `to` next. No function that a return probe may follow is entered or left
    /// before that: what the caller calls lies in `.kprobes.text.*`.
    #[inline(always)]
    pub unsafe fn switch(&self, from: &Self, to: &Self) {
        from.0.first.store(self.0.first.load(Relaxed), Relaxed);
        self.0.first.store(to.0.first.load(Relaxed), Relaxed);
        to.0.first.store(END, Relaxed);
    }

    /// Records that calls may be followed from now on.
    pub(super) fn expect_calls() {
        // Relaxed: a task that has a call in its list has hit a probe, which was armed after this.
        MAY_HAVE_CALLS.store(true, Relaxed);
    }

    /// Returns whether `word`, read at the address of the `TaskCalls` of the calling task, can be the word of a list:
    /// that of an empty one or, if calls may be followed, the virtual address of an instance.
    ///
    /// # Safety
    ///
    /// If a return probe was registered, [`nofault::read`] may be called for the 24 bytes from the virtual address
    /// `word` on.
    #[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "used by `embedding`"))]
    #[inline(always)] // It is not part of the closed region that this module is in.
    pub(crate) unsafe fn is_list(word: usize) -> bool {
        // SAFETY: the contract of this function.
        unsafe { is_list(word, MAY_HAVE_CALLS.load(Relaxed)) }
    }

    /// Returns the calls of the task that runs on this CPU. For the hit path: elsewhere, the task may move or exit
    /// while the reference exists.
    #[cfg(target_os = "none")]
    #[inline(always)]
    pub(crate) fn current<'a>() -> &'a Self {
        let calls: *const Self;
        // SAFETY: `Platform::CALLS_OFFSET` guarantees that the `TaskCalls` of the running task is at that offset from
        // TPIDR_EL1. A task that runs has not been freed.
        unsafe {
            core::arch::asm!(
                "mrs {0}, tpidr_el1",
                "add {0}, {0}, #:lo12:kprobes_calls_offset",
                out(reg) calls,
                options(nomem, nostack, preserves_flags)
            );
            &*calls
        }
    }

    /// Returns the calls of the task that runs on this CPU.
    #[cfg(not(target_os = "none"))]
    pub(crate) fn current() -> &'static Self {
        tasks::calls_of(tasks::current())
    }
}

/// The tasks of the host's tests, which set the task that runs. In models, each thread sets its own.
#[cfg(not(target_os = "none"))]
pub(crate) mod tasks {
    use super::TaskCalls;

    const TASKS: usize = 4;

    #[cfg(not(all(test, loom)))]
    static CURRENT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(1);
    #[cfg(not(all(test, loom)))]
    static CALLS: [TaskCalls; TASKS] = [const { TaskCalls::new() }; TASKS];

    #[cfg(all(test, loom))]
    kprobes_models::loom::thread_local! {
        static CURRENT: core::cell::Cell<usize> = core::cell::Cell::new(0);
    }
    #[cfg(all(test, loom))]
    kprobes_models::loom::lazy_static! {
        static ref CALLS: [TaskCalls; TASKS] = Default::default();
    }

    /// Makes the task with this number the current task of this CPU.
    #[cfg(test)]
    pub fn switch_to(task: usize) {
        #[cfg(all(test, loom))]
        CURRENT.with(|current| current.set(task));
        #[cfg(not(all(test, loom)))]
        CURRENT.store(task, core::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the calls of the task with this number.
    pub fn calls_of(task: usize) -> &'static TaskCalls {
        &CALLS[task % TASKS]
    }

    /// Returns the number of the task that runs on this CPU.
    pub fn current() -> usize {
        #[cfg(all(test, loom))]
        return CURRENT.with(core::cell::Cell::get);
        #[cfg(not(all(test, loom)))]
        CURRENT.load(core::sync::atomic::Ordering::Relaxed)
    }
}

/// A list of instances. The list holds them: an instance in it is not given back, and is in no other list.
///
/// One CPU at a time changes it, with interrupts masked: the CPU that runs the task that owns the list. The kernel
/// orders what a task does on one CPU before what it does on the next, without which no task could migrate. So the
/// accesses need no order of their own.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct List {
    /// The newest call, or [`END`].
    first: AtomicPtr<Instance>,
}

/// Stands for the first two words of an instance, after the last instance of a list. No function returns with its stack
/// pointer, so the assembly need not look for the end.
static NO_CALL: [u64; 2] = [1, 0];
/// Ends a list.
const END: *mut Instance = (&raw const NO_CALL).cast::<Instance>().cast_mut();

/// Returns whether `word` can be the word of a list, in which there may be instances if `may_have_calls`.
///
/// # Safety
///
/// If `may_have_calls`, [`nofault::read`] may be called for the 24 bytes from the virtual address `word` on.
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "used by `embedding`"))]
#[inline(always)]
unsafe fn is_list(word: usize, may_have_calls: bool) -> bool {
    if word == END.addr() {
        return true;
    }
    // SAFETY: the contract of this function.
    let is_readable = |address| unsafe { nofault::read::<u64>(address) }.is_ok();
    // Up to the last field that is read when a call returns.
    may_have_calls && word != 0 && word.is_multiple_of(8) && is_readable(word) && is_readable(word + Instance::NEXT)
}

impl Default for List {
    fn default() -> Self {
        Self { first: AtomicPtr::new(END) }
    }
}

impl List {
    #[cfg(not(all(test, loom)))]
    pub(super) const fn new() -> Self {
        Self { first: AtomicPtr::new(END) }
    }

    /// Puts `instance`, which the caller holds, at the head.
    #[inline]
    pub(super) fn push(&self, instance: &Instance) {
        instance.next.store(self.first.load(Relaxed), Relaxed);
        self.first.store(ptr::from_ref(instance).cast_mut(), Relaxed);
    }

    /// Iterates over the instances, newest first. An instance may be given back as soon as the iterator has returned
    /// it.
    #[inline]
    pub(super) fn iter(&self) -> Iter<'_> {
        Iter { next: self.first.load(Relaxed), list: PhantomData }
    }

    /// Takes out `last`, which is in the list, and the newer instances that have ended. Returns them in the same order.
    #[inline]
    pub(super) fn take(&self, last: &Instance, has_ended: impl Fn(&Instance) -> bool) -> Self {
        let taken = Self::default();
        let (mut end_of_kept, mut end_of_taken) = (&self.first, &taken.first);
        for instance in self.iter() {
            let is_last = ptr::eq(instance, last);
            let end = if is_last || has_ended(instance) { &mut end_of_taken } else { &mut end_of_kept };
            end.store(ptr::from_ref(instance).cast_mut(), Relaxed);
            *end = &instance.next;
            if is_last {
                break;
            }
        }
        end_of_kept.store(last.next.load(Relaxed), Relaxed);
        end_of_taken.store(END, Relaxed);
        taken
    }

    /// Marks all instances as [abandoned](Instance::ABANDONED). Does nothing in zeroed memory, because a kernel may
    /// report before it has a list.
    #[inline]
    pub(super) fn abandon(&self) {
        if self.first.load(Relaxed).is_null() {
            return;
        }
        for instance in self.iter() {
            let pointer = instance.stack_pointer.load(Relaxed);
            instance.stack_pointer.store(pointer | Instance::ABANDONED, Relaxed);
        }
    }

    /// Takes out all instances.
    pub(super) fn take_all(&self) -> Self {
        let taken = Self::default();
        taken.first.store(self.first.load(Relaxed), Relaxed);
        self.first.store(END, Relaxed);
        taken
    }
}

/// Iterator over the instances of a list.
pub(super) struct Iter<'a> {
    next: *const Instance,
    list: PhantomData<&'a List>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Instance;

    #[inline]
    fn next(&mut self) -> Option<&'a Instance> {
        if ptr::eq(self.next, END) {
            return None;
        }
        // SAFETY: an instance, because it is not the end. An instance that was in a list after this CPU masked
        // interrupts is not freed before this CPU unmasks them, and remains an instance, whatever list it is in by
        // then.
        let instance = unsafe { &*self.next };
        self.next = instance.next.load(Relaxed);
        Some(instance)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::probe::hit::cpu::Cpu;
    use crate::probe::hit::instance::{Pool, test_pool};

    /// Returns the stack pointers of the instances in `list`, which the tests use as labels.
    fn labels(list: &List) -> Vec<u64> {
        list.iter().map(|instance| instance.stack_pointer.load(Relaxed)).collect()
    }

    fn list_of(pool: &Pool, labels: &[u64]) -> List {
        let list = List::new();
        for &label in labels.iter().rev() {
            let instance = pool.take(Cpu::of(0)).unwrap();
            instance.stack_pointer.store(label, Relaxed);
            list.push(instance);
        }
        list
    }

    #[test]
    fn the_newest_is_in_front() {
        let pool = test_pool(4, 0);
        let list = list_of(&pool, &[2, 1]);
        let instance = pool.take(Cpu::of(0)).unwrap();
        instance.stack_pointer.store(3, Relaxed);
        list.push(instance);
        assert_eq!(labels(&list), [3, 2, 1]);
    }

    #[test]
    fn the_newest_are_taken_in_order() {
        let pool = test_pool(4, 0);
        for (last, kept, taken) in [(1, &[2, 3][..], &[1][..]), (2, &[3], &[1, 2]), (3, &[], &[1, 2, 3])] {
            let list = list_of(&pool, &[1, 2, 3]);
            let last = list.iter().find(|instance| instance.stack_pointer.load(Relaxed) == last).unwrap();
            let out = list.take(last, |_| true);
            assert_eq!((labels(&list), labels(&out)), (kept.to_vec(), taken.to_vec()));
            list.iter().chain(out.iter()).for_each(|instance| pool.give_back(Cpu::of(0), instance));
        }
    }

    #[test]
    fn those_that_have_not_ended_are_kept_in_order() {
        let pool = test_pool(5, 0);
        for (last, kept, taken) in
            [(4, &[1, 3, 5][..], &[2, 4][..]), (5, &[1, 3], &[2, 4, 5]), (1, &[2, 3, 4, 5], &[1])]
        {
            let list = list_of(&pool, &[1, 2, 3, 4, 5]);
            let label = |instance: &Instance| instance.stack_pointer.load(Relaxed);
            let last = list.iter().find(|instance| label(instance) == last).unwrap();
            let out = list.take(last, |instance| label(instance) % 2 == 0);
            assert_eq!((labels(&list), labels(&out)), (kept.to_vec(), taken.to_vec()));
            list.iter().chain(out.iter()).for_each(|instance| pool.give_back(Cpu::of(0), instance));
        }
    }

    #[test]
    fn a_list_of_a_cpu_follows_the_task_that_runs() {
        let pool = test_pool(4, 0);
        let cpu = TaskCalls(list_of(&pool, &[2, 1]));
        let [first, second] = [TaskCalls::new(), TaskCalls(list_of(&pool, &[3]))];
        let all = || [&cpu, &first, &second].map(|calls| labels(&calls.0));
        // SAFETY: the lists are of no CPU.
        let switch = |from: &TaskCalls, to: &TaskCalls| unsafe { cpu.switch(from, to) };
        switch(&first, &second);
        assert_eq!(all(), [vec![3], vec![2, 1], vec![]]);
        let instance = pool.take(Cpu::of(0)).unwrap();
        instance.stack_pointer.store(4, Relaxed);
        cpu.0.push(instance);
        switch(&second, &second);
        assert_eq!(all(), [vec![4, 3], vec![2, 1], vec![]]);
        switch(&second, &first);
        assert_eq!(all(), [vec![2, 1], vec![], vec![4, 3]]);
    }

    /// The assembly compares the stack pointer at a return with that of the newest call.
    #[test]
    fn no_stack_pointer_is_that_of_an_abandoned_call() {
        let pool = test_pool(2, 0);
        let list = list_of(&pool, &[16, 32]);
        for _ in 0..2 {
            list.abandon();
            assert_eq!(labels(&list), [17, 33]);
        }
    }

    /// Zeroes, and any other data, are not the calls of a task: the first hit would follow them.
    #[test]
    fn the_word_of_a_list_is_told_from_other_data() {
        let pool = test_pool(1, 0);
        let (empty, list) = (List::new(), list_of(&pool, &[16]));
        let word_of = |list: &List| list.first.load(Relaxed).expose_provenance();
        let [number, data] = [&7_u64, &8].map(|word| ptr::from_ref(word).expose_provenance());
        // SAFETY: all that is not null is the address of memory, if it is aligned.
        let check = |word, may_have_calls| unsafe { is_list(word, may_have_calls) };
        for may_have_calls in [false, true] {
            assert!(check(word_of(&empty), may_have_calls));
            assert!(!check(0, may_have_calls) && !check(word_of(&list) + 4, may_have_calls));
        }
        assert!(check(word_of(&list), true) && !check(word_of(&list), false));
        assert!(!check(number, false) && !check(data, false));
    }

    #[test]
    fn all_are_taken_in_order() {
        let pool = test_pool(3, 0);
        let list = list_of(&pool, &[1, 2, 3]);
        assert_eq!((labels(&list.take_all()), labels(&list)), (vec![1, 2, 3], vec![]));
        assert_eq!(labels(&list.take_all()), []);
    }
}
