//! One command decides whether the project is sound: the style, the pure parts on the host, and everything
//! else where it is meant to run. What it prints is what libtest prints, so that whatever reads the one reads
//! the other.

mod boot;
mod capture;
mod card;
pub mod dialogue;
mod differ;
mod flattened;
mod garbage;
mod host;
mod libtest;
mod loader;
mod network;
mod normal;
mod pool;
pub mod protocol;
mod report;
pub mod select;
mod serial;
mod session;
mod sessions;
mod target;
mod wanted;

use std::{process::ExitCode, thread};

use anyhow::{Result, anyhow};
use pool::{News, Pool, Site};
use report::{Finished, Report};
use target::{Targets, with_image};
use wanted::Wanted;

use crate::{
    audit, bench,
    board::{self, Board},
    serial::Station,
    setup, workspace,
};

/// The names of the tests that need no board begin with these.
const STAGES: [&str; 3] = ["check", "host", "audit"];

/// What is tested.
#[derive(clap::Args)]
pub struct Options {
    /// The board, a directory of `boards/`; all that QEMU has a machine for, if none is given.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Only the on-target tests, in this configuration of the board, which is qemu-virt if none is given.
    #[arg(long, value_name = "NAME")]
    configuration: Option<String>,
    /// Every test in every configuration of every board, and not only where its result can differ.
    #[arg(long)]
    thorough: bool,
    /// Says which tests there are, in which configurations they run, and what they depend on; runs none.
    #[arg(long)]
    list: bool,
    /// Says at the end which tests and builds took longest.
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    durations: Option<usize>,
    #[command(flatten)]
    serial: crate::serial::Options,
    /// How long an on-target test may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,
    /// Only the test with exactly this name.
    #[arg(long, requires = "filter")]
    exact: bool,
    /// Only tests whose full name contains this. What cannot contain it is not even built. One that begins with a
    /// configuration, such as `rpi3/smp1::kprobe`, has every test run there.
    filter: Option<String>,
}

/// Runs the tests. Ends with a line that counts them, whatever happens.
pub fn test(options: &Options) -> Result<ExitCode> {
    let wanted = Wanted::new(options.filter.clone(), options.exact);
    let mut report = Report::default();
    if let Some(station) = Station::open(options.board.as_deref().unwrap_or(board::DEFAULT), &options.serial)? {
        setup::rust(&[])?;
        serial::test(&mut report, &wanted, &station, options.timeout);
        return Ok(report.finish(&wanted, options.durations));
    }
    let name = options.board.as_deref().or(options.configuration.as_deref().map(|_| board::DEFAULT));
    let mut boards = match name {
        Some(name) => vec![Board::load(name)?],
        None => Board::emulated()?,
    };
    if let Some(name) = &options.configuration {
        boards.iter().try_for_each(|board| board.configuration(name).map(|_| ()))?;
        boards.iter_mut().for_each(|board| board.configurations.retain(|one| one.name == *name));
    }
    let places: Vec<String> = boards
        .iter()
        .flat_map(|board| board.configurations.iter().map(|configuration| board.place(configuration)))
        .collect();
    let all_places = || STAGES.into_iter().chain(places.iter().map(String::as_str));
    let is_wanted = |place: &str| wanted.may_have(place, all_places());
    if let Err(error) = setup::rust(&["clippy", "rustfmt"]) {
        report.add(Finished::new("setup", Err(format!("{error:#}"))));
        return Ok(report.finish(&wanted, options.durations));
    }
    let mut targets = Targets::new(&wanted, options.timeout);
    targets.is_thorough = options.thorough;
    targets.is_listing = options.list;
    targets.is_narrowed = name.is_some() || wanted.place(all_places()).is_some();
    for board in &boards {
        let configurations: Vec<_> =
            board.configurations.iter().filter(|configuration| is_wanted(&board.place(configuration))).collect();
        if configurations.is_empty() {
            continue;
        }
        match setup::board(board) {
            Ok(()) => configurations.into_iter().try_for_each(|one| targets.add(board, one))?,
            Err(error) => report.add(Finished::new(format!("{}::setup", board.name), Err(format!("{error:#}")))),
        }
    }
    let pool = Pool::new(thread::available_parallelism().map_or(1, usize::from));
    let is_stage = |stage: &str| options.configuration.is_none() && is_wanted(stage);
    if !targets.is_empty() || is_stage("audit") {
        add_images(&pool, &targets, is_stage("audit"));
    }
    if is_stage("host") {
        host::add_tests(&pool, &wanted, options.list);
    }
    if is_stage("check") {
        host::add_checks(&pool, &wanted, options.list);
    }
    let mut runs = 0;
    pool.run(|news| match news {
        News::Finished(finished) => report.add(finished),
        News::Built(name, duration) => report.took(format!("building {name}"), duration),
        News::Listed(line, count) => {
            println!("{line}");
            runs += count;
        }
    });
    if options.list && report.is_empty() {
        println!("\n{runs} runs of tests");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(report.finish(&wanted, options.durations))
}

/// Adds the builds of the images, and what is done with them.
fn add_images<'a>(pool: &Pool<'a>, targets: &'a Targets<'a>, audits: bool) {
    let audited = move |site: &Site<'_, 'a>, image: audit::Image, elf: &std::path::Path| {
        let name = image.test_name();
        if !audits || !targets.wanted.has(name) {
            return;
        }
        if targets.is_listing {
            return site.results.list(name.into(), 1);
        }
        let elf = elf.to_path_buf();
        site.add(move |results| {
            results.time(name.into(), || audit::check(image, &elf).map(|()| report::Outcome::Passed));
        });
    };
    pool.add("the tests", move |site| {
        build(site, "kprobes-tests", |elf, image| {
            targets.add_listed(site, image)?;
            audited(site, audit::Image::Tests, elf);
            Ok(())
        });
    });
    pool.add("the kernel", move |site| {
        build(site, "runtime", |elf, image| {
            targets.add_kernel(site, elf, image)?;
            card::add(site, targets, image);
            audited(site, audit::Image::Kernel, elf);
            Ok(())
        });
    });
    if targets.is_empty() {
        return;
    }
    pool.add("the benchmark", move |site| {
        build(site, bench::PACKAGE, |_, image| targets.add_benchmark(site, image));
    });
    if targets.whole_boards().any(|board| loader::has_loader(&board.name)) {
        pool.add("the loader", move |site| loader::add(site, targets));
    }
}

/// Builds a package for the target; `then` gets the program and its image. What fails is a failed test of that name.
fn build(site: &Site<'_, '_>, package: &str, then: impl FnOnce(&std::path::Path, &std::path::Path) -> Result<()>) {
    let jobs = site.cargo_jobs().to_string();
    let built = workspace::build_kernel_with(package, &["--jobs", &jobs]).and_then(with_image);
    if let Err(error) = built.and_then(|(elf, image)| then(&elf, &image)) {
        site.results.result(format!("build::{package}"), Err(format!("{:#}", anyhow!(error))));
    }
}
