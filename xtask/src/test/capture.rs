//! Runs a program of the host, with a time limit, and keeps its output.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{self, Sender},
    thread,
    time::{Duration, Instant},
};

/// The time limit: longer than any program here takes, even where others share two cores.
const PATIENCE: Duration = Duration::from_secs(45 * 60);

/// The result and the output of a program.
pub struct Captured {
    /// The error is a sentence.
    pub result: Result<(), String>,
    /// The output on both standard output and standard error.
    pub text: String,
}

impl Captured {
    /// Returns the output of a program that succeeded. The error of one that failed is its output and the sentence.
    pub fn output(self) -> Result<String, String> {
        match self.result {
            Ok(()) => Ok(self.text),
            Err(sentence) => Err(self.text + &sentence),
        }
    }
}

/// Runs `command`, and calls `line` with every line of its standard output as it comes.
pub fn capture(command: &mut Command, line: impl FnMut(&str)) -> Captured {
    capture_within(PATIENCE, command, line)
}

/// Runs `command` as [`capture`] does, for `patience` at most.
pub fn capture_within(patience: Duration, command: &mut Command, mut line: impl FnMut(&str)) -> Captured {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).display().to_string();
    let mut text = String::new();
    let mut child = match command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return Captured { result: Err(format!("{name} cannot be started: {error}")), text },
    };
    let (sender, lines) = mpsc::channel();
    if let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) {
        let also = sender.clone();
        thread::spawn(move || send_lines(output, true, &sender));
        thread::spawn(move || send_lines(errors, false, &also));
    }
    let deadline = Instant::now() + patience;
    let timed_out = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((is_output, printed)) => {
                if is_output {
                    line(&printed);
                }
                text.push_str(&printed);
                text.push('\n');
            }
            Err(error) => break error == mpsc::RecvTimeoutError::Timeout,
        }
    };
    if timed_out {
        // The program may have ended just now, which is as good.
        let _ = child.kill();
    }
    let result = match child.wait() {
        _ if timed_out => Err(format!("{name} did not end within {} minutes", patience.as_secs() / 60)),
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} failed with {status}")),
        Err(error) => Err(format!("{name} cannot be waited for: {error}")),
    };
    Captured { result, text }
}

fn send_lines(from: impl Read, is_output: bool, to: &Sender<(bool, String)>) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    while let Ok(1..) = from.read_until(b'\n', &mut bytes) {
        let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_string();
        if to.send((is_output, text)).is_err() {
            return;
        }
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::capture;
    use std::process::Command;

    #[test]
    fn keeps_lines_and_status() {
        let mut lines = Vec::new();
        let mut shell = Command::new("sh");
        let captured = capture(shell.args(["-c", "echo one; echo two >&2; printf three; exit 3"]), |line| {
            lines.push(line.to_string())
        });
        assert_eq!(lines, ["one", "three"]);
        assert!(captured.text.contains("two\n"));
        assert_eq!(captured.result, Err("sh failed with exit status: 3".into()));
        let missing = capture(&mut Command::new("/nonexistent"), |_| {});
        assert!(missing.result.unwrap_err().starts_with("nonexistent cannot be started"));
    }
}
