//! Drawing the row that is being typed: the terminal shows it after the prompt, and redraws only what has changed.

use core::fmt::{self, Write};

use super::LineEditor;
use super::rows::Cell;

/// ED, ECMA-48, section 8.3.39.
const ERASE_TO_END: &str = "\x1b[J";

/// The prompt of the rows of a line after the first.
const NEXT_ROW: &str = "> ";

impl LineEditor {
    /// Returns the parts of the prompt of the row.
    pub(super) fn prompt(&self) -> [&str; 3] {
        match &self.search {
            Some(search) => ["(reverse-i-search)`", &search.wanted, "': "],
            None if self.rows.is_empty() => [self.prompt, "", ""],
            None => [NEXT_ROW, "", ""],
        }
    }

    /// Redraws the line from `start` to its end, and moves the cursor to `cursor`. The terminal's cursor is at `place`,
    /// where the character at `start` was shown before.
    pub(super) fn redraw(&mut self, place: Cell, start: usize, cursor: usize, out: &mut dyn Write) -> fmt::Result {
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

    pub(super) fn move_to(&mut self, position: usize, out: &mut dyn Write) -> fmt::Result {
        if position != self.cursor {
            self.cell(self.cursor).go(self.cell(position), out)?;
        }
        self.cursor = position;
        Ok(())
    }

    /// Returns the cell in which the byte `at` of the line is shown. Without known columns, the whole line is in one
    /// row.
    pub(super) fn cell(&self, at: usize) -> Cell {
        Cell::of(self.prompt(), &self.line.text, at, self.columns.unwrap_or(usize::MAX))
    }

    /// Moves the terminal's cursor to the next row after a write to the last column. The terminal itself would stay
    /// there until the next character.
    pub(super) fn leave_full_row(&self, out: &mut dyn Write) -> fmt::Result {
        let is_full =
            self.columns.is_some() && self.cursor == self.line.text.len() && self.cell(self.cursor).column == 0;
        if is_full { out.write_char('\n') } else { Ok(()) }
    }

    /// Makes a change that the prompt depends on, and shows the row again with the cursor at `cursor`.
    pub(super) fn change(&mut self, cursor: usize, out: &mut dyn Write, change: impl FnOnce(&mut Self)) -> fmt::Result {
        self.cell(self.cursor).go(Cell { row: 0, column: 0 }, out)?;
        change(self);
        out.write_str(ERASE_TO_END)?;
        self.show_row(cursor, out)
    }

    /// Shows the prompt and the row from the terminal's cursor on, and moves to `cursor`.
    pub(super) fn show_row(&mut self, cursor: usize, out: &mut dyn Write) -> fmt::Result {
        self.start(out)?;
        out.write_str(&self.line.text)?;
        self.cursor = self.line.text.len();
        self.leave_full_row(out)?;
        self.move_to(cursor, out)
    }
}
