//! A running QEMU, whose UART its owner reads and types on. No QEMU outlives its owner: it is killed when it is
//! dropped, and by Linux if this process dies without dropping it. (On other systems ^C on the terminal ends both.)

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt;

use anyhow::{Context, Result, anyhow};

use crate::trace::source::Quoted;

/// The name of QEMU's program.
pub const QEMU: &str = "qemu-system-aarch64";

/// How long QEMU may take to exit after it has closed its output, also on a busy host.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// An event from a machine.
pub enum Output {
    /// The UART sent these bytes.
    Bytes(Vec<u8>),
    /// QEMU has closed the UART: it has ended, or is about to.
    End,
}

/// A UART to type on, of a machine or a board that [`Start`] has started.
pub trait Uart {
    /// Types these bytes, which may be any. Does not wait for the machine to take them.
    fn type_keys(&self, keys: Vec<u8>);

    /// Returns how the machine ended, after [`Output::End`]. An error says what went wrong.
    fn end(self: Box<Self>) -> Result<(), String>;

    /// Whether the machine goes on when this is dropped.
    fn goes_on(&self) -> bool {
        false
    }

    /// Types a line and the return key. Does not wait for the machine to take them.
    fn type_line(&self, line: &str) {
        self.type_keys(format!("{line}\n").into_bytes());
    }
}

/// A machine or a board that can be started, or one that runs already, to have its UART.
pub trait Start {
    /// Starts it. A thread passes everything that the UART sends to `output`, and ends with the machine. A machine that
    /// was started ends when the returned UART is dropped.
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>>;
}

/// A QEMU with these arguments.
impl Start for Vec<OsString> {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        Ok(Box::new(Qemu::start(self, output)?))
    }
}

/// A QEMU process, with its UART as pipes of this process.
pub struct Qemu {
    qemu: Child,
    keys: Sender<Vec<u8>>,
    complaints: Option<JoinHandle<String>>,
}

impl Qemu {
    /// Starts QEMU with the arguments of a board. A thread passes everything that the UART sends to `output`, and ends
    /// with QEMU.
    pub fn start(arguments: &[OsString], output: impl Fn(Output) + Send + 'static) -> Result<Self> {
        let mut command = Command::new(QEMU);
        command.args(arguments).args(["-display", "none", "-monitor", "none", "-serial", "stdio"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        keep_interrupts_from(&mut command);
        die_with_parent(&mut command);
        let mut qemu = command.spawn().map_err(cannot_start)?;
        let keys = type_keys(qemu.stdin.take());
        if let Some(stdout) = qemu.stdout.take() {
            thread::spawn(move || {
                pass_on(stdout, |bytes| output(Output::Bytes(bytes)));
                output(Output::End);
            });
        }
        let complaints = qemu.stderr.take().map(|mut stderr| {
            thread::spawn(move || {
                let mut text = Vec::new();
                // Text that was read before an error is better than nothing.
                let _ = stderr.read_to_end(&mut text);
                String::from_utf8_lossy(&text).trim().replace('\n', "; ")
            })
        });
        Ok(Self { qemu, keys, complaints })
    }

    fn status(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.qemu.try_wait() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Uart for Qemu {
    fn type_keys(&self, keys: Vec<u8>) {
        // The receiver is gone if QEMU is. The reader of QEMU's output reports that.
        let _ = self.keys.send(keys);
    }

    /// An error is the exit status and the complaint of QEMU.
    fn end(mut self: Box<Self>) -> Result<(), String> {
        let Some(status) = self.status() else {
            return Err("it closed the UART but runs on".into());
        };
        if status.success() {
            return Ok(());
        }
        let complaints = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let colon = if complaints.is_empty() { "" } else { ": " };
        Err(format!("{status}{colon}{complaints}"))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Both fail only if QEMU has been waited for already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Starts a thread that types keys to a process.
pub fn type_keys(input: Option<impl Write + Send + 'static>) -> Sender<Vec<u8>> {
    let (sender, keys) = mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        let mut input = input?;
        keys.iter().try_for_each(|keys| input.write_all(&keys).and_then(|()| input.flush())).ok()
    });
    sender
}

/// Passes on everything that is read from `from`, piece by piece, until its end.
pub fn pass_on(mut from: impl Read, mut to: impl FnMut(Vec<u8>)) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        to(buffer[..length].to_vec());
    }
}

/// Returns an argument of QEMU that ends with a path: in a path, QEMU takes two commas for one.
pub fn option_value(before: &str, path: &Path) -> OsString {
    format!("{before}{}", path.to_string_lossy().replace(',', ",,")).into()
}

/// Returns QEMU's option that loads a file into memory as it is.
pub fn load(file: &Path, address: u64) -> [OsString; 2] {
    ["-device".into(), option_value(&format!("loader,force-raw=on,addr={address:#x},file="), file)]
}

/// Returns the value of an option in QEMU's arguments, to be changed.
pub fn value_of<'a>(arguments: &'a mut [OsString], option: &str) -> Result<&'a mut OsString> {
    let value = arguments.iter().position(|argument| argument == option).map(|at| at + 1);
    value.and_then(|at| arguments.get_mut(at)).with_context(|| format!("QEMU is told no {option}"))
}

/// Returns QEMU's arguments for a machine with virtio, with a channel that writes to `path`.
pub fn with_channel(arguments: &[OsString], path: &Path) -> Vec<OsString> {
    let chardev = option_value("file,id=record,path=", path);
    let channel =
        ["-device".into(), "virtio-serial-device".into(), "-device".into(), "virtconsole,chardev=record".into()];
    [arguments, &["-chardev".into(), chardev], &channel].concat()
}

/// Returns the command line of QEMU as a user would type it.
pub fn shell_line(arguments: &[OsString]) -> String {
    let mut line = QEMU.to_string();
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let plain = |character: char| character.is_ascii_alphanumeric() || "-_=,./:+".contains(character);
        line.push(' ');
        if !argument.is_empty() && argument.chars().all(plain) {
            line.push_str(&argument);
        } else {
            line.push_str(&Quoted(&argument).to_string());
        }
    }
    line
}

/// Returns a sentence that says why QEMU could not be started.
pub fn cannot_start(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("{QEMU} is not installed; `cargo xtask setup` installs it or says how")
        }
        _ => anyhow!("{QEMU} cannot be started: {error}"),
    }
}

/// Lets the process that `command` starts end with this one.
#[cfg(target_os = "linux")]
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe functions may be
    // called. prctl is a bare system call, and making an error from errno allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

#[cfg(not(target_os = "linux"))]
pub fn die_with_parent(_: &mut Command) {}

/// Keeps ^C on the terminal from the process that `command` starts: it is for this process, which may not want to end
/// then.
#[cfg(target_os = "linux")]
fn keep_interrupts_from(command: &mut Command) {
    command.process_group(0);
}

/// Without [`die_with_parent`], ^C has to end both.
#[cfg(not(target_os = "linux"))]
fn keep_interrupts_from(_: &mut Command) {}

#[cfg(test)]
mod tests {
    use super::{OsString, load, shell_line, value_of};

    #[test]
    fn commas_are_doubled() {
        let device = "loader,force-raw=on,addr=0x10,file=/a,,b/c";
        assert_eq!(load("/a,b/c".as_ref(), 16), ["-device", device].map(OsString::from));
    }

    #[test]
    fn a_value_follows_its_option() {
        let mut arguments = ["-m", "1G", "-smp"].map(Into::into);
        *value_of(&mut arguments, "-m").unwrap() = "2G".into();
        assert_eq!(arguments[1], "2G");
        assert!(value_of(&mut arguments, "-smp").is_err() && value_of(&mut arguments, "-cpu").is_err());
    }

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        let arguments = ["-m", "", "it's"].map(Into::into);
        assert_eq!(shell_line(&arguments), r"qemu-system-aarch64 -m '' 'it'\''s'");
    }
}
