//! Probes on functions (`f`), on static events (`t`), and on other events (`e`).

use core::sync::atomic::AtomicPtr;

use aarch64_kprobes::event::Text;

use kprobes_random::tried::tried;

use super::*;
use crate::trigger::inherited_tasks::InheritedTasks;

aarch64_kprobes::event! {
    struct Noted<'a> = test:noted {
        mark: u8,
        delta: i16,
        place: *const u64,
        text: Text<'a>,
        tag: [u8; 3],
    }
}

aarch64_kprobes::event! {
    struct Other = test:other {
        mark: u8,
    }
}

/// Returns events of which one is static and three are probes.
fn others() -> Events<Counter> {
    let mut events = events();
    events.add_static(Noted::EVENT).unwrap();
    define(&mut events, "p:some f byte=%x3:u8 word=%x19 low=+0(%x21):s32 pair=+0(%x19):u8[2] bits=%x30:b2@1/32")
        .unwrap();
    define(&mut events, "r:back f first=$arg1 result=$retval").unwrap();
    define(&mut events, "p:several f x=%x0").unwrap();
    define(&mut events, "p:several a::b x=%x0").unwrap();
    events
}

/// Returns the problem of a line with a caret below its cause.
fn refused(line: &str, caret: &str) -> Problem {
    let mut events = others();
    let before = events.iter().count();
    let error = define(&mut events, line).expect_err(line);
    assert_eq!(error.column, caret.len() - 1, "{line}\n{caret}\n{error:?}");
    assert_eq!(events.iter().count(), before);
    error.problem
}

/// Returns what the newest event has in the trace when `Noted` happens.
fn noted(line: &str) -> String {
    let mut events = others();
    define(&mut events, line).unwrap();
    let event = events.iter().last().unwrap();
    assert_eq!(event.address(), Noted::EVENT.address() as u64);
    happen(event, &Noted { mark: 200, delta: -2, place: &TIMES[5], text: "a note".into(), tag: *b"xyz" });
    let text = trace(&events, 1);
    text.split_once("0.000002: ").expect(&text).1.trim_end().into()
}

#[test]
fn a_function_probe_is_at_the_entry_or_the_return() {
    let mut events = events();
    for (line, listed, address) in [
        ("f f a=$arg1", "f:fprobes/f__entry f a=$arg1", 0x1000),
        ("f:x a::b%return", "f:fprobes/x a::b%return", 0x2000),
        ("f9 f $retval", "f9:fprobes/f__exit f%return arg1=$retval", 0x1000),
    ] {
        define(&mut events, line).unwrap();
        let event = events.iter().last().unwrap();
        assert_eq!((event.definition().to_string().as_str(), event.address()), (listed, address));
    }
    let mut text = String::new();
    events.write_definitions(&mut text).unwrap();
    assert_eq!(text, "", "none is a kprobe");
    // The file `kprobe_events` removes kprobes alone.
    remove_all(&mut events, Some(Family::Kprobe)).unwrap();
    assert_eq!(events.iter().count(), 3);
    remove_all(&mut events, None).unwrap();
    assert_eq!(events.iter().count(), 0);
}

#[test]
fn a_kprobe_and_a_function_probe_share_no_name() {
    let mut events = events();
    define(&mut events, "f:g/x f").unwrap();
    assert_eq!(define(&mut events, "p:g/x a::b").unwrap_err().problem, Problem::Exists);
    assert_eq!(define(&mut events, "f:g/x a::b%return").unwrap_err().problem, Problem::OtherKind);
    assert_eq!(define(&mut events, "f:g/x f").unwrap_err().problem, Problem::Same);
    define(&mut events, "f:g/x a::b").unwrap();
    events.add_static(Noted::EVENT).unwrap();
    assert_eq!(define(&mut events, "t:g/x noted").unwrap_err().problem, Problem::OtherKind);
    assert_eq!(define(&mut events, "e:g/x test.noted").unwrap_err().problem, Problem::Exists);
    for line in
        tried(["p:test/noted f", "r:test/noted f", "f:test/noted f", "t:test/noted noted", "e:test/noted test.noted"])
    {
        assert_eq!(define(&mut events, line).unwrap_err().problem, Problem::Exists, "{line}");
    }
}

#[test]
fn fields_of_a_static_event_are_arguments() {
    let place = &raw const TIMES[5] as u64;
    let all = std::format!("mark=200 delta=-2 place={place:#x} text=\"a note\" tag=\"xyz\"");
    for (line, end) in tried([
        ("t noted $arg*", &*all),
        ("t noted $arg1 $arg2 b=$arg2:s64", " arg1=0xc8 arg2=0xfffffffffffffffe b=-2"),
        ("t noted $arg4 x=$arg4:string y=$arg5:string", " arg1=\"a note\" x=\"a note\" y=\"xyz\""),
        ("t noted mark:x8 +0(place):u64 back=-8($arg3):u8", " mark=0xc8 arg2=5 back=4"),
    ]) {
        let text = noted(line);
        assert!(text.ends_with(end), "{line}: {text}");
    }
    for (line, caret, problem) in tried([
        ("t nothing", "  ^", Problem::NoTracepoint),
        ("t some", "  ^", Problem::NoTracepoint),
        ("t noted $arg6", "        ^", Problem::NoArgumentOfName),
        ("t noted $arg* x=mark:u8 y=mark:string", "                        ^", Problem::Text),
        ("t noted x=other", "          ^", Problem::NoArgumentOfName),
        ("t noted x=+0(other)", "             ^", Problem::NoArgumentOfName),
        ("t noted place->x", "        ^", Problem::NoStruct),
    ]) {
        assert_eq!(refused(line, caret), problem, "{line}");
    }
}

/// Arguments after `$arg*` without a name of their own are numbered, and the fields count, as in a probe on a function.
#[test]
fn the_fields_that_stand_for_all_count_as_arguments() {
    for (line, listed) in tried([
        ("t:n noted $arg* $arg1", "* arg6=$arg1"),
        ("t:n noted $arg1 $arg*", "arg1=$arg1 *"),
        ("t:n noted x=mark $arg* $arg1 y=$arg2 $comm", "x=mark * arg7=$arg1 y=$arg2 arg9=$comm"),
    ]) {
        let mut events = others();
        define(&mut events, line).unwrap();
        let all = "mark=mark delta=delta place=place text=text tag=tag";
        let listed = std::format!("t:tracepoints/n noted {}", listed.replace('*', all));
        assert_eq!(events.iter().last().unwrap().definition().to_string(), listed, "{line}");
    }
}

#[test]
fn fields_of_a_static_event_are_variables() {
    assert_eq!(
        noted("e:n test.noted $mark d=$delta:s32 t=$text g=$tag:string $comm p=+0($place):u8"),
        "n: (test.noted) arg1=0xc8 d=-2 t=\"a note\" g=\"xyz\" arg5=\"main\" p=5"
    );
    // As in Linux, a text is at the address of its field, and `$comm` needs no type of its own.
    assert_eq!(
        noted("e:n test.noted t=+0($text):string g=+0($tag):ustring c=$comm:ustring"),
        "n: (test.noted) t=\"a note\" g=\"xyz\" c=\"main\""
    );
}

#[test]
fn fields_of_a_probe_are_variables() {
    let mut events = others();
    let line =
        "e:on kprobes.some $byte wide=$byte:s16 +6($word):string low=$low:s64 b=$bits:b2@1/32 t=$pair:u8[2] c=$COMM";
    define(&mut events, line).unwrap();
    let event = events.iter().last().unwrap();
    let listed = "e:eprobes/on kprobes.some arg1=$byte wide=$byte:s16 arg3=+6($word):string low=$low:s64 b=$bits:b2@1/32 t=$pair:u8[2] c=$COMM";
    assert_eq!((event.definition().to_string().as_str(), event.address()), (listed, 0x1000));
    events.clear_trace();
    hit(0x1000, 1);
    let text = trace(&events, usize::MAX);
    let line = text.lines().find(|line| line.contains(" on: ")).unwrap();
    let expected = "on: (kprobes.some) arg1=0x3 wide=3 arg3=\"second\" low=1 b=3 t={102,105} c=\"main\"";
    assert!(line.ends_with(expected), "{line}");
    let mut text = String::new();
    let event = events.iter().last().unwrap();
    event.format().write(&mut text, "on", 1).unwrap();
    let print = "print fmt: \"(kprobes.some) arg1=0x%Lx wide=%d";
    assert!(text.contains(print), "{text}");
}

#[test]
fn an_event_on_a_return_is_hit_at_the_return() {
    let mut events = others();
    define(&mut events, "e:on kprobes.back $first r=$result:u8").unwrap();
    assert!(matches!(events.iter().last().unwrap().definition().kind, EventKind::Return { .. }));
    events.clear_trace();
    hit(0x1000, 1);
    let text = trace(&events, usize::MAX);
    let line = text.lines().find(|line| line.contains(" on: ")).unwrap();
    assert!(line.ends_with("on: (kprobes.back) arg1=0x5 r=2"), "{line}");
    assert!(text.lines().any(|line| line.ends_with("first=0x5 result=2")), "{text}");
}

#[test]
fn a_field_that_is_an_address_leads_to_a_text_or_an_array() {
    let place = &raw const TEXTS as *const u64;
    for line in tried([
        "e:n test.noted a=$place:string b=$place:u8[2] c=+0($place):string d=$place:symstr",
        "t:n noted a=place:string b=$arg3:u8[2] c=+0(place):string d=$arg3:symstr",
    ]) {
        let mut events = others();
        define(&mut events, line).unwrap();
        let event = events.iter().last().unwrap();
        happen(event, &Noted { mark: 0, delta: 0, place, text: "".into(), tag: *b"xyz" });
        let text = trace(&events, 1);
        let expected = std::format!("a=\"first\" b={{102,105}} c=\"first\" d=\"{place:p}\"\n");
        assert!(text.ends_with(&expected), "{line}: {text}");
    }
    // The address is in a register, in memory, and a constant.
    let slot = &raw const SLOT as u64;
    let line = std::format!("p:all f register=%x19 memory=@{slot:#x} constant=\\{:#x}", TEXTS.as_ptr() as u64);
    for field in ["register", "memory", "constant"] {
        let mut events = events();
        define(&mut events, &line).unwrap();
        define(&mut events, &std::format!("e:on kprobes.all a=${field}:string b=${field}:u8[2] c=+6(${field}):string"))
            .unwrap();
        events.clear_trace();
        hit(0x1000, 1);
        let text = trace(&events, usize::MAX);
        let line = text.lines().find(|line| line.contains(" on: ")).unwrap();
        assert!(line.ends_with("a=\"first\" b={102,105} c=\"second\""), "{field}: {line}");
    }
}

/// The address of [`TEXTS`], in memory.
static SLOT: AtomicPtr<[u8; 24]> = AtomicPtr::new((&raw const TEXTS).cast_mut());

/// A field holds as many bits as its type has, also of a value that is a part of a register.
#[test]
fn a_part_of_a_register_is_taken_from_its_field() {
    let mut events = events();
    define(&mut events, "p:parts f low=level.1:x8 own=level.1 high=level.1:x32").unwrap();
    define(&mut events, "e:on kprobes.parts a=$low:u32 b=$low:x8 c=$own:s64 d=$own:u32 e=$high:x32 f=$high:x8")
        .unwrap();
    events.clear_trace();
    hit(0x1000, 1);
    let text = trace(&events, usize::MAX);
    let line = text.lines().find(|line| line.contains(" on: ")).unwrap();
    assert!(line.ends_with("a=254 b=0xfe c=-2 d=4294967294 e=0xfffffffe f=0xfe"), "{line}");
    let error = define(&mut events, "e:wide kprobes.parts $high:u64").unwrap_err();
    assert_eq!((error.problem, error.column), (Problem::Type, 21), "{error}");
}

#[test]
fn a_symbol_of_a_probe_is_a_text() {
    let mut events = events();
    define(&mut events, "p:named f where=%x20:symstr").unwrap();
    define(&mut events, "e:on kprobes.named $where s=$where:string y=$where:symstr").unwrap();
    let listed = "e:eprobes/on kprobes.named arg1=$where s=$where:string y=$where:symstr";
    assert_eq!(events.iter().last().unwrap().definition().to_string(), listed);
    events.clear_trace();
    hit(0x1000, 0x1004);
    let text = trace(&events, usize::MAX);
    let line = text.lines().find(|line| line.contains(" on: ")).unwrap();
    assert!(line.ends_with("arg1=\"f+0x4/0x10\" s=\"f+0x4/0x10\" y=\"f+0x4/0x10\""), "{line}");
}

#[test]
fn tracepoint_probes_of_one_name_are_on_one_event() {
    let mut events = others();
    events.add_static(Other::EVENT).unwrap();
    define(&mut events, "t:same noted x=mark").unwrap();
    let error = define(&mut events, "t:same other x=mark").unwrap_err();
    assert_eq!((error.problem, error.column), (Problem::Exists, 7), "{error}");
    assert_eq!(error.reason.unwrap(), "the event of this name is on noted");
}

#[test]
fn events_are_removed_together_or_not_at_all() {
    let mut events = others();
    define(&mut events, "e:kprobes/on kprobes.some").unwrap();
    define(&mut events, "f:fprobes/back f%return").unwrap();
    events.set_enabled(None, Some("on"), true).unwrap();
    let count = events.iter().count();
    assert_eq!(remove(&mut events, "-:kprobes/"), Err(Problem::Busy));
    assert_eq!(events.iter().count(), count, "what is enabled is on one of them");
    events.set_enabled(None, Some("on"), false).unwrap();
    assert_eq!(remove(&mut events, "-:kprobes/"), Ok(5));
    assert_eq!(remove(&mut events, "-:fprobes/back f"), Ok(0));
    assert_eq!(remove(&mut events, "-:fprobes/back f%return"), Ok(1), "as it is listed");
}

#[test]
fn what_cannot_be_attached_to_is_refused() {
    for (line, caret, problem) in tried([
        ("e kprobes.none", "  ^", Problem::AttachedEvent),
        ("e kprobes.several", "  ^", Problem::Ambiguous),
        ("e kprobes.some $none", "               ^", Problem::Variable),
        ("e kprobes.some arg=$none", "                   ^", Problem::Variable),
        ("e kprobes.some arg=+0($none):u8", "                      ^", Problem::Variable),
        ("e kprobes.some +0($byte)", "               ^", Problem::Text),
        ("e kprobes.some $byte:symstr", "               ^", Problem::Text),
        ("e kprobes.some $pair", "               ^", Problem::Text),
        ("e kprobes.some $bits", "               ^", Problem::Bits),
        ("e test.noted +0($comm)", "             ^", Problem::TaskNameRead),
        ("e test.noted $tag:u8", "             ^", Problem::Text),
        ("e test.noted +4($tag):string", "             ^", Problem::Text),
        ("e test.noted $comm:x64", "             ^", Problem::Text),
    ]) {
        assert_eq!(refused(line, caret), problem, "{line}");
    }
    let mut events = others();
    define(&mut events, "e:one test.noted").unwrap();
    assert_eq!(define(&mut events, "e:two eprobes.one").unwrap_err().problem, Problem::AttachedEvent);
    assert_eq!(define(&mut events, "e:one test.noted").unwrap_err().problem, Problem::Exists);
    assert_eq!(define(&mut events, "e:kprobes/some test.noted").unwrap_err().problem, Problem::Exists);
}

#[test]
fn an_event_stays_while_others_are_on_it() {
    let mut events = others();
    define(&mut events, "e:on kprobes.some").unwrap();
    assert_eq!(remove(&mut events, "-:some"), Err(Problem::Busy));
    // An event that another one is on can have no further probe: the other event would miss its hits.
    let same = "p:some f+4 byte=%x3:u8 word=%x19 low=+0(%x21):s32 pair=+0(%x19):u8[2] bits=%x30:b2@1/32";
    assert_eq!(define(&mut events, same).unwrap_err().problem, Problem::Exists);
    assert_eq!(remove(&mut events, "-:on"), Ok(1));
    assert_eq!(remove(&mut events, "-:some"), Ok(1));
    // A tracepoint's probe is on the static event alone.
    define(&mut events, "t:ours noted").unwrap();
    define(&mut events, "p:noted f").unwrap();
    assert_eq!(remove(&mut events, "-:kprobes/noted"), Ok(1));
    define(&mut events, "e:on kprobes.back").unwrap();
    remove_all(&mut events, None).unwrap();
    assert!(events.iter().all(Event::is_static));
}

/// As in Linux, `kprobes/enabled` is about kprobes alone. An event that is on one misses its hits, too.
#[test]
fn only_kprobes_and_the_events_on_them_are_disarmed() {
    let mut events = others();
    for line in [
        "f:entry f",
        "f:exit f%return",
        "t:trace noted",
        "e:some kprobes.some",
        "e:back kprobes.back",
        "e:entry fprobes.entry",
        "e:noted test.noted",
    ] {
        define(&mut events, line).unwrap();
    }
    let armed = |events: &Events<Counter>| -> Vec<String> {
        let armed = events.iter().filter(|event| event.is_armed()).map(|event| event.definition());
        armed.map(|definition| std::format!("{}:{}", definition.group, definition.event)).collect()
    };
    events.set_enabled(None, None, true).unwrap();
    assert_eq!(armed(&events).len(), events.iter().count());
    events.set_may_be_armed(false).unwrap();
    let others = ["test:noted", "fprobes:entry", "fprobes:exit", "tracepoints:trace", "eprobes:entry", "eprobes:noted"];
    assert_eq!(armed(&events), others);
    events.set_may_be_armed(true).unwrap();
    assert_eq!(armed(&events).len(), events.iter().count());
}

aarch64_kprobes::event! {
    struct Switch = sched:sched_switch {
        prev_pid: i32 = "pid_t",
        next_pid: i32 = "pid_t",
    }
}

aarch64_kprobes::event! {
    struct Wakeup = sched:sched_wakeup {
        pid: i32 = "pid_t",
    }
}

aarch64_kprobes::event! {
    struct Migration = sched:sched_migrate_task {
        pid: i32 = "pid_t",
    }
}

/// As in Linux, a restriction to tasks records a switch for either task, and a wakeup also for the task that is woken.
#[test]
fn a_switch_and_a_wakeup_are_recorded_for_either_task() {
    let mut events = events();
    [Switch::EVENT, Wakeup::EVENT, Migration::EVENT].into_iter().for_each(|event| events.add_static(event).unwrap());
    events.set_enabled(None, None, true).unwrap();
    // Every hit is by task 3. The last two columns are for an event about either task, and for one about task 3 alone.
    let both = |case| [false, true].map(|children| (case, children));
    let cases = [
        ("", "", 4, true, true),
        ("3", "", 4, true, true),
        ("4", "", 4, true, false),
        ("4", "", 5, false, false),
        ("", "3", 4, true, false),
        ("", "3 4", 4, false, false),
        ("4", "3", 4, true, false),
        ("3 4", "3 4", 4, false, false),
    ];
    for ((only, without, other, of_either, of_one), children) in tried(cases.into_iter().flat_map(both)) {
        let mut restriction = Restriction { children, ..Restriction::default() };
        if !only.is_empty() {
            restriction.only.get_or_insert_default().add(only).unwrap();
        }
        restriction.without.add(without).unwrap();
        let inherited = InheritedTasks::of(&restriction).unwrap();
        events.restrict(restriction, inherited).unwrap();
        events.clear_trace();
        for event in events.iter() {
            match event.definition().event.as_str() {
                "sched_switch" => happen(event, &Switch { prev_pid: 3, next_pid: other }),
                "sched_wakeup" => happen(event, &Wakeup { pid: other }),
                _ => happen(event, &Migration { pid: other }),
            }
        }
        let text = trace(&events, 9);
        let names = ["sched_switch", "sched_wakeup", "sched_migrate_task"];
        let recorded = names.map(|name| text.contains(&std::format!(" {name}: ")));
        assert_eq!(recorded, [of_either, of_either, of_one], "{only}, {without}, {other}, {children}: {text}");
    }
}
