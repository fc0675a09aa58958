//! Clauses that stand in the stubs of their probes, and what they collect in.

use alloc::boxed::Box;
use alloc::vec::Vec;

use aarch64_kprobes::platform::MAX_CPUS;
use aarch64_kprobes::probe::{CpuWords, Insertion, Snippet};
use fallible::OutOfMemory;
use kprobes_vm::compile::{At, Key, Part, in_stub};
use kprobes_vm::store::{Store, WORDS, Words};

use super::Shared;
use super::compiled::View;
use super::places::{Place, Way};
use crate::host;

/// Words of the engine, as a store collects in them.
#[derive(Debug)]
struct Cells(CpuWords);

const _: () = assert!(CpuWords::COUNT == WORDS);

impl Words for Cells {
    fn distance(&self, index: usize) -> u64 {
        self.0.distance(index)
    }

    fn sum(&self, index: usize) -> u64 {
        self.0.sum(index)
    }
}

fn cells() -> Result<Box<dyn Words>, OutOfMemory> {
    let words: Box<dyn Words> = fallible::boxed(Cells(CpuWords::new()?))?;
    Ok(words)
}

/// Where a clause may stand, by the numbers that these have.
const BOTH: [At; 2] = [At::Instruction, At::Return];

impl Way {
    /// Where a clause stands that is probed so, if that is in one place.
    fn at(self) -> Option<At> {
        match self.view()? {
            View::Entry | View::Frame => Some(At::Instruction),
            View::Return => Some(At::Return),
        }
    }
}

/// The snippets of a program.
#[derive(Debug, Default)]
pub(super) struct Snippets {
    /// Two for each clause, by their numbers: at instructions, and at returns.
    _clauses: Vec<Option<Box<Snippet>>>,
    /// Those of the places, in their order.
    insertions: Vec<Option<Insertion>>,
}

impl Snippets {
    /// Those of the clauses of `shared` that have one, for probes at `places`; good as long as that is where it is now.
    ///
    /// # Errors
    ///
    /// There is no memory for what they collect in.
    pub fn of(shared: &mut Shared, places: &[Place]) -> Result<Self, OutOfMemory> {
        let (mut clauses, mut keys, mut insertions) = (Vec::new(), Vec::new(), Vec::new());
        for (clause, at) in (0..shared.program.code.routines.len()).flat_map(|clause| BOTH.map(|at| (clause, at))) {
            let count = places.iter().filter(|place| place.clause == clause && place.way.at() == Some(at)).count();
            let snippet = if count > 0 { Self::clause(shared, clause, at)? } else { None };
            // What is called has a table, which is no larger for more keys.
            let snippet = snippet.filter(|(_, key)| {
                let words = key.as_ref().map_or(0, |key| Store::fixed_words(&shared.program.code, key.map));
                count * words * size_of::<u64>() * MAX_CPUS <= host::memory_to_spare() / 8
            });
            let (snippet, key) = snippet.unzip();
            fallible::push(&mut clauses, snippet.map(fallible::boxed).transpose()?)?;
            fallible::push(&mut keys, key.flatten())?;
        }
        for place in places {
            let number = place.way.at().map(|at| BOTH.len() * place.clause + at as usize);
            let insertion =
                number.and_then(|number| Some((clauses.get(number)?.as_ref()?, keys.get(number)?.as_ref())));
            let insertion = match insertion {
                Some((snippet, key)) => {
                    let operand = key.map(|key| Self::operand(shared, key, place)).transpose()?;
                    Some(Insertion::new(snippet, operand.unwrap_or(0)))
                }
                None => None,
            };
            fallible::push(&mut insertions, insertion)?;
        }
        Ok(Self { _clauses: clauses, insertions })
    }

    /// That of a clause, and for what key its operand is.
    fn clause(shared: &mut Shared, clause: usize, at: At) -> Result<Option<(Snippet, Option<Key>)>, OutOfMemory> {
        let (kernel, atomics) = (View::Frame.kernel(shared), Snippet::has_atomics());
        let Some(mut found) = in_stub(&shared.program.code, clause, at, &shared.store, &kernel, atomics)? else {
            return Ok(None);
        };
        let (operand, is_masked) = (found.operand.take(), found.is_masked);
        let steps = found.steps(&shared.program.code, &mut shared.store, &mut cells)?;
        // SAFETY: it loads and changes what the store has, which outlives the probes, and adds to words of the engine in it, by
        // instructions that are those of this CPU.
        let snippet = unsafe { Snippet::new(&steps, is_masked) };
        Ok(snippet.ok().map(|snippet| (snippet, operand)))
    }

    /// The operand of the probe at `place`.
    fn operand(shared: &mut Shared, key: &Key, place: &Place) -> Result<u64, OutOfMemory> {
        let parts = key.parts.iter().map(|part| match part {
            Part::Number(number) => *number,
            Part::Function => place.meant(),
            Part::Site => place.name as u64,
            Part::Address => place.address as u64,
        });
        let numbers = fallible::collect(parts)?;
        shared.store.distance(&shared.program.code, key.map, &numbers, &mut cells)?.ok_or(OutOfMemory)
    }

    /// What is inserted at the place of this number.
    pub fn get(&self, place: usize) -> Option<&Insertion> {
        self.insertions.get(place)?.as_ref()
    }
}
