//! The hit path of a program: from a probe to its clause, and what the clause is told of the hit.
//!
//! Everything in this module and below runs with interrupts masked, while a probe is handled: no lock but those of the maps, no
//! allocation, no panic, and no call out of the closed region of the image, where the linker script places it by its path, and
//! the interpreter with it. What a clause is compiled to lies elsewhere, and keeps the same rules: it is looked over before it may
//! run, and of this kernel it calls `callees` alone.

#[cfg(target_os = "none")]
pub(super) mod callees;
#[cfg(target_os = "none")]
mod clause;
#[cfg(target_os = "none")]
mod handler;
mod leave;

#[cfg(target_os = "none")]
pub(super) use clause::{INTERPRETER, Site, is_passed, run_alone};
