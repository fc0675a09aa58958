//! Lets each allocation fail in turn: input is parsed, or refused with an error.

use alloc::string::String;
use core::fmt::Write;

use fallible::OutOfMemory;
use fallible::failing::{Heap, each_allocation, with_memory};

use crate::arguments::{name, text_argument};
use crate::files::path;
use crate::line_editor::{Candidates, Completer, LineEditor, LineRefusal};
use crate::lines::Lines;
use crate::shell::CommandLine;
use crate::words::{Failure, Words};

#[global_allocator]
static HEAP: Heap = Heap;

#[test]
fn a_line_of_a_shell() {
    const TEXT: &str = "cat 'a b'\\c \"d\\\"\" > e";
    let (line, failures) = each_allocation(|| CommandLine::parse(TEXT), |error| error.is_memory());
    assert_eq!(line.words, ["cat", "a bc", "d\""]);
    assert!(failures > 3);
}

#[test]
fn a_name_a_program_and_a_command() {
    // The error is an out-of-memory error, and shows this if there is memory to show it.
    let is_memory = |failure: &Failure| {
        let mut text = String::new();
        failure.write("", &mut text).is_ok() && text.contains("not enough memory")
    };
    for line in ["f", "'f'"] {
        let (read, failures) = each_allocation(|| name(&mut Words::new(line)), is_memory);
        assert_eq!((&*read.0, failures > 0), ("f", true), "{line}");
    }
    for line in ["kprobe:f { } -c run", "'kprobe:f { }' -c 'run'", "kprobe:f { } -c 'run'"] {
        let (read, failures) = each_allocation(|| text_argument(&mut Words::new(line), "a program"), is_memory);
        assert_eq!((&*read.text, read.command.as_deref()), ("kprobe:f { }", Some("run")), "{line}");
        assert!(failures > 1, "{line}");
    }
}

#[test]
fn output_that_is_lost_is_told_of() {
    let mut lines = Lines::<String>::default();
    assert!(with_memory(0, || lines.write_str("some")).is_err());
    assert!(lines.is_lost());
}

#[test]
fn a_directory() {
    let list = || -> Result<_, OutOfMemory> {
        let parts = path::parts("/sys/kernel/tracing/./events/g")?;
        let stars = fallible::collect_results([fallible::copy("e")])?;
        path::list(["events/*/*/enable", "events/*/enable"].into_iter(), &parts, stars)
    };
    let (names, failures) = each_allocation(list, |&OutOfMemory| true);
    assert_eq!((names.len(), failures > 3), (2, true));
}

/// Offers two names for a word, and goes on in a next row after a `{`.
struct Names;

impl Completer for Names {
    fn complete(&mut self, before: &str, found: &mut Candidates) -> Result<(), OutOfMemory> {
        found.look_for(before)?;
        ["trace_on", "trace_off"].iter().try_for_each(|name| found.offer(name, " "))
    }

    fn is_open(&mut self, line: &str) -> bool {
        line.ends_with('{')
    }
}

/// A key for which there is no memory leaves the line as it is, and rings the bell.
#[test]
fn a_key_is_not_obeyed_by_halves() {
    for (keys, line, failing) in [
        ("tr", "tr", "\t\x1b[24;80R"),
        ("tr\t\x1b[24;80R", "trace_o", "\t\x1b[24;80R"),
        ("tr\x12\x1b[24;80R", "tr", "t"),
        ("tr", "tr", "\x15"),
        ("tr", "tr", "\x1b."),
        ("tr", "tr", "\x12\x1b[24;80R"),
    ] {
        let mut failures = 0;
        loop {
            let mut editor = LineEditor::new("> ");
            let mut feed = |memory: usize, keys: &str| {
                let mut shown = String::with_capacity(1 << 12);
                let mut read = keys.bytes().map(|key| with_memory(memory, || editor.feed(key, &mut Names, &mut shown)));
                let line = read.find_map(|line| line.unwrap());
                (line, shown.contains('\x07'))
            };
            feed(usize::MAX, "trace_or\r");
            feed(usize::MAX, keys);
            let (read, is_refused) = feed(failures, failing);
            assert_eq!(read, None);
            if !is_refused {
                break;
            }
            assert_eq!(feed(usize::MAX, "\x06\n").0, Some(Ok(line.into())), "{failing:?} {failures}");
            failures += 1;
        }
        assert!(failures > 0, "{failing:?}");
    }
}

/// If the line went on, the next input would be read as a part of the row.
#[test]
fn a_line_without_memory_for_its_next_row_is_refused() {
    let mut editor = LineEditor::new("> ");
    let mut shown = String::with_capacity(1 << 10);
    let mut feed = |memory: usize, keys: &str| {
        keys.bytes().find_map(|key| with_memory(memory, || editor.feed(key, &mut Names, &mut shown).unwrap()))
    };
    assert_eq!(feed(usize::MAX, "tr {"), None);
    assert_eq!(feed(0, "\r"), None);
    assert_eq!(feed(usize::MAX, "tr }\r"), Some(Err(LineRefusal::OutOfMemory)));
}

#[test]
fn a_line_that_does_not_fit_is_refused_whole() {
    let mut editor = LineEditor::new("> ");
    let mut shown = String::with_capacity(1 << 10);
    let mut feed = |memory: usize, keys: &str| {
        let mut read =
            keys.bytes().map(|key| with_memory(memory, || editor.feed(key, &mut Names, &mut shown).unwrap()));
        read.find_map(|line| line)
    };
    let refused = feed(0, "list\r").unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "there is not enough memory for the whole line, so it is not run");
    assert_eq!(feed(usize::MAX, "list\r"), Some(Ok("list".into())));
    // If there is no memory to recall a line, the line that is being typed stays.
    assert_eq!(feed(usize::MAX, "p"), None);
    assert_eq!(feed(0, "\x10"), None);
    assert_eq!(feed(usize::MAX, "\r"), Some(Ok("p".into())));
}
