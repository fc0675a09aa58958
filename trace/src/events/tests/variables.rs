//! Histograms of two events with the same keys, connected by variables.

use core::sync::atomic::Ordering;

use kprobes_random::tried::tried;

use super::*;
use crate::definition::synthetic;
use crate::errno::Errno;

/// Makes two events, `first` and `second`, both with the numbers x and y.
fn pair() -> Controlled {
    Controlled::new(&["p:g/first f x=%x0 y=%x1", "p:g/second f+4 x=%x0 y=%x1"])
}

impl Controlled {
    fn trigger(&mut self, event: &str, text: &str) -> Result<(), Errno> {
        self.events.set_trigger(("g", event), text)
    }

    /// Returns what the log has for a refused trigger: each problem, and the text above its caret.
    fn refused(&mut self, event: &str, text: &str) -> Vec<String> {
        self.refused_with(event, text, Errno::Invalid)
    }

    fn refused_with(&mut self, event: &str, text: &str, errno: Errno) -> Vec<String> {
        self.events.clear_problems();
        assert_eq!(self.trigger(event, text), Err(errno), "{text}");
        let mut log = String::new();
        self.events.problems().write(&mut log).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        let shown = lines.chunks(3).map(|entry| {
            let problem = entry[0].split("error: ").nth(1).unwrap();
            assert!(entry[0].contains(&format!("hist:g:{event}: ")), "{log}");
            format!("{problem} ^{}", &entry[1][entry[2].len() - 1..])
        });
        shown.collect()
    }

    fn triggers(&self, event: &str) -> String {
        let mut text = String::new();
        self.events.settings(("g", event)).unwrap().write_triggers(&mut text).unwrap();
        text
    }

    /// Returns the lines of the entries of all histograms.
    fn entries(&self, event: &str) -> Vec<String> {
        let mut text = String::new();
        let triggers = self.events.settings(("g", event)).unwrap().triggers();
        for (trigger, histogram) in triggers.iter().filter_map(|trigger| Some((trigger, trigger.histogram()?))) {
            histogram.write(&mut text, trigger, &Names).unwrap();
        }
        text.lines().filter(|line| line.starts_with("{ ")).map(ToString::to_string).collect()
    }

    /// Hits an event on a CPU, at a time in microseconds, with these numbers.
    fn hit(&self, event: &str, cpu: usize, time: u64, numbers: [u64; 2]) {
        self.hit_from(0, event, cpu, time, numbers);
    }

    /// Hits an event as `hit` does, with the address `caller` in x30.
    fn hit_from(&self, caller: u64, event: &str, cpu: usize, time: u64, numbers: [u64; 2]) {
        let event = self.events.iter().find(|other| other.definition().event == event).unwrap();
        let mut frame = TrapFrame::default();
        frame.x[..2].copy_from_slice(&numbers);
        frame.x[30] = caller;
        let name = [u64::from_le_bytes(*b"main\0\0\0\0"), 0];
        let context = Context { cpu, task: 7, name, time };
        let address = event.address();
        let hit = RecordedHit { context, address, return_address: None, entry: &[], is_caller_in_x30: false };
        // SAFETY: only this thread uses the ring, and the hit fits a probe on an instruction.
        unsafe { event.recorder().record(Registers::Frame(&frame), &hit) };
    }
}

#[test]
fn a_trigger_with_variables_is_shown_as_linux_shows_it() {
    let mut pair = pair();
    pair.trigger("first", "hist:keys=x:ts0=common_timestamp.usecs,n=y if y > 1").unwrap();
    assert_eq!(
        pair.triggers("first"),
        "hist:keys=x:vals=hitcount:ts0=common_timestamp.usecs,n=y:sort=hitcount:size=2048:clock=global if y > 1 [active]\n"
    );
    let lines = [
        ("lat=common_timestamp.usecs-$ts0", "lat=common_timestamp.usecs-$ts0:sort=hitcount:size=2048:clock=global"),
        (
            "q=common_timestamp.usecs-g.first.$ts0",
            "q=common_timestamp.usecs-$g.first.ts0:sort=hitcount:size=2048:clock=global",
        ),
        ("a=$n", "a=$n:sort=hitcount:size=2048"),
        ("aa=g.first.$n", "aa=$g.first.n:sort=hitcount:size=2048"),
        ("t=$ts0", "t=$ts0.usecs:sort=hitcount:size=2048"),
        ("b=-(x+y)", "b=-(x+y):sort=hitcount:size=2048"),
        ("c=2+3*4,d=x*y/3", "c=14,d=x*y/3:sort=hitcount:size=2048"),
        ("e=common_cpu:f=$e", "e=common_cpu,f=common_cpu:sort=hitcount:size=2048"),
        ("h=x.sym-offset", "h=x.sym-offset:sort=hitcount:size=2048"),
    ];
    for (typed, shown) in lines {
        pair.trigger("second", &format!("hist:keys=x:{typed}")).unwrap();
        let all = pair.triggers("second");
        assert_eq!(all.lines().last().unwrap(), format!("hist:keys=x:vals=hitcount:{shown} [active]"));
    }
    pair.trigger("second", "hist:keys=common_timestamp:vals=x-y,common_timestamp,$n:sort=x-y").unwrap_err();
    pair.trigger("second", "hist:keys=common_timestamp:vals=x-y,$n:sort=n").unwrap();
    assert_eq!(
        pair.triggers("second").lines().last().unwrap(),
        "hist:keys=common_timestamp:vals=hitcount,x-y,$n:sort=$n:size=2048:clock=global [active]"
    );
}

/// The file `hist` of an event ends with why its last histogram was refused, until there is another one.
#[test]
fn a_refused_histogram_is_an_error_of_its_event() {
    let mut pair = pair();
    let shown = |pair: &Controlled, event| {
        let mut text = String::new();
        pair.events.write_refused(("g", event), &mut text).unwrap();
        text
    };
    let line = "hist:keys=x:ts0=common_timestamp.usecs if comm==\"ping\"";
    pair.trigger("first", line).unwrap();
    assert_eq!(shown(&pair, "first"), "");
    pair.trigger("first", line).unwrap_err();
    let expected = format!("\nERROR: Variable already defined\n  Last command: {line}\n");
    assert_eq!((shown(&pair, "first"), shown(&pair, "second")), (expected.clone(), String::new()));
    pair.trigger("second", "hist:keys=x").unwrap();
    pair.trigger("first", "stacktrace").unwrap();
    assert_eq!(shown(&pair, "first"), expected, "these are no histograms of the event");
    pair.trigger("second", "hist:keys=y:v=gone").unwrap_err();
    assert_eq!(shown(&pair, "first"), expected);
    assert!(shown(&pair, "second").contains("hist:keys=y:v=gone\n"));
    pair.trigger("first", "hist:keys=y:v=gone").unwrap_err();
    assert!(shown(&pair, "first").contains("hist:keys=y:v=gone\n"));
    pair.trigger("first", "hist:keys=y").unwrap();
    assert_eq!(shown(&pair, "first"), "");
}

#[test]
fn what_is_wrong_with_a_variable_is_logged_as_linux_logs_it() {
    let mut pair = pair();
    pair.trigger("first", "hist:keys=x:ts0=common_timestamp.usecs").unwrap();
    pair.trigger("second", "hist:keys=x:v=y").unwrap();
    let cases: [(&str, &[&str]); 13] = [
        ("hist:keys=y:ts0=y", &["Variable already defined ^ts0=y"]),
        ("hist:keys=y:new=y,ts0=y:pause", &["Variable already defined ^ts0=y:pause"]),
        ("hist:keys=y:a=x,a=y", &["Variable already defined ^a=x,a=y"]),
        ("hist:keys=y:a=x-$gone", &["Couldn't find variable ^gone", "Couldn't find field ^$gone"]),
        ("hist:keys=y:a=x,", &["Malformed assignment ^hist:keys=y:a=x,"]),
        ("hist:keys=y:a=", &["Empty assignment ^a="]),
        ("hist:keys=y:a=x+gone", &["Couldn't find field ^gone"]),
        ("hist:keys=y:a=x+x+x+x+x", &["Too many subexpressions (3 max) ^x+x+x+x+x"]),
        (
            "hist:keys=y:a=x-common_timestamp.usecs",
            &["Timestamp units in expression don't match ^hist:keys=y:a=x-common_timestamp.usecs"],
        ),
        ("hist:keys=y:t=x,t=y", &["Variable already defined ^t:keys=y:t=x,t=y"]),
        ("hist:keys=y:a=1x", &["Expecting numeric literal ^1x"]),
        ("hist:keys=y:a=-(x)+y", &["Unary minus not supported in sub-expressions ^x)+y"]),
        ("hist:keys=common_timestamp:clock=no", &["Couldn't set trace_clock ^no"]),
    ];
    for (text, expected) in cases {
        assert_eq!(pair.refused("first", text), expected, "{text}");
    }
    assert_eq!(pair.refused_with("first", "hist:keys=y:a=x/0", Errno::Domain), ["Division by zero ^0"]);
    // As in Linux, the clock is not looked at without times, and the fields are looked at before the filter.
    pair.trigger("first", "hist:keys=y:clock=no").unwrap();
    let both_wrong = "hist:keys=junk if nofield == 1";
    assert_eq!(pair.refused("first", both_wrong), ["Couldn't find field ^junk if nofield == 1"]);
    pair.events.clear_problems();
    pair.trigger("first", "hist:keys=y:a=x:onmax($gone).save(y) if nofield == 1").unwrap_err();
    let mut log = String::new();
    pair.events.problems().write(&mut log).unwrap();
    assert!(log.contains("Field not found") && !log.contains("onmax or"), "the filter is before the actions: {log}");
    pair.trigger("first", "hist:keys=y:v=y").unwrap();
    let not_unique = "Variable name not unique, need to use fully qualified name (subsys.event.var) for variable ^v";
    assert_eq!(
        pair.refused("first", "hist:keys=y,x:w=$v"),
        [not_unique.to_string(), "Couldn't find variable ^v".into(), "Couldn't find field ^$v".into()]
    );
    pair.synthetic("late u64 lat");
    assert_eq!(
        pair.refused("first", "hist:keys=y:o=x:onmax($o).late($v)"),
        [format!("{not_unique})"), "Couldn't find param ^v)".into()]
    );
}

/// As in Linux, only a new histogram needs the clock, which is set after all other checks.
#[test]
fn an_unknown_clock_is_refused_last() {
    const EXISTS: &str = "Hist trigger already exists";
    let mut pair = pair();
    let unknown = "hist:keys=common_timestamp:clock=no";
    assert_eq!(pair.refused("first", unknown), ["Couldn't set trace_clock ^no"]);
    assert_eq!(pair.refused("first", &format!("{unknown}:pause")), ["Couldn't set trace_clock ^no:pause"]);
    pair.events.settings(("g", "first")).into_iter().for_each(|settings| assert!(settings.triggers().is_empty()));
    pair.refused_with("first", &format!("{unknown}:clear"), Errno::NotFound);
    pair.trigger("first", &format!("!{unknown}")).unwrap();
    pair.trigger("first", "hist:keys=common_timestamp").unwrap();
    let exists = pair.refused_with("first", unknown, Errno::Exists);
    assert!(exists[0].starts_with(EXISTS), "{exists:?}");
    for command in ["pause", "cont", "clear"] {
        pair.trigger("first", &format!("{unknown}:{command}")).unwrap();
    }
    pair.trigger("first", &format!("!{unknown}")).unwrap();
    assert!(pair.events.settings(("g", "first")).unwrap().triggers().is_empty());
    pair.trigger("first", "hist:name=shared:keys=common_timestamp").unwrap();
    let mismatch = pair.refused("second", "hist:name=shared:keys=common_timestamp,x:clock=no");
    assert!(mismatch[0].starts_with("Named hist trigger doesn't match"), "{mismatch:?}");
}

#[test]
fn only_one_action_takes_snapshots() {
    let mut pair = pair();
    pair.trigger("first", "hist:keys=x:v=y:onmax($v).snapshot()").unwrap();
    assert_eq!(pair.trigger("second", "hist:keys=x:w=y:onmax($w).snapshot()"), Err(Errno::Busy));
    for number in 0..3 {
        assert_eq!(pair.events.set_snapshot(number), Err(Errno::Busy));
        assert_eq!(pair.events.set_snapshot_of(0, number), Err(Errno::Busy));
    }
    pair.trigger("first", "!hist:keys=x:v=y:onmax($v).snapshot()").unwrap();
    pair.events.set_snapshot(1).unwrap();
    let both = "hist:keys=x:w=y:onmax($w).snapshot():onchange($w).snapshot()";
    assert_eq!(pair.trigger("second", both), Err(Errno::Busy));
    pair.trigger("second", "hist:keys=x:w=y:onmax($w).snapshot()").unwrap();
    pair.trigger("second", "!hist:keys=x:w=y:onmax($w).snapshot()").unwrap();
    let named = "hist:name=shared:keys=x:w=y:onmax($w).snapshot()";
    pair.trigger("first", named).unwrap();
    assert_eq!(pair.trigger("second", named), Err(Errno::Busy), "a shared histogram counts twice");
    let other = "hist:name=shared:keys=y:w=y:onmax($w).snapshot()";
    assert_eq!(pair.trigger("second", other), Err(Errno::Busy), "the name is compared later");
}

/// A variable is set on one CPU and read on another, under the same key, once.
#[test]
fn the_time_between_two_events_is_summed_up() {
    let mut pair = pair();
    pair.trigger("first", "hist:keys=x:ts0=common_timestamp.usecs").unwrap();
    pair.trigger("second", "hist:keys=y:vals=common_timestamp.usecs-$ts0,x:lat=common_timestamp.usecs").unwrap();
    pair.hit("second", 0, 90, [0, 5]);
    assert_eq!(pair.entries("second"), [""; 0], "there is no such key yet");
    pair.hit("first", 0, 100, [5, 0]);
    pair.hit("second", 1, 130, [2, 5]);
    pair.hit("second", 1, 140, [2, 5]);
    assert_eq!(pair.entries("second"), ["{ y:          5 } hitcount:          1  x:          2"], "read once");
    pair.hit("first", 1, 200, [5, 0]);
    pair.hit("second", 0, 207, [2, 5]);
    assert_eq!(pair.entries("second"), ["{ y:          5 } hitcount:          2  x:          4"]);
    assert_eq!(pair.entries("first"), ["{ x:          5 } hitcount:          2"]);
    let second = pair.events.settings(("g", "second")).unwrap().triggers()[0].histogram().unwrap();
    assert_eq!(second.read().unwrap().entries[0][2], 30 + 7, "the sum of both");
    assert_eq!(pair.trigger("first", "!hist:keys=x:ts0=common_timestamp.usecs"), Err(Errno::Busy));
    pair.trigger("first", "enable_hist:g:second").unwrap();
    pair.trigger("first", "stacktrace").unwrap();
    pair.events.remove_histograms(("g", "first")).unwrap();
    assert_eq!(pair.entries("first").len(), 1, "as it is referred to");
    assert!(!pair.triggers("first").contains("enable_hist") && pair.triggers("first").contains("stacktrace"));
    pair.trigger("first", "hist:keys=x:ts0=common_timestamp.usecs:clear").unwrap();
    assert_eq!(pair.entries("first"), [""; 0]);
    pair.hit("first", 0, 300, [5, 0]);
    pair.hit("second", 0, 301, [2, 5]);
    assert_eq!(pair.entries("second"), ["{ y:          5 } hitcount:          3  x:          6"]);
    pair.events.remove_histograms(("g", "second")).unwrap();
    pair.trigger("first", "!hist:keys=x:ts0=common_timestamp.usecs").unwrap();
}

/// While a histogram is being cleared, its variables may be half cleared. A hit of another event does not read them.
#[test]
fn a_histogram_that_is_being_cleared_has_no_variables() {
    let mut pair = pair();
    pair.trigger("first", "hist:keys=x:v=y").unwrap();
    pair.trigger("second", "hist:keys=x:vals=$v").unwrap();
    pair.hit("first", 0, 0, [5, 9]);
    let set_held = |pair: &Controlled, is_held| {
        let triggers = pair.events.settings(("g", "first")).unwrap().triggers();
        triggers[0].histogram().unwrap().held.store(is_held, Ordering::Relaxed);
    };
    set_held(&pair, true);
    pair.hit("second", 1, 1, [5, 0]);
    assert_eq!(pair.entries("second"), [""; 0]);
    set_held(&pair, false);
    pair.hit("second", 1, 2, [5, 0]);
    assert_eq!(pair.entries("second").len(), 1);
}

#[test]
fn expressions_are_computed_from_left_to_right_and_exactly() {
    let mut pair = pair();
    for (expression, x, y, expected) in tried([
        ("x-y-1", 10, 3, 6),
        ("x/y/2", 64, 4, 8),
        ("x+y*2", 1, 3, 7),
        ("x*y/2", 3, 3, 4),
        ("x/y", 1, 0, u64::MAX),
        ("-(x)", 1, 0, u64::MAX),
        ("-(x-y)", 1, 4, 3),
        ("-(x)-y", 1, 4, u64::MAX - 4),
        ("64/8/4+x", 1, 0, 3),
        ("14-7-5+x", 1, 0, 3),
        ("x/3", 10, 0, 3),
    ]) {
        let trigger = format!("hist:keys=common_cpu:vals={expression}");
        pair.trigger("first", &trigger).unwrap();
        pair.hit("first", 0, 0, [x, y]);
        let histogram = pair.events.settings(("g", "first")).unwrap().triggers()[0].histogram().unwrap();
        assert_eq!(histogram.read().unwrap().entries[0][..3], [0, 1, expected], "{expression}");
        pair.trigger("first", &format!("!{trigger}")).unwrap();
    }
}

/// A shared table counts as many keys as it has room for, and drops others. All CPUs count in one table.
#[test]
fn a_shared_table_takes_as_many_keys_as_it_has_room_for() {
    let mut pair = pair();
    pair.trigger("first", "hist:keys=x:v=y:size=128").unwrap();
    for x in 0..200 {
        pair.hit("first", x as usize % 2, x, [x % 150, 1]);
    }
    let histogram = pair.events.settings(("g", "first")).unwrap().triggers()[0].histogram().unwrap();
    let reading = histogram.read().unwrap();
    let hits: u64 = reading.entries.iter().map(|entry| entry[1]).sum();
    assert_eq!((reading.entries.len(), hits, reading.dropped), (128, 178, 22));
}

/// If both CPUs add a key at once when only one more has space, both keys are added, and both CPUs count on.
#[test]
fn a_full_shared_table_counts_its_keys_on_every_cpu() {
    let mut pair = pair();
    pair.trigger("first", "hist:keys=x:v=y:size=128").unwrap();
    let histogram = pair.events.settings(("g", "first")).unwrap().triggers()[0].histogram().unwrap();
    let table = &histogram.variable_use.as_ref().unwrap().table;
    (0..127).for_each(|x| pair.hit("first", 0, 0, [x, 0]));
    for cpu in [0, 1] {
        // This CPU does not see the key of the other one.
        table.used.store(127, Ordering::Relaxed);
        pair.hit("first", cpu, 0, [200 + cpu as u64, 0]);
    }
    [0, 1].into_iter().for_each(|cpu| pair.hit("first", cpu, 0, [5, 0]));
    let reading = histogram.read().unwrap();
    let hits: u64 = reading.entries.iter().map(|entry| entry[1]).sum();
    assert_eq!((reading.entries.len(), hits, reading.dropped), (129, 131, 0));
}

/// A variable in an expression is read once even if it is the same number at every hit.
#[test]
fn a_number_that_another_trigger_sets_is_read_once() {
    for expression in ["$five+y", "y/$five", "$five+1"] {
        let mut pair = pair();
        pair.trigger("first", "hist:keys=x:five=5").unwrap();
        pair.trigger("second", &format!("hist:keys=x:sum={expression}")).unwrap();
        pair.hit("first", 0, 0, [3, 0]);
        (0..2).for_each(|_| pair.hit("second", 0, 0, [3, 0]));
        assert_eq!(pair.entries("second"), ["{ x:          3 } hitcount:          1"], "{expression}");
    }
}

/// Texts of different widths can be equal keys. A longer key finds the variables of a key with fewer parts by its first
/// parts.
#[test]
fn keys_are_alike_that_have_the_same_words() {
    let mut pair = Controlled::new(&["p:g/first f c=$comm y=%x1", "p:g/second f+4 x=%x0 y=%x1"]);
    pair.trigger("first", "hist:keys=c:v=y").unwrap();
    pair.trigger("second", "hist:keys=comm,x:vals=$v").unwrap();
    pair.hit("second", 0, 0, [3, 0]);
    pair.hit("first", 0, 0, [0, 9]);
    pair.hit("second", 0, 0, [3, 0]);
    pair.hit("second", 0, 0, [3, 0]);
    let histogram = pair.events.settings(("g", "second")).unwrap().triggers()[0].histogram().unwrap();
    assert_eq!(
        histogram.read().unwrap().entries[0][3..5],
        [2, 18],
        "not in an expression it is read as often as one likes"
    );
}

impl Controlled {
    /// Defines a synthetic event, as `synthetic_events` takes it.
    pub(super) fn synthetic(&mut self, line: &str) {
        let Ok(Some(synthetic::Command::Define(definition))) = synthetic::parse(line, &|_| false) else {
            panic!("{line}")
        };
        self.events.define_synthetic(definition).unwrap();
    }

    /// Returns the lines of the trace, from the name of the event on.
    fn lines(&self) -> Vec<String> {
        let text = trace(&self.events, 99);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split_once(": ").map_or(line, |(_, rest)| rest).to_string()).collect()
    }

    fn enable(&mut self, group: &str, event: &str) {
        self.events.set_enabled(Some(group), Some(event), true).unwrap();
    }
}

#[test]
fn synthetic_events_are_listed_and_described_as_in_linux() {
    let mut pair = pair();
    pair.synthetic("lat u64 lat; pid_t pid; char comm[16]; char any[]; s8 small");
    let mut text = String::new();
    pair.events.write_synthetic(&mut text).unwrap();
    assert_eq!(text, "lat\tu64 lat; pid_t pid; char[16] comm; char[] any; s8 small\n");
    text.clear();
    pair.events.write_all_definitions(&mut text).unwrap();
    assert_eq!(
        text.lines().last().unwrap(),
        "s:synthetic/lat\tu64 lat; pid_t pid; char[16] comm; char[] any; s8 small"
    );
    assert_eq!(text.lines().count(), 3);
    text.clear();
    pair.events.write_definitions(&mut text).unwrap();
    assert_eq!(text.lines().count(), 2);
    let event = pair.events.iter().last().unwrap();
    text.clear();
    event.format().write(&mut text, "lat", 9).unwrap();
    assert!(
        text.ends_with(
            "\tfield:u64 lat;\toffset:8;\tsize:8;\tsigned:0;\n\
             \tfield:pid_t pid;\toffset:16;\tsize:4;\tsigned:1;\n\
             \tfield:char comm[16];\toffset:24;\tsize:16;\tsigned:1;\n\
             \tfield:__data_loc char[] any;\toffset:280;\tsize:8;\tsigned:1;\n\
             \tfield:s8 small;\toffset:288;\tsize:1;\tsigned:1;\n\
             \nprint fmt: \"lat=%llu, pid=%d, comm=%s, any=%s, small=%d\", REC->lat, REC->pid, REC->comm, __get_str(any), REC->small\n"
        ),
        "{text}"
    );
    let many = (0..16).map(|number| format!("char c{number}[1];")).collect::<String>();
    let Ok(Some(synthetic::Command::Define(many))) = synthetic::parse(&format!("many {many}"), &|_| false) else {
        panic!()
    };
    assert_eq!(pair.events.define_synthetic(many), Err(synthetic::Problem::TooManyFields), "for a record");
    assert_eq!(pair.events.remove_synthetic(Some("lat"), &|_| true), Err(Problem::Busy));
    assert_eq!(pair.events.remove_synthetic(Some("lat"), &|_| false), Ok(1));
    assert_eq!(pair.events.remove_synthetic(Some("lat"), &|_| false), Ok(0));
}

/// The time between two events is recorded as a third event, which has a filter and histograms of its own.
#[test]
fn a_match_records_a_synthetic_event() {
    let mut pair = Controlled::new(&["p:g/first f key=%x0 num=%x1", "p:g/second f+4 key=%x0 num=%x1"]);
    pair.synthetic("lat u64 lat; u64 x; pid_t pid; char comm[4]; char any[]; s8 small; u64 was");
    pair.trigger("first", "hist:keys=key:ts0=common_timestamp.usecs if num < 100").unwrap();
    let trigger = "hist:keys=key:lat=common_timestamp.usecs-$ts0:onmatch(g.first).trace(lat,$lat,key, common_pid,comm,comm,common_flags,g.first.num) if key > 0";
    assert_eq!(
        pair.refused("second", trigger),
        ["Param type doesn't match synthetic event field type ^common_flags,g.first.num) if key > 0"]
    );
    pair.events.remove_synthetic(None, &|_| false).unwrap();
    pair.synthetic("lat u64 lat; u64 x; pid_t pid; char comm[4]; char any[]; u8 small; u64 was");
    pair.trigger("second", trigger).unwrap();
    assert_eq!(
        pair.triggers("second"),
        "hist:keys=key:vals=hitcount:lat=common_timestamp.usecs-$ts0:sort=hitcount:size=2048:clock=global:\
         onmatch(g.first).trace(lat,$lat,key,common_pid,comm,comm,common_flags,g.first.num) if key > 0 [active]\n"
    );
    assert_eq!(
        pair.triggers("first").lines().last().unwrap(),
        "hist:keys=key:vals=hitcount:synthetic_num=num:sort=hitcount:size=2048 if num < 100 [active]"
    );
    let busy = |pair: &Controlled| pair.events.is_busy(pair.events.iter().last().unwrap());
    assert!(busy(&pair));
    pair.hit("first", 0, 10, [5, 77]);
    pair.hit("second", 1, 30, [5, 8]);
    assert_eq!(pair.lines(), [""; 0], "it is not enabled");
    pair.enable("synthetic", "lat");
    pair.hit("first", 0, 40, [5, 77]);
    pair.hit("second", 1, 47, [5, 8]);
    assert_eq!(pair.lines(), ["lat: lat=7 x=5 pid=7 comm=mai any=main small=0 was=77"]);
    pair.events.set_trigger(("synthetic", "lat"), "hist:keys=any,comm:vals=lat:sort=lat if x == 5").unwrap();
    pair.events.set_filter(("synthetic", "lat"), "lat > 9 && comm == \"mai\"").unwrap();
    pair.enable("g", "second");
    for (start, end) in [(100, 105), (200, 220)] {
        pair.hit("first", 0, start, [5, 77]);
        pair.hit("second", 1, end, [5, 8]);
    }
    let lines = pair.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[1].starts_with("second: (f+0x4/0x10) key=0x5"), "{lines:?}");
    assert_eq!(lines[3], "lat: lat=20 x=5 pid=7 comm=mai any=main small=0 was=77", "after its cause");
    let mut text = String::new();
    let control = pair.events.settings(("synthetic", "lat")).unwrap();
    control.triggers()[0].histogram().unwrap().write(&mut text, &control.triggers()[0], &Names).unwrap();
    assert!(text.contains("hitcount:          2  lat:         25\n"), "{text}");
    pair.trigger("second", &format!("!{trigger}")).unwrap();
    assert_eq!(pair.triggers("first").lines().count(), 1, "what was set for it goes with it");
}

/// The other event may have histograms of the same size that count by something else.
#[test]
fn a_field_is_kept_under_a_key_of_the_same_type() {
    for (first, kept) in [("cpu", "key"), ("key", "key"), ("cpu,cpu", "cpu,cpu")] {
        let mut pair =
            Controlled::new(&["p:g/first f cpu=%x2:s64 key=%x0 num=%x1", "p:g/second f+4 next=%x0 other=%x1"]);
        pair.synthetic("lat u64 was");
        let keys = if first == kept { vec![first] } else { vec![first, kept] };
        for keys in keys {
            pair.trigger("first", &format!("hist:keys={keys}")).unwrap();
        }
        let own = if first.contains(',') { "next,other" } else { "next" };
        pair.trigger("second", &format!("hist:keys={own}:onmatch(g.first).lat(num)")).unwrap();
        let automatic = format!("hist:keys={kept}:vals=hitcount:synthetic_num=num:sort=hitcount:size=2048 [active]");
        assert_eq!(pair.triggers("first").lines().last().unwrap(), automatic);
    }
}

/// The log has what the user has written, and not the trigger that this needs at the other event.
#[test]
fn a_field_that_the_matched_event_lacks_is_an_error_of_the_line() {
    let mut pair = pair();
    pair.synthetic("lat u64 lat; u64 was");
    pair.trigger("first", "hist:keys=x:ts0=common_timestamp.usecs").unwrap();
    let line = "hist:keys=x:lat=common_timestamp.usecs-$ts0:onmatch(g.first).trace(lat,$lat,gone)";
    assert_eq!(
        pair.refused("second", line),
        ["Couldn't find field ^gone)", "Couldn't create histogram for field ^gone)"]
    );
    assert_eq!(pair.triggers("first").lines().count(), 1);
    let mut text = String::new();
    pair.events.write_refused(("g", "first"), &mut text).unwrap();
    assert_eq!(text, "");
}

/// A variable as a value is shown without its `$`.
#[test]
fn a_value_has_the_name_of_its_variable() {
    for (value, name) in [("$n", "n"), ("g.first.$n", "g.first.n")] {
        let mut pair = pair();
        pair.trigger("first", "hist:keys=x:n=y").unwrap();
        pair.trigger("second", &format!("hist:keys=x:vals={value}")).unwrap();
        pair.hit("first", 0, 0, [5, 9]);
        pair.hit("second", 0, 1, [5, 0]);
        assert_eq!(pair.entries("second"), [format!("{{ x:          5 }} hitcount:          1  {name}:          9")]);
    }
}

/// Synthetic events can have variables, and can be matched themselves. Records without room are counted.
#[test]
fn synthetic_events_lead_to_others() {
    let mut pair = Controlled::new(&["p:g/first f key=%x0 num=%x1", "p:g/second f+4 key=%x0 num=%x1"]);
    for line in ["one u64 xx u64 lat", "two u64 xx; u64 sum"] {
        pair.synthetic(line);
    }
    pair.trigger("first", "hist:keys=key:ax=num").unwrap();
    pair.trigger("second", "hist:keys=key:bx=num-$ax:onmatch(g.first).one(key,$bx)").unwrap();
    let set = |pair: &mut Controlled, event, text| pair.events.set_trigger(("synthetic", event), text);
    set(&mut pair, "one", "hist:keys=xx:sum=$bx+lat:onmatch(g.second).two(xx,$sum)").unwrap();
    pair.enable("synthetic", "one");
    pair.enable("synthetic", "two");
    pair.hit("first", 0, 1, [3, 10]);
    pair.hit("second", 1, 2, [3, 14]);
    assert_eq!(pair.lines(), ["one: xx=3 lat=4", "two: xx=3 sum=8"]);
    // Each record causes the next one without end: as many as fit are recorded.
    set(&mut pair, "two", "hist:keys=xx:cc=sum:onmax($cc).trace(one,xx,$cc):onchange($cc).trace(one,xx,$cc)").unwrap();
    pair.hit("first", 0, 3, [3, 10]);
    pair.hit("second", 1, 4, [3, 20]);
    assert!(pair.lines().len() > 4, "{:?}", pair.lines());
}

/// Texts have any length, so only a hit tells whether the record fits into a page. One that does not is counted.
#[test]
fn a_synthetic_record_that_is_longer_than_a_page_is_dropped() {
    static LONG: [u8; 600] = [b'a'; 600];
    static SHORT: [u8; 4] = *b"abc\0";
    let mut pair = Controlled::new(&["p:g/first f text=+0(%x0):string num=%x1"]);
    let fields = (0..16).map(|number| format!(" char c{number}[];")).collect::<String>();
    pair.synthetic(&format!("texts{fields}"));
    let sent = ["$tt"; 16].join(",");
    pair.trigger("first", &format!("hist:keys=num:nn=num,tt=text:size=128:onmax($nn).texts({sent})")).unwrap();
    pair.enable("synthetic", "texts");
    pair.hit("first", 0, 1, [LONG.as_ptr() as u64, 1]);
    let dropped = |pair: &Controlled| pair.events.rings().snapshot().unwrap().stats().next().unwrap().dropped;
    assert_eq!((pair.lines(), dropped(&pair)), (Vec::new(), 1));
    pair.hit("first", 0, 2, [SHORT.as_ptr() as u64, 2]);
    let shown = (0..16).map(|number| format!(" c{number}=abc")).collect::<String>();
    assert_eq!((pair.lines(), dropped(&pair)), ([format!("texts:{shown}")].into(), 1));
}

#[test]
fn what_is_watched_is_kept_as_linux_shows_it() {
    let mut pair = Controlled::new(&["p:g/first f key=%x0 num=%x1 c1=$comm"]);
    let trigger = "hist:keys=key:vv=num:onmax($vv).save(num,c1,common_pid):onchange($vv).snapshot()";
    assert!(snapshot(&pair.events).contains("is freed"));
    pair.trigger("first", trigger).unwrap();
    assert!(snapshot(&pair.events).contains("is allocated"));
    assert_eq!(
        pair.triggers("first"),
        "hist:keys=key:vals=hitcount:vv=num:sort=hitcount:size=2048:onmax($vv).save(num,c1,common_pid):onchange($vv).snapshot() [active]\n"
    );
    for y in [4, 9, 6] {
        pair.hit("first", 0, 0, [1, y]);
    }
    let mut text = String::new();
    let control = pair.events.settings(("g", "first")).unwrap();
    control.triggers()[0].histogram().unwrap().write(&mut text, &control.triggers()[0], &Names).unwrap();
    let expected = format!(
        "{{ key:          1 }} hitcount:          3\n\tmax:          9  num:          9  c1: {:<32}  common_pid:          7\n\
         \nSnapshot taken (see tracing/snapshot).  Details:\n\
         \ttriggering value {{ onchange($vv) }}:          6\ttriggered by event with key: {{ key:          1 }}\n\
         \nTotals:\n",
        "main"
    );
    assert!(text.contains(&expected), "{text}");
    // Why the last snapshot was taken is shown after the histogram was cleared, too, whatever takes the entry's place.
    pair.trigger("first", &format!("{trigger}:clear")).unwrap();
    pair.hit("first", 0, 0, [2, 6]);
    text.clear();
    let control = pair.events.settings(("g", "first")).unwrap();
    control.triggers()[0].histogram().unwrap().write(&mut text, &control.triggers()[0], &Names).unwrap();
    assert!(text.contains("{ key:          2 } hitcount:          1\n"), "{text}");
    assert!(text.contains(" }:          6\ttriggered by event with key: { key:          1 }\n"), "{text}");
    let cases: [(&str, &[&str]); 10] = [
        (
            "hist:keys=key:ww=num:onmax(ww).save(num)",
            &["For onmax(x) or onchange(x), x must be a variable ^ww=num:onmax(ww).save(num)"],
        ),
        ("hist:keys=key:ww=num:onmax($no).save(num)", &["Couldn't find onmax or onchange variable ^no).save(num)"]),
        (
            "hist:keys=key:ww=num:onmax($ww).save(gone)",
            &[
                "Couldn't find field ^gone)",
                "Couldn't parse field variable ^gone)",
                "Couldn't create field variable ^gone)",
            ],
        ),
        (
            "hist:keys=key:ww=num:onmax($ww).save($gone)",
            &[
                "Couldn't find variable ^gone)",
                "Couldn't find field ^$gone)",
                "Couldn't parse field variable ^$gone)",
                "Couldn't create field variable ^$gone)",
            ],
        ),
        ("hist:keys=key:onmatch(g.first).snapshot()", &["Handler doesn't support action ^snapshot()"]),
        ("hist:keys=key:onmatch(g.first).save(key)", &["Handler doesn't support action ^save(key)"]),
        ("hist:keys=key:onmatch(g.gone).trace(aa,key)", &["Invalid subsystem or event name ^gone).trace(aa,key)"]),
        ("hist:keys=key:onmatch(first).trace(aa,key)", &["Missing subsystem ^first).trace(aa,key)"]),
        (
            "hist:keys=key:onmatch(g.first).trace(aa,k)",
            &["Invalid action param ^keys=key:onmatch(g.first).trace(aa,k)"],
        ),
        ("hist:keys=key:onmatch(g.first).trace(aa,common_pid)", &["Couldn't find synthetic event ^aa,common_pid)"]),
    ];
    for (text, expected) in cases {
        assert_eq!(pair.refused("first", text), expected, "{text}");
    }
    let twice = "hist:keys=key:ww=num:onmax($ww).save(num):onchange($ww).save(num)";
    let problem = format!("Can't have more than one save() action per hist ^{twice}");
    assert_eq!(pair.refused_with("first", twice, Errno::Exists), [problem]);
}

/// A stack can be a variable, a parameter, a field of a synthetic event and a key of its histogram.
#[test]
fn a_stack_is_recorded_by_another_event() {
    let mut pair = Controlled::new(&["p:g/first f key=%x0 num=%x1", "p:g/second f+4 key=%x0 num=%x1"]);
    pair.synthetic("late u64 key; unsigned long[] stack; u64 lat");
    let mut text = String::new();
    pair.events.write_synthetic(&mut text).unwrap();
    assert_eq!(text, "late\tu64 key; unsigned long[] stack; u64 lat\n");
    text.clear();
    pair.events.iter().last().unwrap().format().write(&mut text, "late", 9).unwrap();
    assert!(
        text.ends_with(
            "\tfield:__data_loc unsigned long[] stack;\toffset:16;\tsize:8;\tsigned:1;\n\
             \tfield:u64 lat;\toffset:24;\tsize:8;\tsigned:0;\n\
             \nprint fmt: \"key=%llu, stack=%s, lat=%llu\", REC->key, __get_stacktrace(stack), REC->lat\n"
        ),
        "{text}"
    );
    pair.trigger("first", "hist:keys=key:ts=common_timestamp.usecs,st=common_stacktrace  if num == 1||num == 2")
        .unwrap();
    let trigger = "hist:keys=key:lat=common_timestamp.usecs-$ts,s=$st:onmax($lat).trace(late,key,$s,$lat)";
    pair.trigger("second", trigger).unwrap();
    assert_eq!(
        pair.triggers("first"),
        "hist:keys=key:vals=hitcount:ts=common_timestamp.usecs,st=common_stacktrace:sort=hitcount:size=2048:clock=global if num == 1||num == 2 [active]\n"
    );
    assert_eq!(
        pair.refused("second", "hist:keys=key:onmax($lat).trace(late,key,key,key)")[0],
        "Couldn't find onmax or onchange variable ^lat).trace(late,key,key,key)"
    );
    assert_eq!(
        pair.refused("second", "hist:keys=key:onmatch(g.first).trace(late,$st,$st,key)"),
        ["Param type doesn't match synthetic event field type ^$st,$st,key)"]
    );
    let set = |pair: &mut Controlled, text| pair.events.set_trigger(("synthetic", "late"), text);
    set(&mut pair, "hist:keys=lat.buckets=10,stack.stacktrace:sort=lat").unwrap();
    set(&mut pair, "hist:keys=key:vv=lat:onmax($vv).save(stack.stacktrace,lat)").unwrap();
    let filtered = pair.events.set_filter(("synthetic", "late"), "stack == 1");
    assert_eq!(filtered, Err(Errno::Invalid), "it is neither a number nor a text");
    pair.enable("synthetic", "late");
    pair.hit("first", 0, 10, [5, 1]);
    pair.hit("second", 1, 17, [5, 0]);
    assert_eq!(pair.lines(), ["late: key=5 stack=STACK:", "=> f+0x0/0x10", "lat=7"]);
    let control = pair.events.settings(("synthetic", "late")).unwrap();
    text.clear();
    control.triggers()[0].histogram().unwrap().write(&mut text, &control.triggers()[0], &Names).unwrap();
    assert!(
        text.contains(
            "hist:keys=lat.buckets=10,stack.stacktrace:vals=hitcount:sort=lat.buckets=10:size=2048 [active]\n#\n\n\
             { lat: ~ 0-9, stack.stacktrace         f+0x0/0x10\n} hitcount:          1\n"
        ),
        "{text}"
    );
    text.clear();
    control.triggers()[1].histogram().unwrap().write(&mut text, &control.triggers()[1], &Names).unwrap();
    let saved = "\n\tmax:          7  stack.stacktrace: \n         f+0x0/0x10\n  lat:          7\n";
    assert!(text.contains(saved), "{text}");
}

/// The stack at a synthetic event, and at an event on it, is that of its cause, with the caller of a function that has
/// no frame record yet.
#[test]
fn the_stack_at_a_synthetic_event_has_the_caller() {
    let mut pair = pair();
    pair.synthetic("late u64 lat");
    pair.trigger("first", "hist:keys=x:v=y:onmax($v).late($v)").unwrap();
    pair.trigger("second", "hist:keys=x:w=y:onmax($w).late($w)").unwrap();
    pair.define("e:on synthetic.late lat=$lat");
    pair.events.set_trigger(("synthetic", "late"), "stacktrace").unwrap();
    pair.events.set_trigger(("eprobes", "on"), "stacktrace").unwrap();
    pair.events.set_trigger(("eprobes", "on"), "hist:keys=common_stacktrace").unwrap();
    for (event, frames) in [("first", 4), ("second", 2)] {
        pair.events.clear_trace();
        pair.hit_from(0x2004, event, 0, 1, [5, 9]);
        let text = trace(&pair.events, 9);
        assert_eq!((text.matches("<stack trace>").count(), text.matches("\n => ").count()), (2, frames), "{text}");
    }
    let control = pair.events.settings(("eprobes", "on")).unwrap();
    let trigger = &control.triggers()[1];
    let mut text = String::new();
    trigger.histogram().unwrap().write(&mut text, trigger, &Names).unwrap();
    let expected = "{ common_stacktrace:\n         f+0x0/0x10\n         a::b<c, d>+0x4/0x100\n}";
    assert!(text.contains(expected), "{text}");
}

/// A return is hit in the caller of the function, and so is an event on the synthetic event that it causes.
#[test]
fn after_a_return_the_stack_at_an_event_on_a_synthetic_one_begins_in_the_caller() {
    let mut pair = Controlled::new(&["r:g/back f y=%x1"]);
    pair.synthetic("late u64 lat");
    pair.trigger("back", "hist:keys=y:v=y:onmax($v).late($v)").unwrap();
    pair.define("e:on synthetic.late lat=$lat");
    for name in [("synthetic", "late"), ("eprobes", "on")] {
        pair.events.set_trigger(name, "stacktrace").unwrap();
    }
    hit(0x1000, 1);
    let text = trace(&pair.events, 9);
    assert_eq!(text.matches("<stack trace>\n => a::b<c, d>").count(), 2, "{text}");
}

/// Triggers fire on every CPU. On a CPU that is left out, they record no stacks.
#[test]
fn no_stack_is_recorded_on_a_cpu_that_is_left_out() {
    let mut pair = pair();
    pair.trigger("first", "stacktrace").unwrap();
    pair.trigger("second", "stacktrace").unwrap();
    // With variables, the record is composed before the triggers fire.
    pair.trigger("second", "hist:keys=x:v=y").unwrap();
    let stacks = |pair: &Controlled| trace(&pair.events, 99).matches("<stack trace>").count();
    for (cpus, expected) in [(Some(0b10), 2), (Some(0), 2), (None, 6)] {
        pair.events.restrict(Restriction { cpus, ..Restriction::default() }, None).unwrap();
        for cpu in [0, 1] {
            pair.hit("first", cpu, 0, [1, 0]);
            pair.hit("second", cpu, 0, [1, 0]);
        }
        assert_eq!(stacks(&pair), expected, "{cpus:?}");
    }
    assert!(pair.entries("second")[0].ends_with("hitcount:          6"));
}

#[test]
fn after_an_overrun_the_first_record_of_each_cpu_is_marked() {
    let mut pair = pair();
    let shown = |pair: &Controlled| {
        let mut text = String::new();
        let clock = Clock { frequency: 1_000_000, origin: 0 };
        pair.events.write_trace(&mut text, usize::MAX, 2, &Names, clock).unwrap();
        text
    };
    let line = "##### CPU 1 buffer started ####\n";
    (0..3).for_each(|time| pair.hit("first", 0, time, [0, 0]));
    pair.hit("second", 1, 3, [0, 0]);
    assert!(!shown(&pair).contains("buffer started"), "nothing was overwritten");
    pair.events.clear_trace();
    let hits = if cfg!(miri) { 200 } else { 5000 };
    (0..hits).for_each(|time| pair.hit("first", 0, time, [0, 0]));
    (0..2).for_each(|time| pair.hit("second", 1, hits + time, [0, 0]));
    let text = shown(&pair);
    let (before, after) = text.split_once(line).expect(&text);
    assert!(!before.contains("buffer started") && !after.contains("buffer started"), "{text}");
    assert_eq!(after.matches(": second: ").count(), 2, "{text}");
    pair.events.set_option(Flag::Annotate, false);
    assert!(!shown(&pair).contains("buffer started"));
}

/// Events whose histograms have the same name count in one histogram.
#[test]
fn a_histogram_with_a_name_is_shared() {
    let mut pair = Controlled::new(&["p:g/first f x=%x0 y=%x1", "p:g/second f+4 x=%x0 y=%x1"]);
    let trigger = "hist:name=both:keys=x:vals=y";
    pair.trigger("first", trigger).unwrap();
    pair.trigger("second", &format!("{trigger} if y > 1")).unwrap();
    let shown = "hist:name=both:keys=x:vals=hitcount,y:sort=hitcount:size=2048";
    assert_eq!(pair.triggers("second"), format!("{shown} if y > 1 [active]\n"));
    let both = |pair: &mut Controlled| {
        pair.hit("first", 0, 0, [3, 1]);
        pair.hit("second", 1, 0, [3, 10]);
        pair.hit("second", 1, 0, [3, 0]);
        let entries = pair.entries("first");
        assert_eq!(entries, pair.entries("second"));
        entries
    };
    assert_eq!(both(&mut pair), ["{ x:          3 } hitcount:          2  y:         11"]);
    assert_eq!(pair.trigger("first", trigger), Err(Errno::Exists));
    let mismatch = "Named hist trigger doesn't match existing named trigger (includes variables)";
    for text in ["hist:name=both:keys=y:vals=y", "hist:name=both:keys=x:vals=y:a=x", "hist:name=both:keys=x"] {
        assert_eq!(pair.refused("second", text), [format!("{mismatch} ^{}", &text[5..])]);
    }
    assert_eq!(pair.trigger("second", "hist:keys=x:nohitcount"), Err(Errno::NotFound), "as Linux has it");
    // Each event pauses on its own. Clearing affects both.
    pair.trigger("second", &format!("{trigger}:pause if y > 1")).unwrap();
    assert_eq!(both(&mut pair), ["{ x:          3 } hitcount:          3  y:         12"]);
    assert_eq!(pair.triggers("second"), format!("{shown} if y > 1 [paused]\n"));
    assert_eq!(pair.triggers("first"), format!("{shown} [active]\n"));
    pair.trigger("first", &format!("{trigger}:clear")).unwrap();
    pair.trigger("second", &format!("{trigger}:cont if y > 1")).unwrap();
    assert_eq!(both(&mut pair), ["{ x:          3 } hitcount:          2  y:         11"]);
    pair.trigger("first", &format!("!{trigger}")).unwrap();
    pair.hit("second", 0, 0, [3, 5]);
    assert_eq!(pair.entries("second"), ["{ x:          3 } hitcount:          3  y:         16"]);
    assert_eq!(pair.entries("first"), [""; 0]);
    // A histogram without a name is not shared. One with variables can be shared, too.
    pair.trigger("first", "hist:keys=x:vals=y").unwrap();
    pair.trigger("first", "hist:name=linked:keys=x:a=y").unwrap();
    pair.trigger("second", "hist:name=linked:keys=x:a=y").unwrap();
    pair.hit("first", 0, 0, [3, 5]);
    pair.hit("second", 0, 0, [3, 1]);
    assert_eq!(
        pair.entries("first"),
        ["{ x:          3 } hitcount:          1  y:          5", "{ x:          3 } hitcount:          2"]
    );
    pair.trigger("second", "hist:name=linked:keys=x:a=y:clear").unwrap();
    assert_eq!(pair.entries("first").len(), 1);
}

/// Two triggers of one event may share a histogram, too, if their filters differ.
#[test]
fn a_shared_histogram_is_cleared_for_all_triggers_of_an_event() {
    let mut pair = pair();
    let trigger = "hist:name=both:keys=x";
    pair.trigger("first", &format!("{trigger} if y == 1")).unwrap();
    pair.trigger("first", &format!("{trigger} if y == 2")).unwrap();
    let both = |pair: &Controlled| {
        (1..3).for_each(|y| pair.hit("first", 0, 0, [3, y]));
        pair.entries("first")
    };
    let counted = ["{ x:          3 } hitcount:          2"; 2];
    assert_eq!(both(&pair), counted);
    pair.trigger("first", &format!("{trigger}:clear if y == 2")).unwrap();
    assert_eq!(pair.entries("first"), [""; 0]);
    assert_eq!(both(&pair), counted);
}

/// `kprobes/enabled` is about probes. A static event, which it does not affect, may lead to a synthetic one.
#[test]
fn a_synthetic_event_is_recorded_while_probes_are_disarmed() {
    let mut pair = pair();
    pair.synthetic("sent u64 a");
    pair.define("e:on synthetic/sent a=$a:u8");
    pair.trigger("first", "hist:keys=common_pid:v=y:onchange($v).trace(sent,$v)").unwrap();
    pair.enable("synthetic", "sent");
    pair.enable("eprobes", "on");
    pair.events.set_may_be_armed(false).unwrap();
    pair.hit("first", 0, 0, [0, 5]);
    assert_eq!(pair.lines(), ["sent: a=5", "on: (synthetic.sent) a=5"]);
}
