//! The command `list-probes`, and the option `-l` of `trace`.

use alloc::string::String;
use alloc::vec::Vec;

use kprobes_program::syntax;
use kprobes_vm::counted::counted;

use super::command::refuse;
use super::options::Given;
use crate::input;
use crate::program::{self, Refusal};
use crate::screen::Screen;
use crate::session::Session;
use crate::typed::{Typed, typed};
use crate::words::{Failure, Words};

/// Runs the command `list-probes [-v] PROBES`.
pub(crate) fn list_probes(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let has_signatures = words.option("-v");
    let Typed { text, .. } = typed(words, "probes, as in kprobe:blk::*,")?;
    show(session, &text, program::list(&text, has_signatures));
    Ok(())
}

/// Runs `trace -l`: lists what probes match, the probes of a program, or everything that a pattern matches.
pub(super) fn list(session: &mut Session, given: Option<&Given>, has_signatures: bool) -> Result<(), Failure> {
    let (text, is_program) = given.map_or(("*", false), |given| (given.text.as_str(), given.is_program));
    let is_probes = || syntax::parse_probes(text).is_ok();
    let outcome = match text {
        _ if is_program || text.trim_end().ends_with('}') && !is_probes() => {
            program::list_of_program(text, has_signatures)
        }
        _ if has_kind(text) || is_probes() => program::list(text, has_signatures),
        _ => program::search(text, has_signatures),
    };
    show(session, text, outcome);
    Ok(())
}

/// Returns whether `text` has a `:` that is not part of a path.
fn has_kind(text: &str) -> bool {
    text.split("::").any(|part| part.contains(':'))
}

fn show(session: &mut Session, text: &str, outcome: Result<Vec<String>, Refusal>) {
    match outcome {
        Err(refusal) => {
            session.is_refused = true;
            refuse(&refusal, text, &mut Screen::default());
        }
        Ok(probes) => {
            for probe in &probes {
                if input::is_interrupted() {
                    return;
                }
                println!("{probe}");
            }
            let count = probes.iter().filter(|line| !line.starts_with(' ')).count();
            println!("{}", counted(count, "probe", "probes"));
        }
    }
}
