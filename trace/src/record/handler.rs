//! The handlers that the engine calls. The data of their probes is the address of a [`Recorder`].
//!
//! What is unusual about a hit is left to a function of its own, as the last thing that is done: what it saves on the stack, the
//! usual hit does not.

use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::probe::{Call, Decision, Entry, Hit};

use super::{Moment, Registers};
use crate::host::Context;
use crate::recorder::{Kept, Recorder};

/// The recorder of a probe that was registered with `data`.
#[inline(always)]
fn recorder(data: usize) -> &'static Recorder {
    // SAFETY: only `crate::engine` registers handlers of this module, which nobody else can name, with the address of a recorder
    // that outlives the probe, as the caller of `Armed::register` promises. No handler keeps it.
    unsafe { &*(data as *const Recorder) }
}

#[inline(always)]
fn moment(address: usize, return_address: Option<usize>, entry: &[u64]) -> Moment<'_> {
    let return_address = return_address.map(|address| address as u64);
    Moment { context: Context::here(), address: address as u64, return_address, entry }
}

/// Records that an instruction is about to be executed.
pub(crate) fn hit(hit: &mut Hit<'_>) {
    if !recorder(hit.data()).record_quickly(Registers::Frame(hit.frame()), || moment(hit.address(), None, &[])) {
        hit_unusually(hit);
    }
}

#[inline(never)]
fn hit_unusually(hit: &mut Hit<'_>) {
    let (recorder, registers) = (recorder(hit.data()), Registers::Frame(hit.frame()));
    if !recorder.tallies(registers, Context::cpu_here()) {
        recorder.record(registers, &moment(hit.address(), None, &[]));
    }
}

/// Records that a function is called. Only for recorders that ask for no register but those of a call.
pub(crate) fn called(entry: &Entry) {
    if !recorder(entry.data()).record_quickly(Registers::Entry(entry), || moment(entry.address(), None, &[])) {
        called_unusually(entry);
    }
}

#[inline(never)]
fn called_unusually(entry: &Entry) {
    let (recorder, registers) = (recorder(entry.data()), Registers::Entry(entry));
    if !recorder.tallies(registers, Context::cpu_here()) {
        recorder.record(registers, &moment(entry.address(), None, &[]));
    }
}

/// Keeps what is asked for when the function returns.
pub(crate) fn entered(call: &mut Call<'_>) -> Decision {
    for (index, &kept) in recorder(call.data()).entry.iter().enumerate() {
        let value = match kept {
            Kept::Register(from) => Registers::Frame(call.frame()).get(from),
            Kept::Stack(offset) => nofault::read(call.frame().sp.wrapping_add(offset.into()) as usize).unwrap_or(0),
        };
        if let Some(word) = call.instance_data().get_mut(index) {
            *word = value;
        }
    }
    Decision::Follow
}

/// Records that a function has returned.
pub(crate) fn returned(call: &mut Call<'_>) {
    let quickly = || moment(call.function(), Some(call.return_address()), &[]);
    if !recorder(call.data()).record_quickly(Registers::Frame(call.frame()), quickly) {
        returned_unusually(call);
    }
}

#[inline(never)]
fn returned_unusually(call: &mut Call<'_>) {
    if recorder(call.data()).tallies(Registers::Frame(call.frame()), Context::cpu_here()) {
        return;
    }
    let entry: *const [u64] = call.instance_data();
    // SAFETY: the words stay until the handler returns, and are not written.
    let entry = unsafe { &*entry };
    let moment = moment(call.function(), Some(call.return_address()), entry);
    recorder(call.data()).record(Registers::Frame(call.frame()), &moment);
}
