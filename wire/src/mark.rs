//! Marks on a console. They separate the output of a program from everything else that a UART carries, such as echoes,
//! prompts and the output of commands, so that a host can take the output as it is.
//!
//! ```text
//! SO  mark  text  SI
//! ```
//!
//! A control character that has a meaning on the line is sent as DLE, followed by the character 0x40 above it. A line
//! end is CR LF, as everywhere on the UART.

use core::fmt::{self, Write};

/// Begins a marked text: SO.
const BEGIN: char = '\u{e}';
/// Ends a marked text: SI. Outside of one, it means nothing: a machine that stops sends it before its report, which
/// may begin in the middle of a marked text.
pub const END: char = '\u{f}';
/// Precedes an escaped character: DLE.
const ESCAPE: char = '\u{10}';
/// The distance from a control character to the character that stands for it.
const SHIFT: u8 = 0x40;

/// The meaning of a marked text, with the letter before the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    /// The program runs. The text is a message about it.
    Attached = b'a',
    /// Output of the program.
    Output = b'o',
    /// The program was refused. The text is a [`Diagnostic`]: where in the program, and why.
    Refused = b'r',
    /// The program's command was refused. The text is the reason.
    Failed = b'f',
    /// A frame of a recording, as [`Base64`](crate::record::Base64).
    Frame = b'p',
    /// The program has ended, and all of its output has been sent. The text is its exit status, or empty for 0.
    Done = b'd',
}

#[cfg(any(test, feature = "host"))]
impl Mark {
    const ALL: [Self; 6] = [Self::Attached, Self::Output, Self::Refused, Self::Failed, Self::Frame, Self::Done];
}

/// A text between marks.
#[derive(Clone, Copy, Debug)]
pub struct Marked<T>(pub Mark, pub T);

impl<T: fmt::Display> fmt::Display for Marked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(mark, text) = self;
        f.write_char(BEGIN)?;
        f.write_char((*mark as u8).into())?;
        write!(Escaped(f), "{text}")?;
        f.write_char(END)
    }
}

struct Escaped<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c {
            // NUL is the answer to a host that asks whether the kernel is alive. The UART adds a CR to each line end on
            // the way.
            '\0' | '\r' | BEGIN | END | ESCAPE => {
                self.0.write_char(ESCAPE)?;
                self.0.write_char((c as u8 + SHIFT).into())
            }
            c => self.0.write_char(c),
        })
    }
}

/// Why a program was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diagnostic<'a> {
    /// The range in the program that is the cause, if there is one: the offset of its first byte, and that after its
    /// last.
    pub cause: Option<(usize, usize)>,
    /// The reason: a sentence without its full stop.
    pub sentence: &'a str,
}

impl fmt::Display for Diagnostic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Some((start, end)) => write!(f, "{start} {end} {}", self.sentence),
            None => write!(f, "- - {}", self.sentence),
        }
    }
}

impl<'a> Diagnostic<'a> {
    /// Parses the output of [`Display`](fmt::Display).
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        let mut parts = text.splitn(3, ' ');
        let mut number = || parts.next()?.parse().ok();
        let cause = number().zip(number());
        Self { cause, sentence: parts.next().unwrap_or(text) }
    }
}

/// A part of the stream that a UART has sent.
#[cfg(any(test, feature = "host"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Bytes without a mark.
    Plain(Vec<u8>),
    /// A marked text, unescaped.
    Marked(Mark, String),
}

/// The letter of a frame, and the maximum length of a frame in characters. A frame has no line ends. A longer frame, or
/// one with a line end, was cut off.
#[cfg(any(test, feature = "host"))]
const FRAME: u8 = Mark::Frame as u8;
#[cfg(any(test, feature = "host"))]
const FRAME_MAX: usize = 2 * (crate::record::HEADER + crate::record::PAYLOAD_MAX);

/// Separates the marked texts from the rest of a UART's stream.
#[cfg(any(test, feature = "host"))]
#[derive(Debug, Default)]
pub struct Reader {
    /// The marked text that has begun, including its letter.
    marked: Option<Vec<u8>>,
    is_escaped: bool,
}

#[cfg(any(test, feature = "host"))]
impl Reader {
    /// Takes the next bytes, and returns the segments that they complete. If another text begins, one without its end
    /// becomes plain.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Segment> {
        let mut segments = Vec::new();
        for &byte in bytes {
            let is = |c: char| u32::from(byte) == u32::from(c);
            match &mut self.marked {
                // No marked text contains SO, so a text that has not ended was cut off.
                _ if is(BEGIN) => {
                    segments.extend(self.cut_off().map(|mut text| {
                        // It is a line of its own.
                        text.extend((!text.ends_with(b"\n")).then_some(b'\n'));
                        Segment::Plain(text)
                    }));
                    self.marked = Some(Vec::new());
                }
                None => match segments.last_mut() {
                    Some(Segment::Plain(plain)) => plain.push(byte),
                    _ => segments.push(Segment::Plain(vec![byte])),
                },
                Some(_) if is(END) => {
                    self.is_escaped = false;
                    let marked = self.marked.take().unwrap_or_default();
                    let text = String::from_utf8_lossy(&marked);
                    let mut rest = text.chars();
                    let letter = rest.next();
                    if let Some(mark) = Mark::ALL.into_iter().find(|mark| Some(char::from(*mark as u8)) == letter) {
                        segments.push(Segment::Marked(mark, rest.as_str().into()));
                    }
                }
                // A pulse may come anywhere, also after an escape.
                Some(_) if matches!(byte, 0 | b'\r') => {}
                Some(marked) if self.is_escaped => {
                    self.is_escaped = false;
                    marked.push(byte.wrapping_sub(SHIFT));
                }
                Some(_) if is(ESCAPE) => self.is_escaped = true,
                // The frame was cut off. The text that follows is a message of the machine, such as that it stops.
                Some(marked) if marked.first() == Some(&FRAME) && (byte == b'\n' || marked.len() > FRAME_MAX) => {
                    self.marked = None;
                }
                Some(marked) => marked.push(byte),
            }
        }
        segments
    }

    /// Ends the text that has begun, if any, and returns the bytes that have come of it. Call it if nothing comes of a
    /// text for long: if its end was lost, what follows it, such as a prompt, was taken for a part of it. A frame means
    /// nothing without its end.
    pub fn cut_off(&mut self) -> Option<Vec<u8>> {
        self.is_escaped = false;
        let marked = self.marked.take()?;
        let (letter, text) = marked.split_first()?;
        (*letter != FRAME && !text.is_empty()).then(|| text.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a UART sends for `text`.
    fn sent(text: &str) -> Vec<u8> {
        text.replace('\n', "\r\n").into_bytes()
    }

    #[test]
    fn every_text_comes_through_wherever_it_is_cut() {
        let texts = ["", "a\nb\n", "\0\r\n\u{e}\u{f}\u{10}P\u{7f}\u{1b}[2J", "é → ∑", "machine stopped: no\nkprobes> "];
        for mark in Mark::ALL {
            // A frame has no line ends.
            for text in texts.into_iter().filter(|text| mark != Mark::Frame || !text.contains('\n')) {
                let stream = sent(&format!("x{}y", Marked(mark, text)));
                let expected =
                    [Segment::Plain(b"x".to_vec()), Segment::Marked(mark, text.into()), Segment::Plain(b"y".to_vec())];
                for cut in 0..=stream.len() {
                    let mut reader = Reader::default();
                    let mut segments = reader.feed(&stream[..cut]);
                    segments.extend(reader.feed(&stream[cut..]));
                    assert_eq!(segments, expected, "{text:?} cut at {cut}");
                }
            }
        }
    }

    /// The host may ask for a sign of life at any time.
    #[test]
    fn a_pulse_is_not_part_of_a_text() {
        let mut stream = sent(&Marked(Mark::Output, "a\u{e}b").to_string());
        for at in 0..=stream.len() {
            stream.insert(at, 0);
            let marked =
                Reader::default().feed(&stream).into_iter().find(|segment| matches!(segment, Segment::Marked(..)));
            assert_eq!(marked, Some(Segment::Marked(Mark::Output, "a\u{e}b".into())));
            stream.remove(at);
        }
    }

    #[test]
    fn a_text_that_is_cut_off_hides_nothing_after_it() {
        let whole = Marked(Mark::Frame, "AAAA");
        let stopped = "\u{e}pAB\nmachine stopped: no\n";
        for (text, plain) in
            [("\u{e}pAB", None), ("\u{e}oAB\u{10}", Some("AB\n")), (stopped, Some("machine stopped: no\r\n"))]
        {
            let mut expected: Vec<_> = plain.map(|plain| Segment::Plain(plain.into())).into_iter().collect();
            expected.push(Segment::Marked(Mark::Frame, "AAAA".into()));
            assert_eq!(Reader::default().feed(&sent(&format!("{text}{whole}"))), expected, "{text:?}");
        }
        let mut reader = Reader::default();
        reader.feed(b"\x0ep");
        let endless = [b'A'; 3 * FRAME_MAX];
        assert!(matches!(&reader.feed(&endless)[..], [Segment::Plain(_)]));
    }

    #[test]
    fn a_text_whose_end_was_lost_can_be_cut_off() {
        let mut reader = Reader::default();
        assert_eq!(reader.cut_off(), None);
        assert_eq!(reader.feed(b"\x0edno\r\nkprobes> "), []);
        assert_eq!(reader.cut_off(), Some(b"no\nkprobes> ".to_vec()));
        assert_eq!(reader.feed(b"x"), [Segment::Plain(b"x".to_vec())]);
        assert_eq!(reader.feed(b"\x0epAB"), []);
        assert_eq!(reader.cut_off(), None);
        assert_eq!(
            reader.feed(b"\x0eoAB\n\x0ed\x0f"),
            [Segment::Plain(b"AB\n".to_vec()), Segment::Marked(Mark::Done, String::new())]
        );
    }

    #[test]
    fn the_report_of_a_machine_that_stops_is_not_part_of_the_text_before_it() {
        let stream = sent(&format!("\u{e}oAB{END}\nmachine stopped: no\n"));
        let report = Segment::Plain(b"\r\nmachine stopped: no\r\n".to_vec());
        assert_eq!(Reader::default().feed(&stream), [Segment::Marked(Mark::Output, "AB".into()), report]);
    }

    #[test]
    fn a_diagnostic_has_a_cause_or_none() {
        for diagnostic in [
            Diagnostic { cause: Some((3, 17)), sentence: "this is no 1 2 3" },
            Diagnostic { cause: None, sentence: "- 3 - no memory" },
        ] {
            assert_eq!(Diagnostic::parse(&diagnostic.to_string()), diagnostic);
        }
        assert_eq!(Diagnostic::parse("no").sentence, "no");
    }
}
