//! Shows the source lines of a function, the addresses of the instructions that begin them, and the text of the source.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use cargo_kprobes::image::{self, File, Function, Source};
use kprobes_symbols::distance::nearest_path;
use kprobes_symbols::names::{numbered, plain_path};
use kprobes_types::{Declaration, LineRow};

use crate::{boot, setup::output_of, workspace};

/// The number of addresses that are shown of a line.
const ADDRESSES_MAX: usize = 4;
/// The width of the column with the addresses.
const WIDTH: usize = 32;

#[derive(clap::Args)]
pub struct Options {
    /// The function, as `symbols` lists it, or without generic arguments.
    function: String,
    /// A linked kernel; the runtime is built if none is given.
    #[arg(long, value_name = "FILE")]
    elf: Option<PathBuf>,
}

/// Runs the command `lines`.
pub fn lines(options: &Options) -> Result<()> {
    let source = image::source(&boot::kernel(options.elf.as_deref())?)?;
    let text: String = listing(&source, &options.function)?.iter().map(|line| format!("{line}\n")).collect();
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Returns the lines of the functions that `name` means, with the text of their source.
pub fn listing(source: &Source, name: &str) -> Result<Vec<String>> {
    let listings = meant(source, name)?.into_iter().map(|function| Listing { source, function, text_of: &text });
    let listed: Vec<_> = listings.map(|listing| listing.to_string()).collect();
    Ok(listed.concat().lines().map(String::from).collect())
}

/// Returns the functions that `name` means, as the console does: those with this name, otherwise those with this plain
/// path, and with a number, those that have it among the functions with their name. Each address is there once.
fn meant<'a>(source: &'a Source, name: &str) -> Result<Vec<&'a Function>> {
    let (path, wanted) = numbered(name);
    let plain = |function: &Function| plain_path(&function.name).unwrap_or_default();
    let mut found: Vec<&Function> = source.functions.iter().filter(|function| function.name == path).collect();
    if found.is_empty() {
        found = source.functions.iter().filter(|function| plain(function) == path).collect();
    }
    found.dedup_by_key(|function| function.range.start);
    found.retain(|function| wanted.is_none_or(|wanted| number(source, function) == wanted));
    if !found.is_empty() {
        return Ok(found);
    }
    let known = source.functions.iter().map(|function| (function.name.as_str(), plain(function).into()));
    match nearest_path(name, known) {
        Some(meant) => bail!("no function has the name {name}; did you mean `{meant}`?"),
        None if name.contains(['*', '?']) => bail!("this lists the lines of one function, without `*` and `?`"),
        None => bail!("no function has the name {name}"),
    }
}

/// Returns the number of a function among those with its name, in the order of their addresses, from 1.
fn number(source: &Source, function: &Function) -> usize {
    let same = source.functions.iter().filter(|other| other.name == function.name);
    1 + same.filter(|other| other.range.start < function.range.start).count()
}

/// The lines of a function, as text. `text_of` returns the lines of a file, if it is there.
struct Listing<'a> {
    source: &'a Source,
    function: &'a Function,
    text_of: &'a dyn Fn(&Path) -> Option<Vec<String>>,
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Function { name, range, declaration } = self.function;
        writeln!(out, "{name} at {:#x}, {} bytes:", range.start, range.end - range.start)?;
        // The addresses of each line of each file.
        let mut files: BTreeMap<u32, BTreeMap<u32, Vec<u64>>> = BTreeMap::new();
        let begins_line = |row: &&LineRow| range.contains(&row.address) && row.line > 0 && row.is_statement;
        for row in self.source.rows.iter().filter(begins_line) {
            files.entry(row.file).or_default().entry(row.line).or_default().push(row.address);
        }
        // The file of the function itself is first.
        let own =
            declaration.map(|declaration| (declaration.file, files.remove(&declaration.file).unwrap_or_default()));
        for (file, mut lines) in own.into_iter().chain(files) {
            let File { path, built_from } = &self.source.files[file as usize];
            let text = (self.text_of)(built_from);
            let declaration = declaration.filter(|declaration| declaration.file == file);
            if let Some(Declaration { line, more, .. }) = declaration {
                // All lines of the function, as far as there is text: a damaged table may name any line.
                let last = text.as_ref().map_or(0, Vec::len).min(line.saturating_add(more) as usize) as u32;
                for line in line.max(1)..=last {
                    lines.entry(line).or_default();
                }
            }
            writeln!(out, "{path}{}", if text.is_some() { "" } else { " (the source is not here)" })?;
            for (line, addresses) in lines {
                let count = declaration.and_then(|declaration| declaration.count(line));
                let count = count.map_or(String::new(), |count| format!(":{count}"));
                let text = text.as_ref().and_then(|text| text.get(line as usize - 1)).map_or("", String::as_str);
                let row = format!("{line:>8}  {count:<5} {:<WIDTH$}  {text}", Offsets(range.start, &addresses));
                writeln!(out, "{}", row.trim_end())?;
            }
        }
        Ok(())
    }
}

/// Addresses, as offsets from the first one.
struct Offsets<'a>(u64, &'a [u64]);

impl fmt::Display for Offsets<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(start, addresses) = self;
        let mut text = String::new();
        for address in addresses.iter().take(ADDRESSES_MAX) {
            write!(text, "{}+{:#x}", if text.is_empty() { "" } else { " " }, address - start)?;
        }
        if let more @ 1.. = addresses.len().saturating_sub(ADDRESSES_MAX) {
            write!(text, " and {more} more")?;
        }
        out.pad(&text)
    }
}

/// Returns the lines of the file at `path`. The source of the standard library is looked for in the toolchain.
fn text(path: &Path) -> Option<Vec<String>> {
    let of_toolchain = || {
        let (_, rest) = path.to_str()?.strip_prefix("/rustc/")?.split_once('/')?;
        Some(toolchain().ok()?.join("lib/rustlib/src/rust").join(rest))
    };
    let text = fs::read_to_string(path).ok().or_else(|| fs::read_to_string(of_toolchain()?).ok())?;
    Some(text.lines().map(|line| line.replace('\t', "    ")).collect())
}

/// Returns the directory of the toolchain.
fn toolchain() -> Result<PathBuf> {
    Ok(output_of(workspace::command("rustc").args(["--print", "sysroot"]))?.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let function =
            |name: &str, start, declaration| Function { name: name.into(), range: start..start + 0x20, declaration };
        let row = |address, file, line| LineRow { address, file, line, is_statement: true };
        let file = |path: &str| File { path: path.into(), built_from: Path::new("/w").join(path) };
        Source {
            functions: vec![
                function("blk::read::<u8>", 0x1000, Some(Declaration { file: 1, line: 2, more: 2 })),
                function("blk::read::<u16>", 0x2000, None),
                function("blk::read::<i16>", 0x2000, None),
                function("blk::read::<u16>", 0x3000, None),
            ],
            rows: vec![
                row(0x1000, 1, 2),
                row(0x1004, 0, 1),
                row(0x1008, 1, 4),
                row(0x100c, 1, 2),
                LineRow { is_statement: false, ..row(0x1010, 1, 3) },
                row(0x1014, 0, 0),
                row(0x2000, 1, 2),
            ],
            files: vec![file("lib.rs"), file("blk.rs")],
        }
    }

    #[test]
    fn lines_have_their_addresses_and_their_text() {
        let source = source();
        let text = |path: &Path| {
            path.ends_with("blk.rs").then(|| ["// A", "fn read() {", "    // B", "}"].map(String::from).to_vec())
        };
        let listed =
            |index: usize| Listing { source: &source, function: &source.functions[index], text_of: &text }.to_string();
        let own = "\
blk::read::<u8> at 0x1000, 32 bytes:
blk.rs
       2  :0    +0x0 +0xc                         fn read() {
       3  :1                                          // B
       4  :2    +0x8                              }
lib.rs (the source is not here)
       1        +0x4
";
        assert_eq!(listed(0), own);
        let listed_damaged = |declaration: Declaration| {
            let Function { name, range, .. } = &source.functions[0];
            let function = Function { name: name.clone(), range: range.clone(), declaration: Some(declaration) };
            Listing { source: &source, function: &function, text_of: &text }.to_string()
        };
        assert_eq!(listed_damaged(Declaration { file: 1, line: 2, more: u32::MAX - 2 }), own);
        assert!(listed_damaged(Declaration { file: 1, line: 0, more: 0 }).contains("\n       2        +0x0 +0xc "));
        let unknown = "\
blk::read::<u16> at 0x2000, 32 bytes:
blk.rs
       2        +0x0                              fn read() {
";
        assert_eq!(listed(1), unknown, "the place of its declaration is unknown");
        assert_eq!(Offsets(0x10, &[0x10, 0x14, 0x18, 0x1c, 0x20, 0x24]).to_string(), "+0x0 +0x4 +0x8 +0xc and 2 more");
    }

    #[test]
    fn names_mean_functions_with_and_without_generic_arguments() {
        let source = source();
        let meant = |name: &str| {
            let found = super::meant(&source, name).map_err(|error| error.to_string());
            found.map(|found| found.iter().map(|function| function.range.start).collect::<Vec<_>>())
        };
        assert_eq!(meant("blk::read::<u16>"), Ok(vec![0x2000, 0x3000]));
        assert_eq!(meant("blk::read"), Ok(vec![0x1000, 0x2000, 0x3000]), "one function has two names");
        assert_eq!(meant("blk::read::<u16>#2"), Ok(vec![0x3000]));
        assert_eq!(meant("blk::read#2"), Ok(vec![0x3000]), "the second of its name, and not the second copy");
        assert_eq!(meant("blk::read#3"), Err("no function has the name blk::read#3".into()));
        let nearest = "no function has the name blk::reed; did you mean `blk::read::<u8>`?";
        assert_eq!(meant("blk::reed"), Err(nearest.into()));
        assert_eq!(meant("nothing"), Err("no function has the name nothing".into()));
        assert_eq!(meant("blk::*"), Err("this lists the lines of one function, without `*` and `?`".into()));
    }
}
