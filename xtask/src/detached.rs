//! Machines that run already: a QEMU that goes on after the command that started it, whose console is a Unix socket,
//! and a board on a serial line. There is one detached QEMU at a time, whose files are in one directory.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use cargo_kprobes::counted::counted;

use crate::{
    board,
    console::{Console, Event, stop_reason, stopped},
    conversation::PROMPT,
    lock::Locked,
    machine::{self, Output, QEMU, Start, Uart, cannot_start, option_value, with_channel},
    signals::is_noted,
    workspace,
};

/// How long QEMU may take to open the console, to take the keys that are left, or to exit after it has closed the
/// console. On a busy host, a machine that runs may be silent for ten seconds.
const QEMU_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a console at its prompt takes to answer at most, unless the host is busy: then the person is told.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long a console at its prompt may take to answer. On a busy host, a machine that runs may be silent for ten
/// seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a file of QEMU is looked for.
const TURN: Duration = Duration::from_millis(5);
/// How long the socket may accept no key, and how long QEMU may take the keys that are left if a person waits for the
/// end of this process.
const KEY_TIMEOUT: Duration = Duration::from_secs(1);

/// A machine that runs already, to be used at its prompt. Its output begins with the prompt, as after a boot.
pub struct AtPrompt<'a>(pub &'a dyn Start);

impl Start for AtPrompt<'_> {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        /// The keys that remove the text before the cursor, and that after it, which a person may have left there.
        const DISCARD_KEYS: &str = "\x15\x0b";
        const WORD: &str = "attached";
        let (sender, outputs) = mpsc::channel();
        let uart = self.0.start(Box::new(move |piece| drop(sender.send(piece))))?;
        // If the line has earlier rows, the end of this row ends it, and it is refused as unfinished.
        uart.type_line(DISCARD_KEYS);
        uart.type_line(&format!("echo {WORD}"));
        let typed = Instant::now();
        let mut is_told = false;
        let mut heard = String::new();
        let rest = loop {
            match outputs.recv_timeout(TURN) {
                Ok(Output::Bytes(bytes)) => heard += &String::from_utf8_lossy(&bytes),
                Ok(Output::End) | Err(RecvTimeoutError::Disconnected) => bail!("the machine has ended"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // The echo of the typed line does not begin with the word.
            if let Some((_, rest)) = heard.split_once(&format!("\n{WORD}\r\n")) {
                break rest.as_bytes().to_vec();
            }
            if typed.elapsed() > ANSWER_TIMEOUT || is_noted() {
                bail!(
                    "the machine does not answer at its prompt; perhaps it carries out a command: see `cargo xtask attach`"
                );
            }
            if typed.elapsed() > ANSWER_TIME && !is_told {
                is_told = true;
                eprintln!("The machine has not answered at its prompt yet; ^C ends the wait");
            }
        };
        thread::spawn(move || {
            output(Output::Bytes(rest));
            outputs.iter().for_each(output);
        });
        Ok(uart)
    }
}

/// The files of a detached QEMU.
#[derive(Clone)]
pub struct Files(PathBuf);

impl Files {
    /// The files of the machine that commands find.
    pub fn own() -> Self {
        Self(workspace::root().join("target/detached"))
    }

    /// The files in this directory, for tests.
    pub fn of(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// The socket of its console.
    fn console(&self) -> PathBuf {
        self.0.join("console")
    }

    /// The file of its process number. QEMU removes it when it ends in order.
    fn pid(&self) -> PathBuf {
        self.0.join("pid")
    }

    /// The image that it runs.
    fn image(&self) -> PathBuf {
        self.0.join("image")
    }

    /// The file to which it sends the frames of recordings, if it has a channel for them.
    fn frames(&self) -> PathBuf {
        self.0.join("frames")
    }

    /// The file of everything that its console has printed.
    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The file of the numbers of [`Unread`].
    fn read(&self) -> PathBuf {
        self.0.join("read")
    }

    /// Returns how to reach the machine, and how to end it.
    fn hints(&self) -> String {
        let pid = fs::read_to_string(self.pid()).unwrap_or_default();
        format!("its console: `cargo xtask attach`; its end: `poweroff` there, or `kill {}`", pid.trim())
    }

    /// Returns QEMU's arguments for a machine that goes on, from those for a machine with `image`.
    fn arguments(&self, arguments: &[OsString], image: &Path, has_virtio: bool) -> Vec<OsString> {
        // After a reset, QEMU loads the image again. The file of the build may be another one then.
        let own = |argument: &OsString| if argument == image { self.image().into() } else { argument.clone() };
        let mut arguments = board::with_reboot(arguments.iter().map(own).collect());
        if has_virtio {
            arguments = with_channel(&arguments, &self.frames());
        }
        arguments.extend(["-display", "none", "-monitor", "none", "-chardev"].map(OsString::from));
        let mut console = option_value("socket,id=console,server=on,wait=on,path=", &self.console());
        console.push(option_value(",logfile=", &self.log()));
        arguments.push(console);
        arguments.extend(["-serial", "chardev:console", "-daemonize", "-pidfile"].map(OsString::from));
        arguments.push(self.pid().into());
        arguments
    }

    /// Locks the files until the returned value is dropped. The locked file is beside the directory, which is made anew
    /// for each machine.
    fn lock(&self) -> Result<Locked<File>> {
        let path = self.0.with_extension("lock");
        let directory = path.parent().map_or(Ok(()), fs::create_dir_all);
        let lock = directory.and_then(|()| File::options().create(true).append(true).open(&path));
        let lock = lock.with_context(|| format!("{} cannot be opened", path.display()))?;
        // A second connection to the console would wait until the first is closed.
        Locked::new(lock).ok().context("another command uses the detached machine")
    }

    /// Starts a QEMU with these files. Returns how to reach it, at the first prompt of the machine, which may be silent
    /// for `limit` seconds before. Without a limit, the machine may be held before that prompt, which is not awaited.
    pub fn start(&self, arguments: &[OsString], image: &Path, has_virtio: bool, limit: Option<u64>) -> Result<String> {
        let _lock = self.lock()?;
        if UnixStream::connect(self.console()).is_ok() {
            bail!("a detached machine runs already; {}", self.hints());
        }
        // The files of the machine before.
        let _ = fs::remove_dir_all(&self.0);
        fs::create_dir_all(&self.0).with_context(|| format!("{} cannot be made", self.0.display()))?;
        fs::copy(image, self.image()).with_context(|| format!("{} cannot be copied", image.display()))?;
        let mut command = Command::new(QEMU);
        command.args(self.arguments(arguments, image, has_virtio)).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut qemu = command.spawn().map_err(cannot_start)?;
        // QEMU starts the machine when its console is connected. Then it leaves this process.
        let connected = connect(self, &mut qemu);
        let process::Output { status, stderr, .. } = qemu.wait_with_output()?;
        let is_prompted = match connected {
            Some(socket) if status.success() => limit.map_or(Ok(()), |seconds| {
                let mut unread = Unread::default();
                let is_prompted = await_prompt(socket, Duration::from_secs(seconds), &mut unread.read);
                unread.save(self);
                is_prompted
            }),
            _ => Err(anyhow!("QEMU ended: {status}: {}", String::from_utf8_lossy(&stderr).trim())),
        };
        if is_prompted.is_err() {
            self.kill();
        }
        is_prompted.map(|()| format!("The machine runs; {}", self.hints()))
    }

    /// Ends QEMU, if it runs.
    pub fn kill(&self) {
        if let Ok(pid) = fs::read_to_string(self.pid()) {
            // If QEMU was killed before, there is no such process.
            let _ = Command::new("kill").arg(pid.trim()).stderr(Stdio::null()).status();
        }
    }
}

/// How much of the console's output no command has read, because none used the machine.
#[derive(Clone, Copy, Default)]
struct Unread {
    /// The number of bytes that commands have read.
    read: u64,
    /// The number of other bytes that commands have reported.
    told: u64,
}

impl Unread {
    /// Reads the numbers. A command that was killed has not changed them.
    fn load(files: &Files) -> Self {
        let text = fs::read_to_string(files.read()).unwrap_or_default();
        let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap_or(0));
        Self { read: numbers.next().unwrap_or(0), told: numbers.next().unwrap_or(0) }
    }

    /// Writes the numbers for the next command.
    fn save(self, files: &Files) {
        // Without the file, the next command reports too many bytes.
        let _ = fs::write(files.read(), format!("{} {}\n", self.read, self.told));
    }

    /// Returns how many bytes of a log of `length` bytes no command has read or reported, and counts them as reported.
    fn tell(&mut self, length: u64) -> u64 {
        let missed = length.saturating_sub(self.read + self.told);
        self.told += missed;
        missed
    }
}

/// The detached QEMU, locked for this process.
pub struct DetachedMachine {
    files: Files,
    socket: UnixStream,
    /// The number of bytes that the machine had printed while no command used it, and that no command has reported.
    pub missed: u64,
    _lock: Locked<File>,
}

impl DetachedMachine {
    /// Finds the detached QEMU that runs.
    pub fn find() -> Result<Self> {
        let none = "no detached machine runs; `cargo xtask run --detach` starts one";
        let detached = Self::find_in(Files::own())?.context(none)?;
        if detached.missed > 0 {
            let (missed, log) = (counted(detached.missed, "byte"), detached.files.log());
            eprintln!("The machine has printed {missed} while no command used it: see {}", log.display());
        }
        Ok(detached)
    }

    /// Finds the QEMU with these files, if it runs.
    pub fn find_in(files: Files) -> Result<Option<Self>> {
        let lock = files.lock()?;
        // Before the console is connected: what is printed from then on is read.
        let printed = fs::metadata(files.log()).map_or(0, |metadata| metadata.len());
        let Ok(socket) = UnixStream::connect(files.console()) else { return Ok(None) };
        let mut unread = Unread::load(&files);
        let missed = unread.tell(printed);
        unread.save(&files);
        Ok(Some(Self { files, socket, missed, _lock: lock }))
    }

    /// The image that it runs.
    pub fn image(&self) -> PathBuf {
        self.files.image()
    }

    /// The file to which it sends the frames of recordings. `None` if it sends them over the console.
    pub fn frames(&self) -> Option<PathBuf> {
        Some(self.files.frames()).filter(|path| path.is_file())
    }
}

impl Start for DetachedMachine {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        let socket = self.socket.try_clone()?;
        socket.set_write_timeout(Some(KEY_TIMEOUT))?;
        let reader = socket.try_clone()?;
        let (reads, ended) = mpsc::channel();
        let files = self.files.clone();
        thread::spawn(move || {
            let mut unread = Unread::load(&files);
            machine::pass_on(reader, |bytes| {
                unread.read += bytes.len() as u64;
                output(Output::Bytes(bytes));
            });
            output(Output::End);
            unread.save(&files);
            drop(reads);
        });
        Ok(Box::new(Socket { socket, pid: self.files.pid(), ended }))
    }
}

/// The console of the detached QEMU.
struct Socket {
    socket: UnixStream,
    pid: PathBuf,
    /// Its sender is gone when QEMU has closed the console, and the bytes that were read are counted.
    ended: Receiver<()>,
}

impl Drop for Socket {
    /// Waits until QEMU has taken all keys: it drops them if both directions are closed at once.
    fn drop(&mut self) {
        // Both fail only if QEMU has ended, or does not take the keys.
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = self.ended.recv_timeout(if is_noted() { KEY_TIMEOUT } else { QEMU_TIMEOUT });
    }
}

impl Uart for Socket {
    /// Keys that QEMU does not take in time are lost.
    fn type_keys(&self, keys: Vec<u8>) {
        // The reader of the output reports a machine that has ended or does not answer.
        let _ = (&self.socket).write_all(&keys);
    }

    fn goes_on(&self) -> bool {
        true
    }

    fn end(self: Box<Self>) -> Result<(), String> {
        let deadline = Instant::now() + QEMU_TIMEOUT;
        while self.pid.exists() {
            if Instant::now() > deadline {
                return Err("it was killed, or closed its console and runs on".into());
            }
            thread::sleep(TURN);
        }
        Ok(())
    }
}

/// Connects to the console as soon as QEMU has opened it. `None` if QEMU has ended; one that does not open it is ended.
fn connect(files: &Files, qemu: &mut Child) -> Option<UnixStream> {
    let deadline = Instant::now() + QEMU_TIMEOUT;
    while Instant::now() < deadline && matches!(qemu.try_wait(), Ok(None)) {
        if let Ok(socket) = UnixStream::connect(files.console()) {
            return Some(socket);
        }
        thread::sleep(TURN);
    }
    // It may have ended already.
    let _ = qemu.kill();
    None
}

/// Waits for the first prompt, for as long as there is output within `patience`. Adds the length of the output to
/// `read`.
fn await_prompt(mut socket: UnixStream, patience: Duration, read: &mut u64) -> Result<()> {
    socket.set_read_timeout(Some(patience))?;
    let mut console = Console::new(PROMPT);
    let mut buffer = [0; 4096];
    loop {
        let bytes = match socket.read(&mut buffer) {
            Ok(0) => bail!("QEMU ended before the first prompt"),
            Ok(length) => &buffer[..length],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                bail!("the machine printed nothing within {} s, and no prompt before", patience.as_secs())
            }
            Err(error) => return Err(error).context("the console cannot be read"),
        };
        *read += bytes.len() as u64;
        for event in console.feed(bytes) {
            match event {
                Event::Prompt => return Ok(()),
                Event::Line(line) => {
                    if let Some(reason) = stop_reason(&line) {
                        bail!(stopped(reason));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use anyhow::Result;

    use super::{AtPrompt, Output, PROMPT, Start, Uart};

    /// A console at whose prompt a person has left this text before and after the cursor.
    struct Left(&'static str, &'static str);

    struct LeftUart {
        output: Box<dyn Fn(Output) + Send>,
        row: Mutex<(String, String)>,
    }

    impl Start for Left {
        fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
            Ok(Box::new(LeftUart { output, row: Mutex::new((self.0.into(), self.1.into())) }))
        }
    }

    impl Uart for LeftUart {
        fn type_keys(&self, keys: Vec<u8>) {
            let mut row = self.row.lock().unwrap();
            for key in keys {
                match key {
                    0x15 => row.0.clear(),
                    0x0b => row.1.clear(),
                    b'\n' => {
                        let line = format!("{}{}", row.0, row.1);
                        *row = Default::default();
                        let said = line.strip_prefix("echo ").map(|words| format!("{words}\r\n")).unwrap_or_default();
                        (self.output)(Output::Bytes(format!("{line}\r\n{said}{PROMPT}").into_bytes()));
                    }
                    _ => row.0.push(key.into()),
                }
            }
        }

        fn end(self: Box<Self>) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn text_that_was_left_on_the_line_is_removed() {
        for left in [Left("", ""), Left("list", ""), Left("li", "st"), Left("", "list")] {
            let (sender, outputs) = mpsc::channel();
            let _uart = AtPrompt(&left).start(Box::new(move |output| drop(sender.send(output)))).unwrap();
            let Ok(Output::Bytes(first)) = outputs.recv() else { panic!("the machine has ended") };
            assert_eq!(String::from_utf8_lossy(&first), PROMPT);
        }
    }
}
