//! The command `everything`: probes every instruction that can be probed, at once.
//!
//! The probes have no handlers, and only count. Once they are enabled, the console itself runs through them. They are
//! therefore registered in batches, enabled together, disabled together, and unregistered in batches. ^C is checked
//! between batches.

use alloc::vec::Vec;
use core::time::Duration;

use aarch64_kprobes::probe::Registration;
use aarch64_kprobes::{Kprobe, ProbeError, probe};
use kprobes_symbols::SymbolTable;
use kprobes_vm::counted::counted;

use crate::host::host;
use crate::session::Session;
use crate::words::{Failure, Words};
use crate::{input, symbol, time};

/// The number of probes in a batch. The lists for a batch exist only while it is registered or unregistered.
const BATCH: usize = 1024;

/// Reports the progress of a long operation.
struct Progress {
    /// The participle for the complete part, in the message.
    done: &'static str,
    whole: usize,
    /// The time of the last message, since the start of the kernel.
    reported: Duration,
}

impl Progress {
    /// The interval between messages.
    const PERIOD: Duration = Duration::from_millis(500);

    fn new(done: &'static str, whole: usize) -> Self {
        Self { done, whole, reported: time::now() }
    }

    /// Reports that `part` elements are complete. Returns whether to go on: false once ^C was pressed.
    fn report(&mut self, part: usize) -> bool {
        let now = time::now();
        if now - self.reported >= Self::PERIOD {
            println!("{}% {}", 100 * part / self.whole.max(1), self.done);
            self.reported = now;
        }
        !input::is_interrupted()
    }
}

/// Runs the command `everything [on|off]`.
pub(super) fn everything(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let word = words.next();
    words.end()?;
    match word {
        None => show(&session.everything),
        Some(word) => match word.text {
            "on" if session.everything.is_empty() => session.everything = probe_everything()?,
            "on" if is_enabled(&session.everything) => return Err(word.failure("everything is already probed")),
            "on" => return Err(word.failure("`everything off` was stopped before it ended: run it again first")),
            "off" => remove(&mut session.everything),
            _ => return Err(word.failure("`on`, `off` or nothing is expected here")),
        },
    }
    Ok(())
}

fn probe_everything() -> Result<Vec<Kprobe>, Failure> {
    let table = symbol::table().ok_or_else(|| Failure::new("this image has no symbol table"))?;
    let whole = instructions(table).count();
    let (mut some, mut probes, mut tried) = (instructions(table), Vec::new(), 0);
    let mut progress = Progress::new("looked at", whole);
    let mut has_memory = true;
    while tried < whole && has_memory {
        if !progress.report(tried) {
            return Ok(probe_nothing(probes));
        }
        has_memory = make_room(&mut probes);
        if has_memory {
            let disabled = some.by_ref().take(BATCH).map(|at| Kprobe::at(at).disabled());
            let outcomes = Kprobe::register_all(disabled).unwrap_or_default();
            tried += outcomes.len();
            // Instructions that cannot be probed fail in other ways, which `coverage` reports. `probes` has room,
            // because `make_room` reserved it.
            let is_lacking = |outcome: &Result<_, _>| matches!(outcome, Err(ProbeError::OutOfMemory { .. }));
            has_memory = !outcomes.is_empty() && !outcomes.iter().any(is_lacking);
            probes.extend(outcomes.into_iter().flatten());
        }
    }
    if !progress.report(tried) {
        return Ok(probe_nothing(probes));
    }
    // Surveys the text now. Otherwise the next event or program would survey it while everything is probed, which takes
    // far longer.
    probe::analyze_text();
    // Counted now for the same reason, if it will be printed.
    let possible = (!has_memory).then(|| can_be_probed(table));
    if Registration::set_all_enabled(registrations(&probes), true).is_err() {
        has_memory = false;
        // Enables as many probes as there is memory for.
        for some in probes.chunks(BATCH) {
            if Registration::set_all_enabled(registrations(some), true).is_err() {
                some.iter().for_each(|probe| _ = probe.enable());
            }
        }
        probes.retain(|probe| probe.is_enabled());
    }
    if input::is_interrupted() {
        return Ok(probe_nothing(probes));
    }
    println!("{} probed", counted(probes.len(), "instruction is", "instructions are"));
    if !has_memory {
        let lacking = possible.unwrap_or_else(|| can_be_probed(table)) - probes.len();
        if lacking > 0 {
            print!("{lacking} more cannot be probed for lack of memory");
            match host().memory_to_spare() {
                Some(bytes) => println!(" ({} KiB are free for probes)", bytes >> 10),
                None => println!(),
            }
        }
    }
    Ok(probes)
}

/// Returns the number of instructions that can be probed if there is memory.
fn can_be_probed(table: &SymbolTable<'static>) -> usize {
    let mut checker = probe::Checker::new();
    let mut is_possible =
        |address: &usize| matches!(checker.check(*address), Ok(_) | Err(ProbeError::OutOfMemory { .. }));
    instructions(table).filter(|address| is_possible(address)).count()
}

/// Unregisters `probes` after ^C. Returns the empty list that remains.
fn probe_nothing(mut probes: Vec<Kprobe>) -> Vec<Kprobe> {
    disable(&probes);
    while !probes.is_empty() {
        remove_some(&mut probes);
    }
    println!("nothing is probed");
    Vec::new()
}

/// Unregisters all probes. After ^C some remain, disabled.
fn remove(probes: &mut Vec<Kprobe>) {
    let whole = probes.len();
    disable(probes);
    let mut progress = Progress::new("removed", whole);
    while !probes.is_empty() && progress.report(whole - probes.len()) {
        remove_some(probes);
    }
    if probes.is_empty() {
        *probes = Vec::new();
    } else {
        show(probes);
    }
}

/// Disables the probes together, or one by one if there is no memory for a list of them.
fn disable(probes: &[Kprobe]) {
    if Registration::set_all_enabled(registrations(probes), false).is_err() {
        // Disabling a single probe does not fail: it takes no memory, and interrupts are not masked here.
        probes.iter().for_each(|probe| _ = probe.disable());
    }
}

fn remove_some(probes: &mut Vec<Kprobe>) {
    Kprobe::unregister_all(probes.drain(probes.len().saturating_sub(BATCH)..));
}

fn registrations(probes: &[Kprobe]) -> impl Iterator<Item = &Registration> {
    probes.iter().map(|probe| &**probe)
}

fn is_enabled(probes: &[Kprobe]) -> bool {
    probes.first().is_some_and(|probe| probe.is_enabled())
}

/// Returns the virtual addresses of all instructions.
fn instructions(table: &SymbolTable<'static>) -> impl Iterator<Item = usize> {
    let mut end = 0;
    let functions = table.iter().map(move |function| {
        // A function with several names is probed once.
        let start = (function.address as usize).max(end);
        end = end.max((function.address + function.size) as usize);
        start..end
    });
    functions.flat_map(|function| function.step_by(4))
}

/// Makes room in `probes` for another batch. Returns whether the memory suffices for the new probes, for the lists
/// during their registration, and for enabling all probes afterwards.
fn make_room(probes: &mut Vec<Kprobe>) -> bool {
    /// The memory for a batch, in bytes: an upper bound for the lists during registration, and an estimate for the
    /// probes.
    const NEEDED: usize = 512 * BATCH;
    /// An estimate of the additional memory for an enabled probe, in bytes, with its share of the lists for enabling.
    const ENABLED: usize = 384;
    let needed = NEEDED + ENABLED * (probes.len() + BATCH);
    let is_there = match host().memory_to_spare() {
        Some(bytes) => bytes > needed,
        None => Vec::<u8>::new().try_reserve_exact(needed).is_ok(),
    };
    probes.try_reserve(BATCH).is_ok() && is_there
}

fn show(probes: &[Kprobe]) {
    if probes.is_empty() {
        return println!("`everything on` probes every instruction that can be probed");
    }
    if !is_enabled(probes) {
        let (probes, them) =
            (counted(probes.len(), "probe is", "probes are"), if probes.len() == 1 { "it" } else { "them" });
        return println!("{probes} disabled: `everything off` removes {them}");
    }
    let (hits, missed) =
        probes.iter().fold((0, 0), |(hits, missed), probe| (hits + probe.hits(), missed + probe.missed()));
    let probed = counted(probes.len(), "instruction is", "instructions are");
    println!("{probed} probed: {}, {missed} missed", counted(hits, "hit", "hits"));
    let memory = probe::memory();
    println!(
        "copies of instructions take {} bytes, tables {} and counts {}",
        memory.slot_bytes + memory.stub_bytes,
        memory.table_bytes,
        memory.counter_bytes,
    );
}
