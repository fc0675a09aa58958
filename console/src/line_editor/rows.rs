//! The cells in which a terminal shows the characters of a line. The terminal wraps to the next row when a row is full.

use core::fmt::{self, Write};

use unicode_width::UnicodeWidthChar;

/// A cell of the terminal. Row 0 and column 0 are where the prompt begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub row: usize,
    pub column: usize,
}

/// Returns the number of columns that a text takes in one row.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(of).sum()
}

pub(super) fn of(character: char) -> usize {
    character.width().unwrap_or(0)
}

impl Cell {
    /// Returns the cell of the character at byte `at` of `text`, or of the end of the text. The text follows the parts
    /// of `prompt`, in rows of `columns`. A character of two columns is not shown in the last column, but in the next
    /// row.
    pub fn of(prompt: [&str; 3], text: &str, at: usize, columns: usize) -> Self {
        let mut cell = Self { row: 0, column: 0 };
        for character in prompt.into_iter().chain([&text[..at]]).flat_map(str::chars) {
            cell = cell.with_room_for(of(character), columns);
            cell.column += of(character);
        }
        cell.with_room_for(text[at..].chars().next().map_or(1, of), columns)
    }

    fn with_room_for(self, width: usize, columns: usize) -> Self {
        let is_full = width > 0 && self.column.saturating_add(width) > columns;
        if is_full { Self { row: self.row + 1, column: 0 } } else { self }
    }

    /// Moves the terminal's cursor from this cell to `other`.
    pub fn go(self, other: Self, out: &mut dyn Write) -> fmt::Result {
        if self.row != other.row {
            let (count, way) =
                if other.row < self.row { (self.row - other.row, 'A') } else { (other.row - self.row, 'B') };
            write!(out, "\x1b[{count}{way}")?;
        }
        match (other.column, self.column) {
            (0, 1..) => out.write_char('\r'),
            (to, from) if to + 1 == from => out.write_char('\x08'),
            (to, from) if to < from => write!(out, "\x1b[{}D", from - to),
            (to, from) if to > from => write!(out, "\x1b[{}C", to - from),
            _ => Ok(()),
        }
    }
}
