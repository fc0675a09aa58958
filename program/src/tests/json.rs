//! The JSON output: its exact bytes, that it parses, and that it agrees with the text output.

use std::format;
use std::string::String;
use std::vec::Vec;

use serde_json::Value;

use super::machine::{Bed, Task};
use super::tried;
use crate::report::OutputFormat;

/// Returns the output of `program` for hits of its first clause with these arguments.
fn json(program: &str, hits: &[&[u64]]) -> String {
    let bed = Bed { format: OutputFormat::Json, ..Bed::new(program) };
    for arguments in hits {
        bed.hit(0, &Task { stack: &[0x1010, 0x1204], ..Task::with(arguments) });
    }
    bed.finish()
}

/// Returns the output of a clause with the body `body` for one hit.
fn once(body: &str) -> String {
    json(&format!("kprobe:f {{ {body} }}"), &[&[10, 3, u64::MAX, 0x8000]])
}

fn parsed(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// The expected forms are from bpftrace's own tests, `tests/runtime/outputs/*.json`.
#[test]
fn each_object_is_that_of_bpftrace() {
    for (body, expected) in tried([
        (r#"printf("a %d\n", 1);"#, r#"{"type": "printf", "data": "a 1\n"}"#),
        (r#"printf("\"\\\t%c", 1);"#, r#"{"type": "printf", "data": "\"\\\t\u0001"}"#),
        (r#"time("%S");"#, r#"{"type": "time", "data": "00"}"#),
        (r#"errorf("bad %d", 7);"#, r#"{"type": "errorf", "msg": "bad 7"}"#),
        (r#"warnf("odd");"#, r#"{"type": "warnf", "msg": "odd"}"#),
        ("print(5);", r#"{"type": "value", "data": 5}"#),
        ("print(-5);", r#"{"type": "value", "data": -5}"#),
        ("print(arg2);", r#"{"type": "value", "data": "18446744073709551615"}"#),
        ("print(arg2 << 63);", r#"{"type": "value", "data": 9223372036854775808}"#),
        ("print(9007199254740993);", r#"{"type": "value", "data": "9007199254740993"}"#),
        ("print(9007199254740992);", r#"{"type": "value", "data": 9007199254740992}"#),
        ("print(0);", r#"{"type": "value", "data": 0}"#),
        ("print((u8 *)arg3);", r#"{"type": "value", "data": 32768}"#),
        (r#"print((1, "two", (3, -4)));"#, r#"{"type": "value", "data": [1,"two",[3,-4]]}"#),
        ("print(buf(arg3, 3));", r#"{"type": "value", "data": [97,32,115]}"#),
        (r#"print(strftime("%H:%M\n", 1h));"#, r#"{"type": "value", "data": "01:00\n"}"#),
        ("print(func);", r#"{"type": "value", "data": "blk::submit"}"#),
        ("print(ksym(0x9999));", r#"{"type": "value", "data": "0x9999"}"#),
        ("print(kstack);", r#"{"type": "value", "data": "\n    blk::submit+16\n    net::send+4\n"}"#),
        ("@p[1] = probe; print(@p[2]); clear(@p);", r#"{"type": "map", "data": {"@p": {"2": ""}}}"#),
        ("@x = 5;", r#"{"type": "map", "data": {"@x": 5}}"#),
        ("@[2] = 5;", r#"{"type": "map", "data": {"@": {"2": 5}}}"#),
        (r#"@["a b", 2] = "c\n";"#, r#"{"type": "map", "data": {"@": {"a b,2": "c\n"}}}"#),
        (r#"@[(1, (2, "x y"))] = (3, 4);"#, r#"{"type": "map", "data": {"@": {"1,(2,x y)": [3,4]}}}"#),
        ("@[(u8[2])(u16)513] = 1;", r#"{"type": "map", "data": {"@": {"[1,2]": 1}}}"#),
        (r#"@[(a=1, b="x y")] = 2;"#, r#"{"type": "map", "data": {"@": {"{.a=1,.b=x y}": 2}}}"#),
        ("@[1] = 1; @[2] = 2;", r#"{"type": "map", "data": {"@": {"1": 1, "2": 2}}}"#),
        ("@ = count();", r#"{"type": "map", "data": {"@": 1}}"#),
        ("@ = sum((s64)arg2);", r#"{"type": "map", "data": {"@": -1}}"#),
        ("@[func] = max(arg0);", r#"{"type": "map", "data": {"@": {"blk::submit": 10}}}"#),
        ("@ = avg(arg0);", r#"{"type": "stats", "data": {"@": 10}}"#),
        (r#"@["c"] = avg(30); print(@, 2, 10); clear(@);"#, r#"{"type": "stats", "data": {"@": {"c": 3}}}"#),
        ("@ = stats(arg0);", r#"{"type": "stats", "data": {"@": {"count": 1, "average": 10, "total": 10}}}"#),
        (
            "@[cpu] = stats((s64)arg2);",
            r#"{"type": "stats", "data": {"@": {"0": {"count": 1, "average": -1, "total": -1}}}}"#,
        ),
        ("@ = hist(arg0);", r#"{"type": "hist", "data": {"@": [{"min": 8, "max": 15, "count": 1}]}}"#),
        (
            "@[1, 2] = hist((s64)arg2); @[1, 2] = hist(0); @[1, 2] = hist(2);",
            r#"{"type": "hist", "data": {"@": {"1,2": [{"max": -1, "count": 1},{"min": 0, "max": 0, "count": 1},{"min": 1, "max": 1, "count": 0},{"min": 2, "max": 3, "count": 1}]}}}"#,
        ),
        ("@ = hist(arg0, 2);", r#"{"type": "hist", "data": {"@": [{"min": 10, "max": 11, "count": 1}]}}"#),
        (
            "@ = hist((s64)arg2, 1); @ = hist(3, 1); @ = hist(5, 1);",
            r#"{"type": "hist", "data": {"@": [{"max": -1, "count": 1},{"min": 0, "max": 0, "count": 0},{"min": 1, "max": 1, "count": 0},{"min": 2, "max": 2, "count": 0},{"min": 3, "max": 3, "count": 1},{"min": 4, "max": 5, "count": 1}]}}"#,
        ),
        ("@ = lhist(arg0, 0, 20, 5);", r#"{"type": "hist", "data": {"@": [{"min": 10, "max": 14, "count": 1}]}}"#),
        (
            "@ = lhist((s64)arg2, 0, 10, 5); @ = lhist(arg0, 0, 10, 5);",
            r#"{"type": "hist", "data": {"@": [{"max": -1, "count": 1},{"min": 0, "max": 4, "count": 0},{"min": 5, "max": 9, "count": 0},{"min": 10, "count": 1}]}}"#,
        ),
        (
            "@ = tseries(arg0, 1us, 5);",
            r#"{"type": "tseries", "data": {"@": [{"interval_start": "1970-01-01 00:00:00.000005000", "value": 10}]}}"#,
        ),
        ("@x[1] = 2; print(@x[1]); delete(@x[1]);", r#"{"type": "map", "data": {"@x": {"1": 2}}}"#),
        (
            "print(@x, 1, 2); @x[1] = 3;",
            "{\"type\": \"map\", \"data\": {\"@x\": {\"1\": 1}}}\n{\"type\": \"map\", \"data\": {\"@x\": {\"1\": 3}}}",
        ),
        ("@x[1] = 3; clear(@x);", ""),
        (
            "print(*(u8 *)0);",
            "{\"type\": \"value\", \"data\": 0}\n{\"type\": \"runtime_error\", \"msg\": \"1 read of memory failed, and gave 0\"}",
        ),
    ]) {
        let end = if expected.is_empty() { "" } else { "\n" };
        let put_out = once(body);
        assert_eq!(put_out, format!("{expected}{end}"), "{body}");
        parsed(&put_out);
    }
    let mut attached = String::new();
    OutputFormat::Json.write_attached(3, &mut attached).unwrap();
    assert_eq!(attached, "{\"type\": \"attached_probes\", \"count\": 3, \"data\": {\"probes\": 3}}\n");
}

#[test]
fn what_does_not_fit_is_an_object_of_its_own() {
    let count = if cfg!(miri) { 200 } else { 2_000 };
    let hits: Vec<&[u64]> = core::iter::repeat_n(&[0_u64][..], count).collect();
    let lost = json(r#"kprobe:f { printf("%64s", "x"); }"#, &hits);
    let last = parsed(&lost).pop().unwrap();
    let lines = lost.lines().count() as u64 - 1;
    assert_eq!((&last["type"], last["count"].as_u64()), (&"lost_events".into(), Some(count as u64 - lines)));
    assert_eq!(last["data"]["events"], last["count"]);
}

/// Text and JSON have the same entries, in the same order, with the same numbers.
#[test]
fn it_says_what_the_text_says() {
    let program = "kprobe:f { @n[arg0, func] = count(); @s[arg0] = sum(arg1); }";
    let hits: Vec<[u64; 2]> = (0..if cfg!(miri) { 6 } else { 500_u64 }).map(|hit| [hit * hit % 37, hit % 11]).collect();
    let hits: Vec<&[u64]> = hits.iter().map(|arguments| &arguments[..]).collect();
    let objects = parsed(&json(program, &hits));
    let bed = Bed::new(program);
    for arguments in &hits {
        bed.hit(0, &Task::with(arguments));
    }
    let text = bed.finish();
    let mut lines = text.lines();
    for object in &objects {
        for (name, entries) in object["data"].as_object().unwrap() {
            // serde_json sorts maps by key, so entries are compared one by one.
            for (key, value) in entries.as_object().unwrap() {
                let line = format!("{name}[{}]: {value}", key.replace(',', ", "));
                assert!(text.lines().any(|other| other == line), "{line}\n{text}");
                lines.next().unwrap();
            }
        }
    }
    assert_eq!((lines.next(), objects.len()), (None, 2));
}
