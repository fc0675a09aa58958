//! The plans of events: from when on hits follow them, and until when they are kept.

use super::*;
use crate::errno::Errno;
use core::ptr;

/// The probe of an event in another list may trigger a synthetic event of a list that is dropped.
#[test]
fn hits_are_over_before_the_plans_of_a_list_are_dropped() {
    let dropped = |lines: &[&str], filter: Option<&str>| {
        let mut controlled = Controlled::new(lines);
        let Controlled { events } = &mut controlled;
        events.set_enabled(None, None, true).unwrap();
        if let Some(filter) = filter {
            events.set_filter(("kprobes", "one"), filter).unwrap();
        }
        let before = SYNCHRONIZED.get();
        drop(controlled);
        SYNCHRONIZED.get() - before
    };
    assert_eq!(dropped(&["p:one f x=%x20"], None), 0, "there is no plan");
    assert_eq!(dropped(&["p:one f x=%x20", "p:two a::b x=%x20"], Some("x < 5")), 1);
    let lines: Vec<String> = (0..PLANS).map(|number| format!("p:e{number} f")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(["p:one f x=%x20"]).collect();
    assert_eq!(dropped(&lines, Some("x < 5")), 1, "the plan is in the second part");
}

/// A hit in progress can use the plan that it has found until `synchronize` has waited for it. Miri also checks that
/// the plan's new owners leave the reference valid.
#[test]
fn a_plan_is_kept_for_the_hits_that_have_found_it() {
    const ONE: (&str, &str) = ("kprobes", "one");
    let mut controlled = Controlled::new(&["p:one f x=%x20", "p:two a::b x=%x20"]);
    let Controlled { events } = &mut controlled;
    events.set_enabled(Some("kprobes"), Some("one"), true).unwrap();
    events.set_filter(ONE, "x < 5").unwrap();
    let find = |events: &Events<Counter>| {
        let plan = events.iter().next().unwrap().recorder().plan.get().unwrap();
        // SAFETY: `synchronize` takes the reference out of `FOUND`, before the plan is freed.
        FOUND.set(Some(unsafe { &*ptr::from_ref(plan) }));
    };
    let is_over = || FOUND.get().is_none();
    find(events);
    events.set_filter(ONE, "x < 6").unwrap();
    assert!(is_over(), "the settings have changed");
    find(events);
    ARMS_LEFT.set(0);
    assert_eq!(events.set_enabled(None, None, true), Err(Errno::NoMemory));
    ARMS_LEFT.set(usize::MAX);
    assert!(is_over(), "the old plan is put back");
    find(events);
    events.reset_settings(|_| true);
    assert!(is_over(), "the settings are reset");
    events.set_filter(ONE, "x < 5").unwrap();
    find(events);
    drop(controlled);
    assert!(is_over(), "the list is dropped");
}

/// Code at a return records every hit, so it must not run while there is a plan.
#[test]
fn returns_are_left_to_the_handler_exactly_while_there_is_a_plan() {
    const ONE: (&str, &str) = ("kprobes", "one");
    fn assert_left(controlled: &Controlled, expected: bool, when: &str) {
        for event in controlled.events.iter() {
            assert_eq!(event.recorder().plan.has_plan(), expected, "{when}");
            assert_eq!(event.probe().unwrap().is_snippet_enabled.get(), !expected, "{when}");
        }
    }
    let mut controlled = Controlled::new(&["r:one f x=%x0"]);
    let set = |controlled: &mut Controlled, filter, allocations| {
        let Controlled { events } = controlled;
        with_memory(allocations, || events.set_filter(ONE, filter))
    };
    let enable = |controlled: &mut Controlled, enabled| {
        let Controlled { events } = controlled;
        events.set_enabled(None, None, enabled).unwrap();
    };
    enable(&mut controlled, true);
    assert_left(&controlled, false, "enabled");
    let mut allocations = 0;
    while set(&mut controlled, "x < 5", allocations) == Err(Errno::NoMemory) {
        assert_left(&controlled, false, "without memory for a filter");
        allocations += 1;
    }
    assert!(allocations > 3, "{allocations}");
    assert_left(&controlled, true, "with a filter");
    controlled.define("r:one a::b<c, d> x=%x0");
    assert_left(&controlled, true, "with a second probe");
    set(&mut controlled, "0", usize::MAX).unwrap();
    assert_left(&controlled, false, "without a filter again");
    enable(&mut controlled, false);
    assert_left(&controlled, true, "disabled");
    enable(&mut controlled, true);
    set(&mut controlled, "x < 5", usize::MAX).unwrap();
    let Controlled { events } = &mut controlled;
    events.reset_settings(|_| true);
    assert_left(&controlled, true, "reset");
}

/// The first hit of a second probe already follows the event's settings.
#[test]
fn a_probe_that_is_armed_as_others_are_has_a_plan_before() {
    let mut controlled = Controlled::new(&["p:one f x=%x20"]);
    let Controlled { events } = &mut controlled;
    events.set_enabled(None, Some("one"), true).unwrap();
    events.set_filter(("kprobes", "one"), "x == 2").unwrap();
    controlled.define("p:one a::b<c, d> x=%x20");
    let Controlled { events } = controlled;
    assert!(events.iter().all(|event| event.probe().unwrap().is_enabled()));
    [1, 2].into_iter().for_each(|time| hit(0x2000, time));
    assert_eq!(trace(&events, 9).lines().count(), 1);
}
