//! The command `cargo kprobes`.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result};
use cargo_kprobes::{
    Tables,
    audit::{Audit, Declarations},
    fill_in, is_closed_output,
};
use clap::{Parser, Subcommand};

/// Cargo passes its own name of the command first.
#[derive(Parser)]
#[command(name = "cargo", bin_name = "cargo")]
enum Cargo {
    #[command(subcommand)]
    Kprobes(Command),
}

/// Audits kernels that embed aarch64-kprobes, and fills in their tables.
#[derive(Subcommand)]
enum Command {
    /// Shows for a linked kernel that the code that handles probes cannot be probed, panic, allocate, touch floating
    /// point, take a lock that is not declared, or use more stack than there is.
    Audit {
        /// The linked kernel.
        elf: PathBuf,
        /// Files of declarations about the kernel, in addition to those of the engine.
        #[arg(long, value_name = "FILE")]
        declarations: Vec<PathBuf>,
        /// The file for a picture of the graph, in the language of Graphviz.
        #[arg(long, value_name = "FILE")]
        dot: Option<PathBuf>,
    },
    /// Fills in the names of functions and statics, and the survey of the text, which the first probes need.
    Symbols(Files),
    /// Fills in all tables: the names, the survey, inlined copies, types and source lines.
    Image(Files),
}

#[derive(clap::Args)]
struct Files {
    /// The linked kernel, whose linker script has `INCLUDE kprobes-tables.x`.
    elf: PathBuf,
    /// Where to write the result. Without this, it replaces the kernel.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Cargo::Kprobes(command) = Cargo::parse();
    execute(&command).unwrap_or_else(|error| {
        if !is_closed_output(&error) {
            eprintln!("cargo kprobes: {error:#}");
        }
        ExitCode::FAILURE
    })
}

fn execute(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Audit { elf, declarations, dot } => {
            let all = Declarations::with_engine(declarations.iter().map(PathBuf::as_path))?;
            let audit = Audit::of(elf, &all)?;
            if let Some(path) = dot {
                fs::write(path, audit.dot()).with_context(|| format!("{} cannot be written", path.display()))?;
            }
            audit.write(&mut io::stdout().lock())?;
            Ok(if audit.is_closed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Symbols(files) => fill(files, Tables::Symbols),
        Command::Image(files) => fill(files, Tables::All),
    }
}

fn fill(Files { elf, out }: &Files, tables: Tables) -> Result<ExitCode> {
    let out = out.as_ref().unwrap_or(elf);
    let filled = fill_in(elf, out, tables)?;
    writeln!(io::stdout(), "{}: its tables have {} bytes of {}", out.display(), filled.length, filled.room)?;
    if tables == Tables::All && !filled.has_types {
        eprintln!(
            "cargo kprobes: {} has no debugging information about types, so that arguments have no names: build it with \
             `debug = true` in its profile",
            elf.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Cargo, Command, Files};

    #[test]
    fn the_words_that_cargo_passes_on_are_understood() {
        Cargo::command().debug_assert();
        let command = |line: &str| Cargo::try_parse_from(line.split(' ')).map(|Cargo::Kprobes(command)| command);
        let Ok(Command::Audit { elf, declarations, dot: None }) =
            command("cargo-kprobes kprobes audit KERNEL --declarations a.toml --declarations b.toml")
        else {
            panic!("the audit is not understood")
        };
        assert_eq!((elf.to_str(), declarations.len()), (Some("KERNEL"), 2));
        assert!(matches!(
            command("cargo-kprobes kprobes symbols KERNEL"),
            Ok(Command::Symbols(Files { out: None, .. }))
        ));
        assert!(matches!(
            command("cargo-kprobes kprobes image KERNEL --out FILE"),
            Ok(Command::Image(Files { out: Some(_), .. }))
        ));
        assert!(command("cargo-kprobes audit KERNEL").is_err());
    }
}
