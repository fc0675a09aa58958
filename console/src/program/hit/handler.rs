//! The handlers that the engine calls to interpret clauses. The data of each probe is the address of its
//! [`ArmedClause`].

use aarch64_kprobes::probe::{
    ArgumentHandler, Call, CallArguments, Decision, EntryHandler, Hit, PreHandler, ReturnHandler,
};

use super::clause::{ArmedClause, ClauseHit};

/// The handlers that the engine calls at the hits of a clause, each with the address of an [`ArmedClause`] as its data.
/// A compiled clause replaces all handlers but `left` and `called`.
pub(crate) struct Handlers {
    /// Called at the first instruction of a function, if the clause needs only the registers that a call passes.
    pub entered: ArgumentHandler,
    /// Called at any instruction.
    pub reached: PreHandler,
    /// Called at an instruction that may leave its function.
    pub left: PreHandler,
    /// Called at a return.
    pub returned: ReturnHandler,
    /// Called at the entry of a function, before the handler of its return.
    pub called: EntryHandler,
}

/// The handlers that interpret the clause.
pub(crate) const INTERPRETER: Handlers = Handlers { entered, reached, left, returned, called };

/// Runs a clause at the first instruction of a function, with the registers that a call passes.
#[unsafe(link_section = ".kprobes.text.handlers.program_entered")]
pub(crate) extern "C" fn entered(call: &CallArguments) {
    // SAFETY: only `super::super::attach` registers this function, with the address of an armed clause that outlives
    // the probe.
    let armed = unsafe { ArmedClause::at(call.data()) };
    ClauseHit { armed, registers: call, return_address: None, result: 0 }.run();
}

/// Runs a clause at an instruction.
#[unsafe(link_section = ".kprobes.text.handlers.program_reached")]
pub(crate) extern "C" fn reached(hit: &mut Hit<'_>) {
    // SAFETY: only `super::super::attach` registers this function, with the address of an armed clause that outlives
    // the probe.
    let armed = unsafe { ArmedClause::at(hit.data()) };
    ClauseHit { armed, registers: hit.frame(), return_address: None, result: 0 }.run();
}

/// Runs a clause at an instruction that may leave its function, if the instruction is about to leave it.
#[unsafe(link_section = ".kprobes.text.handlers.program_left")]
pub(crate) extern "C" fn left(hit: &mut Hit<'_>) {
    // SAFETY: only `super::super::attach` registers this function, with the address of an armed clause that outlives
    // the probe.
    let armed = unsafe { ArmedClause::at(hit.data()) };
    if armed.exit.is_taken(hit.frame(), &(armed.function..armed.function_end)) {
        ClauseHit { armed, registers: hit.frame(), return_address: None, result: 0 }.run();
    }
}

/// Runs a clause at the return of a call.
#[unsafe(link_section = ".kprobes.text.handlers.program_returned")]
pub(crate) extern "C" fn returned(call: &mut Call<'_>) {
    // SAFETY: only `super::super::attach` registers this function, with the address of an armed clause that outlives
    // the probe.
    unsafe { ClauseHit::returned(call) }.run();
}

/// Saves the address at which a function will write its result, for the clause at its return. At the entry, x8 has this
/// address (AAPCS64, section 6.9); the function need not preserve it.
#[unsafe(link_section = ".kprobes.text.handlers.program_called")]
pub(crate) extern "C" fn called(call: &mut Call<'_>) -> Decision {
    let address = call.frame().register(8);
    if let Some(word) = call.instance_data_mut().first_mut() {
        *word = address;
    }
    Decision::Follow
}
