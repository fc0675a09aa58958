//! The tracefs on the console: what one reads and writes below `/sys/kernel/tracing` on a Linux machine, under the same names and
//! with the same texts. Each file is a line of [`NODES`]: its path, how it is read, how it is written.

pub mod path;

#[cfg(target_os = "none")]
mod command;
#[cfg(target_os = "none")]
mod event;
#[cfg(target_os = "none")]
mod kprobes;
#[cfg(target_os = "none")]
mod ring;
#[cfg(target_os = "none")]
mod settings;
#[cfg(target_os = "none")]
mod synthetic;
#[cfg(target_os = "none")]
mod tracefs;

#[cfg(target_os = "none")]
pub(super) use command::{cat, echo, ls, truncate};
#[cfg(target_os = "none")]
pub(super) use tracefs::describe;
