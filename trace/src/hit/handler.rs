//! The handlers that the engine calls. The data of their probes is the address of a [`Recorder`].
//!
//! What is unusual about a hit is left to a function of its own, as the last thing that is done: what it saves on the stack, the
//! usual hit does not.

use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::probe::{Call, Decision, Entry, Hit};

use super::Registers;
use super::write::Moment;
use crate::host::Context;
use crate::recorder::{Kept, Recorder};

/// What the engine shows to a handler.
trait Seen {
    /// The word that the probe was registered with.
    fn data(&self) -> usize;
    /// The registers of the probed code.
    fn registers(&self) -> Registers<'_>;
    /// What else there is to record, where this is what was kept at the entry of the function.
    fn moment<'a>(&self, kept: &'a [u64]) -> Moment<'a>;

    /// What was kept at the entry of the function.
    #[inline(always)]
    fn kept(&self) -> &[u64] {
        &[]
    }
}

/// The recorder of a probe that was registered with `data`.
///
/// # Safety
///
/// `data` is the address of one, which stays as long as the reference is used.
#[inline(always)]
unsafe fn recorder<'a>(data: usize) -> &'a Recorder {
    // SAFETY: by the caller.
    unsafe { &*(data as *const Recorder) }
}

impl Seen for Hit<'_> {
    #[inline(always)]
    fn data(&self) -> usize {
        self.data()
    }

    #[inline(always)]
    fn registers(&self) -> Registers<'_> {
        Registers::Frame(self.frame())
    }

    #[inline(always)]
    fn moment<'a>(&self, kept: &'a [u64]) -> Moment<'a> {
        moment(self.address(), None, kept)
    }
}

impl Seen for Entry {
    #[inline(always)]
    fn data(&self) -> usize {
        self.data()
    }

    #[inline(always)]
    fn registers(&self) -> Registers<'_> {
        Registers::Entry(self)
    }

    #[inline(always)]
    fn moment<'a>(&self, kept: &'a [u64]) -> Moment<'a> {
        moment(self.address(), None, kept)
    }
}

impl Seen for Call<'_> {
    #[inline(always)]
    fn data(&self) -> usize {
        self.data()
    }

    #[inline(always)]
    fn registers(&self) -> Registers<'_> {
        Registers::Frame(self.frame())
    }

    #[inline(always)]
    fn moment<'a>(&self, kept: &'a [u64]) -> Moment<'a> {
        moment(self.function(), Some(self.return_address()), kept)
    }

    #[inline(always)]
    fn kept(&self) -> &[u64] {
        self.instance_data()
    }
}

#[inline(always)]
fn moment(address: usize, return_address: Option<usize>, entry: &[u64]) -> Moment<'_> {
    let return_address = return_address.map(|address| address as u64);
    Moment { context: Context::here(), address: address as u64, return_address, entry }
}

/// Records that an instruction is about to be executed.
#[unsafe(link_section = ".kprobes.text.handlers.trace_hit")]
pub(crate) extern "C" fn hit(hit: &mut Hit<'_>) {
    record(&*hit);
}

/// Records that a function is called. Only for recorders that ask for no register but those of a call.
#[unsafe(link_section = ".kprobes.text.handlers.trace_called")]
pub(crate) extern "C" fn called(entry: &Entry) {
    record(entry);
}

/// Records that a function has returned.
#[unsafe(link_section = ".kprobes.text.handlers.trace_returned")]
pub(crate) extern "C" fn returned(call: &mut Call<'_>) {
    record(&*call);
}

/// Keeps what is asked for when the function returns.
#[unsafe(link_section = ".kprobes.text.handlers.trace_entered")]
pub(crate) extern "C" fn entered(call: &mut Call<'_>) -> Decision {
    // SAFETY: as in `record`.
    let recorder = unsafe { recorder(call.data()) };
    for (index, &kept) in recorder.entry.iter().enumerate() {
        let value = match kept {
            Kept::Register(from) => call.registers().get(from),
            Kept::Stack(offset) => {
                // SAFETY: above the stack pointer of a function that has been called lies its caller's part of the stack.
                unsafe { nofault::read(call.frame().sp.wrapping_add(offset.into()) as usize) }.unwrap_or(0)
            }
        };
        if let Some(word) = call.instance_data_mut().get_mut(index) {
            *word = value;
        }
    }
    Decision::Follow
}

#[inline(always)]
fn record(seen: &impl Seen) {
    // SAFETY: only `crate::engine` registers handlers of this module, which nobody else can name, with the address of a recorder
    // that outlives the probe, as the caller of `Armed::register` promises; and there is the probe while its handler runs.
    let recorder = unsafe { recorder(seen.data()) };
    // SAFETY: this is a hit of its probe, and the moment is that of the hit. What was kept is no word of the hit itself.
    if !unsafe { recorder.record_quickly(seen.registers(), || seen.moment(&[])) } {
        record_unusually(seen);
    }
}

#[inline(never)]
fn record_unusually(seen: &impl Seen) {
    // SAFETY: as above.
    let recorder = unsafe { recorder(seen.data()) };
    if !recorder.tallies(seen.registers(), Context::cpu_here()) {
        // SAFETY: as above.
        unsafe { recorder.record(seen.registers(), &seen.moment(seen.kept())) };
    }
}
