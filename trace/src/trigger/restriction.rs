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
use crate::filter::{CPU, Filter, FindFunction};
use crate::format::Field;

/// The largest task number that can be set: `common_pid` is an int.
const TASK_MAX: u64 = i32::MAX as u64;

/// Task numbers in ascending order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tasks(Vec<u64>);

/// The restriction that applies to all events.
#[derive(Debug, PartialEq, Eq)]
pub struct Restriction {
    /// Only hits of these tasks are recorded; `None` means of all: `set_event_pid`.
    pub only: Option<Tasks>,
    /// Hits of these tasks are not recorded: `set_event_notrace_pid`.
    pub without: Tasks,
    /// Only hits on these CPUs are recorded, bit 0 for the first; `None` means all: `tracing_cpumask`.
    pub cpus: Option<u64>,
    /// Whether the children of `only` and `without` follow their parents.
    pub children: bool,
}

impl Tasks {
    /// Makes tasks of `numbers`, which are in ascending order.
    pub(super) fn of(numbers: Vec<u64>) -> Self {
        Self(numbers)
    }

    /// Whether there are none.
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

impl Default for Restriction {
    fn default() -> Self {
        Self::NONE
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
    /// None: all hits are recorded.
    pub const NONE: Self = Self { only: None, without: Tasks(Vec::new()), cpus: None, children: false };

    /// Whether there are tasks whose children follow them. The filter is not about tasks then: see
    /// [`Followed`](super::followed::Followed).
    pub(super) fn has_followed(&self) -> bool {
        self.children && (self.only.is_some() || !self.without.is_empty())
    }

    /// Returns the filter `own`, which uses only these `fields`, combined with the restriction; `None` if there is no
    /// restriction.
    pub(crate) fn filter(
        &self,
        own: Option<&Filter>,
        fields: &[Field],
        functions: FindFunction,
    ) -> Result<Option<Filter>, OutOfMemory> {
        let mut text = fallible::format(format_args!("{self}"))?;
        if text.is_empty() {
            return Ok(None);
        }
        if let Some(filter) = own {
            let more = fallible::format(format_args!(" && ({filter})"))?;
            text.try_reserve(more.len())?;
            text.push_str(&more);
        }
        // Every event has the fields of the restriction, so the text can only be refused for its length: it would take
        // too much memory.
        Filter::parse(&text, fields, functions).map(Some).map_err(|_| OutOfMemory)
    }
}

/// The restriction as the text of a filter.
impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { only, without: Tasks(without), cpus, .. } = self;
        let (only, without) = if self.has_followed() { (None, &[][..]) } else { (only.as_ref(), &without[..]) };
        let mut before = "";
        if let Some(Tasks(only)) = only {
            write!(f, "{}", any_of("common_pid", only.iter().copied()))?;
            before = " && ";
        }
        if !without.is_empty() {
            write!(f, "{before}!{}", any_of("common_pid", without.iter().copied()))?;
            before = " && ";
        }
        match cpus {
            Some(cpus) => write!(f, "{before}{}", any_of(CPU, (0..64).filter(|cpu| cpus & 1 << cpu != 0))),
            None => Ok(()),
        }
    }
}

/// Displays the filter, in parentheses, that accepts a field with one of these numbers. Without numbers, it accepts
/// nothing, because tasks and CPUs have no negative ones.
fn any_of(field: &str, numbers: impl Iterator<Item = u64> + Clone) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let mut before = "(";
        for number in numbers.clone() {
            write!(f, "{before}{field} == {number}")?;
            before = " || ";
        }
        if before == "(" { write!(f, "({field} < 0)") } else { f.write_str(")") }
    })
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;
    use crate::format::{Base, Format, Shape, Type};
    use crate::trigger::settings::Settings;

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
        // The arguments named `cpu` and `common_cpu` do not hide the restricted numbers.
        let arguments = [("cpu", Type::one(Base::String)), ("common_cpu", Type::one(Base::String))];
        let fields = Format::new(Shape::Probe, arguments).unwrap().fields;
        let mut settings = Settings::new(true).unwrap();
        assert!(Restriction::default().filter(settings.filter(), &fields, FindFunction::NONE).unwrap().is_none());
        for (restriction, filter) in [
            (
                Restriction { only: Some(tasks("1 2")), ..Restriction::default() },
                "(common_pid == 1 || common_pid == 2)",
            ),
            (Restriction { only: Some(tasks("")), ..Restriction::default() }, "(common_pid < 0)"),
            (Restriction { without: tasks("1"), ..Restriction::default() }, "!(common_pid == 1)"),
            (Restriction { cpus: Some(0), ..Restriction::default() }, "(common_cpu < 0)"),
            (
                Restriction { only: Some(tasks("1")), without: tasks("2"), cpus: Some(0b101), children: false },
                "(common_pid == 1) && !(common_pid == 2) && (common_cpu == 0 || common_cpu == 2)",
            ),
        ] {
            assert_eq!(
                alloc::format!(
                    "{}",
                    restriction.filter(settings.filter(), &fields, FindFunction::NONE).unwrap().unwrap()
                ),
                filter
            );
            settings.set_filter("common_pid > 0 || common_cpu == 7", &fields, FindFunction::NONE).unwrap();
            let both = alloc::format!("{filter} && (common_pid > 0 || common_cpu == 7)");
            assert_eq!(
                alloc::format!(
                    "{}",
                    restriction.filter(settings.filter(), &fields, FindFunction::NONE).unwrap().unwrap()
                ),
                both
            );
            settings.set_filter("0", &fields, FindFunction::NONE).unwrap();
        }
    }
}
