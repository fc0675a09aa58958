//! Triggers are parsed, printed, set and removed, and act at hits.

use super::settings::{Resources, SetError, Settings};
use super::*;
use crate::fetch::{BitRange, Register, RegisterPart};
use crate::filter::FindFunction;
use crate::hit::action::tests::{Hit, ON, RESOURCES};
use aarch64_kprobes::probe::CpuWords;
use alloc::vec::Vec;
use kprobes_random::Random;
use kprobes_random::tried::tried;

fn request(text: &str) -> Result<Request, Error> {
    Request::parse(text, Hit::new().fields())
}

fn set(settings: &mut Settings, text: &str, switch: &Arc<Switch>) -> Result<(), SetError> {
    settings.set_trigger(request(text).unwrap(), RESOURCES, Some(Target::Recording(switch.clone())))
}

/// Returns the trigger as it can be typed again: as it was printed, without the words for a state.
fn without_state(printed: &str) -> String {
    let text = printed.trim_end().trim_end_matches(" [active]");
    let (trigger, filter) = text.split_at(text.find(" if ").unwrap_or(text.len()));
    match (trigger.strip_suffix(":unlimited"), trigger.rsplit_once(":count=")) {
        (Some(always), _) => alloc::format!("{always}{filter}"),
        (None, Some((name, count))) => alloc::format!("{name}:{count}{filter}"),
        (None, None) => text.into(),
    }
}

fn printed(settings: &Settings) -> String {
    let mut text = String::new();
    settings.write_triggers(&mut text).unwrap();
    text
}

/// Returns the plan of an event that is hit at an entry; `None` records every hit.
fn possible_plan(settings: &Settings) -> Option<Box<Plan>> {
    settings.plan(None, ProbeContext::AT_ENTRY, &|number| number).unwrap()
}

fn plan(settings: &Settings) -> Box<Plan> {
    possible_plan(settings).unwrap()
}

#[test]
fn triggers_print_as_linux_prints_them_and_can_be_typed_again() {
    for (typed, printed) in tried([
        ("stacktrace", "stacktrace:unlimited"),
        ("stacktrace:3", "stacktrace:count=3"),
        ("stacktrace:0x1f", "stacktrace:count=31"),
        ("traceon:010", "traceon:count=8"),
        ("traceon if u > 3", "traceon:unlimited if u > 3"),
        ("traceoff:1 \t if  u > 3 ", "traceoff:count=1 if u > 3"),
        ("enable_event:kprobes:x", "enable_event:kprobes:x:unlimited"),
        ("disable_event:kprobes:x:2", "disable_event:kprobes:x:count=2"),
        ("enable_hist:kprobes:x:2", "enable_hist:kprobes:x:count=2"),
        ("disable_hist:kprobes:x if u > 3", "disable_hist:kprobes:x:unlimited if u > 3"),
        ("hist:name=n:keys=u", "hist:name=n:keys=u:vals=hitcount:sort=hitcount:size=2048 [active]"),
        ("hist:keys=u if t ~ \"a b\"", "hist:keys=u:vals=hitcount:sort=hitcount:size=2048 if t ~ \"a b\" [active]"),
    ]) {
        let switch = Arc::try_new(Switch::new(true)).unwrap();
        let mut settings = Settings::new(true).unwrap();
        assert_eq!(super::tests::printed(&settings), AVAILABLE);
        set(&mut settings, typed, &switch).unwrap();
        assert_eq!(super::tests::printed(&settings), alloc::format!("{printed}\n"));
        let mut again = Settings::new(true).unwrap();
        let typed_again = without_state(printed);
        set(&mut again, &typed_again, &switch).unwrap();
        assert_eq!(super::tests::printed(&again), alloc::format!("{printed}\n"));
        assert!(again.remove_trigger(&request(&alloc::format!("!{typed_again}")).unwrap()).is_some());
        assert!(set(&mut settings, typed, &switch).is_err());
        assert!(settings.remove_trigger(&request(&alloc::format!("!{typed}")).unwrap()).is_some());
        assert!(settings.triggers().is_empty());
    }
}

#[test]
fn what_is_no_trigger_is_refused() {
    for text in tried([
        "",
        "!",
        "stacktrace:x",
        "stacktrace:5x",
        "traceoff:count=3",
        "traceoff:unlimited",
        "enable_event:g:e:count=3",
        "stacktrace::5",
        "stacktrace:if",
        "stacktrace 5 u == 1",
        "hist",
        "hist:if u == 1",
        "hist:keys=u if",
        "stacktrace:-1",
        "stacktrace if",
        "stacktrace u == 1",
        "enable_event",
        "disable_hist",
        "enable_event:x",
        "traceon:18446744073709551615",
        "stacktrace:+1",
    ]) {
        assert_eq!(request(text).err(), Some(Error::Invalid), "{text}");
    }
    assert!(matches!(request("hist:u"), Err(Error::Histogram(_))));
    assert!(matches!(request("stacktrace if nofield == 1"), Err(Error::Filter(..))));
}

/// As in Linux, blanks can take the place of the first `:`, and a count ends at a further `:`.
#[test]
fn triggers_are_read_as_linux_reads_them() {
    for (typed, printed) in tried([
        ("traceoff:", "traceoff:unlimited"),
        ("stacktrace 5", "stacktrace:count=5"),
        ("stacktrace:  5 if u > 3", "stacktrace:count=5 if u > 3"),
        ("stacktrace\t5:6", "stacktrace:count=5"),
        ("enable_event g:e:5:6", "enable_event:g:e:count=5"),
        ("hist  keys=u if u > 3", "hist:keys=u:vals=hitcount:sort=hitcount:size=2048 if u > 3 [active]"),
    ]) {
        let switch = Arc::try_new(Switch::new(true)).unwrap();
        let mut settings = Settings::new(true).unwrap();
        set(&mut settings, typed, &switch).unwrap();
        assert_eq!(super::tests::printed(&settings), alloc::format!("{printed}\n"));
    }
}

/// As in Linux, a removal of anything but a histogram names a type and a target, and nothing else is read.
#[test]
fn a_removal_needs_neither_a_count_nor_a_filter() {
    for (text, removal) in tried([
        ("traceoff", "!traceoff if nosuch == 1"),
        ("stacktrace:3 if u == 1", "!stacktrace:junk"),
        ("traceon", "!traceon junk"),
        ("enable_event:g:e", "!enable_event:g:e:junk if junk"),
        ("disable_hist:g:e:3", "!disable_hist g:e junk"),
    ]) {
        let switch = Arc::try_new(Switch::new(true)).unwrap();
        let mut settings = Settings::new(true).unwrap();
        set(&mut settings, text, &switch).unwrap();
        let removed = settings.remove_trigger(&request(removal).unwrap());
        assert_eq!((removed.is_some(), settings.triggers().len()), (true, 0), "{removal}");
    }
    assert!(matches!(request("!enable_event:g"), Err(Error::Invalid)));
    assert!(matches!(request("!hist:keys=u if nosuch == 1"), Err(Error::Filter(..))));
}

#[test]
fn one_of_a_kind_is_enough() {
    let switch = Arc::try_new(Switch::new(true)).unwrap();
    let mut settings = Settings::new(true).unwrap();
    for (text, is_set) in tried([
        ("traceon:3", true),
        ("traceoff", false),
        ("stacktrace", true),
        ("stacktrace:5 if u == 1", false),
        ("enable_event:g:e", true),
        ("disable_event:g:e", false),
        ("disable_event:g:f", true),
    ]) {
        assert_eq!(set(&mut settings, text, &switch).is_ok(), is_set, "{text}");
    }
    assert_eq!(set(&mut settings, "traceoff", &switch), Err(SetError::Exists));
    // The opposite is of the same type, so it removes the trigger.
    for (text, is_there) in tried([
        ("!traceoff", true),
        ("!traceon", false),
        ("!disable_event:g:e", true),
        ("!enable_hist:g:f", false),
        ("!enable_event:g:f", true),
        ("!stacktrace", true),
    ]) {
        assert_eq!(settings.remove_trigger(&request(text).unwrap()).is_some(), is_there, "{text}");
    }
    assert!(settings.triggers().is_empty());
}

#[test]
fn triggers_act_as_often_as_they_are_to() {
    let hit = Hit::new();
    let switch = Arc::try_new(Switch::new(false)).unwrap();
    let mut settings = Settings::new(true).unwrap();
    set(&mut settings, "traceon:2", &switch).unwrap();
    set(&mut settings, "stacktrace:1 if u == 200", &switch).unwrap();
    let plan = plan(&settings);
    let verdicts: Vec<_> = (0..3).map(|_| plan.run(&hit.record, &hit.state(), &ON).stack).collect();
    assert_eq!(verdicts, [true, false, false]);
    assert!(switch.0.load(Relaxed));
    assert_eq!(
        printed(&settings),
        "stacktrace:count=0 if u == 200\ntraceon:count=1\n",
        "a switch that is on already is not switched"
    );
    for expected in [true, false] {
        switch.0.store(false, Relaxed);
        plan.run(&hit.record, &hit.state(), &ON);
        assert_eq!(switch.0.load(Relaxed), expected);
    }
}

/// A histogram is last, and any other trigger first.
#[test]
fn the_order_is_that_of_linux() {
    let switch = Arc::try_new(Switch::new(true)).unwrap();
    let mut settings = Settings::new(true).unwrap();
    for text in ["hist:keys=u", "stacktrace", "hist:keys=s", "traceon", "enable_event:g:e"] {
        set(&mut settings, text, &switch).unwrap();
    }
    let shown = printed(&settings);
    let names: Vec<&str> = shown.lines().map(|line| line.split(":vals").next().unwrap()).collect();
    let expected =
        ["enable_event:g:e:unlimited", "traceon:unlimited", "stacktrace:unlimited", "hist:keys=u", "hist:keys=s"];
    assert_eq!(names, expected);
}

/// `traceoff` fires after the record, and so does each trigger of an event that has `traceoff` or a trigger that looks
/// at the hit. Otherwise triggers fire before the record is begun, so that the hit that turns tracing on is recorded.
#[test]
fn what_is_switched_is_for_the_next_hit_if_a_trigger_looks_at_this_one() {
    let hit = Hit::new();
    for (triggers, was_on, keep, stack) in tried([
        (&["traceoff"][..], true, true, false),
        (&["traceoff:1"], true, true, false),
        (&["traceoff if u == 200"], true, true, false),
        (&["traceoff if u == 1"], true, true, false),
        (&["traceoff", "hist:keys=u"], true, true, false),
        // Of two triggers that fire after the record, the one that was set last is first.
        (&["stacktrace", "traceoff"], true, true, false),
        (&["traceoff", "stacktrace"], true, true, true),
        (&["traceon"], false, true, false),
        (&["traceon if u == 200"], false, false, false),
        (&["traceon", "stacktrace"], false, false, true),
    ]) {
        let tracing = Arc::try_new(Switch::new(was_on)).unwrap();
        let mut settings = Settings::new(true).unwrap();
        triggers.iter().for_each(|trigger| set(&mut settings, trigger, &tracing).unwrap());
        let verdict = plan(&settings).run(&hit.record, &hit.state(), &tracing);
        assert_eq!((verdict.keep, verdict.stack), (keep, stack), "{triggers:?}");
    }
}

#[test]
fn an_event_is_hit_for_its_triggers_though_it_is_not_enabled() {
    let hit = Hit::new();
    let mut settings = Settings::new(false).unwrap();
    assert!(!settings.is_armed());
    assert!(!plan(&settings).run(&hit.record, &hit.state(), &ON).keep);
    assert_eq!(settings.enabled_text(), "0");
    let switch = Arc::try_new(Switch::new(false)).unwrap();
    set(&mut settings, "traceon", &switch).unwrap();
    assert!(settings.is_armed());
    assert_eq!(settings.enabled_text(), "0*");
    assert!(!plan(&settings).run(&hit.record, &hit.state(), &ON).keep);
    settings.set_enabled(true);
    settings.settle();
    assert_eq!(settings.enabled_text(), "1*");
    assert!(plan(&settings).run(&hit.record, &hit.state(), &ON).keep);
    assert!(switch.0.load(Relaxed));
}

#[test]
fn another_event_switches_this_one_while_it_may() {
    let hit = Hit::new();
    let mut target = Settings::new(false).unwrap();
    let mut source = Settings::new(true).unwrap();
    assert!(target.set_targeted(1));
    set(&mut source, "enable_event:g:target", target.recording()).unwrap();
    let target_plan = plan(&target);
    assert!(!target_plan.run(&hit.record, &hit.state(), &ON).keep);
    plan(&source).run(&hit.record, &hit.state(), &ON);
    assert!(target_plan.run(&hit.record, &hit.state(), &ON).keep);
    assert_eq!(target.enabled_text(), "1*");
    assert!(target.set_targeted(0));
    target.settle();
    assert_eq!(target.enabled_text(), "1", "it stays as it is when the trigger goes");
    assert!(target.is_armed() && possible_plan(&target).is_none());
    target.set_enabled(false);
    target.settle();
    assert_eq!(target.enabled_text(), "0");
    assert!(!target.is_armed());
}

/// An event that a trigger has disabled stays disabled when nothing is on it any more.
#[test]
fn an_event_without_others_on_it_is_as_they_have_left_it() {
    let mut settings = Settings::new(true).unwrap();
    settings.set_dependents(1);
    // A trigger has turned recording off.
    settings.recording().0.store(false, Relaxed);
    settings.set_dependents(2);
    settings.settle();
    assert_eq!(settings.enabled_text(), "0*");
    settings.set_dependents(0);
    settings.settle();
    assert_eq!((settings.enabled_text(), settings.is_armed()), ("0", false));
    settings.set_enabled(true);
    settings.settle();
    settings.set_targeted(1);
    settings.set_targeted(0);
    settings.settle();
    assert_eq!(settings.enabled_text(), "1");
}

#[test]
fn another_event_pauses_the_histograms_of_this_one() {
    let hit = Hit::new();
    let mut target = Settings::new(false).unwrap();
    for keys in ["u", "s"] {
        target.set_trigger(request(&alloc::format!("hist:keys={keys}")).unwrap(), RESOURCES, None).unwrap();
    }
    let order = |text: &str| {
        let mut source = Settings::new(true).unwrap();
        let orders = Target::Histograms(target.orders().clone());
        source.set_trigger(request(text).unwrap(), RESOURCES, Some(orders)).unwrap();
        assert_eq!(source.count_of(&target), 1);
        source
    };
    let (enable, disable) = (order("enable_hist:g:target"), order("disable_hist:g:target:2"));
    let fire = |source: &Settings| _ = plan(source).run(&hit.record, &hit.state(), &ON);
    let states = |expected: &str| {
        let shown = printed(&target);
        let ends: Vec<&str> = shown.lines().filter_map(|line| line.split('[').nth(1)).collect();
        assert_eq!(ends.join(" "), expected);
    };
    states("active] active]");
    fire(&disable);
    states("paused] paused]");
    // The file of the event has the last word, and so has a later order.
    let pause = |text: &str| {
        let (trigger, paused) = target.pausing(&request(text).unwrap()).unwrap();
        trigger.set_paused(paused);
    };
    pause("hist:keys=s:cont");
    states("paused] active]");
    fire(&enable);
    states("active] active]");
    pause("hist:keys=u:pause");
    states("paused] active]");
    fire(&disable);
    states("paused] paused]");
    fire(&enable);
    // `disable` has fired as often as its limit allows.
    fire(&disable);
    states("active] active]");
    let set_again = |text: &str| order("enable_hist:g:target").set_trigger(request(text).unwrap(), RESOURCES, None);
    assert_eq!(set_again("disable_hist:g:target"), Err(SetError::Exists));
    // While another event can pause the histogram, a stub cannot count in it.
    target.set_targeted(1);
    assert!(matches!(plan(&target).work(), Work::Other));
}

#[test]
fn a_filter_decides_what_is_kept_and_shows_its_error() {
    let hit = Hit::new();
    let mut settings = Settings::new(true).unwrap();
    let shown = |settings: &Settings| {
        let mut text = String::new();
        settings.write_filter(&mut text).unwrap();
        text
    };
    assert_eq!(shown(&settings), "none\n");
    settings.set_filter(" u == 1\n", hit.fields(), FindFunction::NONE).unwrap();
    assert_eq!(shown(&settings), "u == 1\n");
    assert!(!plan(&settings).run(&hit.record, &hit.state(), &ON).keep);
    settings.set_filter("nofield == 1", hit.fields(), FindFunction::NONE).unwrap_err();
    assert_eq!(shown(&settings), "nofield == 1\n        ^\nparse_error: Field not found\n\n");
    settings.set_filter("(u == 1", hit.fields(), FindFunction::NONE).unwrap_err();
    assert_eq!(shown(&settings), "(u == 1\n^\nparse_error: Too many '('\n\n");
    assert!(possible_plan(&settings).is_none());
    settings.set_filter("0", hit.fields(), FindFunction::NONE).unwrap();
    assert_eq!(shown(&settings), "none\n");
}

/// A cell drops its plan when the plan is replaced, and when the cell is dropped.
#[test]
fn a_cell_owns_its_plan() {
    let mut settings = Settings::new(true).unwrap();
    settings.set_filter("u == 1", Hit::new().fields(), FindFunction::NONE).unwrap();
    let cell = PlanCell::default();
    cell.set_first(possible_plan(&settings));
    let recording = settings.recording();
    assert_eq!(Arc::strong_count(recording), 2);
    let old = cell.replace(possible_plan(&settings)).unwrap();
    assert_eq!(Arc::strong_count(recording), 3);
    // SAFETY: nothing has a reference to the plan.
    unsafe { old.free() };
    assert_eq!(Arc::strong_count(recording), 2);
    drop(cell);
    assert_eq!(Arc::strong_count(recording), 1);
}

/// If all operands are in registers or known of the task and the CPU, the record is not looked at.
#[test]
fn a_plan_that_needs_no_record_says_the_same_without_one() {
    let mut hit = Hit::with(200, -3, 77, "t");
    hit.frame.x[5] = 77;
    hit.frame.x[6] = 0x01ff_ffff_fd55;
    let part = |number, low, bits, signed| {
        let (register, bits) = (Register::x(number).unwrap(), BitRange::new(low, bits, signed).unwrap());
        Number::Register(RegisterPart { register, bits })
    };
    let offset = |name| hit.format.field(name).unwrap().offset as u16;
    let number = |number| match number {
        Number::Field { offset: place, signed, .. } if place == offset("x") => part(5, 0, 64, signed),
        Number::Field { offset: place, signed, .. } if place == offset("s") => part(6, 8, 32, signed),
        Number::Field { offset: 4, .. } => Number::Task,
        _ => number,
    };
    for (filter, is_direct, keep) in tried([
        ("x == 77", true, true),
        ("x < 77", true, false),
        ("s == -3", true, true),
        ("s < -3 || s >= 0", true, false),
        ("x > 0 && common_pid == 7 && cpu == 2 && comm == 'main'", true, true),
        ("common_pid < 0 || x == 1", true, false),
        ("x == 77 && u == 200", false, true),
        ("x == 77 && t == 't'", false, true),
    ]) {
        let mut settings = Settings::new(true).unwrap();
        settings.set_filter(filter, hit.fields(), FindFunction::NONE).unwrap();
        let plan = settings.plan(None, ProbeContext::INSIDE, &number).unwrap().unwrap();
        assert_eq!(plan.is_direct, is_direct, "{filter}");
        let record = if is_direct { &[][..] } else { &hit.record };
        assert_eq!(plan.run(record, &hit.state(), &ON).keep, keep, "{filter}");
        let is_of_registers = !filter.contains("comm") && is_direct;
        assert_eq!(plan.filter_fast(hit.state().registers), is_of_registers.then_some(keep), "{filter}");
    }
    let switch = Arc::try_new(Switch::new(true)).unwrap();
    for (trigger, is_direct) in tried([
        ("hist:keys=x.log2,common_pid.execname:vals=x", true),
        ("hist:keys=stacktrace,comm if x == 77", true),
        ("hist:keys=t", false),
        ("hist:keys=x:vals=s", true),
        ("hist:keys=x:vals=u", false),
        ("stacktrace if u == 1", false),
        ("stacktrace", true),
    ]) {
        let mut settings = Settings::new(false).unwrap();
        set(&mut settings, trigger, &switch).unwrap();
        let plan = settings.plan(None, ProbeContext::INSIDE, &number).unwrap().unwrap();
        assert_eq!(plan.is_direct, is_direct, "{trigger}");
        assert_eq!(plan.filter_fast(hit.state().registers), None, "{trigger}");
    }
    let mut settings = Settings::new(false).unwrap();
    set(&mut settings, "hist:keys=x:vals=x", &switch).unwrap();
    settings.plan(None, ProbeContext::INSIDE, &number).unwrap().unwrap().run(&[], &hit.state(), &ON);
    let mut text = String::new();
    let trigger = &settings.triggers()[0];
    trigger.histogram().unwrap().write(&mut text, trigger, &crate::histogram::tests::Names).unwrap();
    assert!(text.contains("{ x:         77 } hitcount:          1  x:         77\n"), "{text}");
}

/// A histogram that would leave too little memory is refused, and the settings stay as they are.
#[test]
fn a_histogram_has_to_leave_memory() {
    for (text, needed) in tried([
        ("hist:keys=u:size=256", 2 * 256 * 32),
        // Stubs count in per-CPU words, which are allocated for the largest number of CPUs.
        ("hist:keys=u.log2:size=256", 64 * 32 + CpuWords::bytes() / 2),
        ("hist:keys=u,s:vals=x:size=256", 2 * 256 * 4 + 257 * 4 * 8),
    ]) {
        let mut settings = Settings::new(true).unwrap();
        let resources = |free| Resources { cpus: 2, free, ..RESOURCES };
        let mut set = |free| settings.set_trigger(request(text).unwrap(), resources(free), None);
        assert_eq!(set(2 * needed), Err(SetError::Memory), "{text}");
        set(2 * (needed + 256)).unwrap();
        let histogram = settings.triggers()[0].histogram().unwrap();
        assert_eq!(resources(2 * needed).cleared(histogram).err(), Some(SetError::Memory), "{text}");
        resources(2 * (needed + 256)).cleared(histogram).unwrap();
    }
}

/// Every text is a trigger that can be typed again as it prints, or is refused.
#[test]
fn noise_is_answered() {
    let words = [
        "hist",
        "keys",
        "vals",
        "sort",
        "size",
        "=",
        ":",
        ",",
        ".",
        "x",
        "u",
        "t",
        "log2",
        "hex",
        "buckets=5",
        "descending",
        "hitcount",
        "common_stacktrace",
        "stacktrace",
        "traceon",
        "enable_event",
        "disable_hist",
        " if ",
        "u == 1",
        "!",
        "5",
        "count=",
        "unlimited",
        "pause",
        "256",
        "\u{e9}",
        "hist:keys=x",
        "hist:keys=u.log2:vals=x",
        ":sort=",
    ];
    let switch = Arc::try_new(Switch::new(true)).unwrap();
    let mut random = Random::new(1);
    let mut good = 0;
    let texts = 200_000;
    for _ in tried(0..texts) {
        let mut text = String::new();
        loop {
            text += random.of(&words);
            if random.one_in(8) {
                break;
            }
        }
        let Ok(wanted) = request(&text) else { continue };
        if matches!(&wanted.kind, TriggerKind::Histogram(definition) if definition.command.is_some()) || wanted.remove {
            continue;
        }
        good += 1;
        let mut settings = Settings::new(true).unwrap();
        settings.set_trigger(wanted, RESOURCES, Some(Target::Recording(switch.clone()))).unwrap();
        let once = printed(&settings);
        let mut again = Settings::new(true).unwrap();
        set(&mut again, &without_state(&once), &switch).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(printed(&again), once, "{text}");
    }
    assert!(cfg!(miri) || good > texts / 400, "{good}");
}
