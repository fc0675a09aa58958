//! A line of input, edited as it is typed.
//!
//! The terminal at the other end of the UART sends one byte at a time: characters, control characters, and
//! escape sequences for its special keys. Out of these comes a line, which is echoed so that the terminal shows
//! it. The bytes may also be noise: whatever they are, the line stays within its limit, consists of printable
//! ASCII characters, and is what the terminal shows.
//!
//! | key | does |
//! |---|---|
//! | left, right, home or ^A, end or ^E | move in the line |
//! | backspace, delete | remove a character |
//! | ^U, ^K, ^W | remove everything before the cursor, everything after it, the word before it |
//! | up or ^P, down or ^N | an earlier or a later line |
//! | ^C | give the line up |
//! | ^L | clear the screen |
//!
//! Bytes of characters outside ASCII, other control characters and unknown escape sequences are dropped; a tab
//! is a space.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt::{self, Write};
use core::mem;

/// The longest line, in characters. More are refused with the terminal's bell.
pub const LINE_MAX: usize = 1024;

/// How many lines are kept to come back to.
const HISTORY_MAX: usize = 50;

const BELL: &str = "\x07";
const ERASE_TO_END: &str = "\x1b[K";
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// How far an escape sequence has been read (ECMA-48, section 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sequence {
    /// Not in one.
    None,
    /// After ESC.
    Escape,
    /// After ESC `[`, with the number so far.
    Control(u8),
    /// After ESC `O`.
    Function,
}

/// The state of the line that is being typed.
#[derive(Debug)]
pub struct LineEditor {
    prompt: &'static str,
    line: String,
    /// How many characters precede the cursor.
    cursor: usize,
    sequence: Sequence,
    /// The last byte ended a line as a carriage return: a line feed right after it is part of it.
    returned: bool,
    history: VecDeque<String>,
    /// Which line of the history is shown; behind the last one, the line that was being typed.
    shown: usize,
    /// The line that was being typed before one of the history was shown.
    draft: String,
}

impl LineEditor {
    /// An editor that shows `prompt`, which is ASCII, before each line.
    #[must_use]
    pub fn new(prompt: &'static str) -> Self {
        Self {
            prompt,
            line: String::new(),
            cursor: 0,
            sequence: Sequence::None,
            returned: false,
            history: VecDeque::new(),
            shown: 0,
            draft: String::new(),
        }
    }

    /// Begins a line: shows the prompt.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn start(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str(self.prompt)
    }

    /// Takes a byte and shows on `out` what it changes. Returns the line if the byte has ended one; a line that
    /// was given up is returned empty.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn feed(&mut self, byte: u8, out: &mut dyn Write) -> Result<Option<String>, fmt::Error> {
        let returned = mem::replace(&mut self.returned, byte == b'\r');
        // A control character ends a sequence that noise has begun, so that no line is swallowed by one.
        if byte < b' ' {
            self.sequence = Sequence::None;
        }
        match (self.sequence, byte) {
            (Sequence::None, b'\n') if returned => {}
            (Sequence::None, b'\r' | b'\n') => return self.finish(out).map(Some),
            (Sequence::None, _) => return self.key(byte, out),
            (Sequence::Escape, b'[') => self.sequence = Sequence::Control(0),
            (Sequence::Escape, b'O') => self.sequence = Sequence::Function,
            (Sequence::Control(number), b'0'..=b'9') => {
                self.sequence = Sequence::Control(number.saturating_mul(10).saturating_add(byte - b'0'));
            }
            // Further parameters (modifiers) and intermediate bytes change nothing.
            (Sequence::Control(_), b' '..=b'?') => {}
            (sequence, _) => {
                self.sequence = Sequence::None;
                self.special(sequence, byte, out)?;
            }
        }
        Ok(None)
    }

    fn key(&mut self, byte: u8, out: &mut dyn Write) -> Result<Option<String>, fmt::Error> {
        match byte {
            b'\t' => self.insert(' ', out)?,
            b' '..=b'~' => self.insert(byte.into(), out)?,
            0x08 | 0x7f => self.remove(self.cursor.saturating_sub(1), self.cursor, out)?,
            0x1b => self.sequence = Sequence::Escape,
            _ => match byte | 0x40 {
                b'A' => self.move_to(0, out)?,
                b'C' => {
                    self.move_to(self.line.len(), out)?;
                    out.write_str("^C\n")?;
                    self.clear();
                    return Ok(Some(String::new()));
                }
                b'E' => self.move_to(self.line.len(), out)?,
                b'K' => self.remove(self.cursor, self.line.len(), out)?,
                b'L' => {
                    write!(out, "{CLEAR_SCREEN}{}{}", self.prompt, self.line)?;
                    self.step_back(self.line.len() - self.cursor, out)?;
                }
                b'N' => self.show(self.shown + 1, out)?,
                b'P' => self.show(self.shown.wrapping_sub(1), out)?,
                b'U' => self.remove(0, self.cursor, out)?,
                b'W' => self.remove(self.word_start(), self.cursor, out)?,
                _ => {}
            },
        }
        Ok(None)
    }

    /// The key of an escape sequence that ends with `byte`.
    fn special(&mut self, sequence: Sequence, byte: u8, out: &mut dyn Write) -> fmt::Result {
        let end = self.line.len();
        match (sequence, byte) {
            (Sequence::Control(_) | Sequence::Function, b'A') => self.show(self.shown.wrapping_sub(1), out),
            (Sequence::Control(_) | Sequence::Function, b'B') => self.show(self.shown + 1, out),
            (Sequence::Control(_) | Sequence::Function, b'C') => self.move_to(end.min(self.cursor + 1), out),
            (Sequence::Control(_) | Sequence::Function, b'D') => self.move_to(self.cursor.saturating_sub(1), out),
            (Sequence::Control(_) | Sequence::Function, b'H') => self.move_to(0, out),
            (Sequence::Control(_) | Sequence::Function, b'F') => self.move_to(end, out),
            (Sequence::Control(1 | 7), b'~') => self.move_to(0, out),
            (Sequence::Control(4 | 8), b'~') => self.move_to(end, out),
            (Sequence::Control(3), b'~') => self.remove(self.cursor, end.min(self.cursor + 1), out),
            _ => Ok(()),
        }
    }

    /// Ends the line: keeps it in the history, unless it is empty or the newest there.
    fn finish(&mut self, out: &mut dyn Write) -> Result<String, fmt::Error> {
        self.move_to(self.line.len(), out)?;
        out.write_char('\n')?;
        let line = mem::take(&mut self.line);
        if !line.trim().is_empty() && self.history.back() != Some(&line) {
            if self.history.len() == HISTORY_MAX {
                self.history.pop_front();
            }
            self.history.push_back(line.clone());
        }
        self.clear();
        Ok(line)
    }

    fn clear(&mut self) {
        self.line.clear();
        self.draft.clear();
        self.cursor = 0;
        self.shown = self.history.len();
    }

    fn insert(&mut self, character: char, out: &mut dyn Write) -> fmt::Result {
        if self.line.len() == LINE_MAX {
            return out.write_str(BELL);
        }
        self.line.insert(self.cursor, character);
        out.write_str(&self.line[self.cursor..])?;
        self.cursor += 1;
        self.step_back(self.line.len() - self.cursor, out)
    }

    /// Removes the characters from `start` to `end`, between which the cursor is.
    fn remove(&mut self, start: usize, end: usize, out: &mut dyn Write) -> fmt::Result {
        if start == end {
            return Ok(());
        }
        self.move_to(start, out)?;
        self.line.drain(start..end);
        write!(out, "{}{ERASE_TO_END}", &self.line[start..])?;
        self.step_back(self.line.len() - start, out)
    }

    fn move_to(&mut self, position: usize, out: &mut dyn Write) -> fmt::Result {
        if position < self.cursor {
            self.step_back(self.cursor - position, out)?;
        } else {
            out.write_str(&self.line[self.cursor..position])?;
        }
        self.cursor = position;
        Ok(())
    }

    /// Moves the terminal's cursor back by `count` columns.
    fn step_back(&self, count: usize, out: &mut dyn Write) -> fmt::Result {
        match count {
            0 => Ok(()),
            1 => out.write_char('\x08'),
            _ => write!(out, "\x1b[{count}D"),
        }
    }

    /// Where the word before the cursor, with the spaces after it, begins.
    fn word_start(&self) -> usize {
        let before = self.line[..self.cursor].trim_end();
        before.rfind(' ').map_or(0, |space| space + 1)
    }

    /// Shows line `index` of the history; the one that was being typed is behind the last.
    fn show(&mut self, index: usize, out: &mut dyn Write) -> fmt::Result {
        if index > self.history.len() {
            return Ok(());
        }
        if self.shown == self.history.len() {
            self.draft = self.line.clone();
        }
        self.shown = index;
        let line = self.history.get(index).unwrap_or(&self.draft).clone();
        self.move_to(0, out)?;
        write!(out, "{line}{ERASE_TO_END}")?;
        self.cursor = line.len();
        self.line = line;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
