//! A tracefs on the console: the files below `/sys/kernel/tracing` of a Linux machine, with the same names and the same
//! texts. Each file is an entry of `table::NODES`: its path, and the functions that read and write it.

mod echo;
pub mod path;
pub(crate) mod patterns;

mod command;
mod content;
mod event;
mod kprobes;
mod ring;
mod settings;
mod synthetic;
mod table;
mod tracefs;
mod tracer;

pub(super) use command::{cat, echo, ls, mkdir, rmdir, truncate};
pub(super) use tracefs::{complete, describe};
