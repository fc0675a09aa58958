//! Clauses that run for samples: after a time or a number of events, on every CPU, in the code that the CPU runs. The
//! kernel provides the clock ([`SamplingClock`]). The clauses are interpreted.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

use aarch64_kprobes::exception::TrapFrame;
use fallible::OutOfMemory;
use kprobes_program::syntax::Period;

use super::exits::Exit;
use super::hit::{self, ArmedClause};
use super::shared::Shared;
use crate::host::{Coverage, SampleHandler, Sampler, SamplingClock, SamplingError, host};
use crate::{prologue, symbol, time};

/// The samples that a program takes. Dropping it ends them.
pub(super) struct Samples {
    running: Option<Box<dyn Sampler>>,
    coverage: Coverage,
}

/// Returns the kernel's clock.
fn clock() -> Result<&'static dyn SamplingClock, SamplingError> {
    host().sampling_clock().ok_or(SamplingError::Timer("this kernel has no clock for samples"))
}

/// Returns the periods of the clauses that run for samples.
fn periods(shared: &Shared) -> Result<Vec<Period>, OutOfMemory> {
    fallible::collect(shared.sampled.iter().map(|sampled| sampled.period))
}

impl Samples {
    /// Asks the clock which code it can sample for `shared`. No sample is taken yet.
    ///
    /// # Errors
    ///
    /// The program has clauses for samples, and the CPUs cannot be sampled.
    pub fn prepare(shared: &Shared) -> Result<Self, SamplingError> {
        if shared.sampled.is_empty() {
            return Ok(Self { running: None, coverage: Coverage::Masked });
        }
        Ok(Self { running: None, coverage: clock()?.coverage(&periods(shared)?)? })
    }

    /// Starts the samples of `shared`, if it has clauses for samples.
    ///
    /// # Errors
    ///
    /// The CPUs cannot be sampled, for the reason that is returned.
    ///
    /// # Safety
    ///
    /// `shared` must outlive the samples and must not move.
    pub unsafe fn start(&mut self, shared: &Shared) -> Result<(), SamplingError> {
        if shared.sampled.is_empty() {
            return Ok(());
        }
        let handler = SampleHandler { take, data: core::ptr::from_ref(shared).expose_provenance() };
        // SAFETY: `take` can be called with the address of `shared` as long as `shared` lives, which is longer than the
        // samples are taken (see # Safety).
        self.running = Some(unsafe { clock()?.start(&periods(shared)?, handler) }?);
        Ok(())
    }

    /// Ends the samples, and counts those that were due before the end of the program and have not been taken.
    pub fn end(mut self, shared: &Shared) {
        let Some(running) = self.running.take() else { return };
        let end = shared.end();
        let ended = (end != u64::MAX).then(|| Duration::from_nanos(time::nanoseconds().saturating_sub(end)));
        shared.missed_samples.fetch_add(running.stop(ended), Ordering::Relaxed);
    }

    /// Returns the reason why only code that has interrupts unmasked is sampled; `None` if other code is sampled, too.
    pub fn unmasked_only(&self) -> Option<&'static str> {
        match self.coverage {
            Coverage::Unmasked(why) => Some(why),
            Coverage::Masked => None,
        }
    }
}

/// Takes a sample for the clause with this number, of the code that was interrupted with the registers `frame`.
/// `missed` samples before it could not be taken. Returns false if the program is ending. The function and the caller
/// are looked up here and not in the hit path, because the lookup may be probed.
///
/// # Safety
///
/// `shared` must be the address of a `Shared` that lives, and all interrupts must be masked.
unsafe fn take(shared: usize, number: usize, missed: u64, frame: &TrapFrame) -> bool {
    let shared: *const Shared = core::ptr::with_exposed_provenance(shared);
    // SAFETY: the caller guarantees that the `Shared` lives (see # Safety).
    let program = unsafe { &*shared };
    let Some(sampled) = program.sampled.get(number).filter(|_| !program.is_ending()) else { return false };
    program.missed_samples.fetch_add(missed, Ordering::Relaxed);
    let pc = frame.pc as usize;
    let function = sampled.wants_function.then(|| symbol::function(pc)).flatten().unwrap_or(pc..pc);
    let armed = ArmedClause {
        shared,
        clause: sampled.clause,
        name: sampled.name as u64,
        function: function.start as u64,
        function_end: function.end as u64,
        is_caller_in_x30: sampled.wants_caller && prologue::is_caller_in_x30(pc),
        exit: Exit::Always,
        caller: None,
    };
    // SAFETY: the program of `armed` is the `Shared`, which lives (see # Safety).
    unsafe { hit::run_sample(&armed, frame) };
    true
}
