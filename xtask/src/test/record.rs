//! Tests the data that leaves the machine for other programs: the JSON output of programs, which is compared with their
//! text output, and recordings, which Debian's `trace-cmd report` must print as the kernel prints the trace. The
//! environment can set how many events are recorded:
//!
//! ```text
//! RECORD_EVENTS=100000 cargo xtask test record::report
//! ```

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use super::{
    pool::BuildContext,
    report::Outcome,
    select::{Demands, Trait},
    target::{Candidate, Targets},
};
use crate::{
    flamegraph::Stacks,
    machine::with_channel,
    record::{Ending, RecordOptions, Recorded},
    remote::{Remote, Stopped},
    setup,
    trace::{self, ProgramOptions, Sink, Stream, run_source, run_text, source::Source},
    workspace,
};

/// The most CPUs that a machine of these tests has.
const CPUS: usize = 8;
/// How many events are recorded by default.
const EVENTS: usize = 8_000;

type Test = fn(&Fixture) -> Result<Outcome>;

/// The tests, each in a machine of its own.
const TESTS: [(&str, &[Trait], Test); 5] = [
    ("record::imports", &[], imports),
    ("record::jq", &[], jq),
    ("record::json", &[Trait::Cpus], |fixture| json(&mut fixture.start()?).map(|()| Outcome::Passed)),
    ("record::report", &[Trait::Cpus], report),
    ("record::uart", &[Trait::Board], uart),
];

/// The machine of a test, and what else the test uses.
struct Fixture {
    arguments: Vec<OsString>,
    image: PathBuf,
    /// The directory for its files.
    directory: PathBuf,
    seconds: u64,
}

impl Fixture {
    fn start(&self) -> Result<Remote> {
        Remote::start(&self.arguments, self.seconds)
    }
}

/// Adds the tests of the host commands that take data out of a machine.
pub fn add<'a>(context: &BuildContext<'_, 'a>, targets: &'a Targets<'a>, kernel: &Path) {
    targets.add_each(context, "record::machine", |index, named| {
        let fixture = Arc::new(Fixture {
            arguments: named.arguments(kernel)?,
            image: kernel.into(),
            directory: workspace::root().join("target/recordings").join(format!("{}-{index}", named.board.name)),
            seconds: targets.seconds,
        });
        let has_channel = named.board.has_virtio_serial();
        let tests = TESTS.into_iter().filter(|(name, ..)| *name != "record::report" || has_channel);
        let candidate = |(name, traits, test): (_, &[Trait], Test)| {
            let fixture = Arc::clone(&fixture);
            Candidate::try_new(index, name, Demands::on(traits), move || test(&fixture))
        };
        Ok(tests.map(candidate).collect())
    });
}

/// `trace-cmd report` must print the recording as the kernel prints the trace, line for line, except for the width of
/// columns and the state of the CPU, which it does not print. The state is checked in the records.
fn report(fixture: &Fixture) -> Result<Outcome> {
    if let Err(error) = setup::tool("trace-cmd") {
        return Ok(Outcome::Skipped(format!("trace-cmd is not installed: {error:#}")));
    }
    // Each iteration has three events.
    let events = env::var("RECORD_EVENTS").ok().and_then(|events| events.parse().ok()).unwrap_or(EVENTS).div_ceil(3);
    fs::create_dir_all(&fixture.directory)?;
    let [frames, file] = ["frames", "trace.dat"].map(|name| fixture.directory.join(name));
    let mut remote = Remote::start(&with_channel(&fixture.arguments, &frames), fixture.seconds)?;
    for line in [
        "echo 16384 > buffer_size_kb",
        "p:blocks sha2::sha256::compress256 count=%x2:u64 block=+0(%x1):x8[4] from=%x30:symbol task=$comm odd=%x2:s8",
        "r:done runtime::workload::sha256::iterate right=$retval:u8",
        &format!("run sha256 {events} 4"),
        "echo 0 > events/enable",
    ] {
        ensure!(remote.does(line)?, "{line} is refused");
    }
    let text = remote.ask("cat trace")?;
    let mut recorded = Recorded::of(fs::read(&fixture.image)?);
    let outcome = recorded.take(
        &mut remote,
        Some(&frames),
        &RecordOptions { command: Some("list".into()), ..RecordOptions::default() },
        None,
    )?;
    ensure!(outcome == Ending::Done && recorded.missing + recorded.damaged + recorded.lost == 0, "{recorded}");
    recorded.write(&file)?;
    drop(remote);
    let output = Command::new("trace-cmd").arg("report").arg(&file).stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "trace-cmd: {}", String::from_utf8_lossy(&output.stderr));
    let report = String::from_utf8(output.stdout).context("trace-cmd prints what is no text")?;

    // For each CPU by itself: events at the same time on several CPUs have no order.
    let of_cpu = |cpu: usize, lines: &mut dyn Iterator<Item = Printed>| lines.filter(|line| line.cpu == cpu).collect();
    let (mut present, mut flags) = (0, recorded.flags());
    for cpu in 0..CPUS {
        let printed: Vec<Printed> = of_cpu(cpu, &mut text.iter().filter_map(|line| Printed::read(line, true)));
        let reported: Vec<Printed> = of_cpu(cpu, &mut report.lines().filter_map(|line| Printed::read(line, false)));
        for (printed, reported) in printed.iter().zip(&reported) {
            ensure!(printed.words == reported.words, "the kernel prints\n{printed:?}\nand trace-cmd\n{reported:?}");
            let (_, bits) = flags.next().context("there are fewer events than lines")?;
            let shown = [(1, 'd', 0), (8, 'h', 2)].iter().all(|&(bit, letter, place)| {
                printed.state.chars().nth(place) == Some(if bits & bit == 0 { '.' } else { letter })
            });
            ensure!(shown, "{printed:?} has the flags {bits:#x}");
        }
        ensure!(
            printed.len() == reported.len(),
            "{} lines of CPU {cpu}, and {} of trace-cmd",
            printed.len(),
            reported.len()
        );
        present += printed.len();
    }
    ensure!(present == 3 * events && recorded.records == present as u64, "{present} of {} events", 3 * events);
    Ok(Outcome::Passed)
}

/// A line of a trace.
#[derive(Debug)]
struct Printed {
    cpu: usize,
    /// The five characters after the CPU.
    state: String,
    /// All other words.
    words: Vec<String>,
}

impl Printed {
    fn read(line: &str, has_state: bool) -> Option<Self> {
        let mut words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let cpu = words.get(1)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
        let state = if has_state { words.remove(2) } else { String::new() };
        Some(Self { cpu, state, words })
    }
}

/// A board with only a UART sends the same frames between the lines of its console.
fn uart(fixture: &Fixture) -> Result<Outcome> {
    let mut remote = fixture.start()?;
    let mut recorded = Recorded::of(fs::read(&fixture.image)?);
    let record_options = RecordOptions {
        event: vec!["p:blocks sha2::sha256::compress256 count=%x2:u64".into()],
        command: Some("run sha256 100".into()),
        ..RecordOptions::default()
    };
    let outcome = recorded.take(&mut remote, None, &record_options, None)?;
    let events = recorded.flags().count();
    ensure!(outcome == Ending::Done && events == 200 && recorded.records == 200, "{outcome:?}: {recorded}");
    ensure!(recorded.missing + recorded.damaged + recorded.lost == 0, "{recorded}");
    let wrong = RecordOptions { event: vec!["p:x nowhere".into()], ..RecordOptions::default() };
    ensure!(recorded.take(&mut remote, None, &wrong, None)? == Ending::Refused, "what is no event is recorded");
    let program = Source::new("BEGIN { exit(12); }", None, &[]).map_err(anyhow::Error::msg)?;
    let ending = recorded.take(&mut remote, None, &RecordOptions::default(), Some(&program))?;
    ensure!(ending == Ending::Exited(12), "the program has ended with 12, and the recording with {ending:?}");
    Ok(Outcome::Passed)
}

/// Runs a program by `run`, and returns its outcome and what it printed to the stream `wanted`.
fn printed(wanted: Stream, run: impl FnOnce(Sink<'_>) -> Result<trace::Outcome>) -> Result<(trace::Outcome, String)> {
    let mut text = String::new();
    let outcome = run(&mut |stream, more| {
        if stream == wanted {
            text.push_str(more);
        }
        Ok(())
    })?;
    Ok((outcome, text))
}

/// Runs a program in a file that imports others, and one that is refused because of a file that it imports.
fn imports(fixture: &Fixture) -> Result<Outcome> {
    let directory = fixture.directory.join("imports");
    fs::create_dir_all(directory.join("lib"))?;
    for (file, text) in [
        ("main.bt", "#!/usr/bin/env bpftrace\nimport \"lib\";\nimport \"lib/a.bt\";\nBEGIN { printf(\"main\\n\"); }"),
        ("lib/a.bt", "import \"b.bt\"; // first\nBEGIN { printf(\"a\\n\"); }"),
        (
            "lib/b.bt",
            "import \"a.bt\";\nBEGIN { printf(\"b\\n\"); }\nkprobe:sha2::*::compress256 { @calls = count(); }",
        ),
        ("wrong.bt", "import \"wrong/c.bt\";\nBEGIN { }"),
    ] {
        fs::write(directory.join(file), text)?;
    }
    fs::create_dir_all(directory.join("wrong"))?;
    fs::write(directory.join("wrong/c.bt"), "// A function that is unknown.\nBEGIN { foo(1); }\n")?;
    let mut remote = fixture.start()?;
    let mut run = |file: &str| {
        let command = ProgramOptions::text("run sha256 100");
        let source =
            trace::read(&directory.join(file).to_string_lossy(), &[])?.map_err(|sentence| anyhow!(sentence))?;
        printed(Stream::Output, |out| run_source(&mut remote, &source, &command, out))
    };
    let (outcome, output) = run("main.bt")?;
    ensure!(outcome == trace::Outcome::Done && output == "b\na\nmain\n@calls: 200\n", "{outcome:?}: {output}");
    let (outcome, output) = run("wrong.bt")?;
    let trace::Outcome::Refused(why) = &outcome else { bail!("{outcome:?}: {output}") };
    let marked = ":2:9: error: this function is unknown\n  BEGIN { foo(1); }\n          ^^^";
    ensure!(why.contains("wrong/c.bt") && why.ends_with(marked), "{why}");
    Ok(Outcome::Passed)
}

/// Filters of `jq` for the objects of `bpftrace -f json` as its documentation and its tests have them, and what they
/// print for the program in [`jq`].
const FILTERS: [(&str, &str); 9] = [
    (r#"select(.type == "attached_probes") | .count, .data.probes"#, "2\n2\n"),
    (r#"select(.type == "printf").data"#, "\"it's \\\"one\\\"\\n\"\n"),
    (r#"select(.type == "value").data"#, "[1,\"a\"]\n"),
    (r#"select(.type == "map").data | select(has("@n"))["@n"]"#, "200\n"),
    (r#"select(.type == "map").data | select(has("@of"))["@of"]["sha2::sha256::compress256,1"]"#, "200\n"),
    (r#"select(.type == "stats").data["@s"] | .count, .average, .total"#, "200\n3\n600\n"),
    (r#"select(.type == "hist").data | select(has("@h"))["@h"][] | .min, .max, .count"#, "2\n3\n200\n"),
    (r#"select(.type == "hist").data | select(has("@l"))["@l"][] | [.min // "-", .max // "-", .count]"#, "[3,3,200]\n"),
    (r#"select(.type == "map").data | select(has("@large"))["@large"]"#, "\"18446744073709551615\"\n"),
];

/// Another program reads the JSON.
fn jq(fixture: &Fixture) -> Result<Outcome> {
    const PROGRAM: &str = "BEGIN { printf(\"it's \\\"one\\\"\\n\"); print((1, \"a\")); @large = (uint64)-1; } \
        kprobe:sha2::sha256::compress256 { @n = count(); @of[func, 1] = count(); @s = stats(3); @h = hist(3); \
        @l = lhist(3, 0, 10, 1); }";
    if let Err(error) = setup::tool("jq") {
        return Ok(Outcome::Skipped(format!("jq is not installed: {error:#}")));
    }
    let mut remote = fixture.start()?;
    let options = ProgramOptions::json("run sha256 100");
    let (outcome, output) = printed(Stream::Output, |out| run_text(&mut remote, PROGRAM, &options, out))?;
    ensure!(outcome == trace::Outcome::Done, "{outcome:?}: {output}");
    fs::create_dir_all(&fixture.directory)?;
    let file = fixture.directory.join("output.json");
    fs::write(&file, &output)?;
    for (filter, expected) in FILTERS {
        let read = Command::new("jq").args(["-c", filter]).arg(&file).stdin(Stdio::null()).output()?;
        let [found, why] = [&read.stdout, &read.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        ensure!(read.status.success() && found == expected, "`jq '{filter}'` prints {found:?} {why} for\n{output}");
    }
    Ok(Outcome::Passed)
}

/// Checks the output of programs as text and as JSON, that their ends are told apart, and that only a few copies of a
/// function are named in warnings.
fn json(remote: &mut Remote) -> Result<()> {
    const COMMAND: &str = "run sha256 100";
    const PROGRAM: &str = "BEGIN { printf(\"%s\\n\", \"it's \\\"one\\\"\"); } \
        kretprobe:runtime::workload::sha256::iterate { @[(u8)retval ? \"right\" : \"wrong\"] = count(); } \
        kprobe:sha2::sha256::compress256 { @blocks = hist(arg2); @rows = lhist(arg2, 0, 100, 1); \
        @all[func] = stats(arg2); @last = (1, \"a\"); }";
    let options = ProgramOptions { dry_run: true, ..ProgramOptions::default() };
    let copies = "kprobe:kprobes_fallible::collect:2 { }";
    let (_, notes) = printed(Stream::Notes, |out| run_text(remote, copies, &options, out))?;
    let warnings: Vec<_> = notes.lines().filter(|line| line.starts_with("warning: ")).collect();
    let rest = warnings.last().and_then(|line| line.strip_prefix("warning: kprobe:kprobes_fallible::collect:2: and "));
    ensure!(warnings.len() == 5 && rest.is_some_and(|rest| rest.ends_with(" more")), "{notes}");
    let mut run = |program: &str, options: ProgramOptions| {
        printed(Stream::Output, |out| run_text(remote, program, &options, out))
    };
    let (outcome, text) = run(PROGRAM, ProgramOptions::text(COMMAND))?;
    ensure!(outcome == trace::Outcome::Done, "{outcome:?}: {text}");
    let (outcome, output) = run(PROGRAM, ProgramOptions::json(COMMAND))?;
    ensure!(outcome == trace::Outcome::Done, "{outcome:?}: {output}");
    let objects: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("this is not JSON: {line}")))
        .collect::<Result<_>>()?;
    let types: Vec<_> = objects.iter().filter_map(|object| object["type"].as_str()).collect();
    ensure!(types == ["attached_probes", "printf", "map", "stats", "hist", "map", "hist"], "{output}");
    let [attached, printed, calls, all, blocks, last, rows] = &objects[..] else { unreachable!("they were counted") };
    ensure!(attached["data"]["probes"] == 3, "{attached}");
    let said = printed["data"].as_str().unwrap_or_default();
    ensure!(text.starts_with(said) && said == "it's \"one\"\n", "{said:?}, and as text {text}");
    ensure!(text.contains(&format!("@[right]: {}\n", calls["data"]["@"]["right"])), "{calls}: {text}");
    let function = "sha2::sha256::compress256";
    let stats = &all["data"]["@all"][function];
    let [count, average, total] = ["count", "average", "total"].map(|name| &stats[name]);
    let line = format!("@all[{function}]: count {count}, average {average}, total {total}\n");
    ensure!(text.contains(&line), "{all}: {text}");
    ensure!(last["data"]["@last"] == serde_json::json!([1, "a"]) && text.contains("@last: (1, a)\n"), "{last}: {text}");
    for (object, name) in [(blocks, "@blocks"), (rows, "@rows")] {
        let shown = text.split_once(&format!("{name}:\n")).map_or("", |(_, rest)| rest).lines();
        let rows = object["data"][name].as_array().map_or(&[][..], Vec::as_slice);
        ensure!(!rows.is_empty() && rows.len() <= shown.clone().count(), "{object}: {text}");
        for (row, line) in rows.iter().zip(shown) {
            let number = |text: &str| text.trim_matches(['[', ')', ']', ',']).parse::<i64>().ok();
            let mut words = line.split_whitespace();
            let least = words.next().and_then(number);
            let end = if line.contains(',') { words.next().and_then(number) } else { least.map(|least| least + 1) };
            let bounds = (row["min"].as_i64(), row["max"].as_i64().map(|most| most + 1));
            ensure!((least, end) == bounds, "{row} is {line}");
            ensure!(words.next() == Some(&row["count"].to_string()), "{row} is {line}");
        }
    }
    let (_, output) = run("kprobe:sha2::sha256::compress256 { @[kstack] = count(); }", ProgramOptions::json(COMMAND))?;
    let (mut folded, mut picture) = (Vec::new(), Vec::new());
    let stacks = Stacks::read(&output, None)?;
    stacks.fold(&mut folded)?;
    stacks.draw("", "calls", &mut picture)?;
    let folded = String::from_utf8(folded)?;
    let counts = folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    ensure!(counts.sum::<u64>() == 200, "{folded}");
    let callee = ";sha2::sha256::compress256 200";
    ensure!(folded.contains(";runtime::workload::sha256::iterate;") && folded.trim_end().ends_with(callee), "{folded}");
    ensure!(String::from_utf8(picture)?.contains("sha2::sha256::compress256 (200 calls, 100"), "{folded}");
    let (outcome, output) = run("kprobe:nowhere {\n@ = count(); }", ProgramOptions::text(COMMAND))?;
    ensure!(
        matches!(&outcome, trace::Outcome::Refused(why) if why.contains("\n  kprobe:nowhere {\n  ^^^")),
        "{outcome:?}"
    );
    ensure!(output.is_empty(), "{output}");
    let options = ProgramOptions { task: Some(99_999), ..ProgramOptions::text(COMMAND) };
    let (outcome, output) = run(PROGRAM, options)?;
    ensure!(
        matches!(&outcome, trace::Outcome::Refused(why) if why == "error: no task has this number; `tasks` lists them"),
        "{outcome:?}: {output}"
    );
    let (outcome, output) = run("*compress256", ProgramOptions { list: true, ..ProgramOptions::default() })?;
    ensure!(outcome == trace::Outcome::Done && output == format!("kprobe:{function}\n"), "{outcome:?}: {output}");
    let (outcome, output) = run(PROGRAM, ProgramOptions { dry_run: true, ..ProgramOptions::json(COMMAND) })?;
    ensure!(outcome == trace::Outcome::Done && output.contains("\"attached_probes\", \"count\": 3"), "{output}");
    ensure!(output.lines().count() == 1, "a dry run has run: {output}");
    let given = |list| ProgramOptions { list, parameters: vec!["--status=12".into()], ..ProgramOptions::default() };
    let (outcome, output) =
        run("BEGIN { printf(\"a\\n\"); exit(getopt(\"status\", 0)); } END { exit(13); }", given(false))?;
    ensure!(outcome == trace::Outcome::Exited(12) && output == "a\n", "{outcome:?}: {output}");
    let (outcome, output) = run("BEGIN { }", given(true))?;
    ensure!(matches!(&outcome, trace::Outcome::Refused(why) if why.contains("`--status=12`")), "{outcome:?}: {output}");
    for refused in ["lisst", "cat nothing", "run sha256 0"] {
        let (outcome, output) = run("BEGIN { printf(\"a\"); }", ProgramOptions::text(refused))?;
        ensure!(outcome == trace::Outcome::Failed && output == "a", "{refused}: {outcome:?} {output}");
    }
    let stopped = run("BEGIN { }", ProgramOptions::text("poweroff"));
    ensure!(stopped.as_ref().is_err_and(|error| error.is::<Stopped>()), "{stopped:?}");
    Ok(())
}
