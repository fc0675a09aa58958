//! Arguments of events, as hits record them, and as filters and histograms read them.

use kprobes_random::{assert_tried, tried::tried};

use super::*;
use crate::trigger::ProbeContext;
use crate::trigger::settings::Settings;
use aarch64_kprobes::event::Text;

/// Replaces the plan of an event that no hit is using.
fn replace_plan(event: &Event<Counter>, plan: Option<Box<Plan>>) {
    let old = event.recorder().plan.replace(plan);
    // SAFETY: the test has one thread, which handles no hit now.
    old.into_iter().for_each(|old| unsafe { old.free() });
}

/// The buffer in which records are composed still has the record before.
#[test]
fn no_record_has_bytes_of_another() {
    aarch64_kprobes::event! {
        struct Noted<'a> = test:noted {
            mark: u8,
            text: Text<'a>,
            tag: [u8; 3],
        }
    }
    let mut events = events();
    define(&mut events, "p:before f t=+0(%x19):string t2=+0(%x19):string t3=+0(%x19):string").unwrap();
    hit(0x1000, 1);
    events.add_static(Noted::EVENT).unwrap();
    let event = events.iter().find(|event| event.is_static()).unwrap();
    happen(event, &Noted { mark: 1, text: "ab".into(), tag: *b"xyz" });
    let snapshot = events.rings().snapshot().unwrap();
    let record = snapshot.records().unwrap().last().unwrap();
    assert_eq!(record.bytes[8..], *b"\x01\0\0\0\x18\0\x03\0xyz\0\0\0\0\0ab\0");
}

#[test]
fn arguments_are_fetched() {
    assert_tried!(fetched("p f %x3 $arg2 $stack %pc"), "arg1=0x3 arg2=0x1 arg3=0x0 arg4=0x0");
    assert_tried!(fetched("p f %x3:u8 \\-1:s16 \\8:x32"), "arg1=3 arg2=-1 arg3=0x8");
    assert_tried!(fetched("p f @a::TIMES+16 @a::TIMES+8:u8 @a::TIMES:u64[2]"), "arg1=0x2 arg2=1 arg3={0,1}");
    assert_tried!(fetched("p f $comm c=$COMM:string"), "arg1=\"main\" c=\"main\"");
    assert_tried!(fetched("p f \\\"some\" %x1:char"), "arg1=\"some\" arg2='\u{1}'");
    assert_tried!(fetched("p f %x30:b2@1/32 %x30:symbol"), "arg1=3 arg2=0x1e");
    assert_tried!(fetched("p f +0(%x19):string +6(%x19):string"), "arg1=\"first\" arg2=\"second\"");
    assert_tried!(fetched("p f +0(%x19):char[3] +0(%x19):u16[2]"), "arg1={'f','i','r'} arg2={26982,29554}");
    assert_tried!(fetched("p f +0(%x19):b8@8/32[2]"), "arg1={105,0}");
    assert_tried!(fetched("p f +0(%x19):x8 %x2"), "arg1=0x66 arg2=0x2");
    assert_tried!(fetched("r f $arg1 $arg9 $arg1:u8"), "arg1=0x5 arg2=0x1000 arg3=5");
    assert_tried!(fetched("r f $retval:s32 $arg3:symstr"), "arg1=0 arg2=\"0x5\"");
}

/// The fast path accepts exactly the hits that it can handle, and both paths record the same.
#[test]
fn a_hit_is_recorded_the_same_in_whichever_way() {
    let words = "p:e f n=%x20 m=+0(%x21) null=+0(%x0):s64";
    let more = "p:e f n=%x20 m=+0(%x21) null=+0(%x0):s64 b=+0(%x21):u8 t=+0(%x19):string";
    let narrow = "p:e f n=%x20:x32 m=+0(%x21):u8 null=+0(%x0):s16";
    let returns = "r:e f n=%x20 m=+0(%x21) null=%x0:s64";
    type Kept = fn(u64, u64) -> bool;
    // More records than a page has room for, and fewer than two pages have.
    const HITS: u64 = if cfg!(miri) { 8 } else { 80 };
    let filters: [(&str, bool, Kept); 10] = [
        ("0", true, |_, _| true),
        ("n == 3", true, |n, _| n == 3),
        ("m != 3", false, |_, m| m != 3),
        ("n < 2 || m > 5", false, |n, m| n < 2 || m > 5),
        ("!(n & 1) && m >= 4", false, |n, m| n & 1 == 0 && m >= 4),
        ("!(null != 0) && n <= 1", true, |n, _| n <= 1),
        ("null < 0 || null > 0", true, |_, _| false),
        ("n == 3 && comm == 'main'", false, |n, _| n == 3),
        ("n == 3 || cpu == 1 || common_pid == 4", false, |n, _| n == 3),
        ("n > 1 && __probe_func != 1", false, |n, _| n > 1),
    ];
    for line in tried([words, more, narrow, returns]) {
        for (filter, is_quick, kept) in tried(filters) {
            // A field from memory makes the filter look at the record.
            let is_quick = is_quick && (line == returns || !filter.contains("null"));
            let filter = if line == returns { filter.into() } else { filter.replace("__probe_func", "__probe_ip") };
            let recorded = [hit, hit_unusually].map(|hit| {
                let mut events = events();
                define(&mut events, line).unwrap();
                let event = events.iter().next().unwrap();
                let mut settings = Settings::new(true).unwrap();
                settings.set_filter(&filter, &event.format().fields, FindFunction::NONE).unwrap();
                let plan =
                    settings.plan(None, ProbeContext::INSIDE, &|number| event.recorder().source(number)).unwrap();
                assert!(plan.as_ref().is_none_or(|plan| plan.register_tests.is_some() == is_quick), "{line}: {filter}");
                replace_plan(event, plan);
                (0..HITS).for_each(|time| hit(0x1000, time));
                settings.set_enabled(false);
                settings.settle();
                let plan =
                    settings.plan(None, ProbeContext::INSIDE, &|number| event.recorder().source(number)).unwrap();
                replace_plan(event, plan);
                hit(0x1000, 3);
                events.rings().set_on(false);
                replace_plan(event, None);
                hit(0x1000, 3);
                trace(&events, usize::MAX)
            });
            assert_eq!(recorded[0], recorded[1], "{line}: {filter}");
            let number = |line: &str| {
                let (_, rest) = line.split_once(" n=0x").unwrap();
                u64::from_str_radix(rest.split(' ').next().unwrap(), 16).unwrap()
            };
            let numbers: Vec<u64> = recorded[0].lines().map(number).collect();
            let expected: Vec<u64> = (0..HITS).filter(|&time| kept(time, time % 8)).collect();
            assert_eq!(numbers, expected, "{line}: {filter}");
        }
    }
}

/// A probe saves only the registers of a call if it is at a function's entry and its arguments use no others.
#[test]
fn a_probe_saves_what_its_arguments_need() {
    let form = |line: &str| {
        let mut events = events();
        define(&mut events, line).unwrap();
        events.iter().next().unwrap().probe().unwrap().form
    };
    for arguments in tried([
        "",
        "%x0 %x7 %x8 %x18 %x29 %x30 %sp %pc",
        "$stack $stack3 $arg1 $arg12 $comm \\5 @f",
        "+0(%x0):string +8(+16(%x30)):u8[4] +0(%sp):b4@2/32",
    ]) {
        assert_eq!(form(&std::format!("p f {arguments}")), Form::Call, "{arguments}");
        // $argN is refused inside a function and at a bare address.
        let arguments = arguments.replace("$arg1 $arg12", "");
        assert_tried!(form(&std::format!("p f+4 {arguments}")), Form::Full, "{arguments}");
        assert_tried!(form(&std::format!("p 0x5000 {arguments}")), Form::Full, "{arguments}");
    }
    for argument in tried(["%x9", "%x17", "%x19", "%x28", "%pstate", "+0(%x20)", "+0(+8(%x16)):string"]) {
        assert_eq!(form(&std::format!("p f %x0 {argument}")), Form::Full, "{argument}");
    }
    assert_eq!(form("r f $retval"), Form::Full);
}

/// No test of a value that could not be read holds, whatever the type of the argument.
#[test]
fn what_cannot_be_read_is_no_value_to_a_filter() {
    for line in
        tried(["p:one f x=+0(%x0) y=%x20", "p:one f x=+0(%x0):u8 y=%x20", "p:one f x=+0(%x0):b4@0/32 y=%x20:u16"])
    {
        for (filter, kept) in tried([
            ("x == 0", 0),
            ("x != 0", 0),
            ("x < 5 || x >= 5 || x & 1", 0),
            ("!(x == 0)", 1),
            ("x == 0 || y == 7", 1),
            ("y == 7", 1),
            ("y == 0", 0),
        ]) {
            let Controlled { mut events } = Controlled::new(&[line]);
            events.set_enabled(None, None, true).unwrap();
            events.set_filter(("kprobes", "one"), filter).unwrap();
            hit(0x1000, 7);
            assert_eq!(trace(&events, 9).lines().count(), kept, "{line}: {filter}");
        }
    }
    for (filter, kept) in tried([("t == ''", 0), ("t != 'x'", 0), ("t ~ '*'", 0), ("!(t == 'x')", 1)]) {
        let Controlled { mut events } = Controlled::new(&["p:one f t=+0(%x0):string"]);
        events.set_enabled(None, None, true).unwrap();
        events.set_filter(("kprobes", "one"), filter).unwrap();
        hit(0x1000, 7);
        assert_eq!(trace(&events, 9).lines().count(), kept, "{filter}");
    }
}

/// A `symstr` is the text of an address, for records, filters and histograms alike.
#[test]
fn symbol_strings_are_recorded_as_text() {
    let addresses = [0, 0xfff, 0x1000, 0x100f, 0x1010, 0x20fe, 0x300f, 0x4000, 0x4010, u64::MAX];
    for address in tried(addresses) {
        static PLACE: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);
        PLACE.store(address, core::sync::atomic::Ordering::Relaxed);
        let mut symbol = String::new();
        crate::symbols::write_offset(&mut symbol, address, &Names).unwrap();
        let line = std::format!("p f @{:#x}:symstr", PLACE.as_ptr() as usize);
        assert_eq!(fetched(&line), std::format!("arg1=\"{symbol}\""));
    }
    assert_tried!(fetched("p f +0(%x0):symstr"), "arg1=(fault)");

    let Controlled { mut events } = Controlled::new(&["p:one f s=%x20:symstr"]);
    let name = ("kprobes", "one");
    events.set_enabled(None, None, true).unwrap();
    events.set_filter(name, "s ~ \"a::*\" && s != 'a::b<c, d>+0x8/0x100'").unwrap();
    events.set_trigger(name, "hist:keys=s").unwrap();
    [0x1004, 0x2004, 0x2008, 0x2008, 0x5000].into_iter().for_each(|address| hit(0x1000, address));
    assert_eq!(trace(&events, 9).lines().count(), 1);
    assert!(trace(&events, 9).ends_with(" s=\"a::b<c, d>+0x4/0x100\"\n"), "{}", trace(&events, 9));
    let mut shown = String::new();
    let trigger = &events.settings(name).unwrap().triggers()[0];
    trigger.histogram().unwrap().write(&mut shown, trigger, &Names).unwrap();
    for (text, hits) in [("f+0x4/0x10", 1), ("a::b<c, d>+0x8/0x100", 2), ("0x5000", 1)] {
        assert!(shown.contains(&std::format!("{{ s: {text:<50} }} hitcount: {hits:>10}\n")), "{text}: {shown}");
    }
}

/// On the host, the null page is the memory that cannot be read.
#[test]
fn what_cannot_be_read_is_a_fault() {
    assert_tried!(fetched("p f +0(%x0)"), "arg1=(fault)");
    assert_tried!(fetched("p f a=%x1 b=-1(%x1):u64 c=%x2"), "a=0x1 b=(fault) c=0x2");
    assert_tried!(fetched("p f +0(%x0):string +4(+0(%x0)):u8 %x1"), "arg1=(fault) arg2=(fault) arg3=0x1");
    assert_tried!(fetched("p f +0(%x0):u8[1] $stack0"), "arg1=(fault) arg2=(fault)");
    assert_tried!(fetched("p f +0(+0(%x0)):string[2]"), "arg1=(fault)");
    static PLACES: [Option<&[u8; 5]>; 3] = [Some(b"text\0"), None, Some(b"more\0")];
    let places = std::format!("p f @{:#x}:string[3]", &raw const PLACES as usize);
    assert_tried!(fetched(&places), "arg1={\"text\",(fault),\"more\"}");
}

#[test]
fn long_texts_are_cut_and_records_stay_whole() {
    static LONG: [u8; 2000] = [b'a'; 2000];
    let argument = std::format!("@{:#x}:string", LONG.as_ptr() as usize);
    let line = (0..9).fold(String::from("p f"), |line, number| std::format!("{line} t{number}={argument}")) + " %x1";
    let text = fetched(&line);
    let whole = std::format!("\"{}\"", "a".repeat(crate::recorder::TEXT_MAX - 1));
    assert!(text.starts_with(&std::format!("t0={whole} t1={whole}")) && text.ends_with(" arg10=0x1"), "{text}");
    assert!(text.len() < 4096);
}
