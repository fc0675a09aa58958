//! Loads a program: parses and checks its text, finds the places that it probes, and allocates its memory, within the
//! limits that leave room for others.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64};

use kprobes_program::check::check;
use kprobes_program::checked::Checked;
use kprobes_program::config::Missing;
use kprobes_program::error::{Error, Problem, Span};
use kprobes_program::report::OutputFormat;
use kprobes_program::syntax::{self, Parameters};
use kprobes_vm::maps::{Limits, Store};

use super::image_symbols::ImageSymbols;
use super::inlined::CopyTable;
use super::places::{ResolvedPlace, Watched};
use super::refusal::{ProgramRefusal, none_reached};
use super::resolve::ResolvedProbes;
use super::shared::Shared;
use super::watchpoints::{Functions, Watchpoints};
use crate::host::{self, host};
use crate::time;

/// Options for running a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Whether all clauses are interpreted.
    pub is_interpreted: bool,
    /// The number of keys that each map has room for, which also scales the room for stacks; `None` for the default.
    pub keys: Option<usize>,
    /// The form of the output.
    pub format: OutputFormat,
    /// The number of the task whose hits the program sees; `None` for all tasks.
    pub task: Option<u64>,
    /// The parameters of the program.
    pub parameters: Parameters<'a>,
}

/// Returns the limits of the program's memory. Stacks may take a sixteenth of the memory to spare, if that is more than
/// the default.
fn limits(keys: Option<usize>) -> Limits {
    let usual = Limits::usual(host::cpus());
    let stack_bytes = usual.stack_bytes.max(host().memory_to_spare().map_or(0, |bytes| bytes / 16));
    let limits = Limits { stack_bytes, ..usual };
    keys.map_or(limits, |keys| limits.with_keys(keys))
}

/// Refuses a program that would leave less than an eighth of the heap to others. A single line can ask for more probes
/// than there is memory for, in addition to the `kept` bytes that the program keeps.
fn check_memory(places: &[ResolvedPlace], kept: usize) -> Result<(), ProgramRefusal> {
    let free = host::memory_to_spare();
    if kept > free {
        let (kept, free) = (kept >> 10, free >> 10);
        return Err(ProgramRefusal::new(format_args!(
            "the maps and the output of the program take {kept} KiB, and {free} KiB are free: use fewer maps or a \
             smaller -k"
        )));
    }
    let free = free - kept;
    let needed: usize = places.iter().map(ResolvedPlace::memory).sum();
    if needed <= free {
        return Ok(());
    }
    let (probes, needed, free) = (places.len(), needed >> 10, free >> 10);
    Err(ProgramRefusal::new(format_args!(
        "{probes} probes take about {needed} KiB, and {free} KiB are free: probe fewer instructions"
    )))
}

/// Parses a program with its parameters. A refusal quotes the parameter that is its cause.
pub(super) fn parse(text: &str, parameters: Parameters<'_>) -> Result<syntax::Program, ProgramRefusal> {
    syntax::parse_with(text, parameters)
        .map_err(|Error { problem, span }| ProgramRefusal::at(parameters.sentence(problem), span))
}

/// Parses a program with the parameters of `options`, and restricts it to their task.
pub(super) fn tree(text: &str, options: Options<'_>) -> Result<syntax::Program, ProgramRefusal> {
    let mut tree = parse(text, options.parameters)?;
    if let Some(task) = options.task {
        tree.restrict_to_task(task)?;
    }
    Ok(tree)
}

/// A program that is parsed and checked.
pub(super) struct Read {
    tree: syntax::Program,
    /// The inlined functions, unpacked if they were needed.
    table: CopyTable,
    program: Checked,
}

/// Parses and checks a program. Both recurse, so this is called where little of the stack is in use, and not inlined
/// into functions with large frames.
#[inline(never)]
pub(super) fn read(text: &str, options: Options<'_>) -> Result<Read, ProgramRefusal> {
    let tree = tree(text, options)?;
    let table = CopyTable::default();
    let program = check(&tree, &ImageSymbols(&table))?;
    Ok(Read { tree, table, program })
}

/// The places that a program probes and watches.
pub(super) struct Wanted {
    /// The places to probe.
    pub(super) places: Vec<ResolvedPlace>,
    /// The memory to watch.
    pub(super) watched: Vec<Watched>,
    /// The place of each probe in the text.
    pub(super) spans: Vec<Span>,
}

impl Shared {
    /// Resolves the probes of a program, and allocates the memory that it needs. Returns the shared state, and the
    /// places to probe and to watch.
    pub(super) fn load(checked: Box<Read>, options: Options<'_>) -> Result<(Self, Wanted), ProgramRefusal> {
        let Read { tree, table, program } = *checked;
        let config = program.config;
        let limits = limits(options.keys.or(config.keys));
        let output_bytes = config.output_pages.map_or(limits.output_bytes, |pages| pages << 12);
        let limits = Limits { output_bytes, ..limits };
        let kept = limits.bytes(&program.code);
        check_memory(&[], kept)?;
        let (mut all, mut missing) = (ResolvedProbes::default(), Vec::new());
        for (number, (clause, routine)) in tree.clauses.iter().zip(&program.code.routines).enumerate() {
            for probe in &clause.probes {
                match all.add(number, routine, probe, &table) {
                    Err(error) if config.missing != Missing::Error && error.problem != Problem::OutOfMemory => {
                        let why = fallible::format(format_args!("{}: {}", probe.node, error.problem))?;
                        fallible::push(&mut missing, why)?;
                    }
                    outcome => outcome?,
                }
                check_memory(&all.places, kept)?;
            }
        }
        drop(table);
        if config.missing == Missing::Ignored {
            missing.clear();
        }
        let probes = all.places.len() + all.alone.len() + all.sampled.len() + all.watched.len();
        match config.probes {
            _ if probes == 0 => return Err(none_reached(missing.first().map(String::as_str))),
            Some(most) if probes > most => {
                return Err(ProgramRefusal::new(format_args!(
                    "the program has {probes} probes, and max_probes is {most}"
                )));
            }
            _ => {}
        }
        let ResolvedProbes { places, spans, names, alone, sampled, mut inlined, untold, moved, watched } = all;
        fallible::extend(&mut missing, moved)?;
        fallible::sort_by(&mut inlined, Ord::cmp);
        inlined.dedup_by_key(|(value, _)| *value);
        let store = Store::new(&program.code, &limits, time::nanoseconds());
        let store = store.map_err(|flaw| ProgramRefusal::new(format_args!("the program cannot run: {flaw}")))?;
        let (watchpoints, functions) = (Watchpoints::default(), Functions::of(&names)?);
        let (ending, reading) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        let (late, missed_samples) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok((
            Self {
                program,
                store,
                names,
                alone,
                sampled,
                inlined,
                untold,
                warnings: missing,
                watchpoints,
                functions,
                late,
                missed_samples,
                ending,
                reading,
                format: options.format,
                kept,
            },
            Wanted { places, watched, spans },
        ))
    }
}
