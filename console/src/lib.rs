//! A console for probes, in any kernel that can read and write bytes, for example on a UART: programs in the one-line
//! language, events in the grammar of Linux's `dynamic_events`, the files of tracefs, and the records of hits.
//!
//! A kernel implements [`Host`], passes it to [`init`], and calls [`run`] with its own commands from a task. A line is
//! edited as it is typed. It is either a definition of an event or a command. A line that cannot be carried out is
//! answered by a line that begins with `error: `, with a caret below the cause if the cause is in the line. The console
//! then goes on.
//!
//! ```no_run
//! use core::fmt;
//!
//! use kprobes_console::Host;
//!
//! struct Kernel;
//!
//! // SAFETY: the default `masked` sets PSTATE.DAIF, which masks all interrupts. The only CPU has number 0.
//! unsafe impl Host for Kernel {
//!     fn write(&self, text: fmt::Arguments<'_>) {
//!         // Write the text to the UART.
//! #       let _ = text;
//!     }
//!     fn read(&self) -> Option<u8> {
//!         // Return the byte that the UART has received, if any.
//! #       None
//!     }
//! }
//!
//! fn console() -> ! {
//!     kprobes_console::init(&Kernel);
//!     kprobes_console::run(&[])
//! }
//! ```
//!
//! The kernel also implements the traits of the layers below: [`Platform`](aarch64_kprobes::platform::Platform) of the
//! engine, and [`ContextLayout`](kprobes_trace::context::ContextLayout) of the traces.
//!
//! | module | what it owns |
//! |---|---|
//! | [`host`], [`input`], [`time`] | the kernel's services, and their use by the console |
//! | [`session`], [`command`], [`words`] | from a line to its answer |
//! | [`symbol`], [`source_lines`], [`nearest`] | facts about the image |
//! | [`tracing`] | the trace layer: its rings, and its services |
//! | [`program`] | programs |
//! | [`lock`] | a lock for tasks |
//!
//! All modules also build for the host, where the modules that need no kernel are tested.

// The private modules:
//
// | module | what it owns |
// |---|---|
// | `dialog`, `commands` | the dialog at the prompt, and the console's own commands |
// | `output`, `screen` | writing to the console |
// | `help` | the text of `help` |
// | `completion` | what the tab key completes |
// | `line_editor`, `shell`, `arguments`, `lines` | reading lines and showing text, without a kernel |
// | `types`, `paths`, `prologue`, `frame`, `disassembly` | facts about the image |
// | `files`, `instances`, `tracer` | the files of tracefs, the traces that have them, and their tracers |
// | `trace` | the commands that run programs |
// | `probes`, `symbols`, `source`, `why`, `census`, `coverage`, `everything` | commands about probes |

#![cfg_attr(not(test), no_std)]

extern crate alloc;

/// Writes formatted text to the console.
macro_rules! print {
    ($($argument:tt)*) => { $crate::output::write(format_args!($($argument)*)) };
}

/// Writes formatted text and a newline to the console.
macro_rules! println {
    () => { print!("\n") };
    ($($argument:tt)*) => { print!("{}\n", format_args!($($argument)*)) };
}

mod arguments;
mod census;
pub mod command;
mod commands;
mod completion;
mod coverage;
mod dialog;
mod disassembly;
mod everything;
mod files;
mod frame;
mod help;
pub mod host;
pub mod input;
mod instances;
mod line_editor;
mod lines;
pub mod lock;
pub mod nearest;
mod output;
mod paths;
mod probes;
pub mod program;
mod prologue;
#[cfg(test)]
mod scarce;
mod screen;
pub mod session;
mod shell;
mod source;
pub mod source_lines;
pub mod symbol;
mod symbols;
pub mod time;
mod trace;
mod tracer;
pub mod tracing;
mod types;
mod why;
pub mod words;

pub use host::Host;
pub use prologue::is_caller_in_x30;

/// Passes the kernel's services to the console. Must be called before anything else of the console is used. Prints a
/// line if the tables are damaged. Later calls have no effect.
pub fn init(host: &'static dyn Host) {
    host::set(host);
    symbol::init(host.tables());
}

/// Reads lines and runs them, forever. The kernel's own `commands` are added to those of the console. The commands of
/// the first call are those of all calls. [`init`] must have been called.
///
/// # Panics
///
/// Panics if there is no memory for the rings and the events.
pub fn run(commands: &'static [command::Command]) -> ! {
    command::register(&commands::COMMANDS, commands);
    dialog::run()
}
