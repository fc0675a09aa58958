//! An editor for a line of input.
//!
//! The terminal at the other end of the UART sends one byte at a time: characters, control characters, and escape
//! sequences for its special keys. The editor assembles them to a line, and echoes it so that the terminal shows it.
//! The bytes may also be noise. In any case the line is equal to the text that the terminal shows, and a line that
//! misses part of the input is refused as a whole.
//!
//! | key | does |
//! |---|---|
//! | left or ^B, right or ^F, home or ^A, end or ^E | move in the line |
//! | Alt-b or Ctrl-left, Alt-f or Ctrl-right | move by a word: letters and digits |
//! | backspace, delete or ^D | remove a character |
//! | ^U, ^K | remove everything before the cursor, everything after it |
//! | ^W, Alt-backspace, Alt-d | remove the text up to a blank before the cursor, the word before it, the word after it |
//! | ^Y | insert the text that one of these five keys removed last |
//! | ^T | exchange the character before the cursor with the next one |
//! | up or ^P, down or ^N | show an earlier or a later line |
//! | Alt-. | insert the last word of the line before |
//! | ^R | search the earlier lines for the text that follows; again: further back |
//! | ^G or ^C while searching | show again the line that was being typed |
//! | tab | complete the word before the cursor; a second one lists the names that it may become |
//! | enter | end the line, or go on in a next row if a bracket or a quote is open |
//! | ^C | discard the line |
//! | ^L | clear the screen |
//!
//! The terminal's bell rings at other control characters, unknown escape sequences, invalid UTF-8, and characters for
//! which there is no room. The line is then refused when it ends. The refused line can be recalled as it was shown.
//!
//! A long line takes several rows of the terminal. When a key first has to move back in such a line, the editor asks
//! the terminal for the length of its rows. The key is held until the answer arrives. If other input arrives first,
//! rows are assumed to have `USUAL_COLUMNS`. A line with more rows than the terminal is redrawn incorrectly.
//!
//! The same question tells apart a tab key and a tab in a text that is pasted or that a program sends. There, other
//! input arrives before an answer, and the tab is a space. A tab at the start of a line or after a blank is a space,
//! too, if nothing can be completed there. A peer that sends lines without tabs is never asked. It ends each line with
//! a line feed. Only the enter key, a carriage return, can go on in a next row: a line feed ends the line, even right
//! after a carriage return that began a row. Each row of a line is edited, and recalled, by itself.
//!
//! A program on the host can keep the history when the machine ends: see [`kprobes_wire::history`]. Its keys show
//! nothing and leave the line as it is. Only lines that the enter key ends are in the history.

mod candidates;
mod draw;
mod edit;
mod history;
mod keys;
mod rows;

use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt::{self, Write};
use core::mem;

pub use candidates::Candidates;
use fallible::{OutOfMemory, TryClone};
use history::{HistoryKeeper, Search};
use keys::{Key, Keys, Noise};
pub use kprobes_wire::history::LINE_MAX;
use rows::width;

/// The minimum number of columns that a terminal is assumed to have. A shorter line fits in one row.
const FEWEST_COLUMNS: usize = 40;
/// The number of columns that is assumed for a terminal that does not answer.
const USUAL_COLUMNS: usize = 80;

const BELL: &str = "\x07";
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";
/// Asks for the cursor's position after moving it to the last column, then restores it.
const ASK_FOR_COLUMNS: &str = "\x1b7\x1b[9999C\x1b[6n\x1b8";

/// Answers questions of the editor about the text in a line.
pub trait Completer {
    /// Finds the names that can stand in place of the word at the end of `before`, the line up to the cursor.
    ///
    /// # Errors
    ///
    /// There is no memory for the names.
    fn complete(&mut self, before: &str, found: &mut Candidates) -> Result<(), OutOfMemory>;

    /// Returns whether a bracket or a quote in `line` is open, so that it goes on in a next row.
    fn is_open(&mut self, line: &str) -> bool;
}

/// A reason for refusing a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineRefusal {
    /// The line has more than [`LINE_MAX`] bytes.
    TooLong,
    /// The line has bytes that are not UTF-8.
    NotUtf8,
    /// The line has control characters that are no keys.
    NoKey,
    /// There was no memory for the whole line.
    OutOfMemory,
}

impl fmt::Display for LineRefusal {
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

/// A line, and the reason for refusing it, if it misses part of the input.
#[derive(Debug, Default)]
struct EditedLine {
    text: String,
    refusal: Option<LineRefusal>,
}

impl TryClone for EditedLine {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self { text: fallible::copy(&self.text)?, refusal: self.refusal })
    }
}

/// The state of the line that is being typed.
#[derive(Debug)]
pub struct LineEditor {
    prompt: &'static str,
    /// The earlier rows of the line, each with a line feed.
    rows: String,
    /// The row that is being typed.
    line: EditedLine,
    /// The offset of the cursor, in bytes.
    cursor: usize,
    keys: Keys,
    /// The number of columns of the terminal, once it is known for this line.
    columns: Option<usize>,
    /// The key that waits for the terminal's answer.
    held: Option<Key>,
    /// The number of questions that the terminal has not answered; for a peer that never answers, the maximum.
    asked: u8,
    /// Whether the last key was a tab that found several names.
    is_ambiguous: bool,
    search: Option<Search>,
    /// The text that was removed last.
    removed: String,
    history: VecDeque<String>,
    keeper: HistoryKeeper,
    /// The index of the history line that is shown. The index after the last one is the line that is being typed.
    shown: usize,
    /// The line that is being typed, while a line of the history is shown.
    draft: EditedLine,
}

impl LineEditor {
    /// Creates an editor that shows `prompt`, which must be ASCII, before each line.
    #[must_use]
    pub fn new(prompt: &'static str) -> Self {
        Self {
            prompt,
            rows: String::new(),
            line: EditedLine::default(),
            cursor: 0,
            keys: Keys::default(),
            columns: None,
            held: None,
            asked: 0,
            is_ambiguous: false,
            search: None,
            removed: String::new(),
            history: VecDeque::new(),
            keeper: HistoryKeeper::default(),
            shown: 0,
            draft: EditedLine::default(),
        }
    }

    /// Begins a line: shows the prompt.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn start(&self, out: &mut dyn Write) -> fmt::Result {
        self.prompt().into_iter().try_for_each(|part| out.write_str(part))
    }

    /// Takes a byte, and shows its effect on `out`. If the byte ends a line, returns the line, or the reason for
    /// refusing it. A discarded line is returned empty.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn feed(
        &mut self,
        byte: u8,
        completer: &mut dyn Completer,
        out: &mut dyn Write,
    ) -> Result<Option<Result<String, LineRefusal>>, fmt::Error> {
        let (noise, key) = self.keys.feed(byte);
        match noise {
            Some(Noise::NotUtf8) => self.refuse(LineRefusal::NotUtf8, out)?,
            Some(Noise::NoKey) => self.refuse(LineRefusal::NoKey, out)?,
            None => {}
        }
        let Some(key) = key else { return Ok(None) };
        if self.is_from_keeper(key, out)? {
            return Ok(None);
        }
        let was_known = self.columns.is_some();
        let mut held = self.held.take();
        match (key, self.asked) {
            (Key::Column(_), 0) => self.refuse(LineRefusal::NoKey, out)?,
            (Key::Column(column), _) => {
                self.asked -= 1;
                self.columns = Some(usize::from(column).max(self.prompt.len() + 2));
            }
            (_, _) if held == Some(Key::Tab) => held = Some(Key::Character(' ')),
            _ => {}
        }
        if held.is_some_and(|held| self.needs_columns(held)) {
            self.columns.get_or_insert(USUAL_COLUMNS);
        }
        if !was_known && self.columns.is_some() {
            self.leave_full_row(out)?;
        }
        if let Some(held) = held {
            self.press(held, completer, out)?;
        }
        if key == Key::Tab || self.needs_columns(key) {
            self.held = Some(key);
            self.asked = self.asked.saturating_add(1);
            out.write_str(ASK_FOR_COLUMNS)?;
            return Ok(None);
        }
        self.press(key, completer, out)
    }

    /// Marks the line as refused, and rings the bell. The first reason is kept.
    fn refuse(&mut self, refusal: LineRefusal, out: &mut dyn Write) -> fmt::Result {
        self.line.refusal.get_or_insert(refusal);
        out.write_str(BELL)
    }

    /// Returns whether this key may move the cursor to another row while the length of rows is unknown.
    fn needs_columns(&self, key: Key) -> bool {
        let is_at_end = self.cursor == self.line.text.len();
        let goes_back = match key {
            Key::Enter | Key::LineEnd | Key::LineEndAfterEnter | Key::Interrupt | Key::Column(_) => false,
            Key::Character(_) | Key::Yank | Key::LastWord => !is_at_end,
            _ => true,
        };
        let becomes_long = matches!(key, Key::Search | Key::Yank | Key::LastWord);
        // The 2 is room for one more character.
        let is_long = || becomes_long || self.prompt.len() + width(&self.line.text) + 2 > FEWEST_COLUMNS;
        goes_back && self.columns.is_none() && is_long()
    }

    fn press(
        &mut self,
        key: Key,
        completer: &mut dyn Completer,
        out: &mut dyn Write,
    ) -> Result<Option<Result<String, LineRefusal>>, fmt::Error> {
        if let Key::Column(_) = key {
            // `feed` has handled this key.
            return Ok(None);
        }
        let is_ambiguous = mem::take(&mut self.is_ambiguous);
        if self.search.is_some() && self.search_for(key, out)? {
            return Ok(None);
        }
        let end = self.line.text.len();
        match key {
            Key::Character(character) => self.insert(character, out)?,
            Key::Tab => self.complete(completer, is_ambiguous, out)?,
            // A refused line does not go on in a next row.
            Key::Enter if self.line.refusal.is_none() && self.is_open(completer) => self.begin_row(out)?,
            Key::LineEndAfterEnter if self.rows.is_empty() || end > 0 => {}
            Key::Enter | Key::LineEnd | Key::LineEndAfterEnter => return self.finish(key, out).map(Some),
            Key::Interrupt => {
                self.move_to(end, out)?;
                out.write_str("^C\n")?;
                self.clear();
                return Ok(Some(Ok(String::new())));
            }
            Key::ClearScreen => {
                out.write_str(CLEAR_SCREEN)?;
                self.show_row(self.cursor, out)?;
            }
            Key::Left => self.move_to(self.before(), out)?,
            Key::Right => self.move_to(self.after_cursor(), out)?,
            Key::Home => self.move_to(0, out)?,
            Key::End => self.move_to(end, out)?,
            Key::Backspace => self.remove(self.before(), self.cursor, out)?,
            Key::Delete => self.remove(self.cursor, self.after_cursor(), out)?,
            Key::WordLeft => self.move_to(self.word_before(), out)?,
            Key::WordRight => self.move_to(self.word_after(), out)?,
            Key::RemoveBefore => self.take(0, self.cursor, out)?,
            Key::RemoveAfter => self.take(self.cursor, end, out)?,
            Key::RemoveToBlank => self.take(self.blank_before(), self.cursor, out)?,
            Key::RemoveWordBefore => self.take(self.word_before(), self.cursor, out)?,
            Key::RemoveWordAfter => self.take(self.cursor, self.word_after(), out)?,
            Key::Yank => {
                let removed = mem::take(&mut self.removed);
                let outcome = self.replace(self.cursor, &removed, out);
                self.removed = removed;
                outcome?;
            }
            Key::Transpose => self.transpose(out)?,
            Key::LastWord => {
                let last = self.history.back().and_then(|line| line.split_whitespace().next_back());
                match last.map(fallible::copy) {
                    Some(Ok(word)) => self.replace(self.cursor, &word, out)?,
                    _ => out.write_str(BELL)?,
                }
            }
            Key::Previous => self.show(self.shown.wrapping_sub(1), out)?,
            Key::Next => self.show(self.shown + 1, out)?,
            Key::Search => self.begin_search(out)?,
            // `feed` has handled all but the first.
            Key::Abort
            | Key::Column(_)
            | Key::EarlierBegin
            | Key::EarlierEnd
            | Key::KeepHistory
            | Key::LeaveHistory => out.write_str(BELL)?,
        }
        Ok(None)
    }

    /// Ends the line by `key`.
    fn finish(&mut self, key: Key, out: &mut dyn Write) -> Result<Result<String, LineRefusal>, fmt::Error> {
        self.move_to(self.line.text.len(), out)?;
        self.remember(key, out)?;
        out.write_char('\n')?;
        let EditedLine { text: last, refusal } = mem::take(&mut self.line);
        let mut line = mem::take(&mut self.rows);
        self.clear();
        Ok(match refusal {
            Some(refusal) => Err(refusal),
            None if line.is_empty() => Ok(last),
            None if line.try_reserve(last.len()).is_err() => Err(LineRefusal::OutOfMemory),
            None => {
                line.push_str(&last);
                Ok(line)
            }
        })
    }

    /// Returns the line up to byte `end` of the row.
    fn line_to(&self, end: usize) -> Result<Cow<'_, str>, OutOfMemory> {
        let row = &self.line.text[..end];
        match self.rows.is_empty() {
            true => Ok(row.into()),
            false => fallible::format(format_args!("{}{row}", self.rows)).map(Cow::Owned),
        }
    }

    /// Returns whether there is room for a row of `length` bytes after the rows before it.
    fn has_room(&self, length: usize) -> bool {
        self.rows.len() + length <= LINE_MAX
    }

    /// Returns whether the line goes on in a next row, and there is room for the row.
    fn is_open(&self, completer: &mut dyn Completer) -> bool {
        self.has_room(self.line.text.len() + 1)
            && self.line_to(self.line.text.len()).is_ok_and(|line| completer.is_open(&line))
    }

    /// Begins the next row of the line.
    fn begin_row(&mut self, out: &mut dyn Write) -> fmt::Result {
        if self.rows.try_reserve(self.line.text.len() + 1).is_err() {
            return self.refuse(LineRefusal::OutOfMemory, out);
        }
        self.move_to(self.line.text.len(), out)?;
        self.remember(Key::Enter, out)?;
        out.write_char('\n')?;
        self.rows.push_str(&self.line.text);
        self.rows.push('\n');
        self.line.text.clear();
        self.cursor = 0;
        self.shown = self.history.len();
        self.start(out)
    }

    fn clear(&mut self) {
        self.rows = String::new();
        self.line = EditedLine::default();
        self.draft = EditedLine::default();
        self.cursor = 0;
        self.columns = None;
        self.shown = self.history.len();
    }

    /// Completes the word before the cursor, or lists the names that it may become if `is_again`.
    fn complete(&mut self, completer: &mut dyn Completer, is_again: bool, out: &mut dyn Write) -> fmt::Result {
        let mut found = Candidates::default();
        let outcome = self.line_to(self.cursor).and_then(|before| completer.complete(&before, &mut found));
        let (word, common) = (found.word(), found.common());
        let is_after_blank = self.line.text[..self.cursor].chars().next_back().is_none_or(char::is_whitespace);
        self.is_ambiguous = found.names().len() > 1;
        if outcome.is_err() {
            out.write_str(BELL)
        } else if found.names().is_empty() && is_after_blank {
            self.insert(' ', out)
        } else if common.len() > word.len() && common.contains(word) {
            self.replace(self.cursor - word.len(), common, out)
        } else if self.is_ambiguous && is_again {
            let cursor = self.cursor;
            self.move_to(self.line.text.len(), out)?;
            out.write_char('\n')?;
            found.write(self.columns.unwrap_or(USUAL_COLUMNS), out)?;
            self.show_row(cursor, out)
        } else {
            out.write_str(BELL)
        }
    }
}

#[cfg(test)]
mod tests;
