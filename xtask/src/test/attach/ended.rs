//! Ends commands by signals, or without a reader of their output, while they use a machine that goes on.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use super::{EVENT, Fixture, PROGRAM, Running, TURN, WORKLOAD, no_probe_is_left, open};
use crate::{boot::Target, remote::Remote, setup, test::report::Outcome};

/// Each command takes its probes away, says what has ended it, and has the exit status of that signal.
pub(super) fn ended(fixture: &Fixture) -> Result<Outcome> {
    let directory = fixture.directory("ended")?;
    let path = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let [file, screen, script] = ["trace.dat", "top.svg", "script"].map(path);
    let _ = fs::remove_file(&file);
    fs::write(&script, format!("list\ntrace '{PROGRAM}' -c '{WORKLOAD}'\nlist\n"))?;
    let image = fixture.image.to_string_lossy();
    let recorded = ["-o", &file, "--image", &image, "-e", EVENT, "-p", PROGRAM];
    let commands: [(&str, &[&str]); 4] = [
        ("attach", &["--script", &script]),
        ("trace", &[PROGRAM]),
        ("record", &recorded),
        ("top", &["--svg", &screen, "--seconds", "1000", "sha2::*"]),
    ];
    let cable = fixture.cable("ended")?;
    let patience = fixture.seconds.to_string();
    for (signal, name, status) in [("-TERM", "SIGTERM", 143), ("-HUP", "SIGHUP", 129)] {
        for (command, arguments) in commands {
            let running = Running::start(fixture, &cable, &patience, command, arguments)?;
            let killed = Command::new("kill").args([signal, &running.child.0.id().to_string()]).status()?;
            let (ended, notes) = running.end(fixture)?;
            ensure!(killed.success(), "{command} has ended before {name}: {ended}: {notes}");
            let is_told = notes.contains(&format!("xtask: ended by {name}"));
            ensure!(ended.code() == Some(status) && is_told, "{command} after {name}: {ended}: {notes}");
            ensure!(command != "record" || !notes.contains("missing"), "{notes}");
            let target = Target::Connected { connection: open(&cable.port)?, kernel: None };
            let mut remote = Remote::start(&target, fixture.seconds)?;
            no_probe_is_left(&mut remote).with_context(|| format!("{command} has left probes after {name}"))?;
            let events = remote.ask("cat available_events")?;
            ensure!(!events.iter().any(|event| event.ends_with(":blocks")), "{command} has left an event: {events:?}");
            remote.leave(None);
        }
    }
    // The reader of its output has gone, as `head` does. The machine answers at its prompt after that.
    let Running { mut child, output } = Running::start(fixture, &cable, &patience, "attach", &["--script", &script])?;
    drop(output);
    let deadline = fixture.deadline();
    while child.0.try_wait()?.is_none() {
        ensure!(Instant::now() < deadline, "attach goes on without a reader of its output");
        thread::sleep(TURN);
    }
    let target = Target::Connected { connection: open(&cable.port)?, kernel: None };
    Remote::start(&target, fixture.seconds).context("attach has left a command")?.leave(None);
    if setup::tool("trace-cmd").is_ok() {
        let report = Command::new("trace-cmd").args(["report", &file]).stdin(Stdio::null()).output()?;
        let report = String::from_utf8(report.stdout).context("trace-cmd prints what is no text")?;
        ensure!(report.contains(" blocks:"), "trace-cmd reads no event: {report}");
    }
    Ok(Outcome::Passed)
}
