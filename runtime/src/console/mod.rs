//! The console: a person at the UART defines probes, runs something, and sees what was hit.
//!
//! It is a task like any other. A line is edited as it is typed ([`line_editor`]) and is either a definition of an
//! event, in the grammar of Linux's `kprobe_events`, or a command of the table in `command`. Whatever is wrong with
//! it is answered by a line that begins with `error: ` and, where the cause stands in the line, a caret below it; the
//! console goes on.

pub mod census;
#[cfg(target_os = "none")]
pub mod everything;
pub mod files;
pub mod line_editor;
#[cfg(any(target_os = "none", test))]
mod lines;
#[cfg(test)]
mod scarce;
pub mod shell;
#[cfg(target_os = "none")]
mod source;
#[cfg(any(target_os = "none", test))]
mod typed;
pub mod words;

#[cfg(target_os = "none")]
mod command;
#[cfg(target_os = "none")]
mod coverage;
#[cfg(target_os = "none")]
mod help;
#[cfg(target_os = "none")]
mod network;
#[cfg(target_os = "none")]
mod probes;
#[cfg(target_os = "none")]
mod program;
#[cfg(target_os = "none")]
mod session;
#[cfg(target_os = "none")]
mod system;
#[cfg(target_os = "none")]
mod why;

#[cfg(target_os = "none")]
pub use session::run;
