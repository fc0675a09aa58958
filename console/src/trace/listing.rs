//! The command `list-probes`, and the option `-l` of `trace`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use kprobes_program::syntax::{self, Parameters};
use kprobes_vm::counted::counted;
use kprobes_wire::mark::{Mark, Marked};

use super::options::Name;
use super::refusal::refuse;
use super::request::Request;
use crate::arguments::{TextArgument, text_argument};
use crate::program::{self, ProgramRefusal};
use crate::screen::Screen;
use crate::session::Session;
use crate::words::{Failure, Words};

/// The refusal of parameters after probes.
const NO_PROGRAM: &str =
    "only a program has parameters, as in trace -l 'kprobe:f { print($1); }' -- 5, and these are probes";

/// Runs the command `list-probes [-v] PROBES`.
pub(crate) fn list_probes(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let has_signatures = words.option("-v");
    let TextArgument { text, .. } = text_argument(words, "probes, as in kprobe:blk::*,")?;
    show(session, &text, program::list(&text, has_signatures), false);
    Ok(())
}

/// Runs `trace -l`: lists what probes match, the probes of a program, or everything that a pattern matches.
pub(super) fn list(session: &mut Session, request: &Request) {
    let has_signatures = request.has(Name::Verbose);
    let (text, is_program) =
        request.text.as_ref().map_or(("*", false), |given| (given.text.as_str(), given.is_program));
    let is_probes = || syntax::parse_probes(text).is_ok();
    let outcome = match text {
        _ if is_program || text.trim_end().ends_with('}') && !is_probes() => {
            program::list_of_program(text, Parameters { words: &request.parameters }, has_signatures)
        }
        _ if !request.parameters.is_empty() => Err(ProgramRefusal::new(NO_PROGRAM)),
        _ if has_kind(text) || is_probes() => program::list(text, has_signatures),
        _ => program::search(text, has_signatures),
    };
    show(session, text, outcome, request.has(Name::Mark));
}

/// Returns whether `text` has a `:` that is not part of a path.
fn has_kind(text: &str) -> bool {
    text.split("::").any(|part| part.contains(':'))
}

/// Shows the lines of a list and their number, or why there are none. If `is_marked`, the lines are marked for a
/// program on the host.
fn show(session: &mut Session, text: &str, outcome: Result<Vec<String>, ProgramRefusal>, is_marked: bool) {
    let screen = |mark| Screen { mark: is_marked.then_some(mark) };
    match outcome {
        Err(refusal) => {
            session.is_refused = true;
            refuse(&refusal, text, &mut screen(Mark::Refused));
        }
        Ok(probes) => {
            let mut output = screen(Mark::Output);
            // The screen returns an error once ^C was pressed.
            if probes.iter().any(|probe| writeln!(output, "{probe}").is_err()) {
                return;
            }
            let count = probes.iter().filter(|line| !line.starts_with(' ')).count();
            let _ = writeln!(screen(Mark::Attached), "{}", counted(count, "probe", "probes"));
            if is_marked {
                print!("{}", Marked(Mark::Done, ""));
            }
        }
    }
}
