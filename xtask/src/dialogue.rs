//! Connects a [`Subject`] with a machine. The subject decides what to type from what the machine writes to its UART,
//! and knows nothing of machines.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use kprobes_pl011::PULSE;

use crate::{
    console::{Console, Event, printable, stop_reason, stopped},
    conversation::PROMPT,
    machine::{Output, Start},
};

/// How many bytes of the end of a UART's output are kept.
const KEPT_OUTPUT: usize = 64 * 1024;

/// After this time without output, a subject hears of the silence.
const SILENCE: Duration = Duration::from_millis(500);

/// The reaction of a subject to the machine.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// Nothing yet.
    Wait,
    /// Type this line.
    Type(String),
    /// Type these bytes, which may be any.
    Keys(Vec<u8>),
    /// The dialogue is over.
    Done(Result<T, String>),
}

/// A dialogue with a machine, which ends in a result.
pub trait Subject<T> {
    /// The machine's prompt: that of the kernel's console, unless another image runs.
    fn prompt(&self) -> &'static str {
        PROMPT
    }

    /// Called for each event of a machine that goes on.
    fn event(&mut self, event: Event) -> Reply<T>;

    /// Called when the machine cannot go on, for this reason.
    fn stopped(&mut self, reason: &str) -> Result<T, String> {
        Err(stopped(reason))
    }

    /// Passes an event to [`event`](Self::event), or to [`stopped`](Self::stopped) if it says that the machine stops.
    fn hear(&mut self, event: Event) -> Reply<T> {
        if let Event::Line(line) = &event
            && let Some(reason) = stop_reason(line)
        {
            return Reply::Done(self.stopped(reason));
        }
        self.event(event)
    }

    /// Called when the machine has powered off.
    fn ended(&mut self) -> Result<T, String> {
        Err("the machine powered off without a result".into())
    }

    /// Called when the machine has written nothing for a while. It may be because the host does not let it run.
    fn silence(&mut self) -> Reply<T> {
        Reply::Wait
    }

    /// Called when the machine has replied to [`PULSE_KEY`](kprobes_pl011::PULSE_KEY), and so runs.
    fn pulse(&mut self) {}
}

/// Starts a machine and talks to it until `subject` has a result. There may be `seconds` between one line and the next.
/// An error has the output of the UART and the cause.
pub fn converse<T>(start: &dyn Start, seconds: u64, subject: &mut dyn Subject<T>) -> Result<T, String> {
    let mut log = Vec::new();
    talk(start, seconds, subject, &mut log)
        .map_err(|sentence| format!("{}\n{sentence}", printable(&String::from_utf8_lossy(&log)).trim_end()))
}

fn talk<T>(start: &dyn Start, seconds: u64, subject: &mut dyn Subject<T>, log: &mut Vec<u8>) -> Result<T, String> {
    let (sender, outputs) = mpsc::channel();
    // The receiver is gone once the dialogue is over.
    let machine =
        start.start(Box::new(move |output| drop(sender.send(output)))).map_err(|error| format!("{error:#}"))?;
    let mut console = Console::new(subject.prompt());
    let timeout = Duration::from_secs(seconds);
    let mut deadline = Instant::now() + timeout;
    // This is checked however much the machine writes.
    while let remaining = deadline.saturating_duration_since(Instant::now())
        && !remaining.is_zero()
    {
        // `None` stands for silence.
        let happenings: Vec<_> = match outputs.recv_timeout(remaining.min(SILENCE)) {
            Ok(Output::Bytes(bytes)) => {
                log.extend(&bytes);
                log.drain(..log.len().saturating_sub(KEPT_OUTPUT));
                if bytes.contains(&PULSE) {
                    subject.pulse();
                }
                console.feed(&bytes).into_iter().map(Some).collect()
            }
            Ok(Output::End) => match machine.end() {
                Ok(()) => return subject.ended(),
                Err(how) => return Err(format!("QEMU ended without a result: {how}")),
            },
            Err(RecvTimeoutError::Timeout) => vec![None],
            Err(RecvTimeoutError::Disconnected) => break,
        };
        for happening in happenings {
            let is_event = happening.is_some();
            let reply = match happening {
                Some(event) => subject.hear(event),
                None => subject.silence(),
            };
            match reply {
                Reply::Wait => continue,
                Reply::Type(line) => machine.type_line(&line),
                Reply::Keys(keys) => machine.type_keys(keys),
                Reply::Done(result) => return result,
            }
            // Keys that a subject types again and again in silence do not extend the time.
            if is_event {
                deadline = Instant::now() + timeout;
            }
        }
    }
    Err(format!("there is no result within {seconds} s"))
}
