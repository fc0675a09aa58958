//! The hit path of a program: from a probe to its clause, and the state that the clause can ask for.
//!
//! Everything in this module and below runs with interrupts masked, while a probe is handled: it takes no locks except
//! those of the maps, does not allocate or panic, and calls nothing outside of the region of code that cannot be
//! probed. The linker script `kprobes-hit.x` places this module in the region by its path, together with the
//! interpreter. Compiled clauses lie elsewhere, but follow the same rules: their code is checked before it may run, and
//! calls only `callees` in this kernel.

pub(super) mod callees;
mod clause;
mod handler;
mod leave;
mod watched;

pub(super) use clause::{ArmedClause, run_alone, run_sample};
pub(super) use handler::INTERPRETER;
pub(super) use watched::{ArmedWatchpoint, WATCHED};
