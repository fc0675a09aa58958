//! What leaves the machine for other programs: the output of programs as JSON, compared with what the text form says.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    pool::BuildContext,
    report::Outcome,
    select::{Demands, Trait},
    target::{Candidate, Order, Targets},
};
use crate::{
    flamegraph::Stacks,
    remote::{Remote, Stopped},
    trace::{self, How, Stream, run_text},
};

/// Adds the tests of what commands of the host take out of a machine.
pub fn add<'a>(context: &BuildContext<'_, 'a>, targets: &'a Targets<'a>, kernel: &Path) {
    let mut candidates = Vec::new();
    for (index, named) in targets.configurations.iter().enumerate() {
        let arguments = match named.arguments(kernel) {
            Ok(arguments) => arguments,
            Err(error) => {
                return context.results.step_failed("record::machine", format!("{error:#}"));
            }
        };
        let seconds = targets.seconds;
        let run = move || match json(&mut Remote::start(&arguments, seconds).map_err(|error| format!("{error:#}"))?) {
            Ok(()) => Ok(Outcome::Passed),
            Err(error) => Err(format!("{error:#}")),
        };
        candidates.push(Candidate::new(index, "record::json".into(), Demands::on(&[Trait::Cpus]), run));
    }
    targets.begin(context, candidates, Order::Last);
}

/// What a program prints, as text and as JSON, and how the ends of programs are told apart.
fn json(remote: &mut Remote) -> Result<()> {
    const COMMAND: &str = "run sha256 100";
    const PROGRAM: &str = "BEGIN { printf(\"%s\\n\", \"it's \\\"one\\\"\"); } \
        kretprobe:runtime::workload::sha256::iterate { @[(u8)retval ? \"right\" : \"wrong\"] = count(); } \
        kprobe:sha2::sha256::compress256 { @blocks = hist(arg2); @rows = lhist(arg2, 0, 100, 1); \
        @all[func] = stats(arg2); @last = (1, \"a\"); }";
    let mut run = |program: &str, how: How| {
        let mut out = String::new();
        let outcome = run_text(remote, program, &how, &mut |stream, text| {
            if stream == Stream::Output {
                out.push_str(text);
            }
            Ok(())
        })?;
        anyhow::Ok((outcome, out))
    };
    let (outcome, text) = run(PROGRAM, How::text(COMMAND))?;
    ensure!(outcome == trace::Outcome::Done, "{outcome:?}: {text}");
    let (outcome, output) = run(PROGRAM, How::json(COMMAND))?;
    ensure!(outcome == trace::Outcome::Done, "{outcome:?}: {output}");
    let objects: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("this is no JSON: {line}")))
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
        for (row, line) in object["data"][name].as_array().into_iter().flatten().zip(shown) {
            let number = |text: &str| text.trim_matches(['[', ')', ']', ',']).parse::<i64>().ok();
            let mut words = line.split_whitespace();
            let least = words.next().and_then(number);
            let end = if line.contains(',') { words.next().and_then(number) } else { least.map(|least| least + 1) };
            let bounds = (row["min"].as_i64(), row["max"].as_i64().map(|most| most + 1));
            ensure!((least, end) == bounds, "{row} is {line}");
            ensure!(words.next() == Some(&row["count"].to_string()), "{row} is {line}");
        }
    }
    let (_, output) = run("kprobe:sha2::sha256::compress256 { @[kstack] = count(); }", How::json(COMMAND))?;
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
    let (outcome, output) = run("kprobe:nowhere {\n@ = count(); }", How::text(COMMAND))?;
    ensure!(
        matches!(&outcome, trace::Outcome::Refused(why) if why.contains("\n  kprobe:nowhere {\n  ^^^")),
        "{outcome:?}"
    );
    ensure!(output.is_empty(), "{output}");
    for refused in ["lisst", "cat nothing", "run sha256 0"] {
        let (outcome, output) = run("BEGIN { printf(\"a\"); }", How::text(refused))?;
        ensure!(outcome == trace::Outcome::Failed && output == "a", "{refused}: {outcome:?} {output}");
    }
    let stopped = run("BEGIN { }", How::text("poweroff"));
    ensure!(stopped.as_ref().is_err_and(|error| error.is::<Stopped>()), "{stopped:?}");
    Ok(())
}
