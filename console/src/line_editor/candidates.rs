//! The names that can stand in place of a word, and a list of them in columns.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use fallible::OutOfMemory;

use super::rows::width;

/// The maximum number of names that are kept. Others are counted.
const NAMES_MAX: usize = 1000;
/// The maximum number of rows of a list.
pub(super) const ROWS_MAX: usize = 20;

/// The names that can stand in place of a word. Each ends with the text that follows it in a line, such as a blank.
#[derive(Debug, Default)]
pub struct Candidates {
    word: String,
    /// The names in order, each once.
    names: Vec<String>,
    /// The number of names that were not kept.
    left_out: usize,
    /// The text with which all names begin.
    common: String,
}

impl Candidates {
    /// Begins to look for names in place of `word`.
    ///
    /// # Errors
    ///
    /// There is no memory for the word.
    pub fn look_for(&mut self, word: &str) -> Result<(), OutOfMemory> {
        *self = Self { word: fallible::copy(word)?, ..Self::default() };
        Ok(())
    }

    /// Returns the word.
    #[must_use]
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Returns the names in order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the longest text with which all names begin, which for a part of a path may be longer than the part.
    #[must_use]
    pub fn common(&self) -> &str {
        &self.common
    }

    /// Adds `name`, and `end` after it, if it begins with the word.
    ///
    /// # Errors
    ///
    /// There is no memory for the name.
    pub fn offer(&mut self, name: &str, end: &str) -> Result<(), OutOfMemory> {
        if !name.starts_with(&*self.word) {
            return Ok(());
        }
        let name = fallible::format(format_args!("{name}{end}"))?;
        self.narrow(&name)?;
        self.keep(name)
    }

    /// Adds `path` up to the first `separator` after the word, if it begins with the word.
    ///
    /// # Errors
    ///
    /// There is no memory for the path.
    pub fn offer_path(&mut self, path: &str, separator: &str) -> Result<(), OutOfMemory> {
        let Some(rest) = path.strip_prefix(&*self.word) else { return Ok(()) };
        self.narrow(path)?;
        let end = rest.find(separator).map_or(path.len(), |at| path.len() - rest.len() + at + separator.len());
        self.keep(fallible::copy(&path[..end])?)
    }

    /// Adds the path of a function if one of its segments begins with the word.
    ///
    /// # Errors
    ///
    /// There is no memory for the path.
    pub fn offer_segment(&mut self, path: &str) -> Result<(), OutOfMemory> {
        let is_start = |at: usize| !path[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if self.word.is_empty() || !path.match_indices(&*self.word).any(|(at, _)| is_start(at)) {
            return Ok(());
        }
        self.narrow(path)?;
        self.keep(fallible::copy(path)?)
    }

    /// Shortens the common text to the part with which `name` begins, too.
    fn narrow(&mut self, name: &str) -> Result<(), OutOfMemory> {
        if self.names.is_empty() {
            self.common = fallible::copy(name)?;
        }
        let same = self.common.chars().zip(name.chars()).take_while(|(one, other)| one == other);
        let length = same.map(|(one, _)| one.len_utf8()).sum();
        self.common.truncate(length);
        Ok(())
    }

    fn keep(&mut self, name: String) -> Result<(), OutOfMemory> {
        match self.names.binary_search(&name) {
            Ok(_) => {}
            Err(_) if self.names.len() == NAMES_MAX => self.left_out += 1,
            Err(at) => {
                fallible::reserve(&mut self.names, 1)?;
                self.names.insert(at, name);
            }
        }
        Ok(())
    }

    /// Writes the names in columns, for a terminal with this number of columns. Leaves out the common part of the paths
    /// up to the last `/` or `:` of the word.
    pub(super) fn write(&self, columns: usize, out: &mut dyn Write) -> fmt::Result {
        let is_prefix = self.common.starts_with(&*self.word);
        let cut = self.word.rfind(['/', ':']).filter(|_| is_prefix).map_or(0, |at| at + 1);
        let name_at = |index: usize| self.names.get(index)?.get(cut..).map(str::trim_end);
        let widest = (0..self.names.len()).filter_map(name_at).map(width).max().unwrap_or(0) + 2;
        let across = (columns / widest).max(1);
        let count = self.names.len().min(across * ROWS_MAX);
        let rows = count.div_ceil(across);
        for row in 0..rows {
            for index in (row..count).step_by(rows) {
                let name = name_at(index).unwrap_or_default();
                let blanks = if index + rows < count { widest - width(name) } else { 0 };
                write!(out, "{name}{:blanks$}", "")?;
            }
            out.write_char('\n')?;
        }
        match self.left_out + self.names.len() - count {
            0 => Ok(()),
            more => writeln!(out, "and {more} more"),
        }
    }
}
