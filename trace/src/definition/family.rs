//! The families of probe events. Linux has a parser, a default group and a log of errors for each; here they differ in
//! the place that a definition names, and in how its arguments are found.

use core::fmt;

/// The family of a probe event, which the first letter of its definition names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `p` and `r`: an instruction, or the return of a function.
    Kprobe,
    /// `f`: the entry or the return of a function (Documentation/trace/fprobetrace.rst).
    Fprobe,
    /// `t`: a static event, whose fields are the arguments (Documentation/trace/fprobetrace.rst).
    Tracepoint,
    /// `e`: another event, whose fields are the variables (Documentation/trace/eprobetrace.rst).
    Event,
}

impl Family {
    /// Returns the family of definitions that begin with this letter.
    pub(super) const fn of(letter: char) -> Option<Self> {
        Some(match letter {
            'p' | 'r' => Self::Kprobe,
            'f' => Self::Fprobe,
            't' => Self::Tracepoint,
            'e' => Self::Event,
            _ => return None,
        })
    }

    /// Returns the family of the definition `line`, for the log of errors; that of kprobes if it is none.
    #[must_use]
    pub fn of_line(line: &str) -> Self {
        line.trim_start().chars().next().and_then(Self::of).unwrap_or(Self::Kprobe)
    }

    /// Returns the group of an event whose definition names none.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobes",
            Self::Fprobe => "fprobes",
            Self::Tracepoint => "tracepoints",
            Self::Event => "eprobes",
        }
    }

    /// Returns the name that Linux's `error_log` has before an error of this family.
    #[must_use]
    pub const fn log(self) -> &'static str {
        match self {
            Self::Kprobe => "trace_kprobe",
            Self::Fprobe | Self::Tracepoint => "trace_fprobe",
            Self::Event => "event_probe",
        }
    }

    /// Whether the event is placed on another event, and fetches its fields.
    #[must_use]
    pub const fn is_on_event(self) -> bool {
        matches!(self, Self::Tracepoint | Self::Event)
    }
}

/// The letter with which a definition is listed, if it is not a kprobe at a return.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kprobe => "p",
            Self::Fprobe => "f",
            Self::Tracepoint => "t",
            Self::Event => "e",
        })
    }
}
