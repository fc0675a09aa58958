//! The history of typed lines, which a program on the host keeps when the machine ends.
//!
//! The host sends keys, which the console's line editor does not show: ESC `[8;N~`, where N is one of the numbers
//! below. An editor that does not know N takes this as the end key, and leaves the line as it is. The editor answers
//! with a [`Report`], which terminals ignore: an application program command, which is ESC `_`, a text, and ESC `\`
//! (ECMA-48, section 8.3.2).
//!
//! 1. At each prompt, the host sends [`KEEP`]. From then on, the editor reports each line that a person ends.
//! 2. To the first [`KEEP`] after boot, the editor answers [`Report::First`], and the host replies with its newest
//!    line, from [`BEGIN`] to [`END`]. While there is room for more, the editor answers [`Report::Next`], for the line
//!    before that one. So lines come one by one, and input is never sent faster than it is read.
//! 3. When the host leaves, it sends [`LEAVE`], and the reports end.

use core::fmt;

/// The maximum length of a line of the console, in bytes: the limit of Linux for one write to `kprobe_events`.
pub const LINE_MAX: usize = 4094;

/// The number of the end key, which comes before the number of a key of the host.
pub const END_KEY: u16 = 8;

/// Begins an earlier line.
pub const BEGIN: u16 = 900;
/// Ends an earlier line.
pub const END: u16 = 901;
/// Asks for reports.
pub const KEEP: u16 = 902;
/// Ends the reports.
pub const LEAVE: u16 = 903;

/// What the editor tells the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report<T> {
    /// Asks for the newest line that the host has kept.
    First,
    /// Asks for the line before the one that has come.
    Next,
    /// A person has ended this line, which has no control characters.
    Line(T),
}

impl<T: fmt::Display> fmt::Display for Report<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("\x1b_f\x1b\\"),
            Self::Next => f.write_str("\x1b_n\x1b\\"),
            Self::Line(line) => write!(f, "\x1b_l{line}\x1b\\"),
        }
    }
}

#[cfg(any(test, feature = "host"))]
pub use host::{Filter, earlier, key};

#[cfg(any(test, feature = "host"))]
mod host {
    use std::mem;

    use super::{BEGIN, END, END_KEY, LINE_MAX, Report};

    /// The longest report in bytes: a letter, and the longest line of the console.
    const REPORT_MAX: usize = 1 + LINE_MAX;
    const ESC: u8 = 0x1b;
    /// The answer of `kprobes_pl011` to a host that asks whether the kernel is alive. It may come anywhere.
    const PULSE: u8 = 0;

    /// Returns the bytes of a key of the host.
    #[must_use]
    pub fn key(number: u16) -> String {
        format!("\x1b[{END_KEY};{number}~")
    }

    /// Returns the keys for an earlier line, which has no control characters.
    #[must_use]
    pub fn earlier(line: &str) -> String {
        [&key(BEGIN), line, &key(END)].concat()
    }

    /// Returns the report with this text. `None` if it is of another kind.
    fn parse(text: &[u8]) -> Option<Report<String>> {
        match text.split_first()? {
            (b'f', []) => Some(Report::First),
            (b'n', []) => Some(Report::Next),
            (b'l', line) => Some(Report::Line(String::from_utf8_lossy(line).into_owned())),
            _ => None,
        }
    }

    /// The state of the parser of the stream.
    #[derive(Debug, Default)]
    enum StreamState {
        #[default]
        Text,
        /// After ESC.
        Escape,
        /// In a report, of which these bytes have come.
        Report(Vec<u8>),
        /// After an ESC in a report.
        End(Vec<u8>),
    }

    /// Removes the reports from what a machine prints. If a report is cut off, its text stays, but not its ESC `_`: a
    /// terminal would hide everything until the end of the report.
    #[derive(Debug, Default)]
    pub struct Filter(StreamState);

    impl Filter {
        /// Takes the next bytes. Returns them without reports, and the reports that they complete.
        pub fn feed(&mut self, bytes: &[u8]) -> (Vec<u8>, Vec<Report<String>>) {
            let (mut text, mut reports) = (Vec::with_capacity(bytes.len()), Vec::new());
            for &byte in bytes {
                let mut state = mem::take(&mut self.0);
                if !matches!(byte, b'\\' | PULSE)
                    && let StreamState::End(report) = state
                {
                    // The report was cut off, and the ESC begins another sequence.
                    text.extend(report);
                    state = StreamState::Escape;
                }
                self.0 = match (state, byte) {
                    (StreamState::Text, ESC) => StreamState::Escape,
                    (StreamState::Escape, b'_') => StreamState::Report(Vec::new()),
                    (StreamState::Escape, PULSE) => StreamState::Escape,
                    (StreamState::Escape, ESC) => {
                        text.push(ESC);
                        StreamState::Escape
                    }
                    (StreamState::Escape, _) => {
                        text.extend([ESC, byte]);
                        StreamState::Text
                    }
                    (StreamState::Text, _) => {
                        text.push(byte);
                        StreamState::Text
                    }
                    (StreamState::Report(report), ESC) => StreamState::End(report),
                    (StreamState::End(report), b'\\') => {
                        reports.extend(parse(&report));
                        StreamState::Text
                    }
                    (StreamState::Report(mut report), b' '..) if report.len() < REPORT_MAX => {
                        report.push(byte);
                        StreamState::Report(report)
                    }
                    (state @ (StreamState::Report(_) | StreamState::End(_)), _) if byte == PULSE => state,
                    // The report was cut off. The text that follows is a message of the machine, such as that it stops.
                    (StreamState::Report(report) | StreamState::End(report), _) => {
                        text.extend(report);
                        text.push(byte);
                        StreamState::Text
                    }
                };
            }
            (text, reports)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_taken_out_wherever_the_stream_is_cut() {
        let next: Report<&str> = Report::Next;
        let first: Report<&str> = Report::First;
        let line = Report::Line("é {");
        let stream = format!("a\x1b[2J{first}b{next}{line}\r\n\x1b_lcut\r\nc\x1b_l\0x\x1b\\\x1b_z\x1b\\\x1b\x1b[J");
        let text = b"a\x1b[2Jb\r\nlcut\r\nc\x1b\x1b[J".to_vec();
        let reports = [Report::First, Report::Next, Report::Line("é {".to_string()), Report::Line("x".to_string())];
        for cut in 0..=stream.len() {
            let mut filter = Filter::default();
            let (mut shown, mut heard) = filter.feed(&stream.as_bytes()[..cut]);
            let (rest, more) = filter.feed(&stream.as_bytes()[cut..]);
            shown.extend(rest);
            heard.extend(more);
            assert_eq!((&shown, &heard[..]), (&text, &reports[..]), "cut at {cut}");
        }
    }

    #[test]
    fn a_report_that_is_cut_off_hides_nothing() {
        let endless = [b"\x1b_l", [b'x'; 9000].as_slice()].concat();
        for (stream, text, reports) in [
            (&endless[..], &endless[2..], &[][..]),
            // Another sequence or report follows.
            (b"\x1b_lab\x1b[2J", b"lab\x1b[2J", &[]),
            (b"\x1b_lab\x1b_n\x1b\\c", b"labc", &[Report::Next]),
            (b"\x1b_lab\x1b\x1b_n\x1b\\c", b"lab\x1bc", &[Report::Next]),
            // The answer to a host comes within a report.
            (b"\x1b\0_la\x1b\0\\b", b"b", &[Report::Line("a".to_string())]),
        ] {
            assert_eq!(Filter::default().feed(stream), (text.to_vec(), reports.to_vec()), "{stream:x?}");
        }
    }

    #[test]
    fn keys_are_those_that_an_editor_without_history_takes_as_end() {
        assert_eq!([KEEP, LEAVE].map(key), ["\x1b[8;902~", "\x1b[8;903~"]);
        assert_eq!(earlier("a"), "\x1b[8;900~a\x1b[8;901~");
    }
}
