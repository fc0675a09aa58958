//! The names of the functions and statics of this image, from the table that is appended to it after the link.
//!
//! It is checked once, when the console is told of its kernel. A fault may be reported at any time, so a lookup never waits: before
//! the check, and without a good table, there are no names and addresses are shown as numbers.

use alloc::string::String;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use aarch64_kprobes::probe;
use fallible::OutOfMemory;
use kprobes_program::syntax::{Glob, numbered, plain_path};
use kprobes_symbols::{Symbol, SymbolTable};
use spin::Once;

use crate::host;
use crate::nearest::nearest_path;
use crate::paths::{self, Paths};

static TABLE: Once<Option<SymbolTable<'static>>> = Once::new();

/// The tables behind the image, as the kernel has them.
static APPENDED: Once<&[u8]> = Once::new();

/// Checks the table. Says so in a line if it is no good; everything else works without.
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

/// What follows the table, up to the stated length of the image: nothing if there is no good table.
pub(crate) fn behind() -> &'static [u8] {
    let length = table().map_or(usize::MAX, |table| table.length().next_multiple_of(4));
    appended().get(length..).unwrap_or_default()
}

fn appended() -> &'static [u8] {
    APPENDED.get().copied().unwrap_or_default()
}

/// The table, if there is a good one.
#[must_use]
pub fn table() -> Option<&'static SymbolTable<'static>> {
    TABLE.get()?.as_ref()
}

/// The plain paths of the functions of the table: made when they are first asked for, and kept, if they take no more than a 64th of
/// the memory that is to spare.
fn paths() -> Option<&'static Paths> {
    static PATHS: Once<Option<Paths>> = Once::new();
    let make = || {
        let table = table()?;
        Paths::new(|| table.iter(), host::memory_to_spare() / 64)
    };
    PATHS.call_once(make).as_ref()
}

/// The virtual address of the table, at which no instruction is.
pub(crate) fn table_address() -> usize {
    appended().as_ptr().addr()
}

/// The function that contains the virtual address `address`.
#[must_use]
pub fn lookup(address: usize) -> Option<Symbol<'static>> {
    table()?.lookup(address as u64)
}

/// The virtual addresses of the function that contains the virtual address `address`.
#[must_use]
pub fn function(address: usize) -> Option<Range<usize>> {
    /// Where the last one was found: who asks for many mostly asks in their order.
    static NEAR: AtomicUsize = AtomicUsize::new(0);
    let mut near = NEAR.load(Ordering::Relaxed);
    let Range { start, end } = table()?.range(address as u64, &mut near)?;
    NEAR.store(near, Ordering::Relaxed);
    Some(start as usize..end as usize)
}

/// Whether data lies anywhere at these virtual addresses, among instructions.
#[must_use]
pub fn has_data(addresses: Range<usize>) -> bool {
    table().is_some_and(|table| table.has_data(addresses.start as u64..addresses.end as u64))
}

/// The functions with the demangled name `name`, in ascending order of address.
pub fn find(name: &str) -> impl Iterator<Item = Symbol<'static>> + use<> {
    table().map(|table| table.find(name)).into_iter().flatten()
}

/// Which one `function` is of the functions that have its path, from 1 on in the order of their addresses; 0 if there is no other.
pub(crate) fn number(function: &Symbol<'_>) -> usize {
    let same = || find(function.name).filter(|other| other.size > 0);
    match same().count() {
        ..=1 => 0,
        _ => 1 + same().filter(|other| other.address < function.address).count(),
    }
}

/// Whether `function` is the one of its path that has this number, if one is wanted.
fn is_meant(function: &Symbol<'_>, wanted: Option<usize>) -> bool {
    wanted.is_none_or(|wanted| number(function).max(1) == wanted)
}

/// The path of `function`, with its number if there are several of that path: what means it alone.
///
/// # Errors
///
/// There is no memory for it.
pub fn path(function: &Symbol<'_>) -> Result<String, OutOfMemory> {
    match number(function) {
        0 => fallible::copy(function.name),
        number => fallible::format(format_args!("{}#{number}", function.name)),
    }
}

/// The functions that `glob` means, in the order of their addresses, each once: see [`Glob::matches`] and [`numbered`].
pub fn functions(glob: &str) -> impl Iterator<Item = Symbol<'static>> {
    let (glob, wanted) = numbered(glob);
    let (glob, paths) = (Glob::new(glob), paths());
    let mut end = 0;
    let all = table().into_iter().flat_map(|table| table.iter()).enumerate();
    let matching =
        all.filter(move |(number, function)| function.size > 0 && paths::matches(paths, *number, function, glob));
    let each_once = matching.map(|(_, function)| function).filter(move |function| {
        // Functions of several names are meant once.
        let is_new = function.address >= end;
        end = end.max(function.address + function.size);
        is_new
    });
    each_once.filter(move |function| is_meant(function, wanted))
}

/// The functions that `name` means, which is no pattern: those of just this path, or else those whose path is this without what
/// tells the copies of one function apart.
pub fn meant(name: &str) -> impl Iterator<Item = Symbol<'static>> {
    let (path, wanted) = numbered(name);
    let exact = find(path).filter(move |function| is_meant(function, wanted));
    let is_known = find(path).next().is_some() || name.contains(['*', '?']);
    exact.chain((!is_known).then(|| functions(name)).into_iter().flatten())
}

/// The function that was probably meant by `path`, which means none.
#[must_use]
pub fn nearest(path: &str) -> Option<&'static str> {
    let (paths, all) = (paths(), table()?.iter().enumerate().filter(|(_, function)| function.size > 0));
    nearest_path(
        path,
        all.filter_map(|(number, function)| Some((function.name, paths::of(paths, number, &function).ok()?))),
    )
}

/// The static that was probably meant by `path`, which means none.
#[must_use]
pub fn nearest_static(path: &str) -> Option<&'static str> {
    nearest_path(path, table()?.statics().filter_map(|each| Some((each.name, plain_path(each.name).ok()?.into()))))
}

/// The statics with the demangled name `name`, in ascending order of address.
pub fn find_static(name: &str) -> impl Iterator<Item = Symbol<'static>> + use<> {
    table().map(|table| table.find_static(name)).into_iter().flatten()
}

/// A virtual address, shown as `name+0x10/0x40`: the function, the offset in it and its size, in bytes; or as a
/// number where no function is known. An address in a slot or a stub is shown as the instruction that it stands for.
#[derive(Clone, Copy, Debug)]
pub struct Symbolic(pub usize);

/// A return address, shown as [`Symbolic`] does, but in the function that made the call: after a call that does not
/// return, the return address may be that of the next function.
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
