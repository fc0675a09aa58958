//! `everything`: a probe on every instruction that can be probed, at once.
//!
//! They have no handlers, and only count. From the first one on the console itself runs through them, and so does the
//! engine while it places the others.

use alloc::vec::Vec;

use aarch64_kprobes::{Kprobe, ProbeError, probe};

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
                Kprobe::unregister_all(session.everything.drain(..));
            }
            _ => return Err(word.failure("`on`, `off` or nothing is expected here")),
        },
    }
    Ok(())
}

fn probe_everything() -> Result<Vec<Kprobe>, Failure> {
    let table = symbol::table().ok_or_else(|| Failure::new("this image has no symbol table"))?;
    let mut end = 0;
    let functions = table.iter().map(|function| {
        // Functions of several names are probed once.
        let start = (function.address as usize).max(end);
        end = end.max((function.address + function.size) as usize);
        start..end
    });
    let mut lacking = 0;
    let mut probes = Vec::new();
    for outcome in Kprobe::register_all(functions.flat_map(|function| function.step_by(4)).map(Kprobe::at)) {
        match outcome {
            Ok(probe) => probes.push(probe),
            Err(ProbeError::OutOfMemory { .. }) => lacking += 1,
            // It cannot be probed; `coverage` tells why.
            Err(_) => {}
        }
    }
    println!("{} instructions are probed", probes.len());
    if lacking > 0 {
        println!("{lacking} more are not, as there is no memory for it");
    }
    Ok(probes)
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
