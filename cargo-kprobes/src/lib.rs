//! Tools for a linked kernel that embeds [aarch64-kprobes](https://docs.rs/aarch64-kprobes): the audit of the code that
//! runs at hits, and the tables of symbols and types. `cargo kprobes` is the command for both; these functions are for
//! build tools, which run after the linker.
//!
//! ```no_run
//! use std::path::Path;
//!
//! let (elf, out) = (Path::new("target/kernel"), Path::new("target/kernel.elf"));
//! let tables = cargo_kprobes::fill_in(elf, out, cargo_kprobes::Tables::All)?;
//! println!("the tables have {} bytes of {}", tables.length, tables.room);
//! cargo_kprobes::audit(out, [Path::new("audit.toml")])?;
//! # Ok::<(), cargo_kprobes::Error>(())
//! ```

#[doc(hidden)]
pub mod audit;
#[doc(hidden)]
pub mod counted;
#[doc(hidden)]
pub mod image;

use std::{fmt, io, path::Path};

use audit::{Audit, Declarations};
pub use image::{Filled, Tables};

/// The reason for a failure, or the faults of a kernel. Its text is for people.
#[derive(Debug)]
pub struct Error(anyhow::Error);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Error {}

/// Fills in the tables of the program `elf`, for which its linker script has reserved room by `INCLUDE
/// kprobes-tables.x`, and writes the program to the file `out`, which may be the same. The file appears completely or
/// not at all.
///
/// # Errors
///
/// The file cannot be read or written, is not a program for AArch64, has no symbols, or has no room for the tables.
pub fn fill_in(elf: &Path, out: &Path, tables: Tables) -> Result<Filled, Error> {
    image::fill_in(elf, out, tables).map_err(Error)
}

/// Audits the program `elf`, with these files of declarations about it in addition to those of the engine.
///
/// # Errors
///
/// A file cannot be read; or the code that runs at hits is not closed, with each violation and the path that leads
/// there.
pub fn audit<'a>(elf: &Path, declarations: impl IntoIterator<Item = &'a Path>) -> Result<(), Error> {
    let declarations = Declarations::with_engine(declarations).map_err(Error)?;
    let audit = Audit::of(elf, &declarations).map_err(Error)?;
    if audit.is_closed() { Ok(()) } else { Err(Error(anyhow::anyhow!("{}", audit.violations()))) }
}

/// Whether the error is that of a closed pipe, without context. Only writes to the standard output give such an error;
/// its reader may have enough, as `head`.
#[doc(hidden)]
#[must_use]
pub fn is_closed_output(error: &anyhow::Error) -> bool {
    let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().len() == 1 && error.downcast_ref().is_some_and(is_closed)
}
