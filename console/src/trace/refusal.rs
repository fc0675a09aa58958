//! Shows why a program does not run.

use kprobes_wire::mark::{Diagnostic, Marked};

use crate::program::ProgramRefusal;
use crate::screen::Screen;

pub(super) fn refuse(refusal: &ProgramRefusal, text: &str, screen: &mut Screen) {
    // The screen returns an error only after ^C.
    let _ = match screen.mark {
        None => refusal.write(text, screen),
        Some(mark) => {
            let cause = refusal.cause().map(|span| (span.start, span.end));
            print!("{}", Marked(mark, Diagnostic { cause, sentence: refusal.sentence() }));
            Ok(())
        }
    };
}
