//! Everything is found out by talking to a machine on its UART. What is said is decided by a [`Subject`], which
//! knows nothing of machines; here it gets one.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use crate::{
    console::{Console, Event, printable, stop_reason},
    machine::{Output, Start},
};

/// As much of the end of a UART's output is kept.
const KEPT_OUTPUT: usize = 64 * 1024;

/// After this time without output, a subject is told of the silence.
const SILENCE: Duration = Duration::from_millis(500);

/// What follows from what the machine wrote.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// Nothing yet.
    Wait,
    /// Type this line.
    Type(String),
    /// Type these bytes, whatever they are.
    Keys(Vec<u8>),
    /// It is over.
    Done(Result<T, String>),
}

/// What is talked about with a machine until it is decided.
pub trait Subject<T> {
    /// What the machine asks with.
    fn prompt(&self) -> &'static str;

    /// The machine wrote this, and goes on.
    fn event(&mut self, event: Event) -> Reply<T>;

    /// The machine cannot go on, for this reason.
    fn stopped(&mut self, reason: &str) -> Result<T, String> {
        Err(stopped(reason))
    }

    /// The machine wrote this.
    fn hear(&mut self, event: Event) -> Reply<T> {
        if let Event::Line(line) = &event
            && let Some(reason) = stop_reason(line)
        {
            return Reply::Done(self.stopped(reason));
        }
        self.event(event)
    }

    /// The machine has powered off.
    fn ended(&mut self) -> Result<T, String> {
        Err("the machine powered off without a result".into())
    }

    /// The machine has written nothing for a while.
    fn silence(&mut self) -> Reply<T> {
        Reply::Wait
    }
}

/// What is wrong with a machine that cannot go on, for this reason.
pub fn stopped(reason: &str) -> String {
    format!("the machine stopped: {reason}")
}

/// Talks to a fresh machine until it is decided, for so many seconds from one line to the next. The error is
/// what the UART sent, and what is wrong with it.
pub fn converse<T>(start: &dyn Start, seconds: u64, subject: &mut dyn Subject<T>) -> Result<T, String> {
    let mut log = Vec::new();
    talk(start, seconds, subject, &mut log)
        .map_err(|sentence| format!("{}\n{sentence}", printable(&String::from_utf8_lossy(&log)).trim_end()))
}

fn talk<T>(start: &dyn Start, seconds: u64, subject: &mut dyn Subject<T>, log: &mut Vec<u8>) -> Result<T, String> {
    let (sender, outputs) = mpsc::channel();
    // The receiver is gone once the dialogue is decided.
    let machine =
        start.start(Box::new(move |output| drop(sender.send(output)))).map_err(|error| format!("{error:#}"))?;
    let mut console = Console::new(subject.prompt());
    let timeout = Duration::from_secs(seconds);
    let mut deadline = Instant::now() + timeout;
    // Looked at however much the machine writes.
    while let remaining = deadline.saturating_duration_since(Instant::now())
        && !remaining.is_zero()
    {
        // None is silence.
        let happenings: Vec<_> = match outputs.recv_timeout(remaining.min(SILENCE)) {
            Ok(Output::Bytes(bytes)) => {
                log.extend(&bytes);
                log.drain(..log.len().saturating_sub(KEPT_OUTPUT));
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
            // What is typed again and again as nothing comes gives no more time.
            if is_event {
                deadline = Instant::now() + timeout;
            }
        }
    }
    Err(format!("there is no result within {seconds} s"))
}
