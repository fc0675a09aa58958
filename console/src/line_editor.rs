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
mod keys;
mod rows;

use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt::{self, Write};
use core::mem;

pub use candidates::Candidates;
use fallible::{OutOfMemory, TryClone};
use keys::{Key, Keys, Noise};
pub use kprobes_wire::history::LINE_MAX;
use kprobes_wire::history::Report;
use rows::{Cell, width};

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

/// The prompt of the rows of a line after the first.
const NEXT_ROW: &str = "> ";

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

/// A search in the history.
#[derive(Debug)]
struct Search {
    wanted: String,
    /// The line from before the search, its cursor, and its index as in `LineEditor::shown`.
    line: EditedLine,
    cursor: usize,
    shown: usize,
}

/// The state of the program on the host that keeps the history, if there is one.
#[derive(Debug, Default)]
struct HistoryKeeper {
    /// Whether lines are reported to the program.
    is_present: bool,
    /// Whether the program was asked for its lines.
    is_asked: bool,
    /// The earlier line that the program is sending, and whether there was room for all of the line.
    earlier: Option<(String, bool)>,
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

    /// Returns the parts of the prompt of the row.
    fn prompt(&self) -> [&str; 3] {
        match &self.search {
            Some(search) => ["(reverse-i-search)`", &search.wanted, "': "],
            None if self.rows.is_empty() => [self.prompt, "", ""],
            None => [NEXT_ROW, "", ""],
        }
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

    /// Handles a key that the program on the host sends about the history. Returns `false` for other keys.
    fn is_from_keeper(&mut self, key: Key, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        match (key, &mut self.keeper.earlier) {
            (Key::KeepHistory, _) => {
                self.keeper.is_present = true;
                if !mem::replace(&mut self.keeper.is_asked, true) {
                    tell(Report::<&str>::First, out)?;
                }
            }
            (Key::LeaveHistory, _) => self.keeper.is_present = false,
            (Key::EarlierBegin, earlier) => *earlier = Some((String::new(), true)),
            (Key::Character(character), Some((text, is_whole))) => {
                *is_whole &=
                    text.len() + character.len_utf8() <= LINE_MAX && fallible::push_char(text, character).is_ok();
            }
            (Key::EarlierEnd, Some(_)) => {
                if self.remember_earlier() {
                    tell(Report::<&str>::Next, out)?;
                }
            }
            // The end of a line without its beginning is noise, or noise has cut the line off.
            (Key::EarlierEnd, None) => self.refuse(LineRefusal::NoKey, out)?,
            (_, earlier) => {
                *earlier = None;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the line from the host at the front of the history. Returns whether there is room for more.
    fn remember_earlier(&mut self) -> bool {
        let is_new = |text: &String| !text.is_empty() && self.history.front() != Some(text);
        let text = self.keeper.earlier.take().and_then(|(text, is_whole)| (is_whole && is_new(&text)).then_some(text));
        if self.history.len() == HISTORY_MAX || self.history.try_reserve(1).is_err() {
            return false;
        }
        if let Some(text) = text {
            self.history.push_front(text);
            self.shown += 1;
            self.search.iter_mut().for_each(|search| search.shown += 1);
        }
        self.history.len() < HISTORY_MAX
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
            Key::Search => match self.line.try_clone() {
                Ok(line) => {
                    let Self { cursor, shown, .. } = *self;
                    let search = Search { wanted: String::new(), line, cursor, shown };
                    // Noise in a search refuses the line that is found.
                    self.line.refusal = None;
                    self.change(cursor, out, |editor| editor.search = Some(search))?;
                }
                Err(OutOfMemory) => out.write_str(BELL)?,
            },
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

    /// Adds the row that `key` ends to the history if `key` is the enter key, and if the row is neither empty nor equal
    /// to the newest row there. Reports the row to the program on the host that keeps the history. If there is no
    /// memory, the row cannot be recalled.
    fn remember(&mut self, key: Key, out: &mut dyn Write) -> fmt::Result {
        let text = &self.line.text;
        if key == Key::Enter
            && !text.trim().is_empty()
            && self.history.back() != Some(text)
            && let Ok(kept) = fallible::copy(text)
            && self.history.try_reserve(1).is_ok()
        {
            if self.history.len() == HISTORY_MAX {
                self.history.pop_front();
            }
            self.history.push_back(kept);
            if self.keeper.is_present {
                tell(Report::Line(text), out)?;
            }
        }
        Ok(())
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

    fn insert(&mut self, character: char, out: &mut dyn Write) -> fmt::Result {
        if !self.has_room(self.line.text.len() + character.len_utf8()) {
            return self.refuse(LineRefusal::TooLong, out);
        }
        let behind = self.cursor + character.len_utf8();
        if self.cursor == self.line.text.len() {
            if fallible::push_char(&mut self.line.text, character).is_err() {
                return self.refuse(LineRefusal::OutOfMemory, out);
            }
            self.cursor = behind;
            out.write_char(character)?;
            return self.leave_full_row(out);
        }
        let place = self.cell(self.cursor);
        if self.line.text.try_reserve(character.len_utf8()).is_err() {
            return self.refuse(LineRefusal::OutOfMemory, out);
        }
        self.line.text.insert(self.cursor, character);
        self.redraw(place, self.cursor, behind, out)
    }

    /// Replaces the text from `start` to the cursor. Rings the bell, and leaves the line as it is, if there is no room.
    fn replace(&mut self, start: usize, text: &str, out: &mut dyn Write) -> fmt::Result {
        let is_room = self.has_room(self.line.text.len() - (self.cursor - start) + text.len());
        if !is_room || self.line.text.try_reserve(text.len()).is_err() {
            return out.write_str(BELL);
        }
        let end = self.cursor;
        if start == self.line.text.len() {
            // Nothing is erased: the terminal's cursor may still be in the last column.
            self.line.text.push_str(text);
            self.cursor = self.line.text.len();
            out.write_str(text)?;
            return self.leave_full_row(out);
        }
        self.move_to(start, out)?;
        let place = self.cell(start);
        self.line.text.replace_range(start..end, text);
        self.redraw(place, start, start + text.len(), out)
    }

    /// Removes the text from `start` to `end`, and keeps it for `^Y`. The cursor is between them.
    fn take(&mut self, start: usize, end: usize, out: &mut dyn Write) -> fmt::Result {
        if start == end {
            return Ok(());
        }
        let Ok(removed) = fallible::copy(&self.line.text[start..end]) else { return out.write_str(BELL) };
        self.removed = removed;
        self.remove(start, end, out)
    }

    /// Exchanges the character before the cursor with the one at it, or the last two.
    fn transpose(&mut self, out: &mut dyn Write) -> fmt::Result {
        let at = if self.cursor == self.line.text.len() { self.before() } else { self.cursor };
        let start = self.line.text[..at].char_indices().next_back().map_or(at, |(start, _)| start);
        if start == at {
            return out.write_str(BELL);
        }
        self.move_to(start, out)?;
        let place = self.cell(start);
        // There is room for the character that was just removed.
        let second = self.line.text.remove(at);
        self.line.text.insert(start, second);
        self.redraw(place, start, at + second.len_utf8(), out)
    }

    /// Removes the text from `start` to `end`. The cursor is between them.
    fn remove(&mut self, start: usize, end: usize, out: &mut dyn Write) -> fmt::Result {
        if start == end {
            return Ok(());
        }
        self.move_to(start, out)?;
        let place = self.cell(start);
        self.line.text.drain(start..end);
        if self.line.text.is_empty() && self.rows.is_empty() {
            // Nothing is left of the input that was refused.
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
        Cell::of(self.prompt(), &self.line.text, at, self.columns.unwrap_or(usize::MAX))
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

    /// Returns the offset after the last blank before the cursor that a character follows.
    fn blank_before(&self) -> usize {
        let before = self.line.text[..self.cursor].trim_end();
        before.rfind(' ').map_or(0, |space| space + 1)
    }

    /// Returns the offset of the word before the cursor.
    fn word_before(&self) -> usize {
        let before = self.line.text[..self.cursor].trim_end_matches(|c: char| !c.is_alphanumeric());
        before.trim_end_matches(char::is_alphanumeric).len()
    }

    /// Returns the offset of the end of the word after the cursor.
    fn word_after(&self) -> usize {
        let after = self.line.text[self.cursor..].trim_start_matches(|c: char| !c.is_alphanumeric());
        self.line.text.len() - after.trim_start_matches(char::is_alphanumeric).len()
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

    /// Handles a key in a search. Returns `false` if the key ends the search; the caller then applies the key to the
    /// line found.
    fn search_for(&mut self, key: Key, out: &mut dyn Write) -> Result<bool, fmt::Error> {
        let Some(Search { wanted, cursor, .. }) = &self.search else { return Ok(false) };
        // The text, and the end of the range of lines in which it is searched, backward.
        let (wanted, end) = match key {
            Key::Search => (fallible::copy(wanted), self.shown),
            Key::Character(character) => (fallible::format(format_args!("{wanted}{character}")), self.shown + 1),
            Key::Backspace => {
                let last = wanted.char_indices().next_back().map_or(0, |(at, _)| at);
                (fallible::copy(&wanted[..last]), self.history.len())
            }
            Key::Abort | Key::Interrupt => {
                self.change(*cursor, out, |editor| {
                    if let Some(Search { line, shown, .. }) = editor.search.take() {
                        (editor.line, editor.shown) = (line, shown);
                    }
                })?;
                return Ok(true);
            }
            _ => {
                self.change(self.cursor, out, |editor| {
                    if let Some(Search { line, shown, .. }) = editor.search.take()
                        && shown == editor.history.len()
                    {
                        if editor.shown == shown {
                            editor.line.refusal = line.refusal.or(editor.line.refusal);
                        }
                        editor.draft = line;
                    }
                })?;
                return Ok(false);
            }
        };
        let found = wanted.ok().filter(|wanted| wanted.len() <= LINE_MAX).and_then(|wanted| {
            let mut earlier = self.history.iter().enumerate().take(end).rev();
            let (index, at, text) = earlier.find_map(|(index, text)| Some((index, text.find(&wanted)?, text)))?;
            Some((wanted, index, at, fallible::copy(text).ok().filter(|text| self.has_room(text.len()))?))
        });
        match found {
            None => out.write_str(BELL)?,
            Some((wanted, index, at, text)) => self.change(at, out, |editor| {
                let refusal = editor.line.refusal;
                (editor.line, editor.shown) = (EditedLine { text, refusal }, index);
                if let Some(search) = &mut editor.search {
                    search.wanted = wanted;
                }
            })?,
        }
        Ok(true)
    }

    /// Makes a change that the prompt depends on, and shows the row again with the cursor at `cursor`.
    fn change(&mut self, cursor: usize, out: &mut dyn Write, change: impl FnOnce(&mut Self)) -> fmt::Result {
        self.cell(self.cursor).go(Cell { row: 0, column: 0 }, out)?;
        change(self);
        out.write_str(ERASE_TO_END)?;
        self.show_row(cursor, out)
    }

    /// Shows the prompt and the row from the terminal's cursor on, and moves to `cursor`.
    fn show_row(&mut self, cursor: usize, out: &mut dyn Write) -> fmt::Result {
        self.start(out)?;
        out.write_str(&self.line.text)?;
        self.cursor = self.line.text.len();
        self.leave_full_row(out)?;
        self.move_to(cursor, out)
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
            Some(text) => fallible::copy(text).map(|text| EditedLine { text, refusal: None }),
            None => self.draft.try_clone(),
        };
        let Some(line) = line.ok().filter(|line| self.has_room(line.text.len())) else { return out.write_str(BELL) };
        self.shown = index;
        self.move_to(0, out)?;
        let place = self.cell(0);
        self.line = line;
        self.redraw(place, 0, self.line.text.len(), out)
    }
}

/// Writes a report at once, so that it is whole if other tasks write meanwhile. Without memory, there is no report.
fn tell<T: fmt::Display>(report: Report<T>, out: &mut dyn Write) -> fmt::Result {
    fallible::format(format_args!("{report}")).map_or(Ok(()), |report| out.write_str(&report))
}

#[cfg(test)]
mod tests;
