//! Everything is found out by talking to a machine on its UART. What is said is decided by a [`Subject`], which
//! knows nothing of machines; here it gets one.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use crate::{
    console::{Console, Event},
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

/// Talks to a fresh machine until it is decided, for so many seconds from one line to the next. The error is
/// what the UART sent, and what is wrong with it.
pub fn converse<T>(start: &dyn Start, seconds: u64, subject: &mut dyn Subject<T>) -> Result<T, String> {
    let mut log = Vec::new();
    talk(start, seconds, subject, &mut log)
        .map_err(|sentence| format!("{}\n{sentence}", printable(&String::from_utf8_lossy(&log)).trim_end()))
}

/// What a terminal may be sent: of control characters only the ends of lines, the others by their numbers.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\r' => {}
            '\n' => printable.push('\n'),
            _ if character.is_control() => printable.extend(character.escape_default()),
            _ => printable.push(character),
        }
    }
    printable
}

fn talk<T>(start: &dyn Start, seconds: u64, subject: &mut dyn Subject<T>, log: &mut Vec<u8>) -> Result<T, String> {
    let (sender, outputs) = mpsc::channel();
    // Nobody listens any more when it is decided.
    let machine =
        start.start(Box::new(move |output| drop(sender.send(output)))).map_err(|error| format!("{error:#}"))?;
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

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_terminal_is_not_spoiled() {
        assert_eq!(printable("caf\u{e9}\r\n\x1b[2J\t\u{9b}"), "caf\u{e9}\n\\u{1b}[2J\\t\\u{9b}");
    }
}
