//! Ends `run` by signals while it has the terminal of a person, whether its QEMU ends or not.

use std::{
    fs,
    process::Command,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{Fixture, Process, own};
use crate::{
    conversation::PROMPT,
    test::{pty::Pty, report::Outcome},
};

/// The text that the test shows after all output of the command.
const END: &str = "the end of the test";

/// The terminal is as before after any signal that ends the command.
pub(super) fn terminal(fixture: &Fixture) -> Result<Outcome> {
    // 128, and the number of the signal.
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        for name in ["xterm", "dumb"] {
            ends(fixture, signal, status, name, true)?;
        }
        ends(fixture, signal, status, "dumb", false)?;
    }
    Ok(Outcome::Passed)
}

/// Ends the command on the terminal `name`. If QEMU `is_stopped`, it takes no signal, and the second one ends the
/// command. Otherwise the first one ends both.
fn ends(fixture: &Fixture, signal: &str, status: i32, name: &str, is_stopped: bool) -> Result<()> {
    let pty = Pty::new()?;
    pty.set_non_blocking()?;
    let before = pty.modes()?;
    let mut command = own(&["run", "--no-network"])?;
    command.args(&fixture.options).arg("--image").arg(&fixture.image);
    command.env("TERM", name).env("XDG_STATE_HOME", fixture.directory("terminal")?);
    let (child, pieces) = pty.spawn(&mut command)?;
    let mut child = Process(child);
    let id = child.0.id().to_string();
    let send = |signal: &str, id: &str| -> Result<()> {
        let is_sent = Command::new("kill").args([signal, id]).status()?.success();
        ensure!(is_sent, "{signal} cannot be sent to {id}");
        Ok(())
    };
    let deadline = fixture.deadline();
    let (mut shown, mut is_prompted, mut is_sent) = (String::new(), false, false);
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
            if is_stopped {
                let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
                send("-STOP", children.split_whitespace().next().context("there is no QEMU")?)?;
            }
        }
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        if is_prompted && (is_stopped || !is_sent) {
            send(signal, &id)?;
            is_sent = true;
        }
    };
    ensure!(ended.code() == Some(status), "{signal}: {ended}: {shown:?}");
    pty.show(END)?;
    while !shown.ends_with(END) {
        shown += &String::from_utf8_lossy(&pieces.recv_timeout(deadline.saturating_duration_since(Instant::now()))?);
    }
    let has_plain = shown.contains("\x1b[m");
    ensure!(has_plain == (name == "xterm"), "{name}: colors are {has_plain}: {shown:?}");
    ensure!(before == pty.modes()?, "{signal} leaves the terminal with other modes than before");
    Ok(())
}
