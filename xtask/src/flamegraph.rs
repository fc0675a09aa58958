//! Draws stacks. The input is the output of `cargo xtask trace -f json` with a map keyed by `kstack`. The result is
//! folded text, which all programs for flame graphs read, a flame graph, or a file for speedscope.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use inferno::flamegraph::{self, Options as Picture};
use serde_json::{Value, json};

/// The input and the files to draw.
#[derive(clap::Args)]
pub struct Options {
    /// The output of `cargo xtask trace -f json`; standard input, if no file is given.
    #[arg(value_name = "FILE")]
    input: Option<PathBuf>,
    /// The file to draw. FILE.svg is a flame graph, FILE.folded folded text, FILE.speedscope.json for
    /// <https://www.speedscope.app>, FILE.dot a call graph for Graphviz. May be given several times. Without it, folded
    /// text goes to standard output.
    #[arg(short, value_name = "FILE")]
    output: Vec<PathBuf>,
    /// The map, if several have stacks as keys.
    #[arg(long, value_name = "@NAME")]
    map: Option<String>,
    /// The title of a flame graph.
    #[arg(long, value_name = "TEXT", default_value = "Flame Graph")]
    title: String,
    /// The unit of the counts.
    #[arg(long, value_name = "TEXT", default_value = "samples")]
    count_name: String,
}

/// Draws the stacks.
pub fn flamegraph(options: &Options) -> Result<()> {
    // Checked before standard input is read.
    let files = options.output.iter().map(|path| Ok((path, form(path)?))).collect::<Result<Vec<_>>>()?;
    let text = match &options.input {
        Some(path) => fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?,
        None => io::read_to_string(io::stdin().lock()).context("standard input cannot be read")?,
    };
    let stacks = Stacks::read(&text, options.map.as_deref())?;
    if files.is_empty() {
        // A closed output has no sentence.
        return Ok(stacks.fold(&mut io::stdout().lock())?);
    }
    for (path, form) in files {
        let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
        let mut file = BufWriter::new(file);
        let written = match form {
            Form::Picture => stacks.draw(&options.title, &options.count_name, &mut file),
            Form::Folded => stacks.fold(&mut file),
            Form::Speedscope => stacks.speedscope(&options.title, &mut file),
            Form::Graph => stacks.graph(&options.title, &options.count_name, &mut file),
        };
        written.and_then(|()| file.flush()).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

enum Form {
    Picture,
    Folded,
    Speedscope,
    Graph,
}

/// Returns the form that the name of a file asks for.
fn form(path: &Path) -> Result<Form> {
    let name = path.to_string_lossy();
    match () {
        () if name.ends_with(".svg") => Ok(Form::Picture),
        () if name.ends_with(".folded") => Ok(Form::Folded),
        () if name.ends_with(".speedscope.json") => Ok(Form::Speedscope),
        () if name.ends_with(".dot") => Ok(Form::Graph),
        () => bail!("{name} must be FILE.svg, FILE.folded, FILE.speedscope.json or FILE.dot"),
    }
}

/// Stacks, the outermost function first, each with its count.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stacks(BTreeMap<Vec<String>, u64>);

impl Stacks {
    /// Reads the stacks from the output of a program: those of the map `wanted`, or of the only map that has stacks as
    /// keys.
    pub fn read(output: &str, wanted: Option<&str>) -> Result<Self> {
        let mut found: Vec<(String, Self)> = Vec::new();
        for (number, line) in output.lines().enumerate() {
            let object: Value = serde_json::from_str(line)
                .with_context(|| format!("line {} is not output of `cargo xtask trace -f json`", number + 1))?;
            // Averages are of the type `stats`.
            if object["type"] != "map" && object["type"] != "stats" {
                continue;
            }
            for (name, entries) in object["data"].as_object().into_iter().flatten() {
                let stacks = Self::of(entries);
                if !stacks.0.is_empty() && wanted.is_none_or(|wanted| wanted == name) {
                    // If a map is printed several times, the last one has the total.
                    found.retain(|(other, _)| other != name);
                    found.push((name.clone(), stacks));
                }
            }
        }
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        ensure!(names.len() < 2, "several maps have stacks as keys: choose one by --map, of {}", names.join(", "));
        let sentence = "no map has stacks as keys and numbers as values, as @[kstack] = count() has";
        Ok(found.pop().context(sentence)?.1)
    }

    /// Returns the entries of a map that are numbers under stacks.
    fn of(entries: &Value) -> Self {
        let mut stacks = Self::default();
        for (key, value) in entries.as_object().into_iter().flatten() {
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
            if let (Some(stack), Some(number)) = (stack(key), number) {
                *stacks.0.entry(stack).or_default() += number;
            }
        }
        stacks
    }

    /// Writes a line for each stack, with `;` between functions. A `;` within a function becomes `:`.
    pub fn fold(&self, out: &mut impl Write) -> io::Result<()> {
        self.0.iter().try_for_each(|(stack, count)| {
            let frames: Vec<_> = stack.iter().map(|frame| frame.replace(';', ":")).collect();
            writeln!(out, "{} {count}", frames.join(";"))
        })
    }

    /// Writes a flame graph.
    pub fn draw(&self, title: &str, count_name: &str, out: &mut impl Write) -> io::Result<()> {
        let mut folded = Vec::new();
        self.fold(&mut folded)?;
        let mut picture = Picture::default();
        picture.title = title.into();
        picture.count_name = count_name.into();
        // The same stacks must give the same picture.
        picture.deterministic = true;
        flamegraph::from_reader(&mut picture, folded.as_slice(), out)
    }

    /// Writes a call graph for Graphviz: each function with the count of the stacks that have it, and each call. A
    /// stack counts once, also if a function calls itself in it. The more it counts, the darker a function is, and the
    /// thicker the arrow of a call.
    pub fn graph(&self, title: &str, count_name: &str, out: &mut impl Write) -> io::Result<()> {
        let (mut functions, mut calls) = (BTreeMap::<&str, u64>::new(), BTreeMap::<(&str, &str), u64>::new());
        for (stack, count) in &self.0 {
            let names: BTreeSet<&str> = stack.iter().map(String::as_str).collect();
            let pairs: BTreeSet<_> = stack.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
            names.into_iter().for_each(|name| *functions.entry(name).or_default() += count);
            pairs.into_iter().for_each(|pair| *calls.entry(pair).or_default() += count);
        }
        let all = self.0.values().sum::<u64>().max(1) as f64;
        let quoted = |name: &str| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
        writeln!(out, "digraph {} {{", quoted(title))?;
        writeln!(out, "    node [shape=box, style=filled, fontname=\"sans-serif\"];")?;
        for (name, count) in functions {
            let share = count as f64 / all;
            let label = quoted(&format!("{name}\n{count} {count_name}, {:.1}%", share * 100.0)).replace('\n', "\\n");
            writeln!(out, "    {} [label={label}, fillcolor=\"0.08 {share:.2} 1.0\"];", quoted(name))?;
        }
        for ((caller, callee), count) in calls {
            let width = 1.0 + 4.0 * count as f64 / all;
            writeln!(out, "    {} -> {} [label={count}, penwidth={width:.1}];", quoted(caller), quoted(callee))?;
        }
        writeln!(out, "}}")
    }

    /// Writes a file for speedscope.
    pub fn speedscope(&self, title: &str, out: &mut impl Write) -> io::Result<()> {
        let mut indices = BTreeMap::new();
        let mut samples = Vec::new();
        for stack in self.0.keys() {
            let mut number = |frame: &String| {
                let next = indices.len();
                *indices.entry(frame.clone()).or_insert(next)
            };
            samples.push(stack.iter().map(&mut number).collect::<Vec<_>>());
        }
        let mut frames = vec![Value::Null; indices.len()];
        indices.into_iter().for_each(|(name, index)| frames[index] = json!({ "name": name }));
        let weights: Vec<_> = self.0.values().collect();
        let file = json!({
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": title,
            "exporter": "aarch64-kprobes",
            "shared": { "frames": frames },
            "profiles": [{
                "type": "sampled",
                "name": title,
                "unit": "none",
                "startValue": 0,
                "endValue": self.0.values().sum::<u64>(),
                "samples": samples,
                "weights": weights,
            }],
        });
        serde_json::to_writer(out, &file)?;
        Ok(())
    }
}

/// Returns the stack in a key, the outermost function first, after the other parts of the key. `None` if the key has no
/// stack.
fn stack(key: &str) -> Option<Vec<String>> {
    // A stack begins and ends with the end of a line, and each frame is indented.
    const INDENT: &str = "    ";
    let (before, mut rest) = key.split_once("\n    ")?;
    let mut frames = Vec::new();
    let after = loop {
        let (frame, after) = rest.split_once('\n')?;
        frames.push(function(frame));
        match after.strip_prefix(INDENT) {
            Some(next) => rest = next,
            None => break after,
        }
    };
    let others = [before.trim_end_matches(','), after.trim_start_matches(',')];
    // A text in a key may have ends of lines. In folded text, each would end a stack.
    let one_line = |other: &str| other.replace(char::is_control, " ");
    frames.extend(others.into_iter().rev().filter(|other| !other.is_empty()).map(one_line));
    frames.reverse();
    Some(frames)
}

/// Returns the function of a frame, without the offset in it.
fn function(frame: &str) -> String {
    let (name, offset) = frame.rsplit_once('+').unwrap_or((frame, ""));
    let is_offset = !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_digit());
    if is_offset { name } else { frame }.into()
}

#[cfg(test)]
mod tests {
    use super::{Options, Stacks, flamegraph, form};
    use std::path::Path;

    const OUTPUT: &str = r#"{"type": "attached_probes", "count": 1, "data": {"probes": 1}}
{"type": "map", "data": {"@s": {"\n    f+4\n    <[u8; 4] as Add<u8>>::g+16\n    main+32\n": 3, "\n    f+8\n    <[u8; 4] as Add<u8>>::g+16\n    main+32\n": 2, "\n    0xffff\n": "9007199254740993"}}}
{"type": "map", "data": {"@n": {"a": 1}}}
{"type": "hist", "data": {"@h": {"\n    f+4\n": [{"min": 1, "max": 1, "count": 1}]}}}
"#;

    #[test]
    fn stacks_are_folded() {
        let mut folded = Vec::new();
        Stacks::read(OUTPUT, None).unwrap().fold(&mut folded).unwrap();
        let expected = "0xffff 9007199254740993\nmain;<[u8: 4] as Add<u8>>::g;f 5\n";
        assert_eq!(String::from_utf8(folded).unwrap(), expected);
        let other = r#"{"type": "map", "data": {"@": {"worker/1,\n    f+4\n    main+8\n,7": 3}}}"#;
        let mut folded = Vec::new();
        Stacks::read(other, None).unwrap().fold(&mut folded).unwrap();
        assert_eq!(folded, b"worker/1;7;main;f 3\n");
        let text = r#"{"type": "map", "data": {"@": {"\n    f+4\n    main+8\n,GET /\nHost": 3}}}"#;
        let mut folded = Vec::new();
        Stacks::read(text, None).unwrap().fold(&mut folded).unwrap();
        assert_eq!(folded, b"GET / Host;main;f 3\n");
        let averages = other.replace("\"map\"", "\"stats\"");
        assert_eq!(Stacks::read(&averages, None).unwrap(), Stacks::read(other, None).unwrap());
    }

    #[test]
    fn what_is_no_map_of_stacks_is_refused() {
        let refused = |output: &str, map| Stacks::read(output, map).unwrap_err().to_string();
        assert!(refused("", None).starts_with("no map has stacks"));
        assert!(refused(OUTPUT, Some("@n")).starts_with("no map has stacks"));
        assert_eq!(refused("1 probe", None), "line 1 is not output of `cargo xtask trace -f json`");
        let two = OUTPUT.to_string() + &OUTPUT.replace("@s", "@t");
        assert_eq!(refused(&two, None), "several maps have stacks as keys: choose one by --map, of @s, @t");
        assert!(Stacks::read(&two, Some("@t")).is_ok());
        assert!(form(Path::new("a.speedscope.json")).is_ok());
        let options = Options {
            input: Some("nowhere.json".into()),
            output: vec!["a.svg".into(), "a.png".into()],
            map: None,
            title: String::new(),
            count_name: String::new(),
        };
        let refused = flamegraph(&options).unwrap_err().to_string();
        assert!(refused.starts_with("a.png must be FILE.svg"), "{refused}");
    }

    #[test]
    fn a_call_graph_has_every_function_and_call_once() {
        let output = r#"{"type": "map", "data": {"@": {"\n    f+4\n    f+8\n    main+8\n": 3, "\n    a \"b\"+4\n    main+8\n": 1}}}"#;
        let mut graph = Vec::new();
        Stacks::read(output, None).unwrap().graph("T", "calls", &mut graph).unwrap();
        let expected = r#"digraph "T" {
    node [shape=box, style=filled, fontname="sans-serif"];
    "a \"b\"" [label="a \"b\"\n1 calls, 25.0%", fillcolor="0.08 0.25 1.0"];
    "f" [label="f\n3 calls, 75.0%", fillcolor="0.08 0.75 1.0"];
    "main" [label="main\n4 calls, 100.0%", fillcolor="0.08 1.00 1.0"];
    "f" -> "f" [label=3, penwidth=4.0];
    "main" -> "a \"b\"" [label=1, penwidth=2.0];
    "main" -> "f" [label=3, penwidth=4.0];
}
"#;
        assert_eq!(String::from_utf8(graph).unwrap(), expected);
    }

    #[test]
    fn pictures_have_every_function_and_its_share() {
        let stacks = Stacks::read(&OUTPUT.replace("9007199254740993", "3"), None).unwrap();
        let mut picture = Vec::new();
        stacks.draw("T", "calls", &mut picture).unwrap();
        let picture = String::from_utf8(picture).unwrap();
        assert!(picture.starts_with("<?xml") && picture.trim_end().ends_with("</svg>"));
        for frame in ["main (5 calls", "&lt;[u8: 4] as Add&lt;u8&gt;&gt;::g (5 calls", "f (5 calls"] {
            assert!(picture.contains(frame), "{frame}");
        }
        let mut speedscope = Vec::new();
        stacks.speedscope("T", &mut speedscope).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&speedscope).unwrap();
        let profile = &file["profiles"][0];
        let names: Vec<_> = profile["samples"][1]
            .as_array()
            .unwrap()
            .iter()
            .map(|index| file["shared"]["frames"][index.as_u64().unwrap() as usize]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["main", "<[u8; 4] as Add<u8>>::g", "f"]);
        assert_eq!(profile["weights"], serde_json::json!([3, 5]));
        assert_eq!(profile["endValue"], 8);
    }
}
