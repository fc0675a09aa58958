//! Inlined copies of functions, from the table of the image.
//!
//! Programs know functions by their addresses, but a function that is inlined everywhere has none. An address in the
//! tables of the image, where no instruction is, represents such a function. In this module, the *value* of a function
//! is the address that represents it.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::ops::Range;

use aarch64_kprobes::insn::{self, Verdict};
use aarch64_kprobes::probe;
use fallible::OutOfMemory;
use kprobes_program::error::Problem;
use kprobes_program::syntax::Probe;
use kprobes_symbols::names::Glob;
use kprobes_symbols::{InlinedCopies, InlinedCopy, InlinedError, InlinedFunction, Passage, When};

use spin::Once;

use super::exits::Exit;
use super::places::Way;
use crate::{host, symbol};

/// An instruction at which control passes into a copy, or out of it.
pub(super) struct CopyBoundary {
    pub way: Way,
    /// The virtual address of the instruction.
    pub address: usize,
}

/// A copy, at its entry or its exit.
pub(super) struct FoundCopy {
    /// The value of the function, and the value of the function that contains the copy in the source.
    pub function: u64,
    pub caller: u64,
    /// The demangled name of the function.
    pub name: String,
    /// The virtual address range of the function in the image that contains the copy.
    pub host: Range<usize>,
    /// The virtual address of the first instruction of the copy.
    pub address: usize,
    /// The hash of the name in the table of types.
    pub hash: u16,
    is_in_pieces: bool,
    /// The instructions at which control passes; `None` if no instructions mark this.
    pub boundaries: Option<Vec<CopyBoundary>>,
}

/// The copies that a glob means.
#[derive(Default)]
pub(super) struct FoundCopies {
    pub copies: Vec<FoundCopy>,
    /// The names of the copied functions, and of the functions that contain the copies, with their values.
    pub names: Vec<(u64, String)>,
}

/// The table of copies for one program. It is unpacked at the first use.
#[derive(Default)]
pub(super) struct CopyTable(OnceCell<Result<Unpacked, Problem>>);

/// The unpacked table. Unpacking takes a hundred times as long as reading, so the table is kept for the next program,
/// unless it would take more than one part in [`KEPT`] of the memory to spare.
enum Unpacked {
    Kept(&'static InlinedCopies),
    Once(InlinedCopies),
}

static UNPACKED: Once<InlinedCopies> = Once::new();
/// A kept table may take the memory to spare divided by this.
const KEPT: usize = 64;

/// Returns the value of a function that has copies.
fn value(function: &InlinedFunction<'_>) -> u64 {
    let address = symbol::find(&function.name).next().map(|symbol| symbol.address);
    // The sum is an address within the table, because each function takes more than a byte there.
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

impl CopyTable {
    fn get(&self) -> Result<&InlinedCopies, Problem> {
        match self.0.get_or_init(Unpacked::new) {
            Ok(Unpacked::Kept(copies)) => Ok(copies),
            Ok(Unpacked::Once(copies)) => Ok(copies),
            Err(problem) => Err(*problem),
        }
    }

    /// Returns the values of the functions that have copies and that `glob` matches.
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

    /// Returns the copies of the functions that `glob` matches, with the instructions that enter them, or that leave
    /// them if `exit`.
    ///
    /// # Errors
    ///
    /// The table is damaged, there is no memory for it, or there are no copies.
    pub fn copies(&self, glob: &str, exit: bool) -> Result<FoundCopies, Problem> {
        let table = self.get()?;
        let mut found = FoundCopies::default();
        // The numbers of the functions that contain copies, each with the index of the copy.
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
                let copy = FoundCopy {
                    function: stands_for,
                    caller: host.start as u64,
                    name: fallible::copy(&function.name)?,
                    address: stored.address as usize,
                    hash: kprobes_types::hash(&function.name),
                    is_in_pieces: stored.is_in_pieces,
                    boundaries: boundaries(&stored, exit, &host)?,
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

    /// Returns a line for each copy that a probe means: the probe, the place of the copy, and remarks.
    ///
    /// # Errors
    ///
    /// The table is damaged, there is no memory for it, or there are no copies.
    pub fn list(&self, glob: &str, exit: bool) -> Result<Vec<String>, Problem> {
        let line = |copy: FoundCopy| {
            let FoundCopy { name, host, address, is_in_pieces, boundaries, .. } = copy;
            let host_name = symbol::lookup(host.start).map_or("", |symbol| symbol.name);
            let offset = address - host.start;
            let about = match boundaries {
                None => ", not marked by an instruction",
                Some(_) if is_in_pieces => ", in pieces",
                Some(_) => "",
            };
            let probe = Probe::Inline { function: name, exit };
            fallible::format(format_args!("{probe} in {host_name}+{offset:#x}{about}"))
        };
        Ok(fallible::collect_results(self.copies(glob, exit)?.copies.into_iter().map(line))?)
    }
}

/// Returns the instructions of `host` at which control passes into a copy, or out of it if `exit`; `None` if no
/// instructions mark this.
fn boundaries(
    copy: &InlinedCopy<'_>,
    exit: bool,
    host: &Range<usize>,
) -> Result<Option<Vec<CopyBoundary>>, OutOfMemory> {
    let boundary = |Passage { address, when }: Passage| {
        let address = address as usize;
        let way = match when {
            When::Always => Way::Instruction,
            When::Taken => Way::Exit(Exit::Conditional(branch_at(address)?)),
            When::NotTaken => Way::Exit(Exit::Unless(branch_at(address)?)),
        };
        host.contains(&address).then_some(CopyBoundary { way, address })
    };
    match exit {
        true => copy.exits().map_or(Ok(None), |passages| all(passages.map(boundary))),
        false => copy.entries().map_or(Ok(None), |passages| all(passages.map(boundary))),
    }
}

/// Returns the boundaries; `None` if one of them is `None`.
fn all(boundaries: impl Iterator<Item = Option<CopyBoundary>>) -> Result<Option<Vec<CopyBoundary>>, OutOfMemory> {
    let mut all = Vec::new();
    for boundary in boundaries {
        let Some(boundary) = boundary else { return Ok(None) };
        fallible::push(&mut all, boundary)?;
    }
    Ok(Some(all))
}

/// Returns the conditional branch at the virtual address `address`.
fn branch_at(address: usize) -> Option<insn::Op> {
    match insn::classify(probe::instruction(address)?) {
        Verdict::Simulate(op) if op.control().branch_offset().is_some() => Some(op),
        _ => None,
    }
}
