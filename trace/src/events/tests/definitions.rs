//! Definitions of events: what they probe, why they are refused, how they are removed, and the files that list them.

use kprobes_random::{assert_tried, tried::tried};

use super::*;
use crate::errno::Errno;

/// Returns the problem of a line with a caret below its cause, and the reason.
fn refused(line: &str, caret: &str) -> (Problem, String) {
    let mut events = events();
    define(&mut events, "p:taken f x=%x0").unwrap();
    let error = define(&mut events, line).expect_err(line);
    assert_eq!(error.column, caret.len() - 1, "{line}\n{caret}");
    assert_eq!(events.iter().count(), 1);
    (error.problem, error.reason.unwrap_or_default())
}

#[test]
fn lines_are_places_if_one_instruction_begins_them() {
    let mut events = events();
    define(&mut events, "p:line b.rs:7 %x1").unwrap();
    let event = events.iter().next().unwrap();
    assert_eq!(
        (event.address(), event.definition().to_string()),
        (0x2008, "p:kprobes/line b.rs:7 arg1=%x1".to_string())
    );
    let (problem, reason) = refused("p b.rs:8", "  ^");
    let places = "this line has 2 instructions of its own, such as a::b<c, d>+0xc and f+0x4; give one of them instead";
    assert_eq!((problem, &*reason), (Problem::Ambiguous, places));
    let (problem, reason) = refused("p b.rs:10", "  ^");
    let places = "this line has 2 instructions of its own, such as 0x3004 and 0x4004; give one of them instead";
    assert_eq!((problem, &*reason), (Problem::Ambiguous, places));
    let (problem, reason) = refused("p b.rs:9", "  ^");
    let nearest = "this line of a/b.rs has no instruction of its own; the nearest line is 8";
    assert_eq!((problem, &*reason), (Problem::NoFunction, nearest));
    assert_eq!(refused("p c.rs:9", "  ^").0, Problem::NoFunction);
}

#[test]
fn definitions_are_refused_with_their_reason_and_column() {
    let reason = |line, caret, problem: Problem| {
        let (found, reason) = refused(line, caret);
        assert_eq!(found, problem, "{line}");
        reason
    };
    assert_tried!(reason("r:taken a::b<c, d>", "^", Problem::OtherKind), "");
    assert_tried!(reason("p:taken a::b<c, d> x=%x0:u8", "                   ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:taken a::b<c, d> x=%x0 %x1", "                         ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:taken a::b<c, d> y=%x0", "                   ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:taken f", "          ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:taken f y=%x0 %x1", "                ^", Problem::OtherArguments), "");
    assert_tried!(reason("p:kprobes/taken f x=%x0", "^", Problem::Same), "");
    assert!(reason("p:x g", "    ^", Problem::NoFunction).ends_with("no function has the name g; did you mean `f`?"));
    assert!(!reason("p:x TIME", "    ^", Problem::NoFunction).contains("did you mean"), "a static is no place");
    assert!(reason("p:x f @g", "    ^", Problem::NoSymbol).contains("did you mean `f`?"));
    let unknown = reason("p:x f @TIME", "    ^", Problem::NoSymbol);
    assert_eq!(unknown, "no function or static has the name TIME; did you mean `a::TIMES`?");
    // As in Linux, a place is looked up before the probe is registered; a symbol in an argument, while it is
    // registered.
    assert!(reason("p:x f @", "    ^", Problem::NoSymbol).starts_with("no function or static has the name"));
    assert_eq!([Problem::NoFunction, Problem::NoSymbol].map(Problem::errno), [Errno::Invalid, Errno::NotFound]);
    assert!(reason("p:x f @twice", "    ^", Problem::Ambiguous).contains("3 symbols"), "functions and a static");
    assert!(reason("p:x twice", "    ^", Problem::Ambiguous).contains("2 symbols"));
    assert!(reason("p:x f+0x1004", "    ^", Problem::NoFunction).contains("0x10 bytes"));
    // As in Linux, the start of another function can be given as an offset from this one.
    define(&mut events(), "p:x f+0x1000").unwrap();
    let mut behind = events();
    define(&mut behind, "p:x f+16").unwrap();
    assert_eq!(behind.iter().next().unwrap().address(), 0x1010);
    assert!(reason("p:x f+6", "    ^", Problem::Refused).contains("multiple of 4"));
    assert_tried!(reason("p:x f+12", "    ^", Problem::Refused), "refused");
    // As in Linux, arguments have 3072 bytes at most. The caret points to the inside of the outermost read.
    let large =
        |count| (0..count).fold(String::from("p:x f"), |line, number| format!("{line} a{number}=+0(%x0):u64[64]"));
    define(&mut events(), &large(6)).unwrap();
    let caret = format!("{:>1$}", "^", large(6).len() + " a6=+0(^".len());
    assert_tried!(reason(&large(8), &caret, Problem::TooBig), "");
    assert_eq!(Problem::TooBig.errno(), Errno::TooLong);
}

/// As in Linux, a place that does not exist is found before what else is wrong with a line, but for an fprobe.
#[test]
fn a_missing_place_is_found_first() {
    let mut events = events();
    define(&mut events, "p:taken f x=%x0").unwrap();
    for (line, caret, problem) in tried([
        ("p:x  g %x99", "     ^", Problem::NoFunction),
        ("r:1x twice $nosuch", "     ^", Problem::Ambiguous),
        ("p:taken g", "        ^", Problem::NoFunction),
        ("p:x f %x99", "      ^", Problem::Register),
        ("p:1x f %x99", "  ^", Problem::Event),
        ("r0:x g %x99", " ^", Problem::Maxactive),
        ("f:x g %x0", "      ^", Problem::NoRegisters),
        ("t:x nothing %x0", "    ^", Problem::NoTracepoint),
        ("e:x no.event $a:junk if", "    ^", Problem::AttachedEvent),
        ("e:1x no.event", "  ^", Problem::Event),
        ("e:x kprobes.taken $x:junk", "                     ^", Problem::Type),
    ]) {
        let defined = events.parse(line, &Names).and_then(|command| match command {
            Some(Command::Define(definition)) => events.define(definition, &Names),
            _ => Ok(()),
        });
        let error = defined.expect_err(line);
        assert_eq!((error.problem, error.column), (problem, caret.len() - 1), "{line}");
    }
}

/// Two spellings of one function are the same function.
#[test]
fn one_probe_spelled_in_two_ways_is_one() {
    let mut events = events();
    for line in ["p:one a::b x=%x0", "p:one a::b x=%x1", "p:one a::b+4 x=%x0", "p:two f x=@a::b y=%x0:b1@0/8"] {
        assert_eq!(define(&mut events, line), Ok(()), "{line}");
    }
    for line in
        ["p:one a::b<c, d> x=%x0", "p:one 0x2000 x=%x1", "p:one a::b<c, d>+4 x=%x0", "p:two f x=@a::b y=%x0:b1@0/8"]
    {
        assert_eq!(define(&mut events, line).map_err(|error| error.problem), Err(Problem::Same), "{line}");
    }
    assert_eq!(define(&mut events, "p:two f x=@f y=%x0:b1@0/8"), Ok(()));
    assert_eq!(define(&mut events, "p:two f x=@a::b y=%x0:b1@1/8"), Ok(()), "other bits");
    assert_eq!(events.iter().count(), 6);
}

#[test]
fn functions_of_one_path_are_told_apart_by_numbers() {
    let mut events = events();
    define(&mut events, "p:one twice#1 x=@twice#2 # the first").unwrap();
    define(&mut events, "p:one twice#2+4 x=@twice#2").unwrap();
    assert!(events.iter().map(Event::address).eq([0x3000, 0x4004]));
    let mut listed = String::new();
    events.write_definitions(&mut listed).unwrap();
    assert_eq!(listed, "p:kprobes/one twice#1 x=@twice#2\np:kprobes/one twice#2+4 x=@twice#2\n");
    assert_eq!(remove(&mut events, "-:one twice#2+4 x=@twice#2"), Ok(1));
    assert!(define(&mut events, "p:one twice#3").is_err());
}

#[test]
fn an_event_can_have_several_probes() {
    let mut events = events();
    define(&mut events, "p:one f x=%x0").unwrap();
    define(&mut events, "p:one f x=%x1").unwrap();
    assert_eq!(events.set_enabled(None, Some("one"), true), Ok(()));
    define(&mut events, "p:one a::b<c, d> x=%x2").unwrap();
    assert!(events.iter().all(|event| event.probe().unwrap().is_enabled() && event.number() == 6));
    hit(0x1000, 1);
    hit(0x2000, 2);
    assert_eq!(trace(&events, 9).matches(": one: (").count(), 3);
    assert_eq!(remove(&mut events, "-:one f x=%x1"), Ok(1));
    assert_eq!(remove(&mut events, "-:kprobes/one f x=%x0"), Ok(1));
    assert_eq!(
        remove(&mut events, "-:one a::b<c, d> x=%x2"),
        Err(Problem::Busy),
        "the last one of an event that is enabled"
    );
    assert_eq!(events.set_enabled(Some("kprobes"), None, false), Ok(()));
    assert_eq!(remove(&mut events, "-:one f"), Ok(0));
    assert_eq!(remove(&mut events, "-:one"), Ok(1));
}

#[test]
fn removing_unregisters_and_keeps_what_was_recorded() {
    let mut events = events();
    define(&mut events, "p:one f %x0").unwrap();
    define(&mut events, "p:g/two a::b<c, d> %x0").unwrap();
    define(&mut events, "p:g/three twice_no").unwrap_err();
    hit(0x1000, 1);
    assert_eq!(remove(&mut events, "-:h/one"), Ok(0));
    assert_eq!(remove(&mut events, "-:one"), Ok(1));
    hit(0x1000, 2);
    assert_eq!(trace(&events, 9).lines().count(), 1);
    assert!(trace(&events, 9).contains(": one: (f+0x0/0x10) arg1=0x0"));
    define(&mut events, "p:three f").unwrap();
    assert_eq!(events.iter().last().unwrap().number(), 8, "the number of an event of which there are records");
    (0..if cfg!(miri) { 200 } else { 500 }).for_each(|time| hit(0x2000, time));
    assert_eq!(remove(&mut events, "-:g/"), Ok(1));
    assert_eq!(events.removed.len(), 1, "an event without records is forgotten");
    remove_all(&mut events, None).unwrap();
    REGISTERED.with_borrow(|registered| assert!(registered.is_empty()));
}

#[test]
fn the_files_of_definitions_and_counts() {
    let mut events = events();
    define(&mut events, "r5:one f").unwrap();
    define(&mut events, "p:g/two a::b<c, d> n=%x0:u8").unwrap();
    let mut text = String::new();
    events.write_definitions(&mut text).unwrap();
    assert_eq!(text, "r5:kprobes/one f\np:g/two a::b<c, d> n=%x0:u8\n");
    events.iter().for_each(|event| event.probe().unwrap().hits.set(7));
    text.clear();
    events.write_profile(&mut text).unwrap();
    let line = |name: &str, missed: u64| std::format!("  {name:<44} {:>15} {missed:>15}\n", 7);
    assert_eq!(text, line("one", 0x1000) + &line("two", 0x2000));
}
