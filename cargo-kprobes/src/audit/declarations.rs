//! Facts that cannot be read from an image are declared: where paths begin and end, the targets of indirect calls, the
//! allowed locks. `docs/audit.md` describes the files.
//!
//! Every declaration has a reason. A declaration that applies to nothing is an error, so that the lists stay short.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use kprobes_symbols::glob_match;
use serde::Deserialize;

use super::executable::Function;

/// The text of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    roots: BTreeMap<String, RootText>,
    #[serde(default)]
    abandons: BTreeMap<String, String>,
    #[serde(default)]
    ends: BTreeMap<String, String>,
    #[serde(default)]
    locks: BTreeMap<String, String>,
    #[serde(default)]
    lock_free: BTreeMap<String, String>,
    #[serde(default)]
    elsewhere: BTreeMap<String, String>,
    #[serde(default)]
    inlined: BTreeMap<String, String>,
    #[serde(default)]
    indirect: Vec<IndirectText>,
    #[serde(default)]
    groups: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    generated: Vec<GeneratedText>,
    #[serde(default)]
    frames: BTreeMap<String, FrameText>,
    #[serde(default)]
    recursion: BTreeMap<String, RecursionText>,
    nesting: Option<NestingText>,
    stack: Option<StackText>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RootText {
    Reason(String),
    Table(TableText),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableText {
    every: u64,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IndirectText {
    r#in: String,
    sites: usize,
    reaches: Vec<String>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeneratedText {
    group: String,
    bytes: i64,
    reaches: Vec<String>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameText {
    bytes: i64,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecursionText {
    depth: i64,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NestingText {
    levels: i64,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StackText {
    size: Size,
    margin: i64,
    reason: String,
}

/// A number of bytes, written as a number or as a symbol of the image.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Size {
    Bytes(i64),
    Symbol(String),
}

/// One declaration about the functions whose name matches a pattern.
#[derive(Debug)]
pub struct Declaration<T> {
    /// The pattern, with the wildcards `*` and `?`.
    pub pattern: String,
    /// The declared property.
    pub value: T,
    /// The table of the file that it is in, for messages.
    table: &'static str,
    /// The reason for the declaration.
    pub reason: String,
    /// The index of the file that it is in.
    file: usize,
    is_used: Cell<bool>,
}

impl<T> Declaration<T> {
    /// Whether it is about `function`.
    pub fn matches(&self, function: &Function) -> bool {
        function.names.iter().any(|name| glob_match(&self.pattern, name))
    }

    /// Marks it as applying to something.
    pub fn is_needed(&self) {
        self.is_used.set(true);
    }
}

/// Returns the first of `declarations` about `function`, and marks it as applying.
pub fn applying<'a, T>(declarations: &'a [Declaration<T>], function: &Function) -> Option<&'a Declaration<T>> {
    declarations.iter().find(|declaration| declaration.matches(function)).inspect(|declaration| declaration.is_needed())
}

/// The targets of indirect calls.
#[derive(Debug)]
pub struct Indirect {
    /// How many such calls there are in the functions that match.
    pub sites: usize,
    /// The patterns of the targets; `@NAME` is a group.
    pub reaches: Vec<String>,
}

/// Calls of functions by generated code, which is not in the image because it is written while the kernel runs.
#[derive(Debug)]
pub struct Generated {
    /// The group of which the generated code is a member.
    pub group: String,
    /// The bytes of stack that it has in use when it calls.
    pub bytes: i64,
}

/// The stacks of the kernel.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The size of a stack.
    pub size: Size,
    /// How many bytes of it every task leaves free wherever a probe can be hit.
    pub margin: i64,
}

/// All declarations about an image.
#[derive(Debug, Default)]
pub struct Declarations {
    /// Their files, with whether a declaration that applies to nothing is an error in them.
    files: Vec<(PathBuf, bool)>,
    /// Where paths begin. The value is the distance between the entries of a table, or 0 for a single entry.
    pub roots: Vec<Declaration<u64>>,
    /// Functions after whose call the path ends.
    pub abandons: Vec<Declaration<()>>,
    /// Functions at which the path ends.
    pub ends: Vec<Declaration<()>>,
    /// Functions that take locks or wait.
    pub locks: Vec<Declaration<()>>,
    /// Suspected functions that neither take locks nor wait.
    pub lock_free: Vec<Declaration<()>>,
    /// Functions in the region that are not on a path.
    pub elsewhere: Vec<Declaration<()>>,
    /// Indirect calls.
    pub indirect: Vec<Declaration<Indirect>>,
    /// Functions that belong to a group.
    pub groups: Vec<Declaration<String>>,
    /// Functions that generated code calls.
    pub generated: Vec<Declaration<Generated>>,
    /// The bytes of stack of functions that set their stack pointer.
    pub frames: Vec<Declaration<i64>>,
    /// How often functions can be on one path.
    pub recursion: Vec<Declaration<i64>>,
    /// How many exceptions can be nested on one stack.
    pub nesting: Option<i64>,
    /// The limit of the deepest path.
    pub stack: Option<Stack>,
}

impl Declarations {
    /// Adds the declarations of a file. Declarations of earlier files take precedence. A declaration that applies to
    /// nothing is an error if `is_checked`.
    pub fn read(&mut self, path: &Path, is_checked: bool) -> Result<()> {
        let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        self.add(path, &text, is_checked).with_context(|| format!("{} declares nothing", path.display()))
    }

    /// Adds the declarations of the text of a file.
    pub fn add(&mut self, path: &Path, text: &str, is_checked: bool) -> Result<()> {
        let text: File = toml::from_str(text)?;
        let file = self.files.len();
        self.files.push((path.to_owned(), is_checked));
        let roots = text.roots.into_iter().map(|(pattern, root)| match root {
            RootText::Reason(reason) => (pattern, 0, reason),
            RootText::Table(TableText { every, reason }) => (pattern, every, reason),
        });
        extend(&mut self.roots, "roots", file, roots)?;
        for (table, declarations, found) in [
            ("abandons", &mut self.abandons, text.abandons),
            ("ends", &mut self.ends, text.ends),
            ("locks", &mut self.locks, text.locks),
            ("lock-free", &mut self.lock_free, text.lock_free),
            ("elsewhere", &mut self.elsewhere, text.elsewhere),
        ] {
            extend(declarations, table, file, found.into_iter().map(|(pattern, reason)| (pattern, (), reason)))?;
        }
        let inlined = text.inlined.into_iter().map(|(pattern, reason)| (pattern, (), reason));
        let known = self.elsewhere.len();
        extend(&mut self.elsewhere, "inlined", file, inlined)?;
        self.elsewhere[known..].iter().for_each(Declaration::is_needed);
        let indirect = text.indirect.into_iter();
        let indirect =
            indirect.map(|IndirectText { r#in, sites, reaches, reason }| (r#in, Indirect { sites, reaches }, reason));
        extend(&mut self.indirect, "indirect", file, indirect)?;
        for (group, members) in text.groups {
            let members = members.into_iter().map(|(pattern, reason)| (pattern, group.clone(), reason));
            extend(&mut self.groups, "groups", file, members)?;
        }
        for GeneratedText { group, bytes, reaches, reason } in text.generated {
            ensure!(bytes >= 0, "[[generated]] of {group:?} needs bytes of 0 or more");
            let called = reaches.into_iter();
            let called = called.map(|pattern| (pattern, Generated { group: group.clone(), bytes }, reason.clone()));
            extend(&mut self.generated, "generated", file, called)?;
        }
        for (pattern, FrameText { bytes, .. }) in &text.frames {
            ensure!(*bytes >= 0, "[frames] {pattern:?} needs bytes of 0 or more");
        }
        for (pattern, RecursionText { depth, .. }) in &text.recursion {
            ensure!(*depth > 0, "[recursion] {pattern:?} needs a depth of 1 or more");
        }
        let frames = text.frames.into_iter().map(|(pattern, frame)| (pattern, frame.bytes, frame.reason));
        extend(&mut self.frames, "frames", file, frames)?;
        let recursion = text.recursion.into_iter().map(|(pattern, found)| (pattern, found.depth, found.reason));
        extend(&mut self.recursion, "recursion", file, recursion)?;
        if let Some(NestingText { levels, reason }) = text.nesting {
            ensure!(levels > 0 && !reason.trim().is_empty(), "[nesting] needs levels and a reason");
            self.nesting.get_or_insert(levels);
        }
        if let Some(StackText { size, margin, reason }) = text.stack {
            ensure!(!reason.trim().is_empty(), "[stack] has no reason");
            self.stack.get_or_insert(Stack { size, margin });
        }
        Ok(())
    }

    /// Whether `declaration` must apply to something in the image. A foreign image may lack functions of the engine
    /// that it does not use, or that were inlined.
    pub fn is_checked<T>(&self, declaration: &Declaration<T>) -> bool {
        self.files[declaration.file].1
    }

    /// Returns the declarations that apply to nothing, as sentences.
    pub fn stale(&self) -> Vec<String> {
        fn of<T>(all: &Declarations, declarations: &[Declaration<T>]) -> Vec<String> {
            let stale = declarations.iter().filter(|one| !one.is_used.get() && all.is_checked(one));
            stale
                .map(|one| {
                    let file = all.files[one.file].0.display();
                    format!("{file}: [{}] {:?} applies to nothing", one.table, one.pattern)
                })
                .collect()
        }
        [
            of(self, &self.roots),
            of(self, &self.abandons),
            of(self, &self.ends),
            of(self, &self.locks),
            of(self, &self.lock_free),
            of(self, &self.elsewhere),
            of(self, &self.indirect),
            of(self, &self.groups),
            of(self, &self.generated),
            of(self, &self.frames),
            of(self, &self.recursion),
        ]
        .concat()
    }
}

fn extend<T>(
    declarations: &mut Vec<Declaration<T>>,
    table: &'static str,
    file: usize,
    found: impl Iterator<Item = (String, T, String)>,
) -> Result<()> {
    for (pattern, value, reason) in found {
        ensure!(!reason.trim().is_empty(), "[{table}] {pattern:?} has no reason");
        declarations.push(Declaration { pattern, value, table, reason, file, is_used: Cell::new(false) });
    }
    Ok(())
}
