//! Event probes with a filter in their definition, and those on synthetic events.

use kprobes_random::tried::tried;

use super::*;

/// Makes the event `kprobes:some` with the numbers x and y, the task's name, and what `lines` define.
fn some(lines: &[&str]) -> Controlled {
    let mut controlled = Controlled::new(&["p:some f x=%x20 y=%x3:s8 word=+0(%x19):string pair=+0(%x19):u8[2]"]);
    lines.iter().for_each(|line| controlled.define(line));
    controlled
}

impl Controlled {
    fn set(&mut self, event: &str, enabled: bool) {
        self.events.set_enabled(None, Some(event), enabled).unwrap();
    }

    fn set_trigger(&mut self, (group, event): (&str, &str), text: &str) {
        self.events.set_trigger((group, event), text).unwrap();
    }

    /// Returns what the records of an event have after its name.
    fn recorded(&mut self, event: &str) -> Vec<String> {
        let text = self.take_trace();
        let name = format!(" {event}: ");
        text.lines().filter_map(|line| line.split_once(&name)).map(|(_, values)| values.into()).collect()
    }

    /// Defines `sent`, a synthetic event of each kind of field, which `kprobes:some` records with its own values.
    fn send(&mut self) {
        self.synthetic("sent u64 x; s8 y; char word[16]; char any[]; pid_t pid");
        let variables = "keys=common_pid:a=x,b=y,c=word,d=comm,e=common_pid";
        let action = "onchange($a).trace(sent,$a,$b,$c,$d,$e)";
        self.set_trigger(("kprobes", "some"), &format!("hist:{variables}:{action}"));
    }
}

#[test]
fn a_filter_in_a_definition_tests_fields_that_are_not_recorded() {
    for (filter, times) in tried([
        ("x == 4", &[4][..]),
        ("x > 2 && x < 5 || x == 6", &[3, 4, 6]),
        ("!(x < 6) && y == 3 && word == \"first\" && comm == \"main\" && common_pid == 3", &[6, 7]),
        ("word ~ \"f*t\" && x & 4 && x != 5", &[4, 6, 7]),
        ("word == \"other\"", &[]),
        ("__probe_ip == 0x1000 && x == 4", &[4]),
        ("__probe_ip != 0x1000", &[]),
    ]) {
        let mut controlled = some(&[&format!("e:on kprobes.some x=\\7 time=$x:u8 if {filter}")]);
        let listed = format!("e:eprobes/on kprobes.some x=\\7 time=$x:u8 if {filter}");
        assert_eq!(controlled.events.iter().last().unwrap().definition().to_string(), listed);
        controlled.set("on", true);
        (1..=7).for_each(|time| hit(0x1000, time));
        let expected: Vec<_> = times.iter().map(|time| format!("(kprobes.some) x=0x7 time={time}")).collect();
        assert_eq!(controlled.recorded("on"), expected, "{filter}");
    }
}

#[test]
fn a_filter_in_a_definition_makes_no_trigger_conditional() {
    for condition in ["", " if x > 2"] {
        let mut controlled = some(&[&format!("e:on kprobes.some time=$x:u8{condition}")]);
        controlled.set("on", true);
        controlled.events.rings().set_on(false);
        controlled.set_trigger(("eprobes", "on"), "traceon");
        (3..=4).for_each(|time| hit(0x1000, time));
        // The trigger acts before its own hit is recorded.
        assert_eq!(controlled.recorded("on"), ["(kprobes.some) time=3", "(kprobes.some) time=4"], "{condition}");
    }
}

#[test]
fn a_text_in_a_filter_names_no_field() {
    let controlled = some(&["e:on kprobes.some word=$word if word == \"x\" || word == 'y'"]);
    let event = controlled.events.iter().last().unwrap();
    let tested: Vec<_> = event.format().tested.iter().map(|field| &*field.name).collect();
    assert_eq!(tested, ["word"]);
}

#[test]
fn what_only_the_filter_in_a_definition_tests_is_in_no_file() {
    let controlled = some(&["e:on kprobes.some word=$word if x > 2 && y > 0 && word ~ \"f*\""]);
    let event = controlled.events.iter().last().unwrap();
    let mut text = String::new();
    event.format().write(&mut text, "on", 9).unwrap();
    let fields: Vec<_> = text.lines().filter_map(|line| line.split(';').next()?.split_once("field:")).collect();
    let fields: Vec<_> = fields.iter().map(|(_, field)| *field).skip(Format::COMMON).collect();
    assert_eq!(fields, ["unsigned long __probe_ip", "__data_loc char[] word"]);
    assert!(text.ends_with("print fmt: \"(kprobes.some) word=\\\"%s\\\"\", __get_str(word)\n"), "{text}");
}

#[test]
fn triggers_and_the_file_filter_apply_to_what_the_filter_in_the_definition_accepts() {
    let mut controlled = some(&["e:on kprobes.some time=$x:u8 if x > 2"]);
    controlled.set("on", true);
    controlled.set_trigger(("eprobes", "on"), "hist:keys=time");
    controlled.events.set_filter(("eprobes", "on"), "time != 4").unwrap();
    assert!(controlled.events.set_filter(("eprobes", "on"), "x != 4").is_err());
    controlled.events.set_filter(("eprobes", "on"), "time != 4").unwrap();
    (1..=5).for_each(|time| hit(0x1000, time));
    assert_eq!(controlled.recorded("on"), ["(kprobes.some) time=3", "(kprobes.some) time=5"]);
    let trigger = controlled.events.settings(("eprobes", "on")).unwrap().triggers()[0].clone();
    let mut text = String::new();
    trigger.histogram().unwrap().write(&mut text, &trigger, &Names).unwrap();
    assert!(text.contains("{ time:          3 }") && text.contains("Hits: 3\n"), "{text}");
}

#[test]
fn a_filter_in_a_definition_applies_without_settings() {
    let mut events = events();
    define(&mut events, "p:some f x=%x20").unwrap();
    define(&mut events, "e:on kprobes.some $x if x == 2").unwrap();
    (1..=3).for_each(|time| hit(0x1000, time));
    assert_eq!(trace(&events, 9).matches(" on: ").count(), 1);
}

#[test]
fn a_wrong_filter_in_a_definition_is_refused_with_its_position() {
    let mut controlled = some(&[]);
    for (line, caret, reason) in tried([
        ("e:on kprobes.some $x if nothing == 1", "                                ^", "Field not found"),
        (
            "e:on kprobes.some  $x  if x > 1 &&   nothing == 1",
            "                                             ^",
            "Field not found",
        ),
        ("e:on kprobes.some if word == 7", "                              ^", "Expecting string field"),
        ("e:on kprobes.some if pair == 7", "                          ^", "Field not found"),
    ]) {
        let Ok(Some(Command::Define(definition))) = parse(line) else { panic!("{line}") };
        let error = controlled.events.define(definition, &Names).unwrap_err();
        assert_eq!((error.problem, error.reason.as_deref()), (Problem::Filter, Some(reason)), "{line}");
        assert_eq!(error.column, caret.len() - 1, "{line}\n{caret}");
        assert_eq!(controlled.events.iter().count(), 1);
    }
}

#[test]
fn a_removal_can_name_the_filter() {
    let line = "e:on kprobes.some time=$x:u8 if x > 2";
    let mut controlled = some(&[line]);
    for (removal, count) in tried([
        ("-:on kprobes.some time=$x:u8 if x > 3", 0),
        ("-:on kprobes.some if x > 2", 0),
        ("-:on kprobes.some time=$x:u8 if x > 2 && y", 0),
        ("-:on kprobes.some time=$x:u8 if x > 2", 1),
    ]) {
        assert_eq!(remove(&mut controlled.events, removal), Ok(count), "{removal}");
    }
}

#[test]
fn an_event_on_a_synthetic_one_fetches_from_its_record() {
    let mut controlled = some(&[]);
    controlled.send();
    controlled.define("e:on synthetic/sent x=$x:u8 y=$y:s32 bare=$y $word name=$any:string pid=$pid:u32 comm=$comm");
    let listed =
        "e:eprobes/on synthetic.sent x=$x:u8 y=$y:s32 bare=$y arg4=$word name=$any:string pid=$pid:u32 comm=$comm";
    assert_eq!(controlled.events.iter().last().unwrap().definition().to_string(), listed);
    hit(0x1000, 1);
    assert_eq!(controlled.take_trace(), "", "neither is enabled");
    controlled.set("on", true);
    let enable = |controlled: &Controlled| controlled.events.settings(("synthetic", "sent")).unwrap().enabled_text();
    assert_eq!(enable(&controlled), "0*");
    hit(0x1000, 2);
    hit(0x1000, 3);
    let values = |x| format!("(synthetic.sent) x={x} y=3 bare=0x3 arg4=\"first\" name=\"main\" pid=3 comm=\"main\"");
    assert_eq!(controlled.recorded("on"), [values(2), values(3)]);
    controlled.set("sent", true);
    hit(0x1000, 4);
    let text = controlled.take_trace();
    assert!(text.find(" sent: ").unwrap() < text.find(" on: ").unwrap(), "{text}");
    assert_eq!(enable(&controlled), "1*");
    controlled.set("on", false);
    assert_eq!(enable(&controlled), "1");
    hit(0x1000, 5);
    let text = controlled.take_trace();
    assert!(text.contains(" sent: ") && !text.contains(" on: "), "{text}");
    controlled.set("on", true);
    controlled.set("sent", false);
    hit(0x1000, 6);
    let text = controlled.take_trace();
    assert!(!text.contains(" sent: ") && text.contains(" on: "), "{text}");
}

#[test]
fn a_field_of_a_synthetic_event_leads_to_memory() {
    let mut controlled = some(&["p:place f+4 at=%x19 x=%x20:s64"]);
    controlled.synthetic("sent unsigned long at; long x");
    let trigger = "hist:keys=common_pid:a=at,b=x:onchange($b).trace(sent,$a,$b)";
    controlled.set_trigger(("kprobes", "place"), trigger);
    controlled.define("e:on synthetic/sent file=+0($at):ustring more=+6($at):string x=$x:s64 if x > 1 && x != 3");
    controlled.set("on", true);
    (1..5).for_each(|time| hit(0x1004, time));
    let values = |x| format!("(synthetic.sent) file=\"first\" more=\"second\" x={x}");
    assert_eq!(controlled.recorded("on"), [values(2), values(4)]);
}

/// An event on a synthetic one can record another synthetic event, and be counted.
#[test]
fn an_event_on_a_synthetic_one_has_triggers() {
    let mut controlled = some(&[]);
    controlled.send();
    controlled.synthetic("last u64 x");
    controlled.define("e:on synthetic/sent time=$x:u64 if x > 1");
    controlled.set_trigger(("eprobes", "on"), "hist:keys=common_pid:t=time:onchange($t).trace(last,$t)");
    controlled.set("last", true);
    (1..4).for_each(|time| hit(0x1000, time));
    assert_eq!(controlled.recorded("last"), ["x=2", "x=3"], "though the one between is not enabled");
}

#[test]
fn an_event_that_records_the_one_that_it_is_on_ends_with_it() {
    let mut controlled = some(&[]);
    controlled.synthetic("sent u64 x");
    controlled.set_trigger(("kprobes", "some"), "hist:keys=common_pid:a=x:onchange($a).trace(sent,$a)");
    controlled.define("e:on synthetic/sent time=$x:u64");
    controlled.set_trigger(("eprobes", "on"), "hist:keys=common_pid:t=time:onchange($t).trace(sent,$t)");
    let sent = controlled.events.iter().find(|event| event.is_synthetic()).unwrap().shared_recorder().clone();
    drop(controlled);
    assert_eq!(Arc::strong_count(&sent), 1);
}

#[test]
fn a_synthetic_event_stays_while_another_is_on_it() {
    let mut controlled = some(&[]);
    controlled.synthetic("sent u64 x; unsigned long s[]");
    let error = define(&mut controlled.events, "e:on synthetic.sent $s").unwrap_err();
    assert_eq!((error.problem, error.column), (Problem::Text, 20), "{error}");
    let error = define(&mut controlled.events, "e:on synthetic.sent $x if __probe_ip == 1").unwrap_err();
    assert_eq!((error.problem, error.reason.as_deref()), (Problem::Filter, Some("Field not found")), "{error}");
    let error = define(&mut controlled.events, "e:on synthetic.sent $none").unwrap_err();
    assert_eq!((error.problem, error.column), (Problem::Variable, 20), "{error}");
    controlled.define("e:on synthetic.sent $x");
    assert_eq!(controlled.events.remove_synthetic(Some("sent"), &|_| false), Err(Problem::Busy));
    assert_eq!(controlled.events.remove_synthetic(None, &|_| false), Err(Problem::Busy));
    assert_eq!(remove(&mut controlled.events, "-:on"), Ok(1));
    assert_eq!(controlled.events.remove_synthetic(Some("sent"), &|_| false), Ok(1));
    assert_eq!(define(&mut controlled.events, "e:on synthetic.sent $x").unwrap_err().problem, Problem::AttachedEvent);
}

/// An event that is removed is not recorded any more, although the plan of the synthetic event had it.
#[test]
fn a_synthetic_event_forgets_what_was_on_it() {
    let mut controlled = some(&[]);
    controlled.send();
    controlled.define("e:on synthetic/sent $x");
    controlled.set("on", true);
    hit(0x1000, 1);
    assert_eq!(controlled.take_trace().lines().count(), 1);
    let sent = |controlled: &Controlled| {
        let sent = controlled.events.iter().find(|event| event.is_synthetic()).unwrap();
        (sent.is_armed(), sent.recorder().plan.get().map_or(0, |plan| plan.dependents.len()))
    };
    assert_eq!(sent(&controlled), (true, 1));
    let Controlled { events } = &mut controlled;
    events.reset_settings(|definition| definition.event == "on");
    assert_eq!(remove(events, "-:on"), Ok(1));
    assert_eq!(sent(&controlled), (false, 0));
    hit(0x1000, 2);
    assert_eq!(controlled.take_trace(), "");
}

#[test]
fn an_instance_has_what_is_on_synthetic_events() {
    let mut main = some(&[]);
    main.send();
    main.define("e:on synthetic/sent x=$x:u64 if x > 1");
    let mut instance = Controlled::new(&[]);
    let Controlled { events } = &mut instance;
    events.copy_definitions(&main.events, &Names).unwrap();
    let variables = "keys=common_pid:a=x,b=y,c=word,d=comm,e=common_pid";
    instance.set_trigger(("kprobes", "some"), &format!("hist:{variables}:onchange($a).trace(sent,$a,$b,$c,$d,$e)"));
    instance.set("on", true);
    hit(0x1000, 1);
    hit(0x1000, 2);
    assert_eq!(instance.recorded("on"), ["(synthetic.sent) x=2"]);
    assert_eq!(main.take_trace(), "");
    // The main trace removes it while the instance uses it.
    remove(&mut main.events, "-:on").unwrap();
    let Controlled { events } = &mut instance;
    events.copy_definitions(&main.events, &Names).unwrap();
    hit(0x1000, 3);
    assert_eq!(instance.take_trace(), "");
}
