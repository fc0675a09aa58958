//! Everything is found out by talking to a machine on its UART. What is said is decided by a [`Subject`], which
//! knows nothing of machines; here it gets one.

use std::{
    ffi::OsString,
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use crate::{
    console::{Console, Event},
    machine::{Machine, Output},
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

    /// The machine wrote this.
    fn event(&mut self, event: Event) -> Reply<T>;

    /// The machine has powered off.
    fn ended(&mut self) -> Result<T, String> {
        Err("the machine powered off without a result".into())
    }

    /// The machine has written nothing for a while: what is typed, if it should have.
    fn silence(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// Talks to a fresh machine until it is decided, for so many seconds from one line to the next. The error ends
/// with what the UART sent.
pub fn converse<T>(arguments: &[OsString], seconds: u64, subject: &mut dyn Subject<T>) -> Result<T, String> {
    let mut log = Vec::new();
    talk(arguments, seconds, subject, &mut log).map_err(|sentence| {
        let text: String = String::from_utf8_lossy(&log).chars().filter(|character| *character != '\r').collect();
        format!("{}\n{sentence}", text.trim_end())
    })
}

fn talk<T>(arguments: &[OsString], seconds: u64, subject: &mut dyn Subject<T>, log: &mut Vec<u8>) -> Result<T, String> {
    let (sender, outputs) = mpsc::channel();
    // Nobody listens any more when it is decided.
    let machine =
        Machine::start(arguments, move |output| drop(sender.send(output))).map_err(|error| format!("{error:#}"))?;
    let mut console = Console::new(subject.prompt());
    let timeout = Duration::from_secs(seconds);
    let mut deadline = Instant::now() + timeout;
    loop {
        match outputs.recv_timeout(deadline.saturating_duration_since(Instant::now()).min(SILENCE)) {
            Ok(Output::Bytes(bytes)) => {
                log.extend(&bytes);
                log.drain(..log.len().saturating_sub(KEPT_OUTPUT));
                for happening in console.feed(&bytes) {
                    match subject.event(happening) {
                        Reply::Wait => continue,
                        Reply::Type(line) => machine.type_line(&line),
                        Reply::Keys(keys) => machine.type_keys(keys),
                        Reply::Done(result) => return result,
                    }
                    deadline = Instant::now() + timeout;
                }
            }
            Ok(Output::End) => match machine.end() {
                Ok(()) => return subject.ended(),
                Err(how) => return Err(format!("QEMU ended without a result: {how}")),
            },
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {
                if let Some(keys) = subject.silence() {
                    machine.type_keys(keys);
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(format!("there is no result within {seconds} s"));
            }
        }
    }
}
