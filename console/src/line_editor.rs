//! An editor for a line of input.
//!
//! The terminal at the other end of the UART sends one byte at a time: characters, control characters, and escape
//! sequences for its special keys. The editor assembles them to a line, and echoes it so that the terminal shows it.
//! The bytes may also be noise: in any case the line is equal to what the terminal shows, and a line that misses part
//! of the input is refused as a whole.
//!
//! | key | does |
//! |---|---|
//! | left, right, home or ^A, end or ^E | move in the line |
//! | backspace, delete | remove a character |
//! | ^U, ^K, ^W | remove everything before the cursor, everything after it, the word before it |
//! | up or ^P, down or ^N | show an earlier or a later line |
//! | ^C | discard the line |
//! | ^L | clear the screen |
//!
//! A tab is a space. Other control characters, unknown escape sequences, invalid UTF-8 and characters that there is no
//! room for ring the terminal's bell, and the line is refused when it ends. The refused line can be recalled as it was
//! shown.
//!
//! A long line takes several rows of the terminal. When a key first has to move back in such a line, the editor asks
//! the terminal for the length of its rows. A peer that only sends lines is never asked. The key is held until the
//! answer arrives. If other input arrives first, rows are assumed to have `USUAL_COLUMNS`. A line with more rows than
//! the terminal is redrawn incorrectly.

mod keys;
mod rows;

use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt::{self, Write};
use core::mem;

use fallible::{OutOfMemory, TryClone};
use keys::{Key, Keys, Noise};
use rows::{Cell, width};

/// The maximum length of a line, in bytes: the limit of Linux for one write to `kprobe_events`.
pub const LINE_MAX: usize = 4094;

/// The number of lines in the history.
const HISTORY_MAX: usize = 50;

/// The minimum number of columns that a terminal is assumed to have. A shorter line fits in one row.
const FEWEST_COLUMNS: usize = 40;
/// The number of columns that is assumed for a terminal that does not answer.
const USUAL_COLUMNS: usize = 80;

const BELL: &str = "\x07";
/// ED, ECMA-48, section 8.3.39.
const ERASE_TO_END: &str = "\x1b[J";
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";
/// Asks for the cursor's position after moving it to the last column, then restores it.
const ASK_FOR_COLUMNS: &str = "\x1b7\x1b[9999C\x1b[6n\x1b8";

/// A reason for refusing a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The line has more than [`LINE_MAX`] bytes.
    TooLong,
    /// The line has bytes that are not UTF-8.
    NotUtf8,
    /// The line has control characters that are no keys.
    NoKey,
    /// There was no memory for the whole line.
    OutOfMemory,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the line has more than {LINE_MAX} bytes"),
            Self::NotUtf8 => f.write_str("the line has bytes that are not UTF-8"),
            Self::NoKey => f.write_str("the line has control characters that are not editing keys"),
            Self::OutOfMemory => f.write_str("there is not enough memory for the whole line"),
        }?;
        f.write_str(", so it is not run")
    }
}

/// A line, and the reason if it is not what was sent.
#[derive(Debug, Default)]
struct Line {
    text: String,
    refusal: Option<Refusal>,
}

impl TryClone for Line {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self { text: fallible::copy(&self.text)?, refusal: self.refusal })
    }
}

/// The state of the line that is being typed.
#[derive(Debug)]
pub struct LineEditor {
    prompt: &'static str,
    line: Line,
    /// The offset of the cursor, in bytes.
    cursor: usize,
    keys: Keys,
    /// The number of columns of the terminal, once it is known for this line.
    columns: Option<usize>,
    /// The key that waits for the terminal's answer.
    held: Option<Key>,
    /// Whether the terminal has been asked and has not answered.
    is_asked: bool,
    history: VecDeque<String>,
    /// The index of the history line that is shown. The index after the last one is the line that is being typed.
    shown: usize,
    /// The line that is being typed, while a line of the history is shown.
    draft: Line,
}

impl LineEditor {
    /// Creates an editor that shows `prompt`, which must be ASCII, before each line.
    #[must_use]
    pub fn new(prompt: &'static str) -> Self {
        Self {
            prompt,
            line: Line::default(),
            cursor: 0,
            keys: Keys::default(),
            columns: None,
            held: None,
            is_asked: false,
            history: VecDeque::new(),
            shown: 0,
            draft: Line::default(),
        }
    }

    /// Begins a line: shows the prompt.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn start(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str(self.prompt)
    }

    /// Takes a byte, and shows its effect on `out`. If the byte ends a line, returns the line, or the reason for
    /// refusing it. A discarded line is returned empty.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn feed(&mut self, byte: u8, out: &mut dyn Write) -> Result<Option<Result<String, Refusal>>, fmt::Error> {
        let (noise, key) = self.keys.feed(byte);
        match noise {
            Some(Noise::NotUtf8) => self.refuse(Refusal::NotUtf8, out)?,
            Some(Noise::NoKey) => self.refuse(Refusal::NoKey, out)?,
            None => {}
        }
        let Some(key) = key else { return Ok(None) };
        if let Key::Column(column) = key {
            match mem::take(&mut self.is_asked) {
                true => self.columns = Some(usize::from(column).max(self.prompt.len() + 2)),
                false => self.refuse(Refusal::NoKey, out)?,
            }
        }
        if let Some(held) = self.held.take() {
            self.columns.get_or_insert(USUAL_COLUMNS);
            self.leave_full_row(out)?;
            self.press(held, out)?;
        }
        if self.needs_columns(key) {
            self.held = Some(key);
            self.is_asked = true;
            out.write_str(ASK_FOR_COLUMNS)?;
            return Ok(None);
        }
        self.press(key, out)
    }

    /// Marks the line as refused, and rings the bell. The first reason is kept.
    fn refuse(&mut self, refusal: Refusal, out: &mut dyn Write) -> fmt::Result {
        self.line.refusal.get_or_insert(refusal);
        out.write_str(BELL)
    }

    /// Returns whether this key may move the cursor to another row while the length of rows is unknown.
    fn needs_columns(&self, key: Key) -> bool {
        let is_at_end = self.cursor == self.line.text.len();
        let goes_back = match key {
            Key::Enter | Key::Interrupt | Key::Column(_) => false,
            Key::Character(_) => !is_at_end,
            _ => true,
        };
        // The 2 is room for one more character.
        goes_back && self.columns.is_none() && self.prompt.len() + width(&self.line.text) + 2 > FEWEST_COLUMNS
    }

    fn press(&mut self, key: Key, out: &mut dyn Write) -> Result<Option<Result<String, Refusal>>, fmt::Error> {
        let end = self.line.text.len();
        match key {
            Key::Character(character) => self.insert(character, out)?,
            Key::Enter => return self.finish(out).map(Some),
            Key::Interrupt => {
                self.move_to(end, out)?;
                out.write_str("^C\n")?;
                self.clear();
                return Ok(Some(Ok(String::new())));
            }
            Key::ClearScreen => {
                out.write_str(CLEAR_SCREEN)?;
                self.start(out)?;
                out.write_str(&self.line.text)?;
                let cursor = mem::replace(&mut self.cursor, end);
                self.leave_full_row(out)?;
                self.move_to(cursor, out)?;
            }
            Key::Left => self.move_to(self.before(), out)?,
            Key::Right => self.move_to(self.after_cursor(), out)?,
            Key::Home => self.move_to(0, out)?,
            Key::End => self.move_to(end, out)?,
            Key::Backspace => self.remove(self.before(), self.cursor, out)?,
            Key::Delete => self.remove(self.cursor, self.after_cursor(), out)?,
            Key::RemoveBefore => self.remove(0, self.cursor, out)?,
            Key::RemoveAfter => self.remove(self.cursor, end, out)?,
            Key::RemoveWord => self.remove(self.word_start(), self.cursor, out)?,
            Key::Previous => self.show(self.shown.wrapping_sub(1), out)?,
            Key::Next => self.show(self.shown + 1, out)?,
            // `feed` has handled this key.
            Key::Column(_) => {}
        }
        Ok(None)
    }

    /// Ends the line, and adds it to the history unless it is empty or equal to the newest line there.
    fn finish(&mut self, out: &mut dyn Write) -> Result<Result<String, Refusal>, fmt::Error> {
        self.move_to(self.line.text.len(), out)?;
        out.write_char('\n')?;
        let Line { text, refusal } = mem::take(&mut self.line);
        if !text.trim().is_empty() && self.history.back() != Some(&text) {
            // If there is no memory for the history, the line is still run, but cannot be recalled.
            if let Ok(kept) = fallible::copy(&text)
                && self.history.try_reserve(1).is_ok()
            {
                if self.history.len() == HISTORY_MAX {
                    self.history.pop_front();
                }
                self.history.push_back(kept);
            }
        }
        self.clear();
        Ok(refusal.map_or(Ok(text), Err))
    }

    fn clear(&mut self) {
        self.line = Line::default();
        self.draft = Line::default();
        self.cursor = 0;
        self.columns = None;
        self.shown = self.history.len();
    }

    fn insert(&mut self, character: char, out: &mut dyn Write) -> fmt::Result {
        if self.line.text.len() + character.len_utf8() > LINE_MAX {
            return self.refuse(Refusal::TooLong, out);
        }
        let behind = self.cursor + character.len_utf8();
        if self.cursor == self.line.text.len() {
            if fallible::push_char(&mut self.line.text, character).is_err() {
                return self.refuse(Refusal::OutOfMemory, out);
            }
            self.cursor = behind;
            out.write_char(character)?;
            return self.leave_full_row(out);
        }
        let place = self.cell(self.cursor);
        if self.line.text.try_reserve(character.len_utf8()).is_err() {
            return self.refuse(Refusal::OutOfMemory, out);
        }
        self.line.text.insert(self.cursor, character);
        self.redraw(place, self.cursor, behind, out)
    }

    /// Removes the text from `start` to `end`. The cursor is between them.
    fn remove(&mut self, start: usize, end: usize, out: &mut dyn Write) -> fmt::Result {
        if start == end {
            return Ok(());
        }
        self.move_to(start, out)?;
        let place = self.cell(start);
        self.line.text.drain(start..end);
        if self.line.text.is_empty() {
            // Nothing is left of a line whose input was refused.
            self.line.refusal = None;
        }
        self.redraw(place, start, start, out)
    }

    /// Redraws the line from `start` to its end, and moves the cursor to `cursor`. The terminal's cursor is at `place`,
    /// where the character at `start` was shown before.
    fn redraw(&mut self, place: Cell, start: usize, cursor: usize, out: &mut dyn Write) -> fmt::Result {
        let first = self.cell(start);
        // The old character had two columns and was wrapped to the next row, but the new one fits in this row. The
        // terminal handles the opposite case by itself.
        if first.row < place.row {
            place.go(first, out)?;
        }
        write!(out, "{ERASE_TO_END}{}", &self.line.text[start..])?;
        self.cursor = self.line.text.len();
        if start < self.cursor {
            self.leave_full_row(out)?;
        }
        self.move_to(cursor, out)
    }

    fn move_to(&mut self, position: usize, out: &mut dyn Write) -> fmt::Result {
        if position != self.cursor {
            self.cell(self.cursor).go(self.cell(position), out)?;
        }
        self.cursor = position;
        Ok(())
    }

    /// Returns the cell in which the byte `at` of the line is shown. Without known columns, the whole line is in one
    /// row.
    fn cell(&self, at: usize) -> Cell {
        Cell::of(&self.line.text, at, self.prompt.len(), self.columns.unwrap_or(usize::MAX))
    }

    /// Moves the terminal's cursor to the next row after a write to the last column. The terminal itself would stay
    /// there until the next character.
    fn leave_full_row(&self, out: &mut dyn Write) -> fmt::Result {
        let is_full =
            self.columns.is_some() && self.cursor == self.line.text.len() && self.cell(self.cursor).column == 0;
        if is_full { out.write_char('\n') } else { Ok(()) }
    }

    /// Returns the offset of the character before the cursor.
    fn before(&self) -> usize {
        self.line.text[..self.cursor].char_indices().next_back().map_or(0, |(at, _)| at)
    }

    /// Returns the offset after the character at the cursor.
    fn after_cursor(&self) -> usize {
        self.cursor + self.line.text[self.cursor..].chars().next().map_or(0, char::len_utf8)
    }

    /// Returns the offset of the word before the cursor. Spaces between the word and the cursor belong to it.
    fn word_start(&self) -> usize {
        let before = self.line.text[..self.cursor].trim_end();
        before.rfind(' ').map_or(0, |space| space + 1)
    }

    /// Shows line `index` of the history. The line that is being typed has the index after the last one.
    fn show(&mut self, index: usize, out: &mut dyn Write) -> fmt::Result {
        if index > self.history.len() {
            return Ok(());
        }
        if self.shown == self.history.len() {
            let Ok(draft) = self.line.try_clone() else { return out.write_str(BELL) };
            self.draft = draft;
        }
        let line = match self.history.get(index) {
            Some(text) => fallible::copy(text).map(|text| Line { text, refusal: None }),
            None => self.draft.try_clone(),
        };
        let Ok(line) = line else { return out.write_str(BELL) };
        self.shown = index;
        self.move_to(0, out)?;
        let place = self.cell(0);
        self.line = line;
        self.redraw(place, 0, self.line.text.len(), out)
    }
}

#[cfg(test)]
mod tests;
