//! `everything`: a probe on every instruction that can be probed, at once.
//!
//! They have no handlers, and only count. From the first one on the console itself runs through them: so they are armed, and
//! disarmed, at once.

use alloc::vec::Vec;
use core::mem;

use aarch64_kprobes::probe::Registration;
use aarch64_kprobes::{Kprobe, ProbeError, probe};
use kprobes_symbols::SymbolTable;

use super::session::Session;
use super::words::{Failure, Words};
use crate::{println, symbol};

/// `everything [on|off]`
pub(super) fn everything(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let word = words.next();
    words.end()?;
    match word {
        None => show(&session.everything),
        Some(word) => match word.text {
            "on" if session.everything.is_empty() => session.everything = probe_everything()?,
            "on" => return Err(word.failure("everything is probed already")),
            "off" => {
                Kprobe::unregister_all(mem::take(&mut session.everything));
            }
            _ => return Err(word.failure("`on`, `off` or nothing is expected here")),
        },
    }
    Ok(())
}

fn probe_everything() -> Result<Vec<Kprobe>, Failure> {
    let table = symbol::table().ok_or_else(|| Failure::new("this image has no symbol table"))?;
    let (mut probes, mut lacking) =
        placed(Kprobe::register_all(instructions(table).map(|at| Kprobe::at(at).disabled())));
    if Registration::set_all_enabled(probes.iter().map(|probe| &**probe), true).is_err() {
        // As many as there is memory for: each by itself.
        Kprobe::unregister_all(probes);
        (probes, lacking) = placed(Kprobe::register_all(instructions(table).map(Kprobe::at)));
    }
    println!("{} instructions are probed", probes.len());
    if lacking > 0 {
        println!("{lacking} more are not, as there is no memory for it");
    }
    Ok(probes)
}

/// The virtual addresses of all instructions.
fn instructions(table: &SymbolTable<'static>) -> impl Iterator<Item = usize> {
    let mut end = 0;
    let functions = table.iter().map(move |function| {
        // Functions of several names are probed once.
        let start = (function.address as usize).max(end);
        end = end.max((function.address + function.size) as usize);
        start..end
    });
    functions.flat_map(|function| function.step_by(4))
}

/// The probes that there are, and how many there is no memory for. What else cannot be probed `coverage` tells.
fn placed(outcomes: Vec<Result<Kprobe, ProbeError>>) -> (Vec<Kprobe>, usize) {
    let lacking = outcomes.iter().filter(|outcome| matches!(outcome, Err(ProbeError::OutOfMemory { .. }))).count();
    (outcomes.into_iter().flatten().collect(), lacking)
}

fn show(probes: &[Kprobe]) {
    if probes.is_empty() {
        return println!("`everything on` probes every instruction that can be probed");
    }
    let (hits, missed) =
        probes.iter().fold((0, 0), |(hits, missed), probe| (hits + probe.hits(), missed + probe.missed()));
    println!("{} instructions are probed: {hits} hits, {missed} missed", probes.len());
    let memory = probe::memory();
    println!(
        "copies of instructions take {} bytes, tables {} and counts {}",
        memory.slot_bytes + memory.stub_bytes,
        memory.table_bytes,
        memory.counter_bytes,
    );
}
