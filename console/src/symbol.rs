//! The names of the functions and statics of this image, from the table that is appended to the image after the link.
//!
//! The table is checked once, in [`init`](crate::init). A lookup never waits for the check, because a fault may be
//! reported at any time: before the check, and without a valid table, there are no names, and addresses are shown as
//! numbers.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::AtomicUsize;

use aarch64_kprobes::probe;
use fallible::OutOfMemory;
use kprobes_symbols::distance::nearest_path;
use kprobes_symbols::names::{Glob, numbered, plain_path};
use kprobes_symbols::{Symbol, SymbolTable};
use spin::Once;

use crate::host;
use crate::paths::{self, Paths};

static TABLE: Once<Option<SymbolTable<'static>>> = Once::new();

/// The tables of the image, as the kernel returns them.
static APPENDED: Once<&[u8]> = Once::new();

/// Checks the table. If the table is invalid, prints a line: there are no names then.
pub(crate) fn init(tables: &'static [u8]) {
    APPENDED.call_once(|| tables);
    TABLE.call_once(|| match SymbolTable::parse(tables) {
        Ok(table) => Some(table),
        Err(error) => {
            println!("{error}: functions are shown without names and cannot be probed by name");
            None
        }
    });
}

/// Returns the bytes after the symbol table, up to the stated length of the image; empty if there is no valid table.
pub(crate) fn after_table() -> &'static [u8] {
    let length = table().map_or(usize::MAX, |table| table.length().next_multiple_of(4));
    appended().get(length..).unwrap_or_default()
}

fn appended() -> &'static [u8] {
    APPENDED.get().copied().unwrap_or_default()
}

/// Returns the table, if there is a valid one.
#[must_use]
pub fn table() -> Option<&'static SymbolTable<'static>> {
    TABLE.get()?.as_ref()
}

/// Returns the cache of the functions' plain paths. It is made at the first call and never freed. It is not made if it
/// would take more than a 64th of the memory to spare.
fn paths() -> Option<&'static Paths<'static>> {
    static PATHS: Once<Option<Paths<'static>>> = Once::new();
    let make = || {
        let table = table()?;
        Paths::new(|| table.iter(), table.by_name(), host::memory_to_spare() / 64)
    };
    PATHS.call_once(make).as_ref()
}

/// Returns the virtual address of the table. No instruction has an address in the table.
pub(crate) fn table_address() -> usize {
    appended().as_ptr().addr()
}

/// Returns the function that contains the virtual address `address`.
#[must_use]
pub fn lookup(address: usize) -> Option<Symbol<'static>> {
    table()?.lookup(address as u64)
}

/// Returns the functions, in the order of their addresses, each with its index in the table. A symbol without a size
/// names no function.
pub(crate) fn all() -> impl Iterator<Item = (usize, Symbol<'static>)> {
    let symbols = table().into_iter().flat_map(|table| table.iter()).enumerate();
    symbols.filter(|(_, symbol)| symbol.size > 0)
}

/// Returns the plain path of each function.
pub(crate) fn plain_paths() -> impl Iterator<Item = Result<Cow<'static, str>, OutOfMemory>> {
    let paths = paths();
    all().map(move |(number, function)| paths::of(paths, number, &function))
}

/// Returns the demangled name of each function.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(_, function)| function.name)
}

/// Returns the plain path of each static.
pub(crate) fn static_paths() -> impl Iterator<Item = Result<String, OutOfMemory>> {
    table().into_iter().flat_map(|table| table.statics()).map(|each| plain_path(each.name))
}

/// Returns the virtual address range of the function that contains the virtual address `address`.
#[must_use]
pub fn function(address: usize) -> Option<Range<usize>> {
    /// The position of the last function found. Lookups of many addresses are mostly in ascending order.
    static NEAR: AtomicUsize = AtomicUsize::new(0);
    table()?.range_with_hint(address, &NEAR)
}

/// Returns whether any of these virtual addresses holds data among the instructions.
#[must_use]
pub fn has_data(addresses: Range<usize>) -> bool {
    table().is_some_and(|table| table.has_data(addresses.start as u64..addresses.end as u64))
}

/// Returns the survey of the text that is in the table; empty if there is none.
#[must_use]
pub fn survey() -> &'static [u8] {
    table().map(SymbolTable::survey).unwrap_or_default()
}

/// Returns the functions with the demangled name `name`, in ascending order of address.
pub fn find(name: &str) -> impl Iterator<Item = Symbol<'static>> + use<> {
    table().map(|table| table.find(name)).into_iter().flatten()
}

/// Returns the number of `function` among the functions with its path, in the order of their addresses, from 1. Returns
/// 0 if no other function has its path.
pub(crate) fn number(function: &Symbol<'_>) -> usize {
    if let Some(paths) = paths() {
        return paths.number_of(function);
    }
    let same = || find(function.name).filter(|other| other.size > 0);
    match same().count() {
        ..=1 => 0,
        _ => 1 + same().filter(|other| other.address < function.address).count(),
    }
}

/// Returns whether `function` has the number `wanted` among the functions with its path, if a number is wanted.
fn is_meant(function: &Symbol<'_>, wanted: Option<usize>) -> bool {
    wanted.is_none_or(|wanted| number(function).max(1) == wanted)
}

/// Returns the path of `function`, with its number if other functions have the same path. The result names this
/// function only.
///
/// # Errors
///
/// There is no memory for the path.
pub fn path(function: &Symbol<'_>) -> Result<String, OutOfMemory> {
    match number(function) {
        0 => fallible::copy(function.name),
        number => fallible::format(format_args!("{}#{number}", function.name)),
    }
}

/// Returns the functions that `glob` means, in the order of their addresses, each once: see [`Glob::matches`] and
/// [`numbered`].
pub fn functions(glob: &str) -> impl Iterator<Item = Symbol<'static>> {
    let (glob, wanted) = numbered(glob);
    matching(Glob::new(glob), wanted)
}

/// Returns the functions that `glob` means as [`functions`] does, but brackets in it also hold classes of characters:
/// see [`Glob::with_classes`].
pub fn functions_by_classes(glob: &str) -> impl Iterator<Item = Symbol<'static>> {
    let (glob, wanted) = numbered(glob);
    matching(Glob::with_classes(glob), wanted)
}

fn matching(glob: Glob<'_>, wanted: Option<usize>) -> impl Iterator<Item = Symbol<'static>> {
    let paths = paths();
    let mut end = 0;
    // One filter: a second one would take longer for each symbol.
    let all = table().into_iter().flat_map(|table| table.iter()).enumerate();
    let matching =
        all.filter(move |(number, function)| function.size > 0 && paths::matches(paths, *number, function, glob));
    let each_once = matching.map(|(_, function)| function).filter(move |function| {
        // A function with several names is returned once.
        let is_new = function.address >= end;
        end = end.max(function.address + function.size);
        is_new
    });
    each_once.filter(move |function| is_meant(function, wanted))
}

/// Returns the functions that `name`, which is no pattern, means: the functions with exactly this path, otherwise the
/// functions with this plain path.
pub fn meant(name: &str) -> impl Iterator<Item = Symbol<'static>> {
    let (path, wanted) = numbered(name);
    let exact = find(path).filter(move |function| is_meant(function, wanted));
    let is_known = find(path).next().is_some() || name.contains(['*', '?']);
    exact.chain((!is_known).then(|| functions(name)).into_iter().flatten())
}

/// Returns the function that is most similar to `path`, which names no function.
#[must_use]
pub fn nearest(path: &str) -> Option<&'static str> {
    let paths = paths();
    nearest_path(
        path,
        all().filter_map(|(number, function)| Some((function.name, paths::of(paths, number, &function).ok()?))),
    )
}

/// Returns the static that is most similar to `path`, which names no static.
#[must_use]
pub fn nearest_static(path: &str) -> Option<&'static str> {
    nearest_path(path, table()?.statics().filter_map(|each| Some((each.name, plain_path(each.name).ok()?.into()))))
}

/// Returns the statics with the demangled name `name`, in ascending order of address.
pub fn find_static(name: &str) -> impl Iterator<Item = Symbol<'static>> + use<> {
    table().map(|table| table.find_static(name)).into_iter().flatten()
}

/// Returns the virtual address of the static with the demangled name `name`, otherwise of the function that `name`
/// means.
pub(crate) fn address(name: &str) -> Option<u64> {
    find_static(name).next().or_else(|| meant(name).next()).map(|symbol| symbol.address)
}

/// A virtual address, shown as `name+0x10/0x40`: the function, the offset in it, and its size, in bytes. It is shown as
/// a number if no function contains it. An address in a slot or a stub is shown as the probed instruction.
#[derive(Clone, Copy, Debug)]
pub struct Symbolic(pub usize);

/// A return address, shown like [`Symbolic`], but in the function that contains the call: after a call that does not
/// return, the return address may belong to the next function.
#[derive(Clone, Copy, Debug)]
pub struct ReturnAddress(pub usize);

impl fmt::Display for Symbolic {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let address = probe::origin(self.0).unwrap_or(self.0);
        show(f, address, lookup(address))
    }
}

impl fmt::Display for ReturnAddress {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        show(f, self.0, lookup(self.0.wrapping_sub(4)))
    }
}

fn show(f: &mut fmt::Formatter, address: usize, symbol: Option<Symbol>) -> fmt::Result {
    match symbol {
        Some(Symbol { name, address: start, size }) => {
            write!(f, "{name}+{:#x}/{size:#x}", (address as u64).wrapping_sub(start))
        }
        None => write!(f, "{address:#018x}"),
    }
}
