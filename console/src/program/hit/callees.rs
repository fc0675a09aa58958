//! What compiled clauses call: the interpreter, for an op that they have no instructions for.
//!
//! They are told the op by its number, and find its values in the frame of this CPU, where the interpreter has them. There is one
//! for each view of a hit. Each is a call of the AAPCS64 that generated code makes, so the audit takes them for where code leads
//! that it does not see: `audit/runtime.toml`.

use aarch64_kprobes::probe::{Call, Entry, Hit};
use kprobes_vm::hit as vm;

use super::clause::{Moment, Registers, Site};
use crate::program::Shared;

/// Does op `number & 0xffff` of clause `number >> 16` of `shared`, at this hit of its probe.
#[inline(always)]
fn perform(moment: &Moment<'_, impl Registers>, number: u64, shared: &Shared) {
    let (clause, op) = ((number >> 16) as usize, (number & 0xffff) as usize);
    vm::perform(&shared.program.code, clause, op, &shared.store, moment);
}

/// Where a handler is told what a call passes.
pub(crate) extern "C" fn entered(entry: &Entry, number: u64, shared: &Shared) {
    // SAFETY: compiled code gives on what it was given, and `super::super::attach` registers it, with the address of a site that
    // outlives the probe.
    let site = unsafe { Site::at(entry.data()) };
    perform(&Moment { site, registers: entry, return_address: None, result: 0 }, number, shared);
}

/// Where it is told all registers.
pub(crate) extern "C" fn reached(hit: &Hit<'_>, number: u64, shared: &Shared) {
    // SAFETY: as above.
    let site = unsafe { Site::at(hit.data()) };
    perform(&Moment { site, registers: hit.frame(), return_address: None, result: 0 }, number, shared);
}

/// Where a call has come back to.
pub(crate) extern "C" fn returned(call: &Call<'_>, number: u64, shared: &Shared) {
    // SAFETY: as above.
    perform(&unsafe { Moment::returned(call) }, number, shared);
}
