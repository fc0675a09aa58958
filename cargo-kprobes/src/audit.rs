//! Shows that the hit path is closed. The linked image is read, instruction by instruction, from all code that can run
//! while a probe is being handled to all code that it calls. `docs/audit.md` says what is checked, and how.

mod control;
mod declarations;
mod executable;
mod flow;
mod output;
mod register_values;
mod scan;
mod stack;
mod waiting;
mod walk;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result};
pub use control::with_control;
pub use declarations::Declarations;
use declarations::{Size, Stack};
pub use executable::Executable;
pub(crate) use executable::parse_elf;
pub use flow::{Flow, flow};
use output::Tree;
use stack::Depths;
use walk::{Graph, Violation};

use crate::counted::counted;

/// The declarations of the engine, those for profiles with which the compiler inlines less or more, and those of its
/// entry for kernels with vectors of their own.
const ENGINE: &str = include_str!("../declarations/engine.toml");
const ENGINE_PROFILES: &str = include_str!("../declarations/engine-profiles.toml");
const VECTOR: &str = include_str!("../declarations/vector.toml");
/// The declarations of the crates that a kernel has with the console, and those for other profiles.
const CONSOLE: &str = include_str!("../declarations/console.toml");
const PROFILES: &str = include_str!("../declarations/profiles.toml");

/// A linked program, and what an audit has found in it.
pub struct Audit {
    executable: Executable,
    findings: Findings,
}

impl Audit {
    /// Audits the program `elf`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not a program for AArch64.
    pub fn of(elf: &Path, declarations: &Declarations) -> Result<Self> {
        let executable = load(elf)?;
        let findings = Findings::new(&executable, declarations);
        Ok(Self { executable, findings })
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.findings.violations.is_empty()
    }

    /// Returns the violations, each with the path that leads there.
    #[must_use]
    pub fn violations(&self) -> String {
        self.findings.report()
    }

    /// Writes the tree of calls, the functions that may wait, the counts and the violations to `out`.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { executable, findings } = self;
        writeln!(out, "{}", Tree { executable, graph: &findings.graph, depths: &findings.depths })?;
        for (reason, functions) in findings.waiting(executable) {
            writeln!(out, "may wait: {reason}\n    {}", functions.join("\n    "))?;
        }
        writeln!(out, "{}", findings.summary(executable))?;
        if self.is_closed() { Ok(()) } else { writeln!(out, "\n{}", findings.report()) }
    }

    /// Returns the graph of calls, in the language of Graphviz.
    #[must_use]
    pub fn dot(&self) -> String {
        output::dot(&self.executable, &self.findings.graph, &self.findings.depths)
    }
}

impl Declarations {
    /// Returns the declarations in these files about a kernel that embeds the engine, and those of the engine and the
    /// console. Where both apply, that of the file counts.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or is no list of declarations.
    pub fn with_engine<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        let mut declarations = Self::default();
        files.into_iter().try_for_each(|file| declarations.read(file, true))?;
        // Of two declarations of the same calls, of the nesting or of the stack, the first applies.
        declarations.add(Path::new("engine-profiles.toml"), ENGINE_PROFILES, false)?;
        declarations.add(Path::new("engine.toml"), ENGINE, false)?;
        declarations.add(Path::new("vector.toml"), VECTOR, false)?;
        declarations.add(Path::new("console.toml"), CONSOLE, false)?;
        declarations.add(Path::new("profiles.toml"), PROFILES, false)?;
        Ok(declarations)
    }
}

fn load(elf: &Path) -> Result<Executable> {
    let bytes = fs::read(elf).with_context(|| format!("{} cannot be read", elf.display()))?;
    Executable::parse(&bytes).with_context(|| format!("{} cannot be audited", elf.display()))
}

/// The findings of an audit.
struct Findings {
    graph: Graph,
    depths: Depths,
    violations: Vec<Violation>,
    /// The sentences about the stack.
    stack: String,
}

impl Findings {
    fn new(executable: &Executable, declarations: &Declarations) -> Self {
        let graph = walk::walk(executable, declarations);
        let depths = Depths::of(executable, declarations, &graph);
        let mut violations = graph.violations.clone();
        violations.extend(depths.violations.iter().cloned());
        let deepest = depths.deepest_path(&graph);
        let path: Vec<String> = deepest.iter().map(|&at| executable.describe(at)).collect();
        let bytes = deepest.first().map_or(0, |&root| depths.get(root).bytes);
        let levels = declarations.nesting.unwrap_or(1);
        let needed = levels.saturating_mul(bytes);
        let mut stack =
            format!("deepest stack: {bytes} bytes: {}\n{levels} exceptions nested: {needed}", path.join(" → "));
        match &declarations.stack {
            Some(Stack { size, margin }) => {
                let (what, size) = match size {
                    Size::Bytes(bytes) => (String::new(), Some(*bytes)),
                    Size::Symbol(name) => {
                        let value = executable.value(name).and_then(|value| i64::try_from(value).ok());
                        (format!("{name} = "), value)
                    }
                };
                let shown = size.map_or("?".to_owned(), |size| size.to_string());
                stack += &format!(" of the {margin} bytes that tasks leave of stacks of {what}{shown}");
                if needed > *margin {
                    let what =
                        format!("needs {needed} bytes of stack, {levels} times {bytes}, and tasks leave {margin}");
                    violations.push(Violation { what, path });
                }
                if size.is_none_or(|size| *margin <= 0 || *margin >= size) {
                    let what = format!("a margin of {margin} bytes does not fit stacks of {what}{shown}");
                    violations.push(Violation { what, path: Vec::new() });
                }
            }
            None => stack += " bytes; declare [stack] to check this",
        }
        let stale = declarations.stale().into_iter();
        violations.extend(stale.map(|what| Violation { what, path: Vec::new() }));
        if graph.roots.is_empty() {
            violations.push(Violation { what: "no root is declared".to_owned(), path: Vec::new() });
        }
        Self { graph, depths, violations, stack }
    }

    /// Returns the functions that may take a lock or wait, by the reason why they may.
    fn waiting(&self, executable: &Executable) -> BTreeMap<String, Vec<String>> {
        let mut waiting = BTreeMap::<String, Vec<String>>::new();
        for (&entry, node) in &self.graph.nodes {
            if let Some(reason) = &node.waits {
                let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
                waiting.entry(reason).or_default().push(executable.describe(entry));
            }
        }
        waiting
    }

    /// Returns the counts, and the deepest stack.
    fn summary(&self, executable: &Executable) -> String {
        let nodes = &self.graph.nodes;
        let mut functions: Vec<_> =
            nodes.keys().filter_map(|&entry| Some(executable.function(entry)?.range.start)).collect();
        functions.dedup();
        let indirect: usize = nodes.values().map(|node| node.indirect).sum();
        let locks = nodes.values().filter(|node| node.waits.is_some()).count();
        let roots = self.graph.roots.len();
        format!(
            "{} reached from {}; {}; {} that may wait\n{}",
            counted(functions.len(), "function"),
            counted(roots, "root"),
            counted(indirect, "indirect call"),
            counted(locks, "function"),
            self.stack
        )
    }

    /// Returns the violations, each with the path that leads there.
    fn report(&self) -> String {
        let mut text = String::new();
        for Violation { what, path } in &self.violations {
            if !path.is_empty() {
                text += &format!("{}\n    ", path.join(" → "));
            }
            text += &format!("{what}\n");
        }
        text + &counted(self.violations.len(), "violation")
    }
}

#[cfg(test)]
mod tests;
