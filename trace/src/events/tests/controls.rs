//! The settings of events: which are enabled, their filters and triggers, and the restriction of all.

use kprobes_random::{assert_tried, tried::tried};

use super::*;
use crate::errno::Errno;
use crate::trigger::inherited_tasks::InheritedTasks;

/// With the option `stacktrace`, the stack follows what is recorded, and nothing else.
#[test]
fn stacks_can_follow_all_records() {
    let mut controlled = Controlled::new(&["p:one f x=%x20", "p:two a::b x=%x20"]);
    let Controlled { events } = &mut controlled;
    events.set_enabled(None, None, true).unwrap();
    events.set_filter(("kprobes", "one"), "x < 5").unwrap();
    events.set_trigger(("kprobes", "two"), "hist:keys=x").unwrap();
    for (stacks, expected) in [(false, 0), (true, 2), (false, 0)] {
        let Controlled { events } = &mut controlled;
        events.set_stacks(stacks).unwrap();
        [(0x1000, 1), (0x1000, 9), (0x2000, 9)].into_iter().for_each(|(address, time)| hit(address, time));
        let text = controlled.take_trace();
        assert_eq!(text.matches("<stack trace>").count(), expected, "{text}");
        assert_eq!(text.matches(" x=").count(), 2, "{text}");
    }
    let mut allocations = 0;
    let mut set = |allocations| {
        let Controlled { events } = &mut controlled;
        with_memory(allocations, || events.set_stacks(true))
    };
    while set(allocations) == Err(Errno::NoMemory) {
        allocations += 1;
    }
    assert!(allocations > 3, "{allocations}");
}

/// A stack begins with the probed address, followed by its callers. A return is hit in the caller of the function.
#[test]
fn a_stack_has_each_call_once() {
    for (line, expected) in tried([
        ("p:one f", "{ common_stacktrace:\n         f+0x0/0x10\n         0x1e\n"),
        ("p:one f+4", "{ common_stacktrace:\n         f+0x4/0x10\n} hitcount"),
        ("r:one f", "{ common_stacktrace:\n         a::b<c, d>+0x4/0x100\n} hitcount"),
    ]) {
        let Controlled { mut events } = Controlled::new(&[line]);
        let name = ("kprobes", "one");
        for trigger in ["hist:keys=common_stacktrace", "stacktrace"] {
            events.set_trigger(name, trigger).unwrap();
        }
        hit(events.iter().next().unwrap().address(), 1);
        let mut text = String::new();
        let trigger = &events.settings(name).unwrap().triggers()[1];
        trigger.histogram().unwrap().write(&mut text, trigger, &Names).unwrap();
        assert!(text.contains(expected), "{line}: {text}");
        let frames = expected.matches("\n    ").count();
        assert_eq!(trace(&events, 9).matches("\n => ").count(), frames, "{line}: {}", trace(&events, 9));
    }
}

#[test]
fn a_group_counts_events_as_enabled_that_triggers_have_hit() {
    let Controlled { mut events } = Controlled::new(&["p:g/one f", "p:g/two f+4"]);
    let texts = |events: &Events<Counter>| [Some("g"), None, Some("h")].map(|group| events.enabled_text(group));
    assert_tried!(texts(&events), ["0", "0", "?"]);
    events.set_trigger(("g", "one"), "stacktrace").unwrap();
    assert_tried!(texts(&events), ["X", "X", "?"]);
    events.set_trigger(("g", "one"), "enable_event:g:two").unwrap();
    assert_tried!(texts(&events), ["1", "1", "?"], "the target of a trigger is hit, too");
    for trigger in ["!stacktrace", "!enable_event:g:two"] {
        events.set_trigger(("g", "one"), trigger).unwrap();
    }
    assert_tried!(texts(&events), ["0", "0", "?"]);
}

/// The examples of Linux's documentation of `set_event` (events.rst, section 2.1).
#[test]
fn events_are_enabled_by_words() {
    let Controlled { mut events } = Controlled::new(&["p:g/one f", "p:g/two f+4", "p:h/one f+8"]);
    let mut enabled = |text: &str| {
        events.set_enabled(None, None, false).unwrap();
        let outcome = events.set_events(text);
        let mut text = String::new();
        events.write_events(true, &mut text).unwrap();
        (outcome, text.replace('\n', " "))
    };
    for (text, expected) in tried([
        ("", ""),
        (" \n", ""),
        ("g:one\n", "g:one "),
        ("one", "g:one h:one "),
        ("g", "g:one g:two "),
        ("g:", "g:one g:two "),
        ("g:*", "g:one g:two "),
        (":one", "g:one h:one "),
        ("*:one", "g:one h:one "),
        ("*:*", "g:one g:two h:one "),
        ("*:* !g:one", "g:two h:one "),
        ("g !one", "g:two "),
    ]) {
        assert_eq!(enabled(text), (Ok(()), expected.into()), "{text}");
    }
    for (text, expected) in [("x", ""), ("*", ""), ("g:x", ""), ("g:one x h:one", "g:one "), ("!", ""), ("o*", "")] {
        assert_eq!(enabled(text), (Err(Errno::Invalid), expected.into()), "{text}");
    }
    let mut text = String::new();
    events.write_events(false, &mut text).unwrap();
    assert_eq!(text, "g:one\ng:two\nh:one\n");
}

#[test]
fn the_filter_of_a_group_is_that_of_its_events_that_can_have_it() {
    let lines = ["p:g/one f x=%x0", "p:g/two f+4", "p:h/one f+8 x=%x0", "p:g/three f+8"];
    let Controlled { mut events } = Controlled::new(&lines);
    events.set_group_filter("g", "x == 1\n").unwrap();
    let filters = |events: &Events<Counter>| {
        [("g", "one"), ("g", "two"), ("h", "one")].map(|name| {
            let mut text = String::new();
            if let Some(settings) = events.settings(name) {
                settings.write_filter(&mut text).unwrap();
            }
            text
        })
    };
    let refused = "x == 1\n^\nparse_error: Couldn't find or set field in one of a subsystem's events\n\n";
    assert_eq!(filters(&events), ["x == 1\n", refused, ""]);
    let mut log = String::new();
    events.problems().write(&mut log).unwrap();
    let logged = "event filter parse error: error: Couldn't find or set field in one";
    assert_eq!(log.matches(logged).count(), 2, "one for each event that refuses it: {log}");
    events.set_group_filter("g", "0").unwrap();
    assert_eq!(filters(&events), ["none\n", "none\n", ""]);
}

/// The names of events fill 32 columns, and a longer name is followed by a blank, as in the main line of Linux.
#[test]
fn the_filters_and_triggers_of_all_events_are_listed() {
    const LONG: &str = "g:a_name_of_thirty_characters_it";
    let long = LONG.split_once(':').unwrap();
    let Controlled { mut events } =
        Controlled::new(&["p:g/one f x=%x0", &format!("p:{}/{} f+4 x=%x0", long.0, long.1), "p:h/two f+8"]);
    let listed = |events: &Events<Counter>| {
        let (mut filters, mut triggers) = (String::new(), String::new());
        events.write_filters(&mut filters).unwrap();
        events.write_all_triggers(&mut triggers).unwrap();
        (filters, triggers)
    };
    assert_eq!(listed(&events), (String::new(), String::new()));
    events.set_filter(("g", "one"), "x == 1").unwrap();
    assert_eq!(events.set_filter(long, "x == 1)"), Err(Errno::NotAllowed));
    events.set_trigger(("g", "one"), "stacktrace").unwrap();
    events.set_trigger(("g", "one"), "traceoff:3 if x == 2").unwrap();
    events.set_trigger(long, "traceon").unwrap();
    let mut one = String::new();
    events.settings(("g", "one")).unwrap().write_triggers(&mut one).unwrap();
    assert_eq!(one.lines().count(), 2, "{one}");
    let one: String = one.lines().map(|line| format!("g:one                           {line}\n")).collect();
    let (filters, triggers) = listed(&events);
    let refused = "x == 1)\n      ^\nparse_error: Too few '('\n\n";
    assert_eq!(filters, format!("g:one                           x == 1\n{LONG} {refused}"));
    assert_eq!(triggers, format!("{one}{LONG} traceon:unlimited\n"));
    events.set_filter(("g", "one"), "0").unwrap();
    assert_eq!(listed(&events).0, format!("{LONG} {refused}"));
}

#[test]
fn the_error_of_a_filter_is_returned_and_shown_as_in_linux() {
    let Controlled { mut events } = Controlled::new(&["p:g/one f x=%x0"]);
    for (text, errno, problem, shown, logged) in tried([
        ("x == 1)", Errno::NotAllowed, "Too few '('", "      ^", "      ^"),
        ("(x == 1", Errno::NotFound, "Too many '('", "^", "^"),
        ("x == 'a", Errno::NoProcess, "Missing matching quote", "     ^", "     ^"),
        ("x == 1 x", Errno::NotAllowed, "Too many terms in predicate expression", "       ^", "       ^"),
        ("x ==", Errno::Invalid, "Invalid value (did you forget quotes)?", "    ^", "     ^"),
        ("", Errno::Invalid, "Error", "", "^"),
        ("|| x == 1", Errno::NotAllowed, "Error", "", "^"),
        (
            "x == 1 || x == 2 &&",
            Errno::Invalid,
            "Meaningless filter expression",
            "                   ^",
            "                   ^",
        ),
    ]) {
        assert_eq!(events.set_filter(("g", "one"), text), Err(errno), "{text}");
        let (mut file, mut log) = (String::new(), String::new());
        events.settings(("g", "one")).unwrap().write_filter(&mut file).unwrap();
        let expected = match shown {
            "" => format!("{text}\nError: (0)\n\n"),
            caret => format!("{text}\n{caret}\nparse_error: {problem}\n\n"),
        };
        assert_eq!(file, expected);
        events.problems().write(&mut log).unwrap();
        let expected = format!(": error: {problem}\n  Command: {text}\n           {logged}\n");
        assert!(log.ends_with(&expected), "{log}");
    }
}

/// A restriction applies to existing and to later events, with and without a filter.
#[test]
fn only_hits_of_some_tasks_and_cpus_are_recorded() {
    let mut controlled = Controlled::new(&["p:one f"]);
    controlled.events.set_events("one").unwrap();
    // Every hit is by task 3, on CPU 0.
    let both = |case| [false, true].map(|children| (case, children));
    let cases = [
        ("", "", None, 2),
        ("3", "", None, 2),
        ("4 5", "", None, 0),
        ("3 4", "3", None, 0),
        ("", "4", None, 2),
        ("", "", Some(0), 0),
        ("", "", Some(0b10), 0),
        ("3", "4", Some(0b11), 2),
    ];
    for ((only, without, cpus, expected), children) in tried(cases.into_iter().flat_map(both)) {
        let mut restriction = Restriction { cpus, children, ..Restriction::default() };
        if !only.is_empty() {
            restriction.only.get_or_insert_default().add(only).unwrap();
        }
        restriction.without.add(without).unwrap();
        let Controlled { events } = &mut controlled;
        let inherited = InheritedTasks::of(&restriction).unwrap();
        events.restrict(restriction, inherited).unwrap();
        controlled.define("p:two f+4");
        controlled.define("p:one f+8");
        let Controlled { events } = &mut controlled;
        events.set_events("two").unwrap();
        events.clear_trace();
        [0x1000, 0x1004].into_iter().for_each(|address| hit(address, 1));
        assert_eq!(trace(events, 9).lines().count(), expected, "{only}, {without}, {cpus:?}");
        events.clear_trace();
        hit(0x1008, 1);
        assert_eq!(trace(events, 9).lines().count(), expected / 2, "a second probe of an event");
        events.set_events("!two").unwrap();
        remove(events, "-:two").unwrap();
        remove(events, "-:one f+8").unwrap();
    }
}

/// The child of a recorded task is recorded, and the files show it.
#[test]
fn children_follow_into_the_restriction() {
    let Controlled { mut events } = Controlled::new(&["p:one f"]);
    events.set_events("one").unwrap();
    let mut restriction = Restriction { children: true, ..Restriction::default() };
    restriction.only.get_or_insert_default().add("7").unwrap();
    let inherited = InheritedTasks::of(&restriction).unwrap();
    events.restrict(restriction, inherited.clone()).unwrap();
    hit(0x1000, 1);
    assert_eq!(trace(&events, 9).lines().count(), 0);
    inherited.unwrap().starts(7, 3);
    hit(0x1000, 2);
    assert_eq!(trace(&events, 9).lines().count(), 1);
    let mut tasks = String::new();
    events.restriction().unwrap().only.unwrap().write(&mut tasks).unwrap();
    assert_eq!(tasks, "3\n7\n");
}

/// A text for `trace_marker` fires triggers only where it is recorded.
#[test]
fn a_text_on_a_cpu_that_is_left_out_fires_no_trigger() {
    let mut events = events();
    events.add_static(&crate::mark::PRINT).unwrap();
    let print = ("ftrace", "print");
    events.set_trigger(print, "hist:keys=buf").unwrap();
    assert!(events.write_marker("kept"));
    events.restrict(Restriction { cpus: Some(0b10), ..Restriction::default() }, None).unwrap();
    assert!(!events.write_marker("lost"));
    let mut shown = String::new();
    let trigger = &events.settings(print).unwrap().triggers()[0];
    trigger.histogram().unwrap().write(&mut shown, trigger, &Names).unwrap();
    assert!(shown.contains("{ buf: kept ") && shown.contains("\n    Hits: 1\n"), "{shown}");
    let text = trace(&events, 9);
    assert!(text.contains(": tracing_mark_write: kept\n") && text.lines().count() == 1, "{text}");
}

#[test]
fn events_are_enabled_and_disabled_by_name() {
    let mut events = events();
    define(&mut events, "p:one f").unwrap();
    define(&mut events, "p:g/one a::b<c, d>").unwrap();
    assert_eq!(events.set_enabled(None, None, true), Ok(()));
    assert_eq!(remove_all(&mut events, None), Err(Problem::Busy));
    assert_eq!(events.set_enabled(Some("g"), Some("one"), false), Ok(()));
    let enabled: Vec<bool> = events.iter().map(|event| event.probe().unwrap().is_enabled()).collect();
    assert_eq!(enabled, [true, false]);
    assert_eq!(events.set_enabled(None, Some("two"), true), Err(Errno::NotFound));
}
