//! Checks the names in assembly. If an image is optimized as a whole (`lto = "fat"`), the assembly of all its crates is
//! one file, in which a macro, a symbol or a label may be defined only once. `check::lto` links such an image in
//! thorough runs. This finds names that are defined twice in files, but not those in the text of a `global_asm!`.
//!
//! Also checks that the Rust functions to which assembly branches have the calling convention of C: that of Rust may
//! change with the compiler.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::workspace;

/// Directories with assembly of the largest image. A crate includes a file of the directory by a path that ends in one
/// of these texts and the name of the file.
const DIRECTORIES: [(&str, &[&str]); 2] = [("trampoline", &["/trampoline/"]), ("tests", &["\"", "../"])];
/// The directories of its sources.
const SOURCES: [&str; 3] = ["src", "runtime/src", "tests/src"];

/// Reads the files below `directory` whose names end with `ending`.
fn read(directory: &Path, ending: &str, into: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).expect("it is a directory") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            read(&path, ending, into);
        } else if name.ends_with(ending) {
            into.push((name, fs::read_to_string(&path).expect("it is text")));
        }
    }
}

/// Returns the macro, symbol or label that a line defines, if it defines one.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.$".contains(c);
    let rest = line.strip_prefix(".macro ").map(str::trim_start);
    let name = rest.unwrap_or(line);
    let (name, behind) = name.split_at(name.find(|c| !is_part(c)).unwrap_or(name.len()));
    let is_name = name.starts_with(|c: char| !c.is_ascii_digit());
    (is_name && (rest.is_some() || behind.starts_with(':'))).then_some(name)
}

/// Returns the names that `text` defines when it is assembled once. The labels in macros are those of their uses.
fn names(text: &str) -> Vec<&str> {
    let mut is_in_macro = false;
    let mut names = Vec::new();
    for line in text.lines() {
        if !is_in_macro {
            names.extend(defined(line));
        }
        is_in_macro = (is_in_macro || line.trim_start().starts_with(".macro ")) && line.trim() != ".endm";
    }
    names
}

/// Returns whether what `text` defines is left out when it is included again.
fn is_guarded(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.next().is_some_and(|line| line.starts_with(".ifndef "))
}

#[test]
fn no_name_is_defined_twice_in_an_image_that_is_one_file() {
    let root = workspace::root();
    let mut sources = Vec::new();
    SOURCES.iter().for_each(|directory| read(&root.join(directory), ".rs", &mut sources));
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (directory, starts) in DIRECTORIES {
        let mut files = Vec::new();
        read(&root.join(directory), ".S", &mut files);
        for (file, text) in files {
            let includes = sources.iter().flat_map(|(_, source)| source.lines()).filter(|line| {
                line.contains("include_str!") && starts.iter().any(|start| line.contains(&format!("{start}{file}\"")))
            });
            let included = includes.count();
            assert!(included > 0, "{file} is not included");
            let times = if is_guarded(&text) { 1 } else { included };
            for name in names(&text) {
                let places = definitions.entry(name.to_owned()).or_default();
                places.extend((0..times).map(|_| file.clone()));
            }
        }
    }
    assert!(definitions.len() > 50, "too few names were found");
    definitions.retain(|_, places| places.len() > 1);
    assert!(definitions.is_empty(), "defined more than once: {definitions:#?}");
}

/// Returns the name to which a line branches.
fn branch_target(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let is_branch = matches!(words.next(), Some("b" | "bl"));
    words.next().filter(|name| is_branch && name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Returns the functions of `source` that assembly can name, each with whether it has the calling convention of C. The
/// macro `called_by_assembly` (`src/convention.rs`) gives it to the functions in it.
fn unmangled(source: &str) -> impl Iterator<Item = (&str, bool)> {
    let (mut is_next, mut is_in_macro) = (false, false);
    source.lines().filter_map(move |line| {
        is_in_macro = (is_in_macro || line == "called_by_assembly! {") && line != "}";
        is_next |= line.contains("#[unsafe(no_mangle)]");
        let (before, behind) = line.split_once("fn ").filter(|_| is_next)?;
        is_next = false;
        Some((behind.split(['(', '<']).next()?, is_in_macro || before.contains("extern \"C\"")))
    })
}

#[test]
fn what_assembly_branches_to_has_the_calling_convention_of_c() {
    let root = workspace::root();
    let (mut files, mut sources) = (Vec::new(), Vec::new());
    DIRECTORIES.iter().for_each(|(directory, _)| read(&root.join(directory), ".S", &mut files));
    SOURCES.iter().for_each(|directory| read(&root.join(directory), ".rs", &mut sources));
    let functions: BTreeMap<_, _> = sources.iter().flat_map(|(_, source)| unmangled(source)).collect();
    let targets: BTreeSet<_> = files.iter().flat_map(|(_, text)| text.lines().filter_map(branch_target)).collect();
    let called: Vec<_> = targets.iter().filter_map(|target| Some((target, functions.get(target)?))).collect();
    assert!(called.len() >= 12, "too few are called: {called:?}");
    assert!(called.iter().all(|(_, is_of_c)| **is_of_c), "one has another convention: {called:?}");
}

#[test]
fn macros_symbols_and_labels_are_names() {
    let text = ".macro one a\n2: nop\ninner:\n.endm\ntwo:\n.set five, 1\nthree:\n.Lfour: nop\n  ret // no: none\n1:  ret\n.endm";
    assert_eq!(names(text), ["one", "two", "three", ".Lfour"]);
}
