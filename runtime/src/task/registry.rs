//! The list of all tasks.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use fallible::{Arc, OutOfMemory};

use super::{Task, TaskState, idle, scheduler};
use crate::sync::IrqLock;
use crate::time;

/// Every task that has been spawned and not released, sorted by number. The lock masks interrupts because
/// [`preempted_pcs`] takes it while other CPUs are held. That function iterates over the list, which must not panic.
static TASKS: IrqLock<Vec<Arc<Task>>> = IrqLock::new(Vec::new());

/// The initial capacity of the list. Up to that many tasks, the memory in use does not depend on how many tasks existed
/// at the same time, which is a matter of chance on several CPUs.
const ROOM: usize = 128;

/// Returns where the task with the number `id` is in `tasks`, or the index where it would be inserted.
fn place(tasks: &[Arc<Task>], id: u64) -> Result<usize, usize> {
    tasks.binary_search_by_key(&id, |task| task.id())
}

/// Adds a new task.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for a longer list.
pub fn add(task: Arc<Task>) -> Result<(), OutOfMemory> {
    let mut tasks = TASKS.lock();
    let more = if tasks.capacity() == 0 { ROOM } else { 1 };
    tasks.try_reserve(more)?;
    if let Err(index) = place(&tasks, task.id()) {
        tasks.insert(index, task);
    }
    Ok(())
}

/// Removes a task that is being released.
pub fn remove(task: &Task) {
    let mut tasks = TASKS.lock();
    let removed = place(&tasks, task.id()).ok().map(|index| tasks.remove(index));
    // The lock is released first, because dropping the reference may free the task.
    drop(tasks);
    drop(removed);
}

/// A task, as [`list`] returns it.
#[derive(Clone, Debug)]
pub struct TaskInfo {
    /// The task's number, which is never reused.
    pub id: u64,
    /// The task's full name.
    pub name: String,
    /// The state at the time of the listing.
    pub state: TaskState,
    /// The dense number of the CPU that the task belongs to.
    pub cpu: usize,
    /// The run time in nanoseconds, including the interrupts that the task took.
    pub run_time_ns: u64,
    /// How often the task has been switched to.
    pub turns: u64,
}

/// Returns all tasks that have not been released, including the idle tasks, sorted by number.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the list.
pub fn list() -> Result<Vec<TaskInfo>, OutOfMemory> {
    let tasks = fallible::collect(TASKS.lock().iter().cloned())?;
    let infos = idle::all().map(Task::info).chain(tasks.iter().map(|task| task.info()));
    let mut list = fallible::collect_results(infos)?;
    fallible::sort_by_key(&mut list, |task| task.id);
    Ok(list)
}

/// Returns whether a task with the number `id` has been spawned and not released.
#[must_use]
pub fn exists(id: u64) -> bool {
    idle::all().any(|task| task.id() == id) || place(&TASKS.lock(), id).is_ok()
}

/// Calls `f` with the task with the number `id` while the task does not run. Returns `None` if there is no such task,
/// and the dense number of its CPU as the error if the task runs. While `f` runs, the task's stack is not freed, the
/// task does not run, and interrupts are masked.
pub(crate) fn inspect_stopped<R>(id: u64, f: impl FnOnce(&Task) -> R) -> Option<Result<R, usize>> {
    if let Some(task) = idle::all().find(|task| task.id() == id) {
        return Some(scheduler::while_stopped(task, f));
    }
    let task = {
        let tasks = TASKS.lock();
        Arc::clone(tasks.get(place(&tasks, id).ok()?)?)
    };
    let stack = task.stack.lock();
    stack.as_ref().map(|_| scheduler::while_stopped(&task, f))
}

/// Calls `each` with the virtual address of the next instruction of every task that an interrupt preempted. Skips tasks
/// that gave up their CPU in a call.
///
/// The caller holds all other CPUs in a rendezvous. This function takes a lock that none of them can hold, allocates
/// nothing, and lies in the section that refuses probes.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.task_preempted_pcs")]
pub fn preempted_pcs(each: &mut dyn FnMut(usize)) {
    let mut report = |task: &Task| match task.preempted_at() {
        0 => {}
        pc => each(pc),
    };
    idle::all().for_each(&mut report);
    TASKS.with_inlined(|tasks| {
        for task in tasks.iter() {
            report(task);
        }
    });
}

impl Task {
    fn info(&self) -> Result<TaskInfo, OutOfMemory> {
        let state = self.state();
        let ticks = scheduler::run_ticks(self);
        let turns = self.turns.load(Ordering::Relaxed);
        let run_time_ns = u64::try_from(time::duration(ticks).as_nanos()).unwrap_or(u64::MAX);
        let name = fallible::copy(&self.name)?;
        Ok(TaskInfo { id: self.id(), name, state, cpu: self.cpu(), run_time_ns, turns })
    }
}
