//! What a histogram has that other triggers look at, or that looks at others: variables, and values that are computed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use fallible::OutOfMemory;

use super::action::{Action, Deed, Handler};
use super::expression::{Content, Op, Reference, ops_of};
use super::parse::{Definition, Modifier};
use super::shared::Shared;
use super::{Key, NAME_WORDS};
use crate::atomic::AtomicU64;
use crate::ring::Rings;

/// The part of a histogram that is about variables.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) table: Shared,
    /// What is summed up besides hits.
    pub(crate) sums: Box<[Box<[Op]>]>,
    /// What is set at each hit.
    pub(crate) variables: Box<[Setting]>,
    /// What only actions set.
    pub(crate) kept: Box<[Setting]>,
    pub(crate) actions: Box<[Act]>,
    pub(crate) references: Box<[Reference]>,
    /// What these are at the hit that is being counted: of each CPU.
    pub(crate) reads: Box<[AtomicU64]>,
    /// Words of an entry before the name of the task, if it has one.
    pub(crate) name: usize,
    /// Words of an entry before the word that says which variables are set.
    pub(crate) set: usize,
}

/// A variable, as a hit sets it.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) content: Content,
    /// Words of an entry before it.
    pub(crate) at: usize,
    /// How many words it has.
    pub(crate) words: usize,
}

/// An action, as a hit carries it out.
#[derive(Debug)]
pub(crate) struct Act {
    pub(crate) handler: Handler,
    /// The variable that is watched, and which of those that are kept has what it was.
    pub(crate) watched: Option<(usize, usize)>,
    pub(crate) deed: Deed,
    /// Of a snapshot: the value for which it was taken, and the entry, from 1 on.
    pub(crate) latest: Latest,
    /// What a snapshot is about.
    pub(crate) rings: Option<&'static Rings>,
}

/// Why the last snapshot was taken.
#[derive(Debug)]
pub(crate) struct Latest {
    pub(crate) value: AtomicU64,
    pub(crate) entry: AtomicU64,
}

/// Where things are in an entry.
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

impl Link {
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
        let all = fallible::collect_results(variables.chain(&definition.kept).map(setting))?;
        let mut variables = all;
        let first_kept = variables.len() - definition.kept.len();
        let mut kept = Vec::new();
        fallible::extend(&mut kept, variables.drain(first_kept..))?;
        let act = |action: &Action| -> Result<_, OutOfMemory> {
            let Action { handler, watched, deed, .. } = action.try_clone()?;
            let latest = Latest { value: AtomicU64::new(0), entry: AtomicU64::new(0) };
            Ok(Act { handler, watched, deed, latest, rings })
        };
        let actions = fallible::boxed_slice(fallible::collect_results(definition.actions.iter().map(act))?)?;
        let references = fallible::boxed_slice(definition.references.iter().cloned())?;
        let reads = fallible::boxed_slice((0..cpus * references.len()).map(|_| AtomicU64::new(0)))?;
        let (sums, variables) = (fallible::boxed_slice(sums)?, fallible::boxed_slice(variables)?);
        let kept = fallible::boxed_slice(kept)?;
        Ok(Self { table, sums, variables, kept, actions, references, reads, name, set })
    }

    /// Bytes of memory that the table takes for so many CPUs.
    pub(super) fn bytes(definition: &Definition, cpus: usize) -> usize {
        Shared::bytes(definition.size, Layout::of(definition).stride, cpus)
    }
}
