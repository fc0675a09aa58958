//! A console for probes, in any kernel with a line to read from and to write to: programs in the one-line language,
//! events in the grammar of Linux's `dynamic_events`, the files of tracefs, and the records of hits.
//!
//! A kernel implements [`Host`], passes it to [`init`], and calls [`run`] from a task. A line is edited as it is typed
//! ([`line_editor`]). It is either a definition of an event or a command. A line that cannot be carried out is answered
//! by a line that begins with `error: `, with a caret below the cause if the cause is in the line. The console then
//! goes on.
//!
//! | module | what it owns |
//! |---|---|
//! | [`host`], [`input`], `screen`, [`time`] | the kernel's services, and their use by the console |
//! | [`session`], [`command`], `help` | from a line to its answer |
//! | `completion` | what the tab key completes |
//! | [`line_editor`], [`words`], [`shell`], `typed`, `lines` | reading lines and showing text, without a kernel |
//! | [`symbol`], `types`, [`source_lines`], `paths`, [`nearest`], `prologue`, [`disassembly`] | facts about the image |
//! | [`tracing`], [`files`], `instances` | events, the files of tracefs, and the traces that have them |
//! | [`program`], `trace` | programs, and the commands that run them |
//! | `probes`, `symbols`, `source`, `why`, [`census`], `coverage`, [`everything`] | commands about probes |
//!
//! All modules also build for the host, where those are tested that need no kernel.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

/// Writes formatted text to the console.
macro_rules! print {
    ($($argument:tt)*) => { $crate::screen::write(format_args!($($argument)*)) };
}

/// Writes formatted text and a newline to the console.
macro_rules! println {
    () => { print!("\n") };
    ($($argument:tt)*) => { print!("{}\n", format_args!($($argument)*)) };
}

pub mod census;
pub mod command;
mod completion;
mod coverage;
pub mod disassembly;
pub mod everything;
pub mod files;
mod frame;
mod help;
pub mod host;
pub mod input;
mod instances;
pub mod line_editor;
mod lines;
pub mod lock;
pub mod nearest;
mod paths;
mod probes;
pub mod program;
mod prologue;
#[cfg(test)]
mod scarce;
mod screen;
pub mod session;
pub mod shell;
mod source;
pub mod source_lines;
pub mod symbol;
mod symbols;
pub mod time;
mod trace;
mod tracer;
pub mod tracing;
mod typed;
mod types;
mod why;
pub mod words;

pub use host::{Host, init};
pub use prologue::is_caller_in_link;
pub use session::run;
