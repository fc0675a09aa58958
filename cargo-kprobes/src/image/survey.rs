//! Makes the engine's survey of a linked program, which the kernel would otherwise make before its first probes.

use std::{cell::Cell, ops::Range};

use aarch64_kprobes::{
    event::{SITE_IN_PROGRAM, site_in_program},
    insn::Survey,
};
use anyhow::{Context, Result, ensure};
use kprobes_symbols::SymbolTable;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, elf, read::elf::ElfFile64};

/// The surveyed range begins and ends at multiples of this many bytes, the largest size of a page: a kernel may count
/// whole pages as its text.
const GRANULE: u64 = 64 << 10;
/// The most words that the analysis may read for each word of the sections: a kernel takes 5. Without this limit, a
/// program that is made to be slow would take minutes.
const READS_PER_WORD: usize = 100;

/// Surveys the sections of instructions of the image at the virtual addresses `image`. `None` if the program does not
/// contain the engine, or if the analysis takes too long. `table` has the functions of the program, as the kernel will
/// find them.
pub fn of_program(file: &ElfFile64<'_>, image: &Range<u64>, table: &SymbolTable<'_>) -> Result<Option<Vec<u8>>> {
    let address = |name| file.symbol_by_name(name).map(|symbol| symbol.address());
    let Some(region) = address("__kprobes_text_start") else { return Ok(None) };
    let mut end = image.start;
    let mut sections = Vec::new();
    for section in file.sections().filter(|section| is_in_memory(section) && image.contains(&section.address())) {
        end = end.max(section.address().saturating_add(section.size()).min(image.end));
        if section.kind() == SectionKind::Text {
            ensure!(section.address().is_multiple_of(4), "a section of instructions is not aligned");
            let (words, _) = section.data().context("a section is truncated")?.as_chunks();
            sections.push((section.address(), words.iter().map(|word| u32::from_le_bytes(*word)).collect::<Vec<_>>()));
        }
    }
    sections.sort_unstable_by_key(|&(address, _)| address);
    if let (Some(start), Some(end)) = (address("__kprobes_sites_start"), address("__kprobes_sites_end")) {
        for (instruction, word) in sites(file, start..end)? {
            let site =
                find(&sections, instruction).context("a static event is outside of the sections of instructions")?;
            sections[site.0].1[site.1] = word;
        }
    }

    let words: usize = sections.iter().map(|(_, words)| words.len()).sum();
    let reads = Cell::new(words.saturating_mul(READS_PER_WORD));
    let read = |address: u64| {
        let (section, word) = find(&sections, address)?;
        reads.set(reads.get().checked_sub(1)?);
        Some(sections[section].1[word])
    };
    let bounds = |address| table.range(address, &mut 0);
    let text = image.start / GRANULE * GRANULE..end.checked_next_multiple_of(GRANULE).unwrap_or(end & !3);
    let survey = Survey::of_text(text, &read, &bounds);
    Ok(survey.filter(|_| reads.get() > 0).and_then(|survey| survey.to_bytes(region)))
}

/// Returns the numbers of the section and of the word in it at a virtual address.
fn find(sections: &[(u64, Vec<u32>)], address: u64) -> Option<(usize, usize)> {
    let number = sections.partition_point(|&(start, _)| start <= address).checked_sub(1)?;
    let (start, words) = &sections[number];
    let word = usize::try_from((address - start) / 4).ok()?;
    (word < words.len()).then_some((number, word))
}

/// Returns the site of each static event: the virtual address of its instruction, and the instruction that an analysis
/// takes it for. The descriptions of the sites are at the virtual addresses `place`.
fn sites(file: &ElfFile64<'_>, place: Range<u64>) -> Result<Vec<(u64, u32)>> {
    if place.is_empty() {
        return Ok(Vec::new());
    }
    // Sections that are not in memory have addresses from 0.
    let mut sections = file.sections().filter(is_in_memory);
    let bytes = sections.find_map(|section| section.data_range(place.start, place.end - place.start).ok()?);
    let (descriptions, rest) = bytes.context("the sites of static events are in no section")?.as_chunks();
    ensure!(rest.is_empty(), "the sites of static events are truncated");
    let addresses = (place.start..).step_by(SITE_IN_PROGRAM);
    Ok(descriptions.iter().zip(addresses).map(|(site, address)| site_in_program(site, address)).collect())
}

fn is_in_memory<'data>(section: &impl ObjectSection<'data>) -> bool {
    matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(elf::SHF_ALLOC))
}
