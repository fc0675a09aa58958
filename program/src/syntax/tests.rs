//! Parses texts, and compares the trees or errors.

use std::string::ToString;

use core::time::Duration;

use super::{HardwareEvent, Period, Probe, Unit, parse, parse_probes};
use crate::error::Problem;
use crate::tests::{is_tried, tried};

/// Parses `program`, and returns the tree as text.
fn read(program: &str) -> String {
    parse(program).unwrap_or_else(|error| panic!("{}", error.within(program))).to_string()
}

/// Asserts that `program` is refused with `problem`, at the position of the `^` in `marks`.
#[track_caller]
fn refuses(program: &str, marks: &str, problem: Problem) {
    if !is_tried() {
        return;
    }
    let error = parse(program).expect_err(program);
    let shown = error.within(program).to_string();
    assert_eq!((shown.lines().nth(1), error.problem), (Some(marks), problem), "{shown}");
}

#[test]
fn literals_are_written_as_in_c() {
    for (text, shown) in tried([
        ("0", "0"),
        ("0123", "83"),
        ("0_17", "15"),
        ("01777777777777777777777", "18446744073709551615"),
        ("0x1f", "31"),
        ("0X1F", "31"),
        ("0x1ful", "31"),
        ("123UL", "123"),
        ("123llu", "123"),
        ("1e3u", "1000"),
        ("1E3", "1000"),
        ("1us", "1000"),
        ("0ms", "0"),
        (r#""\033[1m\x41\x7f""#, r#""\x1b[1mA\x7f""#),
        (r#""\x4a1\1011\0102""#, r#""J1A1\x082""#),
    ]) {
        assert_eq!(read(&format!("BEGIN {{ print({text}); }}")), format!("BEGIN {{ print({shown}); }}"));
    }
}

#[test]
fn operators_bind_as_in_c() {
    for (text, shown) in tried([
        ("1+2*3", "1 + 2 * 3"),
        ("(1+2)*3", "(1 + 2) * 3"),
        ("1-2-3", "1 - 2 - 3"),
        ("1-(2-3)", "1 - (2 - 3)"),
        ("a&b==c", "a & b == c"),
        ("(a&b)==c", "(a & b) == c"),
        ("a||b&&c|d^e&f==g<h<<i+j*k", "a || b && c | d ^ e & f == g < h << i + j * k"),
        ("!a==b", "!a == b"),
        ("!(a==b)", "!(a == b)"),
        ("a?b:c?d:e", "a ? b : c ? d : e"),
        ("(a?b:c)?d:e", "(a ? b : c) ? d : e"),
        ("*(uint32_t*)(arg0+8)", "*(u32 *)(arg0 + 8)"),
        ("(s8)x+1", "(s8)x + 1"),
        ("- -x", "-(-x)"),
        ("-$x++", "-$x++"),
        ("(a)", "a"),
        ("(a,)", "(a,)"),
        ("( )", "()"),
        ("((),)", "((),)"),
        (r#""a"+"b"+("c"+"d")"#, r#""abcd""#),
        (r#"x+"a"+"b""#, r#"x + "a" + "b""#),
        (r#""a"-"b"*2"#, r#""a" - "b" * 2"#),
        ("(a, b,)", "(a, b)"),
        ("@x[1,comm][2]", "@x[1, comm][2]"),
        ("((u8*)p)[1]", "((u8 *)p)[1]"),
    ]) {
        assert_eq!(read(&format!("BEGIN {{ print({text}); }}")), format!("BEGIN {{ print({shown}); }}"));
    }
}

#[test]
fn statements_and_clauses() {
    for (text, shown) in tried([
        ("BEGIN{}END{}", "BEGIN { } END { }"),
        ("kprobe:f,kprobe:g/x/{exit()}", "kprobe:f, kprobe:g /x/ { exit(); }"),
        ("interval:s:2 { @=1 ; ; $x+=2 }", "interval:s:2 { @ = 1; $x += 2; }"),
        (
            "BEGIN { if(a){b()}else if(c){}else{d()} return }",
            "BEGIN { if (a) { b(); } else if (c) { } else { d(); } return; }",
        ),
        ("BEGIN { unroll(3){@x++} --$y; }", "BEGIN { unroll (3) { @x++; } --$y; }"),
        ("// first\nBEGIN /* a { } */ { exit(); // last\n}", "BEGIN { exit(); }"),
        ("BEGIN /a / 2 > 1/ {}", "BEGIN /a / 2 > 1/ { }"),
        ("BEGIN { print(\"\\n\\t\\\"\\\\ é\"); }", "BEGIN { print(\"\\n\\t\\\"\\\\ é\"); }"),
    ]) {
        assert_eq!(read(text), shown, "{text}");
    }
}

#[test]
fn names_of_probes_are_taken_as_they_stand() {
    let probe = |text: &str| {
        let mut clauses = parse(text).unwrap_or_else(|error| panic!("{}", error.within(text))).clauses;
        assert_eq!(clauses.len(), 1);
        clauses.remove(0).probes.remove(0).node
    };
    let names = |text: &str, named: Probe| {
        if is_tried() {
            assert_eq!(probe(text), named, "{text}");
        }
    };
    let glob = |glob: &str| Probe::Kprobe { glob: glob.into() };
    names("kprobe:blk::*{}", glob("blk::*"));
    names("kprobe:<a::B<u8, [u8; 4]> as c::D>::f /1/ {}", glob("<a::B<u8, [u8; 4]> as c::D>::f"));
    names("kprobe:a::{closure#0}{}", glob("a::{closure#0}"));
    names("kprobe:<fn(u8) -> u8>::f {}", glob("<fn(u8) -> u8>::f"));
    let offset = |offset| Probe::Offset { function: "<dyn A + B>::f".into(), offset };
    names("kprobe:<dyn A + B>::f+0x10 {}", offset(16));
    names("kprobe:<dyn A + B>::f+8{}", offset(8));
    let line = |file: &str, line| Probe::Line { file: file.into(), line };
    names("kprobe:net/src/tcp.rs:12/arg0/{}", line("net/src/tcp.rs", 12));
    names("k:entry.S:7{}", line("entry.S", 7));
    let own_line = |line| Probe::FunctionLine { function: "<a::B as c::D>::f".into(), line };
    names("kprobe:<a::B as c::D>::f:12/arg0/{}", own_line(12));
    names("k:\"<a::B as c::D>::f\":0{}", own_line(0));
    names("kprobe:f:g{}", glob("f:g"));
    names("kprobe:f/arg0/{}", glob("f"));
    let instruction = |offset| Probe::Instruction { function: "a::f".into(), offset };
    names("insn:a::f:4 {}", instruction(Some(4)));
    names("insn:a::f:* {}", instruction(None));
    names("inline:a::*:return {}", Probe::Inline { function: "a::*".into(), exit: true });
    names("return:a::f {}", Probe::Return { glob: "a::f".into() });
    names("kprobe:\"<a::B as c::D>::f\"/1/{}", glob("<a::B as c::D>::f"));
    names("kprobe:\"<dyn A + B>::f\"+8{}", offset(8));
    names("insn:\"a::f\":4{}", instruction(Some(4)));
    names("k:\"entry.S\":7{}", line("entry.S", 7));
    names("inline:\"a::*\":return {}", Probe::Inline { function: "a::*".into(), exit: true });
    names("kprobe:\"a{,; b\"{}", glob("a{,; b"));
    names("kretprobe:* {}", Probe::Kretprobe { glob: "*".into() });
    let watch = |symbol: Option<&str>, offset, length, mode: &str| Probe::Watch {
        symbol: symbol.map(Into::into),
        offset,
        length,
        loads: mode.contains('r'),
        stores: mode.contains('w'),
    };
    names("watchpoint:0x1008:8:w {}", watch(None, 0x1008, 8, "w"));
    names("w:4096:16:rw{}", watch(None, 4096, 16, "rw"));
    names("w:0x1003:5:wr/1/{}", watch(None, 0x1003, 5, "rw"));
    names("w:a::B:1:r {}", watch(Some("a::B"), 0, 1, "r"));
    names("w:<a::C<8> as D>::E+0x10:4:w {}", watch(Some("<a::C<8> as D>::E"), 16, 4, "w"));
    names("w:\"a::B\"+8:4:w {}", watch(Some("a::B"), 8, 4, "w"));
    for (text, marks, problem) in tried([
        ("w:0x1000:8 {}", "  ^^^^^^^^", Problem::WatchForm),
        ("w:a::B:8 {}", "  ^^^^^^", Problem::WatchForm),
        ("w:a::*:8:w {}", "  ^^^^", Problem::WatchForm),
        ("w:a::B:8:q {}", "         ^", Problem::WatchForm),
        ("w:a::B::w {}", "  ^^^^^^^", Problem::WatchForm),
        ("w:a::B+x:8:w {}", "       ^", Problem::WatchForm),
        ("w:a::B:0:w {}", "       ^", Problem::WatchRange),
        ("w:a::B:12:w {}", "       ^^", Problem::WatchRange),
        ("w:0x1006:4:w {}", "  ^^^^^^^^", Problem::WatchRange),
        ("w:0x1008:16:w {}", "  ^^^^^^^^^", Problem::WatchRange),
        ("w:a::B:8:rwx {}", "         ^^^", crate::foreign::EXECUTION),
    ]) {
        let error = parse(text).unwrap_err();
        assert_eq!((error.problem, error.span.mark(text).to_string()), (problem, format!("{text}\n{marks}")), "{text}");
    }
    names("interval:ms:50 {}", Probe::Interval { count: 50, unit: Unit::Milliseconds });
    for (written, count, unit, period) in tried([
        ("interval:s:2", 2, Unit::Seconds, 2_000_000_000),
        ("i:us:250", 250, Unit::Microseconds, 250_000),
        ("interval:hz:99", 99, Unit::Hertz, 10_101_010),
        ("interval:5ms", 5, Unit::Milliseconds, 5_000_000),
        ("interval:1m", 60, Unit::Seconds, 60_000_000_000),
        ("i:1_500_000ns", 1500, Unit::Microseconds, 1_500_000),
    ]) {
        let read = probe(&format!("{written} {{}}"));
        assert_eq!((&read, unit.period(count)), (&Probe::Interval { count, unit }, Some(period)), "{written}");
        assert_eq!(probe(&format!("{read} {{}}")), read);
    }
    let samples = |count, unit| Probe::Profile { count, unit };
    for (written, read, period) in tried([
        ("profile:hz:99", samples(99, Unit::Hertz), 10_101_010),
        ("p:s:1", samples(1, Unit::Seconds), 1_000_000_000),
        ("profile:us:10", samples(10, Unit::Microseconds), 10_000),
        ("profile:100ms", samples(100, Unit::Milliseconds), 100_000_000),
        ("p:10000", samples(10, Unit::Microseconds), 10_000),
        ("software:cpu-clock:1e6", Probe::CpuClock { period: 1_000_000 }, 1_000_000),
        ("s:cpu:10001", Probe::CpuClock { period: 10_001 }, 10_001),
        ("software:cpu-clock", Probe::CpuClock { period: 1_000_000 }, 1_000_000),
        ("software:cpu:", Probe::CpuClock { period: 1_000_000 }, 1_000_000),
    ]) {
        assert_eq!(probe(&format!("{written} {{}}")), read);
        let period = Some(Period::Time(Duration::from_nanos(period)));
        assert_eq!((probe(&format!("{read} {{}}")).sampling_period(), &read), (period, &read), "{written}");
    }
    let events = |event, count| Probe::Hardware { event, count };
    for (written, read) in tried([
        ("hardware:cpu-cycles:10000", events(HardwareEvent::CpuCycles, 10_000)),
        ("h:cycles:2147483647", events(HardwareEvent::CpuCycles, i32::MAX as u32)),
        ("h:instructions", events(HardwareEvent::Instructions, 1_000_000)),
        ("hardware:cache-misses:1e6", events(HardwareEvent::CacheMisses, 1_000_000)),
        ("hardware:branches:", events(HardwareEvent::BranchInstructions, 100_000)),
        ("h:backend-stalls:1_000_000", events(HardwareEvent::BackendStalls, 1_000_000)),
    ]) {
        assert_eq!(probe(&format!("{written} {{}}")), read);
        assert_eq!(probe(&format!("{read} {{}}")), read, "{written}");
    }
    assert_eq!(probe("interval:s:1 {}").sampling_period(), None);
    names("k:f {}", probe("kprobe:f {}"));
    names("kr:f {}", probe("kretprobe:f {}"));
    assert_eq!((probe("begin {}"), probe("end {}")), (Probe::Begin, Probe::End));
    assert_eq!(parse_probes(" kprobe:a::* , BEGIN ").unwrap().len(), 2);
    assert_eq!(parse_probes("kprobe:f {").unwrap_err().problem, Problem::Expected { sign: "," });
}

/// Every kind of probe in the table of the reference parses.
#[test]
fn the_reference_lists_probes_that_there_are() {
    let reference = include_str!("../../../docs/language.md");
    let (_, table) = reference.split_once("|---|---|---|---|---|\n").unwrap();
    let lines: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(lines.len(), 18);
    for probe in tried(lines.iter().flat_map(|line| line.split('|').nth(1).unwrap().split(", "))) {
        let probe =
            probe.trim().trim_matches('`').replace("OFF", "0x10").replace(":LINE", ":7").replace(":N", ":50000");
        let probe = probe.replace("hardware:EVENT", "hardware:cycles");
        let probe = probe.replace("ADDRESS", "0x1000").replace("LENGTH", "8").replace("MODE", "rw");
        assert!(parse_probes(&probe).is_ok(), "{probe}");
    }
}

#[test]
fn types_of_types_are_not_nested_without_end() {
    let nested = |depth: usize| format!("{}u8{}", "typeof(".repeat(depth), ")".repeat(depth));
    let programs = |depth: usize| {
        let nested = nested(depth);
        [
            format!("kprobe:f {{ $x = ({nested})1; }}"),
            format!("kprobe:f {{ let $x: {nested}; }}"),
            format!("kprobe:f {{ $x = sizeof({nested}); }}"),
            format!("macro m(t) {{ 1 }} kprobe:f {{ $x = m({nested}); }}"),
        ]
    };
    assert!(programs(5).iter().all(|program| parse(program).is_ok()));
    for program in tried(programs(400)) {
        assert_eq!(parse(&program).map(drop).unwrap_err().problem, Problem::Deep, "{program}");
    }
}

#[test]
fn probes_are_refused_where_they_are_wrong() {
    refuses("kprob:f {}", "^^^^^", Problem::Meant { meant: "kprobe" });
    refuses("f {}", "^", Problem::ProbeKind);
    refuses("kprobe: {}", "       ^", Problem::ProbeName);
    refuses("kprobe:f, {}", "          ^", Problem::ProbeKind);
    refuses("kprobe:a<b {}", "        ^", Problem::OpenBracket);
    refuses("kprobe:\"f {}", "       ^", Problem::OpenText);
    refuses("kprobe:\"\" {}", "       ^^", Problem::ProbeName);
    refuses("kprobe:\"f*\"+8 {}", "       ^^^^", Problem::GlobOffset);
    refuses("kprobe:net/$1:12 {}", "           ^^", Problem::ProbeParameter);
    refuses("kprobe:net/$1/tcp.rs:$2 {}", "           ^^", Problem::ProbeParameter);
    refuses("kprobe:tcp.rs:$1/arg0/ {}", "              ^^", Problem::ProbeParameter);
    refuses("interval:ms:$1 {}", "            ^^", Problem::ProbeParameter);
    refuses("$1 {}", "^^", Problem::ProbeParameter);
    assert_eq!(read("kprobe:f/$1?2:3/{}"), "kprobe:f /0 ? 2 : 3/ { }");
    refuses("kprobe:f+x {}", "         ^", Problem::Offset);
    refuses("kprobe:f+6 {}", "         ^", Problem::Offset);
    refuses("kretprobe:f+8 {}", "          ^^^", Problem::OneGlob);
    refuses("fentry:f+0x10 {}", "       ^^^^^^", Problem::OneGlob);
    refuses("kprobe:f+8:1 {}", "       ^^^", Problem::OneGlob);
    refuses("kprobe:f*+8 {}", "       ^^", Problem::GlobOffset);
    refuses("kprobe:a/b.rs:x {}", "              ^", Problem::LineNumber);
    refuses("kprobe:b.rs:0 {}", "            ^", Problem::LineNumber);
    refuses("kprobe:f:1x {}", "         ^^", Problem::LineNumber);
    refuses("kprobe:f:4294967296 {}", "         ^^^^^^^^^^", Problem::LineNumber);
    refuses("kprobe:f*:1 {}", "       ^^", Problem::GlobOffset);
    refuses("kprobe::1 {}", "       ^", Problem::ProbeName);
    refuses("insn:f {}", "      ^", Problem::Offset);
    refuses("insn:f:7 {}", "       ^", Problem::Offset);
    refuses("insn:f?:* {}", "     ^^", Problem::GlobOffset);
    refuses("inline:f {}", "       ^", Problem::InlineWhere);
    refuses("inline:f:exit {}", "       ^^^^^^", Problem::InlineWhere);
    refuses("interval:1 {}", "         ^", Problem::Interval);
    refuses("interval:ms:0 {}", "         ^^^^", Problem::Interval);
    refuses("interval:hz:0 {}", "         ^^^^", Problem::Interval);
    refuses("interval:hz:1000001 {}", "         ^^^^^^^^^^", Problem::Interval);
    refuses("interval:999ns {}", "         ^^^^^", Problem::Interval);
    refuses("interval:1500 {}", "         ^^^^", Problem::Interval);
    refuses("interval:s:1s {}", "         ^^^^", Problem::Interval);
    refuses("interval:min:5 {}", "         ^^^^^", Problem::Interval);
    refuses("profile:hz:0 {}", "        ^^^^", Problem::Profile);
    refuses("profile:hz:100001 {}", "        ^^^^^^^^^", Problem::Profile);
    refuses("p:us:9 {}", "  ^^^^", Problem::Profile);
    refuses("profile:99 {}", "        ^^", Problem::Profile);
    refuses("profile:min:5 {}", "        ^^^^^", Problem::Profile);
    refuses("software:cpu-clock:9999 {}", "         ^^^^^^^^^^^^^^", Problem::SoftwareEvent);
    refuses("software:cpu:x {}", "         ^^^^^", Problem::SoftwareEvent);
    refuses("software:clock:10000 {}", "         ^^^^^^^^^^^", Problem::SoftwareEvent);
    refuses("hardware:cycles:9999 {}", "         ^^^^^^^^^^^", Problem::HardwareCount);
    refuses("hardware:cycles:2147483648 {}", "         ^^^^^^^^^^^^^^^^^", Problem::HardwareCount);
    refuses("h:cycle:10000 {}", "  ^^^^^^^^^^^", Problem::HardwareEvent);
    refuses("kprobe:f print(1);", "         ^^^^^", Problem::Block);
    refuses("kprobe:f", "        ^", Problem::Block);
}

#[test]
fn statements_are_refused_where_they_are_wrong() {
    refuses("", "^", Problem::Empty);
    refuses("// nothing", "          ^", Problem::Empty);
    refuses("BEGIN {", "      ^", Problem::OpenBlock);
    refuses("BEGIN { if (1) { }", "      ^", Problem::OpenBlock);
    refuses("BEGIN { exit()", "      ^", Problem::OpenBlock);
    refuses("BEGIN { exit() exit(); }", "               ^^^^", Problem::Expected { sign: ";" });
    refuses("BEGIN /1 { }", "      ^", Problem::OpenPredicate);
    refuses("BEGIN /1) / { }", "        ^", Problem::Expected { sign: "/" });
    refuses("BEGIN { ] }", "        ^", Problem::Statement);
    refuses("BEGIN { 1 + 2; }", "        ^^^^^", Problem::Useless);
    refuses("BEGIN { 1 = 2; }", "        ^", Problem::NoTarget);
    refuses("BEGIN { cpu++; }", "        ^^^", Problem::NoTarget);
    refuses("BEGIN { @x = ; }", "             ^", Problem::Value);
    refuses("BEGIN { @x[] = 1; }", "           ^", Problem::Value);
    refuses("BEGIN { print(1; }", "               ^", Problem::Expected { sign: ")" });
    refuses("BEGIN { if 1 { } }", "           ^", Problem::Expected { sign: "(" });
    refuses("BEGIN { $ = 1; }", "        ^", Problem::VariableName);
    refuses("BEGIN { @x = 12ab; }", "             ^^^^", Problem::Number);
    refuses("BEGIN { @x = 018; }", "             ^^^", Problem::Number);
    refuses("BEGIN { @x = 0x; }", "             ^^", Problem::Number);
    refuses("BEGIN { @x = 0XG; }", "             ^^^", Problem::Number);
    refuses("BEGIN { @x = 1uul; }", "             ^^^^", Problem::Number);
    refuses("BEGIN { @x = 18446744073709551616; }", "             ^^^^^^^^^^^^^^^^^^^^", Problem::Number);
    refuses("BEGIN { print(\"a); }", "              ^", Problem::OpenText);
    for escape in tried(["q", "x", "xg", "0", "000", "x00", "x80", "200", "400", "8"]) {
        refuses(&format!("BEGIN {{ print(\"\\{escape}\"); }}"), "               ^^", Problem::Escape);
    }
    refuses("BEGIN { @x = 1 # 2; }", "               ^", Problem::Character);
    refuses("BEGIN { /* }", "        ^^", Problem::OpenComment);
    let long = format!("BEGIN {{ print(\"{}\"); }}", "x".repeat(256));
    refuses(&long, &format!("              {}", "^".repeat(258)), Problem::LongText { most: 255 });
    let joined = format!("BEGIN {{ print(\"{}\" + \"{}\"); }}", "x".repeat(200), "y".repeat(56));
    refuses(&joined, &format!("              {}", "^".repeat(263)), Problem::LongText { most: 255 });
    let deep = format!("BEGIN {{ print({}1{}); }}", "(".repeat(40), ")".repeat(40));
    assert_eq!(parse(&deep).unwrap_err().problem, Problem::Deep);
    let chain = format!("BEGIN {{ print(1{}); }}", "+1".repeat(40));
    assert_eq!(parse(&chain).unwrap_err().problem, Problem::Deep);
    let blocks = format!("BEGIN {{ {}{} }}", "if (1) { ".repeat(40), "}".repeat(40));
    assert_eq!(parse(&blocks).unwrap_err().problem, Problem::Deep);
    assert_eq!(parse(&"x".repeat(4097)).unwrap_err().problem, Problem::LongProgram { most: 4096 });
}
