//! Makes bootable images. A boot loader copies one file to memory and jumps to its start. So the image is the linked
//! program as it lies in memory, zeroed data included, followed by its symbols and types. The linker cannot finish the
//! header, because it does not know the length of the tables; the whole length is filled in here (Linux,
//! Documentation/arch/arm64/booting.rst).

mod debug;
mod inlined;
mod region;
mod survey;
mod types;

use std::{
    collections::HashMap,
    fs::{self, Permissions},
    ops::Range,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use debug::DebugInfo;
use kprobes_symbols::{Contents, Inlined, Symbol, SymbolTable};
use kprobes_types::{Declaration, LineRow};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SymbolKind,
    read::elf::{ElfFile64, ElfSymbol64},
};

use crate::audit::parse_elf;

/// The image is padded to a multiple of this many bytes.
const PAGE: usize = 4096;
/// The offset in the header of the length of the image, 8 bytes.
pub const IMAGE_SIZE_AT: usize = 16;
/// The offset in the header of its magic number.
const MAGIC_AT: usize = 56;
const MAGIC: &[u8] = b"ARM\x64";
/// The prefix of the names of constants that only the compiler knows.
const ANONYMOUS: &str = "anon.";
/// Half of the reach of offsets in tables, in bytes.
const REACH: u64 = 2 << 30;
/// A larger image is the result of a broken link.
const LARGEST: u64 = 256 << 20;

/// A function of a linked program.
pub struct Function {
    /// The demangled name.
    pub name: String,
    /// The virtual addresses of its instructions.
    pub range: Range<u64>,
    /// The place in the source, if it is known.
    pub declaration: Option<Declaration>,
}

/// A source file.
pub struct File {
    /// The path that the console shows.
    pub path: String,
    /// The path on the machine that built the program.
    pub built_from: PathBuf,
}

/// The functions and the source lines of a linked program.
pub struct Source {
    /// The functions, in the order of their addresses.
    pub functions: Vec<Function>,
    /// The lines, in the order of their addresses.
    pub rows: Vec<LineRow>,
    /// The files, by their number.
    pub files: Vec<File>,
}

/// The tables of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// The names of functions and statics, where data lies among instructions, and the survey of the text.
    Symbols,
    /// Also inlined copies, types and source lines, as far as there is debugging information.
    All,
}

/// Makes the image of the program `elf` in the file `out`, which appears completely or not at all. Returns its length.
pub fn write(elf: &Path, out: &Path) -> Result<usize> {
    let image = whole(elf)?;
    write_bytes(&image, out)?;
    Ok(image.len())
}

/// Makes the bytes of an image as [`write()`] does.
pub fn whole(elf: &Path) -> Result<Vec<u8>> {
    make(elf, |file| {
        let DebugTables { copies, types, .. } = DebugTables::read(file, address_of(file, "__image_start")?)?;
        with_tables(file, &copies, types)
    })
}

/// The tables that are made from the debugging information, as far as the program has any.
#[derive(Default)]
struct DebugTables {
    /// The inlined copies for the table of symbols.
    copies: Vec<Inlined>,
    /// The table of types.
    types: Option<Vec<u8>>,
    /// Whether the table of types has the types of arguments.
    has_types: bool,
}

/// Returns whether tables that count from the virtual address `base` can have `address`.
fn is_in_reach(base: u64, address: u64) -> bool {
    address.checked_sub(base).is_some_and(|offset| offset < 2 * REACH - 1)
}

impl DebugTables {
    /// Makes the tables. `base` is the virtual address that the table of types counts from.
    fn read(file: &ElfFile64<'_>, base: u64) -> Result<Self> {
        let Some(debug) = DebugInfo::read(file)? else { return Ok(Self::default()) };
        let mut contents = types::contents(&debug);
        if let Some(contents) = &mut contents {
            contents.functions.retain(|function| is_in_reach(base, function.address));
            contents.vtables.retain(|(address, _)| is_in_reach(base, *address));
            contents.rows.retain(|row| is_in_reach(base, row.address));
        }
        let mut copies = inlined::copies(&debug)?;
        copies.retain(|copy| is_in_reach(base, copy.address));
        Ok(Self {
            copies,
            has_types: contents.as_ref().is_some_and(types::has_types),
            types: contents.map(|contents| types::table(&contents, base)).transpose()?,
        })
    }
}

/// Makes the bytes of an image without the tables of inlined copies and of types, which are half of its bytes: for
/// tests of the loader, which send it over a serial line.
pub fn without_copies(elf: &Path) -> Result<Vec<u8>> {
    make(elf, |file| with_tables(file, &[], None))
}

/// Describes the table of types of the program `elf`: its length and its contents, as text.
pub fn describe_types(elf: &Path) -> Result<String> {
    let program = fs::read(elf).with_context(|| format!("{} cannot be read", elf.display()))?;
    let file = parse_elf(&program)?;
    let contents = DebugInfo::read(&file)?.as_ref().and_then(types::contents);
    let contents = contents.with_context(|| format!("{} has no debugging information about types", elf.display()))?;
    let table = types::table(&contents, address_of(&file, "__image_start")?)?;
    Ok(types::describe(&contents, &table))
}

/// Reads the functions and the source lines of the program `elf`.
pub fn source(elf: &Path) -> Result<Source> {
    let program = fs::read(elf).with_context(|| format!("{} cannot be read", elf.display()))?;
    let file = parse_elf(&program)?;
    let read = DebugInfo::read(&file)?.and_then(|debug| Some((types::contents(&debug)?, debug)));
    let (contents, debug) =
        read.with_context(|| format!("{} has no debugging information about lines", elf.display()))?;
    let mut functions = Vec::new();
    for function in debug.executable.functions() {
        let described = contents.functions.iter().find(|other| other.address == function.range.start);
        let declaration = described.and_then(|described| described.declaration);
        let named = |name: &String| Function { name: name.clone(), range: function.range.clone(), declaration };
        functions.extend(function.names.iter().map(named));
    }
    let files = contents.files.into_iter().zip(debug.files.built_from);
    let files = files.map(|(path, built_from)| File { path, built_from: built_from.into() }).collect();
    Ok(Source { functions, rows: contents.rows, files })
}

/// Makes the image, like [`write()`], of a program that has no use for symbols.
pub fn write_plain(elf: &Path, out: &Path) -> Result<usize> {
    let image = make(elf, |file| Ok(contents(file)?.0))?;
    write_bytes(&image, out)?;
    Ok(image.len())
}

/// The tables that were filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filled {
    /// Their length, in bytes.
    pub length: usize,
    /// The room that the linker script has reserved for them, in bytes.
    pub room: usize,
    /// Whether they have the arguments of functions with their types, which takes full debugging information.
    pub has_types: bool,
}

/// Fills in the tables of the program `elf`, for which its linker script has reserved room by `kprobes-tables.x`, and
/// writes the program to the file `out`, which appears completely or not at all.
pub fn fill_in(elf: &Path, out: &Path, tables: Tables) -> Result<Filled> {
    let mut program = fs::read(elf).with_context(|| format!("{} cannot be read", elf.display()))?;
    let filled = fill(&mut program, tables).with_context(|| format!("{} cannot be given its tables", elf.display()))?;
    // The result is as executable as the program, which it may replace.
    let permissions = fs::metadata(elf)?.permissions();
    write_file(&program, out, Some(permissions))?;
    Ok(filled)
}

fn fill(program: &mut [u8], wanted: Tables) -> Result<Filled> {
    let file = parse_elf(program)?;
    ensure!(file.symbols().next().is_some(), "it has no symbols: fill in its tables before you strip it");
    let start = file.symbol_by_name("__kprobes_tables_start").map(|symbol| symbol.address());
    let start = start.context("it has no room for them: write `INCLUDE kprobes-tables.x` in its linker script")?;
    let end = address_of(&file, "__kprobes_tables_end")?;
    let room = end.checked_sub(start).context("its __kprobes_tables_end is before its __kprobes_tables_start")?;
    let room = usize::try_from(room)?;
    let place = file.segments().find_map(|segment| {
        let (at, length) = segment.file_range();
        let offset = start.checked_sub(segment.address())?;
        if end.checked_sub(segment.address())? <= length { at.checked_add(offset) } else { None }
    });
    let place = usize::try_from(place.context("none of its segments contains the section .kprobes.tables")?)?;
    // The tables describe the addresses from here on. A part of the kernel that runs elsewhere, for example before the
    // kernel has its mappings, is out of their reach.
    let is_near = |address: &u64| start.checked_sub(*address).is_some_and(|distance| distance < REACH);
    let base = file.segments().map(|segment| segment.address()).filter(is_near).min().unwrap_or(start);
    let DebugTables { copies, types, has_types } = match wanted {
        Tables::Symbols => DebugTables::default(),
        Tables::All => DebugTables::read(&file, base)?,
    };
    let mut tables = symbols(&file, base, &copies)?;
    tables.resize(tables.len().next_multiple_of(4), 0);
    tables.extend(types.unwrap_or_default());
    ensure!(
        tables.len() <= room,
        "the tables have {} bytes, but the room for them has {room}: set `__kprobes_tables_size = {:#x};` in the \
         linker script",
        tables.len(),
        tables.len().next_multiple_of(PAGE)
    );
    let length = tables.len();
    let place = program.get_mut(place..place.saturating_add(room)).context("it is truncated")?;
    let (filled, rest) = place.split_at_mut(length);
    filled.copy_from_slice(&tables);
    rest.fill(0);
    Ok(Filled { length, room, has_types })
}

fn make(elf: &Path, image: impl Fn(&ElfFile64<'_>) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let program = fs::read(elf).with_context(|| format!("{} cannot be read", elf.display()))?;
    parse_elf(&program)
        .and_then(|file| image(&file))
        .with_context(|| format!("{} cannot be turned into an image", elf.display()))
}

/// Writes these bytes to the file `out`, which appears completely or not at all.
pub fn write_bytes(bytes: &[u8], out: &Path) -> Result<()> {
    write_file(bytes, out, None)
}

/// Writes a file as [`write_bytes()`] does. Fails if a device, such as `/dev/null`, or a directory is there. If a link is
/// there, the file that it leads to is replaced. The file appears with these permissions; if they are `None`, with those
/// of any new file.
fn write_file(bytes: &[u8], out: &Path, permissions: Option<Permissions>) -> Result<()> {
    let is_other = fs::metadata(out).is_ok_and(|found| !found.is_file());
    ensure!(!is_other, "{} is not a file, and would be replaced by one", out.display());
    // A link that leads to no file is replaced itself.
    let place = fs::canonicalize(out).unwrap_or_else(|_| out.to_owned());
    let mut unfinished = place.as_os_str().to_owned();
    unfinished.push(format!(".{}", process::id()));
    fs::write(&unfinished, bytes)
        .and_then(|()| permissions.map_or(Ok(()), |permissions| fs::set_permissions(&unfinished, permissions)))
        .and_then(|()| fs::rename(&unfinished, &place))
        .inspect_err(|_| drop(fs::remove_file(&unfinished)))
        .with_context(|| format!("{} cannot be written", out.display()))
}

/// Returns the offset of the symbols in the image of the program `elf`, in bytes.
pub fn symbols_at(elf: &Path) -> Result<usize> {
    let program = fs::read(elf).with_context(|| format!("{} cannot be read", elf.display()))?;
    let file = parse_elf(&program)?;
    let length = address_of(&file, "__image_end")?.checked_sub(address_of(&file, "__image_start")?);
    length.and_then(|length| usize::try_from(length).ok()).context("__image_end is before __image_start")
}

/// Makes the image of a linked program, with its symbols, these inlined copies of functions, and this table of types.
fn with_tables(file: &ElfFile64<'_>, copies: &[Inlined], types: Option<Vec<u8>>) -> Result<Vec<u8>> {
    let (mut image, start) = contents(file)?;
    image.extend(symbols(file, start, copies)?);
    image.resize(image.len().next_multiple_of(4), 0);
    image.extend(types.unwrap_or_default());
    image.resize(image.len().next_multiple_of(PAGE), 0);
    let length = image.len() as u64;
    image[IMAGE_SIZE_AT..IMAGE_SIZE_AT + 8].copy_from_slice(&length.to_le_bytes());
    Ok(image)
}

/// Returns the bytes of a linked program in memory, and its link address.
fn contents(file: &ElfFile64<'_>) -> Result<(Vec<u8>, u64)> {
    let (start, end) = (address_of(file, "__image_start")?, address_of(file, "__image_end")?);
    ensure!(
        start < end && end - start <= LARGEST,
        "its __image_end {end:#x} does not fit its __image_start {start:#x}"
    );

    let mut image = vec![0; (end - start) as usize];
    for segment in file.segments() {
        let data = segment.data().context("a segment is truncated")?;
        let place = segment.address().checked_sub(start).and_then(|offset| {
            let offset = usize::try_from(offset).ok()?;
            image.get_mut(offset..offset.checked_add(usize::try_from(segment.size()).ok()?)?)?.get_mut(..data.len())
        });
        let Some(place) = place else {
            bail!("its segment at {:#x} is not between __image_start and __image_end", segment.address());
        };
        place.copy_from_slice(data);
    }
    ensure!(
        image.get(MAGIC_AT..).is_some_and(|rest| rest.starts_with(MAGIC)),
        "it does not begin with an arm64 Image header"
    );
    Ok((image, start))
}

fn address_of(file: &ElfFile64<'_>, name: &str) -> Result<u64> {
    let symbol =
        file.symbol_by_name(name).ok_or_else(|| anyhow!("it has no symbol {name}: is it linked with linker.ld?"))?;
    Ok(symbol.address())
}

/// Makes the table of all functions and statics of the program, and of these inlined copies of functions.
fn symbols(file: &ElfFile64<'_>, base: u64, copies: &[Inlined]) -> Result<Vec<u8>> {
    let is_in = |symbol: &ElfSymbol64<'_, '_>, is_wanted: fn(SectionKind) -> bool| {
        let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
        section.is_some_and(|section| is_wanted(section.kind()))
    };
    let is_data = |kind| {
        use SectionKind::{Data, ReadOnlyData, ReadOnlyDataWithRel, ReadOnlyString, UninitializedData};
        matches!(kind, Data | ReadOnlyData | ReadOnlyDataWithRel | ReadOnlyString | UninitializedData)
    };
    let (mut functions, mut statics) = (Vec::new(), Vec::new());
    let is_whole_in_reach = |symbol: &ElfSymbol64<'_, '_>| {
        let end = symbol.address().checked_add(symbol.size());
        is_in_reach(base, symbol.address()) && end.is_some_and(|end| is_in_reach(base, end))
    };
    for symbol in file.symbols().filter(|symbol| symbol.size() != 0 && is_whole_in_reach(symbol)) {
        let symbols = match symbol.kind() {
            SymbolKind::Text if is_in(&symbol, |kind| kind == SectionKind::Text) => &mut functions,
            SymbolKind::Data if is_in(&symbol, is_data) => &mut statics,
            _ => continue,
        };
        let name = symbol.name().context("the name of a symbol is not valid")?;
        // Constants that the compiler has named are left out.
        if !name.starts_with(ANONYMOUS) {
            // The short form, without the hashes that tell apart crates of the same name.
            symbols.push((format!("{:#}", rustc_demangle::demangle(name)), symbol.address(), symbol.size()));
        }
    }
    let [functions, statics] = [&functions, &statics].map(|symbols| -> Vec<Symbol<'_>> {
        symbols.iter().map(|(name, address, size)| Symbol { name, address: *address, size: *size }).collect()
    });
    let mut data = data_in_text(file)?;
    data.retain(|range| is_in_reach(base, range.start) && is_in_reach(base, range.end));
    let (functions, statics, data) = (&*functions, &*statics, &*data);
    let functions_alone = kprobes_symbols::write(base, &Contents { functions, ..Contents::default() })?;
    let table = SymbolTable::parse(&functions_alone)?;
    let survey = &*survey::of_program(file, &(base..base.saturating_add(LARGEST)), &table)?.unwrap_or_default();
    Ok(kprobes_symbols::write(base, &Contents { functions, statics, data, survey, copies })?)
}

/// Returns the ranges of data: the virtual addresses in sections of instructions from each mapping symbol of data to
/// the next of instructions (ELF for the Arm 64-bit Architecture, section 5.7: `$d` and `$x`, each with or without a
/// suffix from a dot on).
fn data_in_text(file: &ElfFile64<'_>) -> Result<Vec<Range<u64>>> {
    let text: Vec<_> = file.sections().filter(|section| section.kind() == SectionKind::Text).collect();
    let mut marks: HashMap<_, Vec<(u64, bool)>> = text.iter().map(|section| (section.index(), Vec::new())).collect();
    for symbol in file.symbols() {
        let Some(marks) = symbol.section_index().and_then(|index| marks.get_mut(&index)) else { continue };
        let name = symbol.name().context("the name of a symbol is not valid")?;
        match name.split('.').next() {
            Some("$d") => marks.push((symbol.address(), true)),
            Some("$x") => marks.push((symbol.address(), false)),
            _ => {}
        }
    }
    let mut data = Vec::new();
    for section in text {
        let mut marks = marks.remove(&section.index()).unwrap_or_default();
        // If both are at one address, no data lies between them: the instructions count.
        marks.sort_unstable_by_key(|&(address, is_data)| (address, !is_data));
        let ends =
            marks.iter().skip(1).map(|&(address, _)| address).chain([section.address().saturating_add(section.size())]);
        data.extend(marks.iter().zip(ends).filter(|((_, is_data), _)| *is_data).map(|(&(start, _), end)| start..end));
    }
    Ok(data)
}

#[cfg(test)]
mod tests;
