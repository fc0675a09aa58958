//! The hit path of a program: from a probe to its clause, and the state that the clause can ask for.
//!
//! Everything in this module and below runs with interrupts masked, while a probe is handled: it takes no locks except
//! those of the maps, does not allocate or panic, and calls nothing outside of the closed region of the image. The
//! linker script places this module in the region by its path, together with the interpreter. Compiled clauses lie
//! elsewhere, but follow the same rules: their code is checked before it may run, and calls only `callees` in this
//! kernel.

#[cfg(target_os = "none")]
pub(super) mod callees;
#[cfg(target_os = "none")]
mod clause;
#[cfg(target_os = "none")]
mod handler;
mod leave;
#[cfg(target_os = "none")]
mod watched;

#[cfg(target_os = "none")]
pub(super) use clause::{INTERPRETER, Site, is_passed, run_alone, run_sample};
#[cfg(target_os = "none")]
pub(super) use watched::{WATCHED, WatchSite};
