//! Snippets: clauses that run in the stubs of their probes, and the words in which they collect.

use alloc::boxed::Box;
use alloc::vec::Vec;

use aarch64_kprobes::probe::{CpuWords, Insertion, Snippet};
use fallible::OutOfMemory;
use kprobes_vm::jit::{At, Key, KeyPart, in_stub};
use kprobes_vm::maps::{Store, WORDS, Words};

use super::machine_code::View;
use super::places::{ResolvedPlace, Way};
use super::shared::Shared;
use crate::host;

/// The engine's words for each CPU, in which a store collects.
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

/// The positions at which a snippet can run, in the order of their numbers.
const BOTH: [At; 2] = [At::Instruction, At::Return];

impl Way {
    /// Returns the position at which the clause of a probe of this kind can run as a snippet; `None` if its handler has
    /// no fixed view.
    fn at(self) -> Option<At> {
        match self.view()? {
            View::Arguments | View::Frame => Some(At::Instruction),
            View::Return => Some(At::Return),
        }
    }
}

/// The snippets of a program.
#[derive(Debug, Default)]
pub(super) struct Snippets {
    /// Two for each clause, by the clause's number: the snippet at instructions, and the one at returns.
    _clauses: Vec<Option<Box<Snippet>>>,
    /// The insertion for each place, in the order of the places.
    insertions: Vec<Option<Insertion>>,
}

impl Snippets {
    /// Creates the snippets of the clauses of `shared` that can have one, for probes at `places`. They are valid only
    /// as long as `shared` does not move.
    ///
    /// # Errors
    ///
    /// There is no memory for the words in which they collect.
    pub fn of(shared: &mut Shared, places: &[ResolvedPlace]) -> Result<Self, OutOfMemory> {
        let (mut clauses, mut keys, mut insertions) = (Vec::new(), Vec::new(), Vec::new());
        // The bytes that are left for the words of all clauses.
        let mut room = host::memory_to_spare() / 8;
        for (clause, at) in (0..shared.program.code.routines.len()).flat_map(|clause| BOTH.map(|at| (clause, at))) {
            let count = places.iter().filter(|place| place.clause == clause && place.way.at() == Some(at)).count();
            let snippet = if count > 0 { Self::clause(shared, clause, at)? } else { None };
            // A clause without a snippet is called, and uses a table, whose size does not depend on the number of
            // places.
            let snippet = snippet.filter(|(_, key)| {
                let words = key.as_ref().map_or(0, |key| Store::fixed_words(&shared.program.code, key.map));
                // The words of a key lie in one block.
                let blocks = CpuWords::COUNT.checked_div(words).map_or(0, |keys| count.div_ceil(keys.max(1)));
                let bytes = blocks * CpuWords::bytes();
                let fits = bytes <= room;
                room -= if fits { bytes } else { 0 };
                fits
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

    /// Creates the snippet of a clause, with the key that its operand stands for.
    fn clause(shared: &mut Shared, clause: usize, at: At) -> Result<Option<(Snippet, Option<Key>)>, OutOfMemory> {
        let (kernel, atomics) = (View::Frame.kernel(shared), Snippet::has_atomics());
        let Some(mut found) = in_stub(&shared.program.code, clause, at, &shared.store, &kernel, atomics)? else {
            return Ok(None);
        };
        let (operand, is_masked) = (found.operand.take(), found.is_masked);
        let steps = found.steps(&shared.program.code, &mut shared.store, &mut cells)?;
        // SAFETY: the steps access only memory of `shared.store`, which outlives the probes, and add to words of the
        // engine that the store owns. `has_atomics` told the compiler which instructions the CPUs have.
        let snippet = unsafe { Snippet::new(&steps, is_masked) };
        Ok(snippet.ok().map(|snippet| (snippet, operand)))
    }

    /// Returns the operand for the probe at `place`.
    fn operand(shared: &mut Shared, key: &Key, place: &ResolvedPlace) -> Result<u64, OutOfMemory> {
        let parts = key.parts.iter().map(|part| match part {
            KeyPart::Number(number) => *number,
            KeyPart::Function => place.meant(),
            KeyPart::Probe => place.name as u64,
            KeyPart::Address => place.address as u64,
        });
        let numbers = fallible::collect(parts)?;
        shared.store.distance(&shared.program.code, key.map, &numbers, &mut cells)?.ok_or(OutOfMemory)
    }

    /// Returns the insertion for the place with this number.
    pub fn get(&self, place: usize) -> Option<&Insertion> {
        self.insertions.get(place)?.as_ref()
    }
}
