//! The executable as the audit reads it: bytes by address, and functions by the symbols that cover them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use aarch64_kprobes::insn::{Instruction, Op, RegisterAccess, Registers, Verdict, classify};
use anyhow::{Context, Result, anyhow, ensure};
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind, elf,
    read::elf::{ElfFile64, FileHeader},
};

use super::flow::{Flow, flow};

/// The symbols of `linker.ld` for the bounds of the region in which no probe is accepted.
const REGION: [&str; 2] = ["__kprobes_text_start", "__kprobes_text_end"];
/// The symbols for the bounds of the part of the region that has the handlers of probes.
const HANDLERS: [&str; 2] = ["__kprobes_handlers_start", "__kprobes_handlers_end"];

/// A function: the range of a symbol of type `STT_FUNC` with a size, within its section.
#[derive(Debug)]
pub struct Function {
    /// The virtual addresses of its instructions.
    pub range: Range<u64>,
    /// Its demangled names without hashes, the shortest first. Merged equal functions have several.
    pub names: Vec<String>,
}

impl Function {
    /// The name that it is shown by.
    pub fn name(&self) -> &str {
        &self.names[0]
    }

    /// Whether LLVM's machine outliner made it, from instructions without a branch that functions have in common. Such
    /// a function may return with another stack pointer than it was called with, and preserves the registers that its
    /// instructions do not write.
    pub fn is_outlined(&self) -> bool {
        self.names.iter().any(|name| name.starts_with("OUTLINED_FUNCTION_"))
    }
}

/// An executable: a linked program.
#[derive(Debug)]
pub struct Executable {
    /// The contents of the sections that are in memory, by their address.
    sections: BTreeMap<u64, Vec<u8>>,
    /// The functions, by their address.
    functions: BTreeMap<u64, Function>,
    /// The addresses of objects that instructions compute. The next of them after a jump table is the table's end.
    objects: BTreeSet<u64>,
    /// The values of the other symbols, by name.
    values: BTreeMap<String, u64>,
    /// The virtual addresses of the region in which no probe is accepted.
    pub region: Range<u64>,
    /// The virtual addresses of the part of it that has handlers. Empty if the layout has none.
    pub handlers: Range<u64>,
}

/// Parses a linked program.
pub fn parse_elf(bytes: &[u8]) -> Result<ElfFile64<'_>> {
    let file =
        ElfFile64::<Endianness>::parse(bytes).map_err(|error| anyhow!("it is not a 64-bit ELF file: {error}"))?;
    let machine = file.elf_header().e_machine(file.endian());
    ensure!(machine == elf::EM_AARCH64 && file.is_little_endian(), "it is not a program for little-endian AArch64");
    Ok(file)
}

impl Executable {
    /// Parses an ELF file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        Self::read(&parse_elf(bytes)?)
    }

    /// Reads a parsed ELF file.
    pub fn read(file: &ElfFile64<'_>) -> Result<Self> {
        let mut sections = BTreeMap::new();
        let mut executable = Vec::new();
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let data = section.data().context("a section is truncated")?;
            if sh_flags.contains(elf::SHF_ALLOC) && !data.is_empty() {
                let end = section.address().checked_add(section.size());
                let range = section.address()..end.context("a section extends past the last address")?;
                sections.insert(range.start, data.to_vec());
                if sh_flags.contains(elf::SHF_EXECINSTR) {
                    executable.push(range);
                }
            }
        }
        let mut functions = BTreeMap::<u64, Function>::new();
        let mut values = BTreeMap::new();
        for symbol in file.symbols() {
            let name = symbol.name().context("the name of a symbol is not valid")?;
            let start = symbol.address();
            if symbol.kind() == SymbolKind::Text && symbol.size() != 0 {
                if let Some(section) = executable.iter().find(|section| section.contains(&start)) {
                    let name = format!("{:#}", rustc_demangle::demangle(name));
                    let end = start.saturating_add(symbol.size()).min(section.end);
                    let function = functions.entry(start).or_insert(Function { range: start..end, names: Vec::new() });
                    function.range.end = function.range.end.max(end);
                    function.names.push(name);
                }
            } else {
                values.insert(name.to_owned(), start);
            }
        }
        for function in functions.values_mut() {
            function.names.sort_by_key(|name| (name.len(), name.clone()));
            function.names.dedup();
        }
        let objects = executable.iter().flat_map(|range| objects(&sections, range.clone())).collect();
        let range = |[start, end]: [&str; 2]| Some(*values.get(start)?..*values.get(end)?);
        let region = range(REGION)
            .with_context(|| format!("it has no symbols {} and {}: see linker.ld", REGION[0], REGION[1]))?;
        let handlers = range(HANDLERS).unwrap_or(region.start..region.start);
        Ok(Self { sections, functions, objects, values, region, handlers })
    }

    /// Returns the function that covers the virtual address `address`.
    pub fn function(&self, address: u64) -> Option<&Function> {
        let (_, function) = self.functions.range(..=address).next_back()?;
        function.range.contains(&address).then_some(function)
    }

    /// Whether an instruction computes `address`, so that an object begins there.
    pub fn begins_object(&self, address: u64) -> bool {
        self.objects.contains(&address)
    }

    /// Returns all functions, in the order of their addresses.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// Returns the value of the symbol `name`, which is not a function.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.values.get(name).copied()
    }

    /// Returns `length` bytes at the virtual address `address`, if the executable has contents there.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let (start, contents) = self.sections.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        contents.get(offset..offset.checked_add(length)?)
    }

    /// Returns the instruction at the virtual address `address`.
    pub fn word(&self, address: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(address, 4)?.try_into().ok()?))
    }

    /// Formats the virtual address `address` as a place in its function.
    pub fn describe(&self, address: u64) -> String {
        match self.function(address) {
            Some(function) if function.range.start == address => function.name().to_owned(),
            Some(function) => format!("{}+{:#x}", function.name(), address - function.range.start),
            None => format!("{address:#x}"),
        }
    }
}

/// Whether control can go from the instruction `word` to the next with the same value in the register `rd`. A called
/// function preserves some registers (AAPCS64, section 6.1.1).
fn keeps(word: u32, rd: u8) -> bool {
    match flow(word) {
        Flow::Next => !RegisterAccess::of(word).may_write(word).intersects(Registers::x(rd)),
        Flow::Condition(_) => true,
        Flow::Call(_) | Flow::CallRegister(_) => (19..=29).contains(&rd),
        Flow::Jump(_) | Flow::JumpRegister(_) | Flow::Return | Flow::Exception(_) => false,
    }
}

/// Returns the addresses that pairs of ADRP and ADD (immediate), and ADR, compute in `text`.
fn objects(sections: &BTreeMap<u64, Vec<u8>>, text: Range<u64>) -> Vec<u64> {
    /// The largest distance between the two of a pair, in instructions.
    const APART: usize = 4;
    let Some(contents) = sections.get(&text.start) else { return Vec::new() };
    let words: Vec<u32> = contents.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let mut found = Vec::new();
    for (index, (&word, at)) in words.iter().zip(text.step_by(4)).enumerate() {
        match classify(word) {
            Verdict::Simulate(Op::Address { offset, .. }) => found.push(at.wrapping_add_signed(offset.into())),
            Verdict::Simulate(Op::AddressOfPage { rd, offset }) => {
                let page = (at & !0xfff).wrapping_add_signed(offset);
                for &word in words[index + 1..].iter().take(APART) {
                    if let Some(Instruction::AddImmediate { rn, addend: addend @ 0..0x1000, .. }) =
                        Instruction::decode(word)
                        && rn == rd
                    {
                        found.push(page.wrapping_add_signed(addend));
                        break;
                    }
                    if !keeps(word, rd) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
impl Executable {
    /// Creates an executable of these functions, each with its address and its words. All of them are in the region,
    /// and each is a section.
    pub fn of(functions: &[(&str, u64, &[u32])]) -> Self {
        let mut executable = Self {
            sections: BTreeMap::new(),
            functions: BTreeMap::new(),
            objects: BTreeSet::new(),
            values: BTreeMap::new(),
            region: 0..u64::MAX,
            handlers: 0..0,
        };
        for &(name, start, words) in functions {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let range = start..start + bytes.len() as u64;
            executable.sections.insert(start, bytes);
            executable.objects.extend(objects(&executable.sections, range.clone()));
            executable.functions.insert(start, Function { range, names: vec![name.to_owned()] });
        }
        executable
    }

    /// Adds an object whose address an instruction computes.
    pub fn with_object(mut self, address: u64) -> Self {
        self.objects.insert(address);
        self
    }

    /// Adds data at an address.
    pub fn with_data(mut self, address: u64, bytes: &[u8]) -> Self {
        self.sections.insert(address, bytes.to_vec());
        self
    }
}
