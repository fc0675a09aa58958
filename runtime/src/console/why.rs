//! `why`: what the engine says of an instruction.

use aarch64_kprobes::ProbeError;
use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::insn::Verdict;
use aarch64_kprobes::probe;
use kprobes_trace::{definition, events};

use super::disassembly::Disassembly;
use super::session::Session;
use super::words::{Failure, Words};
use crate::symbol::Symbolic;
use crate::{println, tracing};

/// `why SYMBOL[+OFFSET]`
pub(super) fn why(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let rest = words.rest();
    let place =
        definition::parse_place(rest.text).map_err(|error| Failure::at(rest.column + error.column, error.problem))?;
    let address = events::resolve::<ProbeError>(&place, &tracing::Names)
        .map_err(|error| Failure::at(rest.column + error.column, error.refusal))? as usize;
    let checked = probe::check(address);
    let word = match &checked {
        Ok(site) => Some(site.word),
        Err(ProbeError::Instruction { word, .. }) => Some(*word),
        // Nothing can be probed there, so that what is read is what was linked.
        Err(_) if address.is_multiple_of(4) => nofault::read::<u32>(address).ok(),
        Err(_) => None,
    };
    println!("{address:016x}  {}", Symbolic(address));
    if let Some(word) = word {
        println!("{word:08x}          {}", Disassembly(word));
    }
    match checked {
        Ok(site) => match site.verdict {
            Verdict::Simulate(_) => println!("can be probed: simulated on the saved registers"),
            _ => println!("can be probed: a copy of it is executed in a slot"),
        },
        Err(error) => println!("cannot be probed: {error}"),
    }
    Ok(())
}
