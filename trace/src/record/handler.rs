//! The handlers that the engine calls.

use aarch64_kprobes::probe::{Call, Hit};

use crate::host::Context;
use crate::recorder::Recorder;

// SAFETY: `host!` defines both in the image, with these signatures.
unsafe extern "Rust" {
    safe fn kprobes_trace_context() -> Context;
    safe fn kprobes_trace_counter() -> u64;
}

/// Records that an instruction is about to be executed. The data of the probe is the address of its
/// [`Recorder`].
pub(crate) fn hit(hit: &mut Hit<'_>) {
    // SAFETY: only `crate::engine` registers this function, which nobody else can name, with the address of a recorder
    // that outlives the probe, as the caller of `Armed::arm` promises.
    let recorder = unsafe { &*(hit.data() as *const Recorder) };
    let time = kprobes_trace_counter();
    recorder.record(hit.frame(), hit.address() as u64, 0, &kprobes_trace_context(), time);
}

/// Records that a function has returned. The data of the probe is the address of its [`Recorder`].
pub(crate) fn returned(call: &mut Call<'_>) {
    // SAFETY: only `crate::engine` registers this function, which nobody else can name, with the address of a recorder
    // that outlives the probe, as the caller of `Armed::arm` promises.
    let recorder = unsafe { &*(call.data() as *const Recorder) };
    let time = kprobes_trace_counter();
    let (function, caller) = (call.function() as u64, call.return_address() as u64);
    recorder.record(call.frame(), function, caller, &kprobes_trace_context(), time);
}
