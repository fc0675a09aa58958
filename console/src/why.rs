//! The command `why`: shows the engine's verdict on an instruction, or on every instruction of a function.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use aarch64_kprobes::ProbeError;
use aarch64_kprobes::insn::{Op, Verdict};
use aarch64_kprobes::probe::{self, CheckedInstruction, ProbeInfo, ProbeKind};
use fallible::OutOfMemory;
use kprobes_trace::definition::{self, Base};
use kprobes_trace::events;

use crate::arguments::name;
use crate::census::Class;
use crate::disassembly::Disassembly;
use crate::session::Session;
use crate::symbol::{self, Symbolic};
use crate::words::{Failure, Words};
use crate::{input, source_lines, tracing};

/// Runs the command `why SYMBOL[+OFFSET]`.
pub(super) fn why(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let (text, column) = name(words)?;
    let place = definition::parse_place(&text).map_err(|error| Failure::at(column + error.column, error))?;
    let address =
        events::resolve(&place, &tracing::Names).map_err(|error| Failure::at(column + place.column, error))? as usize;
    let probes = Probes { session, all: probe::list()? };
    let whole = matches!(place.base, Base::Symbol(_)) && place.offset_column == place.column;
    match symbol::lookup(address).filter(|_| whole) {
        Some(function) => {
            println!("{}, {} bytes:", function.name, function.size);
            show_function(address..address + function.size as usize, &probes).map_err(Failure::new)
        }
        None => show_instruction(address, &probes).map_err(|error| Failure::at(column + place.column, error)),
    }
}

/// Shows everything about the instruction at `address`.
///
/// # Errors
///
/// There is no instruction at `address`.
fn show_instruction(address: usize, probes: &Probes<'_>) -> Result<(), ProbeError> {
    let checked = probe::check(address);
    let word = match probe::instruction(address) {
        Some(word) => word,
        None => return checked.map(|_| ()),
    };
    println!("address      {address:#018x}");
    println!("symbol       {}", Symbolic(address));
    if let Some(line) = source_lines::at(address) {
        println!("line         {line}");
    }
    println!("word         {word:#010x}");
    println!("instruction  {}", disassembly(address, word, 0..0));
    if probes.at(address).next().is_some() {
        println!("probed       by {}; the original instruction is shown", Named { probes, address });
    }
    match checked {
        Ok(CheckedInstruction { verdict: Verdict::Simulate(op), .. }) => {
            println!("verdict      accepted");
            println!("execution    simulated");
            println!("reason       it {}", reason_to_simulate(op));
        }
        Ok(_) => {
            println!("verdict      accepted");
            println!("execution    from a copy");
            println!("reason       it does the same at any address");
        }
        Err(error) => {
            println!("verdict      refused");
            println!("reason       {error}");
        }
    }
    Ok(())
}

/// Shows a line about each instruction of a function.
fn show_function(function: Range<usize>, probes: &Probes<'_>) -> Result<(), OutOfMemory> {
    let (mut count, mut accepted) = (0, 0);
    let mut checker = probe::Checker::new();
    for address in function.clone().step_by(4) {
        if input::is_interrupted() {
            return Ok(());
        }
        let Some(word) = probe::instruction(address) else { break };
        let checked = checker.check(address);
        let offset = address - function.start;
        let text = disassembly(address, word, function.start as u64..function.end as u64);
        let text = fallible::format(format_args!("{text}"))?;
        print!("{address:016x}  +{offset:<#6x}  {word:08x}  {text:<40}  ");
        match &checked {
            Ok(CheckedInstruction { verdict: Verdict::Simulate(_), .. }) => print!("simulated"),
            Ok(_) => print!("from a copy"),
            Err(_) => print!("refused: {}", Class::of(&checked)),
        }
        if probes.at(address).next().is_some() {
            print!(", probed by {}", Named { probes, address });
        }
        println!();
        count += 1;
        accepted += u32::from(checked.is_ok());
    }
    // A function outside of the text has no instructions to show.
    if count == 0
        && let Err(error) = checker.check(function.start)
    {
        println!("{error}");
    } else {
        println!("{accepted} of {count} instructions can be probed");
    }
    Ok(())
}

fn disassembly(address: usize, word: u32, within: Range<u64>) -> Disassembly<'static> {
    Disassembly { address: address as u64, word, symbols: &tracing::Names, within }
}

/// Returns why an instruction is simulated instead of executed in a slot, as the predicate of a sentence about it.
fn reason_to_simulate(op: Op) -> &'static str {
    match op {
        Op::Nop => "has no architectural effect",
        Op::Address { .. } | Op::AddressOfPage { .. } => {
            "computes an address from its own, which a copy would not have"
        }
        Op::LoadLiteral { .. } => "loads from an address relative to its own, which a copy would not have",
        Op::ReadDaif { .. } | Op::WriteDaif { .. } | Op::SetDaif { .. } | Op::ClearDaif { .. } => {
            "reads or writes the interrupt masks, which a probe keeps in the saved state"
        }
        Op::Branch { .. }
        | Op::BranchLink { .. }
        | Op::BranchConditional { .. }
        | Op::CompareBranch { .. }
        | Op::TestBranch { .. }
        | Op::BranchRegister { .. }
        | Op::BranchAuthenticated { .. } => "is a branch, which would leave the out-of-line slot",
    }
}

/// The registered probes, and the session with their events.
struct Probes<'a> {
    session: &'a Session,
    all: Vec<ProbeInfo>,
}

impl Probes<'_> {
    /// Returns the probes at the virtual address `address`.
    fn at(&self, address: usize) -> impl Iterator<Item = &ProbeInfo> {
        self.all.iter().filter(move |probe| probe.address == address)
    }

    fn write_name(&self, probe: &ProbeInfo, out: &mut dyn fmt::Write) -> fmt::Result {
        let kind = match probe.kind {
            ProbeKind::Kprobe => "p",
            ProbeKind::Kretprobe => "r",
        };
        let event = self.session.event_of(probe.data);
        let event = event.map_or("-", |event| &event.definition().event);
        let state = if probe.enabled { "" } else { " (disabled)" };
        write!(out, "{kind}:{event}{state}")
    }
}

/// Displays the names of the probes at the virtual address `address`.
struct Named<'a> {
    probes: &'a Probes<'a>,
    address: usize,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, probe) in self.probes.at(self.address).enumerate() {
            f.write_str(if number > 0 { " and " } else { "" })?;
            self.probes.write_name(probe, f)?;
        }
        Ok(())
    }
}
