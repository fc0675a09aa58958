//! Instances, which have the definitions of the main trace.

use super::*;

impl Controlled {
    fn copy_definitions(&mut self, main: &Self) {
        self.events.copy_definitions(&main.events, &Names).unwrap();
    }

    fn listed(&self) -> String {
        let mut out = String::new();
        self.events.write_all_definitions(&mut out).unwrap();
        out
    }
}

fn main() -> Controlled {
    let mut main = Controlled::new(&["p:one f x=%x20", "r:g/back f $retval", "p:one a::b x=%x20", "e:on g.back $arg1"]);
    main.synthetic("lat u64 a; char[16] b");
    main
}

#[test]
fn an_instance_has_the_definitions_of_the_main_trace() {
    let (mut main, mut instance) = (main(), Controlled::new(&[]));
    instance.copy_definitions(&main);
    assert_eq!(instance.listed(), main.listed());
    let numbers = |of: &Controlled| of.events.iter().map(Event::number).collect::<Vec<_>>();
    assert_eq!(numbers(&instance), numbers(&main));
    assert!(instance.events.iter().all(|event| !event.is_armed()));
    let count = registered();
    instance.copy_definitions(&main);
    assert_eq!(registered(), count, "nothing has changed, so nothing is defined anew");
    // An event that is defined anew is another event, although it is listed in the same way.
    instance.events.set_filter(("g", "back"), "arg1 == 1").unwrap();
    remove(&mut main.events, "-:on").unwrap();
    remove(&mut main.events, "-:g/back").unwrap();
    main.define("r:g/back a::b<c, d> $retval");
    main.define("e:on g.back $arg1");
    instance.copy_definitions(&main);
    let addresses = |of: &Controlled| {
        let mut all: Vec<_> = of.events.iter().map(|event| (event.number(), event.address())).collect();
        all.sort();
        all
    };
    assert_eq!(addresses(&instance), addresses(&main));
    assert!(instance.events.settings(("g", "back")).is_none(), "its filter is gone with the old one");
    // An event that is enabled in the instance gets its further probes there, too.
    instance.events.set_enabled(None, Some("one"), true).unwrap();
    main.define("p:one f+4 x=%x20");
    remove(&mut main.events, "-:one f").unwrap();
    main.synthetic("more int a");
    instance.copy_definitions(&main);
    let lines = |text: String| {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(instance.listed()), lines(main.listed()));
    let armed: Vec<u64> = instance.events.iter().filter(|event| event.is_armed()).map(Event::address).collect();
    assert_eq!(armed, [0x2000, 0x1004]);
    hit(0x1004, 7);
    // Definitions that the main trace no longer has are removed, even if the instance uses them.
    remove_all(&mut main.events, None).unwrap();
    main.events.remove_synthetic(None, &|_| false).unwrap();
    instance.copy_definitions(&main);
    assert_eq!((instance.listed().as_str(), registered()), ("", 0));
    assert!(trace(&instance.events, 9).contains(" one: "), "its records stay");
}

#[test]
fn an_instance_forgets_removed_events_without_records() {
    let (mut main, mut instance) = (main(), Controlled::new(&[]));
    instance.copy_definitions(&main);
    remove_all(&mut main.events, None).unwrap();
    instance.copy_definitions(&main);
    assert!(instance.events.removed.is_empty());
}

#[test]
fn without_memory_an_instance_follows_as_far_as_it_can() {
    let (main, mut instance) = (main(), Controlled::new(&[]));
    let mut allocations = 0;
    let mut copy = |allocations| with_memory(allocations, || instance.events.copy_definitions(&main.events, &Names));
    while copy(allocations).is_err() {
        allocations += if cfg!(miri) { 1 + allocations } else { 1 };
    }
    assert!(allocations > 10, "{allocations}");
    assert_eq!(instance.listed(), main.listed());
}
