//! Audits the images of the repository with [`cargo_kprobes::audit`].

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use cargo_kprobes::audit::{Audit, Declarations};

use crate::{setup, workspace};

/// The declarations of the repository: of the engine, for every image; of its entry for kernels with vectors of their
/// own; of the console; of the kernel; and of the tests.
const ENGINE: &str = "audit/engine.toml";
const VECTOR: &str = "audit/vector.toml";
const CONSOLE: &str = "audit/console.toml";
const RUNTIME: &str = "audit/runtime.toml";
const TESTS: &str = "audit/tests.toml";
/// The declarations of `examples/kernel`.
const EXAMPLE: &str = "examples/kernel/audit.toml";
/// More declarations, for profiles with which the compiler inlines less, or more: of the engine, of the console, and of
/// the tests.
const PROFILES: [&str; 3] = ["audit/engine-profiles.toml", "audit/profiles.toml", "audit/tests-profiles.toml"];

/// The program to audit.
#[derive(clap::Args)]
pub struct Options {
    /// The image of the on-target tests, not the kernel.
    #[arg(long)]
    tests: bool,
    /// The file for a picture of the graph, in the language of Graphviz.
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
}

/// The images of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// The kernel.
    Kernel,
    /// The on-target tests.
    Tests,
    /// `examples/kernel`.
    Example,
}

impl Image {
    /// The name of its audit among the tests.
    pub fn test_name(self) -> &'static str {
        match self {
            Self::Kernel => "audit::kernel",
            Self::Tests => "audit::tests",
            Self::Example => "examples::kernel_is_closed",
        }
    }

    /// The package that it is built from.
    pub fn package(self) -> &'static str {
        match self {
            Self::Kernel => "runtime",
            Self::Tests => "kprobes-tests",
            Self::Example => "kprobes-kernel-example",
        }
    }

    /// The files of its declarations, and whether a declaration that applies to nothing is an error in this image.
    /// Every file is checked so in one image.
    fn declarations(self) -> &'static [(&'static str, bool)] {
        match self {
            Self::Kernel => &[(ENGINE, true), (CONSOLE, true), (RUNTIME, true)],
            Self::Tests => &[(ENGINE, false), (VECTOR, true), (CONSOLE, false), (RUNTIME, false), (TESTS, true)],
            Self::Example => &[(ENGINE, false), (VECTOR, false), (EXAMPLE, true)],
        }
    }
}

/// Audits a program and prints the result.
pub fn audit(options: &Options) -> Result<ExitCode> {
    setup::rust(&[])?;
    let image = if options.tests { Image::Tests } else { Image::Kernel };
    let declarations = declarations(image, workspace::other_profile().is_none())?;
    let elf = workspace::build_kernel(image.package())?;
    let audit = Audit::of(&elf, &declarations)?;
    if let Some(path) = &options.dot {
        fs::write(path, audit.dot()).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    audit.write(&mut io::stdout().lock())?;
    Ok(if audit.is_closed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Audits `elf`, the program of an image of the repository, which has the profile of `Cargo.toml` if `is_default`. The
/// error is the report.
pub fn check(image: Image, elf: &Path, is_default: bool) -> Result<(), String> {
    let audited = || {
        let audit = Audit::of(elf, &declarations(image, is_default)?)?;
        Ok(if audit.is_closed() { Ok(()) } else { Err(audit.violations()) })
    };
    audited().unwrap_or_else(|error: anyhow::Error| Err(format!("{error:#}")))
}

/// Reads the declarations about an image of the repository, which has the profile of `Cargo.toml` if `is_default`.
fn declarations(image: Image, is_default: bool) -> Result<Declarations> {
    let (root, mut declarations) = (workspace::root(), Declarations::default());
    if !is_default {
        PROFILES.iter().try_for_each(|file| declarations.read(&root.join(file), false))?;
    }
    let mut files = image.declarations().iter();
    files.try_for_each(|(file, is_checked)| declarations.read(&root.join(file), *is_checked && is_default))?;
    Ok(declarations)
}

#[cfg(test)]
mod tests {
    use super::{Image, declarations};

    #[test]
    fn the_files_of_the_repository_can_be_read() {
        for image in [Image::Kernel, Image::Tests, Image::Example] {
            for is_default in [true, false] {
                declarations(image, is_default).unwrap();
            }
        }
    }
}
