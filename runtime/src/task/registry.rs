//! The tasks that exist.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use fallible::{Arc, OutOfMemory};

use super::{State, Task, idle, scheduler};
use crate::sync::IrqLock;
use crate::time;

/// Every task that has been spawned and not been released, sorted by number. The lock masks interrupts, as
/// [`preempted_pcs`] takes it while other CPUs are held; and goes through them, which must not panic.
static TASKS: IrqLock<Vec<Arc<Task>>> = IrqLock::new(Vec::new());

/// How many tasks have room in the list from the start: up to there, what memory is in use does not depend on how many
/// tasks existed at a time, which on several CPUs is a matter of chance.
const ROOM: usize = 128;

/// Where the task with the number `id` is among `tasks`, or would be.
fn place(tasks: &[Arc<Task>], id: u64) -> Result<usize, usize> {
    tasks.binary_search_by_key(&id, |task| task.id())
}

/// Makes a new task known.
///
/// # Errors
///
/// There is no memory for a longer list.
pub fn add(task: Arc<Task>) -> Result<(), OutOfMemory> {
    let mut tasks = TASKS.lock();
    let more = if tasks.capacity() == 0 { ROOM } else { 1 };
    tasks.try_reserve(more)?;
    if let Err(index) = place(&tasks, task.id()) {
        tasks.insert(index, task);
    }
    Ok(())
}

/// Forgets a task that is released.
pub fn remove(task: &Task) {
    let mut tasks = TASKS.lock();
    let removed = place(&tasks, task.id()).ok().map(|index| tasks.remove(index));
    // The task is freed when the lock is.
    drop(tasks);
    drop(removed);
}

/// What [`list`] tells of a task.
#[derive(Clone, Debug)]
pub struct TaskInfo {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// The dense number of the CPU that it belongs to.
    pub cpu: usize,
    /// For how long it has run, in nanoseconds, interrupts that it was interrupted by included.
    pub run_time_ns: u64,
    /// How often it has been switched to.
    pub turns: u64,
}

/// All tasks that have not been released, the idle ones included, by number.
///
/// # Errors
///
/// There is no memory for the list.
pub fn list() -> Result<Vec<TaskInfo>, OutOfMemory> {
    let tasks = fallible::collect(TASKS.lock().iter().cloned())?;
    let infos = idle::all().map(Task::info).chain(tasks.iter().map(|task| task.info()));
    let mut list = fallible::collect_results(infos)?;
    list.sort_unstable_by_key(|task| task.id);
    Ok(list)
}

/// Calls `f` with the task with the number `id`, if there is one, or returns the dense number of the CPU that it runs on. While `f`
/// runs, the task's stack is not freed, the task does not run, and interrupts are masked.
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

/// Calls `each` with the virtual address of the next instruction of every task that was preempted by an interrupt, not one
/// that gave up its CPU in a call. To be called while all other CPUs are held in a rendezvous: it takes a lock that none
/// of them can have, and allocates nothing. It lies with the code that refuses probes.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.task_preempted_pcs")]
pub fn preempted_pcs(each: &mut dyn FnMut(usize)) {
    let mut tell = |task: &Task| match task.preempted_at() {
        0 => {}
        pc => each(pc),
    };
    idle::all().for_each(&mut tell);
    TASKS.with_inlined(|tasks| {
        for task in tasks.iter() {
            tell(task);
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
