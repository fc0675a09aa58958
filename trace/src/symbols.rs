//! The names of functions and statics, as the kernel provides them, and addresses as text by these names.

use core::fmt::{self, Write};

use kprobes_types::{LineError, Types};

/// A function of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// The demangled path.
    pub name: &'a str,
    /// The virtual address of the first instruction.
    pub address: u64,
    /// The length in bytes.
    pub size: u64,
}

/// The names of functions and statics.
pub trait Symbols {
    /// Returns the function that contains the virtual address `address`.
    fn lookup(&self, address: u64) -> Option<Function<'_>>;

    /// Whether the virtual address `address` is the first instruction of a function that is reached only by calls under
    /// the procedure call standard (AAPCS64, section 6.1). Then x9 to x17 and the flags are dead there, and a probe
    /// costs less.
    fn is_call(&self, _address: u64) -> bool {
        false
    }

    /// Returns the signature of the function that begins at the virtual address `address`, with the types of its
    /// arguments and its result.
    fn signature(&self, _address: u64) -> Option<(Types<'_>, kprobes_types::Function<'_>)> {
        None
    }

    /// Calls `each` with the virtual addresses of the instructions that begin line `line` of the source file whose path
    /// ends with `file`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such line.
    fn line(&self, _file: &str, _line: u32, _each: &mut dyn FnMut(u64)) -> Result<(), LineError<'_>> {
        Err(LineError::NoLines)
    }

    /// Calls `each` with the functions that `name` means, in ascending order of address. These are the functions with
    /// this demangled path, of which there are several if crates share instances of one generic function. A kernel may
    /// also accept other spellings.
    fn find<'a>(&'a self, name: &str, each: &mut dyn FnMut(Function<'a>));

    /// Calls `each` with the virtual addresses of the statics whose demangled path is `name`.
    fn find_static(&self, _name: &str, _each: &mut dyn FnMut(u64)) {}

    /// Calls `each` with all functions, under names that are never freed. If a function has several names,
    /// [`lookup`](Self::lookup) decides which one counts. Arguments of type `symstr` are recorded with these names;
    /// without them, as addresses.
    fn each(&self, _each: &mut dyn FnMut(Function<'static>)) {}

    /// Returns whether the virtual address `address` is that of a trampoline, which replaces the return address of a
    /// call that a return probe follows.
    fn is_trampoline(&self, _address: u64) -> bool {
        false
    }

    /// Returns whether the function at the virtual address `function` is the outermost function of an interrupt
    /// handler.
    fn is_interrupt_entry(&self, _function: u64) -> bool {
        false
    }

    /// Returns the path of the function that was probably meant by `name`, when `name` names none.
    fn nearest(&self, _name: &str) -> Option<&str> {
        None
    }

    /// Returns the path of the static that was probably meant by `name`, when `name` names none.
    fn nearest_static(&self, _name: &str) -> Option<&str> {
        None
    }
}

/// Writes `name+0xOFFSET/0xSIZE` of the function that contains `address`; the bare address if no function does.
///
/// # Errors
///
/// Returns the error of `out`.
pub fn write_offset(out: &mut dyn Write, address: u64, symbols: &dyn Symbols) -> fmt::Result {
    write_on_stack(out, address, false, symbols)
}

/// Returns the function that an address on a stack belongs to. For a return address this is the function that contains
/// the call: the call may be its last instruction, and the return address then lies after its end.
pub(crate) fn lookup_on_stack(address: u64, is_return: bool, symbols: &dyn Symbols) -> Option<Function<'_>> {
    symbols.lookup(if is_return { address.wrapping_sub(4) } else { address })
}

/// Writes an address on a stack as [`write_offset`] does, but with the calling function for a return address.
///
/// # Errors
///
/// Returns the error of `out`.
pub fn write_on_stack(out: &mut dyn Write, address: u64, is_return: bool, symbols: &dyn Symbols) -> fmt::Result {
    match lookup_on_stack(address, is_return, symbols) {
        Some(function) => {
            write!(out, "{}+{:#x}/{:#x}", function.name, address - function.address, function.size)
        }
        None => write!(out, "{address:#x}"),
    }
}

/// Writes the name of the function that contains `address`; the bare address if no function does.
///
/// # Errors
///
/// Returns the error of `out`.
pub fn write_name(out: &mut dyn Write, address: u64, symbols: &dyn Symbols) -> fmt::Result {
    match symbols.lookup(address) {
        Some(function) => out.write_str(function.name),
        None => write!(out, "{address:#x}"),
    }
}
