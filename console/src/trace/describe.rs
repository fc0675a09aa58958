//! Describes a program before it runs: the number of its probes, the functions and clauses that cannot be probed or
//! compiled, and with `-v` and `-d` the results of the compiler.

use core::fmt::{self, Write};

use kprobes_vm::counted::counted;

use super::request::{Stage, Stages};
use crate::program::{Options, ProgramRefusal, RunningProgram};
use crate::symbol;

/// The choice of remarks about a program.
#[derive(Default)]
pub(super) struct Notes {
    /// Whether the number of probes is left out.
    pub is_quiet: bool,
    /// Whether other remarks are left out: what cannot be probed, and what is interpreted.
    pub is_silent: bool,
    /// Whether there is a line about each clause.
    pub is_verbose: bool,
    /// The stages of the compiler whose results are shown.
    pub stages: Stages,
}

impl Notes {
    /// Writes the parsed program if the stage `ast` is shown.
    ///
    /// # Errors
    ///
    /// Returns the problem with `text`.
    pub fn write_tree(&self, text: &str, options: Options<'_>, out: &mut dyn Write) -> Result<(), ProgramRefusal> {
        if self.stages.has(Stage::Tree) { RunningProgram::write_tree(text, options, out) } else { Ok(()) }
    }

    /// Writes all but the parsed program.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write(&self, program: &RunningProgram, out: &mut dyn Write) -> fmt::Result {
        if self.stages.has(Stage::Ops) {
            program.write_ops(out)?;
        }
        if self.stages.has(Stage::Instructions) {
            program.write_instructions(out)?;
        }
        if self.is_verbose {
            program.write_clauses(out)?;
        }
        match (self.is_quiet, self.is_silent) {
            (false, false) => describe(program, out),
            (false, true) => writeln!(out, "{}", counted(program.probes(), "probe", "probes")),
            (true, _) => Ok(()),
        }
    }

    /// Returns whether more than the number of probes is written about `program`.
    pub fn has_more(&self, program: &RunningProgram) -> bool {
        self.stages != Stages::default() || self.is_verbose || !self.is_quiet && !self.is_silent && has_remarks(program)
    }
}

/// Returns whether [`describe`] writes more than the number of probes.
fn has_remarks(program: &RunningProgram) -> bool {
    /// Fails at the first character.
    struct Nothing;

    impl Write for Nothing {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            if text.is_empty() { Ok(()) } else { Err(fmt::Error) }
        }
    }

    describe_refused(program, &mut Nothing).and_then(|()| describe_rest(program, &mut Nothing)).is_err()
}

/// Writes the number of probes on the first line, with the functions and instructions that cannot be probed, and then
/// the further lines.
fn describe(program: &RunningProgram, out: &mut dyn Write) -> fmt::Result {
    write!(out, "{}", counted(program.probes(), "probe", "probes"))?;
    describe_refused(program, out)?;
    writeln!(out)?;
    describe_rest(program, out)
}

/// Writes the functions and the instructions that cannot be probed, after the number of probes.
fn describe_refused(program: &RunningProgram, out: &mut dyn Write) -> fmt::Result {
    let mut functions = program.refused();
    match (functions.next(), functions.count()) {
        (None, _) => {}
        (Some(one), 0) => write!(out, "; 1 function cannot be probed: `why {}`", symbol::path(&one)?)?,
        (Some(first), others) => {
            let first = symbol::path(&first)?;
            write!(out, "; {} functions cannot be probed: `why {first}` for the first", 1 + others)?;
        }
    }
    let instructions = program.refused_instructions();
    let place = |address: usize| {
        fmt::from_fn(move |f| {
            let Some(function) = symbol::lookup(address) else { return Ok(()) };
            write!(f, "{}+{:#x}", symbol::path(&function)?, address as u64 - function.address)
        })
    };
    match *instructions {
        [] => {}
        [one] => write!(out, "; 1 instruction of the probed functions cannot be probed: `why {}`", place(one))?,
        [first, ..] => write!(
            out,
            "; {} instructions of the probed functions cannot be probed: `why {}` for the first",
            instructions.len(),
            place(first)
        )?,
    }
    Ok(())
}

/// Writes lines about copies that are not probed, code that is not sampled, the warnings of the program, and clauses
/// that are interpreted.
fn describe_rest(program: &RunningProgram, out: &mut dyn Write) -> fmt::Result {
    match program.untold() {
        0 => {}
        1 => writeln!(out, "1 inlined copy is not probed: no instruction marks where it is entered or left")?,
        untold => writeln!(
            out,
            "{untold} inlined copies are not probed: no instruction marks where they are entered or left"
        )?,
    }
    if let Some(why) = program.unmasked_only() {
        writeln!(out, "code that has interrupts masked is not sampled: {why}")?;
    }
    program.warnings().iter().try_for_each(|warning| writeln!(out, "warning: {warning}"))?;
    program
        .interpreted()
        .iter()
        .try_for_each(|(number, reason)| writeln!(out, "clause {} is interpreted: {reason}", number + 1))
}
