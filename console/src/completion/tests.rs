//! Lines and their completions, with the names of a small kernel.

use super::*;
use alloc::string::String;
use fallible::failing::each_allocation;
use kprobes_wire::history::LINE_MAX;
use std::thread;

struct Kernel;

impl Names for Kernel {
    fn usage(&self, command: &str) -> Option<Usage> {
        let (_, arguments) = COMMANDS.iter().find(|(name, _)| *name == command)?;
        Some(Usage { arguments, values: &["deflate", "disk"] })
    }

    fn place(&self, letter: char) -> Option<&'static str> {
        Some(match letter {
            'p' => "PLACE",
            't' => "EVENT",
            'e' => "GROUP.EVENT",
            _ => return None,
        })
    }

    fn offer(&mut self, kind: NameKind, found: &mut Candidates) -> Result<(), OutOfMemory> {
        match kind {
            NameKind::Command => COMMANDS.iter().try_for_each(|(name, _)| found.offer(name, " ")),
            NameKind::Topic => found.offer("topic", " "),
            NameKind::Option => found.offer("--dry-run", " "),
            NameKind::File => ["trace ", "events/"].iter().try_for_each(|file| found.offer(file, "")),
            NameKind::Function => FUNCTIONS.iter().try_for_each(|path| found.offer_path(path, "::")),
            NameKind::WholeFunction => WHOLE.iter().try_for_each(|name| found.offer_path(name, "::")),
            NameKind::FunctionWithSegment => FUNCTIONS.iter().try_for_each(|path| found.offer_segment(path)),
            NameKind::Static => found.offer_path("a::STATIC", "::"),
            NameKind::Event => found.offer("defined", " "),
            NameKind::StaticEvent => found.offer("switch", " "),
            NameKind::Tracepoint => {
                ["net:rx", "net:tx", "sched:switch"].iter().try_for_each(|one| found.offer_path(one, ":"))
            }
            NameKind::GroupEvent => found.offer_path("kprobes.defined", "."),
        }
    }
}

const COMMANDS: [(&str, &str); 10] = [
    ("trace", "[OPTIONS] PROGRAM"),
    ("funccount", "GLOB [-c COMMAND]"),
    ("symbols", "[-v] GLOB"),
    ("lines", "FUNC|FILE.rs"),
    ("cat", "PATH"),
    ("echo", "TEXT > PATH"),
    ("enable", "EVENT"),
    ("help", "[NAME]"),
    ("record", "[on|off]"),
    ("run", "WORKLOAD [N]"),
];

const FUNCTIONS: [&str; 6] =
    ["a::b::one", "a::b::other", "a::c::two", "<a::B as c::D>::next", "a::E::set", "z::{closure#0}::one"];

/// The names of the functions whose names differ from their paths.
const WHOLE: [&str; 2] = ["<a::B<u8> as c::D>::next", "<a::E>::set"];

/// Returns the names that complete `line`, separated by `|`.
fn names(line: &str) -> String {
    let (found, _) = each_allocation(
        || {
            let mut found = Candidates::default();
            Kernel.complete(line, &mut found).map(|()| found)
        },
        |&OutOfMemory| true,
    );
    found.names().join("|")
}

/// Recursion would take some hundred bytes of stack for each `-c` of a line.
#[test]
fn a_line_of_hundreds_of_commands_takes_little_stack() {
    let complete = || {
        ["trace -c ", "trace a -c "].map(|command| {
            let mut found = Candidates::default();
            Kernel.complete(&command.repeat(LINE_MAX / command.len()), &mut found).unwrap();
            found.names().len()
        })
    };
    let thread = thread::Builder::new().stack_size(64 << 10).spawn(complete).unwrap();
    assert_eq!(thread.join().unwrap(), [COMMANDS.len(); 2]);
}

#[test]
fn commands_and_their_arguments() {
    for (line, expected) in [
        ("e", "echo |enable "),
        ("  ru", "run "),
        ("# e", ""),
        ("#", ""),
        ("nothing e", ""),
        ("cat ", "events/|trace "),
        ("cat trace ev", "events/"),
        ("> ev", "events/"),
        (">>t", "trace "),
        ("echo ", ""),
        ("echo -n 'a > b' >> tr", "trace "),
        ("echo 'p:x a::b' >tr", "trace "),
        ("echo 'p:x a > ", ""),
        ("echo 'p:x a::c", "a::c::"),
        ("enable d", "defined "),
        ("help t", "topic "),
        ("record o", "off |on "),
        ("record on o", ""),
        ("run d", "deflate |disk "),
        ("run disk d", ""),
        ("funccount a::c -c run ", "deflate |disk "),
        ("symbols -", "-v "),
        ("symbols -v <a", "<a::"),
        ("symbols <a::B", "<a::B as c::|<a::B<u8> as c::"),
        ("funccount <a::E>::s", "<a::E>::set"),
        ("symbols 'a::b::o", "a::b::one|a::b::other"),
        ("lines on", "a::b::one|z::{closure#0}::one"),
        ("funccount a::c", "a::c::"),
        ("funccount a::c -c run di", "disk "),
        ("funccount 'a::c' -c 'run di", "disk "),
        ("p:x a::c::", "a::c::two"),
        ("p 'a::c::t", "a::c::two"),
        ("p:x <a::E>::", "<a::E>::set"),
        ("p:x a::b a::c", ""),
        ("t:x sw", "switch "),
        ("e:x kp", "kprobes."),
        ("-:d", "defined "),
    ] {
        assert_eq!(names(line), expected, "{line:?}");
    }
}

#[test]
fn programs() {
    for (line, expected) in [
        ("trace --d", "--dry-run "),
        ("trace -q kp", "kprobe:"),
        ("trace -k 10 'kret", "kretprobe:"),
        ("trace BE", "BEGIN "),
        ("trace 'k:a::b::on", "a::b::one"),
        ("trace kprobe:a::b, kretprobe:<a::B as c", "<a::B as c::"),
        ("trace 'kprobe:<a::E>", "<a::E>::"),
        ("trace kprobe:z::{closure#0}::o", "z::{closure#0}::one"),
        ("trace tracepoint:n", "net:"),
        ("trace t:net:", "net:rx|net:tx"),
        ("trace watchpoint:a", "a::"),
        ("trace h:bra", "branch-instructions:|branch-misses:"),
        ("trace software:", "cpu-clock:"),
        ("trace interval:m", "ms:"),
        ("trace nothing:m", ""),
        ("trace k:f { pri", "print(|printf("),
        ("trace k:f { } kretp", "kretprobe:"),
        ("trace 'k:f /nse", "nsecs"),
        ("trace 'k:f /cpu/ { @on = 1; @one = 2; @o", "@on|@one"),
        ("trace 'k:f { $a = 1; @ = $", "$a"),
        ("trace 'k:f { args.c", ""),
        ("trace 'k:f { print(\"pri", ""),
        (r#"trace 'k:f { print("\"pri"#, ""),
        (r#"trace 'k:f { print("\\"); pri"#, "print(|printf("),
        ("trace 'k:f { }' -c run di", "disk "),
        ("trace 'k:f {\npri", "print(|printf("),
        ("trace -c 'run di", "disk "),
    ] {
        assert_eq!(names(line), expected, "{line:?}");
    }
}

#[test]
fn a_path_is_completed_as_far_as_it_is_unique() {
    let common = |line: &str| {
        let mut found = Candidates::default();
        Kernel.complete(line, &mut found).unwrap();
        String::from(found.common())
    };
    assert_eq!(common("symbols a::b"), "a::b::o");
    assert_eq!(common("symbols <"), "<a::");
    assert_eq!(common("symbols two"), "a::c::two");
    assert_eq!(common("trace kp"), "kprobe:");
}

#[test]
fn lines_that_go_on() {
    let open = [
        "trace 'k:f {",
        "trace k:f {",
        "trace k:f { print((1)",
        "trace k:f { printf(\"",
        "trace k:f /* {}",
        "trace -q 'k:f {\n // ",
        "echo 'a",
        "echo \"a\\\"",
        "echo a 'b'\\'' '",
        "trace 'k:f { }' -c 'run",
    ];
    let whole = [
        "trace 'k:f {' -v",
        "trace k:<&'a T>::f { }",
        "trace k:f { } // {",
        "echo it's",
        "echo a { (",
        "echo \\'a",
        "nothing 'a",
        "# 'a {",
        "p:x f \\\"a",
        "p 'a",
        "why <&'a T>",
        "trace",
        "",
    ];
    open.iter().for_each(|line| assert!(Kernel.is_open(line), "{line}"));
    whole.iter().for_each(|line| assert!(!Kernel.is_open(line), "{line}"));
}

/// Noise in place of a line, cut from real ones, does no harm.
#[test]
fn noise() {
    let mut random = kprobes_random::Random::new(1);
    let pieces = [
        "trace ", "echo ", "'", "\"", "-c ", "{", "}", "<", ">", "/", "::", ":", "\u{e4}", " ", "@", "k:", "p:x ", "-",
        "symbols ", "\\", "\n",
    ];
    for _ in 0..20_000 {
        let line: String = (0..random.below(12)).map(|_| pieces[random.below(pieces.len() as u8) as usize]).collect();
        let mut found = Candidates::default();
        assert_eq!(Kernel.complete(&line, &mut found), Ok(()));
        assert!(line.ends_with(found.word()), "{line:?}");
        Kernel.is_open(&line);
    }
}
