//! The end of a program, after its probes: its `END`, the rest of its output, and what it missed.

use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;

use fallible::Arc;
use kprobes_program::report;
use kprobes_program::syntax::Probe;
use kprobes_vm::counted::counted;

use super::alone;
use super::attach::Unseen;
use super::shared::Shared;
use crate::host;
use crate::symbol::Symbolic;

/// A program whose clauses no longer run, except for `END`.
#[must_use]
pub struct DetachedProgram {
    pub(super) shared: Arc<Shared>,
    pub(super) unseen: Unseen,
    /// The virtual addresses of the exclusive loads at which watchpoints were given up.
    pub(super) given_up: Vec<usize>,
}

impl DetachedProgram {
    /// Runs `END`, and writes the rest of the output: see
    /// [`RunningProgram::finish`](super::RunningProgram::finish). Called once.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn finish(&self, out: &mut dyn Write) -> fmt::Result {
        let Self { shared, unseen, given_up } = self;
        // `drain` returns true at the record of an `exit()`. CPUs that had not seen the exit yet may have written
        // output after it.
        while shared.drain(out)? {}
        // There is room for the output of `END` now.
        alone::run(shared, |probe| *probe == Probe::End);
        while shared.drain(out)? {}
        report::write_maps(&shared.program, &shared.store, &**shared, &host::masked, shared.format, out)?;
        let keeps_calls = shared.names.iter().any(|probe| matches!(probe, Probe::Kretprobe { .. }));
        const OF_CALLS: &str = ", too many calls of the function were in progress, or a call did not return";
        let or = if keeps_calls { OF_CALLS } else { "" };
        let busy = fallible::format(format_args!("another hit was being handled on the same CPU{or}"))?;
        for (missed, [one, many], why) in [
            (shared.late.load(Ordering::Relaxed), ["interval", "intervals"], "the CPU was busy"),
            (
                shared.missed_samples.load(Ordering::Relaxed),
                ["sample", "samples"],
                "the interrupt was answered too late",
            ),
            (unseen.hits, ["hit", "hits"], busy.as_str()),
            (unseen.returns, ["return", "returns"], "the call was in progress when the program ended"),
        ] {
            match missed {
                0 => {}
                _ => {
                    let sentence = fallible::format(format_args!("Missed {}: {why}", counted(missed, one, many)))?;
                    shared.format.write_failure(&sentence, out)?;
                }
            }
        }
        for &address in given_up {
            let sentence = fallible::format(format_args!(
                "A watchpoint ended at {}: the sequence of this exclusive load cannot be followed to its store",
                Symbolic(address)
            ))?;
            shared.format.write_failure(&sentence, out)?;
        }
        Ok(())
    }

    /// Returns the exit status that the program asked for first; 0 if it has not.
    #[must_use]
    pub fn status(&self) -> u8 {
        self.shared.store.status()
    }
}
