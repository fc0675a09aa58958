//! Histograms count, and print as in Linux.

use kprobes_random::assert_tried;
use kprobes_random::tried::{is_tried, tried};

use super::*;
use crate::fetch::{BitRange, Register};
use crate::hit::action::tests::{Hit, ON, RESOURCES};
use crate::symbols::{Function, Symbols};
use crate::trigger::settings::Settings;
use crate::trigger::{Plan, ProbeContext, Request};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;

pub(crate) struct Names;

impl Symbols for Names {
    fn lookup(&self, address: u64) -> Option<Function<'_>> {
        (0x1000..0x1040).contains(&address).then_some(Function { name: "f", address: 0x1000, size: 0x40 })
    }

    fn find<'a>(&'a self, _: &str, _: &mut dyn FnMut(Function<'a>)) {}
}

fn definition(text: &str) -> Result<Definition, Error> {
    Definition::parse(text, 0, Hit::new().fields(), &Scope::NONE, &mut || true).map(Option::unwrap)
}

/// Makes an event with this trigger, and hits it.
fn settings(trigger: &str, hits: impl IntoIterator<Item = Hit>) -> Settings {
    let mut settings = Settings::new(true).unwrap();
    settings.set_trigger(Request::parse(trigger, Hit::new().fields()).unwrap(), RESOURCES, None).unwrap();
    let plan = settings.plan(None, ProbeContext::AT_ENTRY, &|number| number).unwrap().unwrap();
    for hit in hits {
        assert!(plan.run(&hit.record, &hit.state(), &ON).keep);
    }
    settings
}

fn shown(settings: &Settings) -> String {
    let mut text = String::new();
    for trigger in settings.triggers() {
        trigger.histogram().unwrap().write(&mut text, trigger, &Names).unwrap();
    }
    text
}

/// Returns only the entries.
fn entries(trigger: &str, hits: impl IntoIterator<Item = Hit>) -> Vec<String> {
    let text = shown(&settings(trigger, hits));
    text.lines().filter(|line| line.starts_with("{ ")).map(str::to_string).collect()
}

fn hit(x: u64) -> Hit {
    Hit::with(1, -2, x, "t")
}

#[test]
fn a_histogram_as_linux_prints_it() {
    let text =
        shown(&settings("hist:keys=x.log2:vals=u,s.hex:sort=hitcount.descending:size=200", [5, 8, 3, 6].map(hit)));
    assert_eq!(
        text,
        "# event histogram\n#\n# trigger info: hist:keys=x.log2:vals=hitcount,u,s.hex:sort=hitcount.descending:size=256 [active]\n#\n\n\
         { x: ~ 2^3  } hitcount:          3  u:          3  s: fffffffffffffffa\n\
         { x: ~ 2^2  } hitcount:          1  u:          1  s: fffffffffffffffe\n\
         \nTotals:\n    Hits: 4\n    Entries: 2\n    Dropped: 0\n"
    );
}

#[test]
fn keys_are_shown_as_their_modifiers_say() {
    let line = |key: &str, x: u64| entries(&format!("hist:keys={key}"), [hit(x)]).concat();
    let name = |name: &str, width: usize| format!("{name:<width$}");
    assert_tried!(line("x", 300), "{ x:        300 } hitcount:          1");
    assert_tried!(line("x.hex", 300), "{ x: 12c } hitcount:          1");
    assert_tried!(line("x.sym", 0x1004), format!("{{ x: [1004] {} }} hitcount:          1", name("f", 45)));
    assert_tried!(
        line("x.sym-offset", 0x1004),
        format!("{{ x: [1004] {} }} hitcount:          1", name("f+0x4/0x40", 55))
    );
    assert_tried!(line("x.log2", 1000), "{ x: ~ 2^10 } hitcount:          1");
    assert_tried!(line("x.log2", 0), "{ x: ~ 2^0  } hitcount:          1");
    assert_tried!(line("x.log2", 1 << 63), "{ x: ~ 2^63 } hitcount:          1");
    assert_tried!(line("x.log2", (1 << 63) + 1), "{ x: ~ 2^0  } hitcount:          1");
    assert_tried!(line("x.log2", u64::MAX), "{ x: ~ 2^0  } hitcount:          1");
    assert_tried!(line("x.buckets=100", 1234), "{ x: ~ 1200-1299 } hitcount:          1");
    assert_tried!(
        line("common_pid.execname", 0),
        format!("{{ common_pid: {}[         7] }} hitcount:          1", name("main", 16))
    );
    assert_tried!(line("t", 0), format!("{{ t: {} }} hitcount:          1", name("t", 50)));
    assert_tried!(line("comm", 0), format!("{{ comm: {} }} hitcount:          1", name("main", 50)));
    assert_tried!(line("u,common_cpu", 0), "{ u:          1, common_cpu:          2 } hitcount:          1");
    let text = shown(&settings("hist:keys=stacktrace,u", [hit(0)]));
    assert!(
        text.contains("{ common_stacktrace:\n         f+0x0/0x40\n, u:          1} hitcount:          1\n"),
        "{text}"
    );
}

/// The CPU is shown under the name with which it was typed.
#[test]
fn a_cpu_is_a_key_and_a_value() {
    for name in ["cpu", "CPU", "common_cpu"] {
        assert_eq!(
            entries(&format!("hist:keys={name}"), [hit(1)]),
            [format!("{{ {name}:          2 }} hitcount:          1")]
        );
        assert_eq!(
            entries(&format!("hist:keys={name}:vals={name}:sort={name}"), [hit(1)]),
            [format!("{{ {name}:          2 }} hitcount:          1  {name}:          2")]
        );
    }
}

#[test]
fn values_are_shown_as_parts_and_bars() {
    let hits = || [1, 1, 1, 2].map(hit);
    assert_tried!(
        entries("hist:keys=x:vals=hitcount.percent,x.graph", hits()),
        [
            "{ x:          2 } hitcount:          1  hitcount (%):  25.00  x: #############       ",
            "{ x:          1 } hitcount:          3  hitcount (%):  75.00  x: ####################",
        ]
    );
    assert_tried!(
        entries("hist:keys=x:vals=hitcount,x.percent,hitcount:sort=x:nohitcount", hits()),
        [
            "{ x:          2 }  x (%):  40.00  hitcount:          1",
            "{ x:          1 }  x (%):  60.00  hitcount:          3"
        ]
    );
    assert_tried!(
        entries("hist:keys=x:vals=x.graph,x.percent", [hit(0)]),
        [format!("{{ x:          0 }} hitcount:          1  x: {:20}  x (%):   0.00", "")]
    );
}

#[test]
fn entries_are_sorted_by_hits_and_by_what_is_asked_for() {
    let hits = || [(9, 1), (9, 1), (7, 5), (8, 1)].map(|(x, u)| Hit::with(u, 0, x, ""));
    let order = |sort: &str| {
        let lines = entries(&format!("hist:keys=x:vals=u{sort}"), hits());
        lines.iter().map(|line| line.trim_start_matches("{ x:").trim_start()[..1].to_string()).collect::<String>()
    };
    assert_tried!(order(""), "789");
    assert_tried!(order(":sort=hitcount.descending"), "978");
    assert_tried!(order(":sort=x.descending"), "987");
    assert_tried!(order(":sort=u.ascending"), "897");
    assert_tried!(order(":sort=u.descending,x"), "798");
    assert_tried!(entries("hist:keys=s:sort=s", [3, -1].map(|s| Hit::with(0, s, 0, ""))).len(), 2);
    assert!(entries("hist:keys=s:sort=s", [3, -1].map(|s| Hit::with(0, s, 0, "")))[0].contains("18446744073709551615"));
}

/// Long texts that differ at their ends are different keys, up to the length that a filter can compare.
#[test]
fn long_texts_are_keys_of_their_own() {
    let hits = ["b", "c"].map(|end| Hit::with(1, 0, 0, &("a".repeat(crate::filter::STRING_LIMIT - 2) + end)));
    assert_tried!(entries("hist:keys=t", hits).len(), 2);
}

#[test]
fn the_tables_of_cpus_are_merged_and_what_has_no_room_is_counted() {
    let hits = (0..4).map(|cpu| {
        let mut hit = hit(5);
        hit.context.cpu = cpu;
        hit
    });
    assert_tried!(entries("hist:keys=x", hits), ["{ x:          5 } hitcount:          4"]);
    if is_tried() {
        let text = shown(&settings("hist:keys=x:size=128", (0..130).chain(0..130).map(hit)));
        assert!(text.ends_with("\nTotals:\n    Hits: 256\n    Entries: 128\n    Dropped: 4\n"), "{text}");
    }
    let mut elsewhere = hit(5);
    elsewhere.context.cpu = 9;
    assert!(shown(&settings("hist:keys=x", [elsewhere])).ends_with("Hits: 0\n    Entries: 0\n    Dropped: 0\n"));
}

/// A histogram of registers and parts of them counts the same on the fast path, which looks at nothing else, as from
/// records.
#[test]
fn registers_are_counted_alike_where_nothing_else_is_looked_at() {
    let part = |low, bits, signed| {
        let bits = BitRange::new(low, bits, signed).unwrap();
        Number::Register(RegisterPart { register: Register::x(5).unwrap(), bits })
    };
    let word = |number| match number {
        Number::Field { size: 8, signed, .. } => part(0, 64, signed),
        Number::Field { size: 4, signed, offset, .. } if offset > 8 => part(8, 32, signed),
        other => other,
    };
    let settings = |trigger: &str, enabled: bool, number: &dyn Fn(Number) -> Number| {
        let mut settings = Settings::new(enabled).unwrap();
        settings.set_trigger(Request::parse(trigger, Hit::new().fields()).unwrap(), RESOURCES, None).unwrap();
        let plan = settings.plan(None, ProbeContext::AT_ENTRY, number).unwrap().unwrap();
        (settings, plan)
    };
    let tallies = |plan: &Plan, x: u64, cpu: usize| {
        let mut hit = hit(x);
        hit.frame.x[5] = x;
        plan.tallies(hit.state().registers, cpu)
    };
    for trigger in tried([
        "hist:keys=x:vals=x,s:size=512",
        "hist:keys=s:vals=x.hex",
        "hist:keys=x.log2:vals=x",
        "hist:keys=x.buckets=10",
        "hist:keys=x:size=128",
    ]) {
        let (quickly, quick) = settings(trigger, false, &word);
        let (otherwise, plan) = settings(trigger, false, &|number| number);
        for x in (0..200).chain(50..150).step_by(if cfg!(miri) { 23 } else { 1 }).chain([0x00ff_ffff_fe03, u64::MAX]) {
            let cpu = x as usize % 6;
            assert!(tallies(&quick, x, cpu));
            let mut hit = Hit::with(1, (x >> 8) as i32, x, "");
            hit.context.cpu = cpu;
            plan.run(&hit.record, &hit.state(), &ON);
        }
        assert_eq!(shown(&quickly), shown(&otherwise), "{trigger}");
        let least = if trigger.contains("keys=s") {
            1
        } else if cfg!(miri) {
            3
        } else {
            8
        };
        assert!(shown(&quickly).lines().filter(|line| line.starts_with("{ ")).count() > least);
    }
    for (trigger, enabled) in tried([
        ("hist:keys=x", true),
        ("hist:keys=x if x == 1", false),
        ("hist:keys=x,x", false),
        ("hist:keys=u", false),
        ("hist:keys=x:vals=u", false),
        ("hist:keys=common_pid.execname", false),
        ("stacktrace", false),
    ]) {
        assert!(!tallies(&settings(trigger, enabled, &word).1, 1, 0), "{trigger}");
    }
}

#[test]
fn a_histogram_is_paused_continued_and_cleared() {
    let mut settings = settings("hist:keys=x:pause if u == 1", [hit(1)]);
    let count = |settings: &Settings, x: u64| {
        let hit = hit(x);
        settings.plan(None, ProbeContext::AT_ENTRY, &|number| number).unwrap().unwrap().run(
            &hit.record,
            &hit.state(),
            &ON,
        );
    };
    let entries = |settings: &Settings| shown(settings).lines().filter(|line| line.starts_with("{ ")).count();
    let request = |trigger: &str| Request::parse(trigger, Hit::new().fields()).unwrap();
    let set = |settings: &mut Settings, trigger: &str| settings.set_trigger(request(trigger), RESOURCES, None);
    let pause = |settings: &Settings, trigger: &str| {
        let (trigger, paused) = settings.pausing(&request(trigger)).unwrap();
        trigger.set_paused(paused);
    };
    assert!(shown(&settings).contains("if u == 1 [paused]\n"));
    assert_tried!(entries(&settings), 0);
    pause(&settings, "hist:keys=x:cont if u == 1");
    count(&settings, 1);
    assert_tried!(entries(&settings), 1);
    pause(&settings, "hist:keys=x:pause if u == 1");
    let histogram = settings.histogram(&request("hist:keys=x:clear if u == 1")).unwrap().clone();
    assert!(settings.replace_histogram(&histogram, &RESOURCES.cleared(&histogram).unwrap()).unwrap());
    assert!(shown(&settings).contains("if u == 1 [paused]\n"));
    pause(&settings, "hist:keys=x:cont if u == 1");
    assert_tried!(entries(&settings), 0);
    count(&settings, 1);
    count(&settings, 2);
    assert_tried!(entries(&settings), 2);
    let problem = |result| match result {
        Err(crate::trigger::settings::SetError::Histogram(problem)) => Some(problem),
        _ => None,
    };
    assert_eq!(problem(set(&mut settings, "hist:keys=x if u == 1")), Some(Problem::Exists));
    assert_eq!(problem(set(&mut settings, "hist:keys=x:clear")), Some(Problem::NotThere));
    assert_eq!(problem(set(&mut settings, "hist:keys=x:cont:pause")), Some(Problem::NotThere));
    // As in Linux, the order in which commands are given is irrelevant.
    for both in ["pause:cont", "cont:pause", "clear:pause:continue"] {
        pause(&settings, "hist:keys=x:cont if u == 1");
        pause(&settings, &format!("hist:keys=x:{both} if u == 1"));
        assert!(shown(&settings).contains("if u == 1 [paused]\n"), "{both}");
    }
    for both in ["clear:cont", "cont:clear"] {
        pause(&settings, "hist:keys=x:pause if u == 1");
        pause(&settings, &format!("hist:keys=x:{both} if u == 1"));
        assert!(shown(&settings).contains("if u == 1 [active]\n"), "{both}");
    }
    assert_tried!(entries(&settings), 2);
    set(&mut settings, "hist:keys=x").unwrap();
    assert_eq!(settings.triggers().len(), 2);
    assert!(settings.remove_trigger(&Request::parse("!hist:keys=x", Hit::new().fields()).unwrap()).is_some());
    settings.remove_histograms(false);
    assert_eq!(settings.triggers().len(), 0);
}

#[test]
fn definitions_print_as_they_can_be_typed() {
    for (typed, printed) in tried([
        ("key=u", "keys=u:vals=hitcount:sort=hitcount:size=2048"),
        ("keys=u,s,x:values=x", "keys=u,s,x:vals=hitcount,x:sort=hitcount:size=2048"),
        ("keys=x.log2:sort=x.log2.descending:size=129", "keys=x.log2:vals=hitcount:sort=x.log2.descending:size=256"),
        (
            "keys=x.buckets=8:val=hitcount,u.hex:sort=u,x",
            "keys=x.buckets=8:vals=hitcount,u.hex:sort=u.hex,x.buckets=8:size=2048",
        ),
        ("keys=x.bucket=0x10:size=0x100", "keys=x.buckets=16:vals=hitcount:sort=hitcount:size=256"),
        ("keys=x.buckets=010:size=0400", "keys=x.buckets=8:vals=hitcount:sort=hitcount:size=256"),
        (
            "name=all:keys=u:vals=x.percent,hitcount.graph:nohitcount",
            "name=all:keys=u:vals=x.percent,hitcount.graph:sort=hitcount:size=2048:nohitcount",
        ),
        ("keys=u:vals=hitcount,hitcount", "keys=u:vals=hitcount,hitcount:sort=hitcount:size=2048"),
        ("keys=STACKTRACE", "keys=common_stacktrace:vals=hitcount:sort=hitcount:size=2048"),
        ("keys=stacktrace", "keys=common_stacktrace:vals=hitcount:sort=hitcount:size=2048"),
        ("keys=cpu:sort=cpu", "keys=common_cpu:vals=hitcount:sort=common_cpu:size=2048"),
        ("keys=u:vals=cpu:sort=cpu", "keys=u:vals=hitcount,common_cpu:sort=common_cpu:size=2048"),
        ("keys=u:v=CPU,w=cpu+CPU", "keys=u:vals=hitcount:v=common_cpu,w=cpu+CPU:sort=hitcount:size=2048"),
        ("keys=u:clock=nosuch", "keys=u:vals=hitcount:sort=hitcount:size=2048"),
        ("keys=cpu,common_pid.execname", "keys=common_cpu,common_pid.execname:vals=hitcount:sort=hitcount:size=2048"),
    ]) {
        assert_eq!(definition(typed).unwrap().to_string(), printed);
        assert_eq!(definition(printed).unwrap().to_string(), printed);
    }
}

#[test]
fn what_is_wrong_is_pointed_at() {
    let refused = |text: &str| {
        let error = definition(text).expect_err(text);
        (error.problem, error.column)
    };
    assert_tried!(refused("vals=u"), (Problem::NoKeys, 0));
    assert_tried!(refused("keys=u,s,x,t"), (Problem::TooManyKeys, 0));
    assert_tried!(refused("keys=u:vals=u,s,x"), (Problem::TooManyValues, 0));
    assert_tried!(refused("keys=u,nofield"), (Problem::FieldNotFound, 7));
    assert_tried!(refused("keys=u:vals=nofield"), (Problem::FieldNotFound, 12));
    assert_tried!(refused("keys=u.nomod"), (Problem::BadModifier, 7));
    // As in Linux, the caret is where the text of the cause first occurs: here what is left of the modifier.
    for (modifier, column) in [
        ("buckets=0", 15),
        ("bucket=0x0", 14),
        ("buckets=0x", 15),
        ("bucket=08", 14),
        ("buckets", 0),
        ("bucketss=1", 14),
        ("bucks=1", 7),
    ] {
        assert_eq!(refused(&format!("keys=u.{modifier}")), (Problem::BadModifier, column), "{modifier}");
    }
    assert_tried!(refused("keys=u:sort=y"), (Problem::InvalidSortField, 2));
    assert_tried!(refused("keys=u:vals=e"), (Problem::FieldNotFound, 1));
    assert_tried!(refused("keys=u:lat=x.log2"), (Problem::BadModifier, 11));
    assert_tried!(refused("keys=x.buckets=8:lat=x.buckets=8"), (Problem::BadModifier, 5));
    assert_tried!(refused("keys=u.execname"), (Problem::BadModifier, 7));
    assert_tried!(refused("keys=t.log2"), (Problem::BadModifier, 7));
    for modifier in ["percent", "graph", "stacktrace"] {
        assert_eq!(refused(&format!("keys=u.{modifier}")), (Problem::BadModifier, 7));
        assert_eq!(refused(&format!("keys=s:lat=u.{modifier}")), (Problem::BadModifier, 13));
    }
    assert_tried!(refused("keys=u:nohitcount"), (Problem::NeedsValue, 0));
    assert_tried!(refused("keys=u:vals=hitcount:NOHC"), (Problem::NeedsValue, 0));
    assert_tried!(refused("keys=u,$s"), (Problem::ReferenceInKey, 7));
    assert_tried!(refused("keys=u:vals=x.log2"), (Problem::BadModifier, 12));
    assert_tried!(refused("keys=u:vals=t"), (Problem::TextOperand, 12));
    assert_tried!(refused("keys=u:sort="), (Problem::EmptyAssignment, 7));
    assert_tried!(refused("keys=u:lat=s,3"), (Problem::MalformedAssignment, 13));
    assert_tried!(refused("keys=u:size=127x"), (Problem::BadSize, 12));
    assert_tried!(refused("keys=u:size=64"), (Problem::BadSize, 12));
    assert_tried!(refused("keys=u:size=131073"), (Problem::BadSize, 12));
    assert_tried!(refused("keys=u:onmatch(x)"), (Problem::NoSubsystem, 15));
    assert_tried!(refused("keys=u:onmatch(y.x)"), (Problem::NoAction, 0));
    assert_tried!(refused("keys=u:onmiss(x)"), (Problem::UnknownParameter, 7));
    assert_tried!(refused("keys=u:sort=u,"), (Problem::EmptySortField, 7));
    assert_tried!(refused("keys=u:sort=.descending"), (Problem::EmptySortField, 7));
    assert_tried!(refused("keys=u:sort=u,,x"), (Problem::EmptySortField, 7));
    assert_tried!(refused("keys=u:sort=u,u,u"), (Problem::TooManySortFields, 7));
    assert_tried!(refused("keys=u:sort=u,nofield,u"), (Problem::TooManySortFields, 7));
    assert_tried!(refused("keys=u:sort=x"), (Problem::InvalidSortField, 12));
    assert_tried!(refused("keys=u:sort=x.up"), (Problem::InvalidSortField, 12));
    assert_tried!(refused("keys=u:sort=u.up"), (Problem::InvalidSortModifier, 14));
    assert_tried!(refused("keys=u:sort=hitcount.up"), (Problem::InvalidSortModifier, 21));
    assert_tried!(refused("keys=u.log2:sort=u.log2.up"), (Problem::InvalidSortModifier, 19));
}

#[test]
fn what_linux_does_not_log_is_not_logged() {
    for text in tried(["vals=u", "keys=u,s,x,t", "keys=u:vals=u,s,x", "keys=u:size=64", "keys=u:onmiss(x)", "keys=u:x"])
    {
        assert!(!definition(text).expect_err(text).problem.is_logged(), "{text}");
    }
    assert!(definition("keys=u:onmatch(y.x)").unwrap_err().problem.is_logged());
}

/// `trace` has the name of its event besides its parameters.
#[test]
fn an_action_takes_at_most_64_parameters() {
    let problem = |action: &str, first: &str, count: usize| {
        let parameters = vec!["common_pid"; count].join(",");
        let text = format!("keys=u:vv=s:onmax($vv).{action}({first}{parameters})");
        definition(&text).err().map(|error| (error.problem, error.column))
    };
    assert_eq!(problem("save", "", 64), None);
    assert_eq!(problem("save", "", 65), Some((Problem::TooManyParameters, 0)));
    assert_eq!(problem("save", "", 66), Some((Problem::TooManyParameters, 0)));
    for (action, first) in [("late", ""), ("trace", "late,")] {
        let unknown = problem(action, first, 64).map(|(problem, _)| problem);
        assert_eq!(unknown, Some(Problem::SyntheticNotFound), "{action}");
        assert_eq!(problem(action, first, 65), Some((Problem::TooManyParameters, 0)), "{action}");
    }
    let crowded = format!("{}x", "common_pid,".repeat(64));
    assert_eq!(problem("save", &crowded, 0), Some((Problem::TooManyParameters, 0)), "before it is looked at");
}
