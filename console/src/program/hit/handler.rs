//! The handlers that the engine calls. The data of each probe is the address of its [`Site`].

use aarch64_kprobes::probe::{Call, Decision, Entry, Hit};

use super::clause::{Moment, Site};

/// At the first instruction of a function, with what a call passes.
#[unsafe(link_section = ".kprobes.text.handlers.program_entered")]
pub(crate) extern "C" fn entered(entry: &Entry) {
    // SAFETY: only `super::super::attach` registers these functions, with the address of a site that outlives the probe.
    let site = unsafe { Site::at(entry.data()) };
    Moment { site, registers: entry, return_address: None, result: 0 }.run();
}

/// At an instruction.
#[unsafe(link_section = ".kprobes.text.handlers.program_reached")]
pub(crate) extern "C" fn reached(hit: &mut Hit<'_>) {
    // SAFETY: as above.
    let site = unsafe { Site::at(hit.data()) };
    Moment { site, registers: hit.frame(), return_address: None, result: 0 }.run();
}

/// At an instruction that leaves its function, or does not.
#[unsafe(link_section = ".kprobes.text.handlers.program_left")]
pub(crate) extern "C" fn left(hit: &mut Hit<'_>) {
    // SAFETY: as above.
    let site = unsafe { Site::at(hit.data()) };
    if site.exit.is_taken(hit.frame(), &(site.function..site.function_end)) {
        Moment { site, registers: hit.frame(), return_address: None, result: 0 }.run();
    }
}

/// Where a call has come back to.
#[unsafe(link_section = ".kprobes.text.handlers.program_returned")]
pub(crate) extern "C" fn returned(call: &mut Call<'_>) {
    // SAFETY: as above.
    unsafe { Moment::returned(call) }.run();
}

/// At the entry of a function whose clause asks where it writes what it returns: x8 has the address (AAPCS64, section 6.9), and
/// does not keep it.
#[unsafe(link_section = ".kprobes.text.handlers.program_called")]
pub(crate) extern "C" fn called(call: &mut Call<'_>) -> Decision {
    let address = call.frame().register(8);
    if let Some(word) = call.instance_data_mut().first_mut() {
        *word = address;
    }
    Decision::Follow
}
