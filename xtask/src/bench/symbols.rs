//! The functions of an image, by address.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use object::{Endianness, Object, ObjectSymbol, SymbolKind, read::elf::ElfFile64};

/// All functions, in ascending order of address.
pub struct Symbols(Vec<Function>);

struct Function {
    address: u64,
    size: u64,
    name: String,
}

impl Symbols {
    /// Reads the functions of the program `elf`.
    pub fn read(elf: &Path) -> Result<Self> {
        let program = fs::read(elf).with_context(|| format!("{} cannot be read", elf.display()))?;
        let file = ElfFile64::<Endianness>::parse(&*program)?;
        let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() != 0);
        Ok(Self::new(functions.filter_map(|symbol| {
            let name = format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?));
            Some((name, symbol.address(), symbol.size()))
        })))
    }

    /// Creates a list of functions from their names, addresses and sizes.
    pub fn new(functions: impl IntoIterator<Item = (String, u64, u64)>) -> Self {
        let mut functions: Vec<_> =
            functions.into_iter().map(|(name, address, size)| Function { address, size, name }).collect();
        functions.sort_by_key(|function| function.address);
        Self(functions)
    }

    /// Returns the name of the function around `address`, and the offset in it.
    pub fn lookup(&self, address: u64) -> Option<(&str, u64)> {
        let function = self.0[..self.0.partition_point(|function| function.address <= address)].last()?;
        let offset = address - function.address;
        (offset < function.size).then_some((&function.name, offset))
    }

    /// Returns the address and the size of the function of this name.
    pub fn find(&self, name: &str) -> Option<(u64, u64)> {
        self.0.iter().find(|function| function.name == name).map(|function| (function.address, function.size))
    }
}
