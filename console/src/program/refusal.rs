//! The reason why a program does not run, with its place in the text of the program.

use alloc::string::String;
use core::fmt::{self, Write};

use fallible::OutOfMemory;
use kprobes_program::error::{Error, Span};

use super::attach::AttachError;

/// The reason why a program does not run.
#[derive(Clone, Debug)]
pub struct ProgramRefusal {
    /// The reason, without its full stop.
    sentence: String,
    /// The part of the text that is the cause.
    cause: Option<Span>,
    /// Whether the program was interrupted.
    is_stopped: bool,
}

impl From<Error> for ProgramRefusal {
    fn from(error: Error) -> Self {
        Self::at(error.problem, error.span)
    }
}

impl From<OutOfMemory> for ProgramRefusal {
    fn from(error: OutOfMemory) -> Self {
        Error::from(error).into()
    }
}

impl From<AttachError> for ProgramRefusal {
    fn from(why: AttachError) -> Self {
        match why {
            AttachError::Stopped => {
                let refusal = Self::new("the program was stopped before it started");
                Self { is_stopped: true, ..refusal }
            }
            AttachError::OutOfMemory => OutOfMemory.into(),
        }
    }
}

impl ProgramRefusal {
    pub(crate) fn new(reason: impl fmt::Display) -> Self {
        // Empty if there is no memory for it.
        let sentence = fallible::format(format_args!("{reason}")).unwrap_or_default();
        Self { sentence, cause: None, is_stopped: false }
    }

    pub(super) fn at(reason: impl fmt::Display, cause: Span) -> Self {
        Self { cause: Some(cause), ..Self::new(reason) }
    }

    /// Returns whether there is no problem, but
    /// [`RunningProgram::start_unless`](super::RunningProgram::start_unless) was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns the reason, without its full stop.
    #[must_use]
    pub fn sentence(&self) -> &str {
        if self.sentence.is_empty() { "there is not enough memory to show the error" } else { &self.sentence }
    }

    /// Returns the part of the text that is the cause.
    #[must_use]
    pub fn cause(&self) -> Option<Span> {
        self.cause
    }

    /// Writes the reason, with its place marked in `source`, the text of the program.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write(&self, source: &str, out: &mut dyn Write) -> fmt::Result {
        writeln!(out, "error: {}", self.sentence())?;
        let Some(cause) = self.cause else { return Ok(()) };
        fallible::format(format_args!("{}", cause.mark(source)))?.lines().try_for_each(|line| writeln!(out, "  {line}"))
    }
}

/// Returns the refusal of a program none of whose probes reaches anything. `first` says why one does not.
pub(super) fn none_reached(first: Option<&str>) -> ProgramRefusal {
    const SENTENCE: &str = "no probe reaches anything";
    match first {
        Some(why) => ProgramRefusal::new(format_args!("{SENTENCE}; the first: {why}")),
        None => ProgramRefusal::new(SENTENCE),
    }
}
