//! Ends `run` by signals while it has the terminal of a person, and its QEMU does not end.

use std::{
    fs,
    process::Command,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{Machine, Process, own};
use crate::{
    conversation::PROMPT,
    test::{pty::Pty, report::Outcome},
};

/// Whatever ends the command, the terminal is as before.
pub(super) fn terminal(machine: &Machine) -> Result<Outcome> {
    // 128, and the number of the signal.
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        for name in ["xterm", "dumb"] {
            ends(machine, signal, status, name)?;
        }
    }
    Ok(Outcome::Passed)
}

fn ends(machine: &Machine, signal: &str, status: i32, name: &str) -> Result<()> {
    let pty = Pty::new()?;
    let before = pty.modes()?;
    let mut command = own(&["run", "--no-network"])?;
    command.args(&machine.options).arg("--image").arg(&machine.image);
    command.env("TERM", name).env("XDG_STATE_HOME", machine.directory("terminal")?);
    let (child, pieces) = pty.spawn(&mut command)?;
    let mut child = Process(child);
    let id = child.0.id().to_string();
    let send = |signal: &str, id: &str| -> Result<()> {
        let is_sent = Command::new("kill").args([signal, id]).status()?.success();
        ensure!(is_sent, "{signal} cannot be sent to {id}");
        Ok(())
    };
    let deadline = machine.deadline();
    let (mut shown, mut is_prompted) = (String::new(), false);
    let ended = loop {
        ensure!(Instant::now() < deadline, "{signal} does not end the command: {shown:?}");
        match pieces.recv_timeout(Duration::from_millis(50)) {
            Ok(bytes) => shown += &String::from_utf8_lossy(&bytes),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break child.0.wait()?,
        }
        if !is_prompted && shown.contains(PROMPT.trim_end()) {
            is_prompted = true;
            ensure!(before != pty.modes()?, "the terminal has a line discipline meanwhile");
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
            // It takes no signal then, and the second one ends the command.
            send("-STOP", children.split_whitespace().next().context("there is no QEMU")?)?;
        }
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        if is_prompted {
            send(signal, &id)?;
        }
    };
    ensure!(ended.code() == Some(status), "{signal}: {ended}: {shown:?}");
    ensure!(before == pty.modes()?, "{signal} leaves the terminal with other modes than before");
    Ok(())
}
