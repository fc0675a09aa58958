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
//! The modules that need no kernel also build for the host, where they are tested.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

/// Writes formatted text to the console.
#[cfg(target_os = "none")]
macro_rules! print {
    ($($argument:tt)*) => { $crate::screen::write(format_args!($($argument)*)) };
}

/// Writes formatted text and a newline to the console.
#[cfg(target_os = "none")]
macro_rules! println {
    () => { print!("\n") };
    ($($argument:tt)*) => { print!("{}\n", format_args!($($argument)*)) };
}

pub mod census;
#[cfg(any(target_os = "none", test))]
mod completion;
pub mod disassembly;
pub mod files;
pub mod line_editor;
#[cfg(any(target_os = "none", test))]
mod lines;
pub mod nearest;
#[cfg(any(target_os = "none", test))]
mod paths;
pub mod program;
#[cfg(any(target_os = "none", test))]
mod prologue;
#[cfg(test)]
mod scarce;
pub mod shell;
#[cfg(any(target_os = "none", test))]
mod typed;
pub mod words;

#[cfg(target_os = "none")]
pub mod command;
#[cfg(target_os = "none")]
mod coverage;
#[cfg(target_os = "none")]
pub mod everything;
#[cfg(target_os = "none")]
mod help;
#[cfg(target_os = "none")]
pub mod host;
#[cfg(target_os = "none")]
pub mod input;
#[cfg(target_os = "none")]
mod instances;
#[cfg(target_os = "none")]
pub mod lock;
#[cfg(target_os = "none")]
mod probes;
#[cfg(target_os = "none")]
mod screen;
#[cfg(target_os = "none")]
pub mod session;
#[cfg(target_os = "none")]
mod source;
#[cfg(target_os = "none")]
pub mod source_lines;
#[cfg(target_os = "none")]
pub mod symbol;
#[cfg(target_os = "none")]
mod symbols;
#[cfg(target_os = "none")]
pub mod time;
#[cfg(any(target_os = "none", test))]
mod trace;
#[cfg(target_os = "none")]
mod tracer;
#[cfg(target_os = "none")]
pub mod tracing;
#[cfg(target_os = "none")]
mod types;
#[cfg(target_os = "none")]
mod why;

#[cfg(target_os = "none")]
pub use host::{Host, init};
#[cfg(target_os = "none")]
pub use prologue::is_caller_in_link;
#[cfg(target_os = "none")]
pub use session::run;
