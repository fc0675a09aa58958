//! Boots the kernel: for a person, as the terminal of QEMU; or for a script, with the conversation printed as
//! a person would see it.

use std::{
    ffi::OsString,
    fs,
    io::{self, Cursor, IsTerminal, Read, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use kprobes_pl011::PULSE_KEY;

use crate::{
    board,
    boot::{self, Target},
    console::{Console, Event, is_no_text},
    conversation::{Action, Conversation, PROMPT},
    detached,
    machine::{self, Output, Start, Uart},
    network,
    remote::{PULSE_PERIOD, TURN, end_command, pulse_period},
    script,
    signals::{INTERRUPTED_STATUS, is_interrupted, is_noted},
    terminal::{KEY_TURN, Keystrokes, Menu, Terminal},
};

/// What is booted, and whether a person or a script talks to it.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    boot: boot::Options,
    #[command(flatten)]
    script_options: ScriptOptions,
    /// Lets QEMU go on after this command. `cargo xtask attach` is the machine's console then.
    #[arg(long, conflicts_with = "script")]
    detach: bool,
    /// Opens QEMU's stub for GDB on a free port of 127.0.0.1, and prints how to connect.
    #[arg(long)]
    gdb: bool,
    /// More arguments for QEMU.
    #[arg(last = true, value_name = "QEMU")]
    qemu: Vec<OsString>,
}

/// A script, if no person talks to the machine.
#[derive(clap::Args)]
pub struct ScriptOptions {
    /// Types the lines of this file, one at each prompt, prints the conversation and powers off. A program in '…' may
    /// have several lines. `-` is standard input, which is also read as a script when it is not a terminal. If a
    /// command takes longer than `--timeout` while the machine lives, a message says that it goes on.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Ends the script at the first line that is refused, and fails.
    #[arg(long, requires = "script")]
    pub strict: bool,
}

/// Boots the kernel.
pub fn run(options: &Options) -> Result<ExitCode> {
    let script = if options.detach { None } else { options.script_options.open()? };
    let mut target = options.boot.target()?;
    match &mut target {
        Target::Qemu { arguments, kernel, .. } => {
            arguments.extend(options.qemu.iter().cloned());
            if options.gdb {
                arguments.extend(with_stub(kernel.elf.as_deref())?);
            }
        }
        _ => ensure!(!options.gdb && options.qemu.is_empty(), "the machine is a board, and not QEMU"),
    }
    // A debugger holds the machine for as long as it likes.
    let limit = (!options.gdb).then_some(options.boot.timeout);
    if options.detach {
        return detach(&target, limit).map(|()| ExitCode::SUCCESS);
    }
    let done = match (script, target) {
        (Some(script), target) => {
            let conversation = Conversation::new(target.farewell(), options.script_options.strict);
            follow(&target, script, limit, conversation)
        }
        (None, Target::Serial { station, bytes, .. }) => station.interact(&bytes),
        (None, Target::Qemu { arguments, .. }) => return interact(arguments),
        (None, Target::Detached(_) | Target::Connected { .. }) => unreachable!("`run` boots machines"),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Starts QEMU so that it goes on without this process, and prints how to reach it: at the first prompt of the machine,
/// which may be silent for `limit` seconds, or at once without a limit.
fn detach(target: &Target, limit: Option<u64>) -> Result<()> {
    let Target::Qemu { arguments, kernel, has_virtio } = target else {
        bail!("a board on a serial line goes on by itself when its console is left");
    };
    eprintln!("{}", detached::Files::own().start(arguments, &kernel.image, *has_virtio, limit)?);
    Ok(())
}

/// Returns QEMU's arguments for a stub on a free port, and prints how to connect.
fn with_stub(elf: Option<&Path>) -> Result<[OsString; 2]> {
    let port = network::hold_port()?.local_addr()?.port();
    let elf = elf.map_or_else(|| "ELF".into(), |elf| elf.display().to_string());
    eprintln!("GDB: gdb-multiarch {elf} -ex 'target remote :{port}'");
    Ok(["-gdb".into(), format!("tcp:127.0.0.1:{port}").into()])
}

impl ScriptOptions {
    /// Opens the script, unless there is a person at the terminal.
    pub fn open(&self) -> Result<Option<Box<dyn Read + Send>>> {
        match &self.script {
            None if io::stdin().is_terminal() => return Ok(None),
            None => eprintln!("standard input is not a terminal: its lines are typed one by one"),
            Some(path) if path.as_os_str() != "-" => {
                let text = fs::read(path).with_context(|| format!("the script {} cannot be read", path.display()))?;
                return Ok(Some(Box::new(Cursor::new(text))));
            }
            Some(_) => {}
        }
        Ok(Some(Box::new(io::stdin())))
    }
}

/// Connects the terminal to QEMU, and returns its exit status. All keys go to QEMU, whose menu is at Ctrl-A.
fn interact(arguments: Vec<OsString>) -> Result<ExitCode> {
    // A person wants the machine back after `reboot`. For a script, a machine that resets has failed.
    let mut arguments = board::with_reboot(arguments);
    arguments.push("-nographic".into());
    eprintln!("{}", machine::shell_line(&arguments));
    eprintln!("To quit: `poweroff`, or Ctrl-A X at any time.");
    let mut command = Command::new(machine::QEMU);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    machine::die_with_parent(&mut command);
    let mut terminal = Terminal::open(Menu::Qemu)?;
    let mut qemu = command.spawn().map_err(machine::cannot_start)?;
    let keys = machine::type_keys(qemu.stdin.take());
    let (sender, outputs) = mpsc::channel();
    let stdout = qemu.stdout.take();
    thread::spawn(move || {
        if let Some(stdout) = stdout {
            // The receiver is gone if the terminal is.
            machine::pass_on(stdout, |bytes| drop(sender.send(bytes)));
        }
    });
    let mut is_told = false;
    loop {
        match outputs.recv_timeout(KEY_TURN) {
            Ok(bytes) => terminal.show(&bytes)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        match terminal.keystrokes() {
            Keystrokes::Nothing => {}
            // The receiver is gone if QEMU is.
            Keystrokes::Keys(typed) => drop(keys.send(typed)),
            Keystrokes::Leave(_) if is_told => {}
            Keystrokes::Leave(_) => {
                // If QEMU has ended already, there is no such process.
                let _ = Command::new("kill").arg(qemu.id().to_string()).stderr(Stdio::null()).status();
                is_told = true;
            }
        }
    }
    let status = qemu.wait()?;
    if is_noted() {
        // QEMU ends with 0 when this process tells it to end. For other signals, `main` has the status.
        return Ok(ExitCode::from(INTERRUPTED_STATUS));
    }
    let code = status.code().or_else(|| Some(128 + status.signal()?)).and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// A machine counts as alive for this long after a sign of life, so that it may miss one.
const LIVES: Duration = PULSE_PERIOD.saturating_mul(3);

/// An event that the conversation waits for.
enum Input {
    Machine(Output),
    /// A line of the script; `None` at its end; an error if the line cannot be typed.
    Script(Result<Option<String>, String>),
}

/// Lets the script talk to the machine that `start` starts, and returns when the conversation is over. The machine may
/// give no sign of life for `limit` seconds.
pub fn follow(
    start: &dyn Start,
    script: Box<dyn Read + Send>,
    limit: Option<u64>,
    mut conversation: Conversation,
) -> Result<()> {
    let (inputs, input_queue) = mpsc::channel();
    let machine = {
        let inputs = inputs.clone();
        // The receiver is gone once the conversation is over.
        start.start(Box::new(move |output| drop(inputs.send(Input::Machine(output)))))?
    };
    thread::spawn(move || {
        let mut is_whole = true;
        script::read(script, |line| {
            is_whole &= line.is_ok();
            inputs.send(Input::Script(line.map(Some))).is_ok()
        });
        is_whole.then(|| inputs.send(Input::Script(Ok(None))))
    });

    let mut screen = Screen { at_line_start: true };
    let (mut last_sign, mut last_pulse) = (Instant::now(), Instant::now());
    let first_note = limit.unwrap_or(u64::MAX);
    let (mut typed, mut next_note) = (Instant::now(), first_note);
    let result = loop {
        let elapsed = typed.elapsed().as_secs();
        if elapsed >= next_note
            && last_sign.elapsed() < LIVES
            && let Some(note) = conversation.progress_note(elapsed)
        {
            screen.end_line().inspect_err(|_| interrupt(&*machine, &input_queue))?;
            eprintln!("{note}");
            next_note = 2 * elapsed;
        }
        let patience = conversation.patience(limit).map_or(Duration::MAX, Duration::from_secs);
        let remaining = match conversation.waits_for_machine() {
            true => patience.saturating_sub(last_sign.elapsed()),
            // The script may come from a person or a program that takes its time.
            false => Duration::MAX,
        };
        let period = if conversation.is_answered() { pulse_period(patience) } else { Duration::MAX };
        if is_interrupted() {
            if conversation.waits_for_machine() {
                interrupt(&*machine, &input_queue);
            }
            break Err(conversation.interrupted());
        }
        let action = match input_queue.recv_timeout(remaining.min(period).min(TURN)) {
            Ok(Input::Machine(Output::Bytes(bytes))) => {
                last_sign = Instant::now();
                if !conversation.is_checking() {
                    screen.show(&bytes).inspect_err(|_| interrupt(&*machine, &input_queue))?;
                }
                conversation.output(&bytes)
            }
            Ok(Input::Machine(Output::End)) => break conversation.ended(machine.end()),
            Ok(Input::Script(Ok(line))) => conversation.script(line.as_deref()),
            Ok(Input::Script(Err(sentence))) => {
                if conversation.waits_for_machine() {
                    interrupt(&*machine, &input_queue);
                }
                break Err(sentence);
            }
            Err(RecvTimeoutError::Timeout) if !conversation.waits_for_machine() || last_sign.elapsed() < patience => {
                if conversation.is_answered() && last_pulse.max(last_sign).elapsed() >= period {
                    last_pulse = Instant::now();
                    machine.type_keys(vec![PULSE_KEY]);
                }
                None
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                interrupt(&*machine, &input_queue);
                break Err(conversation.timed_out(patience.as_secs()));
            }
        };
        match action {
            Some(Action::Type(line)) => {
                machine.type_line(&line);
                last_sign = Instant::now();
                (typed, next_note) = (last_sign, first_note);
            }
            Some(Action::Finish(result)) => break result,
            None => {}
        }
    };
    screen.end_line()?;
    result.map_err(|sentence| anyhow!(sentence))
}

/// Ends the command that runs on a machine that goes on without this process.
fn interrupt(machine: &dyn Uart, inputs: &Receiver<Input>) {
    let mut console = Console::new(PROMPT);
    end_command(machine, |until| {
        loop {
            match inputs.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Input::Machine(Output::Bytes(bytes))) => {
                    if console.feed(&bytes).contains(&Event::Prompt) {
                        return true;
                    }
                }
                Ok(Input::Script(_)) => {}
                Err(RecvTimeoutError::Timeout) => return false,
                Ok(Input::Machine(Output::End)) | Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    });
}

/// Standard output, in place of the terminal on which a person would see the UART.
struct Screen {
    at_line_start: bool,
}

impl Screen {
    /// Shows bytes from the UART, with the line ends of the host.
    fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        let text: Vec<u8> = bytes.iter().copied().filter(|&byte| !is_no_text(byte)).collect();
        if let Some(last) = text.last() {
            self.at_line_start = *last == b'\n';
        }
        let mut out = io::stdout().lock();
        out.write_all(&text)?;
        out.flush()
    }

    /// Ends a half line, so that later output begins on a line of its own.
    fn end_line(&mut self) -> io::Result<()> {
        if !self.at_line_start {
            self.show(b"\n")?;
        }
        Ok(())
    }
}
