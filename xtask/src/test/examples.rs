//! The examples run, print what their pages show, and take no more lines for probes than they promise.

mod mistakes;

use std::{fs, path::Path, time::Duration};

use super::{
    capture::capture,
    pool::{BuildContext, Pool},
    report::Outcome,
    wanted::Wanted,
};
use crate::workspace;

/// How many lines a kernel needs for probes at most.
const LINES: usize = 50;
/// The cores that an example runs on: with LSE and pointer authentication, and without.
const CORES: [&str; 2] = ["max", "cortex-a72"];
/// Far more than an example takes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Adds the tests of the examples.
pub fn add<'a>(pool: &Pool<'a>, wanted: &'a Wanted, is_listing: bool) {
    mistakes::add(pool, wanted, is_listing);
    pool.add("the examples", move |context| {
        add_one(context, wanted, is_listing, "examples::minimal_is_short", || is_short("minimal"));
        let names = CORES.map(|core| (core, format!("examples::minimal_on_{}", core.replace('-', "_"))));
        if names.iter().all(|(_, name)| !wanted.has(name)) {
            return;
        }
        if is_listing {
            return names
                .into_iter()
                .filter(|(_, name)| wanted.has(name))
                .for_each(|(_, name)| context.results.list(name, 1));
        }
        match workspace::build_kernel("kprobes-minimal") {
            Ok(elf) => names.into_iter().filter(|(_, name)| wanted.has(name)).for_each(|(core, name)| {
                let elf = elf.clone();
                context
                    .add(name.clone(), Box::new(move |results| results.time(name, || prints(&elf, core, "minimal"))));
            }),
            Err(error) => context.results.step_failed("build::kprobes-minimal", format!("{error:#}")),
        }
    });
}

fn add_one(
    context: &BuildContext<'_, '_>,
    wanted: &Wanted,
    is_listing: bool,
    name: &'static str,
    test: impl FnOnce() -> Result<(), String>,
) {
    match (wanted.has(name), is_listing) {
        (false, _) => {}
        (true, true) => context.results.list(name.into(), 1),
        (true, false) => context.results.time(name.into(), || test().map(|()| Outcome::Passed)),
    }
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(workspace::root().join(path)).map_err(|error| format!("{path} cannot be read: {error}"))
}

/// Compares what an example prints with the block of its page.
fn prints(elf: &Path, core: &str, example: &str) -> Result<Outcome, String> {
    let page = read(&format!("examples/{example}/README.md"))?;
    let (_, block) = page.split_once("```text\n").ok_or("the page shows no output")?;
    let (expected, _) = block.split_once("```").ok_or("the output on the page has no end")?;
    let printed = run(elf, core)?;
    match printed == expected {
        true => Ok(Outcome::Passed),
        false => Err(format!("it prints\n{printed}\nand its page shows\n{expected}")),
    }
}

/// What an image prints on QEMU's virt machine with this core, until it ends.
fn run(elf: &Path, core: &str) -> Result<String, String> {
    let mut qemu = workspace::command("timeout");
    qemu.arg(TIMEOUT.as_secs().to_string()).args(["qemu-system-aarch64", "-machine", "virt", "-cpu", core]);
    qemu.args(["-nographic", "-nic", "none", "-kernel"]).arg(elf);
    let captured = capture(&mut qemu, |_| {});
    captured.result.map_err(|sentence| captured.text.clone() + &sentence)?;
    Ok(captured.text.replace('\r', ""))
}

/// Counts the lines of an example that are there for probes: those of the module `probes`, and those that say so.
fn is_short(example: &str) -> Result<(), String> {
    let (source, script) =
        (read(&format!("examples/{example}/src/main.rs"))?, read(&format!("examples/{example}/{example}.ld"))?);
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let module = source.lines().skip_while(|line| *line != "mod probes {").take_while(|line| *line != "}");
    let lines = module.filter(is_code).count()
        + source.lines().filter(|line| line.ends_with("// probes")).count()
        + script.lines().filter(|line| line.ends_with("/* probes */")).count();
    match lines {
        1..=LINES => Ok(()),
        _ => Err(format!("{lines} lines of it are for probes, of at most {LINES}")),
    }
}
