//! The handlers that the engine calls. The data word of each probe is the address of its [`Recorder`].
//!
//! Work for an unusual hit is in a function of its own, which is called last. So a usual hit does not save the
//! registers that this function would need on the stack.

use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::probe::{Call, CallArguments, Decision, Hit};

use super::Registers;
use super::write::RecordedHit;
use crate::context::Context;
use crate::recorder::{EntryValue, Recorder};

/// A hit, as the engine shows it to a handler.
trait Seen {
    /// Returns the word that the probe was registered with.
    fn data(&self) -> usize;
    /// Returns the registers of the probed code.
    fn registers(&self) -> Registers<'_>;
    /// Returns the rest of the hit, with `kept` as the values saved at the entry of the function.
    fn recorded<'a>(&self, kept: &'a [u64]) -> RecordedHit<'a>;

    /// Returns the values saved at the entry of the function; none for a probe.
    #[inline(always)]
    fn kept(&self) -> &[u64] {
        &[]
    }
}

/// Returns the recorder of a probe that was registered with `data`.
///
/// # Safety
///
/// `data` must be the address of a [`Recorder`] that lives as long as the returned reference.
#[inline(always)]
unsafe fn recorder<'a>(data: usize) -> &'a Recorder {
    // SAFETY: the caller guarantees that `data` is the address of a recorder that lives long enough (see # Safety).
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
    fn recorded<'a>(&self, kept: &'a [u64]) -> RecordedHit<'a> {
        // SAFETY: a `Hit` exists only while the engine handles a hit.
        unsafe { recorded_hit(self.address(), None, kept) }
    }
}

impl Seen for CallArguments {
    #[inline(always)]
    fn data(&self) -> usize {
        self.data()
    }

    #[inline(always)]
    fn registers(&self) -> Registers<'_> {
        Registers::Arguments(self)
    }

    #[inline(always)]
    fn recorded<'a>(&self, kept: &'a [u64]) -> RecordedHit<'a> {
        // SAFETY: `CallArguments` exist only while the engine handles a hit.
        unsafe { recorded_hit(self.address(), None, kept) }
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
    fn recorded<'a>(&self, kept: &'a [u64]) -> RecordedHit<'a> {
        // SAFETY: a `Call` exists only while the engine handles a hit.
        unsafe { recorded_hit(self.function(), Some(self.return_address()), kept) }
    }

    #[inline(always)]
    fn kept(&self) -> &[u64] {
        self.instance_data()
    }
}

/// Returns the hit that is being handled.
///
/// # Safety
///
/// The caller must be handling a hit.
#[inline(always)]
unsafe fn recorded_hit(address: usize, return_address: Option<usize>, entry: &[u64]) -> RecordedHit<'_> {
    let return_address = return_address.map(|address| address as u64);
    // SAFETY: the caller is handling a hit (see # Safety).
    let context = unsafe { Context::here() };
    RecordedHit { context, address: address as u64, return_address, entry, is_caller_in_x30: false }
}

/// Records that an instruction is about to be executed.
#[unsafe(link_section = ".kprobes.text.handlers.trace_hit")]
pub(crate) extern "C" fn hit(hit: &mut Hit<'_>) {
    record(&*hit);
}

/// Records that a function is called. Only for recorders whose arguments use only the registers of a call.
#[unsafe(link_section = ".kprobes.text.handlers.trace_called")]
pub(crate) extern "C" fn called(call: &CallArguments) {
    record(call);
}

/// Records that a function has returned.
#[unsafe(link_section = ".kprobes.text.handlers.trace_returned")]
pub(crate) extern "C" fn returned(call: &mut Call<'_>) {
    record(&*call);
}

/// Saves the values that the record at the return needs from the entry.
#[unsafe(link_section = ".kprobes.text.handlers.trace_entered")]
pub(crate) extern "C" fn entered(call: &mut Call<'_>) -> Decision {
    // SAFETY: `crate::engine` has registered this handler with the address of a recorder that outlives the probe, as #
    // Safety of `RegisteredProbe::register` demands.
    let recorder = unsafe { recorder(call.data()) };
    for (index, &kept) in recorder.entry.iter().enumerate() {
        let value = match kept {
            EntryValue::Register(from) => call.registers().get(from),
            EntryValue::Stack(offset) => {
                // SAFETY: the probe is at a function's entry, so the caller's part of the stack lies above the stack
                // pointer. Loads from a stack have no side effect.
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
    // SAFETY: only `crate::engine` and `crate::tracer::probes` register the handlers of this module, with the address
    // of a recorder that outlives the probe: # Safety of `RegisteredProbe::register` demands it, and `Traced` drops
    // recorders after probes. The probe exists while its handler runs.
    let recorder = unsafe { recorder(seen.data()) };
    // SAFETY: the engine calls this handler at a hit of this probe, with interrupts masked, and the recorded hit is
    // that hit. It lacks the words saved at the entry: a program of words, the only kind recorded quickly, uses none.
    if !unsafe { recorder.record_fast(seen.registers(), || seen.recorded(&[])) } {
        record_slow(seen);
    }
}

#[inline(never)]
fn record_slow(seen: &impl Seen) {
    // SAFETY: `data` is the address of a recorder that outlives the probe, for the reason given in `record`.
    let recorder = unsafe { recorder(seen.data()) };
    // SAFETY: the engine calls this handler at a hit of this probe, on this CPU, with interrupts masked.
    if !unsafe { recorder.tallies(seen.registers(), Context::cpu_here()) } {
        // SAFETY: the engine calls this handler at a hit of this probe, with interrupts masked, and the recorded hit is
        // that hit.
        unsafe { recorder.record(seen.registers(), &seen.recorded(seen.kept())) };
    }
}
