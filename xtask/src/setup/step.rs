//! A step of an installation. Root executes the same steps that another user is told to type, so a step is data that
//! can be executed or shown.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// One step of an installation.
#[derive(Debug, PartialEq, Eq)]
pub enum SetupStep {
    /// Creates a file with this text.
    Write(PathBuf, String),
    /// Runs a command that asks nothing.
    Run(Vec<String>),
}

impl SetupStep {
    /// Returns a step that creates a file.
    pub fn write(path: impl AsRef<Path>, text: String) -> Self {
        Self::Write(path.as_ref().into(), text)
    }

    /// Returns a step that runs a command.
    pub fn run(words: &[&str]) -> Self {
        Self::Run(words.iter().map(|word| word.to_string()).collect())
    }

    /// Executes the step, and prints it.
    pub fn take(&self) -> Result<()> {
        self.run_in(&workspace::root())
    }

    /// Executes the step, and prints it. A command runs in `directory`.
    pub fn run_in(&self, directory: &Path) -> Result<()> {
        match self {
            Self::Write(path, text) => {
                eprintln!("setup: writing {}", path.display());
                fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
            }
            Self::Run(words) => {
                let line = words.join(" ");
                eprintln!("setup: {line}");
                let mut command = workspace::command(&words[0]);
                // Standard output belongs to the command that needs the setup.
                command.args(&words[1..]).current_dir(directory).stdin(Stdio::null()).stdout(io::stderr());
                command.env("DEBIAN_FRONTEND", "noninteractive");
                let status = command.status().with_context(|| format!("`{line}` cannot be started"))?;
                ensure!(status.success(), "`{line}` failed with {status}");
                Ok(())
            }
        }
    }

    /// Returns the step as a user other than root types it.
    pub fn shell(&self) -> String {
        match self {
            Self::Write(path, text) => {
                let lines: Vec<_> = text.lines().map(|line| format!("'{line}'")).collect();
                format!(r"printf '%s\n' {} | sudo tee {}", lines.join(" "), path.display())
            }
            Self::Run(words) => format!("sudo {}", words.join(" ")),
        }
    }
}
