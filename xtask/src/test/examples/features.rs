//! The features of the engine: the example `minimal` works with each combination, and takes as much memory as the page
//! says.

use std::{fs, path::Path};

use object::{Object, ObjectSection, read::elf::ElfFile64};

use super::{VIRT, derived::Package, prints, read};
use crate::test::{
    pool::{BuildContext, Pool},
    report::Outcome,
    wanted::Wanted,
};

/// The combinations: what the page says, the name of the test, and the features as Cargo takes them.
const COMBINATIONS: [(&str, &str, &str); 4] = [
    ("`stubs`, `watchpoints`", "all", "stubs,watchpoints"),
    ("`stubs`", "stubs", "stubs"),
    ("`watchpoints`", "watchpoints", "watchpoints"),
    ("none", "none", ""),
];
const PAGE: &str = "docs/embedding.md";
/// How many KiB a figure may be away from that of the page, which is written by hand.
const TOLERANCE: u64 = 1;

/// Adds a test for each combination.
pub fn add<'a>(pool: &Pool<'a>, wanted: &'a Wanted) {
    let tests = wanted.among(COMBINATIONS.map(|(_, name, _)| test_name(name)));
    pool.add_for(tests, "the features of the engine", move |context| {
        for (row, name, features) in COMBINATIONS.into_iter().filter(|(_, name, _)| wanted.has(&test_name(name))) {
            context.results.step("build::features", add_one(context, row, name, features));
        }
    });
}

fn test_name(name: &str) -> String {
    format!("check::features::{name}")
}

fn add_one(context: &BuildContext<'_, '_>, row: &'static str, name: &str, features: &str) -> Result<(), String> {
    let package = Package::new("features")?;
    package.put(name, &[], "")?;
    let elf = package.build(&[name], &["--no-default-features", "--features", features])?.join(name);
    context.add_test(test_name(name), move || prints("minimal", &elf, VIRT).and_then(|_| takes(&elf, row)));
    Ok(())
}

/// Checks the lengths of a kernel against this row of the page.
fn takes(elf: &Path, row: &str) -> Result<Outcome, String> {
    let (found, said) = (kibibytes(elf)?, said(&read(PAGE)?, row)?);
    if found.iter().zip(said).all(|(found, said)| found.abs_diff(said) <= TOLERANCE) {
        return Ok(Outcome::Passed);
    }
    let [at_hits, all] = found;
    Err(format!("{PAGE} should say\n| {row} | {at_hits} KiB | {all} KiB |"))
}

/// Returns the lengths of what runs at a hit, and of all code and constants, in KiB.
fn kibibytes(elf: &Path) -> Result<[u64; 2], String> {
    let bytes = fs::read(elf).map_err(|error| error.to_string())?;
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).map_err(|error| error.to_string())?;
    let length = |name: &str| file.section_by_name(name).map_or(0, |section| section.size());
    let at_hits = length(".kprobes.text");
    Ok([at_hits, at_hits + length(".text") + length(".rodata")].map(|bytes| bytes.div_ceil(1024)))
}

/// Returns the figures of a row of the page.
fn said(page: &str, row: &str) -> Result<[u64; 2], String> {
    let start = format!("| {row} | ");
    let rest = page.lines().find_map(|line| line.strip_prefix(&start)).ok_or(format!("{PAGE} has no row for {row}"))?;
    let mut figures = rest.split(" KiB |").filter_map(|cell| cell.trim().parse().ok());
    let (Some(at_hits), Some(all)) = (figures.next(), figures.next()) else {
        return Err(format!("{PAGE} has no figures for {row}"));
    };
    Ok([at_hits, all])
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn a_row_has_two_figures() {
        let page = "| features | at hits |\n| `a`, `b` | 35 KiB | 160 KiB |\n| none | 20 KiB | x |\n";
        assert_eq!(said(page, "`a`, `b`"), Ok([35, 160]));
        assert!(said(page, "none").is_err());
        assert!(said(page, "`b`").is_err());
    }
}
