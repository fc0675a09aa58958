//! Programs that the tests use: those that read cards, to check ours, and one that fetches from the kernel's server.

use std::{
    env,
    io::ErrorKind,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Result, bail, ensure};

use super::{apt, output_of};

/// The programs, with their Debian packages.
const TOOLS: [(&str, &str); 4] =
    [("mcopy", "mtools"), ("fsck.fat", "dosfstools"), ("sfdisk", "fdisk"), ("curl", "curl")];

/// Programs that one test or a few need, which are ignored without them: one that reads recordings, one that reads
/// JSON, and a terminal.
pub const OPTIONAL: [&str; 3] = ["trace-cmd", "jq", "tmux"];

/// Installs the missing programs, or prints the commands to type.
pub fn get() -> Result<()> {
    install(&TOOLS, "mtools, dosfstools, util-linux and curl")
}

/// Installs one program, whose Debian package has its name, or prints the commands to type.
pub fn get_one(program: &'static str) -> Result<()> {
    install(&[(program, program)], program)
}

fn install(tools: &[(&'static str, &'static str)], names: &str) -> Result<()> {
    let packages = missing(tools);
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    eprintln!("setup: programs that the tests need are missing: {list}");
    if output_of(Command::new("apt-get").arg("--version")).is_err() {
        bail!("the tests need {names}: install the missing ones, {list}");
    }
    apt::install_packages(&packages)?;
    ensure!(missing(tools).is_empty(), "{} were installed, but are not in PATH", missing(tools).join(" "));
    Ok(())
}

/// Returns a command for a program. Debian has some of these in directories that are in the PATH of root alone.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    if let Ok(path) = env::join_paths(directories) {
        command.env("PATH", path);
    }
    command
}

fn missing(tools: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    let is_missing = |(program, _): &(&str, &str)| {
        let started = command(program).arg("--help").stdin(Stdio::null()).output();
        started.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    tools.iter().filter(|tool| is_missing(tool)).map(|(_, package)| *package).collect()
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn programs_of_root_are_found() {
        let command = command("sfdisk");
        let path = command.get_envs().find_map(|(name, value)| value.filter(|_| name == "PATH")).unwrap();
        assert!(path.to_string_lossy().ends_with("/usr/sbin:/sbin"), "{path:?}");
    }
}
