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
use crate::{memory, println, symbol};

/// How many are registered at once: until they are, there are lists of them.
const AT_ONCE: usize = 1024;

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
    let (mut some, mut probes, mut is_complete) = (instructions(table), Vec::new(), false);
    while !is_complete && has_memory(&mut probes) {
        let disabled = some.by_ref().take(AT_ONCE).map(|at| Kprobe::at(at).disabled());
        let Ok(outcomes) = Kprobe::register_all(disabled) else { break };
        is_complete = outcomes.is_empty();
        // Others cannot be probed, as `coverage` tells; or there is no memory for them. There is room, by `has_memory`.
        probes.extend(outcomes.into_iter().flatten());
    }
    if Registration::set_all_enabled(probes.iter().map(|probe| &**probe), true).is_err() {
        // As many as there is memory for.
        for some in probes.chunks(AT_ONCE) {
            if Registration::set_all_enabled(some.iter().map(|probe| &**probe), true).is_err() {
                some.iter().for_each(|probe| _ = probe.enable());
            }
        }
        probes.retain(|probe| probe.is_enabled());
    }
    println!("{} instructions are probed", probes.len());
    let mut checker = probe::Checker::new();
    let mut can_be_probed =
        |address: &usize| matches!(checker.check(*address), Ok(_) | Err(ProbeError::OutOfMemory { .. }));
    let lacking = instructions(table).filter(|address| can_be_probed(address)).count() - probes.len();
    if lacking > 0 {
        let free = memory::statistics().heap_to_spare() >> 10;
        println!("{lacking} more are not: there is no memory for them ({free} KiB are free for probes)");
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

/// Whether there is memory for some more probes, of which an eighth is left to others, and for a list of them; and to arm all
/// that there are then.
fn has_memory(probes: &mut Vec<Kprobe>) -> bool {
    /// The most bytes that the lists of some probes take while they are registered, and about what the probes take.
    const NEEDED: usize = 512 * AT_ONCE;
    /// About what a probe takes besides when it is armed, with its place in the lists that are made for that.
    const ARMED: usize = 384;
    probes.try_reserve(AT_ONCE).is_ok()
        && memory::statistics().heap_to_spare() > NEEDED + ARMED * (probes.len() + AT_ONCE)
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
