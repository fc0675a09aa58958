//! Tasks whose children inherit a restriction: the options `event-fork` and `function-fork`.
//!
//! A filter cannot change at a hit. So where children inherit it, the tasks are kept in sets of a fixed size that the
//! starts and ends of tasks change.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use fallible::{Arc, OutOfMemory};

use super::restriction::{Restriction, Tasks};

/// The tasks of a restriction, with the children that have inherited it.
#[derive(Debug)]
pub struct InheritedTasks {
    /// Only these tasks are recorded; `None` records all.
    pub(crate) only: Option<TaskSet>,
    /// These tasks are not recorded.
    pub(crate) without: TaskSet,
    /// The number of children that have not inherited the restriction, because there was no place for them.
    pub(crate) lost: AtomicU64,
}

/// Numbers of tasks. Each is in the bucket that its remainder names, so that a hit looks at one bucket.
///
/// A task that has ended stays until its place is taken, or until its number is another task's: the end is an event
/// itself, and so is the switch to the next task.
#[derive(Debug)]
pub(crate) struct TaskSet(pub(crate) Box<[Bucket]>);

/// Tasks, tasks with the mark [`ENDED`], or [`NONE`].
#[derive(Debug)]
pub(crate) struct Bucket(pub(crate) [AtomicU32; WAYS]);

/// A place without a task.
pub(crate) const NONE: u32 = u32::MAX;
/// The mark of a task that has ended. The numbers of tasks do not have this bit.
pub(crate) const ENDED: u32 = 1 << 31;
const WAYS: usize = 8;
const BUCKETS: usize = 128;
/// The maximum number of buckets for each task of a restriction, so that unusual task numbers do not take all memory.
const BUCKETS_OF_ONE: usize = 64;

impl InheritedTasks {
    /// Returns the tasks of `restriction`; `None` if it has none, or if their children do not inherit it.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the sets.
    pub fn of(restriction: &Restriction) -> Result<Option<Arc<Self>>, OutOfMemory> {
        let Restriction { only, without, .. } = restriction;
        if !restriction.is_inherited() {
            return Ok(None);
        }
        let only = only.as_ref().map(TaskSet::new).transpose()?;
        Arc::try_new(Self { only, without: TaskSet::new(without)?, lost: AtomicU64::new(0) }).map(Some)
    }

    /// Returns how many children have not inherited the restriction, because there was no place for them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Returns `restriction` with the tasks that are in the sets now.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the tasks.
    pub fn in_place_of(&self, restriction: &Restriction) -> Result<Restriction, OutOfMemory> {
        let only = self.only.as_ref().map(TaskSet::tasks).transpose()?;
        let Restriction { cpus, children, .. } = *restriction;
        Ok(Restriction { only, without: self.without.tasks()?, cpus, children })
    }
}

impl TaskSet {
    fn new(tasks: &Tasks) -> Result<Self, OutOfMemory> {
        let mut buckets = BUCKETS;
        loop {
            let bucket = || Bucket([const { AtomicU32::new(NONE) }; WAYS]);
            let set = Self(fallible::boxed_slice((0..buckets).map(|_| bucket()))?);
            if tasks.numbers().all(|task| set.insert(task)) {
                return Ok(set);
            }
            buckets *= 2;
            if buckets > BUCKETS.max(BUCKETS_OF_ONE * tasks.numbers().count()) {
                return Err(OutOfMemory);
            }
        }
    }

    fn tasks(&self) -> Result<Tasks, OutOfMemory> {
        let all = self.0.iter().flat_map(|Bucket(places)| places).map(|place| place.load(Relaxed));
        let mut numbers: Vec<u64> = fallible::collect(all.filter(|task| task & ENDED == 0).map(u64::from))?;
        numbers.sort_unstable();
        Ok(Tasks::of(numbers))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::trigger::restriction::tests::tasks;
    use alloc::string::String;

    fn inherited(only: &str, without: &str) -> Arc<InheritedTasks> {
        let (only, without) = (tasks(only), tasks(without));
        let only = Some(only).filter(|only| !only.is_empty());
        InheritedTasks::of(&Restriction { only, without, cpus: None, children: true }).unwrap().unwrap()
    }

    fn written(inherited: &InheritedTasks) -> String {
        let restriction = inherited.in_place_of(&Restriction::default()).unwrap();
        let mut text = String::new();
        restriction.only.unwrap_or_default().write(&mut text).unwrap();
        text.push('/');
        restriction.without.write(&mut text).unwrap();
        text.replace('\n', " ")
    }

    #[test]
    fn children_follow_until_they_end() {
        let inherited = inherited("7 9", "11");
        for (parent, child) in [(7, 20), (20, 21), (5, 22), (11, 23)] {
            inherited.starts(parent, child);
        }
        assert_eq!(written(&inherited), "7 9 20 21 /11 23 ");
        let accepted: Vec<u32> = (0..30).filter(|task| inherited.accepts(*task)).collect();
        assert_eq!(accepted, [7, 9, 20, 21]);
        [20, 9, 4, 23].into_iter().for_each(|task| inherited.ends(task));
        assert_eq!(written(&inherited), "7 21 /11 ");
        // Hits in a task that has ended are recorded, or not, as before.
        assert!(inherited.accepts(20) && !inherited.accepts(23));
        // Its number is then another task's.
        inherited.starts(5, 20);
        assert!(!inherited.accepts(20));
        inherited.starts(7, 20);
        assert!(inherited.accepts(20));
        assert_eq!(written(&inherited), "7 20 21 /11 ");
    }

    #[test]
    fn without_tasks_to_record_all_are_but_those_left_out() {
        let inherited = inherited("", "3");
        inherited.starts(3, 4);
        assert_eq!((0..6).filter(|task| inherited.accepts(*task)).collect::<Vec<_>>(), [0, 1, 2, 5]);
    }

    #[test]
    fn a_task_that_finds_no_place_does_not_follow() {
        let inherited = inherited("0", "");
        let same = |number: u32| number * BUCKETS as u32;
        (1..20).for_each(|number| inherited.starts(0, same(number)));
        assert_eq!((0..20).filter(|number| inherited.accepts(same(*number))).count(), WAYS);
        assert_eq!(inherited.lost(), 20 - WAYS as u64);
        inherited.ends(same(1));
        inherited.starts(0, same(100));
        assert!(inherited.accepts(same(100)), "an end makes room");
    }

    #[test]
    fn as_many_as_are_typed_find_a_place() {
        let mut all = Tasks::default();
        (0..40).for_each(|number| all.add(&alloc::format!("{}", number * BUCKETS)).unwrap());
        let set = TaskSet::new(&all).unwrap();
        assert_eq!(set.tasks().unwrap(), all);
        let mut odd = Tasks::default();
        (0..9).for_each(|number| odd.add(&alloc::format!("{}", number << 20)).unwrap());
        assert!(TaskSet::new(&odd).is_err());
    }

    #[test]
    fn the_last_task_that_ends_leaves_nobody_to_record() {
        let inherited = inherited("7", "");
        inherited.ends(7);
        let restriction = inherited.in_place_of(&Restriction { children: true, ..Restriction::default() }).unwrap();
        assert_eq!(restriction.only, Some(Tasks::default()));
        assert!(!InheritedTasks::of(&restriction).unwrap().unwrap().accepts(3));
    }

    #[test]
    fn without_children_to_follow_there_are_no_sets() {
        let none = [
            Restriction { only: Some(tasks("7")), ..Restriction::default() },
            Restriction { children: true, ..Restriction::default() },
        ];
        assert!(none.iter().all(|restriction| InheritedTasks::of(restriction).unwrap().is_none()));
    }
}
