//! The state of a program that its tasks and its hits share.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kprobes_program::checked::Checked;
use kprobes_program::report::{self, OutputFormat};
use kprobes_program::syntax::Probe;
use kprobes_vm::maps::Store;

use super::places::SampledClause;
use super::watchpoints::{Functions, Watchpoints};
use crate::host;

/// The state of a program that its tasks and its hits share.
#[derive(Debug)]
pub struct Shared {
    pub(super) program: Checked,
    pub(super) store: Store,
    /// The probes, in the order of their numbers, which count from 1.
    pub(super) names: Vec<Probe>,
    /// The clauses that run at no hit, each with the number of its name.
    pub(super) alone: Vec<(usize, usize)>,
    /// The clauses that run for samples.
    pub(super) sampled: Vec<SampledClause>,
    /// The values of the functions whose copies are probed, and of the functions that contain the copies, with their
    /// names, in ascending order of the values.
    pub(super) inlined: Vec<(u64, String)>,
    /// The number of copies that are not probed, because no instruction marks their entry or exit.
    pub(super) untold: usize,
    /// The lines about probes that reach nothing, or another line than the program names.
    pub(super) warnings: Vec<String>,
    /// The watchpoints that have not ended.
    pub(super) watchpoints: Watchpoints,
    /// The functions of the image, if there are watchpoints.
    pub(super) functions: Functions,
    /// The number of periods of `interval:` clauses that were missed.
    pub(super) late: AtomicU64,
    /// The number of samples that were missed.
    pub(super) missed_samples: AtomicU64,
    /// The time at which the tasks of the program were told to end, in nanoseconds; `u64::MAX` before that.
    pub(super) ending: AtomicU64,
    /// Whether a task is draining the output. Only one task at a time can.
    pub(super) reading: AtomicBool,
    pub(super) format: OutputFormat,
    /// The memory that the maps and the output take, in bytes.
    pub(super) kept: usize,
}

impl Shared {
    /// Returns the time at which the program ended, by `exit()` or because it was told to, in nanoseconds; `u64::MAX`
    /// while it runs.
    pub(super) fn end(&self) -> u64 {
        self.ending.load(Ordering::Relaxed).min(self.store.ended())
    }

    /// Returns whether the tasks of the program should end.
    pub(super) fn is_ending(&self) -> bool {
        self.end() != u64::MAX
    }

    /// Returns the probe whose name has this number.
    pub(super) fn named_probe(&self, name: usize) -> Option<&Probe> {
        self.names.get(name.checked_sub(1)?)
    }

    /// Writes the output since the last call, and carries out the actions on maps that it requests. Returns whether the
    /// program asked to exit. Writes nothing while another task drains the output.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub(super) fn drain(&self, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        if self.reading.swap(true, Ordering::Acquire) {
            return Ok(false);
        }
        let outcome = report::drain(&self.program, &self.store, self, &host::masked, self.format, out);
        self.reading.store(false, Ordering::Release);
        outcome
    }
}
