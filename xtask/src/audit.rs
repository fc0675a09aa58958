//! Shows that the hit path is closed. The linked image is read, instruction by instruction, from all code that can run
//! while a probe is being handled to all code that it calls. `docs/audit.md` says what is checked, and how.

mod control;
mod declarations;
mod instruction;
mod output;
mod program;
mod registers;
mod scan;
mod stack;
mod waiting;
mod walk;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
pub use control::with_control;
use declarations::{Declarations, Size, Stack};
pub use instruction::{Flow, flow};
use output::Tree;
pub use program::Program;
use stack::Depths;
use walk::{Graph, Violation};

use crate::{counted::counted, setup, workspace};

/// The declarations of the repository: of the engine, for every image; of its entry for kernels with vectors of their
/// own; of the kernel; and of the tests.
const ENGINE: &str = "audit/engine.toml";
const VECTOR: &str = "audit/vector.toml";
const RUNTIME: &str = "audit/runtime.toml";
const TESTS: &str = "audit/tests.toml";
/// The declarations of `examples/kernel`.
const EXAMPLE: &str = "examples/kernel/audit.toml";
/// More declarations, for profiles with which the compiler inlines less, or more.
const PROFILES: &str = "audit/profiles.toml";

/// The program to audit.
#[derive(clap::Args)]
pub struct Options {
    /// A linked program; the runtime is built if none is given.
    #[arg(long, value_name = "ELF", conflicts_with = "tests")]
    image: Option<PathBuf>,
    /// Files of declarations about the program, in addition to those of the engine.
    #[arg(long, value_name = "FILE", requires = "image")]
    declarations: Vec<PathBuf>,
    /// The image of the on-target tests.
    #[arg(long)]
    tests: bool,
    /// The file for a picture of the graph, in the language of Graphviz.
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
}

/// The images of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// The kernel.
    Kernel,
    /// The on-target tests.
    Tests,
    /// `examples/kernel`.
    Example,
}

impl Image {
    /// The name of its audit among the tests.
    pub fn test_name(self) -> &'static str {
        match self {
            Self::Kernel => "audit::kernel",
            Self::Tests => "audit::tests",
            Self::Example => "examples::kernel_is_closed",
        }
    }

    /// The package that it is built from.
    fn package(self) -> &'static str {
        match self {
            Self::Kernel => "runtime",
            Self::Tests => "kprobes-tests",
            Self::Example => "kprobes-kernel-example",
        }
    }

    /// The files of its declarations, and whether a declaration that applies to nothing is an error in this image.
    /// Every file is checked so in one image.
    fn declarations(self) -> &'static [(&'static str, bool)] {
        match self {
            Self::Kernel => &[(ENGINE, true), (RUNTIME, true)],
            Self::Tests => &[(ENGINE, false), (VECTOR, true), (RUNTIME, false), (TESTS, true)],
            Self::Example => &[(ENGINE, false), (VECTOR, false), (EXAMPLE, true)],
        }
    }
}

/// Audits a program and prints the result.
pub fn audit(options: &Options) -> Result<ExitCode> {
    let root = workspace::root();
    let mut declarations = Declarations::default();
    let elf = match &options.image {
        Some(elf) => {
            declarations.read(&root.join(ENGINE), false)?;
            declarations.read(&root.join(VECTOR), false)?;
            for file in &options.declarations {
                declarations.read(file, true)?;
            }
            elf.clone()
        }
        None => {
            setup::rust(&[])?;
            let image = if options.tests { Image::Tests } else { Image::Kernel };
            declare(&mut declarations, image)?;
            workspace::build_kernel(image.package())?
        }
    };
    let program = load(&elf)?;
    let findings = Findings::new(&program, &declarations);
    print!("{}", Tree { program: &program, graph: &findings.graph, depths: &findings.depths });
    println!();
    for (reason, functions) in findings.waiting(&program) {
        println!("may wait: {reason}\n    {}", functions.join("\n    "));
    }
    println!("{}", findings.summary(&program));
    if let Some(path) = &options.dot {
        fs::write(path, output::dot(&program, &findings.graph, &findings.depths))
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    if findings.violations.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("\n{}", findings.report());
    Ok(ExitCode::FAILURE)
}

/// Audits `elf`, the program of an image of the repository. The error is the report.
pub fn check(image: Image, elf: &Path) -> Result<(), String> {
    let audited = || {
        let mut declarations = Declarations::default();
        declare(&mut declarations, image)?;
        let program = load(elf)?;
        let findings = Findings::new(&program, &declarations);
        Ok(if findings.violations.is_empty() { Ok(()) } else { Err(findings.report()) })
    };
    audited().unwrap_or_else(|error: anyhow::Error| Err(format!("{error:#}")))
}

fn declare(declarations: &mut Declarations, image: Image) -> Result<()> {
    let root = workspace::root();
    let is_default = workspace::other_profile().is_none();
    if !is_default {
        declarations.read(&root.join(PROFILES), false)?;
    }
    let mut files = image.declarations().iter();
    files.try_for_each(|(file, is_checked)| declarations.read(&root.join(file), *is_checked && is_default))
}

fn load(elf: &Path) -> Result<Program> {
    let bytes = fs::read(elf).with_context(|| format!("{} cannot be read", elf.display()))?;
    Program::parse(&bytes).with_context(|| format!("{} cannot be audited", elf.display()))
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
    fn new(program: &Program, declarations: &Declarations) -> Self {
        let graph = walk::walk(program, declarations);
        let depths = Depths::of(program, declarations, &graph);
        let mut violations = graph.violations.clone();
        violations.extend(depths.violations.iter().cloned());
        let deepest = graph.roots.iter().copied().max_by_key(|&root| depths.get(root).bytes);
        let path: Vec<u64> = deepest.map(|root| depths.path(root)).unwrap_or_default();
        let path: Vec<String> = path.iter().map(|&at| program.describe(at)).collect();
        let bytes = deepest.map_or(0, |root| depths.get(root).bytes);
        let levels = declarations.nesting.unwrap_or(1);
        let needed = levels * bytes;
        let mut stack =
            format!("deepest stack: {bytes} bytes: {}\n{levels} exceptions nested: {needed}", path.join(" → "));
        match &declarations.stack {
            Some(Stack { size, margin }) => {
                let (what, size) = match size {
                    Size::Bytes(bytes) => (String::new(), Some(*bytes)),
                    Size::Symbol(name) => {
                        let value = program.value(name).and_then(|value| i64::try_from(value).ok());
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
    fn waiting(&self, program: &Program) -> BTreeMap<String, Vec<String>> {
        let mut waiting = BTreeMap::<String, Vec<String>>::new();
        for (&entry, node) in &self.graph.nodes {
            if let Some(reason) = &node.waits {
                let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
                waiting.entry(reason).or_default().push(program.describe(entry));
            }
        }
        waiting
    }

    /// Returns the counts, and the deepest stack.
    fn summary(&self, program: &Program) -> String {
        let nodes = &self.graph.nodes;
        let mut functions: Vec<_> =
            nodes.keys().filter_map(|&entry| Some(program.function(entry)?.range.start)).collect();
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
