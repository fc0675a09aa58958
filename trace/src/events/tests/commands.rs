//! Commands of functions: triggers without an event of their own.

use super::*;

fn refuse_none(error: <Counter as RegisteredProbe>::Error) {
    panic!("{error}");
}

impl Controlled {
    fn command(&mut self, functions: &[u64], text: &str) -> Result<(), Errno> {
        self.events.add_command(functions, text, &Names, &mut refuse_none)
    }

    fn remove_command(&mut self, functions: &[u64], text: &str) -> Result<(), Errno> {
        self.events.remove_command(functions, text)
    }

    fn commands(&self) -> String {
        let commands = self.events.commands();
        commands.map(|(function, command)| std::format!("{function:#x}:{command}\n")).collect()
    }
}

#[test]
fn a_command_is_carried_out_when_the_function_is_called() {
    let mut controlled = Controlled::new(&["p:one f"]);
    controlled.command(&[0x1000, 0x2000], "traceoff:2").unwrap();
    assert_eq!(controlled.commands(), "0x1000:traceoff:count=2\n0x2000:traceoff:count=2\n");
    let is_on = |controlled: &Controlled| controlled.events.rings().is_on();
    for (left, on) in [("count=1", false), ("count=0", false), ("count=0", true)] {
        hit(0x1000, 1);
        assert_eq!(is_on(&controlled), on, "{left}");
        assert!(controlled.commands().starts_with(&std::format!("0x1000:traceoff:{left}\n")), "{left}");
        controlled.events.rings().set_on(true);
    }
    hit(0x2000, 1);
    assert!(!is_on(&controlled), "each function has a count of its own");
    controlled.events.rings().set_on(true);
    assert_eq!(controlled.remove_command(&[0x1000], "traceoff:0"), Ok(()));
    assert_eq!(controlled.commands(), "0x2000:traceoff:count=1\n");
    assert_eq!(controlled.remove_command(&[0x1000], "traceoff"), Err(Errno::Invalid));
    assert_eq!(controlled.remove_command(&[0x1000, 0x2000], "traceoff:7"), Ok(()));
    assert_eq!((controlled.commands().as_str(), registered()), ("", 1));
}

#[test]
fn a_command_enables_an_event_and_records_a_stack() {
    let mut controlled = Controlled::new(&["p:one f x=%x20"]);
    controlled.command(&[0x1000], "enable_event:kprobes:one").unwrap();
    controlled.command(&[0x2000], "stacktrace").unwrap();
    let enabled = |controlled: &Controlled| controlled.events.settings(("kprobes", "one")).unwrap().enabled_text();
    assert_eq!(enabled(&controlled), "0*");
    assert_eq!(remove(&mut controlled.events, "-:none"), Ok(0));
    assert!(controlled.events.is_busy(controlled.events.iter().next().unwrap()));
    hit(0x2000, 1);
    assert_eq!(trace(&controlled.events, 9).matches("<stack trace>").count(), 1);
    hit(0x1000, 2);
    assert_eq!(enabled(&controlled), "1*");
    assert_eq!(controlled.remove_command(&[0x1000], "enable_event:kprobes:one:3"), Err(Errno::Invalid));
    controlled.remove_command(&[0x1000], "enable_event:kprobes:one").unwrap();
    assert_eq!(enabled(&controlled), "1", "the event stays as the command has left it");
    controlled.remove_command(&[0x2000], "stacktrace").unwrap();
}

#[test]
fn a_command_records_no_stack_and_keeps_its_count_while_tracing_is_off() {
    let mut controlled = Controlled::new(&["p:one f"]);
    controlled.command(&[0x1000], "stacktrace:2").unwrap();
    controlled.events.rings().set_on(false);
    hit(0x1000, 1);
    assert_eq!(controlled.commands(), "0x1000:stacktrace:count=2\n");
    controlled.events.rings().set_on(true);
    (0..3).for_each(|_| hit(0x1000, 1));
    assert_eq!(controlled.commands(), "0x1000:stacktrace:count=0\n");
    assert_eq!(trace(&controlled.events, 9).matches("<stack trace>").count(), 2);
}

#[test]
fn no_list_has_an_event_of_commands() {
    let mut controlled = Controlled::new(&["p:one f"]);
    assert!(snapshot(&controlled.events).contains("is freed"));
    controlled.command(&[0x1000], "snapshot").unwrap();
    assert!(snapshot(&controlled.events).contains("is allocated"));
    let Controlled { events } = &mut controlled;
    assert_eq!(events.iter().count(), 1);
    let mut out = String::new();
    events.write_all_definitions(&mut out).unwrap();
    events.write_events(false, &mut out).unwrap();
    assert_eq!(out, "p:kprobes/one f\nkprobes:one\n");
    // Disarming, disabling or removing all events does not change a command.
    events.set_may_be_armed(false).unwrap();
    events.set_enabled(None, None, false).unwrap();
    remove_all(events, None).unwrap();
    assert_eq!(events.set_trigger(("", "0x1000"), "traceon"), Err(Errno::NotFound));
    assert_eq!(controlled.commands(), "0x1000:snapshot:unlimited\n");
    let armed = controlled.events.all().filter(|event| event.is_armed()).count();
    assert_eq!(armed, 1);
}

#[test]
fn a_wrong_command_changes_nothing() {
    let mut controlled = Controlled::new(&["p:one f"]);
    for wrong in
        ["", "trace", "traceoff:x", "traceoff if 1", "hist:keys=x", "!traceoff", "enable_event:kprobes", "mod:x"]
    {
        assert_eq!(controlled.command(&[0x1000], wrong), Err(Errno::Invalid), "{wrong}");
    }
    assert_eq!(controlled.command(&[0x1000], "enable_event:kprobes:none"), Err(Errno::Invalid));
    assert_eq!(controlled.command(&[], "traceoff"), Err(Errno::Invalid));
    assert_eq!((controlled.commands().as_str(), registered()), ("", 1));
    controlled.command(&[0x1000], "traceoff:7").unwrap();
    controlled.command(&[0x1000, 0x2000], "traceoff:9").unwrap();
    assert_eq!(controlled.commands(), "0x1000:traceoff:count=7\n0x2000:traceoff:count=9\n", "what is there stays");
    // As in Linux, a function can have a command with a count and without one, and the opposite.
    controlled.command(&[0x2000], "traceoff").unwrap();
    controlled.command(&[0x2000], "traceon").unwrap();
    let all = "0x1000:traceoff:count=7\n0x2000:traceoff:count=9\n0x2000:traceoff:unlimited\n0x2000:traceon:unlimited\n";
    assert_eq!((controlled.commands().as_str(), registered()), (all, 3));
}

#[test]
fn without_memory_a_command_is_not_set() {
    let mut controlled = Controlled::new(&["p:one f"]);
    let mut allocations = 0;
    while with_memory(allocations, || controlled.command(&[0x1000, 0x2000], "enable_event:kprobes:one")).is_err() {
        assert_eq!((controlled.commands().as_str(), registered()), ("", 1));
        allocations += 1;
    }
    assert!(allocations > 10, "{allocations}");
    assert_eq!(controlled.commands().lines().count(), 2);
}
