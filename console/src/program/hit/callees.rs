//! The functions that compiled clauses call: each runs the interpreter for one op that has no compiled form.
//!
//! A function gets the number of the op, and finds the operands in the frame of this CPU, as the interpreter does.
//! There is a function for each view of a hit. Generated code calls these functions by the AAPCS64. The audit cannot
//! see these calls, so `[[generated]]` in `audit/console.toml` declares them.

use aarch64_kprobes::probe::{Call, CallArguments, Hit};
use kprobes_vm::hit as vm;

use super::clause::{ArmedClause, ClauseHit, Registers};
use crate::program::Shared;

/// Executes op `number & 0xffff` of clause `number >> 16` of `shared` at this hit.
#[inline(always)]
fn perform(hit: &ClauseHit<'_, impl Registers>, number: u64, shared: &Shared) {
    let (clause, op) = ((number >> 16) as usize, (number & 0xffff) as usize);
    vm::perform(&shared.program.code, clause, op, &shared.store, hit);
}

/// Executes an op for a handler that gets the registers that a call passes.
pub(crate) extern "C" fn entered(call: &CallArguments, number: u64, shared: &Shared) {
    // SAFETY: compiled code passes on the `CallArguments` that it was given, and `super::super::attach` registers it
    // with the address of an armed clause that outlives the probe.
    let armed = unsafe { ArmedClause::at(call.data()) };
    perform(&ClauseHit { armed, registers: call, return_address: None, result: 0 }, number, shared);
}

/// Executes an op for a handler that gets all registers.
pub(crate) extern "C" fn reached(hit: &Hit<'_>, number: u64, shared: &Shared) {
    // SAFETY: compiled code passes on the `Hit` that it was given, and `super::super::attach` registers it with the
    // address of an armed clause that outlives the probe.
    let armed = unsafe { ArmedClause::at(hit.data()) };
    perform(&ClauseHit { armed, registers: hit.frame(), return_address: None, result: 0 }, number, shared);
}

/// Executes an op for a handler of a call that has returned.
pub(crate) extern "C" fn returned(call: &Call<'_>, number: u64, shared: &Shared) {
    // SAFETY: compiled code passes on the `Call` that it was given, and `super::super::attach` registers it with the
    // address of an armed clause that outlives the probe.
    perform(&unsafe { ClauseHit::returned(call) }, number, shared);
}
