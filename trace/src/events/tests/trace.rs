//! The files that print records, and the options for it.

use super::*;
use crate::options::TraceClock;
use core::fmt::{self, Write};

#[test]
fn hits_are_in_the_trace() {
    let mut events = events();
    define(&mut events, "p:here a::b<c, d>+8 n=%x1:u8").unwrap();
    assert!(events.iter().all(|event| !event.probe().unwrap().is_enabled() && event.address() == 0x2008));
    hit(0x2008, 5_000_001);
    assert_eq!(
        trace(&events, usize::MAX),
        "            main-3       [000] .....     5.000001: here: (a::b<c, d>+0x8/0x100) n=1\n"
    );
    let mut text = String::new();
    let clock = Clock { frequency: 1_000_000, origin: 0 };
    assert_eq!(events.write_pipe(&mut text, None, &Names, clock), Ok(1));
    assert_eq!(text, "            main-3       [000] .....     5.000001: here: (a::b<c, d>+0x8/0x100) n=1\n");
    assert_eq!((events.write_pipe(&mut text, None, &Names, clock), trace(&events, 9)), (Ok(0), String::new()));
}

#[test]
fn the_newest_records_are_shown() {
    let mut events = events();
    define(&mut events, "p:here f %x0").unwrap();
    (0..5).for_each(|time| hit(0x1000, time));
    assert_eq!(trace(&events, 2).lines().count(), 2);
    assert!(trace(&events, 1).contains(" 0.000004: here: "));
    events.clear_trace();
    assert_eq!(trace(&events, 2), "");
}

/// The numbers of records continue across records that were read or are missing.
#[test]
fn the_clock_can_count_records() {
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    events.set_clock(TraceClock::Counter);
    let times = |text: String| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().nth(3).unwrap().into()).collect()
    };
    (1..=2).for_each(|time| hit(0x1000, time));
    assert_eq!(times(trace(&events, 9)), ["0:", "1:"]);
    let clock = Clock { frequency: 1, origin: 0 };
    let mut text = String::new();
    events.write_pipe(&mut text, None, &Names, clock).unwrap();
    hit(0x1000, 3);
    assert_eq!((times(text), times(trace(&events, 9))), (["0:".into(), "1:".into()].into(), ["2:".into()].into()));
    events.clear_trace();
    hit(0x1000, 4);
    assert_eq!(times(trace(&events, 9)), ["3:"]);
    assert!(trace(&events, 9).contains(" .....            3: one: "), "{}", trace(&events, 9));
    let mut stats = String::new();
    events.write_stats(&mut stats, 0, clock, 9).unwrap();
    assert!(stats.contains("oldest event ts: 3\nnow ts: 4\n"), "{stats}");
    let hits = if cfg!(miri) { 200 } else { 5000 };
    (0..hits).for_each(|time| hit(0x1000, 5 + time));
    let all = times(trace(&events, usize::MAX));
    let last = format!("{}:", 3 + hits);
    assert_eq!((all.len() < hits as usize, all.last()), (true, Some(&last)), "some were overwritten");
}

/// The heading of `trace`, as Linux prints it.
#[test]
fn the_heading_is_that_of_the_tracer_and_its_options() {
    use crate::tracer::Tracer;
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    (1..=3).for_each(|time| hit(0x1000, time));
    let heading = |events: &Events<Counter>| {
        let mut text = String::new();
        events.write_trace(&mut text, 0, 1, &Names, Clock { frequency: 1_000_000, origin: 0 }).unwrap();
        text
    };
    let first = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 3/3   #P:1\n#\n";
    let shown = heading(&events);
    assert!(
        shown.starts_with(&format!("{first}#                                _-----=> irqs-off/BH-disabled\n")),
        "{shown}"
    );
    assert!(shown.ends_with("#              | |         |   |||||     |         |\n"), "{shown}");
    events.set_option(Flag::IrqInfo, false);
    let few =
        "#           TASK-PID     CPU#     TIMESTAMP  FUNCTION\n#              | |         |         |         |\n";
    assert_eq!(heading(&events).strip_prefix(first), Some(few));
    events.set_tracer(Tracer::FunctionGraph);
    let first = "# tracer: function_graph\n#\n";
    let usual = "# CPU  DURATION                  FUNCTION CALLS\n# |     |   |                     |   |   |   |\n";
    assert_eq!(heading(&events).strip_prefix(first), Some(usual));
    events.set_option(Flag::GraphTime, true);
    events.set_option(Flag::GraphTask, true);
    let all = "\
#     TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS
#      |          |     |    |           |   |                     |   |   |   |
";
    assert_eq!(heading(&events).strip_prefix(first), Some(all));
    for tracer in [Tracer::FunctionGraph, Tracer::Nop] {
        events.set_tracer(tracer);
        events.set_option(Flag::ContextInfo, false);
        assert_eq!(heading(&events), format!("# tracer: {}\n#\n", tracer.name()));
        events.set_option(Flag::ContextInfo, true);
    }
}

#[test]
fn options_change_what_is_printed() {
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    hit(0x1000, 1);
    let mut with = |text: &str| {
        let (flag, on) = Flag::parse(text).unwrap();
        events.set_option(flag, on);
        let mut text = String::new();
        events.write_trace(&mut text, 9, 2, &Names, Clock { frequency: 1_000_000, origin: 0 }).unwrap();
        text
    };
    assert!(with("sym-addr").ends_with("0.000001: one: (f+0x0/0x10 <0000000000001000>)\n"));
    assert!(with("noirq-info").ends_with(
        "#\n#           TASK-PID     CPU#     TIMESTAMP  FUNCTION\n\
         #              | |         |         |         |\n\
         \x20           main-3       [000]      0.000001: one: (f+0x0/0x10 <0000000000001000>)\n"
    ));
    assert_eq!(with("nocontext-info"), "# tracer: nop\n#\none: (f+0x0/0x10 <0000000000001000>)\n");
    assert!(!with("nooverwrite").is_empty() && !events.options().is(Flag::Overwrite) && !events.rings().overwrites());
}

/// If the output refuses a record, the next write starts with that record.
#[test]
fn what_was_taken_for_the_pipe_and_not_written_is_not_lost() {
    struct Narrow(String, usize);
    impl Write for Narrow {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text;
            if self.0.len() > self.1 { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let clock = Clock { frequency: 1_000_000, origin: 0 };
    let mut events = events();
    define(&mut events, "p:one f x=%x20").unwrap();
    (0..5).for_each(|time| hit(0x1000, time));
    let line = trace(&events, 1).len();
    let mut narrow = Narrow(String::new(), 2 * line + line / 2);
    events.write_pipe(&mut narrow, None, &Names, clock).unwrap_err();
    assert_eq!(trace(&events, 9), "");
    assert_eq!(remove(&mut events, "-:one"), Ok(1));
    let mut rest = Narrow(String::new(), usize::MAX);
    assert_eq!(events.write_pipe(&mut rest, None, &Names, clock), Ok(3));
    assert!(rest.0.starts_with(&narrow.0[2 * line..]), "{rest:?}", rest = rest.0);
    let times: Vec<_> = rest.0.lines().map(|text| text.rsplit_once("x=0x").expect(text).1).collect();
    assert_eq!(times, ["2", "3", "4"]);
    assert_eq!(events.write_pipe(&mut rest, None, &Names, clock), Ok(0));
}
