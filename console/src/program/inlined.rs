//! Copies of functions that the compiler has put into others, from the table of the image.
//!
//! Programs know functions by their addresses, and a function of which there are copies may have none. What stands for it then is
//! an address in the table, where no instruction is.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::ops::Range;

use aarch64_kprobes::insn::{self, Verdict};
use aarch64_kprobes::probe;
use fallible::OutOfMemory;
use kprobes_program::error::Problem;
use kprobes_program::syntax::{Glob, Probe};
use kprobes_symbols::{InlinedCopies, InlinedCopy, InlinedError, InlinedFunction, Passage, When};

use spin::Once;

use super::exits::Exit;
use super::places::Way;
use crate::{host, symbol};

/// An instruction at which control passes into a copy, or out of it.
pub(super) struct Site {
    pub way: Way,
    /// Its virtual address.
    pub address: usize,
}

/// A copy, at one of its ends.
pub(super) struct Copy {
    /// What stands for the function, and for the one that it is in in the source.
    pub function: u64,
    pub caller: u64,
    /// The demangled name of the function.
    pub name: String,
    /// The virtual addresses of the function of the image that it is in.
    pub host: Range<usize>,
    /// The virtual address of its first instruction.
    address: usize,
    is_in_pieces: bool,
    /// Where control passes, if instructions tell.
    pub sites: Option<Vec<Site>>,
}

/// The copies that a glob means.
#[derive(Default)]
pub(super) struct Copies {
    pub copies: Vec<Copy>,
    /// The names of the functions that they are of, and of those that they are in, by what stands for them.
    pub names: Vec<(u64, String)>,
}

/// The table of copies, for one program: nothing until that asks for it.
#[derive(Default)]
pub(super) struct Table(OnceCell<Result<Unpacked, Problem>>);

/// The table as it can be read. To unpack it takes a hundred times as long as to read it, so it is kept for the next program,
/// unless that would take more than [a part](KEPT) of the memory that is to spare.
enum Unpacked {
    Kept(&'static InlinedCopies),
    Once(InlinedCopies),
}

static UNPACKED: Once<InlinedCopies> = Once::new();
/// One of so many parts.
const KEPT: usize = 64;

/// What stands for a function of which there are copies.
fn value(function: &InlinedFunction<'_>) -> u64 {
    let address = symbol::find(&function.name).next().map(|symbol| symbol.address);
    // In the table each of them has more than a byte.
    address.unwrap_or_else(|| (symbol::table_address() + function.number) as u64)
}

impl Unpacked {
    fn new() -> Result<Self, Problem> {
        if let Some(copies) = UNPACKED.get() {
            return Ok(Self::Kept(copies));
        }
        let copies = symbol::table().ok_or(Problem::NoInlined)?.inlined().map_err(|error| match error {
            InlinedError::NoMemory { bytes } => Problem::InlinedMemory { bytes },
            InlinedError::Inconsistent => Problem::InlinedDamaged,
        })?;
        let is_kept = copies.memory() <= host::memory_to_spare() / KEPT;
        Ok(if is_kept { Self::Kept(UNPACKED.call_once(|| copies)) } else { Self::Once(copies) })
    }
}

impl Table {
    fn get(&self) -> Result<&InlinedCopies, Problem> {
        match self.0.get_or_init(Unpacked::new) {
            Ok(Unpacked::Kept(copies)) => Ok(copies),
            Ok(Unpacked::Once(copies)) => Ok(copies),
            Err(problem) => Err(*problem),
        }
    }

    /// What stands for the functions that `glob` means of which there are copies.
    ///
    /// # Errors
    ///
    /// The table is damaged, or there is no memory for it.
    pub fn find(&self, glob: &str) -> Result<Vec<u64>, Problem> {
        let table = match self.get() {
            Err(Problem::NoInlined) => return Ok(Vec::new()),
            table => table?,
        };
        let glob = Glob::new(glob);
        let meant = table.functions_where(|_, name| glob.matches(name));
        Ok(fallible::collect_results(meant.map(|function| function.map(|function| value(&function))))?)
    }

    /// Where the copies of the functions that `glob` matches begin, or end if `exit`.
    ///
    /// # Errors
    ///
    /// As above, or there are none.
    pub fn copies(&self, glob: &str, exit: bool) -> Result<Copies, Problem> {
        let table = self.get()?;
        let mut found = Copies::default();
        // The numbers of functions, each with that of a copy which is in it.
        let mut callers: Vec<(usize, usize)> = Vec::new();
        let glob = Glob::new(glob);
        for function in table.functions_where(|_, name| glob.matches(name)) {
            let function = function?;
            let (stands_for, before) = (value(&function), found.copies.len());
            for stored in function.copies() {
                let Some(host) = symbol::function(stored.address as usize) else { continue };
                if let Some(caller) = stored.caller {
                    fallible::push(&mut callers, (caller, found.copies.len()))?;
                }
                let copy = Copy {
                    function: stands_for,
                    caller: host.start as u64,
                    name: fallible::copy(&function.name)?,
                    address: stored.address as usize,
                    is_in_pieces: stored.is_in_pieces,
                    sites: sites(&stored, exit, &host)?,
                    host,
                };
                fallible::push(&mut found.copies, copy)?;
            }
            if found.copies.len() > before {
                fallible::push(&mut found.names, (stands_for, function.name))?;
            }
        }
        callers.sort_unstable();
        let of = |caller: usize| {
            let rest = callers.get(callers.partition_point(|&(other, _)| other < caller)..).unwrap_or(&[]);
            rest.iter().take_while(move |&&(other, _)| other == caller)
        };
        for function in table.functions_where(|number, _| of(number).next().is_some()) {
            let function = function?;
            let caller = value(&function);
            for &(_, number) in of(function.number) {
                found.copies.get_mut(number).into_iter().for_each(|copy| copy.caller = caller);
            }
            fallible::push(&mut found.names, (caller, function.name))?;
        }
        if found.copies.is_empty() { Err(Problem::NoInlined) } else { Ok(found) }
    }

    /// A line for each copy that a probe means: the probe, where the copy is, and what is to be known of it.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn list(&self, glob: &str, exit: bool) -> Result<Vec<String>, Problem> {
        let line = |copy: Copy| {
            let Copy { name, host, address, is_in_pieces, sites, .. } = copy;
            let host_name = symbol::lookup(host.start).map_or("", |symbol| symbol.name);
            let offset = address - host.start;
            let about = match sites {
                None => ", which no instruction tells",
                Some(_) if is_in_pieces => ", in pieces",
                Some(_) => "",
            };
            let probe = Probe::Inline { function: name, exit };
            fallible::format(format_args!("{probe} in {host_name}+{offset:#x}{about}"))
        };
        Ok(fallible::collect_results(self.copies(glob, exit)?.copies.into_iter().map(line))?)
    }
}

/// The instructions of `host` at which control passes into a copy, or out of it, if instructions tell.
fn sites(copy: &InlinedCopy<'_>, exit: bool, host: &Range<usize>) -> Result<Option<Vec<Site>>, OutOfMemory> {
    let site = |Passage { address, when }: Passage| {
        let address = address as usize;
        let way = match when {
            When::Always => Way::Instruction,
            When::Taken => Way::Exit(Exit::Conditional(branch_at(address)?)),
            When::NotTaken => Way::Exit(Exit::Unless(branch_at(address)?)),
        };
        host.contains(&address).then_some(Site { way, address })
    };
    match exit {
        true => copy.exits().map_or(Ok(None), |passages| all(passages.map(site))),
        false => copy.entries().map_or(Ok(None), |passages| all(passages.map(site))),
    }
}

/// The sites in a list, if each of them is one.
fn all(sites: impl Iterator<Item = Option<Site>>) -> Result<Option<Vec<Site>>, OutOfMemory> {
    let mut all = Vec::new();
    for site in sites {
        let Some(site) = site else { return Ok(None) };
        fallible::push(&mut all, site)?;
    }
    Ok(Some(all))
}

/// The conditional branch at the virtual address `address`.
fn branch_at(address: usize) -> Option<insn::Op> {
    match insn::classify(probe::instruction(address)?) {
        Verdict::Simulate(op) if op.branch_offset().is_some() => Some(op),
        _ => None,
    }
}
