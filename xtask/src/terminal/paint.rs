//! Paints the output of the console for a terminal: the prompt, and what is wrong with a line. The machine sends no
//! colors. It does not know its terminal, and scripts read the same bytes.
//!
//! Each byte is passed on at once. A word is painted when its last character has come: the cursor goes back to the
//! start of the line, and the word is written again. This is done only where the cursor's column is certain, at the
//! start of a line.

use std::{
    env,
    io::{self, IsTerminal},
};

use crate::conversation::PROMPT;

/// SGR, ECMA-48, section 8.3.117.
const BOLD_GREEN: &str = "\x1b[1;32m";
const BOLD_RED: &str = "\x1b[1;31m";
const BOLD_YELLOW: &str = "\x1b[1;33m";
pub const PLAIN: &str = "\x1b[m";

/// The words that are painted at the start of a line.
const WORDS: [(&str, &str); 4] =
    [(PROMPT, BOLD_GREEN), ("error:", BOLD_RED), ("warning:", BOLD_YELLOW), ("machine stopped:", BOLD_RED)];

/// The part of an escape sequence that has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    /// ESC.
    Begun,
    /// ESC `[`.
    Sequence,
}

/// Paints a stream of output.
pub struct Painter {
    /// The text since the start of the line, as long as a word may come of it.
    line: Option<Vec<u8>>,
    escape: Escape,
    /// Whether carets are painted, until the end of the line.
    is_open: bool,
}

impl Painter {
    /// Returns a painter if the standard output is a terminal with colors whose user wants them
    /// (<https://no-color.org>).
    pub fn for_stdout() -> Option<Self> {
        let is_unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_able = env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
        (io::stdout().is_terminal() && is_able && !is_unwanted).then(Self::new)
    }

    fn new() -> Self {
        Self { line: Some(Vec::new()), escape: Escape::None, is_open: false }
    }

    /// Returns these next bytes of the stream, painted.
    pub fn paint(&mut self, bytes: &[u8]) -> Vec<u8> {
        const ESC: u8 = 0x1b;
        const BELL: u8 = 0x07;
        let mut painted = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            match (self.escape, byte) {
                (Escape::Begun, _) => {
                    self.escape = if byte == b'[' { Escape::Sequence } else { Escape::None };
                    painted.push(byte);
                }
                (Escape::Sequence, _) => {
                    painted.push(byte);
                    self.continue_sequence(byte);
                }
                (Escape::None, b'\r' | b'\n') => {
                    if std::mem::take(&mut self.is_open) {
                        painted.extend(PLAIN.bytes());
                    }
                    painted.push(byte);
                    self.line = Some(Vec::new());
                }
                (Escape::None, ESC) => {
                    self.escape = Escape::Begun;
                    painted.push(byte);
                }
                // Neither moves the cursor.
                (Escape::None, 0 | BELL) => painted.push(byte),
                (Escape::None, ..b' ') => {
                    self.line = None;
                    painted.push(byte);
                }
                (Escape::None, _) => self.paint_character(byte, &mut painted),
            }
        }
        painted
    }

    /// Takes a byte of a control sequence (ECMA-48, section 5.4).
    fn continue_sequence(&mut self, byte: u8) {
        if !matches!(byte, 0x40..=0x7e) {
            return;
        }
        self.escape = Escape::None;
        match byte {
            // The console goes nowhere else but to the first column.
            b'H' => self.line = Some(Vec::new()),
            // Erases, asks, and colors.
            b'J' | b'n' | b'm' => {}
            // Another row, in the same column.
            b'A' | b'B' => self.line = self.line.take().filter(Vec::is_empty),
            _ => self.line = None,
        }
    }

    fn paint_character(&mut self, byte: u8, painted: &mut Vec<u8>) {
        let Some(mut line) = self.line.take() else { return painted.push(byte) };
        let is_blank = line.iter().all(|&byte| byte == b' ');
        if byte == b'^' && is_blank && !line.is_empty() {
            self.is_open = true;
            painted.extend(BOLD_RED.bytes());
            return painted.push(byte);
        }
        line.push(byte);
        painted.push(byte);
        match WORDS.iter().find(|(word, _)| word.as_bytes().starts_with(&line)) {
            Some((word, color)) if word.len() == line.len() => {
                painted.extend(format!("\r{color}{word}{PLAIN}").bytes());
            }
            None if !is_blank || byte != b' ' => {}
            _ => self.line = Some(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Painter;

    /// The painted text, with the colors in angle brackets and without the words that are written again.
    fn painted(text: &str) -> String {
        let whole = Painter::new().paint(text.as_bytes());
        for cut in 0..text.len() {
            let mut painter = Painter::new();
            let mut parts = painter.paint(&text.as_bytes()[..cut]);
            parts.extend(painter.paint(&text.as_bytes()[cut..]));
            assert_eq!(parts, whole, "cut at {cut}");
        }
        let text = String::from_utf8(whole).unwrap();
        let text = text.replace("\x1b[m", "<>").replace("\x1b[1;31m", "<red>").replace("\x1b[1;32m", "<green>");
        text.replace("\x1b[1;33m", "<yellow>").replace('\r', "<-")
    }

    #[test]
    fn the_prompt_and_what_is_wrong_are_painted() {
        for (text, expected) in [
            ("boot\nkprobes> lis\n", "boot\nkprobes> <-<green>kprobes> <>lis\n"),
            ("error: no\n", "error:<-<red>error:<> no\n"),
            ("warning: f\n", "warning:<-<yellow>warning:<> f\n"),
            ("machine stopped: x", "machine stopped:<-<red>machine stopped:<> x"),
            ("  ^^^ x\n ^C", "  <red>^^^ x<>\n <red>^C"),
            // The editor draws its row again.
            ("ab\r\x1b[Jkprobes> ", "ab<-\x1b[Jkprobes> <-<green>kprobes> <>"),
            ("\x1b[H\x1b[2Jkprobes> ", "\x1b[H\x1b[2Jkprobes> <-<green>kprobes> <>"),
            ("\n\x1b[2A\x07kprobes> ", "\n\x1b[2A\x07kprobes> <-<green>kprobes> <>"),
        ] {
            assert_eq!(painted(text), expected);
        }
    }

    #[test]
    fn other_output_is_as_it_was() {
        for text in [
            "an error: no\nerror no\nKprobes> kprobes>",
            "^C\n@x: ^\n 1 ^",
            // The columns are unknown.
            "x\x1b[Jerror: ",
            "\x1b[5Cerror: ",
            "x\x08error: ",
            "err\x1b[Aor: ",
            "  \u{e9}^",
        ] {
            assert_eq!(painted(text), text);
        }
    }
}
