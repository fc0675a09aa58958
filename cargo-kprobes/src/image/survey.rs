//! Makes the engine's survey of a linked program, which the kernel would otherwise make before its first probes.

use std::{collections::HashMap, ops::Range};

use aarch64_kprobes::{event, insn::Survey};
use anyhow::{Context, Result};
use kprobes_symbols::SymbolTable;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, read::elf::ElfFile64};

/// The size of the description of a place where a static event happens, in bytes.
const SITE: usize = 24;

/// Surveys the sections of instructions whose virtual addresses are in `reach`; `None` if there are none. `table` has
/// the functions of the program, as the kernel will find them.
pub fn of_program(file: &ElfFile64<'_>, reach: &Range<u64>, table: &SymbolTable<'_>) -> Result<Option<Vec<u8>>> {
    let mut sections = Vec::new();
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text && section.size() != 0) {
        if reach.contains(&section.address()) {
            sections.push((section.address(), section.data().context("a section is truncated")?));
        }
    }
    sections.sort_by_key(|&(address, _)| address);
    let (Some(&(start, _)), Some(&(last, bytes))) = (sections.first(), sections.last()) else { return Ok(None) };
    // Kernels take whole pages for their text.
    let text = start..(last + bytes.len() as u64).next_multiple_of(super::PAGE as u64);

    let sites = sites(file)?;
    let read = |address: u64| {
        let after = sections.partition_point(|&(start, _)| start <= address);
        let (start, bytes) = sections[after.checked_sub(1)?];
        let (word, _) = bytes.get((address - start) as usize..)?.split_first_chunk()?;
        Some(sites.get(&address).copied().unwrap_or(u32::from_le_bytes(*word)))
    };
    let bounds = |address| table.range(address, &mut 0);
    Ok(Survey::of_text(text, &read, &bounds).and_then(|survey| survey.to_bytes()))
}

/// Returns the virtual address of each instruction at which a static event happens, and what an analysis takes it for.
fn sites(file: &ElfFile64<'_>) -> Result<HashMap<u64, u32>> {
    let address = |name| file.symbol_by_name(name).map(|symbol| symbol.address());
    let (Some(start), Some(end)) = (address("__kprobes_sites_start"), address("__kprobes_sites_end")) else {
        return Ok(HashMap::new());
    };
    let mut sites = HashMap::new();
    for section in file.sections() {
        let bytes = section.data_range(start, end.saturating_sub(start)).context("a section is truncated")?;
        let descriptions = bytes.unwrap_or_default().as_chunks::<SITE>().0;
        let addresses = (start..).step_by(SITE);
        sites.extend(descriptions.iter().zip(addresses).map(|(site, at)| event::site_in_program(site, at)));
    }
    Ok(sites)
}
