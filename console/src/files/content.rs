//! The contents of files: the reasons why a read fails, and the numbers that can be written.

use core::fmt;

use kprobes_trace::definition;
use kprobes_trace::errno::Errno;
use kprobes_trace::text::ShowError;

/// The reason why a read has failed.
pub(super) enum ReadError {
    /// The file cannot be read.
    Errno(Errno),
    /// The writer that receives the content has returned an error.
    Screen,
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<ShowError> for ReadError {
    fn from(error: ShowError) -> Self {
        match error {
            ShowError::OutOfMemory => Self::Errno(Errno::NoMemory),
            ShowError::Write(_) => Self::Screen,
        }
    }
}

impl From<fmt::Error> for ReadError {
    fn from(_: fmt::Error) -> Self {
        Self::Screen
    }
}

/// Parses a number that is written to a file.
pub(super) fn number(text: &str) -> Result<u64, Errno> {
    definition::whole(text).ok_or(Errno::Invalid)
}

/// Parses the 0 or 1 that is written to a file of events.
pub(super) fn switch(text: &str) -> Result<bool, Errno> {
    match number(text)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::Invalid),
    }
}
