//! Runs the examples, compares their output with their pages, and checks that they take no more lines for probes than
//! they promise.

mod derived;
pub mod features;
mod gnu;
mod kernel;
mod memory;
mod mistakes;
mod pages;
mod per_cpu;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use cargo_kprobes::image;

use super::{
    capture::capture,
    pool::Pool,
    report::Outcome,
    session::{Player, Session},
    wanted::Wanted,
};
use crate::{dialogue, workspace};

/// An example: a directory of `examples/`.
struct Example {
    name: &'static str,
    package: &'static str,
    /// The marks of lines, and the most lines that have each.
    lines: &'static [(&'static str, usize)],
    /// Audits the image, if that is a test.
    audit: Option<Audit>,
    /// Whether the tables of the image are filled in before it runs.
    has_tables: bool,
    /// Runs the image on a machine. The first argument is the name of the example.
    run: fn(&str, &Path, QemuMachine) -> Result<Outcome, String>,
}

/// Audits an image. The error is the report.
type Audit = fn(&Path) -> Result<(), String>;

/// A machine of QEMU with its core, and the number of its CPUs when it runs a kernel for one CPU.
#[derive(Clone, Copy)]
struct QemuMachine {
    machine: &'static str,
    core: &'static str,
    cpus: usize,
}

const EXAMPLES: [Example; 3] = [
    Example {
        name: "minimal",
        package: "kprobes-minimal",
        lines: &[("probes", 50)],
        audit: None,
        has_tables: false,
        run: prints,
    },
    Example {
        name: "console",
        package: "kprobes-console-example",
        lines: &[("probes", 65)],
        // As `cargo kprobes audit` does for a kernel without declarations.
        audit: Some(|elf| cargo_kprobes::audit(elf, []).map_err(|error| error.to_string())),
        has_tables: true,
        run: answers,
    },
    Example {
        name: "kernel",
        package: kernel::PACKAGE,
        lines: kernel::LINES,
        audit: Some(kernel::is_closed),
        has_tables: true,
        run: kernel::counts,
    },
];
/// The machine of most kernels here. Its core has LSE and pointer authentication.
const VIRT: QemuMachine = QemuMachine { machine: "virt", core: "max", cpus: 1 };
/// A machine whose core has neither.
const WITHOUT_LSE: QemuMachine = QemuMachine { core: "cortex-a72", ..VIRT };
/// A machine that starts at EL2.
const EL2: QemuMachine = QemuMachine { machine: "virt,virtualization=on", ..VIRT };
/// The machine for the feature `raspi3b`. It has all its CPUs.
const RASPI3B: QemuMachine = QemuMachine { machine: "raspi3b", core: "cortex-a53", cpus: 4 };
/// The time limit, far more than an example takes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Adds the tests of the examples.
pub fn add<'a>(pool: &Pool<'a>, wanted: &'a Wanted) {
    mistakes::add(pool, wanted);
    pages::add(pool, wanted);
    memory::add(pool, wanted);
    gnu::add(pool, wanted);
    per_cpu::add(pool, wanted);
    for example in &EXAMPLES {
        add_example(pool, wanted, example);
    }
}

/// Adds the tests of an example.
fn add_example<'a>(pool: &Pool<'a>, wanted: &'a Wanted, example: &'static Example) {
    let Example { name, package, audit, run, .. } = example;
    let full = |what: &str| format!("examples::{name}_{what}");
    let [short, closed, on_raspi3b] = ["is_short", "is_closed", "on_raspi3b"].map(full);
    let machines =
        [VIRT, WITHOUT_LSE].map(|machine| (machine, full(&format!("on_{}", machine.core.replace('-', "_")))));
    let names = [Some(&short), audit.map(|_| &closed), Some(&on_raspi3b)].into_iter().flatten();
    let names = names.chain(machines.iter().map(|(_, name)| name));
    pool.add_for(wanted.among(names), "the examples", move |context| {
        let check = |name: String, test: &dyn Fn() -> Result<(), String>| {
            if wanted.has(&name) {
                context.results.time(name, || test().map(|()| Outcome::Passed));
            }
        };
        check(short, &|| is_short(example));
        if let Some(audit) = audit {
            check(closed, &|| audit(&build(example, &[]).map_err(|error| format!("{error:#}"))?));
        }
        // Built first and copied, because the build for the other machines has the same path.
        if wanted.has(&on_raspi3b)
            && let Some(elf) = context.results.step(format!("build::{package}/raspi3b"), build_for_raspi3b(example))
            && let Some(elf) = context.results.step(format!("tables::{package}/raspi3b"), image_to_run(example, elf))
        {
            context.add_test(on_raspi3b, move || run(name, &elf, RASPI3B));
        }
        let mut machines = machines.into_iter().filter(|(_, name)| wanted.has(name)).peekable();
        if machines.peek().is_some()
            && let Some(elf) = context.results.step(format!("build::{package}"), build(example, &[]))
            && let Some(elf) = context.results.step(format!("tables::{package}"), image_to_run(example, elf))
        {
            machines.for_each(|(machine, test)| {
                let elf = elf.clone();
                context.add_test(test, move || run(name, &elf, machine));
            });
        }
    });
}

/// Builds an example for a Raspberry Pi 3, and returns the path of a copy.
fn build_for_raspi3b(example: &Example) -> Result<PathBuf> {
    let elf = build(example, &["--features", &format!("{}/raspi3b", example.package)])?;
    let copy = elf.with_extension("raspi3b");
    fs::copy(&elf, &copy)?;
    Ok(copy)
}

/// Builds an example, with more arguments. The kernel is built with it, so that crates that both use have the features
/// of both, and are compiled once.
fn build(Example { name, package, .. }: &Example, more: &[&str]) -> Result<PathBuf> {
    let built =
        workspace::build(&[&["build", "--release", "--package", package, "--package", "runtime"], more].concat())?;
    let directory = workspace::root().join("examples").join(name);
    let example = built.into_iter().find(|executable| executable.manifest.starts_with(&directory));
    Ok(example.context("the example has no program")?.path)
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(workspace::root().join(path)).map_err(|error| format!("{path} cannot be read: {error}"))
}

/// Returns the output that the page of an example shows.
fn shown(name: &str) -> Result<String, String> {
    let page = read(&format!("examples/{name}/README.md"))?;
    let (_, block) = page.split_once("```text\n").ok_or("the page shows no output")?;
    let (shown, _) = block.split_once("```").ok_or("the output on the page has no end")?;
    Ok(shown.to_owned())
}

/// Compares the output of an example, or of a kernel that is derived from it, with the block of the example's page.
fn prints(name: &str, elf: &Path, machine: QemuMachine) -> Result<Outcome, String> {
    let (printed, expected) = (run(elf, machine)?, shown(name)?);
    match printed == expected {
        true => Ok(Outcome::Passed),
        false => Err(format!("it prints\n{printed}\nand its page shows\n{expected}")),
    }
}

/// Fills in the tables of the image `elf`, if the example has them. Returns the path of the image to run.
fn image_to_run(example: &Example, elf: PathBuf) -> Result<PathBuf, String> {
    if example.has_tables { fill_in(&elf) } else { Ok(elf) }
}

/// Fills in the tables of an image, in a copy beside it. Returns the path of the copy.
fn fill_in(elf: &Path) -> Result<PathBuf, String> {
    let mut out = elf.as_os_str().to_owned();
    out.push(".tables");
    image::fill_in(elf, out.as_ref(), image::Tables::All).map_err(|error| format!("{error:#}"))?;
    Ok(out.into())
}

/// Plays the session of the example's page.
fn answers(name: &str, elf: &Path, QemuMachine { machine, core, cpus }: QemuMachine) -> Result<Outcome, String> {
    let page = read(&format!("examples/{name}/README.md"))?;
    let session = Session::in_markdown(&page, "console").into_iter().next().ok_or("the page shows no session")??;
    let cpus = cpus.to_string();
    let arguments = ["-machine", machine, "-cpu", core, "-smp", &cpus, "-nic", "none", "-kernel"].map(OsString::from);
    let arguments: Vec<_> = arguments.into_iter().chain([elf.into()]).collect();
    dialogue::converse(&arguments, TIMEOUT.as_secs(), &mut Player::new(session)).map(|()| Outcome::Passed)
}

/// Runs an image, and returns the output after it has ended. More arguments may follow the name of the machine.
fn run(elf: &Path, QemuMachine { machine, core, cpus }: QemuMachine) -> Result<String, String> {
    let mut qemu = workspace::command("timeout");
    qemu.arg(TIMEOUT.as_secs().to_string()).args(["qemu-system-aarch64", "-cpu", core, "-machine"]);
    qemu.args(machine.split_whitespace());
    qemu.args(["-smp", &cpus.to_string(), "-nographic", "-nic", "none", "-kernel"]).arg(elf);
    Ok(capture(&mut qemu, |_| {}).output()?.replace('\r', ""))
}

/// Counts the lines of an example that have each mark: the marked lines, and those of the module that the mark names.
fn is_short(Example { name, lines, .. }: &Example) -> Result<(), String> {
    let (sources, script) = (sources(&workspace::root().join("examples").join(name).join("src"))?, script_of(name)?);
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    for (mark, most) in *lines {
        let count = |(path, source): &(PathBuf, String)| {
            if path.file_stem().is_some_and(|stem| stem == *mark) {
                return source.lines().filter(is_code).count();
            }
            let (begin, end) = (format!("mod {mark} {{"), format!("// {mark}"));
            let module = source.lines().skip_while(|line| *line != begin).take_while(|line| *line != "}");
            module.filter(is_code).count() + source.lines().filter(|line| line.ends_with(&end)).count()
        };
        let of_script = script.lines().filter(|line| line.ends_with(&format!("/* {mark} */"))).count();
        match sources.iter().map(count).sum::<usize>() + of_script {
            0 => return Err(format!("it has nothing for {mark}")),
            lines if lines <= *most => {}
            lines => return Err(format!("{lines} lines of it are for {mark}, of at most {most}")),
        }
    }
    Ok(())
}

fn script_of(name: &str) -> Result<String, String> {
    read(&format!("examples/{name}/{name}.ld"))
}

/// Returns the files in a directory, and in those below it, with their text.
fn sources(directory: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let failed = |error: std::io::Error| format!("{} cannot be read: {error}", directory.display());
    let mut sources = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            sources.extend(self::sources(&path)?);
        } else {
            let text = fs::read_to_string(&path).map_err(failed)?;
            sources.push((path, text));
        }
    }
    Ok(sources)
}
