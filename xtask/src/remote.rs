//! Drives a machine's console from a command of this host: types lines and collects the output, part by part.

use std::{
    fmt, mem,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::Result;
use kprobes_pl011::{PULSE, PULSE_KEY};
use kprobes_wire::{
    mark::{Mark, Reader, Segment},
    record::from_base64,
};

use crate::{
    console::{Console, Event, stop_reason, stopped},
    conversation::{PROMPT, STATUS},
    machine::{Output, Start, Uart},
    signals::is_interrupted,
};

/// How often a silent machine is asked for a sign of life, if it may be silent for long.
pub const PULSE_PERIOD: Duration = Duration::from_secs(2);
/// How long a machine may take to end, or to end a command, after the order to do so. On a busy host, a machine that
/// runs may be silent for ten seconds.
pub const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait for the end of a command before ^C is typed again.
const INTERRUPT_RETRY: Duration = Duration::from_millis(500);
/// The longest time until ^C is noticed.
pub const TURN: Duration = Duration::from_millis(50);
/// The byte that ^C sends, and the console's reply when it ends a command.
const INTERRUPT_KEY: u8 = 3;
const INTERRUPT_REPLY: &str = "^C";
/// A line that the console echoes, and that does nothing: a comment.
const NOTHING: &str = "#";

/// Ends the command that runs on a machine, if the machine goes on without this process: types ^C again and again until
/// `is_over`, which listens until the given time, returns true, or [`EXIT_TIMEOUT`] is over. A command that has only
/// begun may not notice the first ^C.
pub fn end_command(uart: &dyn Uart, mut is_over: impl FnMut(Instant) -> bool) {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while uart.goes_on() && Instant::now() < deadline {
        uart.type_keys(vec![INTERRUPT_KEY]);
        if is_over(Instant::now() + INTERRUPT_RETRY) {
            return;
        }
    }
}

/// Returns the time between two requests for a sign of life, for a machine that may be silent for `patience`.
pub fn pulse_period(patience: Duration) -> Duration {
    PULSE_PERIOD.min(patience / 2)
}

/// A part of the console's output.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A line that is not marked.
    Line(String),
    /// A marked text.
    Marked(Mark, String),
    /// The prompt for the next line.
    Prompt,
}

/// The machine does not go on, for the reason in this sentence.
#[derive(Debug)]
pub struct Stopped(pub String);

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stopped {}

/// A machine that was started.
pub struct Remote {
    /// `None` once it has ended.
    uart: Option<Box<dyn Uart>>,
    outputs: Receiver<Output>,
    marks: Reader,
    console: Console,
    /// How long it may give no sign of life.
    patience: Duration,
    last_sign: Instant,
    /// When it first replied to a request for a sign of life since its last output.
    pulses_since: Option<Instant>,
    last_pulse: Instant,
    /// Parts that came together with an awaited one, and after it.
    pending: Vec<Heard>,
    /// Bytes of a recording's frames that came over the console.
    frames: Vec<u8>,
    /// Whether the machine carries out a line.
    is_busy: bool,
    /// When ^C was passed on to the line's command, until the console replies to it.
    interrupted: Option<Instant>,
    /// Whether ^C was typed since the last line. If it came after the end of its command, the console prompts again.
    is_unsettled: bool,
}

impl Remote {
    /// Starts a machine, and waits for its first prompt. It may give no sign of life for `seconds`.
    pub fn start(start: &dyn Start, seconds: u64) -> Result<Self> {
        let (sender, outputs) = mpsc::channel();
        // The receiver is gone once the machine is.
        let uart = start.start(Box::new(move |output| drop(sender.send(output))))?;
        let now = Instant::now();
        let mut remote = Self {
            uart: Some(uart),
            outputs,
            marks: Reader::default(),
            console: Console::new(PROMPT),
            patience: Duration::from_secs(seconds),
            last_sign: now,
            pulses_since: None,
            last_pulse: now,
            pending: Vec::new(),
            frames: Vec::new(),
            is_busy: true,
            interrupted: None,
            is_unsettled: false,
        };
        while !remote.hear(Duration::MAX)?.contains(&Heard::Prompt) {}
        Ok(remote)
    }

    /// Types a line, and skips its echo in the output.
    pub fn type_line(&mut self, line: &str) -> Result<(), Stopped> {
        if mem::take(&mut self.is_unsettled) {
            self.settle()?;
        }
        self.send(line);
        // The console echoes the line.
        loop {
            let mut heard = self.hear(Duration::MAX)?;
            if let Some(echo) = heard.iter().position(|heard| matches!(heard, Heard::Line(_))) {
                self.pending = heard.split_off(echo + 1);
                return Ok(());
            }
        }
    }

    /// Waits until the console has replied to everything that was typed.
    fn settle(&mut self) -> Result<(), Stopped> {
        self.send(NOTHING);
        let echo = format!("{PROMPT}{NOTHING}");
        let mut is_echoed = false;
        loop {
            for heard in self.hear(Duration::MAX)? {
                match heard {
                    Heard::Line(line) => is_echoed |= line == echo,
                    Heard::Prompt if is_echoed => return Ok(()),
                    Heard::Prompt | Heard::Marked(..) => {}
                }
            }
        }
    }

    fn send(&mut self, line: &str) {
        self.is_busy = true;
        self.type_keys(format!("{line}\n").into_bytes());
        self.last_sign = Instant::now();
    }

    /// Types ^C.
    pub fn interrupt(&mut self) {
        self.is_unsettled = true;
        self.type_keys(vec![INTERRUPT_KEY]);
    }

    /// Types ^C if this process was interrupted, and again after a while if the console has not replied: a command that
    /// has only begun may not notice the first one.
    pub fn pass_interrupt(&mut self) {
        if is_interrupted() || self.interrupted.is_some_and(|time| time.elapsed() > INTERRUPT_RETRY) {
            self.interrupt();
            self.interrupted = Some(Instant::now());
        }
    }

    fn type_keys(&self, keys: Vec<u8>) {
        if let Some(uart) = &self.uart {
            uart.type_keys(keys);
        }
    }

    /// Returns the output that has come, after `wait` at the latest. It may be empty.
    pub fn hear(&mut self, wait: Duration) -> Result<Vec<Heard>, Stopped> {
        // A machine that has stopped ends no command.
        self.await_output(wait).inspect_err(|_| self.is_busy = false)
    }

    fn await_output(&mut self, wait: Duration) -> Result<Vec<Heard>, Stopped> {
        if !self.pending.is_empty() {
            return Ok(mem::take(&mut self.pending));
        }
        let deadline = Instant::now().checked_add(wait);
        let period = pulse_period(self.patience);
        loop {
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            match self.outputs.recv_timeout(left.min(period)) {
                Ok(Output::Bytes(bytes)) => {
                    self.last_sign = Instant::now();
                    let heard = self.take(&bytes)?;
                    if !heard.is_empty() {
                        return Ok(heard);
                    }
                }
                Ok(Output::End) | Err(RecvTimeoutError::Disconnected) => {
                    let how = self.uart.take().map_or(Ok(()), Uart::end);
                    return Err(Stopped(match how {
                        Ok(()) => "the machine has powered off".into(),
                        Err(how) => format!("QEMU ended: {how}"),
                    }));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let silence = self.last_sign.elapsed();
            if silence > self.patience {
                return Err(Stopped(format!("the machine gave no sign of life for {} s", self.patience.as_secs())));
            }
            if silence >= period && self.last_pulse.elapsed() >= period {
                self.last_pulse = Instant::now();
                self.type_keys(vec![PULSE_KEY]);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Vec::new());
            }
        }
    }

    /// Takes the next bytes of the machine, and returns what they complete.
    fn take(&mut self, bytes: &[u8]) -> Result<Vec<Heard>, Stopped> {
        if bytes.iter().any(|byte| *byte != PULSE) {
            self.pulses_since = None;
            let segments = self.marks.feed(bytes);
            return self.tell(segments);
        }
        // The machine writes a marked text at once. If it has run for so long since, the end of the text was lost.
        if self.pulses_since.get_or_insert(self.last_sign).elapsed() <= self.patience {
            return Ok(Vec::new());
        }
        let text = self.marks.cut_off();
        self.tell(text.map(Segment::Plain).into_iter().collect())
    }

    fn tell(&mut self, segments: Vec<Segment>) -> Result<Vec<Heard>, Stopped> {
        let mut heard = Vec::new();
        for segment in segments {
            let plain = match segment {
                Segment::Marked(Mark::Frame, text) => {
                    self.frames.extend(from_base64(&text));
                    continue;
                }
                Segment::Marked(mark, text) => {
                    heard.push(Heard::Marked(mark, text));
                    continue;
                }
                Segment::Plain(plain) => plain,
            };
            for event in self.console.feed(&plain) {
                match event {
                    Event::Prompt => {
                        (self.is_busy, self.interrupted) = (false, None);
                        heard.push(Heard::Prompt);
                    }
                    Event::Line(line) => {
                        if let Some(reason) = stop_reason(&line) {
                            return Err(Stopped(stopped(reason)));
                        }
                        if line.ends_with(INTERRUPT_REPLY) {
                            self.interrupted = None;
                        }
                        heard.push(Heard::Line(line));
                    }
                }
            }
        }
        Ok(heard)
    }

    /// Carries out a line, and returns the lines that it prints. If this process catches ^C, ^C interrupts the line's
    /// command.
    pub fn ask(&mut self, line: &str) -> Result<Vec<String>, Stopped> {
        self.type_line(line)?;
        let mut lines = Vec::new();
        loop {
            for heard in self.hear(TURN)? {
                match heard {
                    Heard::Line(line) => lines.push(line),
                    Heard::Marked(..) => {}
                    Heard::Prompt => return Ok(lines),
                }
            }
            self.pass_interrupt();
        }
    }

    /// Carries out a line, and prints its output to standard error. Returns whether the console accepted the line.
    pub fn does(&mut self, line: &str) -> Result<bool, Stopped> {
        self.ask(line)?.iter().for_each(|line| eprintln!("{line}"));
        // If other output leaves a line unfinished, the console ends that line first.
        let answer = self.ask(STATUS)?;
        Ok(answer.iter().map(String::as_str).filter(|line| !line.is_empty()).eq(["0"]))
    }

    /// Returns the bytes of frames that have come over the console since the last call.
    pub fn take_frames(&mut self) -> Vec<u8> {
        mem::take(&mut self.frames)
    }

    /// Ends the machine by the line `farewell`. Without one, it is left to itself.
    pub fn leave(mut self, farewell: Option<&str>) {
        let Some(farewell) = farewell else { return };
        self.type_keys(format!("{farewell}\n").into_bytes());
        let deadline = Instant::now() + EXIT_TIMEOUT;
        // A machine that does not end by itself is killed when `self` is dropped.
        while Instant::now() < deadline && self.hear(EXIT_TIMEOUT).is_ok() {}
    }
}

impl Drop for Remote {
    /// Ends the command that the machine carries out, if the machine goes on without this process.
    fn drop(&mut self) {
        let Some(uart) = self.uart.take().filter(|_| self.is_busy) else { return };
        end_command(&*uart, |until| {
            while self.is_busy && Instant::now() < until && self.hear(TURN).is_ok() {}
            !self.is_busy
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use anyhow::Result;

    use super::{Heard, INTERRUPT_KEY, PROMPT, PULSE_KEY, Remote, pulse_period};
    use crate::machine::{Output, Start, Uart};

    /// A console on which the line `endless` runs until ^C, and any other line replies with itself.
    struct Fake {
        /// Whether it replies to a request for a sign of life.
        lives: bool,
    }

    struct FakeUart {
        output: Box<dyn Fn(Output) + Send>,
        lives: bool,
        line: Mutex<Vec<u8>>,
    }

    impl Start for Fake {
        fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
            output(Output::Bytes(PROMPT.into()));
            Ok(Box::new(FakeUart { output, lives: self.lives, line: Mutex::default() }))
        }
    }

    impl Uart for FakeUart {
        fn type_keys(&self, keys: Vec<u8>) {
            let mut typed = self.line.lock().unwrap();
            for key in keys {
                let line = String::from_utf8_lossy(&typed).into_owned();
                let reply = match key {
                    INTERRUPT_KEY => format!("^C\n{PROMPT}"),
                    PULSE_KEY if self.lives => "running\n".into(),
                    PULSE_KEY => continue,
                    b'\n' if line == "endless" => "endless\n".into(),
                    b'\n' if line == "#" => format!("#\n{PROMPT}"),
                    b'\n' => format!("{line}\n{line}\n{PROMPT}"),
                    _ => {
                        typed.push(key);
                        continue;
                    }
                };
                typed.clear();
                (self.output)(Output::Bytes(reply.into()));
            }
        }

        fn end(self: Box<Self>) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn a_key_that_comes_after_the_end_of_its_command_takes_nothing_from_the_next() {
        let mut remote = Remote::start(&Fake { lives: true }, 60).unwrap();
        remote.type_line("endless").unwrap();
        remote.interrupt();
        remote.interrupt();
        while !remote.hear(Duration::MAX).unwrap().contains(&Heard::Prompt) {}
        assert_eq!(remote.ask("list").unwrap(), ["list"]);
        assert_eq!(remote.ask("again").unwrap(), ["again"]);
    }

    #[test]
    fn a_silent_machine_is_asked_before_it_counts_as_stopped() {
        for (patience, period) in [(1_000, 500), (2_000, 1_000), (60_000, 2_000)] {
            assert_eq!(pulse_period(Duration::from_millis(patience)), Duration::from_millis(period));
        }
        let endless = |lives, seconds| {
            let mut remote = Remote::start(&Fake { lives }, seconds).unwrap();
            remote.type_line("endless").unwrap();
            remote.hear(Duration::MAX)
        };
        assert_eq!(endless(true, 60).unwrap(), [Heard::Line("running".into())]);
        assert_eq!(endless(false, 0).unwrap_err().to_string(), "the machine gave no sign of life for 0 s");
    }
}
