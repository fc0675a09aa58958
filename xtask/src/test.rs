//! Runs all tests of the project: the style checks, the pure parts on the host, and everything else on the target. It
//! prints in the format of libtest, so that tools that read one read the other.

#[cfg(test)]
mod assembly;
mod attach;
mod blanks;
mod boot;
mod capture;
mod card;
mod differ;
mod documentation;
mod examples;
mod flattened;
mod garbage;
mod host;
mod keys;
mod libtest;
mod loader;
mod miri;
mod network;
mod normal;
mod packages;
mod pool;
mod profiles;
pub mod protocol;
mod pty;
mod record;
mod report;
pub mod select;
mod serial;
mod session;
mod sessions;
mod target;
mod top;
mod wanted;

use std::{
    env,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    thread,
};

use anyhow::Result;
use pool::{BuildContext, Pool, WorkerMessage};
use report::{Finished, Outcome, Report};
use target::Targets;
use wanted::Wanted;

use crate::{
    audit, bench,
    board::{self, Board},
    serial::Station,
    setup, workspace,
};

/// Environment variables that change what tests do. The printed command that repeats a test sets them again.
const VARIABLES: [&str; 14] = [
    "DAMAGED_TABLES",
    "EVERYTHING_HITS",
    "EVERYTHING_SECONDS",
    "KPROBES_FUZZ_SECONDS",
    "NETWORK_SECONDS",
    "ORACLE_WORDS",
    "PROGRAM_ROUNDS",
    "RANDOM_PROGRAMS",
    "RANDOM_SEED",
    "RANDOM_WORDS",
    "RECORD_EVENTS",
    "STORM_HITS",
    "STORM_PAIRS",
    "STORM_SEED",
];

/// The modules of tests on the kernel image. They come after the configuration in a test's name.
const KERNEL_MODULES: [&str; 7] = ["console::", "boot::", "network::", "card::", "record::", "top::", "attach::"];

/// How many seconds an on-target test may take, unless the command line says otherwise.
const SECONDS: u64 = 600;

/// The prefixes of the names of tests that need no board.
const STAGES: [&str; 5] = ["check", "host", "audit", "miri", "examples"];

/// The tests to run, and how.
#[derive(clap::Args)]
pub struct Options {
    /// The board, a directory of `boards/`. If none is given, all boards that QEMU has a machine for.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Only the on-target tests, in this configuration of the board. The board is qemu-virt if none is given.
    #[arg(long, value_name = "NAME")]
    configuration: Option<String>,
    /// Runs every test in every configuration of every board, and not only where its result can differ.
    #[arg(long)]
    thorough: bool,
    /// Lists the tests, the configurations in which they run, and the traits that they depend on. This builds them.
    #[arg(long, conflicts_with = "serial")]
    list: bool,
    /// Prints the tests and builds that took longest at the end.
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    durations: Option<usize>,
    #[command(flatten)]
    serial: crate::serial::Options,
    /// How many seconds an on-target test may take.
    #[arg(long, value_name = "SECONDS", default_value_t = SECONDS, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,
    /// Only the test with exactly this name. Without a configuration in front, it runs in its usual configurations.
    #[arg(long, requires = "filter")]
    exact: bool,
    /// Only tests whose full name contains this. A filter that begins with a configuration, such as
    /// `rpi3/smp1::kprobe`, selects matching tests in it; a filter that is a board or a configuration selects every
    /// test there.
    filter: Option<String>,
}

impl Options {
    /// Returns the command that repeats a test of this run, if the test's name follows.
    fn command(&self) -> String {
        let set = VARIABLES.into_iter().filter_map(|name| Some(format!("{name}={} ", env::var(name).ok()?)));
        let mut command = set.collect::<String>() + "cargo xtask test";
        if let Some(port) = &self.serial.serial {
            let board = self.board.as_deref().unwrap_or(board::DEFAULT);
            command += &format!(" --board {board} --serial {} --baud {}", port.display(), self.serial.baud);
        }
        if self.timeout != SECONDS {
            command += &format!(" --timeout {}", self.timeout);
        }
        if self.thorough {
            command += " --thorough";
        }
        command + " --exact"
    }
}

/// Runs the tests. Always ends with a line that counts them.
pub fn test(options: &Options) -> Result<ExitCode> {
    let mut report = Report::new(options.command());
    if let Some(station) = Station::open(options.board.as_deref().unwrap_or(board::DEFAULT), &options.serial)? {
        setup::rust(&[])?;
        let wanted = Wanted::new(options.filter.clone(), options.exact, []);
        serial::test(&mut report, &wanted, &station, options.timeout, options.thorough);
        return Ok(report.finish(&wanted, options.durations));
    }
    let name = options.board.as_deref().or(options.configuration.as_deref().map(|_| board::DEFAULT));
    let boards = match name {
        Some(name) => vec![Board::load(name)?],
        None => Board::emulated()?,
    };
    if let Some(name) = &options.configuration {
        boards.iter().try_for_each(|board| board.configuration(name).map(|_| ()))?;
    }
    let prefixes: Vec<String> =
        boards.iter().flat_map(|board| board.configurations.iter().map(|one| board.prefix(one))).collect();
    let all_prefixes = STAGES.into_iter().chain(prefixes.iter().map(String::as_str));
    let filter = options.filter.as_deref().map(|filter| wanted::existing(filter, &prefixes)).transpose()?;
    let wanted = Wanted::new(filter, options.exact, all_prefixes);
    if let Err(error) = setup::rust(&["clippy", "rustfmt"]) {
        report.add(Finished::failed_step("setup", format!("{error:#}")));
        return Ok(report.finish(&wanted, options.durations));
    }
    let mut targets = Targets {
        configurations: Vec::new(),
        wanted: &wanted,
        is_thorough: options.thorough,
        is_narrowed: name.is_some() || wanted.is_narrowed(),
        seconds: options.timeout,
    };
    for board in &boards {
        let is_meant = |one: &board::Configuration| {
            let is_named = options.configuration.is_some() || wanted.names(&board.prefix(one));
            options.configuration.as_ref().is_none_or(|name| one.name == *name)
                && wanted.may_have(&board.prefix(one))
                && (!one.is_large || options.thorough || is_named)
        };
        let mut configurations = board.configurations.iter().filter(|one| is_meant(one)).peekable();
        if configurations.peek().is_none() {
            continue;
        }
        match setup::board(board) {
            Ok(()) => configurations.try_for_each(|one| targets.add(board, one))?,
            Err(error) => report.add(Finished::failed_step(format!("{}::setup", board.name), format!("{error:#}"))),
        }
    }
    let pool = Pool::new(thread::available_parallelism().map_or(1, usize::from), options.list);
    let is_stage = |stage: &str| options.configuration.is_none() && wanted.may_have(stage);
    add_images(&pool, &targets, is_stage("audit"));
    if is_stage("examples") {
        examples::add(&pool, &wanted);
    }
    if is_stage("miri") {
        miri::add_tests(&pool, &wanted, options.thorough);
    }
    if is_stage("host") {
        host::add_tests(&pool, &wanted, options.thorough);
    }
    if is_stage("check") {
        host::add_checks(&pool, &wanted, options.thorough);
        if options.thorough || wanted.is_filtered() {
            examples::features::add(&pool, &wanted);
            profiles::add(&pool, &wanted);
        }
    }
    let (mut runs, mut listed) = (0, Ok(()));
    pool.run(|news| match news {
        WorkerMessage::Finished(finished) => report.add(finished),
        WorkerMessage::Built(name, duration) => report.took(format!("building {name}"), duration),
        WorkerMessage::Listed(line, count) => {
            if listed.is_ok() {
                listed = writeln!(io::stdout(), "{line}");
            }
            runs += count;
        }
    });
    listed?;
    if options.list && report.is_empty() && runs > 0 {
        writeln!(io::stdout(), "\n{runs} runs of tests")?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(report.finish(&wanted, options.durations))
}

/// Adds the builds of the images, and the tests that use them.
fn add_images<'a>(pool: &Pool<'a>, targets: &'a Targets<'a>, audits: bool) {
    let has_machines = !targets.configurations.is_empty();
    let audits = |image: audit::Image| audits && targets.wanted.has(image.test_name());
    let (audits_tests, audits_kernel) = (audits(audit::Image::Tests), audits(audit::Image::Kernel));
    let is_of_others = targets.wanted.is_of(&[&KERNEL_MODULES[..], &["loader::", "bench::"]].concat());
    // The kernel comes first: its sessions wait most of the time, so the builds that follow have cores.
    if has_machines && targets.wanted.may_have_of(&KERNEL_MODULES) || audits_kernel {
        pool.add("the kernel", move |context| {
            build(context, "runtime", |elf, image| {
                if audits_kernel {
                    add_audit(context, audit::Image::Kernel, elf);
                }
                targets.add_kernel(context, elf, image);
                card::add(context, targets, image);
                record::add(context, targets, image);
                top::add(context, targets, image);
                attach::add(context, targets, image);
                Ok(())
            });
        });
    }
    if has_machines && !is_of_others || audits_tests {
        pool.add("the tests", move |context| {
            build(context, "kprobes-tests", |elf, image| {
                if audits_tests {
                    add_audit(context, audit::Image::Tests, elf);
                }
                targets.add_listed(context, image)
            });
        });
    }
    let has_loader = targets.configurations.iter().any(|one| one.is_base() && one.board.has_card());
    if has_loader && targets.wanted.may_have_of(&["loader::"]) {
        pool.add("the loader", move |context| loader::add(context, targets));
    }
    if has_machines && targets.wanted.may_have_of(&["bench::"]) {
        pool.add("the benchmark", move |context| {
            build(context, bench::PACKAGE, |_, image| targets.add_benchmark(context, image));
        });
    }
}

/// Adds or lists the audit of an image.
fn add_audit(context: &BuildContext<'_, '_>, image: audit::Image, elf: &Path) {
    let elf = elf.to_path_buf();
    let is_default = workspace::other_profile().is_none();
    let audit = move || audit::check(image, &elf, is_default).map(|()| Outcome::Passed);
    context.add_test(image.test_name(), audit);
}

/// Builds a package for the target, and calls `then` with the program and its image.
fn build(context: &BuildContext<'_, '_>, package: &str, then: impl FnOnce(&Path, &Path) -> Result<()>) {
    let built = workspace::build_kernel(package)
        .and_then(|elf| Ok((workspace::image(&elf)?, elf)))
        .and_then(|(image, elf)| then(&elf, &image));
    context.results.step(format!("build::{package}"), built);
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::VARIABLES;
    use crate::workspace;

    #[test]
    fn the_variables_of_the_page_are_those_that_a_repeated_test_gets() {
        let page = fs::read_to_string(workspace::root().join("docs/testing.md")).unwrap();
        let (_, list) = page.split_once("- Longer forms of random tests:").unwrap();
        // Every second part is between backquotes.
        let quoted = list.split('`').skip(1).step_by(2).map(|text| text.split('=').next().unwrap_or(text));
        let is_variable = |name: &&str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        assert_eq!(quoted.filter(is_variable).collect::<BTreeSet<_>>(), BTreeSet::from(VARIABLES));
    }
}
