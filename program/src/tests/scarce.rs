//! Lets each allocation fail in turn: a program is parsed, checked, loaded and reported on, or there is an
//! out-of-memory error.

use std::string::String;

use fallible::Text;
use fallible::failing::{each_allocation, with_bytes, with_memory};
use kprobes_vm::maps::{Limits, LoadError, Store};

use super::machine::{Bed, SimulatedImage, Task, load, masked};
use super::tried;
use crate::error::{Error, Problem};
use crate::report::{OutputFormat, drain, write_maps};
use crate::shortcut::Shortcut;

const PROGRAMS: [&str; 7] = [
    "kprobe:blk::submit /arg0 > 3 && (arg1 != 7 || !arg2)/ { @[func, arg0] = count(); @last = nsecs; }",
    "kprobe:blk::submit { printf(\"%-9s|%5d|%#x|%c|%%\\n\", str(arg0), arg1, arg2, 65); print(@a); @a = hist(arg1); }",
    "kprobe:blk::* { @sum[comm] = sum(arg1); @stats[arg0, func] = stats(arg1); @low = min(arg1); @high = max(arg1); }",
    "kprobe:blk::submit { $x = arg0; if ($x > 2) { @[\"long text\", $x]++; } else if (arg1) { delete(@[\"t\", 1]); } else { @b = 1; } }",
    "kprobe:blk::submit { unroll (3) { @u[arg0 % 4] += 2; } print(@u, 2, 3); print(@u[1]); @l = lhist(arg1, 0, 100, 10); }",
    "BEGIN { @t = 1; } kprobe:main { if (func == \"blk::*\") { return; } @k[kstack] = avg(arg0); clear(@t); exit(); } END { zero(@k); }",
    "kprobe:main { $p = (u32 *)arg0; @m[*$p] = count(); @i[$p[2] ? 1 : 2] = arg1 << 3; print((str(arg0))); }",
];

fn is_memory(error: &Error) -> bool {
    error.problem == Problem::OutOfMemory
}

#[test]
fn a_program_is_read_and_checked_or_refused() {
    for text in tried(PROGRAMS) {
        let expected = load(text).unwrap_or_else(|error| panic!("{}", error.within(text)));
        let (program, allocations) = each_allocation(|| load(text), is_memory);
        assert_eq!(std::format!("{program}"), std::format!("{expected}"));
        assert!(allocations > 20, "{allocations}");
    }
}

/// An invalid program is never accepted, and never refused for another reason than its own or a lack of memory.
#[test]
fn what_is_wrong_is_said_or_there_is_no_memory() {
    for text in tried([
        "kprobe:blk::submit { @a = 1; @a = \"text\"; }",
        "kprobe:blk::submit { @a[1] = 1; @a[1, 2] = 2; }",
        "kprobe:blk::submit { printf(\"%d %d\", 1); }",
        "kprobe:blk::submit { @a = b; }",
        "kprobe:blk::submit { @a = ((((1 + 2; }",
        "kprobe:blk::submit { print(@nothing); }",
    ]) {
        let expected = load(text).unwrap_err();
        let (error, _) = each_allocation(
            || match load(text) {
                Err(error) if !is_memory(&error) => Ok(error),
                outcome => Err(outcome.map(drop)),
            },
            |outcome| matches!(outcome, Err(error) if is_memory(error)),
        );
        assert_eq!(error, expected, "{text}");
    }
}

#[test]
fn what_a_program_keeps_is_there_or_it_is_not_loaded() {
    for text in tried(PROGRAMS) {
        let program = load(text).unwrap();
        let (_, allocations) = each_allocation(
            || Store::new(&program.code, &Limits::usual(4), 0),
            |error| matches!(error, LoadError::OutOfMemory),
        );
        assert!(allocations > 10, "{allocations}");
    }
}

/// Output that cannot be written for lack of memory is written later, or an error reports its loss.
#[test]
fn a_report_is_whole_or_an_error() {
    let programs = PROGRAMS.iter().flat_map(|&text| [(text, OutputFormat::Text), (text, OutputFormat::Json)]);
    for (text, format) in tried(programs) {
        let bed = || {
            let bed = Bed { format, ..Bed::new(text) };
            for arg in 0..9 {
                let clause = usize::from(text.starts_with("BEGIN"));
                bed.hit(clause, &Task { stack: &[0x1010, 0x1204], ..Task::with(&[arg, 10 * arg, 7]) });
            }
            bed
        };
        let (program, expected) = (bed().program, bed().finish());
        let kept = bed();
        // Drained output cannot be drained again, so it is drained with enough memory. Maps can be written repeatedly.
        let mut put_out = String::new();
        drain(&program, &kept.store, &SimulatedImage, &masked, format, &mut put_out).unwrap();
        let (maps, _) = each_allocation(
            || {
                let mut out = Text::default();
                write_maps(&program, &kept.store, &SimulatedImage, &masked, format, &mut out).map(|()| out.0)
            },
            |std::fmt::Error| true,
        );
        assert_eq!(put_out + &maps, expected, "{text}");
        for allocations in (0..60).step_by(if cfg!(miri) { 13 } else { 1 }) {
            let bed = bed();
            let mut out = Text::default();
            let outcome = with_memory(allocations, || {
                drain(&program, &bed.store, &SimulatedImage, &masked, format, &mut out).map(drop)
            });
            let all = drain(&program, &bed.store, &SimulatedImage, &masked, format, &mut out);
            assert!(all.is_ok() && (outcome.is_err() || expected.starts_with(&out.0)), "{text}: {}", out.0);
        }
    }
}

/// A map that there is no memory to read is named in its place, and the other output is written.
#[test]
fn a_map_that_cannot_be_read_is_named() {
    let sentence = "@x: not printed: there was not enough memory";
    for (value, query) in
        tried([("1", ""), ("count()", "print(@x); clear(@x);"), ("stats(1)", "print(@x[1]); clear(@x);")])
    {
        let program = std::format!("kprobe:f {{ @x[arg0] = {value}; @y = 7; }} kprobe:g {{ {query} }}");
        for (format, expected) in [
            (OutputFormat::Text, std::format!("{sentence}\n@y: 7\n")),
            (
                OutputFormat::Json,
                std::format!(
                    "{{\"type\": \"runtime_error\", \"msg\": \"{sentence}\"}}\n\
                     {{\"type\": \"map\", \"data\": {{\"@y\": 7}}}}\n"
                ),
            ),
        ] {
            let bed = Bed { format, ..Bed::new(&program) };
            for key in 0..24 {
                bed.hit(0, &Task::with(&[key]));
            }
            bed.hit(1, &Task::with(&[]));
            let mut out = Text(String::with_capacity(1 << 10));
            // Enough for everything but the entries of `@x`.
            let outcome = with_bytes(512, || {
                drain(&bed.program, &bed.store, &SimulatedImage, &masked, format, &mut out)?;
                write_maps(&bed.program, &bed.store, &SimulatedImage, &masked, format, &mut out)
            });
            assert_eq!((out.0, outcome), (expected, Ok(())), "{program}");
        }
    }
}

#[test]
fn a_shortcut_is_a_program_or_an_error() {
    for name in ["funccount", "funclatency", "stackcount"] {
        let shortcut = Shortcut::named(name).unwrap();
        let expected = shortcut.program("blk::*").unwrap();
        let (program, allocations) = each_allocation(|| shortcut.program("blk::*"), is_memory);
        assert!(program == expected && allocations > 2);
    }
}
