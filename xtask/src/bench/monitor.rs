//! QEMU's monitor, which switches the log of instructions on and off: a boot has millions, and only a short part is
//! wanted. The protocol is QMP, on a socket in a directory of its own.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// The monitor of a machine.
pub struct Monitor {
    directory: PathBuf,
    connection: Option<BufReader<UnixStream>>,
}

impl Monitor {
    /// Creates a monitor that no machine uses yet.
    pub fn new() -> Result<Self> {
        // The path of a socket has some 100 characters at most, which rules out the target directory.
        let directory = env::temp_dir().join(format!("kprobes-bench-{}", process::id()));
        fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        Ok(Self { directory, connection: None })
    }

    /// Returns QEMU's arguments that make this its monitor.
    pub fn arguments(&self) -> [OsString; 2] {
        let mut socket = OsString::from("unix:");
        socket.push(self.directory.join("monitor"));
        socket.push(",server=on,wait=off");
        ["-qmp".into(), socket]
    }

    /// Starts a log of every instruction, each as a block of its own.
    pub fn start_log(&mut self) -> Result<()> {
        let log = self.directory.join("log");
        for line in ["one-insn-per-tb on", &format!("logfile {}", log.display()), "log exec,nochain"] {
            self.command(line)?;
        }
        Ok(())
    }

    /// Ends the log, and returns it.
    pub fn end_log(&mut self) -> Result<BufReader<File>> {
        self.command("log none")?;
        self.command("one-insn-per-tb off")?;
        let path = self.directory.join("log");
        let log = File::open(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        // The file exists until it is closed.
        fs::remove_file(&path)?;
        Ok(BufReader::new(log))
    }

    /// Executes `line` as QEMU's interactive monitor would.
    fn command(&mut self, line: &str) -> Result<()> {
        let answer = self.execute("human-monitor-command", json!({ "command-line": line }))?;
        match answer.as_str().map(str::trim) {
            Some("") => Ok(()),
            _ => bail!("QEMU's monitor answers `{line}` with {answer}"),
        }
    }

    fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        if self.connection.is_none() {
            let stream = UnixStream::connect(self.directory.join("monitor")).context("QEMU has no monitor")?;
            self.connection = Some(BufReader::new(stream));
            self.execute("qmp_capabilities", json!({}))?;
        }
        let Some(connection) = &mut self.connection else { bail!("QEMU has no monitor") };
        writeln!(connection.get_mut(), "{}", json!({ "execute": command, "arguments": arguments }))?;
        let mut line = String::new();
        // A greeting and events come, too.
        while connection.read_line(&mut line)? != 0 {
            let message: Value = serde_json::from_str(&line)?;
            if let Some(answer) = message.get("return") {
                return Ok(answer.clone());
            }
            if let Some(error) = message.get("error") {
                bail!("QEMU's monitor refuses `{command}`: {error}");
            }
            line.clear();
        }
        bail!("QEMU's monitor has closed")
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // A file that is left in the directory for temporary files does no harm.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
