//! The programs that the checker refuses, with the place and the reason; and the code of programs that it accepts.

use core::ops::Range;
use std::string::{String, ToString};
use std::vec::Vec;

use aarch64_kprobes::event::Event;
use kprobes_vm::ir::{Op, Operand};
use kprobes_vm::maps::Limits;

use super::{Symbols, check};
use crate::builtins::{CALLABLES, Role, words};
use crate::config::TEXT_MAX;
use crate::error::{Noun, Problem, Span};
use crate::syntax::parse;
use crate::tests::{Bed, Task, is_tried, load, tried};

/// Asserts that `program` is refused with `problem`, at the position of the `^` in `marks`.
#[track_caller]
fn refuses(program: &str, marks: &str, problem: Problem) {
    if !is_tried() {
        return;
    }
    let error = load(program).map(|code| code.to_string()).expect_err(program);
    let shown = error.within(program).to_string();
    assert_eq!((shown.lines().nth(1), error.problem), (Some(marks), problem), "{shown}");
}

/// Asserts that `body`, at the entry of a function, is refused with `problem`, at the position of the `^` in `marks`.
#[track_caller]
fn refuses_body(body: &str, marks: &str, problem: Problem) {
    refuses(&format!("kprobe:f {{ {body} }}"), &format!("           {marks}"), problem);
}

#[test]
fn the_calls_are_there_with_their_numbers_of_arguments() {
    for (name, _) in tried(words().filter(|&(_, next)| next == "(")) {
        let marks = std::format!("      {}", "^".repeat(name.len()));
        refuses_body(&std::format!("print({name});"), &marks, Problem::Parentheses);
    }
    // The parser replaces `getopt`.
    for call in tried(CALLABLES.iter().filter(|call| call.name != "getopt")) {
        let before = match call.role {
            Role::Value => "$x = ",
            Role::Action => "",
            Role::Aggregate => "@x = ",
        };
        let is_miscounted = |arguments: usize| {
            let arguments = std::vec!["1"; arguments].join(", ");
            let program = std::format!("kprobe:f {{ {before}{}({arguments}); }}", call.name);
            load(&program).is_err_and(|error| error.problem == call.miscounted())
        };
        assert!(!(call.least..=call.most).any(&is_miscounted), "{}", call.name);
        assert!(call.least == 0 || is_miscounted(call.least - 1), "{}", call.name);
        // `printf` and `fail` first refuse a format that does not fit, or that is no text.
        assert!(call.most == 32 || is_miscounted(call.most + 1), "{}", call.name);
    }
}

#[test]
fn words_and_functions_are_known_or_refused() {
    refuses_body("print(foo);", "      ^^^", Problem::Word);
    refuses_body("print(argx);", "      ^^^^", Problem::Meant { meant: "args" });
    refuses_body("prinf();", "^^^^^", Problem::Meant { meant: "printf" });
    refuses_body("foo();", "^^^", Problem::Function);
    refuses_body("print(foo(1));", "      ^^^", Problem::Function);
    refuses_body("print(arg8);", "      ^^^^", Problem::ArgumentNumber);
    refuses_body("print(arg01);", "      ^^^^^", Problem::ArgumentNumber);
    refuses_body("print(reg(\"x31\"));", "          ^^^^^", Problem::Register);
    refuses_body("print(reg(\"w0\"));", "          ^^^^", Problem::Register);
    refuses_body("print(reg(x0));", "          ^^", Problem::NotLiteral);
    refuses_body("print(kaddr(\"no\"));", "            ^^^^", Problem::NoAddress);
    refuses_body("print(func == \"no\");", "              ^^^^", Problem::NoSymbol);
}

#[test]
fn each_kind_of_probe_allows_what_it_has() {
    refuses("kprobe:f+4 { print(arg0); }", "                   ^^^^", Problem::ArgumentAway);
    refuses("kretprobe:f { print(arg0); }", "                    ^^^^", Problem::ArgumentAway);
    refuses("inline:f:entry { print(arg0); }", "                       ^^^^", Problem::ArgumentAway);
    refuses("kprobe:f, insn:f:4 { print(arg0); }", "                           ^^^^", Problem::ArgumentAway);
    refuses("kprobe:f { print(retval); }", "                 ^^^^^^", Problem::NoReturnValue);
    refuses("inline:f:return { print(retval); }", "                        ^^^^^^", Problem::NoReturnValue);
    refuses("kretprobe:f, kprobe:f { print(retval); }", "                              ^^^^^^", Problem::NoReturnValue);
    refuses("BEGIN { print(func); }", "              ^^^^", Problem::NoHit);
    refuses("END { print(kstack); }", "            ^^^^^^", Problem::NoHit);
    refuses("profile:hz:99 { @ = sum(arg0); }", "                        ^^^^", Problem::ArgumentAway);
    refuses("software:cpu:1e6 { @ = sum(retval); }", "                           ^^^^^^", Problem::NoReturnValue);
    refuses("profile:hz:99 { for ($kv : @) { } @[1] = 1; }", "                           ^", Problem::LoopAtHit);
    refuses("interval:s:1 { print(reg(\"x0\")); }", "                     ^^^^^^^^^", Problem::NoHit);
    for read in tried(["str(5)", "*(u8 *)5", "buf(5, 3)", "macaddr(5)", "memcmp(5, 6, 3)"]) {
        let program = format!("BEGIN {{ print({read}); }} interval:s:1, END {{ print({read}); }}");
        assert!(load(&program).is_ok(), "{read}");
    }
    refuses("BEGIN { print(caller); }", "              ^^^^^^", Problem::NoHit);
}

#[test]
fn arguments_are_as_many_as_a_function_takes() {
    refuses_body("print();", "^^^^^^^", Problem::ArgumentCount { least: 1, most: 3 });
    refuses_body("print(@x, 1, 2, 3);", "^^^^^^^^^^^^^^^^^^", Problem::ArgumentCount { least: 1, most: 3 });
    refuses_body("exit(10, 1);", "^^^^^^^^^^^", Problem::ArgumentCount { least: 0, most: 1 });
    refuses_body("exit(1);", "     ^", Problem::ExitStatus);
    refuses_body("exit(126);", "     ^^^", Problem::ExitStatus);
    refuses_body("exit(comm);", "     ^^^^", Problem::Type { wanted: Noun::Integer, found: Noun::Text });
    refuses_body("@ = count(1);", "    ^^^^^^^^", Problem::ArgumentCount { least: 0, most: 0 });
    refuses_body("@ = hist();", "    ^^^^^^", Problem::ArgumentCount { least: 1, most: 2 });
    refuses_body("@ = lhist(1, 2);", "    ^^^^^^^^^^^", Problem::ArgumentCount { least: 4, most: 4 });
    refuses_body("print(str());", "      ^^^^^", Problem::ArgumentCount { least: 1, most: 2 });
    refuses_body("print(ksym());", "      ^^^^^^", Problem::ArgumentCount { least: 1, most: 1 });
    refuses_body(
        "print(strncmp(comm, \"a\"));",
        "      ^^^^^^^^^^^^^^^^^^",
        Problem::ArgumentCount { least: 3, most: 3 },
    );
    refuses_body("clear();", "^^^^^^^", Problem::ArgumentCount { least: 1, most: 1 });
}

#[test]
fn values_are_of_the_type_that_is_wanted() {
    let found = |found| Problem::Type { wanted: Noun::Integer, found };
    refuses_body("print(comm + 1);", "      ^^^^", found(Noun::Text));
    refuses_body("print(-func);", "       ^^^^", found(Noun::Symbol));
    refuses_body("print(!kstack);", "       ^^^^^^", found(Noun::Stack));
    refuses_body("if (comm) { }", "    ^^^^", found(Noun::Text));
    refuses_body("@ = sum(probe);", "        ^^^^^", found(Noun::Probe));
    refuses_body("print((u32)comm);", "           ^^^^", found(Noun::Text));
    refuses("kprobe:f /comm/ { }", "          ^^^^", found(Noun::Text));
    refuses_body("print(*arg0);", "       ^^^^", Problem::NotAPointer);
    refuses_body("print(arg0[1]);", "      ^^^^", Problem::NotAPointer);
    refuses_body("print(comm[16]);", "           ^^", Problem::Range { least: 0, most: 15 });
    refuses_body("print(comm[arg0]);", "           ^^^^", Problem::NotConstant);
    refuses_body("print(comm == 1);", "      ^^^^^^^^^", Problem::Types { left: Noun::Text, right: Noun::Integer });
    refuses_body("print(comm < \"a\");", "      ^^^^^^^^^^", Problem::Order);
    refuses_body("print(func > caller);", "      ^^^^^^^^^^^^^", Problem::Order);
    refuses_body(
        "print(strftime(\"%H\", 1) == strftime(\"%M\", 1));",
        "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        Problem::Formats,
    );
    refuses_body(
        "print(cpu ? kstack(perf) : kstack(raw));",
        "      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        Problem::Types { left: Noun::Stack, right: Noun::Stack },
    );
    refuses_body(
        "print(1 ? comm : 2);",
        "      ^^^^^^^^^^^^",
        Problem::Types { left: Noun::Text, right: Noun::Integer },
    );
    refuses_body("$x = comm; $x = 1;", "                ^", Problem::Type { wanted: Noun::Text, found: Noun::Integer });
    refuses_body("$x = \"a\"; $x = comm;", "               ^^^^", Problem::LongText { most: 7 });
    let long = "x".repeat(128);
    refuses_body(
        &format!("print(\"{long}\");"),
        &format!("      {}", "^".repeat(130)),
        Problem::LongText { most: 127 },
    );
}

#[test]
fn numbers_that_have_to_be_known_are() {
    refuses_body("unroll (arg0) { }", "        ^^^^", Problem::NotConstant);
    refuses_body("unroll (101) { }", "        ^^^", Problem::Range { least: 1, most: 100 });
    refuses_body("unroll (0) { }", "        ^", Problem::Range { least: 1, most: 100 });
    refuses_body("print(kstack(65));", "             ^^", Problem::Range { least: 1, most: 64 });
    refuses_body("print(str(arg0, 128));", "                ^^^", Problem::Range { least: 1, most: 127 });
    refuses_body("print(str(arg0, 0));", "                ^", Problem::Range { least: 1, most: 127 });
    refuses_body("@ = 1; print(@, arg0);", "                ^^^^", Problem::NotConstant);
    refuses_body("@ = 1; print(@, 1, 0);", "                   ^", Problem::Range { least: 1, most: u64::MAX });
    refuses_body("@ = lhist(1, 10, 5, 1);", "             ^^^^^^^^", Problem::Bounds { most: 1000 });
    refuses_body("@ = lhist(1, 0, 2000, 1);", "             ^^^^^^^^^^", Problem::Bounds { most: 1000 });
    refuses_body("@ = lhist(1, 0, 10, 0);", "             ^^^^^^^^", Problem::Bounds { most: 1000 });
    refuses_body("@ = lhist(1, arg0, 10, 1);", "             ^^^^", Problem::NotConstant);
}

#[test]
fn a_program_asserts_what_is_known_of_it() {
    refuses_body("static_assert(is_str(arg0), \"text\");", "                            ^^^^^^", Problem::Asserted);
    refuses_body("static_assert(arg0 == 1, \"one\");", "              ^^^^^^^^^", Problem::NotConstant);
    refuses_body("static_assert(1, comm);", "                 ^^^^", Problem::NotLiteral);
    refuses_body("static_assert(1);", "^^^^^^^^^^^^^^^^", Problem::ArgumentCount { least: 2, most: 2 });
    refuses_body("if (arg0) { fail(\"no %d\", 1); }", "                 ^^^^^^^", Problem::Failed);
    refuses_body("assert_str(1);", "           ^", Problem::Type { wanted: Noun::Text, found: Noun::Integer });
    refuses_body("print(assert(1, \"a\"));", "      ^^^^^^^^^^^^^^", Problem::NotAValue);
    refuses_body("is_str(1);", "^^^^^^^^^", Problem::Useless);
    refuses_body("print(is_str(1, 2));", "      ^^^^^^^^^^^^", Problem::ArgumentCount { least: 1, most: 1 });
    refuses_body("print(is_str(@no));", "             ^^^", Problem::UnknownMap);
    refuses_body("@m[1] = 1; print(find(@m, 1, $v));", "                             ^^", Problem::Unset);
    refuses_body("@m[1] = 1; print(find(@m, 1, arg0));", "                             ^^^^", Problem::NoTarget);
    refuses_body("print(nsecs(tai));", "            ^^^", Problem::Clock);
}

#[test]
fn variables_have_a_value_before_they_are_read() {
    refuses_body("print($x);", "      ^^", Problem::Unset);
    refuses_body("$x += 1;", "^^", Problem::Unset);
    refuses_body("$x++;", "^^", Problem::Unset);
    refuses_body("if (arg0) { $x = 1; } print($x);", "                            ^^", Problem::Unset);
    refuses("kprobe:f { $x = 1; } kprobe:g { print($x); }", "                                      ^^", Problem::Unset);
}

#[test]
fn maps_are_of_one_kind() {
    refuses_body("print(@x + 1);", "      ^^", Problem::UnknownMap);
    refuses_body("print(@x);", "      ^^", Problem::UnknownMap);
    refuses_body("delete(@x[1]);", "       ^^^^^", Problem::UnknownMap);
    refuses_body("@a = @b; @b = @a;", "     ^^", Problem::UnknownMap);
    refuses_body("@x = 1; @x = count();", "        ^^", Problem::MapKind);
    refuses_body("@x = count(); @x = sum(1);", "              ^^", Problem::MapKind);
    refuses_body("@x = count(); @x++;", "              ^^", Problem::MapKind);
    refuses_body("@x = lhist(1, 0, 9, 1); @x = lhist(1, 0, 9, 2);", "                        ^^", Problem::MapKind);
    refuses_body("@x = comm; @x += 1;", "           ^^", Problem::Type { wanted: Noun::Integer, found: Noun::Text });
    let pointer = Problem::Type { wanted: Noun::Integer, found: Noun::Pointer };
    for operator in tried(["*", "/", "%", "&", "|", "^", "<<", ">>"]) {
        refuses_body(&format!("@p = (u16 *)arg0; @p {operator}= 2;"), "                  ^^", pointer);
        refuses_body(&format!("$p = (u16 *)arg0; $p {operator}= 2;"), "                  ^^", pointer);
    }
    refuses_body("@p = (u16 *)arg0; @p -= @p;", "                        ^^", pointer);
    refuses_body("$p = (u16 *)arg0; $p += $p;", "                        ^^", pointer);
    refuses_body("@x[1] = 1; @x = 2;", "           ^^", Problem::NoKey);
    refuses_body("@x[1] = 1; @x[1, 2] = 2;", "           ^^^^^^^^", Problem::KeyParts { wanted: 1 });
    refuses_body("@x = 1; @x[1] = 2;", "        ^^^^^", Problem::KeyParts { wanted: 0 });
    refuses_body(
        "@x[1] = 1; @x[comm] = 2;",
        "              ^^^^",
        Problem::KeyType { wanted: Noun::Integer, found: Noun::Text },
    );
    refuses_body("@x = hist(1); print(@x + 1);", "                    ^^", Problem::NoNumber);
    refuses_body("@x[1] = stats(1); @y = @x[1];", "                       ^^^^^", Problem::NoNumber);
    refuses_body("@x[1] = 1; clear(@x[1]);", "                 ^^^^^", Problem::NotAMap);
    refuses_body("print(1, 2);", "      ^", Problem::NotAMap);
    refuses_body("zero(5);", "     ^", Problem::NotAMap);
    refuses_body("count();", "^^^^^^^", Problem::AggregateAlone);
    refuses_body("@x = count() + 1;", "     ^^^^^^^", Problem::AggregateAlone);
    refuses_body("$x = hist(1);", "     ^^^^^^^", Problem::AggregateAlone);
    refuses_body("@x = exit();", "     ^^^^^^", Problem::NotAValue);
    refuses_body("ksym(1);", "^^^^^^^", Problem::Useless);
}

#[test]
fn formats_fit_their_values() {
    refuses_body("printf(comm);", "       ^^^^", Problem::NotLiteral);
    refuses_body("printf(\"%q\", 1);", "       ^^^^", Problem::Conversion);
    refuses_body("printf(\"%\");", "       ^^^", Problem::Conversion);
    refuses_body("printf(\"%999d\", 1);", "       ^^^^^^^", Problem::Conversion);
    refuses_body("printf(\"%d\");", "       ^^^^", Problem::Conversions { conversions: 1, arguments: 0 });
    refuses_body("printf(\"a\", 1);", "       ^^^^^^", Problem::Conversions { conversions: 0, arguments: 1 });
    refuses_body(
        "printf(\"%d\", comm);",
        "             ^^^^",
        Problem::ConversionType { wanted: Noun::Integer, found: Noun::Text },
    );
    refuses_body(
        "printf(\"%s\", arg0);",
        "             ^^^^",
        Problem::ConversionType { wanted: Noun::Text, found: Noun::Integer },
    );
}

#[test]
#[cfg_attr(miri, ignore = "it makes thousands of operations")]
fn programs_are_bounded() {
    let room = Problem::Room { most: 256 };
    let texts: String = (0..40).map(|number| format!("$x{number} = str(arg0); ")).collect();
    let error = load(&format!("kprobe:f {{ {texts} }}")).unwrap_err();
    assert_eq!(error.problem, room);
    for long in ["unroll (100) { unroll (100) { @x++; } }", "unroll (100) { unroll (100) { unroll (100) { } } }"] {
        let error = load(&format!("kprobe:f {{ {long} }}")).unwrap_err();
        assert_eq!(error.problem, Problem::LongCode { most: 4096 }, "{long}");
    }
    let maps: String = (0..300).map(|number| format!("@a{number}=1;")).collect();
    let error = load(&format!("kprobe:f {{ {maps} }}")).unwrap_err();
    assert_eq!(error.problem, Problem::Many { most: 256 });
}

#[test]
fn what_never_runs_takes_no_place_in_the_tables() {
    let unrun = "$s = kstack(50); $t = strftime(\"%H\", nsecs); $u = (1, \"a\"); print(kstack(perf)); 2";
    for body in tried([
        std::format!("if (0) {{ $x = {{ {unrun} }}; }}"),
        std::format!("$x = 1 ? 3 : {{ {unrun} }};"),
        std::format!("$x = sizeof({{ {unrun} }});"),
        "_ = memcmp({ $t = strftime(\"%H\", nsecs); \"ab\" }, \"ac\", 1) + sizeof(kstack(50));".to_string(),
    ]) {
        let program = std::format!("kprobe:f {{ {body} print(1); }}");
        let checked = load(&program).unwrap_or_else(|error| panic!("{}", error.within(&program)));
        let formats = usize::from(body.contains("memcmp"));
        assert_eq!(checked.code.stack_frames, 0, "{program}");
        assert_eq!(checked.formats.len(), formats, "{program}");
        assert_eq!((checked.tuples.len(), checked.rust_values.len(), checked.actions.len()), (0, 0, 1), "{program}");
    }
    // A map gets its type from such a block if no other code tells it.
    let program = "kprobe:f { if (0) { @t = strftime(\"%H\", nsecs); @u = (1, \"a\"); } print(@t); print(@u); }";
    let checked = load(program).unwrap();
    assert_eq!((checked.formats.len(), checked.tuples.len()), (1, 1));
}

/// Returns the code of `program`.
fn code(program: &str) -> String {
    load(program).unwrap_or_else(|error| panic!("{}", error.within(program))).to_string()
}

#[test]
fn a_predicate_is_a_branch_and_a_key_that_is_there_is_not_copied() {
    assert_eq!(
        code("kprobe:blk::* /arg1 > 512/ { @[func] = hist(arg1); }"),
        "\
map 0: @ [Symbol] Aggregate(Histogram { bits: 0 })
kprobe:blk::*:
   0  w0 = Register(X(1))
   1  to 5 if BelowEqual w0, 512
   2  w0 = Register(X(1))
   3  w1 = Function
   4  map 0 [w1] collects w0
"
    );
}

#[test]
fn conditions_jump_forward_only_and_what_is_known_is_computed() {
    assert_eq!(
        code("kprobe:f { if (arg0 == 1 && !(arg1 || 0) ) { exit(); } else { @x[cpu, 2 * 3] = 1 << 4; } }"),
        "\
map 0: @x [Integer { signed: false }, Integer { signed: true }] Value(Integer { signed: true })
action 0: Exit
kprobe:f:
   0  w0 = Register(X(0))
   1  to 8 if Unequal w0, 1
   2  w1 = Register(X(1))
   3  to 8 if Unequal w1, 0
   4  action 0 with w0 for 0
   5  exit 0
   6  to 13
   7  to 13
   8  w0 = Cpu
   9  w1 = w0
  10  w2 = 6
  11  w3 = 16
  12  map 0 [w1] = w3
"
    );
}

#[test]
fn marks_are_as_wide_as_what_they_mark() {
    let source = "BEGIN\t{ printf(\"\u{65e5}\u{672c}\", \u{1f4a5}\u{65e5}e\u{301}); }";
    let start = source.find('\u{1f4a5}').unwrap();
    let cause = Span { start, end: source.find(')').unwrap() };
    assert_eq!(cause.mark(source).to_string(), std::format!("{source}\n     \t                 ^^^^^"));
    let end = Span { start: source.len(), end: source.len() };
    assert!(end.mark(source).to_string().ends_with(&std::format!("\t{:26}^", "")));
}

aarch64_kprobes::event! {
    struct Sample = test:sample {
        comm: [u8; 16],
        long: [u8; 200],
    }
}

aarch64_kprobes::event! {
    struct Named<'a> = test:named {
        name: aarch64_kprobes::event::Text<'a>,
    }
}

/// An image with events.
struct WithEvents;

impl Symbols for WithEvents {
    fn address(&self, _: &str) -> Option<u64> {
        None
    }

    fn functions(&self, _: &str) -> Result<Vec<Range<u64>>, Problem> {
        Ok(Vec::new())
    }

    fn each_event(&self, each: &mut dyn FnMut(&'static Event)) {
        each(Sample::EVENT);
        each(Named::EVENT);
    }
}

/// An array of characters without a zero is read as a string of all characters, up to the longest string.
#[test]
fn a_full_array_of_characters_is_read_whole() {
    for (field, expected) in [("comm", 16), ("long", TEXT_MAX)] {
        let program = std::format!("tracepoint:test:sample {{ print(args.{field}); }}");
        let checked = check(&parse(&program).unwrap(), &WithEvents).unwrap();
        let reads = checked.code.routines[0].ops.iter().find_map(|op| match op {
            Op::ReadText { words, length: Operand::Constant(length), .. } => {
                Some((*length).min(u64::from(*words) * 8 - 1))
            }
            _ => None,
        });
        assert_eq!(reads, Some(expected as u64), "{field}");
    }
}

#[test]
fn a_string_of_an_event_is_as_long_as_the_program_sets() {
    let mut memory = [0; 64];
    memory[..8].copy_from_slice(&0x8010_u64.to_le_bytes());
    memory[8] = 20;
    memory[16..36].copy_from_slice(b"a text of 20 letters");
    for (settings, shown) in tried([("max_strlen = 3", "a t\n3\n"), ("", "a text of 20 letters\n20\n")]) {
        let text = "print(args.name); print(strlen(str(args.name)));";
        let text = std::format!("config = {{ {settings} }} tracepoint:test:named {{ {text} }}");
        let program = check(&parse(&text).unwrap(), &WithEvents).unwrap();
        let limits = Limits { entries: 32, stacks: 16, output_bytes: 2 << 10, ..Limits::usual(1) };
        let bed = Bed::of(program, &limits);
        bed.hit(0, &Task { memory, ..Task::with(&[0x8000]) });
        assert_eq!(bed.finish(), shown, "{text}");
    }
}
