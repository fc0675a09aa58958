//! A tracefs on the console: the files below `/sys/kernel/tracing` of a Linux machine, with the same names and the same
//! texts. Each file is an entry of `table::NODES`: its path, and the functions that read and write it.

#[cfg(any(target_os = "none", test))]
mod echo;
pub mod path;
#[cfg(any(target_os = "none", test))]
pub(crate) mod patterns;

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
mod table;
#[cfg(target_os = "none")]
mod tracefs;
#[cfg(target_os = "none")]
mod tracer;

#[cfg(target_os = "none")]
pub(super) use command::{cat, echo, ls, mkdir, rmdir, truncate};
#[cfg(target_os = "none")]
pub(super) use tracefs::{complete, describe};
