//! Triggers are read, printed, set and removed, and act at hits.

use super::control::{Control, SetError};
use super::*;
use crate::action::tests::Hit;
use alloc::vec::Vec;

fn request(text: &str) -> Result<Request, Error> {
    Request::parse(text, Hit::new().fields())
}

fn set(control: &mut Control, text: &str, switch: &Arc<Switch>) -> Result<(), SetError> {
    control.set_trigger(request(text).unwrap(), 4, Some(switch.clone()))
}

fn printed(control: &Control) -> String {
    let mut text = String::new();
    control.write_triggers(&mut text).unwrap();
    text
}

#[test]
fn triggers_print_as_linux_prints_them_and_can_be_typed_again() {
    for (typed, printed) in [
        ("stacktrace", "stacktrace:unlimited"),
        ("stacktrace:3", "stacktrace:count=3"),
        ("traceon if u > 3", "traceon:unlimited if u > 3"),
        ("traceoff:1 \t if  u > 3 ", "traceoff:count=1 if u > 3"),
        ("enable_event:kprobes:x", "enable_event:kprobes:x:unlimited"),
        ("disable_event:kprobes:x:2", "disable_event:kprobes:x:count=2"),
        ("hist:keys=u if t ~ \"a b\"", "hist:keys=u:vals=hitcount:sort=hitcount:size=2048 if t ~ \"a b\" [active]"),
    ] {
        let switch = Arc::new(Switch::new(true));
        let mut control = Control::new(true, false);
        assert_eq!(super::tests::printed(&control), AVAILABLE);
        set(&mut control, typed, &switch).unwrap();
        assert_eq!(super::tests::printed(&control), alloc::format!("{printed}\n"));
        let mut again = Control::new(true, false);
        set(&mut again, printed.trim_end_matches(" [active]"), &switch).unwrap();
        assert_eq!(super::tests::printed(&again), alloc::format!("{printed}\n"));
        assert!(set(&mut control, typed, &switch).is_err());
        assert!(control.remove_trigger(&request(&alloc::format!("!{typed}")).unwrap()).is_some());
        assert!(control.triggers().is_empty());
    }
}

#[test]
fn what_is_no_trigger_is_refused() {
    for text in [
        "",
        "!",
        "snapshot",
        "stacktrace:",
        "stacktrace:x",
        "stacktrace:-1",
        "stacktrace if",
        "stacktrace u == 1",
        "enable_event",
        "enable_event:x",
        "traceon:18446744073709551615",
        "stacktrace:+1",
    ] {
        assert_eq!(request(text).err(), Some(Error::Invalid), "{text}");
    }
    assert!(matches!(request("hist"), Err(Error::Histogram(_))));
    assert!(matches!(request("stacktrace if nofield == 1"), Err(Error::Filter(..))));
}

#[test]
fn one_of_a_kind_is_enough() {
    let switch = Arc::new(Switch::new(true));
    let mut control = Control::new(true, false);
    for (text, is_set) in [
        ("traceon:3", true),
        ("traceoff", false),
        ("stacktrace", true),
        ("stacktrace:5 if u == 1", false),
        ("enable_event:g:e", true),
        ("disable_event:g:e", false),
        ("disable_event:g:f", true),
    ] {
        assert_eq!(set(&mut control, text, &switch).is_ok(), is_set, "{text}");
    }
    assert_eq!(set(&mut control, "traceoff", &switch), Err(SetError::Exists));
}

#[test]
fn triggers_act_as_often_as_they_are_to() {
    let hit = Hit::new();
    let switch = Arc::new(Switch::new(false));
    let mut control = Control::new(true, false);
    set(&mut control, "traceon:2", &switch).unwrap();
    set(&mut control, "stacktrace:1 if u == 200", &switch).unwrap();
    let plan = control.plan().unwrap();
    let verdicts: Vec<_> = (0..3).map(|_| plan.run(&hit.record, hit.moment()).stack).collect();
    assert_eq!(verdicts, [true, false, false]);
    assert!(switch.0.load(Relaxed));
    assert_eq!(
        printed(&control),
        "traceon:count=1\nstacktrace:count=0 if u == 200\n",
        "a switch that is on already is not switched"
    );
    for expected in [true, false] {
        switch.0.store(false, Relaxed);
        plan.run(&hit.record, hit.moment());
        assert_eq!(switch.0.load(Relaxed), expected);
    }
}

#[test]
fn an_event_is_hit_for_its_triggers_though_it_is_not_enabled() {
    let hit = Hit::new();
    let mut control = Control::new(false, false);
    assert!(!control.is_armed() && control.plan().is_none());
    assert_eq!(control.enabled_text(), "0");
    let switch = Arc::new(Switch::new(false));
    set(&mut control, "traceon", &switch).unwrap();
    assert!(control.is_armed());
    assert_eq!(control.enabled_text(), "0*");
    assert!(!control.plan().unwrap().run(&hit.record, hit.moment()).keep);
    control.set_enabled(true);
    assert_eq!(control.enabled_text(), "1*");
    assert!(control.plan().unwrap().run(&hit.record, hit.moment()).keep);
    assert!(switch.0.load(Relaxed));
}

#[test]
fn another_event_switches_this_one_while_it_may() {
    let hit = Hit::new();
    let mut target = Control::new(false, false);
    let mut source = Control::new(true, false);
    target.target(true);
    set(&mut source, "enable_event:g:target", target.recording()).unwrap();
    let plan = target.plan().unwrap();
    assert!(!plan.run(&hit.record, hit.moment()).keep);
    source.plan().unwrap().run(&hit.record, hit.moment());
    assert!(plan.run(&hit.record, hit.moment()).keep);
    assert_eq!(target.enabled_text(), "1*");
    target.target(false);
    assert_eq!(target.enabled_text(), "0");
    assert!(!target.is_armed());
}

#[test]
fn a_filter_decides_what_is_kept_and_shows_its_error() {
    let hit = Hit::new();
    let mut control = Control::new(true, false);
    let shown = |control: &Control| {
        let mut text = String::new();
        control.write_filter(&mut text).unwrap();
        text
    };
    assert_eq!(shown(&control), "none\n");
    control.set_filter(" u == 1\n", hit.fields()).unwrap();
    assert_eq!(shown(&control), "u == 1\n");
    assert!(!control.plan().unwrap().run(&hit.record, hit.moment()).keep);
    control.set_filter("nofield == 1", hit.fields()).unwrap_err();
    assert_eq!(shown(&control), "nofield == 1\n        ^\nparse_error: Field not found\n");
    control.set_filter("(u == 1", hit.fields()).unwrap_err();
    assert_eq!(shown(&control), "(u == 1\n^\nparse_error: Too many '('\n");
    assert!(control.plan().is_none());
    control.set_filter("0", hit.fields()).unwrap();
    assert_eq!(shown(&control), "none\n");
}

/// A plan is dropped when its cell is given another, or dropped itself.
#[test]
fn a_cell_owns_its_plan() {
    let mut control = Control::new(true, false);
    control.set_filter("u == 1", Hit::new().fields()).unwrap();
    let cell = PlanCell::default();
    assert!(cell.replace(control.plan()).is_none());
    let recording = control.recording();
    assert_eq!(Arc::strong_count(recording), 2);
    drop(cell.replace(control.plan()));
    assert_eq!(Arc::strong_count(recording), 2);
    drop(cell);
    assert_eq!(Arc::strong_count(recording), 1);
}
