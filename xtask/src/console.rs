//! Parses the stream of bytes that a machine writes to its UART. The bytes may be any; the parser reduces them to the
//! few [`Event`]s that all decisions rest on.

use kprobes_pl011::PULSE;
use kprobes_wire::mark;

/// Whether this byte from a machine is not part of its text: it is of a line end, a reply to `PULSE_KEY`, or the end of
/// a marked text.
pub fn is_no_text(byte: u8) -> bool {
    const MARK_END: u8 = mark::END as u8;
    matches!(byte, b'\r' | PULSE | MARK_END)
}

/// Longer lines are cut here, so that a machine that has gone wild does not fill the host's memory.
const LONGEST_LINE: usize = 64 * 1024;

/// A line or a prompt that the machine wrote.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole line, without its end.
    Line(String),
    /// The prompt, at the start of a line.
    Prompt,
}

/// The parser for the stream of one UART.
pub struct Console {
    prompt: &'static str,
    line: Vec<u8>,
}

impl Console {
    /// Creates the parser for a stream with this prompt.
    pub fn new(prompt: &'static str) -> Self {
        Self { prompt, line: Vec::new() }
    }

    /// Returns the events that these next bytes complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for &byte in bytes {
            match byte {
                _ if is_no_text(byte) => {}
                b'\n' => {
                    events.push(Event::Line(String::from_utf8_lossy(&self.line).into_owned()));
                    self.line.clear();
                }
                _ if self.line.len() >= LONGEST_LINE => {}
                _ => {
                    self.line.push(byte);
                    if self.line == self.prompt.as_bytes() {
                        events.push(Event::Prompt);
                    }
                }
            }
        }
        events
    }
}

/// Returns the reason if this is the last line of a machine that cannot go on.
pub fn stop_reason(line: &str) -> Option<&str> {
    line.strip_prefix("machine stopped: ")
}

/// Returns the error for a machine that cannot go on, for this reason.
pub fn stopped(reason: &str) -> String {
    format!("the machine stopped: {reason}")
}

/// Makes text safe for a terminal: line ends stay, and other control characters are shown by their numbers.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\r' | '\0' => {}
            '\n' => printable.push('\n'),
            _ if character.is_control() => printable.extend(character.escape_default()),
            _ => printable.push(character),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::{Console, Event, LONGEST_LINE, printable, stop_reason};

    fn line(text: &str) -> Event {
        Event::Line(text.into())
    }

    #[test]
    fn cuts_lines_and_prompts_wherever_the_stream_is_split() {
        let stream = b"boot\r\n\r\nkprobes> list\r\nnone\r\nkprobes> ";
        let expected = [line("boot"), line(""), Event::Prompt, line("kprobes> list"), line("none"), Event::Prompt];
        for split in 0..stream.len() {
            let mut console = Console::new("kprobes> ");
            let mut events = console.feed(&stream[..split]);
            events.extend(console.feed(&stream[split..]));
            assert_eq!(events, expected, "split at {split}");
        }
    }

    #[test]
    fn a_prompt_counts_only_at_the_start_of_a_line() {
        let mut console = Console::new("kprobes> ");
        assert_eq!(console.feed(b"see kprobes> \n kprobes> \nkprobes>\n").len(), 3);
        // A line editor that redraws its line does not prompt again.
        assert_eq!(console.feed(b"kprobes> a\rkprobes> ab\rkprobes> "), [Event::Prompt]);
        assert_eq!(console.feed(b"\n\0kpro\0bes> \0").pop(), Some(Event::Prompt));
        assert_eq!(console.feed(b"\n\x0fmachine stopped: no\n").pop(), Some(line("machine stopped: no")));
    }

    #[test]
    fn garbage_is_harmless() {
        let mut console = Console::new("kprobes> ");
        let garbage: Vec<u8> = (0..=255).cycle().filter(|byte| *byte != b'\n').take(3 * LONGEST_LINE).collect();
        assert_eq!(console.feed(&garbage), []);
        let events = console.feed(b"\nkprobes> ");
        assert!(matches!(&events[0], Event::Line(text) if text.chars().count() <= LONGEST_LINE));
        assert_eq!(events[1], Event::Prompt);
    }

    #[test]
    fn knows_the_last_line_of_a_machine() {
        assert_eq!(stop_reason("machine stopped: panic"), Some("panic"));
        assert_eq!(stop_reason(" machine stopped: panic"), None);
        assert_eq!(stop_reason("the machine stopped: panic"), None);
    }

    #[test]
    fn a_terminal_is_not_spoiled() {
        assert_eq!(printable("caf\u{e9}\r\n\x1b[2J\t\u{9b}"), "caf\u{e9}\n\\u{1b}[2J\\t\\u{9b}");
    }
}
