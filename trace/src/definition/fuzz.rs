//! A fuzzer of definitions: it grows odd lines from ordinary ones.
//!
//! A line joins the corpus if the parser answers it in a new way, and further lines are made from the corpus by
//! cutting, inserting and joining. An answer is the shape of the definition, or the problem and the part of the line
//! with its cause. So the corpus grows into every corner of the parser that has an answer of its own.
//! `KPROBES_FUZZ_SECONDS` sets how long the test runs; without it, the number of lines is limited so that the test is
//! short.

use super::*;
use crate::format::{Format, Shape};
use alloc::format;
use alloc::string::ToString;
use kprobes_random::Random;
use kprobes_random::tried::{is_tried, one_character_off, tried};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use std::{env, println};

const SEEDS: [&str; 12] = [
    "p:blk_start blk_update_request req=%x0 error=%x1:u8 bytes=%x2:u32",
    "r10:kpb/read_out vfs_read ret=$retval:s64 n=$arg2 t=+0($arg9):string",
    "r:x f%return $retval:b3@2/16 $comm c=$COMM:string",
    "p <a::T<'b'> as U>::f::<fn(u8) -> [u8; 4]>+0x10 n=%sp:symbol s=%pstate:symstr # é",
    "p:g.e 0xffffffc000001000 +0x8(-u4(@a::b-8)):x16[5] @0x1000:string[64] @f+4",
    "p f \\-7 t=\\\"a:b=c\" \\010 $stack $stack7:char",
    "-:g/x f+4 a=%x0",
    "-:g/",
    "p:1x f",
    "r4097 f",
    "p f common_pid=%x0 a=%x1 a=%x2",
    "p f $arg* @+4 +0(\\\"x\")",
];
const PIECES: [&str; 40] = [
    " ",
    "\t",
    ":",
    "/",
    ".",
    "=",
    "%",
    "$",
    "@",
    "+",
    "-",
    "\\",
    "\"",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    "'",
    "#",
    "0",
    "9",
    "0x",
    "x",
    "u",
    "é",
    "日",
    "arg1",
    "retval",
    "stack",
    "comm",
    "%return",
    "string",
    "symstr",
    "b1@0/8",
    "18446744073709551615",
    "4294967296",
    "+0(",
    "[64]",
];
const LINES: usize = 20_000;
const LONGEST: usize = 400;

/// Makes a line from `line`, with parts of `other`.
fn mutate(random: &mut Random, line: &str, other: &str) -> String {
    let mut characters: Vec<char> = line.chars().collect();
    let other: Vec<char> = other.chars().collect();
    for _ in 0..=random.below(4) {
        let at = random.below(characters.len() + 1);
        let end = at + random.below(characters.len() - at + 1).min(1 + random.below(8));
        match random.below(6) {
            0 => drop(characters.drain(at..end)),
            1 => characters.truncate(at),
            2 => drop(characters.splice(at..end, other[random.below(other.len() + 1)..].iter().copied())),
            3 => {
                let copy: Vec<char> = characters[at..end].to_vec();
                drop(characters.splice(at..at, copy));
            }
            _ => {
                let end = if random.below(2) == 0 { at } else { end };
                drop(characters.splice(at..end, random.of(&PIECES).chars()));
            }
        }
    }
    characters.truncate(LONGEST);
    characters.into_iter().collect()
}

/// Checks what must be true of every line, and returns the parser's answer to this one.
fn outcome(line: &str) -> String {
    match parse(line) {
        Ok(None) => "nothing".to_string(),
        Ok(Some(Command::Remove(removal))) => {
            format!("{:?}", (removal.group.is_some(), removal.event.is_some(), removal.rest.len().min(3)))
        }
        Ok(Some(Command::Define(definition))) => {
            let listed = definition.to_string();
            let Ok(Some(Command::Define(again))) = parse(&listed) else { panic!("{line:?} is listed as {listed:?}") };
            assert_eq!(again.to_string(), listed, "{line:?}");
            assert_eq!((again.kind, &again.arguments), (definition.kind, &definition.arguments), "{line:?}");
            assert_eq!((&again.place.base, again.place.offset), (&definition.place.base, definition.place.offset));
            assert!(definition.arguments.len() <= ARGUMENTS_MAX && definition.event.len() <= NAME_MAX, "{line:?}");
            let shape = if definition.kind == EventKind::Probe { Shape::Probe } else { Shape::Return };
            let fields = definition.arguments.iter().map(|argument| (argument.name.as_str(), argument.kind));
            let mut text = String::new();
            Format::new(shape, fields).unwrap().write(&mut text, &definition.event, 1).unwrap();
            let kinds: Vec<_> =
                definition.arguments.iter().map(|argument| (&argument.expression, argument.kind)).collect();
            let what = kinds.iter().map(|(expression, kind)| {
                let origin = format!("{:?}", expression.origin);
                let origin: String = origin.chars().take_while(char::is_ascii_alphabetic).collect();
                format!("{origin} {} {:?} {}", expression.reads.len(), kind.base, kind.count.min(2))
            });
            format!("{:?} {:?}", definition.kind == EventKind::Probe, what.collect::<Vec<_>>())
        }
        Err(error) => {
            let shown = logged(line).unwrap();
            assert!(error.column <= line.chars().count() + 1, "{line:?}: {error:?}");
            assert!(error.position <= shown.chars().count() + 1, "{line:?}: {error:?}, {shown:?}");
            format!("{:?} {}", error.problem, tokens_before(line, error.column))
        }
    }
}

fn tokens_before(line: &str, column: usize) -> usize {
    token::tokens(line).unwrap().iter().take_while(|token| token.column <= column).count().min(4)
}

#[test]
fn no_line_is_too_odd() {
    let seconds = env::var("KPROBES_FUZZ_SECONDS").ok().map(|seconds| seconds.parse().expect("a number of seconds"));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut random = Random::new(1);
    let mut corpus: Vec<String> = SEEDS.map(ToString::to_string).into();
    let mut seen: HashSet<String> = tried(&corpus).map(|line| outcome(line)).collect();
    let mut count = 0;
    while is_tried() && end.map_or(count < LINES, |end| Instant::now() < end) {
        let line = corpus[random.below(corpus.len())].clone();
        let line = mutate(&mut random, &line, &corpus[(count * 7) % corpus.len()]);
        if seen.insert(outcome(&line)) {
            corpus.push(line);
        }
        count += 1;
    }
    let problems: HashSet<&str> = seen.iter().filter_map(|outcome| outcome.split(' ').next()).collect();
    println!("{count} lines, {} kinds of answers", seen.len());
    assert!(cfg!(miri) || problems.len() > 35, "lines that are not even refused in all ways: {problems:?}");
}

/// Puts 0 to 5 blanks before, between and after the parts of a line.
#[test]
fn blanks_change_nothing() {
    let blank = |count: usize| &"  \t   "[..count];
    for parts in [&["p:g/e", "<a::T as b::U>::f+4", "n=+0(%x0):u8[2]", "t=\\\"é\""][..], &["-:g/e", "f", "a=%x0"]] {
        let original = parse(&parts.join(" ")).unwrap();
        for counts in tried(0..6_usize.pow(3)) {
            let [before, between, behind] = [counts % 6, counts / 6 % 6, counts / 36].map(blank);
            let between = if between.is_empty() { " " } else { between };
            let line = [before, &parts.join(between), behind].concat();
            match (parse(&line).unwrap(), &original) {
                (Some(Command::Define(read)), Some(Command::Define(original))) => {
                    assert_eq!(read.to_string(), original.to_string(), "{line:?}");
                }
                (read, original) => assert_eq!(read, *original, "{line:?}"),
            }
        }
    }
}

/// Inserts every character of Latin-1 at every position of a line, and replaces each character by it. If the result
/// still means the same definition, it differs only in blanks, in zeros and signs before numbers, in the case of `0x`,
/// in the separator of group and event, in the `u` of offsets, and in a comment at the end.
#[test]
fn every_character_in_every_place_is_understood_or_refused() {
    const LINES: [&str; 5] = [
        "p:g/e <a::T as b::U>::f+4 n=+8(-u4(%x0)):u8[2] t=\\\"a:b\" c=$comm",
        "r7:g/e f m=$retval:s64 x=@0x1000:b3@2/16 y=@s-8:symstr",
        "f7:g/e f%return m=$arg2",
        "e:g/e a.b m=+8($c):u8",
        "-:g/e f a=%x0",
    ];
    let read = |line: &str| match parse(line) {
        Ok(Some(Command::Define(definition))) => {
            let Definition { family, kind, group, event, place, arguments, .. } = definition;
            let what = arguments.iter().map(|argument| (&argument.name, &argument.expression, argument.kind));
            Some(format!(
                "{family:?} {kind:?} {group} {event} {:?} {} {:?}",
                place.base,
                place.offset,
                what.collect::<Vec<_>>()
            ))
        }
        Ok(Some(Command::Remove(removal))) => Some(format!("{removal:?}")),
        Ok(None) | Err(_) => None,
    };
    let without = |line: &str| {
        let line = line.split_once('#').map_or(line, |(line, _)| line);
        let line = line.replace('.', "/").replace("0X", "0x").replace("+u", "+").replace("-u", "-");
        line.replace(|c: char| c.is_whitespace() || "+0".contains(c), "")
    };
    for line in tried(LINES) {
        let original = read(line).unwrap();
        for text in tried(one_character_off(line)) {
            let is_same = read(&text).as_ref() == Some(&original);
            assert!(!is_same || without(&text) == without(line), "{text:?} is read as {line:?}");
        }
    }
}
