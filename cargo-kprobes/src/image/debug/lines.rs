//! Reads the lines of source of a linked program from its line tables (DWARF 4, section 6.2), for the table of an
//! image.
//!
//! Directories of the machine that built the program are left out. A file has its path from the workspace, from the
//! directory of its crate in the registry, or from the source of the standard library. The path of a file of another
//! crate, which Cargo compiles in the crate's directory, begins with the name of that directory.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Result, anyhow};
use gimli::{Dwarf, Unit};
use kprobes_types::LineRow;

use super::bytes::Bytes;
use crate::audit::Executable;

/// The files of a program, which rows and declarations refer to by index.
#[derive(Default)]
pub struct Files {
    pub paths: Vec<String>,
    /// The paths on the machine that built the program.
    pub built_from: Vec<String>,
    known: HashMap<String, u32>,
}

/// The files of a unit: the index of each in [`Files`], by its number in the unit.
#[derive(Default)]
pub struct UnitFiles(HashMap<u64, u32>);

/// Rows without a gap, up to the end of the last.
struct Sequence {
    rows: Vec<LineRow>,
    end: u64,
}

/// Reads the lines of `executable`, in ascending order of address, and adds their files to `files`. Also returns the
/// addresses at which prologues have ended.
pub fn read(
    dwarf: &Dwarf<Bytes<'_>>,
    executable: &Executable,
    files: &mut Files,
) -> Result<(Vec<LineRow>, BTreeSet<u64>)> {
    let (mut sequences, mut prologues) = (Vec::new(), BTreeSet::new());
    files
        .read(dwarf, executable, &mut sequences, &mut prologues)
        .map_err(|error| anyhow!("its line tables are not valid: {error}"))?;
    sequences.sort_by_key(|sequence| sequence.rows.first().map_or(0, |row| row.address));
    let (mut rows, mut end) = (Vec::new(), 0);
    for sequence in sequences {
        // If the linker has merged equal functions, only one is there.
        if sequence.rows.first().is_none_or(|row| row.address < end) {
            continue;
        }
        end = sequence.end;
        push(&mut rows, sequence, |address| executable.function(address).is_some_and(|of| of.range.start == address));
    }
    Ok((rows, prologues))
}

/// Adds the rows of a sequence, and a row without a line for its end. Consecutive instructions of one line are one row,
/// up to one that begins a statement if the first does not. Instructions that the compiler attributes to no line count
/// to the line before in their function. Of several rows with one address, the last that has a line is right. It also
/// begins a statement if the row before it, of the same line, does. A row of data that is not at a multiple of 4 is
/// left out. A function has rows of its own: `is_function` returns whether one begins at an address.
fn push(rows: &mut Vec<LineRow>, sequence: Sequence, is_function: impl Fn(u64) -> bool) {
    let end = LineRow { address: sequence.end, file: 0, line: 0, is_statement: false };
    let begins = |row: &LineRow| row.address.is_multiple_of(4) && (row.line > 0 || is_function(row.address));
    for mut row in sequence.rows.into_iter().filter(begins).chain([end]) {
        let has_line = |last: &LineRow| last.address == row.address && last.line > 0;
        if row.line == 0 && row.address < end.address && rows.last().is_some_and(has_line) {
            continue;
        }
        let line = (row.file, row.line);
        let is_same = |last: &LineRow| (last.file, last.line) == line;
        let replaced = rows.pop_if(|last| last.address == row.address).filter(is_same);
        row.is_statement |= replaced.is_some_and(|replaced| replaced.is_statement);
        let is_new = |last: &LineRow| !is_same(last) || row.is_statement && !last.is_statement;
        if rows.last().is_none_or(is_new) || row.line > 0 && is_function(row.address) {
            rows.push(row);
        }
    }
}

/// Returns whether rows are those of code in the program: functions that the linker has removed have no address. Code
/// of assembly may precede the first function.
fn is_in_program(rows: &[LineRow], executable: &Executable) -> bool {
    rows.iter().any(|row| executable.function(row.address).is_some())
}

impl Files {
    fn read(
        &mut self,
        dwarf: &Dwarf<Bytes<'_>>,
        executable: &Executable,
        sequences: &mut Vec<Sequence>,
        prologues: &mut BTreeSet<u64>,
    ) -> gimli::Result<()> {
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = dwarf.unit(header)?;
            let Some(lines) = unit.line_program.clone() else { continue };
            let mut numbers = UnitFiles::default();
            let mut all = lines.rows();
            let mut rows: Vec<LineRow> = Vec::new();
            while let Some((header, row)) = all.next_row()? {
                let address = row.address();
                if row.end_sequence() {
                    let rows = std::mem::take(&mut rows);
                    // Data at the end of a section of assembly need not be a whole number of words.
                    let end = address.checked_next_multiple_of(4);
                    if let Some(end) = end.filter(|_| is_in_program(&rows, executable)) {
                        sequences.push(Sequence { rows, end });
                    }
                    continue;
                }
                if row.prologue_end() {
                    prologues.insert(address);
                }
                let file = self.number(&mut numbers, dwarf, &unit, header, row.file_index())?;
                let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
                let (file, is_statement) = if line == 0 { (0, false) } else { (file, row.is_stmt()) };
                rows.push(LineRow { address, file, line, is_statement });
            }
        }
        Ok(())
    }

    /// Returns the index of the file that has the number `number` in `unit`, whose line program has the header
    /// `header`.
    pub fn number(
        &mut self,
        numbers: &mut UnitFiles,
        dwarf: &Dwarf<Bytes<'_>>,
        unit: &Unit<Bytes<'_>>,
        header: &gimli::LineProgramHeader<Bytes<'_>>,
        number: u64,
    ) -> gimli::Result<u32> {
        if let Some(&index) = numbers.0.get(&number) {
            return Ok(index);
        }
        let file = header.file(number).map(|file| path(dwarf, unit, header, file)).transpose()?.unwrap_or_default();
        let index = self.add(&file);
        numbers.0.insert(number, index);
        Ok(index)
    }

    /// Returns the index of a file, which gets one if it is new.
    fn add(&mut self, file: &FilePath) -> u32 {
        let (short, whole) = (file.plain(), file.whole());
        // The standard library and the registry may lie in several directories of a machine. Any other file is the same
        // if its whole path is.
        let key = file.published().unwrap_or_else(|| whole.clone());
        if let Some(&index) = self.known.get(&key) {
            let path = self.paths.get(index as usize);
            // Seen from another crate, the path of a file is longer.
            if path.is_some_and(|path| short.len() < path.len()) && !self.paths.contains(&short) {
                self.paths[index as usize] = short;
            }
            return index;
        }
        let path = if self.paths.contains(&short) { whole.trim_start_matches('/').into() } else { short };
        let index = self.paths.len() as u32;
        self.known.insert(key, index);
        self.paths.push(path);
        self.built_from.push(whole);
        index
    }
}

/// The path of a file, as a unit gives it.
#[derive(Default)]
struct FilePath {
    path: String,
    /// The directory that the unit was compiled in: that of its crate for a crate of the registry, or for one that
    /// `is_elsewhere`.
    workspace: String,
    /// Whether the crate is outside of the workspace: Cargo then gives the compiler a whole path.
    is_elsewhere: bool,
}

/// Returns the path of a file.
fn path(
    dwarf: &Dwarf<Bytes<'_>>,
    unit: &Unit<Bytes<'_>>,
    header: &gimli::LineProgramHeader<Bytes<'_>>,
    file: &gimli::FileEntry<Bytes<'_>>,
) -> gimli::Result<FilePath> {
    let text = |bytes: Bytes<'_>| String::from_utf8_lossy(bytes.slice()).into_owned();
    let mut path = text(dwarf.attr_string(unit, file.path_name())?);
    if let Some(directory) = file.directory(header) {
        let directory = text(dwarf.attr_string(unit, directory)?);
        if !path.starts_with('/') && !directory.is_empty() {
            path = format!("{directory}/{path}");
        }
    }
    let is_elsewhere = unit.name.is_some_and(|name| name.slice().starts_with(b"/"));
    Ok(FilePath { path, workspace: unit.comp_dir.map(text).unwrap_or_default(), is_elsewhere })
}

impl FilePath {
    /// Returns the path from the root.
    fn whole(&self) -> String {
        let Self { path, workspace, .. } = self;
        if path.starts_with('/') { path.clone() } else { format!("{workspace}/{path}") }
    }

    /// Returns the part of the path after the root of the workspace, or after the directory that has the crate's;
    /// `None` if the file lies elsewhere.
    fn own(&self) -> Option<String> {
        let root = match self.is_elsewhere {
            true => self.workspace.rsplit_once('/').map_or("", |(root, _)| root),
            false => &self.workspace,
        };
        let rest = self.whole().strip_prefix(root)?.strip_prefix('/')?.to_owned();
        (!root.is_empty()).then_some(rest)
    }

    /// Returns the part of the path that is the same on every machine, for a file of the registry or of the standard
    /// library.
    fn published(&self) -> Option<String> {
        let whole = self.whole();
        if let Some((_, library)) = whole.split_once("/rustlib/src/rust/") {
            return Some(library.into());
        }
        // In the registry, a directory of the index precedes that of the crate; in the source of Rust, its version.
        for before in ["/registry/src/", "/rustc/"] {
            if let Some((_, rest)) = whole.split_once(before) {
                return Some(rest.split_once('/').map_or(rest, |(_, rest)| rest).into());
            }
        }
        let is_own = !self.is_elsewhere && self.own().is_some();
        let library = whole.find("/library/").filter(|_| whole.starts_with('/') && !is_own);
        library.map(|at| whole[at + 1..].into())
    }

    /// Returns the path without the directories of the machine that built the program.
    fn plain(&self) -> String {
        let without_root = || self.whole().trim_start_matches('/').into();
        self.published().or_else(|| self.own()).unwrap_or_else(without_root)
    }
}

#[cfg(test)]
mod tests {
    use kprobes_types::LineRow;

    use super::{Executable, FilePath, Files, Sequence, is_in_program, push};

    fn file(path: &str, workspace: &str, is_elsewhere: bool) -> FilePath {
        FilePath { path: path.into(), workspace: workspace.into(), is_elsewhere }
    }

    #[test]
    fn paths_are_those_of_source() {
        let plain = |path: &str, workspace: &str| file(path, workspace, false).plain();
        for (path, short) in [
            ("runtime/src/main.rs", "runtime/src/main.rs"),
            ("/home/me/kernel/runtime/src/main.rs", "runtime/src/main.rs"),
            ("/home/me/.cargo/registry/src/index.crates.io-1/sha2-0.10.9/src/lib.rs", "sha2-0.10.9/src/lib.rs"),
            ("/rustc/0123abc/library/core/src/fmt/mod.rs", "library/core/src/fmt/mod.rs"),
            ("/home/me/toolchain/lib/rustlib/src/rust/library/core/src/lib.rs", "library/core/src/lib.rs"),
            ("/elsewhere/x.S", "elsewhere/x.S"),
            ("/home/me/kernel-drivers/src/lib.rs", "home/me/kernel-drivers/src/lib.rs"),
        ] {
            assert_eq!(plain(path, "/home/me/kernel"), short);
        }
        let registry = "/home/me/.cargo/registry/src/index.crates.io-1/sha2-0.10.9";
        assert_eq!(plain(&format!("{registry}/src/lib.rs"), registry), "sha2-0.10.9/src/lib.rs", "as in other units");
        assert_eq!(plain("src/lib.rs", registry), "sha2-0.10.9/src/lib.rs");
        assert_eq!(plain("/toolchain/rust/library/core/src/lib.rs", ""), "library/core/src/lib.rs");
    }

    #[test]
    fn files_of_several_crates_are_told_apart() {
        let mut files = Files::default();
        let mut add = |path: &str, workspace: &str, is_elsewhere| files.add(&file(path, workspace, is_elsewhere));
        assert_eq!(add("src/lib.rs", "/me/kernel", false), 0);
        assert_eq!(add("/me/engine/types/src/lib.rs", "/me/kernel", false), 1, "of generic code");
        assert_eq!(add("/me/engine/src/lib.rs", "/me/engine", true), 2);
        assert_eq!(add("src/lib.rs", "/me/engine/types", true), 1);
        assert_eq!(add("/rustc/0123/library/core/src/lib.rs", "/me/kernel", false), 3);
        assert_eq!(add("/me/.rustup/lib/rustlib/src/rust/library/core/src/lib.rs", "/me/engine", true), 3);
        assert_eq!(add("/me/.rustup/lib/rustlib/src/rust/library/core/src/lib.rs", "/me/kernel", false), 3);
        assert_eq!(add("types/src/lib.rs", "/me/kernel", false), 4);
        assert_eq!(
            files.paths,
            [
                "src/lib.rs",
                "types/src/lib.rs",
                "engine/src/lib.rs",
                "library/core/src/lib.rs",
                "me/kernel/types/src/lib.rs"
            ]
        );
    }

    #[test]
    fn rows_before_the_first_function_of_their_section_are_in_the_program() {
        const RET: u32 = 0xd65f_03c0;
        let executable = Executable::of(&[("f", 0x1008, &[RET])]);
        let rows = [0x1000, 0x1004, 0x1008].map(|address| LineRow { address, file: 0, line: 1, is_statement: true });
        assert!(is_in_program(&rows, &executable));
        assert!(!is_in_program(&rows[..2], &executable) && !is_in_program(&[], &executable));
    }

    #[test]
    fn rows_in_a_row_of_one_line_are_one() {
        let row = |address, line, is_statement| LineRow { address, file: 0, line, is_statement };
        let mut rows = Vec::new();
        let all =
            [row(0, 1, true), row(4, 1, true), row(8, 2, true), row(8, 3, true), row(12, 3, true), row(16, 1, true)];
        push(&mut rows, Sequence { rows: all.to_vec(), end: 20 }, |address| address == 0);
        assert_eq!(rows, [row(0, 1, true), row(8, 3, true), row(16, 1, true), row(20, 0, false)]);
    }

    #[test]
    fn a_line_begins_where_any_of_its_rows_begins_a_statement() {
        let row = |address, line, is_statement| LineRow { address, file: 0, line, is_statement };
        let mut rows = Vec::new();
        // An empty piece of assembly has a row, and the next instruction of its line has one at the same address.
        let all = [
            row(0, 1, true),
            row(4, 2, false),
            row(8, 2, true),
            row(12, 3, true),
            row(12, 3, false),
            row(16, 3, false),
        ];
        push(&mut rows, Sequence { rows: all.to_vec(), end: 20 }, |address| address == 0);
        let expected = [row(0, 1, true), row(4, 2, false), row(8, 2, true), row(12, 3, true), row(20, 0, false)];
        assert_eq!(rows, expected);
    }

    #[test]
    fn rows_of_data_between_instructions_are_left_out() {
        let row = |address, line| LineRow { address, file: 0, line, is_statement: true };
        let mut rows = Vec::new();
        push(&mut rows, Sequence { rows: vec![row(0, 1), row(5, 2), row(6, 3), row(8, 4)], end: 12 }, |_| false);
        assert_eq!(rows, [row(0, 1), row(8, 4), LineRow { is_statement: false, ..row(12, 0) }]);
    }

    #[test]
    fn adjacent_functions_have_rows_of_their_own() {
        let row = |address, line| LineRow { address, file: 0, line, is_statement: line > 0 };
        let end = |address| LineRow { address, file: 0, line: 0, is_statement: false };
        let is_function = |address| address % 8 == 0;
        let mut rows = Vec::new();
        push(&mut rows, Sequence { rows: vec![row(0, 1), row(4, 1)], end: 8 }, is_function);
        push(&mut rows, Sequence { rows: vec![row(8, 2), row(8, 1), row(12, 0)], end: 16 }, is_function);
        assert_eq!(rows, [row(0, 1), row(8, 1), end(16)], "copies of one line, one after the other");
        push(&mut rows, Sequence { rows: vec![row(16, 1), row(24, 1), row(28, 1)], end: 32 }, is_function);
        assert_eq!(rows, [row(0, 1), row(8, 1), row(16, 1), row(24, 1), end(32)], "two functions in one sequence");
        rows.clear();
        push(&mut rows, Sequence { rows: vec![row(0, 1), row(8, 0), row(12, 1)], end: 16 }, is_function);
        assert_eq!(rows, [row(0, 1), end(8), row(12, 1), end(16)], "no line at the entry of the second");
        rows.clear();
        push(&mut rows, Sequence { rows: vec![row(0, 1), row(4, 0), row(8, 1), row(8, 0)], end: 16 }, is_function);
        assert_eq!(rows, [row(0, 1), row(8, 1), end(16)], "two rows at the entry of the second");
        rows.clear();
        push(&mut rows, Sequence { rows: vec![row(0, 1), row(8, 2)], end: 8 }, is_function);
        assert_eq!(rows, [row(0, 1), end(8)], "a row without instructions at the end");
    }
}
