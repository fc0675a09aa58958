//! Editing the row: changes of its text, and the offsets of the characters and words around the cursor.

use core::fmt::{self, Write};

use super::{BELL, LineEditor, LineRefusal};

impl LineEditor {
    pub(super) fn insert(&mut self, character: char, out: &mut dyn Write) -> fmt::Result {
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
    pub(super) fn replace(&mut self, start: usize, text: &str, out: &mut dyn Write) -> fmt::Result {
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
    pub(super) fn take(&mut self, start: usize, end: usize, out: &mut dyn Write) -> fmt::Result {
        if start == end {
            return Ok(());
        }
        let Ok(removed) = fallible::copy(&self.line.text[start..end]) else { return out.write_str(BELL) };
        self.removed = removed;
        self.remove(start, end, out)
    }

    /// Exchanges the character before the cursor with the one at it, or the last two.
    pub(super) fn transpose(&mut self, out: &mut dyn Write) -> fmt::Result {
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
    pub(super) fn remove(&mut self, start: usize, end: usize, out: &mut dyn Write) -> fmt::Result {
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

    /// Returns the offset of the character before the cursor.
    pub(super) fn before(&self) -> usize {
        self.line.text[..self.cursor].char_indices().next_back().map_or(0, |(at, _)| at)
    }

    /// Returns the offset after the character at the cursor.
    pub(super) fn after_cursor(&self) -> usize {
        self.cursor + self.line.text[self.cursor..].chars().next().map_or(0, char::len_utf8)
    }

    /// Returns the offset after the last blank before the cursor that a character follows.
    pub(super) fn blank_before(&self) -> usize {
        let before = self.line.text[..self.cursor].trim_end();
        before.rfind(' ').map_or(0, |space| space + 1)
    }

    /// Returns the offset of the word before the cursor.
    pub(super) fn word_before(&self) -> usize {
        let before = self.line.text[..self.cursor].trim_end_matches(|c: char| !c.is_alphanumeric());
        before.trim_end_matches(char::is_alphanumeric).len()
    }

    /// Returns the offset of the end of the word after the cursor.
    pub(super) fn word_after(&self) -> usize {
        let after = self.line.text[self.cursor..].trim_start_matches(|c: char| !c.is_alphanumeric());
        self.line.text.len() - after.trim_start_matches(char::is_alphanumeric).len()
    }
}
