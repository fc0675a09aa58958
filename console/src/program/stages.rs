//! Shows what a program became on its way to instructions: its tree, its ops, and its compiled clauses.

use core::fmt::{self, Write};

use kprobes_vm::counted::counted;

use super::load::{Options, tree};
use super::machine_code::View;
use super::refusal::ProgramRefusal;
use super::running::RunningProgram;
use crate::disassembly::Disassembly;
use crate::tracing;

impl RunningProgram {
    /// Writes the program that `text` is parsed to, a clause in each line, with what `options` add to it.
    ///
    /// # Errors
    ///
    /// Returns the problem with `text`. Errors of `out` end the text.
    pub fn write_tree(text: &str, options: Options<'_>, out: &mut dyn Write) -> Result<(), ProgramRefusal> {
        // `out` keeps its error, and the caller finds it at the next write.
        let _ = tree(text, options)?.clauses.iter().try_for_each(|clause| writeln!(out, "{clause}"));
        Ok(())
    }

    /// Writes the maps, the actions and the ops that the program was lowered to.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write_ops(&self, out: &mut dyn Write) -> fmt::Result {
        write!(out, "{}", self.shared.program)
    }

    /// Writes the instructions that the clauses were compiled to, with their addresses.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write_instructions(&self, out: &mut dyn Write) -> fmt::Result {
        for number in 0..self.shared.program.code.routines.len() {
            let mut is_compiled = false;
            for (view, what) in
                [(View::Arguments, "at an entry"), (View::Frame, "at an instruction"), (View::Return, "at a return")]
            {
                let Some((start, code)) = self.attached.clauses.code(&self.shared, number, view) else { continue };
                is_compiled = true;
                let (words, literals) = code.words.split_at_checked(code.instructions).unwrap_or((&code.words, &[]));
                writeln!(
                    out,
                    "clause {} {what}, {}:",
                    number + 1,
                    counted(words.len(), "instruction", "instructions")
                )?;
                let within = start as u64..(start + 4 * code.words.len()) as u64;
                for (address, &word) in (start..).step_by(4).zip(words) {
                    let (address, within) = (address as u64, within.clone());
                    let shown = Disassembly { address, word, symbols: &tracing::Names, within };
                    writeln!(out, "  {address:016x}  {word:08x}  {shown}")?;
                }
                for (address, literal) in (start + 4 * words.len()..).step_by(4).zip(literals) {
                    writeln!(out, "  {address:016x}  {literal:08x}  .word {literal:#010x}")?;
                }
            }
            if !is_compiled {
                writeln!(out, "clause {} is interpreted", number + 1)?;
            }
        }
        Ok(())
    }

    /// Writes a line about each clause: its probes, the number of its places, the number of its ops, and how it runs.
    /// Then writes the memory of the program.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write_clauses(&self, out: &mut dyn Write) -> fmt::Result {
        let program = &self.shared.program;
        for (number, (routine, probes)) in program.code.routines.iter().zip(&program.probes).enumerate() {
            write!(out, "clause {}: ", number + 1)?;
            for (index, probe) in probes.iter().enumerate() {
                write!(out, "{}{probe}", if index > 0 { ", " } else { "" })?;
            }
            let alone = self.shared.alone.iter().filter(|(clause, _)| *clause == number).count();
            let sampled = self.shared.sampled.iter().filter(|sampled| sampled.clause == number).count();
            let places = self.attached.places_of(number) + self.watchpoints.places_of(number) + alone + sampled;
            let how = match self.attached.clauses.is_compiled(number) {
                true => "compiled",
                false => "interpreted",
            };
            let ops = counted(routine.ops.len(), "op", "ops");
            writeln!(out, ": {}, {ops}, {how}", counted(places, "place", "places"))?;
        }
        writeln!(out, "memory: {} KiB for maps, output and stacks", self.shared.kept >> 10)
    }
}
