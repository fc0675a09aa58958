//! Loads an image onto the board: waits for its loader, or asks the running kernel for it, and sends the missing bytes.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use kprobes_loader_protocol::{
    frame,
    package::Package,
    sender::{Sender, Stage},
};
use kprobes_pl011::{PULSE, QUIT_KEY, QUITS};

use super::{
    boards_with,
    line::{Heard, SerialLine},
    progress::Progress,
};
use crate::conversation::{PROMPT, TESTS_PROMPT};

/// How long a loader may take to answer, in addition to the time that the bytes take.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest pause in which nothing is done on the line.
const TURN: Duration = Duration::from_millis(20);
/// After this time without a loader, the running program is asked to restart, again and again.
const RESTART_REQUEST_PERIOD: Duration = Duration::from_secs(2);
/// Keys at which the kernels of this repository give the board back to its loader, whatever is at their prompt: text,
/// an open row, or a search, which the first ^C leaves.
pub const RESET: &[u8] = b"\x03\x03\rreboot\r";
/// Keys that stop a kernel of this repository that comes to no prompt, which resets the board.
pub const QUIT: &[u8] = &[QUIT_KEY; QUITS];
/// How many bytes are kept of the output of programs other than the loader.
const REMEMBERED: usize = 400;

/// An image to load, and the board for it.
pub struct Load<'a> {
    pub package: &'a Package,
    /// The part number of the board's CPU.
    pub part: u16,
    /// How long there may be no answer. `None` is forever.
    pub patience: Option<Duration>,
}

impl Load<'_> {
    /// Loads and starts the image.
    pub fn run(&self, line: &mut SerialLine) -> Result<()> {
        let begin = Instant::now();
        let mut sender = Sender::new(self.package, ANSWER_TIMEOUT + line.time_of(2 * frame::ROOM));
        let mut progress = Progress::new(self.package, line.name());
        let mut other_program = OtherProgram::default();
        let mut answered = begin;
        let mut limit = self.patience;
        loop {
            if let Some(frame) = sender.poll(begin.elapsed()) {
                line.send(&frame);
            }
            match line.hear(TURN) {
                Some(Heard::Reply(reply)) => {
                    sender.reply(reply, begin.elapsed()).map_err(|failure| anyhow!("{failure}"))?;
                    answered = Instant::now();
                    // Once a loader has answered, the default limit applies to a person, too.
                    limit = limit.or(Some(super::PATIENCE));
                }
                Some(Heard::Text(text)) => other_program.receive(&text),
                None => {}
            }
            if let Some(part) = sender.part().filter(|part| *part != self.part) {
                progress.end();
                bail!("the board on {} is {}, not {}", line.name(), boards_with(part), boards_with(self.part));
            }
            match sender.stage() {
                Stage::Started => {
                    progress.end();
                    return Ok(());
                }
                Stage::Greeting => other_program.ask(line, answered.elapsed()),
                _ => {}
            }
            progress.show(sender.stage(), line.is_connected());
            // While the loader unpacks the image, it sends nothing. If what it says at the end is lost, it is asked.
            if sender.stage() == Stage::Unpacking {
                answered = Instant::now();
            }
            let silence = answered.elapsed();
            if limit.is_some_and(|limit| silence > limit) {
                progress.end();
                ensure!(line.is_connected(), "the port {} disappeared and did not come back", line.name());
                bail!("no loader answered on {} within {} s{}", line.name(), silence.as_secs(), other_program.quoted());
            }
        }
    }
}

/// A program on the line that is not the loader.
#[derive(Default)]
struct OtherProgram {
    received: Vec<u8>,
    asked: Duration,
}

impl OtherProgram {
    fn receive(&mut self, text: &[u8]) {
        self.received.extend(text.iter().filter(|byte| **byte != PULSE));
        self.received.drain(..self.received.len().saturating_sub(REMEMBERED));
    }

    /// Sends the end of a line to get a prompt: the line feed also ends a line of several rows. If the prompt is one of
    /// ours, asks for the loader. Other systems are sent nothing but the end of a line.
    fn ask(&mut self, line: &mut SerialLine, silence: Duration) {
        if silence < self.asked {
            self.asked = Duration::ZERO;
        }
        if silence < self.asked + RESTART_REQUEST_PERIOD {
            return;
        }
        self.asked = silence;
        // Bytes that were sent to find a loader may have been echoed after the prompt.
        let last_line = self.received.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let prompts = [PROMPT, TESTS_PROMPT];
        let is_ours = prompts.iter().any(|prompt| last_line.starts_with(prompt.as_bytes()));
        line.send(if is_ours { RESET } else { b"\r\n" });
    }

    fn quoted(&self) -> String {
        let text = String::from_utf8_lossy(&self.received);
        match text.trim() {
            "" => "; nothing was received: is the board on, and are RX and TX crossed?".into(),
            text => format!(
                "; received {:?}: is the loader on the card, and is the speed right?",
                text.lines().next_back().unwrap_or_default()
            ),
        }
    }
}
