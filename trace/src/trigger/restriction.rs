//! Which tasks and CPUs are recorded: what `set_event_pid`, `set_event_notrace_pid` and `tracing_cpumask` set for all
//! events.
//!
//! The restriction is a filter that each event has in addition to its own. So a hit is tested where filters are tested,
//! and without a restriction there is no cost. As in Linux, triggers fire in every task.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use fallible::{OutOfMemory, TryClone};

use crate::definition::number::unsigned;
use crate::errno::Errno;
use crate::filter::{Filter, Number};

/// The largest task number that can be set: `common_pid` is an int.
const TASK_MAX: u64 = i32::MAX as u64;

/// Task numbers in ascending order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tasks(Vec<u64>);

/// The restriction that applies to all events. By default all hits are recorded.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restriction {
    /// Only hits of these tasks are recorded; `None` records those of all tasks: `set_event_pid`.
    pub only: Option<Tasks>,
    /// Hits of these tasks are not recorded: `set_event_notrace_pid`.
    pub without: Tasks,
    /// Only hits on these CPUs are recorded, bit 0 for the first; `None` means all: `tracing_cpumask`.
    pub cpus: Option<u64>,
    /// Whether the children of `only` and `without` inherit the restriction.
    pub children: bool,
}

impl Tasks {
    /// Makes tasks of `numbers`, which are in ascending order.
    pub(super) fn of(numbers: Vec<u64>) -> Self {
        Self(numbers)
    }

    /// Whether there are no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|number| *number as u32)
    }

    /// Adds the numbers in `text`, in the forms that Linux accepts: decimal, octal or hexadecimal.
    ///
    /// # Errors
    ///
    /// Fails if a word is not a task number, or if there is no memory.
    pub fn add(&mut self, text: &str) -> Result<(), Errno> {
        for word in text.split_ascii_whitespace() {
            let number = unsigned(word).filter(|&number| number <= TASK_MAX);
            let number = number.ok_or(Errno::Invalid)?;
            if let Err(place) = self.0.binary_search(&number) {
                self.0.try_reserve(1).map_err(OutOfMemory::from)?;
                self.0.insert(place, number);
            }
        }
        Ok(())
    }

    /// Writes the numbers, one a line.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        self.0.iter().try_for_each(|number| writeln!(out, "{number}"))
    }
}

impl TryClone for Restriction {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let copy = |Tasks(numbers): &Tasks| fallible::collect(numbers.iter().copied()).map(Tasks);
        let only = self.only.as_ref().map(copy).transpose()?;
        Ok(Self { only, without: copy(&self.without)?, cpus: self.cpus, children: self.children })
    }
}

impl Restriction {
    /// No restriction: all hits are recorded.
    pub const NONE: Self = Self { only: None, without: Tasks(Vec::new()), cpus: None, children: false };

    /// Whether there are tasks whose children inherit the restriction. The filter does not test tasks then: see
    /// [`InheritedTasks`](super::inherited_tasks::InheritedTasks).
    pub(super) fn is_inherited(&self) -> bool {
        self.children && (self.only.is_some() || !self.without.is_empty())
    }

    /// Returns the filter `own` combined with the restriction; `None` if there is no restriction. An event that is
    /// about an `other_task`, too, is recorded if the restriction to tasks allows one of the two.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory, or if there are more tasks than a filter can have tests.
    pub(crate) fn filter(
        &self,
        own: Option<&Filter>,
        other_task: Option<Number>,
    ) -> Result<Option<Filter>, OutOfMemory> {
        let of_other = other_task.map(|other| self.filter_of(other)).transpose()?.flatten();
        let of_mask = |cpus: u64| Filter::one_of(Number::Cpu, (0..64).filter(|cpu| cpus & 1 << cpu != 0), true);
        let of_tasks = match (self.filter_of(Number::Task)?, of_other) {
            (Some(task), Some(other)) => Some(task.or(&other)?),
            (task, _) => task,
        };
        let of_cpus = self.cpus.map(of_mask).transpose()?;
        let whole = joined(of_tasks, of_cpus)?;
        match (whole, own) {
            (Some(whole), Some(own)) => whole.and(own).map(Some),
            (whole, _) => Ok(whole),
        }
    }

    /// Returns the filter of the hits whose `task` is allowed; `None` if a filter does not test tasks.
    fn filter_of(&self, task: Number) -> Result<Option<Filter>, OutOfMemory> {
        if self.is_inherited() {
            return Ok(None);
        }
        let one_of = |Tasks(tasks): &Tasks, is_in| Filter::one_of(task, tasks.iter().copied(), is_in);
        let only = self.only.as_ref().map(|only| one_of(only, true)).transpose()?;
        let without = (!self.without.is_empty()).then(|| one_of(&self.without, false)).transpose()?;
        joined(only, without)
    }
}

/// Returns the filter of the hits that both accept; `None` accepts all.
fn joined(one: Option<Filter>, other: Option<Filter>) -> Result<Option<Filter>, OutOfMemory> {
    match (one, other) {
        (Some(one), Some(other)) => one.and(&other).map(Some),
        (one, other) => Ok(one.or(other)),
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;
    use crate::filter::FindFunction;
    use crate::format::{Format, Shape};
    use kprobes_random::tried::tried;

    /// Returns the tasks of a list as it is written to `set_event_pid`.
    pub(in crate::trigger) fn tasks(text: &str) -> Tasks {
        let mut tasks = Tasks::default();
        tasks.add(text).unwrap();
        tasks
    }

    #[test]
    fn tasks_are_read_and_written_as_in_linux() {
        let mut some = tasks(" 7\n0x3 010\n7");
        let mut text = String::new();
        some.write(&mut text).unwrap();
        assert_eq!(text, "3\n7\n8\n");
        for wrong in ["x", "-1", "1,2", "2147483648", "5 x"] {
            assert_eq!(some.add(wrong), Err(Errno::Invalid), "{wrong}");
        }
        assert_eq!(tasks(" \n"), Tasks::default());
    }

    #[test]
    fn a_restriction_is_a_filter_of_every_event() {
        let fields = Format::new(Shape::Probe, []).unwrap().fields;
        let tests = |filter: &Filter| {
            let task = |number| if matches!(number, Number::Field { .. }) { Number::Task } else { number };
            alloc::format!("{:?}", filter.map(task).unwrap().tests())
        };
        let parse = |text: &str| Filter::parse(text, &fields, FindFunction::NONE).unwrap();
        assert!(Restriction::default().filter(Some(&parse("common_pid > 0")), None).unwrap().is_none());
        for (restriction, filter) in tried([
            (
                Restriction { only: Some(tasks("1 2")), ..Restriction::default() },
                "(common_pid == 1 || common_pid == 2)",
            ),
            (Restriction { only: Some(tasks("")), ..Restriction::default() }, "common_pid & CPUS{ }"),
            (Restriction { without: tasks("1 2"), ..Restriction::default() }, "!(common_pid == 1 || common_pid == 2)"),
            (Restriction { cpus: Some(0), ..Restriction::default() }, "common_cpu & CPUS{ }"),
            (
                Restriction { only: Some(tasks("1")), without: tasks("2"), cpus: Some(0b101), children: false },
                "common_pid == 1 && !(common_pid == 2) && (common_cpu == 0 || common_cpu == 2)",
            ),
        ]) {
            assert_eq!(tests(&restriction.filter(None, None).unwrap().unwrap()), tests(&parse(filter)));
            let own = "common_pid > 0 || common_cpu == 7";
            let both = parse(&alloc::format!("{filter} && ({own})"));
            assert_eq!(tests(&restriction.filter(Some(&parse(own)), None).unwrap().unwrap()), tests(&both));
        }
    }

    #[test]
    fn a_restriction_adds_to_a_filter_with_the_most_tests() {
        // 128 tests for each list, 1,024 in all.
        let text = ["cpu & CPUS{all:1/2}"; 8].join(" || ");
        let own = Filter::parse(&text, &[], FindFunction::NONE).unwrap();
        let restriction = Restriction { only: Some(tasks("1")), ..Restriction::default() };
        assert_eq!(restriction.filter(Some(&own), None).unwrap().unwrap().tests().len(), 1025);
        let many: Vec<u64> = (0..1025).collect();
        let restriction = Restriction { without: Tasks(many), ..Restriction::default() };
        assert_eq!(restriction.filter(None, None).unwrap_err(), OutOfMemory);
    }
}
