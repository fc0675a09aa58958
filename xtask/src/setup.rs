//! Prepares a fresh machine, which has only rustup. This module finds out what else is needed, and installs it or
//! prints the commands to type. It never asks, so that it works without a user.

mod apt;
mod archive;
pub mod firmware;
mod step;
mod tools;
pub mod trees;

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use step::SetupStep;
pub use tools::{command as tool_command, get as tools, get_one as tool};

use crate::{
    board::Board,
    machine::{QEMU, cannot_start},
    workspace,
};

/// The target of the images.
pub const TARGET: &str = "aarch64-unknown-none-softfloat";

/// Installs everything that any command needs.
pub fn everything() -> Result<()> {
    rust(&["clippy", "rustfmt"])?;
    let boards = Board::emulated()?;
    boards.iter().try_for_each(board)?;
    firmware::get()?;
    tools()?;
    // Without them some tests are ignored.
    for program in tools::OPTIONAL {
        tool(program).unwrap_or_else(|error| eprintln!("setup: {error:#}"));
    }
    let machines: Vec<_> = boards.iter().filter_map(|board| board.machine().ok()).collect();
    eprintln!(
        "setup: everything is installed: the Rust target {TARGET}, clippy, rustfmt, QEMU with {}, the device trees and \
         the firmware of the Raspberry Pi, and programs that the tests need",
        machines.join(", ")
    );
    Ok(())
}

/// Installs what QEMU needs to be this board.
pub fn board(board: &Board) -> Result<()> {
    qemu(&[board.machine()?])?;
    if board.device_tree().is_some() { device_trees() } else { Ok(()) }
}

/// Gets the device trees that the boards need.
pub fn device_trees() -> Result<()> {
    let boards = Board::all()?;
    trees::get(&boards.iter().flat_map(Board::device_trees).collect())
}

/// Installs the Rust target and the given components, if they are missing.
pub fn rust(components: &[&str]) -> Result<()> {
    let mut missing = Vec::new();
    let directory = output_of(workspace::command("rustc").args(["--print", "target-libdir", "--target", TARGET]))?;
    if !Path::new(directory.trim()).is_dir() {
        missing.push(("target", TARGET));
    }
    for component in components {
        let command = component.trim_start_matches("rust");
        if output_of(workspace::cargo(&[command, "--version"]).stderr(Stdio::null())).is_err() {
            missing.push(("component", component));
        }
    }
    for (kind, name) in missing {
        // rustup adds to the toolchain that runs this, or otherwise to that of rust-toolchain.toml.
        let rustup = SetupStep::run(&["rustup", kind, "add", name]);
        if output_of(workspace::command("rustup").arg("--version").stderr(Stdio::null())).is_err() {
            let version = output_of(workspace::command("rustc").arg("--version"))?;
            bail!("the {kind} {name} of {} is missing, and rustup is not installed: install either", version.trim());
        }
        eprintln!("setup: the Rust {kind} {name} is missing");
        rustup.take()?;
    }
    Ok(())
}

/// Installs a QEMU that has these machines.
fn qemu(machines: &[&str]) -> Result<()> {
    let Some(lack) = find_lack(machines)? else {
        return Ok(());
    };
    eprintln!("setup: {lack}");
    if cfg!(target_os = "macos") {
        if output_of(Command::new("brew").arg("--version")).is_err() {
            bail!("{lack}: install Homebrew (https://brew.sh), then type `brew install qemu`");
        }
        let verb = if output_of(Command::new("brew").args(["list", "qemu"])).is_ok() { "upgrade" } else { "install" };
        SetupStep::run(&["brew", verb, "qemu"]).take()?;
    } else if output_of(Command::new("apt-get").arg("--version")).is_ok() {
        apt::install_qemu(machines)?;
    } else {
        bail!("{lack}: install a newer QEMU for AArch64 (the program {QEMU}) with the package manager of this system");
    }
    match find_lack(machines)? {
        Some(lack) => {
            bail!("{lack}, although it was just installed: is another {QEMU} in PATH?")
        }
        None => Ok(()),
    }
}

/// Returns what the installed QEMU lacks. `None` if it lacks nothing.
fn find_lack(machines: &[&str]) -> Result<Option<String>> {
    let output = match Command::new(QEMU).args(["-machine", "help"]).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Some(format!("{QEMU} is not installed")));
        }
        Err(error) => return Err(cannot_start(error)),
    };
    ensure!(
        output.status.success(),
        "`{QEMU} -machine help` failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let help = String::from_utf8_lossy(&output.stdout);
    let present: BTreeSet<_> = help.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let missing: Vec<_> = machines.iter().copied().filter(|machine| !present.contains(machine)).collect();
    Ok((!missing.is_empty()).then(|| format!("this {QEMU} is too old: it has no machine {}", missing.join(", "))))
}

/// Returns the output of a command, if it succeeds.
pub fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{name} cannot be started"))?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether this process runs as root.
fn is_root() -> Result<bool> {
    Ok(output_of(Command::new("id").arg("-u"))?.trim() == "0")
}
