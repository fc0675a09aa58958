//! Lines of source: which line an instruction is from, and which instructions begin a line.
//!
//! A function that the compiler has put into others has its lines there, too, so a line may begin at many places.

use crate::record::Cursor;
use crate::table::Types;

/// How many rows the writer puts into a block at most.
#[cfg(any(test, feature = "write"))]
pub(crate) const BLOCK: usize = 256;
/// In the first byte of a row: the instruction begins a statement.
const STATEMENT: u8 = 1;
/// The number of the line among those before, in the first byte of a row: it is none of them.
const OTHER: u8 = 15;
/// How many lines before a row it can name by a number.
const RECENT: usize = 15;
/// The number of the file: it is not that of the last line, nor one of those before it.
const OTHER_FILE: u64 = 3;

/// What a row can name by a number, as it was in its block before: the writer and the reader keep the same.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// Files and lines, the last one first. As the rows differ from those before them, no row names the first.
    lines: [(u32, u32); RECENT + 1],
    /// Files, each with the last line of it, the last one first.
    files: [(u32, u32); OTHER_FILE as usize],
}

/// Puts `new` at the front of `all`, from where it was, or out of which the last falls.
fn to_front<T: Copy>(all: &mut [T], new: T, is_it: impl Fn(&T) -> bool) {
    let at = all.iter().position(is_it).unwrap_or(all.len().saturating_sub(1));
    if let Some(moved) = all.get_mut(..=at) {
        moved.rotate_right(1);
    }
    if let Some(first) = all.first_mut() {
        *first = new;
    }
}

impl Before {
    fn remember(&mut self, file: u32, line: u32) {
        to_front(&mut self.lines, (file, line), |other| *other == (file, line));
        to_front(&mut self.files, (file, line), |(other, _)| *other == file);
    }

    /// The last line of a file.
    fn last_of(&self, file: u32) -> u32 {
        self.files.iter().find(|(other, _)| *other == file).map_or(0, |(_, line)| *line)
    }
}

/// The lines of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines<'a> {
    types: Types<'a>,
    parts: Parts<'a>,
}

/// The parts of a table that are about lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// The first address of every block, as an offset, and where its rows begin.
    pub blocks: &'a [[u32; 2]],
    pub rows: &'a [u8],
    /// Where the name of each file begins.
    pub files: &'a [u32],
}

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The path of the file, from where it is in its crate or in the workspace.
    pub file: &'a str,
    /// The number of the line, from 1 on.
    pub line: u32,
}

/// Instructions in a row that are from one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The virtual address of the first.
    pub address: u64,
    /// The number of the file.
    pub file: u32,
    /// The number of the line; 0 if they are from none.
    pub line: u32,
    /// The first of them begins a statement of the line.
    pub is_statement: bool,
}

/// Why a line is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError<'a> {
    /// The image has no table of lines.
    NoLines,
    /// No file has this path.
    NoFile,
    /// Several have: these two among others.
    Files(&'a str, &'a str),
    /// No instruction begins the line.
    NoLine {
        /// The file.
        file: &'a str,
        /// The nearest line before it that an instruction begins.
        before: Option<u32>,
        /// The nearest line after it.
        after: Option<u32>,
    },
}

impl core::fmt::Display for LineError<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoLines => out.write_str("this image does not say which lines its instructions are from"),
            Self::NoFile => out.write_str("no instruction is from a file of this name"),
            Self::Files(one, other) => {
                write!(out, "several files have this name, as {one} and {other}; give more of the path")
            }
            Self::NoLine { file, before, after } => {
                write!(out, "no instruction begins this line of {file}")?;
                match (before, after) {
                    (Some(before), Some(after)) => write!(out, "; the nearest lines are {before} and {after}"),
                    (Some(nearest), None) | (None, Some(nearest)) => write!(out, "; the nearest line is {nearest}"),
                    (None, None) => Ok(()),
                }
            }
        }
    }
}

/// As people write it: `src/lib.rs:12`.
impl core::fmt::Display for Line<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

impl<'a> Lines<'a> {
    /// The lines of `types`, if the table has any.
    pub(crate) fn of(types: Types<'a>, parts: Parts<'a>) -> Option<Self> {
        (!parts.blocks.is_empty()).then_some(Self { types, parts })
    }

    /// Whether every row is one, in ascending order of address.
    pub(crate) fn check(&self) -> Option<()> {
        let mut last = None;
        for number in 0..self.parts.blocks.len() {
            let mut rows = self.block(number)?;
            while let Some(row) = rows.next_row()? {
                if last.is_some_and(|last| row.address <= last) || row.line > 0 && self.file(row.file).is_none() {
                    return None;
                }
                last = Some(row.address);
            }
        }
        Some(())
    }

    fn block(&self, number: usize) -> Option<Rows<'a>> {
        let [first, start] = self.parts.blocks.get(number)?.map(u32::from_le);
        let end = match self.parts.blocks.get(number + 1) {
            Some([_, end]) => u32::from_le(*end) as usize,
            None => self.parts.rows.len(),
        };
        let rest = Cursor(self.parts.rows.get(start as usize..end)?);
        let address = self.types.base().checked_add(first.into())?;
        let row = Row { address, file: 0, line: 0, is_statement: false };
        Some(Rows { rest, row, before: Before::default() })
    }

    /// All rows, in ascending order of address.
    pub fn rows(&self) -> impl Iterator<Item = Row> + Clone + use<'a> {
        let lines = *self;
        (0..self.parts.blocks.len()).flat_map(move |number| lines.block(number).into_iter().flatten())
    }

    /// The row that has the instruction at the virtual address `address`.
    #[must_use]
    pub fn row(&self, address: u64) -> Option<Row> {
        let offset = u32::try_from(address.checked_sub(self.types.base())?).ok()?;
        let after = self.parts.blocks.partition_point(|[first, _]| u32::from_le(*first) <= offset);
        let rows = self.block(after.checked_sub(1)?)?;
        rows.take_while(|row| row.address <= address).last().filter(|row| row.line > 0)
    }

    /// The line that the instruction at the virtual address `address` is from.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<Line<'a>> {
        let row = self.row(address)?;
        Some(Line { file: self.file(row.file)?, line: row.line })
    }

    /// The path of a file.
    #[must_use]
    pub fn file(&self, number: u32) -> Option<&'a str> {
        self.types.name(u32::from_le(*self.parts.files.get(number as usize)?))
    }

    /// The numbers and paths of the files that `path` may mean: those that end with its parts.
    pub fn files<'b>(&self, path: &'b str) -> impl Iterator<Item = (u32, &'a str)> + Clone + use<'a, 'b> {
        let lines = *self;
        (0..self.parts.files.len() as u32).filter_map(move |number| {
            let file = lines.file(number)?;
            let before = file.strip_suffix(path)?;
            (before.is_empty() || before.ends_with('/')).then_some((number, file))
        })
    }

    /// The number and path of the one file that `path` means.
    ///
    /// # Errors
    ///
    /// There is none, or there are several.
    pub fn find(&self, path: &str) -> Result<(u32, &'a str), LineError<'a>> {
        // The whole path of one may be the end of another.
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

    /// The virtual addresses of the instructions that begin line `line` of the file that `path` means: one at least.
    ///
    /// # Errors
    ///
    /// There is no such file, or no such line.
    pub fn places(&self, path: &str, line: u32) -> Result<impl Iterator<Item = u64> + Clone + use<'a>, LineError<'a>> {
        let (number, file) = self.find(path)?;
        let places = self.begins(number, line);
        if places.clone().next().is_none() {
            let [before, after] = self.nearest(number, line);
            return Err(LineError::NoLine { file, before, after });
        }
        Ok(places)
    }

    /// The virtual addresses of the instructions that begin line `line` of a file.
    pub fn begins(&self, file: u32, line: u32) -> impl Iterator<Item = u64> + Clone + use<'a> {
        let is_it = move |row: &Row| row.file == file && row.line == line && row.is_statement;
        self.rows().filter(is_it).map(|row| row.address)
    }

    /// The nearest lines of a file that begin somewhere: before `line`, and after it.
    #[must_use]
    pub fn nearest(&self, file: u32, line: u32) -> [Option<u32>; 2] {
        let lines = || self.rows().filter(move |row| row.file == file && row.is_statement).map(|row| row.line);
        let before = lines().filter(|&other| other > 0 && other < line).max();
        [before, lines().filter(|&other| other > line).min()]
    }
}

/// The rows of a block.
#[derive(Clone, Debug)]
struct Rows<'a> {
    rest: Cursor<'a>,
    row: Row,
    before: Before,
}

impl Rows<'_> {
    /// The next row; the inner `None` at the end, the outer if it is none.
    fn next_row(&mut self) -> Option<Option<Row>> {
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
                    place => self.before.files.get(place as usize)?.0,
                };
                // The sign is the lowest bit.
                let change = (number >> 3).cast_signed() ^ -(number >> 2 & 1).cast_signed();
                (file, u32::try_from(i64::from(self.before.last_of(file)).checked_add(change)?).ok()?)
            }
            number => *self.before.lines.get(usize::from(number) + 1)?,
        };
        let address = self.row.address.checked_add(distance.checked_mul(4)?)?;
        self.row = Row { address, file, line, is_statement: first & STATEMENT != 0 };
        self.before.remember(file, line);
        Some(Some(self.row))
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let row = self.next_row().flatten();
        if row.is_none() {
            self.rest = Cursor(&[]);
        }
        row
    }
}

/// Writes the rows of a block, the first of which counts from its own address. A number is written by `put`.
#[cfg(any(test, feature = "write"))]
pub(crate) fn write_block(block: &[Row], out: &mut std::vec::Vec<u8>, put: fn(&mut std::vec::Vec<u8>, u64)) {
    let mut last = block.first().map_or(0, |row| row.address);
    let mut before = Before::default();
    for &Row { address, file, line, is_statement } in block {
        let words = address.saturating_sub(last) / 4;
        let recent = before.lines.iter().skip(1).position(|other| *other == (file, line));
        let number = recent.filter(|&number| number < usize::from(OTHER)).map_or(OTHER, |number| number as u8);
        let short = if words < 8 { words as u8 } else { 0 };
        out.push(short << 5 | number << 1 | u8::from(is_statement));
        if short == 0 {
            put(out, words);
        }
        if number == OTHER {
            let place = before.files.iter().position(|(other, _)| *other == file).map_or(OTHER_FILE, |at| at as u64);
            let change = i64::from(line) - i64::from(before.last_of(file));
            put(out, (change << 1 ^ change >> 63).cast_unsigned() << 2 | place);
            if place == OTHER_FILE {
                put(out, file.into());
            }
        }
        before.remember(file, line);
        last = address;
    }
}
