//! The part of a histogram that connects it with other triggers: variables, references, actions, and values that are
//! computed.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

use fallible::OutOfMemory;

use super::action::{Action, Effect, Handler};
use super::expression::{Content, Op, Reference, ops_of};
use super::parse::{Definition, Modifier};
use super::shared::Shared;
use super::{Key, NAME_WORDS};
use crate::atomic::{AtomicU64, zeroed};
use crate::ring::Rings;

/// The variables, references and actions of a histogram, and the table with its variables.
#[derive(Debug)]
pub(crate) struct VariableUse {
    pub(crate) table: Shared,
    /// The values that are summed up besides hits.
    pub(crate) sums: Box<[Box<[Op]>]>,
    /// The variables that each hit sets.
    pub(crate) variables: Box<[Setting]>,
    /// The variables that only actions set.
    pub(crate) kept: Box<[Setting]>,
    pub(crate) actions: Box<[BoundAction]>,
    pub(crate) references: Box<[Reference]>,
    /// The values of the references at the hit that is being counted; one set for each CPU.
    pub(crate) reads: Box<[AtomicU64]>,
    /// The words of an entry before the name of the task, if the entry has one.
    pub(crate) name: usize,
    /// The words of an entry before the mask of the variables that are set.
    pub(crate) set: usize,
}

/// A variable in the form in which a hit sets it.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) content: Content,
    /// The words of an entry before the variable.
    pub(crate) at: usize,
    /// The number of words that the variable takes.
    pub(crate) words: usize,
}

/// An action in the form in which a hit carries it out.
#[derive(Debug)]
pub(crate) struct BoundAction {
    pub(crate) handler: Handler,
    /// The watched variable, and the kept variable with its previous value.
    pub(crate) watched: Option<(usize, usize)>,
    pub(crate) effect: Effect,
    /// For a snapshot: why the last one was taken.
    pub(crate) latest: Latest,
    /// The rings of which a snapshot is taken.
    pub(crate) rings: Option<&'static Rings>,
}

/// The reason for the last snapshot.
#[derive(Debug)]
pub(crate) struct Latest {
    /// The value that triggered it.
    pub(crate) value: AtomicU64,
    /// The number of the entry, from 1; 0 before the first snapshot, and [`CLEARED`] if the entry was removed since.
    pub(crate) entry: AtomicU64,
    /// The words of the entry, if it was removed since.
    cleared: Box<[AtomicU64]>,
}

/// Stands for the number of an entry that was removed.
const CLEARED: u64 = u64::MAX;

impl Latest {
    /// Makes the state before the first snapshot, with room for the `words` of an entry.
    fn new(words: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { value: AtomicU64::new(0), entry: AtomicU64::new(0), cleared: zeroed(words)? })
    }

    /// Returns the words of the entry, which is or was in `table`; `None` before the first snapshot.
    pub(super) fn words<'a>(&'a self, table: &'a Shared) -> Option<&'a [AtomicU64]> {
        match self.entry.load(Relaxed) {
            0 => None,
            CLEARED => Some(&self.cleared),
            number => {
                let start = (number - 1) as usize * table.stride;
                table.words.get(start..start + table.stride)
            }
        }
    }

    /// Keeps the words of the entry, which is to be removed from `table`.
    fn keep(&self, table: &Shared) {
        let Some(words) = self.words(table) else { return };
        self.cleared.iter().zip(words).for_each(|(kept, word)| kept.store(word.load(Relaxed), Relaxed));
        self.entry.store(CLEARED, Relaxed);
    }
}

/// The layout of an entry, in words.
#[derive(Clone, Copy, Debug)]
struct Layout {
    name: usize,
    set: usize,
    stride: usize,
}

impl Layout {
    fn of(definition: &Definition) -> Self {
        let keys: usize = definition.keys.iter().map(|key| Key::of(key).words).sum();
        let name = keys + 1 + definition.sums().count();
        let has_name = definition.keys.iter().any(|key| key.modifier == Some(Modifier::Execname));
        let set = name + if has_name { NAME_WORDS } else { 0 };
        let variables = definition.variables.iter().chain(&definition.fields).chain(&definition.kept);
        let variables: usize = variables.map(|variable| variable.value.words).sum();
        Self { name, set, stride: set + 1 + variables }
    }
}

impl VariableUse {
    pub(super) fn new(
        definition: &Definition,
        cpus: usize,
        rings: Option<&'static Rings>,
    ) -> Result<Self, OutOfMemory> {
        let Layout { name, set, stride } = Layout::of(definition);
        let parts = fallible::boxed_slice(definition.keys.iter().map(|key| Key::of(key).words))?;
        let table = Shared::new(definition.size, parts, stride, cpus)?;
        let sums = fallible::collect_results(definition.sums().map(|sum| ops_of(&sum.0)))?;
        let mut at = set + 1;
        let setting = |variable: &super::expression::Variable| -> Result<_, OutOfMemory> {
            let value = variable.value.try_clone()?;
            let setting = Setting { content: value.content, at, words: value.words };
            at += value.words;
            Ok(setting)
        };
        let variables = definition.variables.iter().chain(&definition.fields);
        let mut variables = fallible::collect_results(variables.chain(&definition.kept).map(setting))?;
        let kept = fallible::boxed_slice(variables.drain(variables.len() - definition.kept.len()..))?;
        let act = |action: &Action| -> Result<_, OutOfMemory> {
            let Action { handler, watched, effect, .. } = action.try_clone()?;
            let latest = Latest::new(if matches!(effect, Effect::Snapshot) { stride } else { 0 })?;
            Ok(BoundAction { handler, watched, effect, latest, rings })
        };
        let actions = fallible::boxed_slice(fallible::collect_results(definition.actions.iter().map(act))?)?;
        let references = fallible::boxed_slice(definition.references.iter().cloned())?;
        let reads = fallible::boxed_slice((0..cpus * references.len()).map(|_| AtomicU64::new(0)))?;
        let (sums, variables) = (fallible::boxed_slice(sums)?, fallible::boxed_slice(variables)?);
        Ok(Self { table, sums, variables, kept, actions, references, reads, name, set })
    }

    /// Removes all entries. As in Linux, it stays known why the last snapshot was taken.
    ///
    /// No hit may use the table meanwhile ([`Shared::clear`]).
    pub(super) fn clear(&self) {
        self.actions.iter().for_each(|action| action.latest.keep(&self.table));
        self.table.clear();
    }

    /// Returns the memory that the table takes for `cpus` CPUs, in bytes.
    pub(super) fn bytes(definition: &Definition, cpus: usize) -> usize {
        Shared::bytes(definition.size, Layout::of(definition).stride, cpus)
    }
}
