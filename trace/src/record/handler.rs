//! The handlers that the engine calls.

use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::probe::{Call, Decision, Hit};

use super::{Moment, register};
use crate::host::Context;
use crate::recorder::{Kept, Recorder};

/// Records that an instruction is about to be executed. The data of the probe is the address of its
/// [`Recorder`].
pub(crate) fn hit(hit: &mut Hit<'_>) {
    // SAFETY: only `crate::engine` registers this function, which nobody else can name, with the address of a recorder
    // that outlives the probe, as the caller of `Armed::arm` promises.
    let recorder = unsafe { &*(hit.data() as *const Recorder) };
    let address = hit.address() as u64;
    recorder.record(hit.frame(), &Moment { context: Context::here(), address, return_address: 0, entry: &[] });
}

/// Keeps what is asked for when the function returns.
pub(crate) fn entered(call: &mut Call<'_>) -> Decision {
    // SAFETY: as above.
    let recorder = unsafe { &*(call.data() as *const Recorder) };
    for (index, &kept) in recorder.entry.iter().enumerate() {
        let value = match kept {
            Kept::Register(from) => register(from, call.frame()),
            Kept::Stack(offset) => nofault::read(call.frame().sp.wrapping_add(offset.into()) as usize).unwrap_or(0),
        };
        if let Some(word) = call.instance_data().get_mut(index) {
            *word = value;
        }
    }
    Decision::Follow
}

/// Records that a function has returned. The data of the probe is the address of its [`Recorder`].
pub(crate) fn returned(call: &mut Call<'_>) {
    // SAFETY: as above.
    let recorder = unsafe { &*(call.data() as *const Recorder) };
    let (address, return_address) = (call.function() as u64, call.return_address() as u64);
    let context = Context::here();
    let entry: *const [u64] = call.instance_data();
    // SAFETY: the words stay until the handler returns, and are not written.
    let entry = unsafe { &*entry };
    recorder.record(call.frame(), &Moment { context, address, return_address, entry });
}
