//! Each name of bpftrace's reference guide is either known or refused by name.

use std::format;
use std::string::ToString;

use crate::builtins::names;
use crate::check::check;
use crate::error::Problem;
use crate::syntax::{KINDS, parse};

use super::machine::{SimulatedImage, load};
use super::tried;

/// The values and functions of bpftrace's documentation, docs/stdlib.md.
const VALUES: &str = "args cgroup comm pcomm leader_comm cpid has_cpid cpu ncpus ctx curtask elapsed func gid jiffies kstack nsecs \
    numaid pid tid ppid leader_tid probe probetype rand retval uid usermode username ustack dw_ustack assert assert_str fail \
    static_assert bswap buf cat cgroupid cgroup_path clear container_of default_str_length delete errorf warnf exit find getopt \
    has_key is_array is_err is_integer is_literal is_ptr is_str is_unsigned_integer join kaddr kfunc_allowed kfunc_exist kptr uptr \
    ksym usym len macaddr memcmp ntop pton offsetof sizeof typeof override path percpu_kaddr print printf reg signal signal_name \
    signal_thread skboutput socket_cookie str str_concat strcap strlen strncmp strstr strcontains strerror strftime syscall_name \
    system time uaddr unwatch write_user zero avg count hist lhist max min stats sum tseries";

/// bpftrace's keywords, and directives that precede the clauses, docs/language.md.
const KEYWORDS: &str =
    "break config continue for if import let macro return struct union enum unroll while #include #define";

/// bpftrace's kinds of probes, with their short names.
const PROBES: &str = "BEGIN END begin end self test bench hardware h interval i iter it fentry fexit f fr kprobe kretprobe k kr profile \
    p rawtracepoint rt software s tracepoint t uprobe uretprobe u ur usdt U watchpoint w asyncwatchpoint aw";

fn problem(program: &str) -> Option<Problem> {
    load(program).err().map(|error| error.problem)
}

#[test]
fn every_value_and_function_of_the_guide_is_known_or_refused_by_name() {
    for name in tried(VALUES.split_whitespace()) {
        let refused = [format!("kretprobe:f {{ print({name}); }}"), format!("kretprobe:f {{ $x = {name}(1); }}")]
            .map(|program| problem(&program));
        let is_unknown = |problem: &Option<Problem>| {
            matches!(problem, Some(Problem::Word | Problem::Function | Problem::Meant { .. }))
        };
        assert!(!refused.iter().all(is_unknown), "{name}: {refused:?}");
    }
}

/// Every word that completion offers is a word of the language, and every kind is a kind of probe.
#[test]
fn every_word_that_is_completed_is_known() {
    for (name, end) in tried(crate::builtins::words()) {
        let statements = match (name, end) {
            ("if" | "unroll" | "while", _) => vec![format!("{name} (1) {{ }}")],
            ("else", _) => vec!["if (1) { } else { }".into()],
            ("for", _) => vec!["for ($i : 0..2) { }".into()],
            ("break" | "continue", _) => vec![format!("while (1) {{ {name}; }}")],
            ("let", _) => vec!["let $a;".into()],
            ("return", _) => vec!["return;".into()],
            (_, "") => vec![format!("print({name});")],
            _ => vec![format!("{name}();"), format!("@ = {name}();")],
        };
        let problem = |body| problem(&format!("kretprobe:f {{ {body} }}"));
        let problems: Vec<_> = statements.into_iter().map(problem).collect();
        let is_unknown = |problem: &Option<Problem>| {
            matches!(
                problem,
                Some(Problem::Word | Problem::Function | Problem::Meant { .. } | Problem::Expected { .. })
            )
        };
        assert!(!problems.iter().all(is_unknown), "{name}: {problems:?}");
    }
    for name in tried(KINDS.iter().flat_map(|(names, _)| *names)) {
        let problem = parse(&format!("{name}:no {{ }}")).err().map(|error| error.problem);
        assert!(!matches!(problem, Some(Problem::ProbeKind | Problem::Meant { .. })), "{name}: {problem:?}");
    }
}

#[test]
fn a_function_without_its_parentheses_is_said_to_be_one() {
    let mut functions = 0;
    for name in tried(VALUES.split_whitespace().filter(|name| *name != "typeof")) {
        let called = problem(&format!("kretprobe:f {{ $x = {name}(1, 1, 1, 1, 1); }}"));
        if matches!(called, Some(Problem::Word | Problem::Function | Problem::Foreign { .. })) {
            continue;
        }
        let alone = problem(&format!("kretprobe:f {{ $x = {name}; }}"));
        assert!(matches!(alone, None | Some(Problem::Parentheses)), "{name}: {alone:?} {called:?}");
        functions += usize::from(alone.is_some());
    }
    assert!(cfg!(miri) || functions > 40, "{functions}");
}

#[test]
fn every_keyword_of_the_guide_is_known_or_refused_by_name() {
    for name in tried(KEYWORDS.split_whitespace().filter(|name| !name.starts_with('#'))) {
        let problem = problem(&format!("kprobe:f {{ {name} (1) {{ }} }}"));
        assert!(
            problem != Some(Problem::Expected { sign: ";" }) || ["return", "break", "continue"].contains(&name),
            "{name}: {problem:?}"
        );
    }
    for before in tried(["let @m = lruhash(3);", "import \"a\";", "#include <a.h>\n", "struct a { int b; }"]) {
        let problem = problem(&format!("{before} BEGIN {{ }}"));
        assert!(matches!(problem, Some(Problem::Foreign { .. })), "{before}: {problem:?}");
    }
}

#[test]
fn every_kind_of_probe_of_the_guide_is_known_or_refused_by_name() {
    for name in tried(PROBES.split_whitespace()) {
        for probe in [format!("{name}:main {{ }}"), format!("{name} {{ }}")] {
            let problem = problem(&probe);
            // These are refused with the sentence about kinds of probes.
            let is_half = match name {
                "BEGIN" | "END" | "begin" | "end" => probe.contains(':'),
                "kprobe" | "kretprobe" | "interval" | "tracepoint" | "fentry" | "fexit" | "rawtracepoint"
                | "profile" | "software" | "hardware" | "watchpoint" => !probe.contains(':'),
                _ => !probe.contains(':') && name.len() <= 2,
            };
            assert!(!matches!(problem, Some(Problem::ProbeKind | Problem::Meant { .. })) || is_half, "{probe}");
        }
    }
}

/// bpftrace's events of `software:` and `hardware:`, docs/language.md.
const EVENTS: &str = "software:cpu-clock software:cpu software:task-clock software:page-faults software:faults \
    software:context-switches software:cs software:cpu-migrations software:minor-faults software:major-faults \
    software:alignment-faults software:emulation-faults software:dummy software:bpf-output hardware:cpu-cycles hardware:cycles \
    hardware:instructions hardware:cache-references hardware:cache-misses hardware:branch-instructions hardware:branches \
    hardware:branch-misses hardware:bus-cycles hardware:frontend-stalls hardware:backend-stalls hardware:ref-cycles";

#[test]
fn every_event_of_the_guide_is_known_or_refused_by_name() {
    for event in tried(EVENTS.split_whitespace()) {
        for written in [format!("{event} {{ }}"), format!("{event}: {{ }}"), format!("{event}:10000 {{ }}")] {
            match problem(&written) {
                None => {
                    let is_there = event.starts_with("software:cpu") || event.starts_with("hardware:");
                    assert!(is_there && event != "hardware:ref-cycles", "{written}");
                }
                Some(Problem::Foreign { name, .. }) => assert_eq!(name, event),
                Some(other) => panic!("{written}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_refusal_names_what_comes_nearest() {
    for (program, marks, sentence) in tried([
        (
            "kprobe:f { print(ustack); }",
            "                 ^^^^^^",
            "bpftrace's `ustack` is not supported: there is no user space; use kaddr, ksym, kstack",
        ),
        (
            "kprobe:f { print(socket_cookie); }",
            "                 ^^^^^^^^^^^^^",
            "bpftrace's `socket_cookie` is not supported: there are no packets and sockets of Linux; use args.NAME of a \
             function",
        ),
        (
            "kprobe:f { @[args] = count(); }",
            "             ^^^^",
            "bpftrace's `args` is not supported: print(args) prints them all; one is args.NAME, or arg0 to arg7 by \
             register",
        ),
        (
            "kprobe:f { print(arg0->x); }",
            "                     ^^",
            "bpftrace's `->` is not supported: args.NAME and retval have fields; read other memory as integers, as in \
             *(u32 *)(arg0 + 8)",
        ),
        (
            "kprobe:f { print(((struct a *)arg0)->b); }",
            "                   ^^^^^^",
            "bpftrace's `struct` is not supported: the types of the image are available: use args.NAME.FIELD, or *(u32 \
             *)(arg0 + 8)",
        ),
        (
            "kprobe:f { print((bool)arg0); }",
            "                  ^^^^",
            "bpftrace's `bool` is not supported: use an integer: `true` is 1, `false` is 0, and so is the result of a \
             comparison",
        ),
        (
            "kprobe:f { let $x: string[8] = comm; }",
            "                   ^^^^^^",
            "bpftrace's `string` is not supported: a string gets its type from its value: leave the type out",
        ),
        (
            "kprobe:f { $x = 1; print(&$x); }",
            "                         ^",
            "bpftrace's `&` is not supported: variables have no address; use kaddr(\"path\") for a static variable of \
             the kernel",
        ),
        (
            "kprobe:f { print((offsetof(struct a, b), sizeof(struct a))); }",
            "                           ^^^^^^",
            "bpftrace's `struct` is not supported: the types of the image are available: use args.NAME.FIELD, or *(u32 \
             *)(arg0 + 8)",
        ),
        (
            "kprobe:f { print(config); }",
            "                 ^^^^^^",
            "bpftrace's `config` is not supported: it is no value as a whole: name a setting, as in config.max_strlen",
        ),
        (
            "hardware:ref-cycles:1e6 { @[kstack] = count(); }",
            "         ^^^^^^^^^^^^^^",
            "bpftrace's `hardware:ref-cycles` is not supported: no cycles of constant length are counted; use \
             hardware:cpu-cycles, or profile:hz:N",
        ),
        (
            "software:cs:100 { @[kstack] = count(); }",
            "         ^^^^^^",
            "bpftrace's `software:cs` is not supported: use tracepoint:sched:sched_switch",
        ),
    ]) {
        let shown = load(program).unwrap_err().within(program).to_string();
        assert_eq!(shown, format!("{program}\n{marks}\n{sentence}"));
    }
}

#[test]
fn builtins_may_be_written_as_calls() {
    for name in tried(names(false).chain(["comm", "probetype", "retval"])) {
        let program = |value: &str| parse(&format!("kretprobe:f {{ print({value}); }}")).unwrap();
        let called = program(&format!("{name}()"));
        assert_eq!(called.to_string(), program(name).to_string());
        assert!(check(&called, &SimulatedImage).is_ok(), "{name}");
        let problem = problem(&format!("kretprobe:f {{ print({name}(1)); }}"));
        let wanted = if name == "nsecs" { Problem::Clock } else { Problem::ArgumentCount { least: 0, most: 0 } };
        assert_eq!(problem, Some(wanted), "{name}");
    }
}
