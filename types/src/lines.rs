//! Source lines: the line of each instruction, and the instructions that begin each line.
//!
//! A function that is inlined into others has its lines there, too. So a line may begin at many places.

use core::ops::Range;

use crate::model::Declaration;
use crate::record::Cursor;
use crate::shared::Shared;

/// The largest number of rows in a block; the writer starts a new block after them.
#[cfg(any(test, feature = "write"))]
pub(crate) const BLOCK: usize = 256;
/// Bit of a row's first byte: the instruction begins a statement.
const STATEMENT: u8 = 1;
/// Index of a line in a row's first byte: the line is not among the recent ones.
const OTHER: u8 = 15;
/// The number of recent lines that a row can refer to.
const RECENT: usize = 15;
/// Index of a file: the file is not among the recent ones.
const OTHER_FILE: u64 = 3;

/// The recent lines and files that a row can refer to. The writer and the reader update this state in the same way.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// The recent lines with their files, the last one first. No row refers to the first: only the first row of a
    /// function, or the first that begins a statement, can repeat it, and is written like a line that is not recent.
    lines: [(u32, u32); RECENT + 1],
    /// The recent files, each with its last line, the last one first.
    files: [(u32, u32); OTHER_FILE as usize],
}

/// Puts `new` at the front of `all`. It is removed from its old place; if it is not there, the last element drops out.
fn to_front<T: Copy>(all: &mut [T], new: T, is_it: impl Fn(&T) -> bool) {
    let at = all.iter().position(is_it).unwrap_or(all.len().saturating_sub(1));
    if let Some(moved) = all.get_mut(..=at) {
        moved.rotate_right(1);
    }
    if let Some(first) = all.first_mut() {
        *first = new;
    }
}

impl History {
    fn remember(&mut self, file: u32, line: u32) {
        to_front(&mut self.lines, (file, line), |other| *other == (file, line));
        to_front(&mut self.files, (file, line), |(other, _)| *other == file);
    }

    /// Returns the last line of a file.
    fn last_of(&self, file: u32) -> u32 {
        self.files.iter().find(|(other, _)| *other == file).map_or(0, |(_, line)| *line)
    }
}

/// The source lines in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines<'a> {
    shared: Shared<'a>,
    parts: Parts<'a>,
}

/// The parts of a table about source lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// The offset of the first address of each block, and the offset of its rows.
    pub blocks: &'a [[u32; 2]],
    pub rows: &'a [u8],
    /// The offset of the name of each file.
    pub files: &'a [u32],
}

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLine<'a> {
    /// The path of the file, relative to its crate or to the workspace.
    pub file: &'a str,
    /// The number of the line, from 1.
    pub line: u32,
}

/// Consecutive instructions that come from one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRow {
    /// The virtual address of the first instruction.
    pub address: u64,
    /// The number of the file.
    pub file: u32,
    /// The number of the line; 0 if the instructions come from no line.
    pub line: u32,
    /// Whether the first instruction begins a statement of the line.
    pub is_statement: bool,
}

/// Why a line cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError<'a> {
    /// The image has no table of lines.
    NoLines,
    /// No file has this path.
    NoFile,
    /// Several files have this path; these are two of them.
    Files(&'a str, &'a str),
    /// No instruction begins the line.
    NoLine {
        /// The file.
        file: &'a str,
        /// The nearest earlier line that an instruction begins.
        before: Option<u32>,
        /// The nearest later line that an instruction begins.
        after: Option<u32>,
    },
    /// The debugging information does not say where the function is declared.
    NoDeclaration,
    /// No instruction of the function comes from the line, counted from its declaration, or from a later one.
    AfterFunction {
        /// The last line that instructions of the function come from, counted from its declaration.
        last: u32,
    },
    /// No instruction of the function begins a line of the function itself.
    NoLineOfFunction,
}

impl core::fmt::Display for LineError<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoLines => out.write_str("this image has no table of source lines"),
            Self::NoFile => out.write_str("no instruction comes from a file of this name"),
            Self::Files(one, other) => {
                write!(out, "several files have this name, such as {one} and {other}; give more of the path")
            }
            Self::NoLine { file, before, after } => {
                write!(out, "this line of {file} has no instruction of its own")?;
                match (before, after) {
                    (Some(before), Some(after)) => write!(out, "; the nearest lines are {before} and {after}"),
                    (Some(nearest), None) | (None, Some(nearest)) => write!(out, "; the nearest line is {nearest}"),
                    (None, None) => Ok(()),
                }
            }
            Self::NoDeclaration => out.write_str("the debugging information does not say where this is declared"),
            Self::AfterFunction { last } => {
                write!(
                    out,
                    "no instruction of the function comes from this line or a later one; its last line is {last}"
                )
            }
            Self::NoLineOfFunction => out.write_str("no instruction of the function begins a line of its own source"),
        }
    }
}

/// The usual form: `src/lib.rs:12`.
impl core::fmt::Display for SourceLine<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

impl<'a> Lines<'a> {
    /// Returns the source lines of a table; `None` if it has none.
    pub(crate) fn of(shared: Shared<'a>, parts: Parts<'a>) -> Option<Self> {
        (!parts.blocks.is_empty()).then_some(Self { shared, parts })
    }

    /// Checks that every row can be read, that rows are in ascending order of address, within 4 GiB from the base, and
    /// that the first row of each block is at the address of the block.
    pub(crate) fn check(&self) -> Option<()> {
        let mut last = None;
        for number in 0..self.parts.blocks.len() {
            let mut rows = self.block(number)?;
            let start = rows.row.address;
            if rows.clone().next()?.address != start {
                return None;
            }
            while let Some(row) = rows.next_row()? {
                u32::try_from(row.address.checked_sub(self.shared.base)?).ok()?;
                if last.is_some_and(|last| row.address <= last) || row.line > 0 && self.file(row.file).is_none() {
                    return None;
                }
                last = Some(row.address);
            }
        }
        Some(())
    }

    fn block(&self, number: usize) -> Option<LineRows<'a>> {
        let [first, start] = self.parts.blocks.get(number)?.map(u32::from_le);
        let end = match self.parts.blocks.get(number + 1) {
            Some([_, end]) => u32::from_le(*end) as usize,
            None => self.parts.rows.len(),
        };
        let rest = Cursor(self.parts.rows.get(start as usize..end)?);
        let address = self.shared.base.checked_add(first.into())?;
        let row = LineRow { address, file: 0, line: 0, is_statement: false };
        Some(LineRows { rest, row, history: History::default() })
    }

    /// Returns all rows, in ascending order of address.
    pub fn rows(&self) -> impl Iterator<Item = LineRow> + Clone + use<'a> {
        self.rows_from(0)
    }

    /// Returns the rows from block `next` on.
    fn rows_from(&self, next: usize) -> RowsFrom<'a> {
        RowsFrom { lines: *self, next, rows: None }
    }

    /// Returns the row of the instruction at the virtual address `address`; `None` if it comes from no line.
    #[must_use]
    pub fn row(&self, address: u64) -> Option<LineRow> {
        let offset = u32::try_from(address.checked_sub(self.shared.base)?).ok()?;
        let after = self.parts.blocks.partition_point(|[first, _]| u32::from_le(*first) <= offset);
        let rows = self.block(after.checked_sub(1)?)?;
        rows.take_while(|row| row.address <= address).last().filter(|row| row.line > 0)
    }

    /// Returns the line of the instruction at the virtual address `address`.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<SourceLine<'a>> {
        let row = self.row(address)?;
        Some(SourceLine { file: self.file(row.file)?, line: row.line })
    }

    /// Returns the line of a declaration.
    #[must_use]
    pub fn line(&self, declaration: Declaration) -> Option<SourceLine<'a>> {
        Some(SourceLine { file: self.file(declaration.file)?, line: declaration.line })
    }

    /// Returns the path of a file.
    #[must_use]
    pub fn file(&self, number: u32) -> Option<&'a str> {
        self.shared.name(u32::from_le(*self.parts.files.get(number as usize)?))
    }

    /// Returns the numbers and paths of the files that `path` may mean: those whose last components are those of
    /// `path`.
    pub fn files<'b>(&self, path: &'b str) -> impl Iterator<Item = (u32, &'a str)> + Clone + use<'a, 'b> {
        let lines = *self;
        (0..self.parts.files.len() as u32).filter_map(move |number| {
            let file = lines.file(number)?;
            let before = file.strip_suffix(path)?;
            (before.is_empty() || before.ends_with('/')).then_some((number, file))
        })
    }

    /// Returns the number and path of the file that `path` means.
    ///
    /// # Errors
    ///
    /// Fails if no file or several files match.
    pub fn find(&self, path: &str) -> Result<(u32, &'a str), LineError<'a>> {
        // The whole path of one file may be the end of another file's path.
        let is_whole = |(_, file): &(u32, &str)| *file == path;
        if let Some(whole) = self.files(path).find(is_whole) {
            return Ok(whole);
        }
        let mut files = self.files(path);
        match (files.next(), files.next()) {
            (None, _) => Err(LineError::NoFile),
            (Some(one), None) => Ok(one),
            (Some((_, one)), Some((_, other))) => Err(LineError::Files(one, other)),
        }
    }

    /// Returns the virtual addresses of the instructions that begin line `line` of the file that `path` means. There is
    /// at least one.
    ///
    /// # Errors
    ///
    /// Fails if no file or several files match, or if no instruction begins the line.
    pub fn places(&self, path: &str, line: u32) -> Result<impl Iterator<Item = u64> + Clone + use<'a>, LineError<'a>> {
        let (number, file) = self.find(path)?;
        let places = self.begins(number, line);
        if places.clone().next().is_none() {
            let [before, after] = self.nearest(number, line);
            return Err(LineError::NoLine { file, before, after });
        }
        Ok(places)
    }

    /// Returns the virtual addresses of the instructions that begin line `line` of a file.
    pub fn begins(&self, file: u32, line: u32) -> impl Iterator<Item = u64> + Clone + use<'a> {
        let is_it = move |row: &LineRow| row.file == file && row.line == line && row.is_statement;
        self.rows().filter(is_it).map(|row| row.address)
    }

    /// Returns the instructions of a function that begin a line, as virtual addresses, and the line. The line `wanted`
    /// is counted from the declaration, which is line 0. If no instruction begins it, the next line of the function
    /// that one begins is returned.
    ///
    /// The function is declared at `declaration`, and its instructions are at the virtual addresses `within`.
    ///
    /// # Errors
    ///
    /// Fails if no instruction begins this line or a later one of the function.
    pub fn of_function(
        &self,
        declaration: Declaration,
        within: Range<u64>,
        wanted: u32,
    ) -> Result<(u32, impl Iterator<Item = u64> + Clone + use<'a>), LineError<'a>> {
        let lines = *self;
        // The file may have more functions, which may be inlined into this one.
        let count = move |row: &LineRow| declaration.count(row.line).filter(|_| row.file == declaration.file);
        let rows = move || lines.within(within.clone()).filter(|row| row.is_statement);
        let counts = rows().filter_map(move |row| count(&row));
        let found = counts.clone().filter(|&count| count >= wanted).min();
        let none = || counts.max().map_or(LineError::NoLineOfFunction, |last| LineError::AfterFunction { last });
        let found = found.ok_or_else(none)?;
        Ok((found, rows().filter(move |row| count(row) == Some(found)).map(|row| row.address)))
    }

    /// Returns the rows that begin at the virtual addresses `within`.
    pub fn within(&self, within: Range<u64>) -> impl Iterator<Item = LineRow> + Clone + use<'a> {
        let offset = u32::try_from(within.start.saturating_sub(self.shared.base)).unwrap_or(u32::MAX);
        let after = self.parts.blocks.partition_point(|[first, _]| u32::from_le(*first) <= offset);
        let rows = self.rows_from(after.saturating_sub(1));
        rows.take_while(move |row| row.address < within.end).filter(move |row| row.address >= within.start)
    }

    /// Returns the nearest lines of a file that instructions begin: before `line`, and after it.
    #[must_use]
    pub fn nearest(&self, file: u32, line: u32) -> [Option<u32>; 2] {
        let lines = || self.rows().filter(move |row| row.file == file && row.is_statement).map(|row| row.line);
        let before = lines().filter(|&other| other > 0 && other < line).max();
        [before, lines().filter(|&other| other > line).min()]
    }
}

/// The rows from a block on. The adapters of iterators would have the state of two blocks.
#[derive(Clone, Debug)]
struct RowsFrom<'a> {
    lines: Lines<'a>,
    /// The number of the block after the current one.
    next: usize,
    /// The rest of the current block.
    rows: Option<LineRows<'a>>,
}

impl Iterator for RowsFrom<'_> {
    type Item = LineRow;

    fn next(&mut self) -> Option<LineRow> {
        loop {
            if let Some(row) = self.rows.as_mut().and_then(LineRows::next) {
                return Some(row);
            }
            if self.next >= self.lines.parts.blocks.len() {
                return None;
            }
            self.rows = self.lines.block(self.next);
            self.next += 1;
        }
    }
}

/// The rows of a block.
#[derive(Clone, Debug)]
struct LineRows<'a> {
    rest: Cursor<'a>,
    row: LineRow,
    history: History,
}

impl LineRows<'_> {
    /// Reads the next row. Returns `Some(None)` at the end, and `None` if the bytes are not a row.
    fn next_row(&mut self) -> Option<Option<LineRow>> {
        if self.rest.0.is_empty() {
            return Some(None);
        }
        let [first] = *self.rest.bytes(1)?.first_chunk::<1>()?;
        let distance = match first >> 5 {
            0 => self.rest.number()?,
            words => words.into(),
        };
        let (file, line) = match first >> 1 & OTHER {
            OTHER => {
                let number = self.rest.number()?;
                let file = match number & OTHER_FILE {
                    OTHER_FILE => self.rest.word()?,
                    place => self.history.files.get(place as usize)?.0,
                };
                // The lowest bit is the sign.
                let change = (number >> 3).cast_signed() ^ -(number >> 2 & 1).cast_signed();
                (file, u32::try_from(i64::from(self.history.last_of(file)).checked_add(change)?).ok()?)
            }
            number => *self.history.lines.get(usize::from(number) + 1)?,
        };
        let address = self.row.address.checked_add(distance.checked_mul(4)?)?;
        self.row = LineRow { address, file, line, is_statement: first & STATEMENT != 0 };
        self.history.remember(file, line);
        Some(Some(self.row))
    }
}

impl Iterator for LineRows<'_> {
    type Item = LineRow;

    fn next(&mut self) -> Option<LineRow> {
        let row = self.next_row().flatten();
        if row.is_none() {
            self.rest = Cursor(&[]);
        }
        row
    }
}

/// Writes the rows of a block. The distance of the first row counts from its own address, so it is 0.
#[cfg(any(test, feature = "write"))]
pub(crate) fn write_block(block: &[LineRow], out: &mut std::vec::Vec<u8>) {
    use kprobes_symbols::frame::put;

    let mut last = block.first().map_or(0, |row| row.address);
    let mut history = History::default();
    for &LineRow { address, file, line, is_statement } in block {
        let words = address.saturating_sub(last) / 4;
        let recent = history.lines.iter().skip(1).position(|other| *other == (file, line));
        let number = recent.filter(|&number| number < usize::from(OTHER)).map_or(OTHER, |number| number as u8);
        let short = if words < 8 { words as u8 } else { 0 };
        out.push(short << 5 | number << 1 | u8::from(is_statement));
        if short == 0 {
            put(out, words);
        }
        if number == OTHER {
            let place = history.files.iter().position(|(other, _)| *other == file).map_or(OTHER_FILE, |at| at as u64);
            let change = i64::from(line) - i64::from(history.last_of(file));
            put(out, (change << 1 ^ change >> 63).cast_unsigned() << 2 | place);
            if place == OTHER_FILE {
                put(out, file.into());
            }
        }
        history.remember(file, line);
        last = address;
    }
}
